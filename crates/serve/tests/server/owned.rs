//! Files in which volumes are: whose data they have when contracts change, and what others have done to them.
#![allow(unsafe_code)]

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::rig::controlled::Controlled;
use crate::rig::wire::FUA;
use crate::rig::{Directory, parse};
use crate::stored::{Loop, Mounted, connect, contracts, refused, start};
use iofair_serve::control::client::Call;
use iofair_serve::directory;
use iofair_serve::measure::{Access, FileDevice};
use iofair_serve::pool::admin::{self, Creation};
use iofair_serve::{Consent, Server};
use serde_json::json;

const MIB: u64 = 1 << 20;

/// Calls a server: status and answer.
fn call(scene: &Controlled, call: &Call) -> (u16, String) {
    let reply = scene.ask(call);
    (reply.status, String::from_utf8(reply.body).unwrap())
}

/// Goal: a file elsewhere stays its group's when its volume is removed, and another group gets it only with consent: under another
/// name, path and link, in a change and at a start. Method: one of each; the volume may come back to its group, and change it with
/// its name.
#[test]
fn files_elsewhere_stay_with_their_group() {
    let directory = Directory::new();
    let [file, link, hard] = ["own", "link", "hard"].map(|name| directory.path(name));
    let back = format!("directory:{}", directory.path("pool"));
    let path = |path: &str| format!("path = '{path}'");
    let (own, by_link, by_name) = (path(&file), path(&link), path(&hard));
    let text = |volumes: &[(&str, &str, &str)]| contracts(&directory, &back, volumes);
    let mut server = start(&text(&[("v", "g", &own)]), &[]).unwrap();
    assert_eq!(connect(&directory, "v").write(FUA, 0, &[7; 4096]), 0);
    std::os::unix::fs::symlink(&file, &link).unwrap();
    fs::hard_link(&file, &hard).unwrap();
    for key in [&own, &by_link, &by_name] {
        let error = server.reload(parse(&text(&[("w", "h", key)]))).unwrap_err().to_string();
        assert!(error.contains("group \"g\"") || error.contains("volume \"v\""), "{key}: {error}");
    }
    server.reload(parse(&text(&[]))).unwrap();
    for key in [&own, &by_link, &by_name] {
        let error = server.reload(parse(&text(&[("w", "h", key)]))).unwrap_err().to_string();
        assert!(error.contains("kept for group \"g\""), "{key}: {error}");
        assert!(error.contains("--take-over w"), "{key}: {error}");
    }
    // Its client is gone as soon as the server has seen that.
    let again = parse(&text(&[("again", "g", &by_link)]));
    assert!((0..10_000).any(|_| server.reload(again.clone()).is_ok()), "it is its group's");
    server.stop().unwrap();
    // The name of a live volume that is another one now.
    for key in [&own, &by_link, &by_name] {
        refused(&text(&[("w", "h", key)]), "group \"g\"");
    }
    start(&text(&[]), &[]).unwrap().stop().unwrap();
    for key in [&own, &by_link, &by_name] {
        refused(&text(&[("w", "h", key)]), "--take-over w");
        refused(&text(&[("again", "h", key)]), "kept for group \"g\"");
    }
    start(&text(&[("w", "h", &own)]), &["w"]).unwrap().stop().unwrap();
    refused(&text(&[("v", "g", &own)]), "group \"h\"");
    let server = start(&text(&[("w", "g", &own)]), &[]).unwrap();
    assert_eq!(connect(&directory, "w").read(0, 4096).data, [7; 4096], "it may be moved");
    server.stop().unwrap();
}

/// Goal: a volume whose file elsewhere somebody has removed, even with the directory around it, leaves the contracts, and so does
/// the next one. Method: two volumes in one directory.
#[test]
fn volumes_whose_files_elsewhere_are_gone_can_be_removed() {
    let directory = Directory::new();
    let elsewhere = directory.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let keys = ["v", "w", "x"].map(|name| format!("path = '{elsewhere}/{name}'"));
    let text = contracts(
        &directory,
        &format!("directory:{}", directory.path("pool")),
        &[("v", "g", &keys[0]), ("w", "g", &keys[1]), ("x", "g", &keys[2])],
    );
    fs::write(directory.path("contracts.toml"), &text).unwrap();
    let scene = Controlled::over(directory);
    let remove =
        |volume: &str| call(&scene, &Call::new("DELETE", &format!("/v1/volumes/{volume}")));
    fs::remove_file(format!("{elsewhere}/v")).unwrap();
    assert_eq!(remove("v").0, 200, "{:?}", remove("v"));
    fs::remove_dir_all(&elsewhere).unwrap();
    for volume in ["w", "x"] {
        let (status, told) = remove(volume);
        assert_eq!(status, 200, "{told}");
    }
    let Controlled { control, directory: _directory } = scene;
    control.stop().unwrap();
}

/// Goal: a file in the pool directory that the list does not have is nobody's until somebody agrees. Method: a kept file that is
/// renamed, at a start and in a change; one without data, as a crash leaves it.
#[test]
fn unlisted_files_are_not_adopted() {
    let directory = Directory::new();
    let back = format!("directory:{}", directory.path("pool"));
    let text = |volumes: &[(&str, &str, &str)]| contracts(&directory, &back, volumes);
    let mut server = start(&text(&[("v", "g", "")]), &[]).unwrap();
    assert_eq!(connect(&directory, "v").write(FUA, 0, &[7; 4096]), 0);
    server.reload(parse(&text(&[]))).unwrap();
    let [v, w, empty] = ["v", "w", "e"].map(|name| directory.path(&format!("pool/{name}.img")));
    fs::rename(&v, &w).unwrap();
    let error = server.reload(parse(&text(&[("w", "h", "")]))).unwrap_err().to_string();
    assert!(error.contains("--take-over w") && error.contains("w.img"), "{error}");
    server.stop().unwrap();
    refused(&text(&[("w", "h", "")]), "--take-over w");
    fs::File::create(&empty).unwrap().set_len(8 * MIB).unwrap();
    let server = start(&text(&[("w", "h", ""), ("e", "g", "")]), &["w"]).unwrap();
    assert_eq!(connect(&directory, "w").read(0, 4096).data, [7; 4096]);
    server.stop().unwrap();
    start(&text(&[("w", "h", "")]), &[]).unwrap().stop().unwrap();
}

/// Goal: what others append to a volume's file is accepted alike by a change and by a start, and is not cut off. Method: a file in the
/// pool and one elsewhere grow while they are served, and while they are not; a size below the volume's own is refused still.
#[test]
fn files_that_others_have_grown_are_served() {
    let directory = Directory::new();
    let back = format!("directory:{}", directory.path("pool"));
    let key = format!("path = '{}'", directory.path("own"));
    let text = |size: &str| {
        let (pool, own) = (format!("size = '{size}'"), format!("size = '{size}'\n{key}"));
        contracts(&directory, &back, &[("v", "g", &pool), ("w", "g", &own)])
    };
    let grow = |bytes: u64| {
        for name in ["pool/v.img", "own"] {
            let file = fs::File::options().append(true).open(directory.path(name)).unwrap();
            file.set_len(bytes).unwrap();
        }
    };
    let mut server = start(&text("8MiB"), &[]).unwrap();
    grow(64 * MIB);
    server.reload(parse(&text("16MiB"))).unwrap();
    server.stop().unwrap();
    start(&text("16MiB"), &[]).unwrap().stop().unwrap();
    grow(80 * MIB);
    start(&text("16MiB"), &[]).unwrap().stop().unwrap();
    refused(&text("12MiB"), "--shrink v");
    let server = start(&text("80MiB"), &[]).unwrap();
    assert_eq!(connect(&directory, "v").size, 80 * MIB);
    server.stop().unwrap();
    assert_eq!(fs::metadata(directory.path("pool/v.img")).unwrap().len(), 80 * MIB);
}

/// Goal: `iofair pool show` tells of each file what it is, elsewhere, too. Method: a file that is there, one that is cut off, one that is
/// missing, one that is kept; the file of a pool that is cut off.
#[test]
fn the_list_tells_what_is_there() {
    let directory = Directory::new();
    let pool = directory.path("pool");
    let back = format!("directory:{pool}");
    let key = format!("path = '{}'", directory.path("own"));
    let all = [("v", "g", ""), ("w", "g", ""), ("x", "h", ""), ("k", "g", ""), ("o", "h", &*key)];
    start(&contracts(&directory, &back, &all), &[]).unwrap().stop().unwrap();
    let live = [all[0], all[1], all[2], all[4]];
    start(&contracts(&directory, &back, &live), &[]).unwrap().stop().unwrap();
    fs::remove_file(format!("{pool}/v.img")).unwrap();
    fs::File::options().write(true).open(format!("{pool}/w.img")).unwrap().set_len(4096).unwrap();
    let shown = || directory::show(pool.as_ref()).unwrap().volumes;
    let states = || shown().iter().map(|one| (one.name.clone(), one.state)).collect::<Vec<_>>();
    let expected =
        [("k", "kept"), ("o", "live"), ("v", "missing"), ("w", "cut off"), ("x", "live")];
    let expected = expected.map(|(name, state)| (name.to_string(), state));
    let mut found = states();
    found.sort();
    assert_eq!(found, expected);
    fs::remove_file(directory.path("own")).unwrap();
    assert!(states().contains(&("o".to_string(), "missing")), "{:?}", states());
    let elsewhere = directory::delete(pool.as_ref(), "o", None).unwrap_err().to_string();
    assert!(elsewhere.contains("did not create"), "{elsewhere}");
    let file = directory.path("file");
    let text = contracts(&directory, &format!("file:{file}"), &[("v", "g", ""), ("w", "g", "")]);
    start(&text, &[]).unwrap().stop().unwrap();
    let shown = || admin::show(file.as_ref()).unwrap().volumes;
    let cut = shown()[1].extents[0].0;
    fs::File::options().write(true).open(&file).unwrap().set_len(cut + 4096).unwrap();
    assert_eq!([shown()[0].state, shown()[1].state], ["live", "cut off"]);
}

/// Goal: the audit log of a full disk takes the lines of a change after its file was rotated, and a server that starts then takes
/// them, too. Method: a rotation by name, as `logrotate` does it, with and without a new file in its place, on a small file system
/// that a stranger fills.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_rotated_logs_take_changes_on_a_full_disk() {
    for (kind, again, makes) in [
        ("ext4", false, false),
        ("tmpfs", false, true),
        ("ext4", true, true),
        ("tmpfs", true, false),
    ] {
        let (directory, below) = (Directory::new(), Directory::new());
        let (place, image) = (directory.0.display().to_string(), below.path("disk"));
        fs::File::create(&image).unwrap().set_len(16 * MIB).unwrap();
        let mounted = match kind {
            "ext4" => {
                crate::rig::run("mkfs.ext4", &["-q", "-m", "0", &image]);
                Mounted::new(&["-o", "loop", &image, &place])
            }
            _ => Mounted::new(&["-t", "tmpfs", "-o", "size=16m", "none", &place]),
        };
        let back = format!("directory:{}", directory.path("pool"));
        let text = contracts(&directory, &back, &[("a", "g", ""), ("b", "g", "")]);
        let log = directory.path("audit");
        let audit = format!("[control]\naudit = '{log}'\n");
        let text = text.replace("[control]\n", &audit).replace("none-none", "prop-bfq");
        fs::write(directory.path("contracts.toml"), text).unwrap();
        let mut scene = Controlled::over(directory);
        let patch = |scene: &Controlled, weight: u32| {
            call(scene, &Call::new("PATCH", "/v1/groups/h").body(json!({ "weight": weight })))
        };
        assert_eq!(patch(&scene, 7).0, 200);
        let stranger = scene.directory.path("stranger");
        let mut stranger = fs::File::options().append(true).create(true).open(stranger).unwrap();
        let mut fill = || {
            for piece in [MIB, 32 << 10, 512] {
                let piece = vec![1; piece as usize];
                while stranger.write_all(&piece).and_then(|()| stranger.sync_data()).is_ok() {}
            }
        };
        fill();
        fs::rename(&log, format!("{log}.old")).unwrap();
        if makes {
            fs::write(&log, "").unwrap();
        }
        if again {
            let Controlled { control, directory } = scene;
            control.stop().unwrap();
            fill();
            scene = Controlled::over(directory);
        }
        fill();
        let (status, told) = call(&scene, &Call::new("DELETE", "/v1/volumes/b"));
        assert_eq!(status, 200, "{kind} {again} {makes}: {told}");
        fill();
        let (status, told) = call(&scene, &Call::new("DELETE", "/v1/volumes/a?data=delete"));
        assert_eq!(status, 200, "{kind} {again} {makes}: {told}");
        let lines = scene.get("/v1/audit?last=4")["changes"].as_array().unwrap().len();
        let old = fs::read_to_string(format!("{log}.old")).unwrap().lines().count();
        assert!(lines + old >= 6, "{kind} {again} {makes}: {lines} and {old}");
        let Controlled { control, directory: _directory } = scene;
        control.stop().unwrap();
        drop((stranger, mounted));
    }
}

/// Goal: a volume that was removed from an emulated drive or from memory gives its data to no other group of the same name. Method: at
/// a change, and at a start where the data outlives its server; its group and consent bring it back.
#[test]
fn removed_volumes_of_shared_drives_stay_with_their_group() {
    let directory = Directory::new();
    let emulated = format!("emulated:samsung-970-pro@{}", directory.path("drive"));
    for (back, stays) in [("memory:64MiB", false), (&*emulated, true)] {
        let text = |volumes: &[(&str, &str, &str)]| contracts(&directory, back, volumes);
        let (g, h) = ([("v", "g", "")], [("v", "h", "")]);
        let mut server = start(&text(&g), &[]).unwrap();
        assert_eq!(connect(&directory, "v").write(FUA, 0, &[7; 4096]), 0);
        server.reload(parse(&text(&[]))).unwrap();
        let error = server.reload(parse(&text(&h))).unwrap_err().to_string();
        assert!(error.contains("kept for group \"g\""), "{error}");
        if stays {
            server.stop().unwrap();
            refused(&text(&h), "--take-over v");
            start(&text(&[]), &[]).unwrap().stop().unwrap();
            refused(&text(&h), "--take-over v");
            start(&text(&g), &[]).unwrap().stop().unwrap();
            server = start(&text(&h), &[]).unwrap();
        } else {
            server.reload(parse(&text(&g))).unwrap();
            server.reload(parse(&text(&h))).unwrap();
        }
        assert_eq!(connect(&directory, "v").read(0, 4096).data, [7; 4096], "moved");
        server.stop().unwrap();
    }
}

/// Goal: a volume of an emulated drive or in memory shrinks only with consent, which is asked for once. Method: at a change, and at
/// a start where the data outlives its server; a volume that was removed meanwhile; its room stays its own.
#[test]
fn volumes_of_shared_drives_shrink_with_consent() {
    let directory = Directory::new();
    let emulated = format!("emulated:samsung-970-pro@{}", directory.path("drive"));
    for (back, stays) in [("memory:64MiB", false), (&*emulated, true)] {
        let text =
            |size: &str| contracts(&directory, back, &[("v", "g", &format!("size = '{size}'"))]);
        let consent = Consent { shrink: vec!["v".into()], ..Consent::default() };
        let mut server = start(&text("8MiB"), &[]).unwrap();
        let error = server.reload(parse(&text("4MiB"))).unwrap_err().to_string();
        assert!(error.contains("--shrink v"), "{error}");
        server.reload(parse(&contracts(&directory, back, &[]))).unwrap();
        let error = server.reload(parse(&text("4MiB"))).unwrap_err().to_string();
        assert!(error.contains("--shrink v"), "{error}");
        if stays {
            server.stop().unwrap();
            refused(&text("4MiB"), "--shrink v");
            server =
                Server::start_with(parse(&text("4MiB")), Default::default(), &consent).unwrap();
            server.stop().unwrap();
            server = start(&text("4MiB"), &[]).unwrap();
        } else {
            server.reload_with(parse(&text("4MiB")), &consent).unwrap();
        }
        assert!(server.reload(parse(&text("2MiB"))).is_err());
        server.reload(parse(&text("8MiB"))).unwrap();
        server.stop().unwrap();
    }
}

/// Goal: no pool is made over data without consent, wherever it is. Method: a file of zeroes with a byte at each place where partition
/// tables, RAID, LVM, ZFS and file systems have theirs, and somewhere; what `mkfs` and others leave, with its start erased.
#[test]
fn data_is_found_wherever_it_is() {
    let directory = Directory::new();
    let path = directory.path("disk");
    let length = 1200 * MIB;
    let file = fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let create = |force| {
        let how = Creation { force, ..Creation::default() };
        admin::create(path.as_ref(), &how).map(drop).map_err(|error| error.to_string())
    };
    for at in [
        0,
        2 * MIB,
        8193 << 10,
        64 * MIB,
        128 * MIB,
        777 * MIB + 5,
        length - 512,
        length - 8192,
        length - (64 << 10),
        length - (256 << 10),
        length - (512 << 10),
    ] {
        file.set_len(0).unwrap();
        file.set_len(length).unwrap();
        file.write_all_at(&[1], at).unwrap();
        let error = create(false).unwrap_err();
        assert!(error.contains(&format!("byte {at} ")) && error.contains("--force"), "{error}");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        assert_eq!(byte, [1]);
    }
    create(true).unwrap();
    file.set_len(0).unwrap();
    file.set_len(length).unwrap();
    create(false).unwrap();
    assert!(create(false).unwrap_err().contains("a pool on it already"));
}

/// Goal: `--force` is for data and never for use. Method: a file below a loop device that is mounted, whole and from a byte on; a loop
/// device below one; the list of an emulated drive that is served, and its file; a served pool directory.
#[test]
#[ignore = "needs root: mount, loop device"]
fn needs_root_force_does_not_override_use() {
    let directory = Directory::new();
    let [image, mount, drive] = ["image", "mnt", "drive"].map(|name| directory.path(name));
    fs::create_dir(&mount).unwrap();
    let create = |path: &str| {
        let how = Creation { force: true, ..Creation::default() };
        admin::create(path.as_ref(), &how).map(drop).map_err(|error| error.to_string())
    };
    let refused = |path: &str, told: &str| {
        let error = create(path).expect_err(path);
        assert!(error.contains(told), "{path}: {error}");
    };
    fs::File::create(&image).unwrap().set_len(16 * MIB).unwrap();
    for offset in ["0", "1048576"] {
        let device = crate::rig::run("losetup", &["-f", "--show", "-o", offset, &image]);
        let device = device.trim();
        crate::rig::run("mkfs.ext4", &["-q", device]);
        {
            let _mounted = Mounted::new(&[device, &mount]);
            refused(&image, "is mounted at");
            let back = format!("file:{image}");
            assert!(start(&contracts(&directory, &back, &[]), &[]).is_err());
        }
        create(&image).unwrap();
        crate::rig::run("losetup", &["-d", device]);
    }
    let below = Loop::new(&image);
    let above = Loop::new(below.path());
    crate::rig::run("mkfs.ext4", &["-q", above.path()]);
    {
        let _mounted = Mounted::new(&[above.path(), &mount]);
        refused(below.path(), "is mounted at");
    }
    drop(above);
    drop(below);
    let text =
        contracts(&directory, &format!("emulated:samsung-970-pro@{drive}"), &[("v", "g", "")]);
    let server = start(&text, &[]).unwrap();
    refused(&drive, "another server uses it");
    refused(&format!("{drive}.volumes"), "another server uses it");
    server.stop().unwrap();
    create(&format!("{drive}.volumes")).unwrap();
    let pool = directory.path("pool");
    let text = contracts(&directory, &format!("directory:{pool}"), &[("v", "g", "")]);
    let server = start(&text, &[]).unwrap();
    refused(&format!("{pool}/v.img"), "another server uses it");
    refused(&format!("{pool}/.iofair.json"), "another server uses it");
    server.stop().unwrap();
}

/// Goal: a file that a virtual machine uses is not served, and one that is served is refused by QEMU. Method: a lock on a byte, as QEMU
/// has it, on each kind of file with data, before the server starts and while it serves.
#[test]
fn files_in_use_by_virtual_machines_are_refused() {
    for kind in ["directory", "file", "emulated"] {
        let directory = Directory::new();
        let path = directory.path("data");
        let (back, data) = match kind {
            "emulated" => (format!("emulated:samsung-970-pro@{path}"), path),
            "file" => (format!("file:{path}"), path),
            _ => (format!("directory:{path}"), format!("{path}/v.img")),
        };
        let text = contracts(&directory, &back, &[("v", "g", "")]);
        start(&text, &[]).unwrap().stop().unwrap();
        let file = fs::File::options().read(true).write(true).open(&data).unwrap();
        let lock = |kind: i32| {
            // SAFETY: plain numbers, which the call reads.
            unsafe {
                let mut lock: libc::flock = std::mem::zeroed();
                (lock.l_type, lock.l_start, lock.l_len) = (kind as libc::c_short, 100, 1);
                libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0
            }
        };
        assert!(lock(libc::F_RDLCK));
        refused(&text, "another program has locked it");
        if kind != "directory" {
            assert!(FileDevice::open(data.as_ref(), Access::Write).is_err(), "{kind}");
        }
        assert!(lock(libc::F_UNLCK));
        let server = start(&text, &[]).unwrap();
        assert!(!lock(libc::F_RDLCK), "{kind}");
        server.stop().unwrap();
        assert!(lock(libc::F_RDLCK), "{kind}");
    }
}

/// Goal: data of a volume that was taken out of the contracts while no server ran is deleted with a command that the refusal names, and
/// that of one which they have is not. Method: a pool in a directory and one in a file.
#[test]
fn volumes_that_were_taken_out_without_a_server_are_deleted() {
    let directory = Directory::new();
    let path = directory.path("pool");
    for kind in ["directory", "file"] {
        let back = format!("{kind}:{path}");
        let text = |volumes: &[(&str, &str, &str)]| contracts(&directory, &back, volumes);
        let both = text(&[("v", "g", ""), ("w", "g", "")]);
        start(&both, &[]).unwrap().stop().unwrap();
        let delete = |text: Option<&str>| {
            let contracts = text.map(parse);
            let (path, contracts) = (path.as_ref(), contracts.as_ref());
            match kind {
                "directory" => directory::delete(path, "v", contracts).map(|all| all.volumes.len()),
                _ => admin::delete(path, "v", contracts).map(|all| all.volumes.len()),
            }
            .map_err(|error| error.to_string())
        };
        let told = delete(None).unwrap_err();
        assert!(told.contains(&format!("pool delete {path} v --contracts FILE")), "{told}");
        assert!(delete(Some(&both)).unwrap_err().contains("take it out first"));
        let other = both.replace(&path, &directory.path("other"));
        assert!(delete(Some(&other)).unwrap_err().contains("another back end"));
        assert_eq!(delete(Some(&text(&[("w", "g", "")]))), Ok(1));
        start(&text(&[("w", "g", "")]), &[]).unwrap().stop().unwrap();
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        fs::remove_file(format!("{path}.iofair")).unwrap();
    }
}
