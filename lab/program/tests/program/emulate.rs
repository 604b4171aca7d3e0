//! `iofair-lab emulate`: an emulated drive as a block device.

use std::fs;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Deserializer, Value};

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("iofair-emulate-{name}-{}", std::process::id()))
}

struct Emulated {
    child: Child,
    out: Box<dyn Iterator<Item = serde_json::Result<Value>>>,
    ready: Value,
}

impl Emulated {
    fn start(at: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
        command
            .args(["--json", "emulate", "nvme-2015", "--size", "64MiB", "--at"])
            .arg(at)
            .args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut out = Box::new(Deserializer::from_reader(out).into_iter());
        let ready = out.next().expect("it becomes ready").unwrap();
        Self { child, out, ready }
    }
    fn device(&self) -> PathBuf {
        self.ready["device"].as_str().unwrap().into()
    }
    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
    /// After a signal: what it says at the end.
    fn end(mut self) -> Value {
        let last = self.out.next().expect("it says something at the end").unwrap();
        assert!(self.child.wait().unwrap().success());
        last
    }
}

fn is_left(at: &Path) -> bool {
    let at = at.to_str().unwrap();
    let loops = Command::new("losetup").arg("-a").output().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    String::from_utf8_lossy(&loops.stdout).contains(at) || mounts.contains(at)
}

/// Goal: the device keeps data, tells how faithful it is, and leaves nothing behind; what a killed one left is removed by
/// the next one, and a second one at the same place is refused. Method: all of it with a small drive. Whether this machine
/// keeps the pace is not judged.
#[test]
#[ignore = "needs root: loop devices and FUSE"]
fn needs_root_a_drive_is_emulated_and_leaves_nothing() {
    let at = scratch("drive");
    let emulated = Emulated::start(&at, &[]);
    assert_eq!(emulated.ready["rows"].as_array().unwrap().len(), 3);
    assert!(emulated.ready["lead_ns"].as_u64().unwrap() > 0, "{}", emulated.ready);
    let device = fs::OpenOptions::new().read(true).write(true).open(emulated.device()).unwrap();
    device.write_all_at(&[7; 8192], 4096).unwrap();
    device.sync_all().unwrap();
    let mut read = [0; 8192];
    device.read_exact_at(&mut read, 4096).unwrap();
    assert_eq!(read, [7; 8192]);
    drop(device);
    let mut second = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
    let second = second.args(["emulate", "nvme-2015", "--at"]).arg(&at).output().unwrap();
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && told.contains("another emulated drive"), "{told}");

    let Emulated { mut child, .. } = emulated;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_left(&at), "a killed one leaves something");
    let emulated = Emulated::start(&at, &["--no-compensation"]);
    assert_eq!(emulated.ready["lead_ns"].as_u64(), Some(0));
    emulated.signal("-INT");
    let last = emulated.end();
    assert!(last["lateness"]["requests"].is_u64() && !last["ready"].as_bool().unwrap(), "{last}");
    assert!(!is_left(&at) && !at.exists());
}

/// Goal: a mounted file system is unmounted at the end, and one in use is named. Method: one with an open file; two
/// signals.
#[test]
#[ignore = "needs root: loop devices, FUSE, mkfs.ext4 and mount"]
fn needs_root_file_systems_are_unmounted_first() {
    let (at, mount) = (scratch("mounted"), scratch("mount"));
    fs::create_dir(&mount).unwrap();
    let emulated = Emulated::start(&at, &[]);
    let run = |name: &str, arguments: &[&str]| {
        let told = Command::new(name).args(arguments).output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    };
    let (device, place) = (emulated.device(), mount.to_str().unwrap());
    run("mkfs.ext4", &["-q", device.to_str().unwrap()]);
    run("mount", &[device.to_str().unwrap(), place]);
    let open = fs::File::create(mount.join("file")).unwrap();
    emulated.signal("-TERM");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(is_left(&at), "it is in use, so that it goes on");
    drop(open);
    emulated.signal("-TERM");
    emulated.end();
    assert!(!is_left(&at));
    fs::remove_dir(&mount).unwrap();
}

/// Goal: mistakes are refused before anything is made. Method: an unknown profile, a size above the drive's, a file as
/// the directory.
#[test]
fn mistakes_are_explained() {
    let refused = |arguments: &[&str], told: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
        let mut child =
            command.arg("emulate").args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(2), "{text}");
        assert!(text.contains(told), "{text}");
    };
    refused(&["plextor", "--at", "x"], "plextor-px256m5s");
    refused(&["nvme-2015", "--at", "x", "--size", "1TiB"], "the profile's capacity");
    refused(&["nvme-2015", "--at", "x", "--size", "12"], "--size");
}
