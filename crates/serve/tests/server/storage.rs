//! What holds volumes' data: it belongs to one server, what is missing is not made anew, what was lost is told to everybody, and
//! a full disk can be emptied.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::rig::controlled::Controlled;
use crate::rig::wire::{FUA, Wire};
use crate::rig::{Directory, parse, run};
use crate::stored::{Loop, Mounted, connect, contracts, refused, start};
use iofair_config::contracts::Contracts;
use iofair_drive::measure::Device as _;
use iofair_serve::control::client::Call;
use iofair_serve::measure::{Access, FileDevice};
use iofair_serve::pool::admin::{self, Creation};
use iofair_serve::{Consent, Server, Snapshot};

const MIB: u64 = 1 << 20;
const EIO: u32 = 5;
const ENOSPC: u32 = 28;

fn flush(wire: &mut Wire) -> u32 {
    wire.send_flush().unwrap();
    wire.receive().unwrap().error
}

/// Goal: whatever holds data has one server, whichever path leads to it, and the second one is refused before it reads or writes
/// anything. Method: every kind of back end that is on a disk, by its own path and by a link; the second server has no volume in
/// common with the first.
#[test]
fn data_has_one_server() {
    for (kind, link) in [("directory", "symlink"), ("file", "link"), ("emulated", "link")] {
        let (directory, second) = (Directory::new(), Directory::new());
        let (path, other) = (directory.path("data"), second.path("other"));
        let back = |path: &str| match kind {
            "emulated" => format!("emulated:samsung-970-pro@{path}"),
            kind => format!("{kind}:{path}"),
        };
        let server = start(&contracts(&directory, &back(&path), &[("v", "g", "")]), &[]).unwrap();
        match link {
            "symlink" => symlink(&path, &other).unwrap(),
            _ => fs::hard_link(&path, &other).unwrap(),
        }
        let list = |path: &str| fs::read(format!("{path}/.iofair.json")).ok();
        let before = list(&path);
        for path in [&path, &other] {
            let text = contracts(&second, &back(path), &[("w", "h", "")]);
            refused(&text, "another server uses it");
        }
        if kind != "directory" {
            let error = FileDevice::open(path.as_ref(), Access::Write).err().unwrap().to_string();
            assert!(error.contains("another server uses it"), "{error}");
            let own = format!("process {}", std::process::id());
            assert!(!error.contains(&own), "it names itself: {error}");
            assert!(FileDevice::open(path.as_ref(), Access::Read).unwrap().facts().depth > 0);
        }
        assert_eq!(list(&path), before, "{kind}");
        server.stop().unwrap();
        start(&contracts(&second, &back(&path), &[("w", "h", "")]), &[]).unwrap().stop().unwrap();
    }
}

/// Goal: files with data and lists are their user's alone from the first moment. Method: the modes of all files that servers made,
/// with a umask that forbids nothing.
#[test]
fn files_are_their_users_alone() {
    for back in ["directory:DIR/pool", "file:DIR/pool", "emulated:samsung-970-pro@DIR/pool"] {
        let directory = Directory::new();
        let back = back.replace("DIR", directory.0.to_str().unwrap());
        start(&contracts(&directory, &back, &[("v", "g", "")]), &[]).unwrap().stop().unwrap();
        let mut paths = vec![directory.0.clone()];
        while let Some(path) = paths.pop() {
            let metadata = fs::metadata(&path).unwrap();
            if metadata.is_dir() {
                paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
            }
        }
    }
}

/// Goal: a volume whose file is missing is refused, and begun anew only with consent; the file of one that was kept, too, and one at
/// a path of its own. Method: files that are moved away and back.
#[test]
fn missing_files_are_not_made_anew() {
    let directory = Directory::new();
    let (back, own) = (format!("directory:{}", directory.path("pool")), directory.path("own"));
    let path = format!("path = '{own}'");
    let volumes = [("v", "g", ""), ("p", "g", path.as_str())];
    let text = contracts(&directory, &back, &volumes);
    let server = start(&text, &[]).unwrap();
    for volume in ["v", "p"] {
        assert_eq!(connect(&directory, volume).write(FUA, 0, &[7; 4096]), 0);
    }
    server.stop().unwrap();
    for file in [directory.path("pool/v.img"), own] {
        let away = directory.path("away");
        fs::rename(&file, &away).unwrap();
        refused(&text, &file);
        refused(&text, "--take-over");
        assert!(!fs::exists(&file).unwrap());
        fs::rename(&away, &file).unwrap();
    }
    let server = start(&text, &[]).unwrap();
    assert_eq!(connect(&directory, "v").read(0, 4096).data, [7; 4096]);
    server.stop().unwrap();
    let mut server = start(&contracts(&directory, &back, &volumes[1..]), &[]).unwrap();
    fs::remove_file(directory.path("pool/v.img")).unwrap();
    let error = server.reload(parse(&text)).unwrap_err().to_string();
    assert!(error.contains("v.img is missing"), "{error}");
    let consent = Consent { take_over: vec!["v".into()], ..Consent::default() };
    server.reload_with(parse(&text), &consent).unwrap();
    assert_eq!(connect(&directory, "v").read(0, 4096).data, [0; 4096]);
    server.stop().unwrap();
    fs::remove_file(directory.path("pool/v.img")).unwrap();
    start(&text, &["v"]).unwrap().stop().unwrap();
    start(&text, &[]).unwrap().stop().unwrap();
}

/// Goal: a pool directory that had volumes is not begun anew because it is empty or missing, and another pool is not taken for it;
/// the command in the message accepts it. Method: a directory that is moved away, an empty one and another pool in its place.
#[test]
fn empty_directories_are_not_taken_for_pools() {
    let directory = Directory::new();
    let pool = directory.path("pool");
    let text = contracts(&directory, &format!("directory:{pool}"), &[("v", "g", "")]);
    start(&text, &[]).unwrap().stop().unwrap();
    let away = directory.path("away");
    fs::rename(&pool, &away).unwrap();
    refused(&text, "is the right file system mounted?");
    assert!(!fs::exists(&pool).unwrap());
    fs::create_dir(&pool).unwrap();
    refused(&text, "is the right file system mounted?");
    assert_eq!(fs::read_dir(&pool).unwrap().count(), 0);
    fs::remove_dir(&pool).unwrap();
    let other = directory.path("other");
    let others = contracts(&directory, &format!("directory:{other}"), &[("v", "g", "")]);
    start(&others, &[]).unwrap().stop().unwrap();
    fs::rename(&other, &pool).unwrap();
    refused(&text, "is the right file system mounted?");
    let error = start(&text, &[]).unwrap_err();
    let command = error.split('`').nth(1).unwrap();
    run("sh", &["-c", command]);
    start(&text, &[]).unwrap().stop().unwrap();
    fs::rename(&pool, directory.path("gone")).unwrap();
    fs::rename(&away, &pool).unwrap();
    refused(&text, "is the right file system mounted?");
}

/// Goal: the same for a mount point. Method: a file system that is mounted, unmounted and mounted again.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_mount_points_are_not_taken_for_pools() {
    let directory = Directory::new();
    let (pool, image) = (directory.path("pool"), directory.path("disk"));
    fs::create_dir(&pool).unwrap();
    fs::File::create(&image).unwrap().set_len(32 * MIB).unwrap();
    run("mkfs.ext4", &["-q", &image]);
    let text = contracts(&directory, &format!("directory:{pool}"), &[("v", "g", "")]);
    {
        let _mounted = Mounted::new(&["-o", "loop", &image, &pool]);
        let server = start(&text, &[]).unwrap();
        assert_eq!(connect(&directory, "v").write(FUA, 0, &[7; 4096]), 0);
        server.stop().unwrap();
    }
    refused(&text, "is the right file system mounted?");
    let _mounted = Mounted::new(&["-o", "loop", &image, &pool]);
    let server = start(&text, &[]).unwrap();
    assert_eq!(connect(&directory, "v").read(0, 4096).data, [7; 4096]);
    server.stop().unwrap();
}

/// Goal: the same for a pool below a mount point. Method: the directory around the pool is moved away, so that nothing is left but the
/// contract file; an empty one is in its place.
#[test]
fn pools_below_mount_points_are_not_made_anew() {
    for kind in ["directory", "file"] {
        let directory = Directory::new();
        let mount = directory.path("mount");
        fs::create_dir(&mount).unwrap();
        let back = format!("{kind}:{mount}/pool");
        let text = contracts(&directory, &back, &[("v", "g", "")]);
        let file = directory.path("contracts.toml");
        fs::write(&file, &text).unwrap();
        let open = || Contracts::open(Path::new(&file)).unwrap();
        Server::start(open()).unwrap().stop().unwrap();
        fs::rename(&mount, directory.path("away")).unwrap();
        fs::create_dir(&mount).unwrap();
        let error = Server::start(open()).unwrap_err().to_string();
        assert!(error.contains("is the right file system mounted?"), "{error}");
        assert_eq!(fs::read_dir(&mount).unwrap().count(), 0, "{kind}");
        let checked = Server::check(&open(), &Consent::default()).unwrap_err().to_string();
        assert_eq!(checked, error);
        run("sh", &["-c", error.split('`').nth(1).unwrap()]);
        Server::start(open()).unwrap().stop().unwrap();
    }
}

/// Goal: the file of a pool, or of an emulated drive that had volumes, is not made anew either. Method: it is removed; what
/// remembers it is, too.
#[test]
fn missing_drives_are_not_made_anew() {
    let directory = Directory::new();
    let pool = directory.path("pool.img");
    let text = contracts(&directory, &format!("file:{pool}"), &[("v", "g", "")]);
    start(&text, &[]).unwrap().stop().unwrap();
    fs::remove_file(&pool).unwrap();
    refused(&text, "is the right file system mounted?");
    assert!(!fs::exists(&pool).unwrap());
    fs::remove_file(format!("{pool}.iofair")).unwrap();
    start(&text, &[]).unwrap().stop().unwrap();
    let file = directory.path("drive");
    let back = format!("emulated:samsung-970-pro@{file}");
    let text = contracts(&directory, &back, &[("v", "g", "")]);
    start(&text, &[]).unwrap().stop().unwrap();
    fs::remove_file(&file).unwrap();
    refused(&text, "is its file system mounted?");
    assert!(!fs::exists(&file).unwrap());
    run("sh", &["-c", start(&text, &[]).unwrap_err().split('`').nth(1).unwrap()]);
    start(&text, &[]).unwrap().stop().unwrap();
}

/// Goal: a file that is removed under a server is told wherever an operator looks, with the command that saves its data, and its
/// volume goes on. Method: every kind of file; the copy that the command makes is what the next server finds.
#[test]
fn removed_files_are_told() {
    for (back, file) in [
        ("directory:DIR/pool", "pool/v.img"),
        ("file:DIR/pool.img", "pool.img"),
        ("emulated:samsung-970-pro@DIR/drive", "drive"),
    ] {
        let directory = Directory::new();
        let back = back.replace("DIR", directory.0.to_str().unwrap());
        let file = directory.path(file);
        let text = contracts(&directory, &back, &[("v", "g", "")]);
        fs::write(directory.path("contracts.toml"), &text).unwrap();
        let scene = Controlled::over(directory);
        let mut wire = connect(&scene.directory, "v");
        assert_eq!(wire.write(FUA, 0, &[7; 4096]), 0);
        let metrics = |scene: &Controlled| {
            String::from_utf8(scene.ask(&Call::new("GET", "/metrics")).body).unwrap()
        };
        assert!(scene.get("/v1/status")["removed_files"].as_array().is_none_or(Vec::is_empty));
        assert!(metrics(&scene).contains("\niofair_removed_files 0\n"), "{}", metrics(&scene));
        fs::remove_file(&file).unwrap();
        let status = scene.get("/v1/status");
        let told = status["removed_files"][0]["text"].as_str().unwrap().to_string();
        assert_eq!(status["removed_files"][0]["path"], file);
        assert!(metrics(&scene).contains("\niofair_removed_files 1\n"));
        assert_eq!(scene.get("/healthz")["removed_files"], 1);
        assert_eq!(wire.write(FUA, 4096, &[8; 4096]), 0, "it goes on");
        drop(wire);
        run("sh", &["-c", told.split('`').nth(1).unwrap()]);
        let Controlled { control, directory } = scene;
        control.stop().unwrap();
        let server = start(&text, &[]).unwrap();
        let mut wire = connect(&directory, "v");
        assert_eq!(wire.read(0, 8192).data, [[7; 4096], [8; 4096]].concat());
        server.stop().unwrap();
    }
}

/// A faulty directory or pool with the volumes `v` and `w`.
fn faulty_contracts(directory: &Directory, back: &str, rules: &[&str]) -> String {
    let back = match back {
        "directory" | "file" => format!("faulty:{back}:{}", directory.path("pool")),
        back => format!("faulty:{back}"),
    };
    let rule = |rule: &&str| format!("[[drive.faults.rule]]\n{rule}\n");
    contracts(directory, &back, &[("v", "g", ""), ("w", "h", "")])
        + &format!("[drive.faults]\nseed = 1\n{}", rules.iter().map(rule).collect::<String>())
}

/// Goal: when a flush fails, every client of the volume that was there is told, each once; no client of another volume is. Method:
/// three clients, of which one meets the error; one that comes later.
#[test]
fn a_failed_flush_is_told_to_every_client() {
    for back in ["directory", "file", "memory:64MiB", "emulated:samsung-970-pro"] {
        let mut scene = crate::faulty::Scene::over(back, faulty_contracts);
        let [mut a, mut b, mut c] = ["v", "v", "v"].map(|volume| scene.connect(volume));
        let mut other = scene.connect("w");
        for wire in [&mut a, &mut b, &mut other] {
            assert_eq!(wire.write(0, 0, &[1; 4096]), 0);
        }
        scene.rules(&["fault = 'eio'\noperation = 'flush'\nvolume = 'v'"]);
        assert_eq!(flush(&mut a), EIO, "{back}");
        scene.rules(&[]);
        let mut late = scene.connect("v");
        assert_eq!([flush(&mut a), flush(&mut late), flush(&mut other)], [0, 0, 0], "{back}");
        assert_eq!([flush(&mut b), flush(&mut c)], [EIO, EIO], "{back}");
        assert_eq!([flush(&mut a), flush(&mut b), flush(&mut c)], [0, 0, 0], "{back}");
        let told = scene.server.stats(false).unwrap();
        assert_eq!([told.volumes[0].stats.failed, told.volumes[1].stats.failed], [3, 0], "{back}");
        scene.server.stop().unwrap();
    }
}

/// Goal: a failed flush whose reply its client never got is told to the next client. Method: the reply waits behind data that the
/// client does not take, and it hangs up; the next one opens the volume before and after that.
#[test]
fn a_failed_flush_without_a_reply_is_told_to_the_next_client() {
    for after in [false, true] {
        let mut scene = crate::faulty::Scene::over("directory", faulty_contracts);
        let mut gone = scene.connect("v");
        assert_eq!(gone.write(0, 0, &[1; 4096]), 0);
        let reads = 3;
        (0..reads).for_each(|_| assert!(gone.send_read(0, MIB as u32).is_ok()));
        let wait = |scene: &crate::faulty::Scene, done: fn(&Snapshot) -> u64, count: u64| {
            while done(&scene.server.stats(false).unwrap()) < count {
                std::thread::yield_now();
            }
        };
        wait(&scene, |told| told.volumes[0].stats.requests[0], reads);
        scene.rules(&["fault = 'eio'\noperation = 'flush'\nvolume = 'v'"]);
        gone.send_flush().unwrap();
        wait(&scene, |told| told.volumes[0].stats.failed, 1);
        scene.rules(&[]);
        let mut next = if after { None } else { Some(scene.connect("v")) };
        drop(gone);
        let next = next.get_or_insert_with(|| scene.connect("v"));
        assert_eq!(flush(next), EIO);
        assert_eq!([flush(next), flush(&mut scene.connect("v"))], [0, 0]);
        scene.server.stop().unwrap();
    }
}

/// Goal: completed writes that the file system below loses are told to every client whose volume may have lost some, also when a
/// durable write meets the error first, and to no other. Method: a pool on a loop device whose file cannot grow; unaligned writes, which
/// the page cache takes.
#[test]
#[ignore = "needs root: a loop device, mount"]
fn needs_root_lost_writes_are_told_to_every_client() {
    for durable in [false, true] {
        let directory = Directory::new();
        let below = directory.path("below");
        fs::create_dir(&below).unwrap();
        let _mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=4m", "none", &below]);
        let image = format!("{below}/image");
        fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
        let device = Loop::new(&image);
        let blank = Creation { blank: true, ..Creation::default() };
        admin::create(device.path().as_ref(), &blank).unwrap();
        let volumes = [("v", "g", ""), ("w", "h", ""), ("idle", "h", "")];
        let server = start(&contracts(&directory, device.path(), &volumes), &[]).unwrap();
        let [mut a, mut b, mut w, mut idle] =
            ["v", "v", "w", "idle"].map(|volume| connect(&directory, volume));
        assert_eq!(a.write(0, 0, &[1; 4096]), 0);
        assert_eq!(flush(&mut a), 0);
        // Until nothing fits any more.
        let filler = fs::write(format!("{below}/filler"), vec![0; 8 * MIB as usize]);
        assert!(filler.is_err());
        assert_eq!(w.write(0, MIB + 1, &[1; 10]), 0, "the page cache takes it");
        assert_eq!(a.write(0, MIB + 1, &[1; 10]), 0);
        if durable {
            assert_ne!(
                a.write(FUA, 2 * MIB, &[2; 4096]),
                0,
                "no room, and the lost write is noticed"
            );
        } else {
            assert_ne!(flush(&mut a), 0);
            assert_eq!(flush(&mut a), 0, "it was told");
        }
        assert_ne!(flush(&mut b), 0, "durable: {durable}");
        assert_eq!(flush(&mut b), 0);
        assert_ne!(flush(&mut w), 0, "its write may be lost, too");
        assert_eq!(flush(&mut idle), 0, "it wrote nothing");
        drop((a, b, w, idle));
        // What could not be made durable is an error of the end, too, unless it was told.
        let _ = server.stop();
    }
}

/// Goal: volumes of a full directory can be removed, with and without their data, which makes room for others; what is kept stays
/// its group's. Method: file systems of a few MiB, filled by clients and by a stranger.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_a_full_directory_can_be_emptied() {
    for kind in ["ext4", "tmpfs"] {
        let directory = Directory::new();
        let (pool, image) = (directory.path("pool"), directory.path("disk"));
        fs::create_dir(&pool).unwrap();
        fs::File::create(&image).unwrap().set_len(24 * MIB).unwrap();
        let _mounted = match kind {
            "ext4" => {
                run("mkfs.ext4", &["-q", "-m", "0", &image]);
                Mounted::new(&["-o", "loop", &image, &pool])
            }
            _ => Mounted::new(&["-t", "tmpfs", "-o", "size=24m", "none", &pool]),
        };
        let back = format!("directory:{pool}");
        let list = |volumes: &[(&str, &str, &str)]| contracts(&directory, &back, volumes);
        let big = "size = '64MiB'";
        let all = [("a", "g", big), ("b", "g", big), ("c", "h", big), ("d", "h", "")];
        let mut server = start(&list(&all), &[]).unwrap();
        let mut keeper = connect(&directory, "a");
        for volume in ["a", "b", "c"] {
            let mut wire = connect(&directory, volume);
            let mut at = 0;
            let limit = if volume == "c" { u64::MAX } else { 6 };
            while at < limit && wire.write(0, at * MIB, &vec![7; MIB as usize]) == 0 {
                at += 1;
            }
        }
        let _ = fs::write(format!("{pool}/stranger"), vec![1; 4 * MIB as usize]);
        assert_eq!(keeper.write(0, 60 * MIB, &vec![7; MIB as usize]), ENOSPC, "{kind}: it is full");
        server
            .reload(parse(&list(&[all[0], all[1], all[2]])))
            .unwrap_or_else(|e| panic!("{kind}: {e}"));
        let delete = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        let deleted: Vec<String> = delete(&["c"]);
        server.reload_and_remove(parse(&list(&all[..2])), &deleted).unwrap();
        assert!(!fs::exists(format!("{pool}/c.img")).unwrap());
        let error = server.reload(parse(&list(&[all[0], all[1], ("d", "g", "")]))).unwrap_err();
        assert!(error.to_string().contains("--take-over d"), "{error}");
        // The room is free as soon as the server has closed the file, which another thread does.
        let again = parse(&list(&[all[0], all[1], ("c", "g", "")]));
        assert!((0..10_000).any(|_| server.reload(again.clone()).is_ok()), "{kind}: there is room");
        let mut fresh = connect(&directory, "c");
        assert_eq!(fresh.read(0, MIB as u32).data, vec![0; MIB as usize]);
        let block = vec![7; MIB as usize];
        let fits = (0..10_000).any(|_| keeper.write(0, 50 * MIB, &block) == 0);
        assert!(fits, "{kind}: there is room");
        assert_eq!(fs::metadata(format!("{pool}/c.img")).unwrap().nlink(), 1);
        drop((keeper, fresh));
        server.stop().unwrap();
    }
}

/// Goal: a pool directory of an earlier version starts on a full file system, as it did with that version; its list is completed when
/// there is room. Method: a list without sizes and identity, and a stranger who fills the file system.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_a_full_directory_of_an_earlier_version_starts() {
    let directory = Directory::new();
    let (pool, stranger) = (directory.path("pool"), directory.path("pool/stranger"));
    fs::create_dir(&pool).unwrap();
    let _mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=4m", "none", &pool]);
    let text = contracts(&directory, &format!("directory:{pool}"), &[("v", "g", "")]);
    start(&text, &[]).unwrap().stop().unwrap();
    let list = format!("{pool}/.iofair.json");
    let read = || serde_json::from_str::<serde_json::Value>(&fs::read_to_string(&list).unwrap());
    let (whole, mut earlier) = (read().unwrap(), read().unwrap());
    earlier.as_object_mut().unwrap().remove("pool");
    earlier["volumes"]["v"].as_object_mut().unwrap().remove("bytes");
    fs::write(&list, earlier.to_string()).unwrap();
    run("sh", &["-c", &format!("rm {pool}.iofair {pool}/.iofair.json.room* {pool}/.iofair.lock")]);
    let _ = fs::write(&stranger, vec![1; 8 * MIB as usize]);
    for _ in 0..2 {
        start(&text, &[]).unwrap().stop().unwrap();
        assert_eq!(read().unwrap(), earlier);
    }
    fs::remove_file(&stranger).unwrap();
    start(&text, &[]).unwrap().stop().unwrap();
    assert_eq!(read().unwrap()["volumes"], whole["volumes"]);
}

/// Goal: volumes can be made smaller and removed, and groups removed, when everything of the server is on the same full file system:
/// contract file, audit log and pool. Method: file systems of a few MiB, filled by a stranger.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_a_full_file_system_with_everything_can_be_emptied() {
    for kind in ["ext4", "tmpfs"] {
        let (directory, below) = (Directory::new(), Directory::new());
        let (place, image) = (directory.0.display().to_string(), below.path("disk"));
        fs::File::create(&image).unwrap().set_len(24 * MIB).unwrap();
        let mounted = match kind {
            "ext4" => {
                run("mkfs.ext4", &["-q", "-m", "0", &image]);
                Mounted::new(&["-o", "loop", &image, &place])
            }
            _ => Mounted::new(&["-t", "tmpfs", "-o", "size=24m", "none", &place]),
        };
        let back = format!("directory:{}", directory.path("pool"));
        let text = contracts(&directory, &back, &[("a", "g", ""), ("b", "g", "")]);
        let audit = format!("[control]\naudit = '{}'\n", directory.path("audit"));
        fs::write(directory.path("contracts.toml"), text.replace("[control]\n", &audit)).unwrap();
        let scene = Controlled::over(directory);
        let mut wire = connect(&scene.directory, "a");
        assert_eq!(wire.write(FUA, 0, &vec![7; 2 * MIB as usize]), 0);
        drop(wire);
        // In ever smaller pieces, so that not a block is left.
        let fill = |directory: &Directory| {
            let path = directory.path("stranger");
            let mut stranger = fs::File::options().append(true).create(true).open(path).unwrap();
            for piece in [MIB, 32 << 10, 512] {
                let piece = vec![1; piece as usize];
                while stranger.write_all(&piece).and_then(|()| stranger.sync_data()).is_ok() {}
            }
        };
        fill(&scene.directory);
        // A server that starts now has room, too.
        let Controlled { control, directory } = scene;
        control.stop().unwrap();
        fill(&directory);
        let scene = Controlled::over(directory);
        // Other changes use none of it.
        for number in 0..4 {
            let body = serde_json::json!({ "group": "g", "size": "1MiB" });
            let path = format!("/v1/volumes/new{number}");
            assert_eq!(scene.ask(&Call::new("PUT", &path).body(body)).status, 422, "{kind}");
        }
        let size = serde_json::json!({ "size": "7MiB" });
        for call in [
            Call::new("PATCH", "/v1/volumes/b?shrink=true").body(size),
            Call::new("DELETE", "/v1/groups/h"),
            Call::new("DELETE", "/v1/volumes/b"),
            Call::new("DELETE", "/v1/volumes/a?data=delete"),
        ] {
            let reply = scene.ask(&call);
            let text = String::from_utf8_lossy(&reply.body).into_owned();
            assert_eq!(reply.status, 200, "{kind} {call:?}: {text}");
        }
        assert!(!fs::exists(scene.directory.path("pool/a.img")).unwrap());
        let Controlled { control, directory: _directory } = scene;
        control.stop().unwrap();
        drop(mounted);
    }
}

/// Goal: a deletion that a power cut interrupts gives no data to another group, and leaves nothing to accept. Method: the list as it
/// is at each step of a deletion, with the file and without.
#[test]
fn interrupted_deletions_give_no_data_away() {
    let directory = Directory::new();
    let (pool, list) = (directory.path("pool"), directory.path("pool/.iofair.json"));
    let text = |group| contracts(&directory, &format!("directory:{pool}"), &[("v", group, "")]);
    let server = start(&text("g"), &[]).unwrap();
    assert_eq!(connect(&directory, "v").write(FUA, 0, &[7; 4096]), 0);
    server.stop().unwrap();
    let interrupt = || {
        let mut json: serde_json::Value =
            serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
        json["volumes"]["v"]["kept"] = true.into();
        json["volumes"]["v"]["deleting"] = true.into();
        fs::write(&list, json.to_string()).unwrap();
    };
    interrupt();
    refused(&text("h"), "--take-over v");
    let server = start(&text("g"), &[]).unwrap();
    assert_eq!(connect(&directory, "v").read(0, 4096).data, [7; 4096]);
    server.stop().unwrap();
    interrupt();
    fs::remove_file(directory.path("pool/v.img")).unwrap();
    let server = start(&text("h"), &[]).unwrap();
    assert_eq!(connect(&directory, "v").read(0, 4096).data, [0; 4096]);
    server.stop().unwrap();
}

/// Goal: a size that the file system has no files of is a wrong request, and says so. Method: 64 TiB, which ext4 does not have.
#[test]
fn sizes_beyond_the_file_system_are_refused() {
    let directory = Directory::new();
    let text =
        contracts(&directory, &format!("directory:{}", directory.path("pool")), &[("v", "g", "")]);
    fs::write(directory.path("contracts.toml"), text).unwrap();
    let scene = Controlled::over(directory);
    let body = serde_json::json!({ "group": "g", "size": "64TiB" });
    let reply = scene.ask(&Call::new("PUT", "/v1/volumes/huge").body(body));
    // Some file systems have them.
    if reply.status >= 300 {
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status, 422, "{text}");
        assert!(text.contains("no files of 70368744177664 bytes"), "{text}");
    }
}
