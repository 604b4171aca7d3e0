//! Volumes as files of a mounted directory: the files themselves, and a block device on one of them.
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::rig::controlled::Controlled;
use crate::rig::wire::Wire;
use crate::rig::{Directory, parse, run};
use iofair_serve::control::client::Call;
use iofair_serve::{Consent, Server};

const MIB: u64 = 1 << 20;

/// A server with a mounted directory.
struct Scene {
    server: Option<Server>,
    directory: Directory,
    back: String,
    /// More of `[drive]`.
    drive: String,
}

impl Scene {
    fn start(back: &str, volumes: &[(&str, u64, bool)]) -> Self {
        let directory = Directory::new();
        let back = match back {
            "directory" => format!("directory:{}", directory.path("pool")),
            back => back.to_string(),
        };
        let mut this = Self { server: None, directory, back, drive: String::new() };
        let server = Server::start(parse(&this.text(volumes)));
        this.server = Some(server.unwrap_or_else(|error| panic!("{error}")));
        this
    }
    /// Contracts with these volumes: name, MiB, read-only.
    fn text(&self, volumes: &[(&str, u64, bool)]) -> String {
        let mut text = format!(
            "[drive]\nback = '{}'\nstack = 'prop-bfq'\n{}\n[fuse]\nmount = '{}'\n\
             [listen]\nunix = '{}'\n[[group]]\nname = 'g'\n",
            self.back,
            self.drive,
            self.directory.path("mnt"),
            self.directory.path("socket")
        );
        for (name, size, read_only) in volumes {
            text += &format!("[[volume]]\nname = '{name}'\ngroup = 'g'\nsize = '{size}MiB'\n");
            text += &format!("read_only = {read_only}\n");
        }
        text
    }
    fn change(&mut self, volumes: &[(&str, u64, bool)], remove: &[String]) -> Result<(), String> {
        let contracts = parse(&self.text(volumes));
        let server = self.server.as_mut().unwrap();
        let shrink = volumes.iter().map(|(name, ..)| (*name).to_string()).collect();
        let consent = Consent { shrink, delete: remove.to_vec(), ..Consent::default() };
        server.reload_with(contracts, &consent).map_err(|error| error.to_string())
    }
    fn file(&self, volume: &str) -> String {
        self.directory.path(&format!("mnt/{volume}"))
    }
    fn open(&self, volume: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.file(volume))
    }
    fn connect(&self, volume: &str) -> Wire {
        Wire::connect_to(&self.directory.path("socket"), volume).unwrap()
    }
    fn listed(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path("mnt")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }
    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(&self.directory.path("mnt"))
    }
    fn stop(&mut self) {
        self.server.take().unwrap().stop().unwrap();
        assert!(!self.is_mounted(), "nothing is left mounted");
    }
}

fn kind(result: io::Result<usize>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Goal: a file is the volume: every byte at its place, aligned or not, the same through NBD; borders, holes,
/// durability, sizes and permissions as they should be. Method: one of each, on every kind of back end.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_a_file_is_the_volume() {
    for back in ["memory:64MiB", "directory", "emulated:samsung-970-pro"] {
        let mut scene = Scene::start(back, &[("a", 16, false), ("b", 1, true)]);
        assert_eq!(scene.listed(), ["a", "b"]);
        let metadata = fs::metadata(scene.file("a")).unwrap();
        assert_eq!((metadata.len(), metadata.mode() & 0o777), (16 * MIB, 0o600));
        assert_eq!(fs::metadata(scene.file("b")).unwrap().mode() & 0o777, 0o400);
        assert!(fs::metadata(scene.file("c")).is_err());
        let error = scene.open("b").unwrap_err().raw_os_error();
        assert_eq!(error, Some(libc::EROFS));
        let mut image = Vec::new();
        File::open(scene.file("b")).unwrap().read_to_end(&mut image).unwrap();
        assert!(image.len() as u64 == MIB && image.iter().all(|byte| *byte == 0), "{back}");

        let file = scene.open("a").unwrap();
        let data: Vec<u8> = (0..3 * MIB + 77).map(|i| ((i * 7) >> 3) as u8).collect();
        file.write_all_at(&data, 12_345).unwrap();
        file.sync_all().unwrap();
        let mut found = vec![0; data.len()];
        file.read_exact_at(&mut found, 12_345).unwrap();
        assert!(found == data, "{back}");
        let mut wire = scene.connect("a");
        assert_eq!(wire.read(12_345, MIB as u32).data, data[..MIB as usize]);
        assert_eq!(wire.write(0, 8 * MIB, &[5; 70_000]), 0);
        file.read_exact_at(&mut found[..70_000], 8 * MIB).unwrap();
        assert_eq!(found[..70_000], [5; 70_000]);

        assert_eq!(file.read_at(&mut found, 16 * MIB).unwrap(), 0, "the end");
        assert_eq!(file.read_at(&mut found[..8192], 16 * MIB - 4096).unwrap(), 4096);
        assert_eq!(kind(file.write_at(&[1; 10], 16 * MIB)), Some(libc::ENOSPC));
        assert_eq!(file.write_at(&[1; 8192], 16 * MIB - 4096).unwrap(), 4096, "as much as fits");
        for size in [0, MIB, 17 * MIB] {
            let refused = file.set_len(size).unwrap_err().raw_os_error();
            assert_eq!(refused, Some(libc::EINVAL), "like a block device");
        }
        file.set_len(16 * MIB).unwrap();
        let mut anew = OpenOptions::new();
        drop(anew.write(true).truncate(true).open(scene.file("a")).unwrap());
        assert_eq!(file.metadata().unwrap().len(), 16 * MIB);
        assert_eq!(wire.read(12_345, MIB as u32).data, data[..MIB as usize], "nothing was lost");
        // SAFETY: a plain system call on a descriptor of ours.
        let allocated = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 65_536) };
        assert_eq!(allocated, -1, "nothing is reserved");
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a plain system call on a descriptor of ours.
        let punched = unsafe { libc::fallocate(file.as_raw_fd(), mode, 8_388_608, 65_536) };
        assert_eq!(punched, 0);
        assert_eq!(wire.read(8 * MIB, 70_000).data[65_535..65_537], [0, 5]);
        drop((file, wire));
        scene.stop();
    }
}

/// Goal: volumes that come, go and change are files that do; an open file keeps a volume from shrinking, and
/// learns that its volume was removed. Method: change contracts under an open file.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_files_follow_the_contracts() {
    let mut scene = Scene::start("directory", &[("a", 4, false)]);
    let file = scene.open("a").unwrap();
    scene.change(&[("a", 8, false), ("b", 1, false)], &[]).unwrap();
    assert_eq!(scene.listed(), ["a", "b"]);
    assert_eq!(file.metadata().unwrap().len(), 8 * MIB);
    file.write_all_at(&[3; 4096], 8 * MIB - 4096).unwrap();
    let error = scene.change(&[("a", 4, false)], &[]).unwrap_err();
    assert!(error.contains("clients have it open"), "{error}");
    let other = scene.open("b").unwrap();
    scene.change(&[("a", 8, false)], &["b".to_string()]).unwrap();
    assert_eq!(scene.listed(), ["a"]);
    assert!(other.write_at(&[1; 512], 0).is_err(), "its volume is gone");
    scene.change(&[("a", 8, false), ("b", 1, false)], &[]).unwrap();
    assert!(other.write_at(&[1; 512], 0).is_err(), "and the new one is another");
    scene.open("b").unwrap().write_all_at(&[1; 512], 0).unwrap();
    let mut last = [0; 4096];
    file.read_exact_at(&mut last, 8 * MIB - 4096).unwrap();
    assert_eq!(last, [3; 4096]);
    drop((file, other));
    scene.stop();
}

/// Goal: many requests at once through the file keep every byte, and both doors see the same. Method: fio writes
/// and verifies through the file, then verifies through NBD what the file wrote.
#[test]
#[ignore = "needs root: mount, fio"]
fn needs_root_fio_verifies_a_file() {
    let mut scene = Scene::start("directory", &[("a", 64, false)]);
    let name = format!("--filename={}", scene.file("a"));
    let job = [
        "--name=x",
        "--bsrange=512-64k",
        "--size=64m",
        "--verify=crc32c",
        "--randseed=7",
        "--verify_state_save=0",
    ];
    let random = ["--rw=randwrite", "--iodepth=32", "--verify_fatal=1", "--output-format=terse"];
    let all = [&job[..], &random, &["--ioengine=io_uring", "--direct=1", &name]].concat();
    run("fio", &all);
    let uri = format!("--uri=nbd+unix:///a?socket={}", scene.directory.path("socket"));
    let only = ["--ioengine=nbd", "--thread", "--verify_only=1", &uri];
    run("fio", &[&job[..], &random, &only].concat());
    scene.stop();
}

/// A loop device that goes with its owner.
struct Looped(String);

impl Looped {
    fn over(file: &str) -> Self {
        Self(run("losetup", &["-f", "--show", "--direct-io=on", file]).trim().to_string())
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

/// A mounted file system that goes with its owner.
struct Mount<'a>(&'a str);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        run("umount", &[self.0]);
    }
}

/// Goal: a file system lives on a loop device over a file, trims reach the volume, and the device grows with the
/// volume. Method: mkfs, mount, write, trim, fsck, grow, mount again, compare; fio verifies the device itself.
#[test]
#[ignore = "needs root: mount, loop device, fio"]
fn needs_root_a_block_device_over_a_file() {
    let mut scene = Scene::start("directory", &[("a", 64, false)]);
    let looped = Looped::over(&scene.file("a"));
    let device = &*looped.0;
    let name = format!("--filename={device}");
    run(
        "fio",
        &[
            "--name=x",
            "--rw=randwrite",
            "--bs=4k",
            "--size=16m",
            "--verify=crc32c",
            "--verify_state_save=0",
            "--ioengine=io_uring",
            "--direct=1",
            "--iodepth=32",
            "--verify_fatal=1",
            &name,
        ],
    );
    run("mkfs.ext4", &["-q", device]);
    let mounted = scene.directory.path("mounted");
    fs::create_dir(&mounted).unwrap();
    let data: Vec<u8> = (0..20 * MIB).map(|i| (i >> 9) as u8 ^ (i as u8)).collect();
    let image = format!("{}/a.img", scene.directory.path("pool"));
    let used = || fs::metadata(&image).unwrap().blocks() * 512;
    {
        run("mount", &[device, &mounted]);
        let _mount = Mount(&mounted);
        fs::write(format!("{mounted}/data"), &data).unwrap();
        fs::write(format!("{mounted}/more"), &data).unwrap();
        run("sync", &["-f", &mounted]);
        let full = used();
        fs::remove_file(format!("{mounted}/more")).unwrap();
        run("sync", &["-f", &mounted]);
        run("fstrim", &[&mounted]);
        assert!(used() + 10 * MIB < full, "{} after {full}", used());
    }
    run("fsck.ext4", &["-f", "-n", device]);
    scene.change(&[("a", 96, false)], &[]).unwrap();
    assert_eq!(fs::metadata(scene.file("a")).unwrap().len(), 96 * MIB);
    run("losetup", &["-c", device]);
    assert_eq!(run("blockdev", &["--getsize64", device]).trim(), (96 * MIB).to_string());
    run("e2fsck", &["-f", "-p", device]);
    run("resize2fs", &[device]);
    {
        run("mount", &[device, &mounted]);
        let _mount = Mount(&mounted);
        assert!(fs::read(format!("{mounted}/data")).unwrap() == data);
    }
    run("fsck.ext4", &["-f", "-n", device]);
    let device_bytes = fs::read(device).unwrap();
    let mut wire = scene.connect("a");
    for (number, piece) in device_bytes.chunks(8 * MIB as usize).enumerate() {
        let told = wire.read(number as u64 * 8 * MIB, piece.len() as u32);
        assert!(told.data == piece, "NBD tells the same");
    }
    drop(looped);
    scene.stop();
}

/// Goal: what fails at the drive is an error of the affected call and of no other file, also what never returns,
/// and the server ends all the same. Method: errors and silence for one of two files.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_faults_fail_only_the_affected_calls() {
    let volumes = [("a", 4, false), ("b", 4, false)];
    let mut scene = Scene::start("faulty:memory:64MiB", &volumes);
    let faulty = |fault: &str| {
        let rule = "volume = 'a'\nrange = { from = '4KiB', to = '8KiB' }";
        format!(
            "timeout = '1s'\ndrain = '500ms'\n[[drive.faults.rule]]\nfault = '{fault}'\n{rule}\n"
        )
    };
    let (a, b) = (scene.open("a").unwrap(), scene.open("b").unwrap());
    let data = [3; 4096];
    a.write_all_at(&data, 0).unwrap();
    for (fault, error) in [("eio", libc::EIO), ("enospc", libc::ENOSPC), ("never", libc::EIO)] {
        scene.drive = faulty(fault);
        scene.change(&volumes, &[]).unwrap();
        assert_eq!(kind(a.write_at(&data, 4096)), Some(error), "{fault}");
        let mut back = [0; 4096];
        assert_eq!(kind(a.read_at(&mut back, 4096)), Some(error), "{fault}");
        a.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(back, data);
        b.write_all_at(&data, 4096).unwrap();
        b.sync_all().unwrap();
    }
    drop((a, b));
    let error = scene.server.take().unwrap().stop().unwrap_err().to_string();
    assert!(error.contains("did not complete some commands") && !scene.is_mounted(), "{error}");
}

/// Goal: what a directory of volumes cannot do is refused as not permitted, not as unknown. Method: files and directories that are
/// made, renamed and removed.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_names_are_those_of_the_contracts() {
    let mut scene = Scene::start("memory:16MiB", &[("a", 16, false)]);
    let (a, b) = (scene.file("a"), scene.file("b"));
    for refused in [
        fs::remove_file(&a),
        fs::rename(&a, &b),
        fs::create_dir(&b),
        fs::write(&b, b"x"),
        fs::hard_link(&a, &b),
        std::os::unix::fs::symlink(&a, &b),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
    scene.stop();
    fs::remove_dir(scene.directory.path("mnt")).unwrap();
}

/// Goal: a server can end while its files are in use, and the users learn it. Method: an open file and a loop
/// device.
#[test]
#[ignore = "needs root: mount, loop device"]
fn needs_root_a_stop_does_not_wait_for_open_files() {
    let mut scene = Scene::start("memory:16MiB", &[("a", 16, false)]);
    let file = scene.open("a").unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    let looped = Looped::over(&scene.file("a"));
    scene.stop();
    let mut bytes = [0; 4096];
    assert!(file.read_at(&mut bytes, 0).is_err());
    drop((file, looped));
    fs::remove_dir(scene.directory.path("mnt")).unwrap();
}

/// Goal: a volume is no storage of another volume of its server, whatever is between: requests would go round in a circle. Method: the
/// file itself, a loop device over it, and one over that.
#[test]
#[ignore = "needs root: mount, loop device"]
fn needs_root_files_are_no_storage_of_volumes() {
    let mut scene = Scene::start("directory", &[("a", 4, false)]);
    let paths = format!("[drive]\npaths = ['/dev', '{}']\n", scene.directory.path("mnt"));
    let volumes = scene.text(&[("a", 4, false)]).replace("[drive]\n", &paths);
    let looped = Looped::over(&scene.file("a"));
    let above = Looped::over(&looped.0);
    for path in [scene.file("a"), looped.0.clone(), above.0.clone()] {
        let volume =
            format!("[[volume]]\nname = 'b'\ngroup = 'g'\nsize = '4MiB'\npath = '{path}'\n");
        let server = scene.server.as_mut().unwrap();
        let refused =
            server.reload(parse(&format!("{volumes}{volume}"))).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|told| told.contains("the server's own")), "{path}");
    }
    drop(above);
    drop(looped);
    scene.stop();
}

/// Goal: a mount that somebody else removes is told with what to do, a reload mounts it again, and nothing waits for it; what is mounted
/// there instead stays. Method: unmounted while nobody uses it, and lazily while a file is open; then another file system in its place
/// when the server ends.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_an_outsider_unmounts() {
    let directory = Directory::new();
    let mount = directory.path("my mnt");
    let text = crate::rig::controlled::file(&directory, "memory:64MiB");
    let text = text.replace("[listen]", &format!("[fuse]\nmount = '{mount}'\n[listen]"));
    fs::write(directory.path("contracts.toml"), text).unwrap();
    let rig = Controlled::over(directory);
    let told = || rig.get("/v1/status")["unmounted"].clone();
    let reload = || rig.status(&Call::new("POST", "/v1/reload"));
    assert!(told().is_null());
    run("umount", &[&mount]);
    let text = told().as_str().unwrap().to_string();
    assert!(text.contains(&mount) && text.contains("reload`"), "{text}");
    assert_eq!((reload(), told().is_null()), (200, true));
    let file = File::open(format!("{mount}/v")).unwrap();
    run("umount", &["-l", &mount]);
    assert!(told().is_string());
    file.read_exact_at(&mut [0; 512], 0).unwrap();
    assert_eq!((reload(), told().is_null()), (200, true));
    File::open(format!("{mount}/v")).unwrap().read_exact_at(&mut [0; 512], 0).unwrap();
    file.read_exact_at(&mut [0; 512], 0).unwrap();
    run("umount", &[&mount]);
    run("mount", &["-t", "tmpfs", "none", &mount]);
    // Sessions that have ended are closed while the other file system is there.
    for _ in 0..3 {
        assert_eq!(reload(), 200);
        run("umount", &[&mount]);
    }
    rig.control.stop().unwrap();
    run("umount", &[&mount]);
    drop(file);
}

/// Goal: the end of a server leaves other file systems at the path of its mount alone, and waits for nothing; a mount over its own is told.
/// Method: one that was there before the server, and one that was mounted over the server's; then another server in that place.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_other_file_systems_stay() {
    let directory = Directory::new();
    let mount = directory.path("mnt");
    fs::create_dir(&mount).unwrap();
    run("mount", &["-t", "tmpfs", "below", &mount]);
    let text = crate::rig::controlled::file(&directory, "memory:64MiB");
    let text = text.replace("[listen]", &format!("[fuse]\nmount = '{mount}'\n[listen]"));
    fs::write(directory.path("contracts.toml"), text).unwrap();
    let rig = Controlled::over(directory);
    run("mount", &["-t", "tmpfs", "above", &mount]);
    let told = rig.get("/v1/status")["unmounted"].to_string();
    assert!(told.contains("under another mount") && told.contains("`umount /"), "{told}");
    let Controlled { control, directory } = rig;
    control.stop().unwrap();
    let sources = || -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let here = mounts.lines().filter(|line| line.contains(&mount));
        here.map(|line| line.split(' ').next().unwrap().to_string()).collect()
    };
    assert_eq!(sources(), ["below", "iofair", "above"]);
    // What is left of that server is below, and keeps no other from its place.
    let text = fs::read_to_string(directory.path("contracts.toml")).unwrap();
    Server::check(&parse(&text), &Consent::default()).unwrap();
    let Controlled { control, directory } = Controlled::over(directory);
    assert_eq!(sources(), ["below", "iofair", "above", "iofair"]);
    control.stop().unwrap();
    assert_eq!(sources(), ["below", "iofair", "above"]);
    run("umount", &[&mount]);
    run("umount", &[&mount]);
    let Controlled { control, directory: _directory } = Controlled::over(directory);
    assert_eq!(sources(), ["below", "iofair"]);
    control.stop().unwrap();
    assert_eq!(sources(), ["below"]);
    run("umount", &[&mount]);
}

/// Goal: mounts that somebody else has removed leave nothing in the server. Method: twenty rounds of `umount` and a reload, which mounts
/// again; descriptors of FUSE without a mount.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_removed_mounts_leave_no_descriptors() {
    let directory = Directory::new();
    let mount = directory.path("mnt");
    let text = crate::rig::controlled::file(&directory, "memory:64MiB");
    let text = text.replace("[listen]", &format!("[fuse]\nmount = '{mount}'\n[listen]"));
    fs::write(directory.path("contracts.toml"), text).unwrap();
    let rig = Controlled::over(directory);
    for _ in 0..20 {
        run("umount", &[&mount]);
        assert_eq!(rig.status(&Call::new("POST", "/v1/reload")), 200);
    }
    // Those of the last rounds, or of other tests, may be about to go.
    assert!(without_mount() < 10, "{} are left", without_mount());
}

/// How many descriptors this process has of FUSE connections that have ended.
fn without_mount() -> usize {
    let numbers = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_fuse = fs::read_link(&path).ok()? == std::path::Path::new("/dev/fuse");
        is_fuse.then(|| path.file_name()?.to_str()?.parse().ok())?
    });
    let is_dead = |number: &i32| {
        let mut asked = libc::pollfd { fd: *number, events: 0, revents: 0 };
        // SAFETY: a plain system call on a local.
        unsafe { libc::poll(&raw mut asked, 1, 0) == 1 && asked.revents & libc::POLLERR != 0 }
    };
    numbers.filter(is_dead).count()
}
