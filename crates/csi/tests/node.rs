//! The node service, through its socket, with a real server, block devices and file systems: loop devices of this machine; ublk
//! and the kernel's NBD client in a virtual machine, in which this program runs itself.

mod rig;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use iofair_testkit::machine;
use rig::csi::controller_client::ControllerClient;
use rig::csi::node_client::NodeClient;
use rig::csi::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode,
};
use rig::csi::{
    CapacityRange, ControllerExpandVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest,
    NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
};
use rig::{INSIDE, Process, Scratch, connect, driver, server};
use tonic::transport::Channel;
use tonic::{Code, Status};

const MIB: i64 = 1 << 20;

/// A node with a server and a driver.
struct Host {
    channel: Option<Channel>,
    calls: u32,
    driver: Option<Process>,
    server: Option<Process>,
    scratch: Scratch,
    devices: &'static str,
}

impl Host {
    fn start(name: &str, devices: &'static str) -> Self {
        let scratch = Scratch::new(name);
        let mut host =
            Self { channel: None, calls: 0, driver: None, server: None, scratch, devices };
        host.serve();
        host
    }
    fn serve(&mut self) {
        let fuse = "[fuse]\nmount = \"volumes\"\n";
        let rest = if self.devices == "loop" { fuse } else { "" };
        self.server = Some(server(&self.scratch.0, "back = \"file:pool.img\"", rest));
    }
    fn path(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name)
    }
    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
    /// Kills the driver, starts another one and connects; in a virtual machine, where a start takes seconds, for every second
    /// call. In one of two rounds a call and its repetition come to two drivers.
    async fn again(&mut self) -> (ControllerClient<Channel>, NodeClient<Channel>) {
        self.calls += 1;
        let kept = std::env::var_os(INSIDE).is_some() && self.calls.is_multiple_of(2);
        let channel = match self.channel.take() {
            Some(channel) if kept => channel,
            _ => self.start_driver().await,
        };
        self.channel = Some(channel.clone());
        (ControllerClient::new(channel.clone()), NodeClient::new(channel))
    }
    async fn start_driver(&mut self) -> Channel {
        if let Some(driver) = self.driver.take() {
            driver.kill();
        }
        let control = self.text("control.sock");
        let arguments = ["--node", "node-a", "--control", &control, "--devices", self.devices];
        self.driver = Some(driver(&self.scratch.0, &arguments));
        connect(&self.scratch.0).await
    }
    async fn create(&mut self, name: &str, use_as: &VolumeCapability) -> String {
        let request = CreateVolumeRequest {
            name: name.to_string(),
            capacity_range: Some(CapacityRange { required_bytes: 32 * MIB, limit_bytes: 0 }),
            volume_capabilities: vec![use_as.clone()],
            ..CreateVolumeRequest::default()
        };
        let made = self.again().await.0.create_volume(request).await.expect("created").into_inner();
        made.volume.expect("a volume").volume_id
    }
    fn stage(&self, volume: &str, use_as: &VolumeCapability) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: volume.to_string(),
            staging_target_path: self.text("staging"),
            volume_capability: Some(use_as.clone()),
            ..NodeStageVolumeRequest::default()
        }
    }
    fn publish(&self, volume: &str, use_as: &VolumeCapability) -> NodePublishVolumeRequest {
        NodePublishVolumeRequest {
            volume_id: volume.to_string(),
            staging_target_path: self.text("staging"),
            target_path: self.text("pods/one"),
            volume_capability: Some(use_as.clone()),
            ..NodePublishVolumeRequest::default()
        }
    }
    fn unpublish(&self, volume: &str) -> NodeUnpublishVolumeRequest {
        NodeUnpublishVolumeRequest {
            volume_id: volume.to_string(),
            target_path: self.text("pods/one"),
        }
    }
    fn unstage(&self, volume: &str) -> NodeUnstageVolumeRequest {
        NodeUnstageVolumeRequest {
            volume_id: volume.to_string(),
            staging_target_path: self.text("staging"),
        }
    }
    async fn release(&mut self, volume: &str) {
        for _ in 0..2 {
            let request = self.unpublish(volume);
            self.again().await.1.node_unpublish_volume(request).await.expect("unpublished");
        }
        for _ in 0..2 {
            let request = self.unstage(volume);
            self.again().await.1.node_unstage_volume(request).await.expect("unstaged");
        }
    }
}

fn capability(mode: Mode, access_type: AccessType) -> VolumeCapability {
    let access_mode = Some(AccessMode { mode: mode.into() });
    VolumeCapability { access_mode, access_type: Some(access_type) }
}

fn delete(volume: &str) -> DeleteVolumeRequest {
    DeleteVolumeRequest { volume_id: volume.to_string(), secrets: HashMap::new() }
}

fn system(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output().expect("it runs");
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Whether this process may use reserved resources (`CAP_SYS_RESOURCE`, bit 24), which an online resize of ext4 needs.
fn has_sys_resource() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("read");
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("a line");
    u64::from_str_radix(bits.trim(), 16).expect("a number") >> 24 & 1 == 1
}

fn run<T>(test: impl Future<Output = T>) -> T {
    // Connections close in a thread of their own, while a test waits for the end of a driver.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

/// The size that a file system has after an expansion from 32 MiB. `later`: the device grows when it is created again.
fn reached(grown: Result<i64, Status>, later: bool) -> i64 {
    let refusal = match (later, has_sys_resource()) {
        (true, _) => "gets its new size when no Pod uses it",
        (_, true) => return grown.expect("grown"),
        // ext4 does not grow without it; the device does, and the file system stays as it is.
        (_, false) => "Permission denied to resize",
    };
    let error = grown.expect_err(refusal);
    assert!(error.message().contains(refusal), "{error}");
    32 * MIB
}

/// The life of a file system: stage, publish, write, expand, unpublish; then the same volume once more.
fn file_system_survives_its_driver(devices: &'static str) {
    run(async {
        let mut host = Host::start(devices, devices);
        let use_as = capability(Mode::SingleNodeWriter, AccessType::Mount(MountVolume::default()));
        let volume = host.create("one", &use_as).await;
        for round in 0..2 {
            for _ in 0..2 {
                let request = host.stage(&volume, &use_as);
                host.again().await.1.node_stage_volume(request).await.expect("staged");
            }
            for _ in 0..2 {
                let request = host.publish(&volume, &use_as);
                host.again().await.1.node_publish_volume(request).await.expect("published");
            }
            let file = host.path("pods/one/file");
            match round {
                0 => fs::write(&file, "kept").expect("written"),
                _ => assert_eq!(fs::read_to_string(&file).expect("read"), "kept"),
            }
            let used =
                host.again().await.0.delete_volume(delete(&volume)).await.expect_err("in use");
            assert_eq!(used.code(), Code::FailedPrecondition, "{used}");
            // A ublk device gets its size when it is created again, before Linux 6.16.
            let later = devices == "ublk";
            let size = if later { 64 * MIB } else { (64 + 32 * round) * MIB };
            let range = Some(CapacityRange { required_bytes: size, limit_bytes: 0 });
            let grow = ControllerExpandVolumeRequest {
                volume_id: volume.clone(),
                capacity_range: range,
                ..ControllerExpandVolumeRequest::default()
            };
            host.again().await.0.controller_expand_volume(grow).await.expect("grown");
            let place = host.text("pods/one");
            let grow = NodeExpandVolumeRequest {
                volume_id: volume.clone(),
                volume_path: place.clone(),
                ..NodeExpandVolumeRequest::default()
            };
            let mut node = host.again().await.1;
            let grown = node.node_expand_volume(grow).await;
            let bytes = grown.map(|response| response.into_inner().capacity_bytes);
            let reached = reached(bytes, later && round == 0);
            let ask = NodeGetVolumeStatsRequest {
                volume_id: volume.clone(),
                volume_path: place,
                staging_target_path: String::new(),
            };
            let usage = node.node_get_volume_stats(ask).await.expect("known").into_inner().usage;
            assert!(
                usage[0].total > reached * 3 / 4 && usage[0].available > 0 && usage[1].used > 0,
                "{usage:?}"
            );
            host.release(&volume).await;
            assert!(!host.path("pods/one").exists());
        }
        for _ in 0..2 {
            host.again().await.0.delete_volume(delete(&volume)).await.expect("deleted");
        }
    });
}

/// Goal: a file system of a volume keeps its files through its life, although the driver is killed between all calls and each
/// call comes twice.
#[test]
#[ignore = "needs root: mounts, loop devices"]
fn needs_root_a_file_system_survives_its_driver() {
    file_system_survives_its_driver("loop");
}

/// Goal: a raw block volume is a device, and data that a Pod put on it is never formatted away.
#[test]
#[ignore = "needs root: mounts, loop devices"]
fn needs_root_foreign_data_is_not_formatted() {
    run(async {
        let mut host = Host::start("block", "loop");
        let block = capability(Mode::SingleNodeSingleWriter, AccessType::Block(BlockVolume {}));
        let volume = host.create("two", &block).await;
        let (stage, publish) = (host.stage(&volume, &block), host.publish(&volume, &block));
        let mut node = host.again().await.1;
        node.node_stage_volume(stage).await.expect("staged");
        node.node_publish_volume(publish.clone()).await.expect("published");
        let elsewhere = NodePublishVolumeRequest { target_path: host.text("pods/two"), ..publish };
        let refused = node.node_publish_volume(elsewhere).await.expect_err("a second Pod");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        // A partition table, as sfdisk or an installer would write it.
        let mut table = vec![0_u8; 512];
        table[446 + 4] = 0x83;
        table[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
        table[446 + 12..446 + 16].copy_from_slice(&4096_u32.to_le_bytes());
        table[510..].copy_from_slice(&[0x55, 0xaa]);
        let image = host.text("table");
        fs::write(&image, &table).expect("written");
        let place = host.text("pods/one");
        system(
            "dd",
            &[&format!("if={image}"), &format!("of={place}"), "conv=fsync,notrunc", "status=none"],
        );
        host.release(&volume).await;
        let mount = capability(Mode::SingleNodeWriter, AccessType::Mount(MountVolume::default()));
        let stage = host.stage(&volume, &mount);
        let refused = host.again().await.1.node_stage_volume(stage).await.expect_err("not empty");
        assert!(
            refused.code() == Code::FailedPrecondition && refused.message().contains("dos"),
            "{refused}"
        );
        let now = fs::read(host.path("volumes/two")).expect("read");
        assert_eq!(now[..512], table[..]);
        assert!(!Path::new(&host.path("staging")).join("lost+found").exists());
        host.release(&volume).await;
    });
}

/// A Pod writes and reads on while the server of its volume is killed and started again.
fn pods_survive_the_server(devices: &'static str, kills: u32) {
    run(async {
        let mut host = Host::start("restart", devices);
        let use_as = capability(Mode::SingleNodeWriter, AccessType::Mount(MountVolume::default()));
        let volume = host.create("three", &use_as).await;
        let (stage, publish) = (host.stage(&volume, &use_as), host.publish(&volume, &use_as));
        let mut node = host.again().await.1;
        node.node_stage_volume(stage).await.expect("staged");
        node.node_publish_volume(publish).await.expect("published");
        let data: Vec<u8> = (0..4 << 20).map(|at: u32| (at ^ (at >> 9)) as u8).collect();
        let file = host.path("pods/one/file");
        for _ in 0..kills {
            let (file, written) = (file.clone(), data.clone());
            let (part_written, written_parts) = std::sync::mpsc::channel();
            let pod = std::thread::spawn(move || {
                for part in written.chunks(64 << 10) {
                    let mut opened =
                        fs::OpenOptions::new().create(true).append(true).open(&file)?;
                    std::io::Write::write_all(&mut opened, part)?;
                    opened.sync_all()?;
                    // Only the first parts are waited for.
                    let _ = part_written.send(());
                }
                std::io::Result::Ok(())
            });
            // In the middle: the Pod waits for nothing but its volume.
            (0..16).for_each(|_| written_parts.recv().expect("the Pod writes"));
            host.server.take().expect("it runs").kill();
            host.serve();
            pod.join().expect("the Pod").expect("written");
            let at = host.path("pods/one/file");
            system("sh", &["-c", "echo 3 >/proc/sys/vm/drop_caches"]);
            assert!(fs::read(&at).expect("read") == data, "other data after a restart");
            fs::remove_file(at).expect("removed");
        }
        host.release(&volume).await;
        host.again().await.0.delete_volume(delete(&volume)).await.expect("deleted");
    });
}

/// Runs a test of this program in a virtual machine whose kernel has ublk and an NBD client.
fn in_guest(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let place = Scratch::new(test);
    fs::create_dir_all(place.0.join("root/tmp")).expect("created");
    let own = std::env::current_exe().expect("a path");
    let own_name = own.file_name().and_then(|name| name.to_str()).expect("a name");
    let mut programs = vec![rig::program(), rig::driver_program(), own.clone()];
    programs
        .extend(["/sbin/blkid", "/sbin/resize2fs", "/bin/mount", "/bin/umount"].map(PathBuf::from));
    programs.iter().for_each(|program| machine::bring(&place.0, program));
    let script = format!(
        "{INSIDE}=1 {}=/bin/iofair-csi RUST_BACKTRACE=1 {own_name} --include-ignored --exact {test}
        if dmesg | grep -E 'WARNING|BUG|Oops|hung task|EXT4-fs error|I/O error'; then exit 1; fi",
        rig::DRIVER
    );
    let arguments = "-machine q35 -cpu max -smp 2 -m 1G".split(' ').map(String::from);
    let seen = machine::Machine::boot(&place.0, arguments.collect(), &script).passes();
    assert!(seen.contains("1 passed"), "{seen}");
}

/// Goal: what holds for loop devices holds for ublk devices; and Pods do not notice a restart of the server.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest)"]
fn needs_guest_volumes_are_ublk_devices() {
    in_guest("needs_guest_volumes_are_ublk_devices", || {
        file_system_survives_its_driver("ublk");
        pods_survive_the_server("ublk", 2);
    });
}

/// Goal: the same for devices of the kernel's NBD client, which repeats what was in flight after half a minute.
#[test]
#[ignore = "needs guest and time: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest); a minute"]
fn needs_time_needs_guest_volumes_are_nbd_devices() {
    in_guest("needs_time_needs_guest_volumes_are_nbd_devices", || {
        file_system_survives_its_driver("nbd");
        pods_survive_the_server("nbd", 1);
    });
}
