//! The controller service, through its socket, with real servers: promises, nodes, repetition after a crash.

mod rig;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rig::csi::controller_client::ControllerClient;
use rig::csi::volume_capability::{AccessMode, AccessType, BlockVolume, access_mode::Mode};
use rig::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, GetCapacityRequest, ListVolumesRequest, Topology,
    TopologyRequirement, VolumeCapability,
};
use rig::{Process, Scratch, connect, driver, server};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// What both drives reach.
const REACHES: &str = "reaches = { read = \"60MB/s\", write = \"50MB/s\", random = \"40MB/s\" }";
const NODES: [&str; 2] = ["node-a", "node-b"];
const NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";

/// Two servers, one driver, and a client of it.
struct Cluster {
    // Dropped in this order.
    client: ControllerClient<Channel>,
    driver: Option<Process>,
    servers: Vec<Process>,
    directory: PathBuf,
    _scratch: Scratch,
}

impl Cluster {
    async fn start(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let directory = scratch.0.clone();
        let drive = format!("back = \"directory:pool\"\n{REACHES}");
        let servers = NODES.map(|node| server(&directory.join(node), &drive, "")).into();
        let one = |node: &str| {
            let control = directory.join(node).join("control.sock");
            format!("[[server]]\nnode = \"{node}\"\ncontrol = \"{}\"\n", control.display())
        };
        fs::write(directory.join("servers.toml"), NODES.map(one).concat()).expect("written");
        let driver = Some(Self::driver(&directory));
        let client = ControllerClient::new(connect(&directory).await);
        Self { directory, servers, driver, client, _scratch: scratch }
    }
    fn driver(directory: &Path) -> Process {
        let servers = directory.join("servers.toml").display().to_string();
        driver(directory, &["--services", "controller", "--servers", &servers])
    }
    /// Kills the driver and starts another one.
    async fn restart(&mut self) {
        self.driver.take().expect("it runs").kill();
        self.driver = Some(Self::driver(&self.directory));
        self.client = ControllerClient::new(connect(&self.directory).await);
    }
    fn contracts(&self, node: &str) -> String {
        fs::read_to_string(self.directory.join(node).join("contracts.toml")).expect("written")
    }
    async fn create(&mut self, request: CreateVolumeRequest) -> Result<rig::csi::Volume, Status> {
        Ok(self.client.create_volume(request).await?.into_inner().volume.expect("a volume"))
    }
    async fn capacity(&mut self, node: &str, parameters: &[(&str, &str)]) -> i64 {
        let request = GetCapacityRequest {
            parameters: map(parameters),
            accessible_topology: Some(on(node)),
            ..GetCapacityRequest::default()
        };
        self.client.get_capacity(request).await.expect("an answer").into_inner().available_capacity
    }
}

fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn on(node: &str) -> Topology {
    Topology { segments: map(&[("csi.iofair.dev/node", node)]) }
}

fn request(name: &str, nodes: &[&str], parameters: &[(&str, &str)]) -> CreateVolumeRequest {
    let mode = Some(AccessMode { mode: Mode::SingleNodeWriter.into() });
    let access_type = Some(AccessType::Block(BlockVolume {}));
    let places: Vec<Topology> = nodes.iter().map(|node| on(node)).collect();
    CreateVolumeRequest {
        name: name.to_string(),
        capacity_range: Some(CapacityRange { required_bytes: 8 << 20, limit_bytes: 0 }),
        volume_capabilities: vec![VolumeCapability { access_mode: mode, access_type }],
        parameters: map(parameters),
        accessibility_requirements: Some(TopologyRequirement {
            requisite: places.clone(),
            preferred: places,
        }),
        ..CreateVolumeRequest::default()
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    // Connections close in a thread of their own, while a test waits for the end of a driver.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

/// Goal: a volume goes to a node that can keep its promise; where none can, the claim hears the numbers, capacity is zero, and
/// nothing is left behind.
#[test]
fn promises_decide_the_node() {
    run(async {
        let mut cluster = Cluster::start("promises").await;
        let gold = [("min", "30MB/s"), (NAMESPACE, "team")];
        assert!(cluster.capacity("node-a", &gold).await > 1 << 20);
        let first =
            cluster.create(request("one", &NODES, &gold)).await.expect("room on the first node");
        assert_eq!(first.accessible_topology, [on("node-a")]);
        assert!(cluster.contracts("node-a").contains("kubernetes/team/one"));
        // A second minimum of this size does not fit beside the first.
        assert_eq!(cluster.capacity("node-a", &gold).await, 0);
        assert!(cluster.capacity("node-a", &[("weight", "300")]).await > 0);
        let second =
            cluster.create(request("two", &NODES, &gold)).await.expect("room on the second node");
        assert_eq!(second.accessible_topology, [on("node-b")]);
        let error = cluster.create(request("three", &NODES, &gold)).await.expect_err("no room");
        assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
        let told = error.message();
        assert!(
            told.contains("node-a") && told.contains("node-b") && told.contains("MB/s"),
            "{told}"
        );
        assert!(NODES.iter().all(|node| !cluster.contracts(node).contains("three")));
        let wrong = cluster
            .create(request("four", &NODES, &[("weight", "5000")]))
            .await
            .expect_err("wrong");
        assert!(
            wrong.code() == Code::InvalidArgument && wrong.message().contains("1 to 1000"),
            "{wrong}"
        );
    });
}

/// Goal: a contract changes while the volume is there; one that cannot be kept changes nothing.
#[test]
fn contracts_change() {
    run(async {
        let mut cluster = Cluster::start("modify").await;
        let volume = cluster
            .create(request("one", &NODES[..1], &[("weight", "200")]))
            .await
            .expect("created");
        let change = |pairs: &[(&str, &str)]| ControllerModifyVolumeRequest {
            volume_id: volume.volume_id.clone(),
            mutable_parameters: map(pairs),
            ..ControllerModifyVolumeRequest::default()
        };
        cluster
            .client
            .controller_modify_volume(change(&[("min", "20MB/s"), ("max.read", "90MB/s")]))
            .await
            .expect("kept");
        let now = cluster.contracts("node-a");
        assert!(
            now.contains("20MB/s") && now.contains("90MB/s") && !now.contains("weight"),
            "{now}"
        );
        let error = cluster
            .client
            .controller_modify_volume(change(&[("min", "300MB/s")]))
            .await
            .expect_err("too much");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert_eq!(cluster.contracts("node-a"), now);
        let grow = ControllerExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            capacity_range: Some(CapacityRange { required_bytes: 12 << 20, limit_bytes: 0 }),
            ..ControllerExpandVolumeRequest::default()
        };
        let grown =
            cluster.client.controller_expand_volume(grow).await.expect("grown").into_inner();
        assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (12 << 20, true));
    });
}

/// Goal: what a driver or a server that was killed between two steps has left is completed by the same call again. Method: the
/// states between the steps, made with `iofair ctl`, and kills of both processes.
#[test]
fn interrupted_calls_are_completed() {
    run(async {
        let mut cluster = Cluster::start("killed").await;
        let directory = cluster.directory.clone();
        let ctl = |node: &str, arguments: &[&str]| {
            let program = Path::new(env!("CARGO_BIN_EXE_iofair-csi")).with_file_name("iofair");
            let socket = directory.join(node).join("control.sock");
            let done = Command::new(program)
                .arg("ctl")
                .arg("--socket")
                .arg(socket)
                .args(arguments)
                .output();
            let done = done.expect("it runs");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        let gold = [("min", "10MB/s"), (NAMESPACE, "team")];
        // Killed after the group was created, with another contract even.
        ctl("node-a", &["group", "create", "kubernetes/team/one", "weight=7"]);
        cluster.restart().await;
        let made = cluster.create(request("one", &NODES[..1], &gold)).await.expect("completed");
        assert!(cluster.contracts("node-a").contains("10MB/s"));
        // Killed after the volume was created, before the response.
        cluster.restart().await;
        let again = cluster.create(request("one", &NODES, &gold)).await.expect("the same volume");
        assert_eq!(again, made);
        let larger = CreateVolumeRequest {
            capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
            ..request("one", &NODES, &gold)
        };
        assert_eq!(
            cluster.create(larger).await.expect_err("another size").code(),
            Code::AlreadyExists
        );
        // The server is killed: the call fails for now, and nothing is made elsewhere.
        cluster.servers.remove(0).kill();
        let error =
            cluster.create(request("one", &NODES, &gold)).await.expect_err("it may be there");
        assert_eq!(error.code(), Code::Unavailable, "{error}");
        let drive = format!("back = \"directory:pool\"\n{REACHES}");
        cluster.servers.push(server(&cluster.directory.join("node-a"), &drive, ""));
        let listed = cluster
            .client
            .list_volumes(ListVolumesRequest::default())
            .await
            .expect("a list")
            .into_inner();
        assert_eq!(listed.entries.len(), 1);
        // Killed after the volume was deleted, before its group was.
        ctl("node-a", &["volume", "remove", "one", "--delete-data"]);
        let delete = DeleteVolumeRequest {
            volume_id: made.volume_id.clone(),
            ..DeleteVolumeRequest::default()
        };
        for _ in 0..2 {
            cluster.restart().await;
            cluster.client.delete_volume(delete.clone()).await.expect("deleted");
        }
        assert!(!cluster.contracts("node-a").contains("team"));
        assert!(!cluster.directory.join("node-a/pool/one.img").exists());
    });
}

/// Goal: groups whose creation was interrupted are removed, but not while a volume for them is being created, and not groups that
/// people made. Method: a server that has all three when the controller starts.
#[test]
fn groups_of_interrupted_creations_are_removed() {
    let [left, late] = ["1", "2"]
        .map(|digit| format!("pvc-{}", "00000000-0000-4000-8000-00000000000".to_owned() + digit));
    let group = |name: &str| format!("name = \"kubernetes/team{name}\"\n");
    let of_people = "/database";
    let all = ["", of_people, &format!("/{left}"), &format!("/{late}")].map(group);
    let groups = format!(
        "[[group]]\nname = \"kubernetes\"\n{}",
        all.map(|group| format!("[[group]]\n{group}")).concat()
    );
    run(async {
        let scratch = Scratch::new("leftovers");
        let _server = server(&scratch.0, &format!("back = \"directory:pool\"\n{REACHES}"), &groups);
        let contracts = || fs::read_to_string(scratch.0.join("contracts.toml")).expect("written");
        let control = scratch.0.join("control.sock").display().to_string();
        let arguments = [
            "--services",
            "controller",
            "--node",
            "node-a",
            "--control",
            &control,
            "--longest-creation",
            "3",
        ];
        let _driver = driver(&scratch.0, &arguments);
        let mut client = ControllerClient::new(connect(&scratch.0).await);
        let creation = request(&late, &["node-a"], &[(NAMESPACE, "team")]);
        client.create_volume(creation).await.expect("created");
        for _ in 0..1200 {
            if !contracts().contains(&left) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let now = contracts();
        assert!(!now.contains(&left), "{now}");
        assert!(
            now.contains(&group(of_people)) && now.contains(&group(&format!("/{late}"))),
            "{now}"
        );
    });
}
