//! The node service, through its socket, with a real server, loop devices and file systems of this machine.

mod rig;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
use rig::{Process, Scratch, connect, driver, server};
use tonic::Code;
use tonic::transport::Channel;

const MIB: i64 = 1 << 20;

/// A node with a server and a driver, which is killed before each call.
struct Machine {
    driver: Option<Process>,
    _server: Process,
    scratch: Scratch,
}

impl Machine {
    fn start(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let server =
            server(&scratch.0, "back = \"file:pool.img\"", "[fuse]\nmount = \"volumes\"\n");
        Self { driver: None, _server: server, scratch }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name)
    }
    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
    /// Kills the driver, starts another one and connects.
    async fn again(&mut self) -> (ControllerClient<Channel>, NodeClient<Channel>) {
        if let Some(driver) = self.driver.take() {
            driver.kill();
        }
        let control = self.text("control.sock");
        self.driver = Some(driver(
            &self.scratch.0,
            &["--node", "node-a", "--control", &control, "--devices", "loop"],
        ));
        let channel = connect(&self.scratch.0).await;
        (ControllerClient::new(channel.clone()), NodeClient::new(channel))
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

/// Goal: a file system of a volume keeps its files through its life, although the driver is killed between all calls and each
/// call comes twice. Method: stage, publish, write, expand, unpublish; then the same volume once more.
#[test]
#[ignore = "needs root: mounts, loop devices"]
fn needs_root_a_file_system_survives_its_driver() {
    run(async {
        let mut machine = Machine::start("file-system");
        let use_as = capability(Mode::SingleNodeWriter, AccessType::Mount(MountVolume::default()));
        let volume = machine.create("one", &use_as).await;
        for round in 0..2 {
            for _ in 0..2 {
                let request = machine.stage(&volume, &use_as);
                machine.again().await.1.node_stage_volume(request).await.expect("staged");
            }
            for _ in 0..2 {
                let request = machine.publish(&volume, &use_as);
                machine.again().await.1.node_publish_volume(request).await.expect("published");
            }
            let file = machine.path("pods/one/file");
            match round {
                0 => fs::write(&file, "kept").expect("written"),
                _ => assert_eq!(fs::read_to_string(&file).expect("read"), "kept"),
            }
            let used =
                machine.again().await.0.delete_volume(delete(&volume)).await.expect_err("in use");
            assert_eq!(used.code(), Code::FailedPrecondition, "{used}");
            let size = (64 + 32 * round) * MIB;
            let range = Some(CapacityRange { required_bytes: size, limit_bytes: 0 });
            let grow = ControllerExpandVolumeRequest {
                volume_id: volume.clone(),
                capacity_range: range,
                ..ControllerExpandVolumeRequest::default()
            };
            machine.again().await.0.controller_expand_volume(grow).await.expect("grown");
            let place = machine.text("pods/one");
            let grow = NodeExpandVolumeRequest {
                volume_id: volume.clone(),
                volume_path: place.clone(),
                ..NodeExpandVolumeRequest::default()
            };
            let mut node = machine.again().await.1;
            let grown = node.node_expand_volume(grow).await;
            let reached = match has_sys_resource() {
                true => {
                    assert_eq!(grown.expect("grown").into_inner().capacity_bytes, size);
                    size
                }
                // ext4 does not grow without it; the device does, and the file system stays as it is.
                false => {
                    let error = grown.expect_err("no CAP_SYS_RESOURCE");
                    assert!(error.message().contains("Permission denied to resize"), "{error}");
                    32 * MIB
                }
            };
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
            machine.release(&volume).await;
            assert!(!machine.path("pods/one").exists());
        }
        for _ in 0..2 {
            machine.again().await.0.delete_volume(delete(&volume)).await.expect("deleted");
        }
    });
}

/// Goal: a raw block volume is a device, and data that a Pod put on it is never formatted away.
#[test]
#[ignore = "needs root: mounts, loop devices"]
fn needs_root_foreign_data_is_not_formatted() {
    run(async {
        let mut machine = Machine::start("block");
        let block = capability(Mode::SingleNodeSingleWriter, AccessType::Block(BlockVolume {}));
        let volume = machine.create("two", &block).await;
        let (stage, publish) = (machine.stage(&volume, &block), machine.publish(&volume, &block));
        let mut node = machine.again().await.1;
        node.node_stage_volume(stage).await.expect("staged");
        node.node_publish_volume(publish.clone()).await.expect("published");
        let elsewhere =
            NodePublishVolumeRequest { target_path: machine.text("pods/two"), ..publish };
        let refused = node.node_publish_volume(elsewhere).await.expect_err("a second Pod");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        // A partition table, as sfdisk or an installer would write it.
        let mut table = vec![0_u8; 512];
        table[446 + 4] = 0x83;
        table[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
        table[446 + 12..446 + 16].copy_from_slice(&4096_u32.to_le_bytes());
        table[510..].copy_from_slice(&[0x55, 0xaa]);
        let image = machine.text("table");
        fs::write(&image, &table).expect("written");
        let place = machine.text("pods/one");
        system(
            "dd",
            &[&format!("if={image}"), &format!("of={place}"), "conv=fsync,notrunc", "status=none"],
        );
        machine.release(&volume).await;
        let mount = capability(Mode::SingleNodeWriter, AccessType::Mount(MountVolume::default()));
        let stage = machine.stage(&volume, &mount);
        let refused =
            machine.again().await.1.node_stage_volume(stage).await.expect_err("not empty");
        assert!(
            refused.code() == Code::FailedPrecondition && refused.message().contains("dos"),
            "{refused}"
        );
        let now = fs::read(machine.path("volumes/two")).expect("read");
        assert_eq!(now[..512], table[..]);
        assert!(!Path::new(&machine.path("staging")).join("lost+found").exists());
        machine.release(&volume).await;
    });
}
