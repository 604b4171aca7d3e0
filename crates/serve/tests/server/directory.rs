//! A directory with a file a volume: made, resized and deleted under clients that see every byte.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use crate::rig::wire::{BLOCK, FUA, Wire, Workload};
use crate::rig::{Directory, parse, run};
use iofair_serve::{Consent, Server};

const MIB: u64 = 1 << 20;
/// Errors as the protocol numbers them.
const ENOSPC: u32 = 28;
const EINVAL: u32 = 22;
const SHUT_DOWN: u32 = 108;

/// A server over a directory, and the volumes it has now.
struct Scene {
    server: Server,
    directory: Directory,
    pool: String,
}

/// Contracts with these volumes: name, size, other keys.
fn contracts(directory: &Directory, pool: &str, volumes: &[(&str, &str, &str)]) -> String {
    let mut text = format!(
        "[drive]\nback = 'directory:{pool}'\nstack = 'prop-bfq'\n\
         paths = ['{}', '/dev', '/nowhere']\n\
         [listen]\nunix = '{}'\n[[group]]\nname = 'g'\n[[group]]\nname = 'h'\n",
        directory.0.parent().unwrap().display(),
        directory.path("socket")
    );
    for (name, size, more) in volumes {
        text += &format!("[[volume]]\nname = '{name}'\nsize = '{size}'\n{more}\n");
        text += if more.contains("group") { "" } else { "group = 'g'\n" };
    }
    text
}

impl Scene {
    fn start(volumes: &[(&str, &str, &str)]) -> Self {
        let directory = Directory::new();
        let pool = directory.path("pool");
        let server = Server::start(parse(&contracts(&directory, &pool, volumes)));
        Self { server: server.unwrap_or_else(|error| panic!("{error}")), directory, pool }
    }
    fn change(&mut self, volumes: &[(&str, &str, &str)], remove: &[&str]) -> Result<(), String> {
        let contracts = parse(&contracts(&self.directory, &self.pool, volumes));
        let remove: Vec<String> = remove.iter().map(|name| (*name).to_string()).collect();
        self.server.reload_and_remove(contracts, &remove).map_err(|error| error.to_string())
    }
    /// The same, and these volumes may become shorter.
    fn shrink(&mut self, volumes: &[(&str, &str, &str)], shrink: &[&str]) -> Result<(), String> {
        let contracts = parse(&contracts(&self.directory, &self.pool, volumes));
        let shrink = shrink.iter().map(|name| (*name).to_string()).collect();
        let consent = Consent { shrink, ..Consent::default() };
        self.server.reload_with(contracts, &consent).map_err(|error| error.to_string())
    }
    fn connect(&self, volume: &str) -> Option<Wire> {
        Wire::connect_to(&self.directory.path("socket"), volume)
    }
    fn file(&self, volume: &str) -> String {
        format!("{}/{volume}.img", self.pool)
    }
}

fn flush(wire: &mut Wire) -> u32 {
    wire.send_flush().unwrap();
    wire.receive().unwrap().error
}

/// Goal: volumes come, grow, shrink and go while another is under load; each has its own bytes, nobody meets
/// another's, and all of it is there for the next server. Method: one client verifies throughout; files
/// are looked at from outside.
#[test]
fn volumes_change_under_load() {
    let mut scene = Scene::start(&[("a", "4MiB", "")]);
    let mut load = Workload::over(scene.connect("a").unwrap(), 0, 256);
    load.run(200, 8);
    scene.change(&[("a", "4MiB", ""), ("b", "1MiB", "group = 'h'")], &[]).unwrap();
    let mut b = scene.connect("b").unwrap();
    assert_eq!((b.size, b.read(0, 4096).data), (MIB, vec![0; 4096]));
    assert_eq!(b.write(FUA, MIB - 4096, &[7; 4096]), 0);
    assert_eq!(b.write(0, 1, &[8; 10]), 0);
    assert_eq!(b.write(0, MIB, &[7; 4096]), ENOSPC, "past its end");
    load.run(200, 8);

    scene.change(&[("a", "4MiB", ""), ("b", "3MiB", "group = 'h'")], &[]).unwrap();
    let mut grown = scene.connect("b").unwrap();
    // The older connection was told another size, and serves all of the volume.
    assert_eq!((grown.size, b.read(MIB, 4096).error), (3 * MIB, 0));
    assert_eq!(b.read(3 * MIB, 4096).error, EINVAL, "past its end");
    assert_eq!(grown.write(0, 3 * MIB - 4096, &[9; 4096]), 0);
    assert_eq!(b.read(MIB - 4096, 4096).data, [7; 4096]);
    let shorter = [("a", "4MiB", ""), ("b", "1MiB", "")];
    let error = scene.change(&shorter, &[]).unwrap_err();
    assert!(error.contains("would cut data off") && error.contains("--shrink"), "{error}");
    let error = scene.shrink(&shorter, &["b"]).unwrap_err();
    assert!(error.contains("\"b\"") && error.contains("clients have it open"), "{error}");
    assert_eq!(grown.read(3 * MIB - 4096, 4096).data, [9; 4096], "as it was");
    drop((b, grown));
    while scene.server.stats(false).unwrap().connections > 1 {
        load.run(20, 8);
    }
    scene.shrink(&shorter, &["b"]).unwrap();
    assert_eq!(fs::metadata(scene.file("b")).unwrap().len(), MIB);
    scene.change(&[("a", "4MiB", ""), ("b", "3MiB", "")], &[]).unwrap();
    let mut b = scene.connect("b").unwrap();
    assert_eq!(b.read(3 * MIB - 4096, 4096).data, [0; 4096], "what was cut off is gone");
    assert_eq!(flush(&mut b), 0);
    load.run(200, 8);

    scene.change(&[("a", "4MiB", "")], &[]).unwrap();
    assert!(scene.connect("b").is_none(), "nobody new");
    assert_eq!(b.read(0, 12).data, [0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 0], "who is there may stay");
    let Scene { server, directory, pool } = scene;
    server.stop().unwrap();
    load.verify(&fs::read(format!("{pool}/a.img")).unwrap());
    let text = contracts(&directory, &pool, &[("b", "3MiB", "")]);
    let second = Server::start(parse(&text)).unwrap();
    let mut b = Wire::connect_to(&directory.path("socket"), "b").unwrap();
    assert_eq!(b.read(MIB - 4096, 4096).data, [7; 4096], "kept, since nobody asked to remove it");
    second.stop().unwrap();
}

/// Goal: removing a volume's data answers what was asked and sends its clients away, and a volume of the
/// same name made at once is a new one. Method: a client with requests on the way when it happens.
#[test]
fn removed_volumes_are_gone() {
    let volumes: [(&str, &str, &str); 2] = [("v", "64MiB", ""), ("w", "1MiB", "")];
    let mut scene = Scene::start(&volumes);
    let mut load = Workload::over(scene.connect("v").unwrap(), 0, 1024);
    let mut neighbour = Workload::over(scene.connect("w").unwrap(), 0, 256);
    for round in 0..5 {
        load.run(100, 16);
        for _ in 0..40 {
            load.step(32).unwrap();
        }
        // Requests that are queued then end with this error.
        load.forgiven = Some(SHUT_DOWN);
        scene.change(&volumes[1..], &["v"]).unwrap();
        assert!(!fs::exists(scene.file("v")).unwrap(), "round {round}");
        load.drain();
        assert!(load.step(1).is_err() || load.step(1).is_err(), "it takes nothing in any more");
        scene.change(&volumes, &[]).unwrap();
        let mut fresh = scene.connect("v").unwrap();
        assert_eq!(fresh.read(0, MIB as u32).data, vec![0; MIB as usize]);
        load = Workload::over(fresh, 0, 1024);
        neighbour.run(100, 8);
    }
    let used = fs::metadata(scene.file("v")).unwrap().blocks() * 512;
    assert!(used <= 64 * BLOCK as u64, "{used} bytes of an empty volume");
    assert_eq!(scene.server.stats(false).unwrap().volumes.len(), 2);
}

/// Goal: a volume that comes again while a client of the one before is still there is never the file that somebody has removed or
/// moved meanwhile, whose data would be gone with the server; and one that was cut off is asked about. Method: each, with a client that
/// keeps the old file open.
#[test]
fn a_volume_that_comes_again_has_a_file() {
    let volumes: [(&str, &str, &str); 2] = [("v", "1MiB", ""), ("w", "1MiB", "")];
    for is_moved in [false, true] {
        let mut scene = Scene::start(&volumes);
        let mut old = scene.connect("v").unwrap();
        assert_eq!(old.write(0, 0, &[1; 4096]), 0);
        scene.change(&volumes[1..], &[]).unwrap();
        let file = scene.file("v");
        match is_moved {
            true => fs::rename(&file, format!("{file}.old")).unwrap(),
            false => fs::remove_file(&file).unwrap(),
        }
        let refused = scene.change(&volumes, &[]).unwrap_err();
        assert!(refused.contains("v.img is missing, although it was this volume"), "{refused}");
        let contracts = parse(&contracts(&scene.directory, &scene.pool, &volumes));
        let consent = Consent { take_over: vec!["v".into()], ..Consent::default() };
        scene.server.reload_with(contracts, &consent).unwrap();
        let mut new = scene.connect("v").unwrap();
        assert_eq!(new.read(0, 4096).data, vec![0; 4096]);
        assert_eq!(new.write(FUA, 0, &[2; 4096]), 0);
        assert_eq!(fs::read(&file).unwrap()[..4096], [2; 4096], "moved: {is_moved}");
        assert_eq!(old.read(0, 4096).data, vec![1; 4096], "the client that stayed has the old one");
    }
    let mut scene = Scene::start(&volumes);
    let _stays = scene.connect("v").unwrap();
    scene.change(&volumes[1..], &[]).unwrap();
    let file = fs::File::options().write(true).open(scene.file("v")).unwrap();
    file.set_len(4096).unwrap();
    let refused = scene.change(&volumes, &[]).unwrap_err();
    assert!(refused.contains("has 4096 bytes") && refused.contains("--take-over v"), "{refused}");
}

/// Goal: nothing is made, cut or removed for contracts that are refused. Method: one refusal a rule.
#[test]
fn refused_changes_leave_nothing_behind() {
    let mut scene = Scene::start(&[("a", "1MiB", "")]);
    let own = scene.directory.path("own.img");
    let link = scene.directory.path("link");
    symlink(&own, &link).unwrap();
    let path = |path: &str| format!("path = '{path}'");
    let (own_path, link_path) = (path(&own), path(&link));
    let (missing, inside) = (path("/nowhere/x"), path(&scene.file("a")));
    let a = ("a", "1MiB", "");
    type Case<'a> = (&'a [(&'a str, &'a str, &'a str)], &'a [&'a str], &'a str);
    let cases: [Case<'_>; 6] = [
        (&[a, ("b", "1MiB", ""), ("c", "1MiB", &missing)], &[], "/nowhere/x"),
        (&[a, ("b", "1MiB", &own_path), ("c", "1MiB", &link_path)], &[], "a link to nothing"),
        (&[a, ("b", "1MiB", &inside)], &[], "a file of the pool directory"),
        (&[a, ("b", "1MiB", ""), ("c", "65TiB", "")], &[], "at most"),
        (&[a], &["a"], "while the contracts have it"),
        (&[], &["b"], "is not there"),
    ];
    let pool = scene.pool.clone();
    let files = || fs::read_dir(&pool).unwrap().count();
    let before = files();
    for (volumes, remove, message) in cases {
        let error = scene.change(volumes, remove).unwrap_err();
        assert!(error.contains(message), "{error}");
        assert_eq!((files(), fs::exists(&own).unwrap()), (before, false), "{message}");
    }
    scene.change(&[a, ("b", "1MiB", &own_path)], &[]).unwrap();
    assert_eq!(scene.connect("b").unwrap().write(FUA, 0, &[3; 4096]), 0);
    assert_eq!(fs::read(&own).unwrap()[..4096], [3; 4096]);
    let error = scene.change(&[a], &["b"]).unwrap_err();
    assert!(error.contains("did not create"), "{error}");
    scene.change(&[a], &[]).unwrap();
    assert!(fs::exists(&own).unwrap());
}

/// Goal: two servers never have one volume. Method: a second server over the same directory, and over another
/// name of one of its files; then after the first has stopped.
#[test]
fn a_volume_has_one_server() {
    let scene = Scene::start(&[("a", "1MiB", "")]);
    let second = Directory::new();
    let path = format!("path = '{}'", scene.file("a"));
    let other = contracts(&second, &second.path("pool"), &[("b", "1MiB", &path)]);
    for text in [contracts(&second, &scene.pool, &[("a", "1MiB", "")]), other.clone()] {
        let error = Server::start(parse(&text)).unwrap_err().to_string();
        assert!(error.contains("another server uses it"), "{error}");
    }
    assert_eq!(scene.connect("a").unwrap().write(FUA, 0, &[1; 4096]), 0);
    scene.server.stop().unwrap();
    Server::start(parse(&other)).unwrap().stop().unwrap();
}

/// A mounted file system that goes with its owner.
struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[&self.0]);
    }
}

/// Goal: a full disk is "no space" for the request that meets it, and affects no other: reads, writes to
/// what is there, other volumes; and what is given back can be used. Method: a file system of 8 MiB.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_a_full_disk_is_told() {
    let directory = Directory::new();
    let (pool, image) = (directory.path("small"), directory.path("disk"));
    fs::create_dir(&pool).unwrap();
    fs::File::create(&image).unwrap().set_len(12 * MIB).unwrap();
    run("mkfs.ext4", &["-q", "-O", "^has_journal", "-m", "0", &image]);
    run("mount", &["-o", "loop", &image, &pool]);
    let mounted = Mounted(pool.clone());
    let text = contracts(&directory, &pool, &[("v", "64MiB", ""), ("w", "4KiB", "group = 'h'")]);
    let server = Server::start(parse(&text)).unwrap();
    let connect = |volume| Wire::connect_to(&directory.path("socket"), volume).unwrap();
    let (mut wire, mut other) = (connect("v"), connect("w"));
    assert_eq!(other.write(FUA, 0, &[1; 4096]), 0);
    let mut written = 0;
    let block = vec![7; MIB as usize];
    let error = loop {
        match wire.write(0, written * MIB, &block) {
            0 => written += 1,
            error => break error,
        }
    };
    assert!(error == ENOSPC && (4..12).contains(&written), "{error} after {written} MiB");
    assert_eq!(wire.write(0, (written + 1) * MIB + 1, &block[..70_000]), ENOSPC, "not aligned");
    assert_eq!(wire.write(FUA, 0, &block), 0, "what is there can be written");
    assert_eq!(wire.read(0, MIB as u32).data, block);
    assert_eq!(other.write(FUA, 0, &[2; 4096]), 0);
    let trim = [wire.request(4, 0, 0, MIB as u32)].concat();
    std::io::Write::write_all(&mut wire.stream, &trim).unwrap();
    assert_eq!(wire.receive().unwrap().error, 0);
    assert_eq!(
        wire.write(0, 20 * MIB, &block[..MIB as usize / 2]),
        0,
        "what was given back is used"
    );
    drop((wire, other));
    server.stop().unwrap();
    drop(mounted);
}

/// Goal: a volume may be a block device of its own, and is never longer than that. Method: a loop device
/// beside a file.
#[test]
#[ignore = "needs root: a loop device"]
fn needs_root_a_device_of_its_own() {
    let mut scene = Scene::start(&[("a", "1MiB", "")]);
    let image = scene.directory.path("disk");
    fs::File::create(&image).unwrap().set_len(8 * MIB).unwrap();
    let device = run("losetup", &["-f", "--show", &image]).trim().to_string();
    let path = format!("path = '{device}'");
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let a = ("a", "1MiB", "");
        let error = scene.change(&[a, ("d", "9MiB", &path)], &[]).unwrap_err();
        assert!(error.contains("a device of 8388608"), "{error}");
        scene.change(&[a, ("d", "4MiB", &path)], &[]).unwrap();
        let mut load = Workload::over(scene.connect("d").unwrap(), 0, 512);
        load.run(500, 8);
        scene.change(&[a, ("d", "8MiB", &path)], &[]).unwrap();
        let mut wire = scene.connect("d").unwrap();
        assert_eq!((wire.size, wire.write(FUA, 8 * MIB - 512, &[4; 512])), (8 * MIB, 0));
        assert_eq!(flush(&mut wire), 0);
        load.run(100, 8);
        let stored = fs::read(&image).unwrap();
        assert_eq!(stored[8 * MIB as usize - 512..], [4; 512]);
    }));
    drop(scene);
    run("losetup", &["-d", &device]);
    result.unwrap();
}
