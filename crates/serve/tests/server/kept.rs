//! A minimum that the kernel's own block layer sees: clients of loop devices over files of a mounted directory.

use std::process::{Child, Command, Stdio};

use crate::rig::{Directory, parse, run};
use iofair_serve::{Server, Snapshot};
use iofair_testkit::judged::judged;

/// The promised client and the greedy one.
const VOLUMES: [&str; 2] = ["promised", "greedy"];
const SECONDS: usize = 10;

/// A loop device that goes with its owner.
struct Looped(String);

impl Looped {
    fn over(file: &str) -> Self {
        Self(run("losetup", &["-f", "--show", "--direct-io=on", file]).trim().to_string())
    }
    /// Reads until it is killed, or for a while.
    fn read(&self, job: &[&str]) -> Child {
        let mut command = Command::new("fio");
        command.args([
            "--name=job",
            "--ioengine=libaio",
            "--direct=1",
            "--time_based",
            "--runtime=600",
        ]);
        command.arg(format!("--filename={}", self.0)).args(job);
        command.stdout(Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

/// MB/s of a volume in the time of the snapshot.
fn rate(snapshot: &Snapshot, volume: &str) -> f64 {
    let found = snapshot.volumes.iter().find(|one| one.name == volume).unwrap();
    found.stats.bytes.iter().sum::<u64>() as f64 * 1e3 / snapshot.time.0 as f64
}

/// Waits until the server has counted for a second.
fn second(server: &Server) -> Snapshot {
    std::thread::park_timeout(std::time::Duration::from_secs(1));
    server.stats(true).unwrap()
}

/// Goal: a client of a block device has its minimum beside one that reads all it can through another one, and the drive stays
/// full. Method: an emulated SSD that two processors can fill, its volumes as files, loop devices with direct I/O on them, and fio: 4 KiB one after the
/// other beside four streams; what each moves is counted by the server.
#[test]
#[ignore = "needs root: mount, loop device, fio"]
fn needs_root_real_time_a_minimum_is_kept_on_block_devices() {
    let directory = Directory::new();
    let mut text = format!(
        "[drive]\nback = 'emulated:{}'\n[fuse]\nmount = '{}'\n",
        crate::slow::slow_flash(&directory),
        directory.path("mnt")
    );
    for (name, min) in VOLUMES.into_iter().zip(["min = '2.5MB/s'", "weight = 1000"]) {
        text += &format!("[[group]]\nname = '{name}'\n{min}\n");
        text += &format!("[[volume]]\nname = '{name}'\ngroup = '{name}'\nsize = '4GiB'\n");
    }
    let server = Server::start(parse(&text)).unwrap();
    let devices = VOLUMES.map(|name| Looped::over(&directory.path(&format!("mnt/{name}"))));
    let streams = ["--rw=read", "--bs=256k", "--iodepth=2", "--numjobs=4", "--offset_increment=1g"];
    let jobs: [&[&str]; 2] = [&["--rw=randread", "--bs=4k"], &streams];
    let mut clients: Vec<Child> =
        devices.iter().zip(jobs).map(|(device, job)| device.read(job)).collect();
    while server.stats(false).unwrap().volumes.iter().any(|one| one.stats.requests[0] < 100) {
        assert!(clients.iter_mut().all(|client| client.try_wait().unwrap().is_none()));
        std::thread::yield_now();
    }
    second(&server);
    // Without control the first has a twentieth of it. Its reads are 1.6 ms apart at the minimum: 0.4 ms for the drive, and up to
    // 0.7 ms for the way through the loop device and FUSE on a slow machine.
    judged("a minimum of 2.5 MB/s is kept and the drive is full", || {
        let rates: Vec<[f64; 2]> = (0..SECONDS)
            .map(|_| second(&server))
            .map(|snapshot| VOLUMES.map(|name| rate(&snapshot, name)))
            .collect();
        let mean =
            |which: usize| rates.iter().map(|rates| rates[which]).sum::<f64>() / SECONDS as f64;
        println!("promised {:.2} MB/s; greedy {:.1} MB/s", mean(0), mean(1));
        (mean(0) > 2.42 && mean(1) > 35.0).then_some(()).ok_or(format!("{rates:?}"))
    });
    for client in &mut clients {
        run("kill", &["-INT", &client.id().to_string()]);
        client.wait().unwrap();
    }
    drop(devices);
    server.stop().unwrap();
}
