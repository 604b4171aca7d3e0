//! Files and directories of volumes that somebody else changes, while they are served and between two servers: nothing is made
//! or removed in the wrong place, and what is not the volume's data is not served as such.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::rig::controlled::Controlled;
use crate::rig::wire::FUA;
use crate::rig::{Directory, parse, run};
use crate::stored::{Loop, Mounted, connect, contracts, refused, start};
use iofair_config::contracts::Contracts;
use iofair_serve::control::client::Call;
use iofair_serve::pool::admin::{self, Creation};
use iofair_serve::{Consent, Server};

const MIB: u64 = 1 << 20;
const EIO: u32 = 5;
const WRITE_ZEROES: u16 = 6;

/// Goal: a server makes and removes nothing in another directory than the one that it has locked. Method: its directory is moved,
/// with nothing and with another pool in its place, and comes back.
#[test]
fn another_directory_in_place_is_left_alone() {
    let directory = Directory::new();
    let (pool, away) = (directory.path("pool"), directory.path("away"));
    let list = |volumes: &[(&str, &str, &str)]| {
        parse(&contracts(&directory, &format!("directory:{pool}"), volumes))
    };
    let (v, w, n) = (("v", "g", ""), ("w", "g", ""), ("n", "g", ""));
    let mut server = Server::start(list(&[v, w])).unwrap();
    let deleted = ["v".to_string()];
    fs::rename(&pool, &away).unwrap();
    for is_there in [false, true] {
        if is_there {
            fs::create_dir(&pool).unwrap();
            fs::write(format!("{pool}/v.img"), "somebody's data").unwrap();
        }
        let errors = [
            server.reload(list(&[v, w, n])).unwrap_err().to_string(),
            server.reload(list(&[v])).unwrap_err().to_string(),
            server.reload_and_remove(list(&[w]), &deleted).unwrap_err().to_string(),
        ];
        for error in errors {
            assert!(error.contains("not at this path any more"), "{error}");
        }
    }
    let other = contracts(&directory, &format!("directory:{pool}"), &[v, w]);
    // No file has to change for that.
    server.reload(parse(&other.replace("none-none", "prop-bfq"))).unwrap();
    assert_eq!(fs::read_dir(&pool).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(format!("{pool}/v.img")).unwrap(), "somebody's data");
    assert_eq!(connect(&directory, "v").write(FUA, 0, &[7; 4096]), 0, "what is served goes on");
    fs::remove_dir_all(&pool).unwrap();
    fs::rename(&away, &pool).unwrap();
    server.reload_and_remove(list(&[w, n]), &deleted).unwrap();
    server.stop().unwrap();
}

/// Goal: no volume gets another size, and no new one is made, in a file that is not where it was: its data would be lost unnoticed.
/// Method: files of every kind that are removed, and replaced; a change of sizes, made and only tried.
#[test]
fn a_file_that_is_gone_takes_no_changes() {
    for (kind, file) in [("directory", "pool/v.img"), ("file", "pool"), ("emulated", "pool")] {
        for (how, message) in [("removed", "was removed"), ("replaced", "is not there any more")] {
            let directory = Directory::new();
            let path = directory.path("pool");
            let back = match kind {
                "emulated" => format!("emulated:samsung-970-pro@{path}"),
                kind => format!("{kind}:{path}"),
            };
            let text = |size: &str| {
                contracts(&directory, &back, &[("v", "g", &format!("size = '{size}'"))])
            };
            let (small, large) = (text("8MiB"), text("9MiB"));
            let contract_file = directory.path("contracts.toml");
            fs::write(&contract_file, small).unwrap();
            let rig = Controlled::over(directory);
            let mut wire = connect(&rig.directory, "v");
            assert_eq!(wire.write(FUA, 0, &[7; 4096]), 0);
            let file = rig.directory.path(file);
            match how {
                "removed" => fs::remove_file(&file).unwrap(),
                _ => fs::rename(&file, rig.directory.path("away")).unwrap(),
            }
            if how == "replaced" {
                fs::write(&file, "somebody's data").unwrap();
            }
            for query in ["", "?dry_run=true"] {
                let path = format!("/v1/volumes/v{query}");
                let call = Call::new("PATCH", &path).body(serde_json::json!({ "size": "9MiB" }));
                let reply = rig.ask(&call);
                let text = String::from_utf8_lossy(&reply.body).into_owned();
                assert!(reply.status == 422 && text.contains(message), "{kind}, {how}: {text}");
            }
            fs::write(&contract_file, large).unwrap();
            let reply = rig.ask(&Call::new("POST", "/v1/reload"));
            assert_eq!(reply.status, 422, "{kind}, {how}: a reload");
            assert_eq!(wire.read(0, 4096).data, [7; 4096], "what is served goes on");
        }
    }
}

/// Goal: a file that is shorter than its volume was is refused and not filled with zeroes, unless the operator agrees. Method: files of
/// every kind that are cut off or replaced by an empty one between two servers.
#[test]
fn files_that_were_cut_off_are_refused() {
    let directory = Directory::new();
    let path = format!("path = '{}'", directory.path("own"));
    let back = format!("directory:{}", directory.path("pool"));
    let all = [("v", "g", ""), ("k", "g", ""), ("p", "g", path.as_str())];
    let server = start(&contracts(&directory, &back, &all), &[]).unwrap();
    for volume in ["v", "k", "p"] {
        assert_eq!(connect(&directory, volume).write(FUA, 0, &[7; 4096]), 0);
    }
    server.stop().unwrap();
    start(&contracts(&directory, &back, &[all[0], all[2]]), &[]).unwrap().stop().unwrap();
    for (volume, file) in [("v", "pool/v.img"), ("k", "pool/k.img"), ("p", "own")] {
        let (file, text) = (directory.path(file), contracts(&directory, &back, &all));
        let whole = fs::read(&file).unwrap();
        for bytes in [0, 4 * MIB] {
            fs::File::options().write(true).open(&file).unwrap().set_len(bytes).unwrap();
            refused(&text, &format!("{file} has {bytes} bytes, although this volume had 8388608"));
            refused(&text, &format!("--take-over {volume}"));
            assert_eq!(fs::metadata(&file).unwrap().len(), bytes);
        }
        start(&text, &[volume]).unwrap().stop().unwrap();
        fs::write(&file, whole).unwrap();
        start(&text, &[]).unwrap().stop().unwrap();
    }
    let shorter = contracts(&directory, &back, &[("v", "g", "size = '4MiB'")]);
    let consent = Consent { shrink: vec!["v".into()], ..Consent::default() };
    Server::start_with(parse(&shorter), Default::default(), &consent).unwrap().stop().unwrap();
    start(&shorter, &[]).unwrap().stop().unwrap();
}

/// Goal: the same for the drive that an emulated drive's file is, and nothing is begun anew when its list, its note or everything but
/// the contract file is gone; data of others is not overwritten. Method: each is cut off, removed or replaced.
#[test]
fn emulated_drives_are_not_begun_anew() {
    let directory = Directory::new();
    let mount = directory.path("mount");
    fs::create_dir(&mount).unwrap();
    let drive = format!("{mount}/drive");
    let text =
        contracts(&directory, &format!("emulated:samsung-970-pro@{drive}"), &[("v", "g", "")]);
    let file = directory.path("contracts.toml");
    fs::write(&file, &text).unwrap();
    let open = || Contracts::open(Path::new(&file)).unwrap();
    let refused = |words: &str| {
        let error = Server::start(open()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        let checked = Server::check(&open(), &Consent::default()).unwrap_err().to_string();
        assert_eq!(checked, error);
        error
    };
    let begin = || {
        let server = Server::start(open()).unwrap();
        assert_eq!(connect(&directory, "v").write(FUA, 0, &[7; 4096]), 0);
        server.stop().unwrap();
    };
    begin();
    let away = directory.path("away");
    fs::rename(&mount, &away).unwrap();
    fs::create_dir(&mount).unwrap();
    refused("is the right file system mounted?");
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 0);
    fs::remove_dir(&mount).unwrap();
    fs::rename(&away, &mount).unwrap();
    let (list, kept) = (format!("{drive}.volumes"), directory.path("list"));
    fs::rename(&list, &kept).unwrap();
    refused("is the right file system mounted?");
    fs::rename(&kept, &list).unwrap();
    let length = fs::metadata(&drive).unwrap().len();
    let cut = |bytes| fs::File::options().write(true).open(&drive).unwrap().set_len(bytes).unwrap();
    cut(4 * MIB);
    let error = refused("has 4194304 bytes");
    assert_eq!(fs::metadata(&drive).unwrap().len(), 4 * MIB);
    cut(length);
    let server = Server::start(open()).unwrap();
    assert_eq!(connect(&directory, "v").read(0, 4096).data, [7; 4096]);
    server.stop().unwrap();
    cut(0);
    run("sh", &["-c", error.split('`').nth(1).unwrap()]);
    begin();
    fs::remove_file(&list).unwrap();
    run("sh", &["-c", &format!("rm {file}.iofair {drive}.iofair")]);
    refused("has data");
    fs::remove_file(&drive).unwrap();
    begin();
}

/// Goal: what somebody does to a file while it is served is reported: it is renamed, replaced, hidden by another directory, or cut off.
/// Method: each of them, with a second name by which the file lives on.
#[test]
fn files_that_are_moved_or_cut_are_reported() {
    for (back, file) in [
        ("directory:DIR/pool", "pool/v.img"),
        ("file:DIR/pool/pool.img", "pool/pool.img"),
        ("emulated:samsung-970-pro@DIR/pool/drive", "pool/drive"),
    ] {
        let directory = Directory::new();
        fs::create_dir(directory.path("pool")).unwrap();
        let back = back.replace("DIR", directory.0.to_str().unwrap());
        let text = contracts(&directory, &back, &[("v", "g", "")]);
        fs::write(directory.path("contracts.toml"), &text).unwrap();
        let scene = Controlled::over(directory);
        let [file, pool] = [file, "pool"].map(|path| scene.directory.path(path));
        let [other, away] = ["other", "away"].map(|path| scene.directory.path(path));
        fs::hard_link(&file, &other).unwrap();
        let told = || {
            let status = scene.get("/v1/status");
            let first = &status["removed_files"][0];
            assert!(first["path"].is_null() || first["path"] == file, "{status}");
            first["text"].as_str().unwrap_or_default().to_string()
        };
        assert_eq!(told(), "");
        fs::remove_file(&file).unwrap();
        assert!(told().contains("put it back") && told().contains("hard link"), "{}", told());
        assert!(!told().contains("(deleted)"), "{}", told());
        fs::write(&file, "another one").unwrap();
        assert!(told().contains("put it back"), "{}", told());
        fs::rename(&other, &file).unwrap();
        assert_eq!(told(), "");
        fs::rename(&pool, &away).unwrap();
        fs::create_dir(&pool).unwrap();
        assert!(told().contains("put it back"), "{}", told());
        fs::remove_dir(&pool).unwrap();
        fs::rename(&away, &pool).unwrap();
        assert_eq!(told(), "");
        fs::File::options().write(true).open(&file).unwrap().set_len(4096).unwrap();
        assert!(told().contains("truncated to 4096 bytes"), "{}", told());
        let metrics = scene.ask(&Call::new("GET", "/metrics")).body;
        assert!(String::from_utf8(metrics).unwrap().contains("\niofair_removed_files 1\n"));
        let Controlled { control, directory: _directory } = scene;
        let _ = control.stop();
    }
}

/// Goal: a volume whose file somebody has removed does not go without consent, and one whose file was moved is not said to be deleted.
/// Method: removals with and without `data=delete`.
#[test]
fn volumes_without_files_do_not_go_silently() {
    let directory = Directory::new();
    let text = contracts(
        &directory,
        &format!("directory:{}", directory.path("pool")),
        &[("v", "g", ""), ("w", "g", "")],
    );
    fs::write(directory.path("contracts.toml"), &text).unwrap();
    let scene = Controlled::over(directory);
    let [v, w, away] = ["pool/v.img", "pool/w.img", "away"].map(|path| scene.directory.path(path));
    let remove = |path: &str| {
        let response = scene.ask(&Call::new("DELETE", path));
        (response.status, String::from_utf8(response.body).unwrap())
    };
    fs::remove_file(&v).unwrap();
    let (status, told) = remove("/v1/volumes/v");
    assert!(status == 422 && told.contains("cannot be kept"), "{status} {told}");
    let (status, told) = remove("/v1/volumes/v?data=delete");
    assert_eq!(status, 200, "{told}");
    fs::rename(&w, &away).unwrap();
    let (status, told) = remove("/v1/volumes/w?data=delete");
    assert!(status == 422 && told.contains("not deleted"), "{status} {told}");
    let (status, told) = remove("/v1/volumes/w");
    assert_eq!(status, 200, "{told}");
    let Controlled { control, directory: _directory } = scene;
    control.stop().unwrap();
}

/// Goal: a file that was cut off while it is served stays so, and is reported until the end, whatever changes and whoever writes; the
/// next start refuses it. Method: changes of all kinds and a write at the end.
#[test]
fn files_that_were_cut_off_are_not_filled() {
    let directory = Directory::new();
    let text =
        contracts(&directory, &format!("directory:{}", directory.path("pool")), &[("v", "g", "")]);
    let text = text.replace("none-none", "prop-bfq");
    fs::write(directory.path("contracts.toml"), &text).unwrap();
    let scene = Controlled::over(directory);
    let file = scene.directory.path("pool/v.img");
    let length = || fs::metadata(&file).unwrap().len();
    let told = |scene: &Controlled| scene.get("/v1/status")["removed_files"][0]["text"].to_string();
    let cut = || fs::File::options().write(true).open(&file).unwrap().set_len(4096).unwrap();
    cut();
    let patch = |path: &str, body: serde_json::Value| {
        scene.ask(&Call::new("PATCH", path).body(body)).status
    };
    assert_eq!(patch("/v1/groups/g", serde_json::json!({ "weight": 7 })), 200);
    assert_eq!(length(), 4096);
    let growth = scene
        .ask(&Call::new("PATCH", "/v1/volumes/v").body(serde_json::json!({ "size": "16MiB" })));
    assert!(String::from_utf8(growth.body).unwrap().contains("truncated to 4096 bytes"));
    assert_eq!((growth.status, length()), (422, 4096));
    assert!(told(&scene).contains("truncated to 4096 bytes"), "{}", told(&scene));
    let Controlled { control, directory } = scene;
    let _ = control.stop();
    refused(&text, "although this volume had 8388608");
    start(&text, &["v"]).unwrap().stop().unwrap();
    let scene = Controlled::over(directory);
    assert_eq!(told(&scene), "null");
    cut();
    assert!(told(&scene).contains("truncated to 4096 bytes"), "{}", told(&scene));
    assert_eq!(connect(&scene.directory, "v").write(FUA, 8 * MIB - 4096, &[7; 4096]), EIO);
    assert_eq!(length(), 4096);
    assert!(told(&scene).contains("truncated to 4096 bytes"), "{}", told(&scene));
    let Controlled { control, directory: _directory } = scene;
    let _ = control.stop();
}

/// Goal: a client that meets a cut file before anybody looks at it does not hide the loss: it gets no zeroes in place of data, what is
/// left can be used, and the next start refuses the file. Method: writes, zeroes and reads at the end and behind the cut, in volumes
/// of each kind; first of all a write that leaves the file short.
#[test]
fn clients_do_not_fill_what_was_cut_off() {
    for (back, options, file) in [
        ("directory:DIR/pool", "", "pool/v.img"),
        ("directory:DIR/pool", "path = 'DIR/elsewhere'", "elsewhere"),
        ("file:DIR/pool.img", "", "pool.img"),
    ] {
        for first in ["middle", "write", "zeroes", "read"] {
            let directory = Directory::new();
            let [back, options] =
                [back, options].map(|text| text.replace("DIR", directory.0.to_str().unwrap()));
            let text = contracts(&directory, &back, &[("v", "g", &options)]);
            fs::write(directory.path("contracts.toml"), &text).unwrap();
            let scene = Controlled::over(directory);
            let file = fs::File::options().write(true).open(scene.directory.path(file)).unwrap();
            let length = || file.metadata().unwrap().len();
            let mut client = connect(&scene.directory, "v");
            assert_eq!(client.write(FUA, 0, &[7; 4096]), 0);
            let (whole, end) = (length(), 8 * MIB - 4096);
            file.set_len(whole - 4 * MIB).unwrap();
            let error = match first {
                "middle" => client.write(FUA, 6 * MIB, &[7; 4096]),
                "write" => client.write(FUA, end, &[7; 4096]),
                "zeroes" => {
                    let zeroes = client.request(WRITE_ZEROES, FUA, end, 4096);
                    client.stream.write_all(&zeroes).unwrap();
                    client.receive().unwrap().error
                }
                _ => client.read(end, 4096).error,
            };
            assert_eq!((error, length()), (EIO, whole - 4 * MIB), "{back}: {first}");
            assert_eq!(client.write(FUA, 6 * MIB, &[7; 4096]), EIO, "{back}: {first}");
            assert_eq!(client.read(0, 4096).data, [7; 4096]);
            let told = scene.get("/v1/status")["removed_files"][0]["text"].to_string();
            assert!(told.contains(&format!("truncated to {} bytes", length())), "{told}");
            let Controlled { control, directory: _directory } = scene;
            let _ = control.stop();
            assert_eq!(length(), whole - 4 * MIB, "{back}: {first}");
            refused(&text, "cut off");
        }
    }
}

/// Goal: the same for the file of a pool, which grows with its volumes. Method: a volume is added after it was cut off.
#[test]
fn pools_that_were_cut_off_are_not_filled() {
    let directory = Directory::new();
    let pool = directory.path("pool.img");
    let text =
        |volumes: &[(&str, &str, &str)]| contracts(&directory, &format!("file:{pool}"), volumes);
    let (v, w) = (("v", "g", ""), ("w", "g", ""));
    let mut server = start(&text(&[v]), &[]).unwrap();
    let file = fs::File::options().write(true).open(&pool).unwrap();
    let whole = file.metadata().unwrap().len();
    file.set_len(whole - 4096).unwrap();
    let error = server.reload(parse(&text(&[v, w]))).unwrap_err().to_string();
    assert!(error.contains("it was cut off"), "{error}");
    assert_eq!(file.metadata().unwrap().len(), whole - 4096);
    file.set_len(whole).unwrap();
    server.reload(parse(&text(&[v, w]))).unwrap();
    server.stop().unwrap();
}

/// Goal: files without data may have been made for an emulated drive, also with room for it. Method: a file with room and a sparse one;
/// one with data, whose owner is not told to delete it.
#[test]
fn preallocated_files_have_no_data() {
    let directory = Directory::new();
    let drive = directory.path("drive");
    let text =
        contracts(&directory, &format!("emulated:samsung-970-pro@{drive}"), &[("v", "g", "")]);
    fs::write(&drive, "somebody's data").unwrap();
    let error = start(&text, &[]).unwrap_err();
    assert!(error.contains("it has data") && !error.contains("`rm "), "{error}");
    fs::remove_file(&drive).unwrap();
    run("fallocate", &["-l", "1MiB", &drive]);
    assert!(fs::metadata(&drive).unwrap().blocks() > 0);
    start(&text, &[]).unwrap().stop().unwrap();
}

/// Goal: a change that could not be made takes its growth back, so that the old contracts can be served, and data stays its group's.
/// Method: a contract file that cannot be replaced, since it is a mount point.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_growth_that_failed_is_taken_back() {
    let directory = Directory::new();
    let back = format!("directory:{}", directory.path("pool"));
    let file = directory.path("contracts.toml");
    fs::write(&file, contracts(&directory, &back, &[("v", "g", ""), ("x", "g", "")])).unwrap();
    let scene = Controlled::over(directory);
    let create = |query: &str| {
        let body = serde_json::json!({ "group": "h", "size": "8MiB" });
        scene.ask(&Call::new("PUT", &format!("/v1/volumes/x{query}")).body(body)).status
    };
    assert_eq!(scene.ask(&Call::new("DELETE", "/v1/volumes/x")).status, 200);
    let resize = || {
        let body = serde_json::json!({ "size": "16MiB" });
        scene.ask(&Call::new("PATCH", "/v1/volumes/v").body(body)).status
    };
    let length = || fs::metadata(scene.directory.path("pool/v.img")).unwrap().len();
    {
        let _mounted = Mounted::new(&["--bind", &file, &file]);
        assert_eq!(resize(), 500);
        assert_eq!(length(), 8 * MIB);
        assert_eq!(create("?take_over=true"), 500);
    }
    assert_eq!(create(""), 422, "it is kept for the other group");
    assert_eq!((resize(), length()), (200, 16 * MIB));
    let Controlled { control, .. } = scene;
    control.stop().unwrap();
}

/// Goal: a list of a later version is refused, and not written without the parts that are unknown. Method: unknown words on both levels.
#[test]
fn lists_of_later_versions_are_refused() {
    let directory = Directory::new();
    let text =
        contracts(&directory, &format!("directory:{}", directory.path("pool")), &[("v", "g", "")]);
    start(&text, &[]).unwrap().stop().unwrap();
    let list = directory.path("pool/.iofair.json");
    let whole = fs::read_to_string(&list).unwrap();
    for later in [
        whole.replacen('{', "{\"version\": 2,", 1),
        whole.replacen("\"group\"", "\"encrypted\": true, \"group\"", 1),
    ] {
        fs::write(&list, &later).unwrap();
        refused(&text, "later version");
        assert_eq!(fs::read_to_string(&list).unwrap(), later);
    }
    // Earlier ones have no sizes.
    let mut earlier: serde_json::Value = serde_json::from_str(&whole).unwrap();
    earlier["volumes"]["v"].as_object_mut().unwrap().remove("bytes");
    earlier["paths"] = serde_json::json!(["/nowhere"]);
    fs::write(&list, earlier.to_string()).unwrap();
    start(&text, &[]).unwrap().stop().unwrap();
}

/// Descriptors of this process at a path.
fn descriptors(path: &str) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target == Path::new(path)).count()
}

/// Goal: volumes elsewhere take one lock for each directory around them, not each. Method: two files in one, added one after the other;
/// it is free when both are gone.
#[test]
fn a_directory_around_files_is_locked_once() {
    let directory = Directory::new();
    let around = directory.path("around");
    fs::create_dir(&around).unwrap();
    let [a, b] = ["a", "b"].map(|name| format!("path = '{around}/{name}'"));
    let text = |volumes: &[(&str, &str, &str)]| {
        contracts(&directory, &format!("directory:{}", directory.path("pool")), volumes)
    };
    let mut server = start(&text(&[("a", "g", &a)]), &[]).unwrap();
    server.reload(parse(&text(&[("a", "g", &a), ("b", "g", &b)]))).unwrap();
    assert_eq!(descriptors(&around), 1);
    server.stop().unwrap();
    assert_eq!(descriptors(&around), 0);
}

/// Goal: nothing in a server's pool directory is another server's, not even a file that is kept for a group or a new one; servers on
/// files share a directory. Method: a second server on such files, by their path and by a link; the other order, too.
#[test]
fn files_in_a_pool_directory_are_its_servers() {
    let (directory, second) = (Directory::new(), Directory::new());
    let pool = directory.path("pool");
    let mine = |volumes: &[(&str, &str, &str)]| {
        contracts(&directory, &format!("directory:{pool}"), volumes)
    };
    let (v, k) = (("v", "g", ""), ("k", "g", ""));
    start(&mine(&[v, k]), &[]).unwrap().stop().unwrap();
    let server = start(&mine(&[v]), &[]).unwrap();
    let before = fs::metadata(format!("{pool}/k.img")).unwrap().len();
    symlink(&pool, second.path("link")).unwrap();
    let other = |back: &str, more: &str| contracts(&second, back, &[("w", "h", more)]);
    for place in [pool.as_str(), &second.path("link")] {
        for back in ["file:PLACE/new", "emulated:samsung-970-pro@PLACE/k.img"] {
            refused(&other(&back.replace("PLACE", place), ""), "another server uses it");
        }
        let own = format!("path = '{place}/k.img'");
        let text = other(&format!("directory:{}", second.path("pool")), &own);
        refused(&text.replace("paths = [", &format!("paths = ['{pool}', ")), "another server uses");
    }
    assert_eq!(fs::metadata(format!("{pool}/k.img")).unwrap().len(), before);
    assert!(!fs::exists(format!("{pool}/new")).unwrap());
    server.stop().unwrap();
    let shared = second.path("shared");
    fs::create_dir(&shared).unwrap();
    let one = start(&other(&format!("file:{shared}/one"), ""), &[]).unwrap();
    let two = contracts(&directory, &format!("file:{shared}/two"), &[("w", "h", "")]);
    start(&two, &[]).unwrap().stop().unwrap();
    let all = contracts(&directory, &format!("directory:{shared}"), &[("w", "h", "")]);
    refused(&all, "another server uses it");
    one.stop().unwrap();
}

/// Goal: a pool directory has one server although its file system does not tell other hosts of locks on directories, as NFS. Method: a
/// lock on a file in it, as another host has it, also before the first start. The list, which is replaced, is not kept open: NFS would
/// rename it first, so that a moment is without a list.
#[test]
fn a_file_of_a_pool_is_locked() {
    let directory = Directory::new();
    let text = |volumes: &[(&str, &str, &str)]| {
        contracts(&directory, &format!("directory:{}", directory.path("pool")), volumes)
    };
    let list = directory.path("pool/.iofair.json");
    let file = directory.path("pool/.iofair.lock");
    let (v, w) = (("v", "g", ""), ("w", "g", ""));
    let other = || {
        let other = fs::File::create(&file).unwrap();
        other.lock().unwrap();
        refused(&text(&[v, w]), "another server uses it");
    };
    fs::create_dir(directory.path("pool")).unwrap();
    Server::check(&parse(&text(&[v])), &Consent::default()).unwrap();
    assert_eq!(fs::read_dir(directory.path("pool")).unwrap().count(), 0);
    other();
    assert!(!fs::exists(&list).unwrap());
    fs::remove_file(&file).unwrap();
    let mut server = start(&text(&[v]), &[]).unwrap();
    server.reload(parse(&text(&[v, w]))).unwrap();
    assert!(fs::File::open(&file).unwrap().try_lock_shared().is_err());
    assert_eq!(descriptors(&list), 0);
    server.stop().unwrap();
    other();
    start(&text(&[v, w]), &[]).unwrap().stop().unwrap();
}

/// Goal: another pool on a device, as when devices get other names, is not taken for the one that was there, and gets no empty volumes.
/// Method: two pools, one after the other on the same device.
#[test]
#[ignore = "needs root: loop devices"]
fn needs_root_another_pool_on_a_device_is_refused() {
    let directory = Directory::new();
    let image = directory.path("image");
    fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    let device = Loop::new(&image);
    let create = || {
        let creation = Creation { blank: true, force: true, ..Creation::default() };
        admin::create(device.path().as_ref(), &creation).unwrap();
    };
    create();
    let file = directory.path("contracts.toml");
    fs::write(&file, contracts(&directory, device.path(), &[("v", "g", "")])).unwrap();
    let open = || Contracts::open(Path::new(&file)).unwrap();
    Server::start(open()).unwrap().stop().unwrap();
    Server::start(open()).unwrap().stop().unwrap();
    create();
    let error = Server::start(open()).unwrap_err().to_string();
    assert!(error.contains("is it the right device?"), "{error}");
    assert!(admin::show(device.path().as_ref()).unwrap().volumes.is_empty());
    run("sh", &["-c", error.split('`').nth(1).unwrap()]);
    Server::start(open()).unwrap().stop().unwrap();
}

/// Goal: a loop device and its file have one server, and two loop devices of a file, too. Method: pairs of them.
#[test]
#[ignore = "needs root: loop devices"]
fn needs_root_a_loop_device_and_its_file_have_one_server() {
    let (directory, second) = (Directory::new(), Directory::new());
    let image = directory.path("image");
    fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    admin::create(image.as_ref(), &Creation { file: true, ..Creation::default() }).unwrap();
    let (one, two) = (Loop::new(&image), Loop::new(&image));
    let file = format!("file:{image}");
    for (first, other) in
        [(one.path(), two.path()), (one.path(), &file), (&file, one.path()), (&file, two.path())]
    {
        let server = start(&contracts(&directory, first, &[("v", "g", "")]), &[]).unwrap();
        refused(&contracts(&second, other, &[("v", "g", "")]), "another server uses");
        server.stop().unwrap();
        start(&contracts(&second, other, &[("v", "g", "")]), &[]).unwrap().stop().unwrap();
    }
}
