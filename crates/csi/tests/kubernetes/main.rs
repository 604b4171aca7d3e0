//! The chart on a real control plane: etcd, API server, controller manager, scheduler and sidecars run as processes, with the
//! rights that the chart gives them. Kubelets are played by the test: they run the containers of the chart as processes, with the
//! chart's own arguments. `make kubernetes` runs this.

mod cluster;
mod kubelet;
mod node;
mod programs;
#[path = "../rig/mod.rs"]
mod rig;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use cluster::Cluster;
use kubelet::{Kubelets, NAMESPACE};
use programs::of_kubernetes;
use rig::Scratch;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/helm/iofair");
const NODES: [&str; 2] = ["node-a", "node-b"];
const MIB: u64 = 1 << 20;

const VALUES: &str = r#"
server:
  drive: |
    back = "file:/var/lib/iofair/pool.img"
    reaches = { read = "500MB/s", write = "400MB/s", random = "20MB/s", iops = 50000, latency = "2ms" }
  fuse: true
driver: {devices: loop}
controller: {replicas: 1, capacityPollInterval: 2s}
storageClasses:
  - {name: plain}
  - {name: gold, parameters: {min: 15MB/s}}
  - {name: impossible, parameters: {min: 5GB/s}}
volumeAttributesClasses:
  - {name: slow, parameters: {max: 8MB/s}}
  - {name: fast, parameters: {max: 60MB/s}}
  - {name: greedy, parameters: {min: 5GB/s}}
"#;

/// All programs, except kubelets.
const VICTIMS: [&str; 10] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "provisioner",
    "attacher",
    "resizer",
    "driver",
    "node-driver-node-b",
    "server-node-b",
];

/// The test's state.
struct World<'a> {
    cluster: &'a Cluster,
    kubelets: Kubelets<'a>,
}

impl World<'_> {
    /// Lets kubelets work until something is there.
    fn until<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            self.kubelets.step();
            if let Some(found) = look(self) {
                println!("  {what}: {:.1} s", begin.elapsed().as_secs_f64());
                return found;
            }
            assert!(begin.elapsed() < Duration::from_secs(180), "180 s without: {what}");
        }
    }
    fn claim(&self, name: &str) -> Option<Json> {
        let text = self.cluster.kubectl(&["get", "pvc", name, "--ignore-not-found", "-o", "json"]);
        serde_json::from_str(&text).ok()
    }
    /// Creates a claim of a class, and a Pod that uses it.
    fn create(&self, name: &str, class: &str, size: &str, node: Option<&str>) {
        let selector = node.map_or(json!(null), |node| json!({ "kubernetes.io/hostname": node }));
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
            "spec": {
                "accessModes": ["ReadWriteOncePod"], "volumeMode": "Block", "storageClassName": class,
                "resources": { "requests": { "storage": size } }
            }
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "nodeSelector": selector,
                "containers": [{
                    "name": "load", "image": "fio",
                    "volumeDevices": [{ "name": "data", "devicePath": "/dev/data" }]
                }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }]
            }
        });
        self.cluster.apply(&claim.to_string());
        self.cluster.apply(&pod.to_string());
    }
    fn delete(&mut self, name: &str) {
        self.cluster.kubectl(&["delete", "pod", name, "--wait=false", "--ignore-not-found"]);
        self.cluster.kubectl(&["delete", "pvc", name, "--wait=false", "--ignore-not-found"]);
    }
    fn is_gone(&self, name: &str) -> Option<()> {
        let volumes = self.cluster.list("pv");
        let has = volumes.iter().any(|volume| volume["spec"]["claimRef"]["name"] == name);
        (!has && self.claim(name).is_none()).then_some(())
    }
    /// Asks a node's server.
    fn server(&self, node: &str, call: &[&str]) -> Json {
        let socket = self.kubelets.root(node).join("run/iofair/control.sock");
        let mut command = Command::new(rig::program());
        command.arg("ctl").arg("--socket").arg(socket).arg("--json").args(call);
        let done = command.output().expect("it runs");
        // It may have been killed a moment ago.
        serde_json::from_slice(&done.stdout).unwrap_or(Json::Null)
    }
    /// Bytes per second of the namespace's volumes on a node.
    fn rate(&self, node: &str) -> u64 {
        let list = self.server(node, &["group", "list"]);
        let groups = list["groups"].as_array().cloned().unwrap_or_default();
        let own = groups.iter().find(|group| group["name"] == "kubernetes/default");
        own.and_then(|group| group["usage"]["bytes_per_second"].as_u64()).unwrap_or(0)
    }
    /// Groups of volumes on a node, if its server responds.
    fn groups(&self, node: &str) -> Option<Vec<String>> {
        let list = self.server(node, &["group", "list"]);
        let names = list["groups"].as_array()?.iter().filter_map(|group| group["name"].as_str());
        Some(names.filter(|name| name.contains("/pvc-")).map(str::to_string).collect())
    }
    /// The ceiling of a claim's volume on node-b, in bytes per second.
    fn ceiling(&self, claim: &str) -> Option<u64> {
        let volume = self.claim(claim)?["spec"]["volumeName"].as_str()?.to_string();
        let list = self.server("node-b", &["group", "list"]);
        let groups = list["groups"].as_array()?;
        let name = format!("kubernetes/default/{volume}");
        let own = groups.iter().find(|group| group["name"] == name)?;
        own["in_force"]["ceilings"].as_array()?.first()?["per_second"].as_u64()
    }
}

/// A load on a device until it is dropped.
struct Load(Child);

impl Load {
    fn start(device: &Path, rw: &str) -> Self {
        let mut fio = Command::new("fio");
        fio.args([
            "--name=load",
            "--ioengine=libaio",
            "--direct=1",
            "--bs=64k",
            "--iodepth=8",
            "--time_based",
            "--thread",
        ]);
        fio.args(["--runtime=600", "--size=256m"])
            .arg(format!("--rw={rw}"))
            .arg(format!("--filename={}", device.display()));
        Self(fio.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("fio"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn verify(device: &Path) {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=verify",
        "--ioengine=libaio",
        "--direct=1",
        "--bs=64k",
        "--iodepth=4",
        "--rw=write",
        "--size=64m",
    ]);
    let done = fio
        .args(["--verify=crc32c", "--verify_state_save=0"])
        .arg(format!("--filename={}", device.display()))
        .output()
        .expect("fio");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn device_bytes(device: &Path) -> u64 {
    let done = Command::new("blockdev").arg("--getsize64").arg(device).output().expect("blockdev");
    String::from_utf8_lossy(&done.stdout).trim().parse().unwrap_or(0)
}

/// Checks the chart, installs it, and waits until the driver runs on all nodes.
fn install(world: &mut World<'_>, scratch: &Path) {
    let values = scratch.join("values.yaml");
    fs::write(&values, VALUES).expect("written");
    let values = values.display().to_string();
    let cluster = world.cluster;
    cluster.run("helm", &["lint", "--strict", CHART, "-f", &values], "").expect("a good chart");
    let wrong =
        cluster.run("helm", &["template", "iofair", CHART, "--set", "driver.devices=usb"], "");
    assert!(wrong.expect_err("the schema of values").contains("devices"));
    let wrong =
        ["--set", "storageClasses[0].name=x", "--set", "storageClasses[0].parameters.mim=1MB/s"];
    let wrong = cluster.run("helm", &[&["template", "iofair", CHART][..], &wrong].concat(), "");
    assert!(wrong.expect_err("an unknown key of a contract").contains("mim"));
    // A slower drive on one node: its operator wrote the file before.
    let state = world.kubelets.root("node-a").join("var/lib/iofair");
    fs::create_dir_all(&state).expect("created");
    cluster
        .run(
            "helm",
            &["install", "iofair", CHART, "-n", NAMESPACE, "--create-namespace", "-f", &values],
            "",
        )
        .expect("installed");
    world.until("the driver runs on both nodes", |world| {
        (world.cluster.list("csinodes").len() == 2).then_some(())
    });
    for node in NODES {
        let root = world.kubelets.root(node);
        let file = root.join("var/lib/iofair/contracts.toml");
        let text = fs::read_to_string(&file).expect("the contract file of a node");
        if node == "node-a" {
            let text = text
                .replace("random = \"20MB/s\"", "random = \"2MB/s\"")
                .replace("iops = 50000", "iops = 600");
            fs::write(&file, text).expect("written");
            assert!(world.kubelets.crash("server-node-a"));
        }
    }
}

/// Kills one program at each step of a volume's life.
fn live_through(world: &mut World<'_>, victim: &str, at: usize) {
    println!("{victim} is killed at each step");
    let name = format!("killed-{at}");
    let is_server = victim.starts_with("server");
    // At another moment of each step each time.
    let crash = |world: &mut World<'_>, step: usize| {
        let turns = if is_server { 0 } else { (at + 2 * step) % 4 };
        (0..turns).for_each(|_| world.kubelets.step());
        assert!(world.cluster.crash(victim) || world.kubelets.crash(victim), "no {victim}");
    };
    world.create(&name, "plain", "64Mi", Some("node-b"));
    crash(world, 0);
    let device = world.until("published", |world| world.kubelets.published(&name));
    if !is_server {
        verify(&device);
        let more = json!({ "spec": {
            "resources": { "requests": { "storage": "128Mi" } }, "volumeAttributesClassName": "slow"
        } });
        world.cluster.kubectl(&["patch", "pvc", &name, "--type=merge", "-p", &more.to_string()]);
        crash(world, 1);
        world.until("grown", |_| (device_bytes(&device) == 128 * MIB).then_some(()));
        world.until("changed", |world| world.ceiling(&name).filter(|&rate| rate == 8_000_000));
    }
    world.cluster.kubectl(&["delete", "pod", &name, "--wait=false"]);
    if !is_server {
        crash(world, 2);
    }
    world.until("released", |world| world.cluster.get("pod", &name).is_none().then_some(()));
    world.cluster.kubectl(&["delete", "pvc", &name, "--wait=false"]);
    crash(world, 3);
    world.until("gone", |world| world.is_gone(&name));
    let left = world.until("nothing is left", |world| world.groups("node-b"));
    assert_eq!(left, Vec::<String>::new());
}

/// A tenant's ceiling over two nodes follows demand, and the sum stays below it.
fn divide(world: &mut World<'_>) {
    const MAX: u64 = 40_000_000;
    println!("a tenant's ceiling over two nodes");
    for (name, node) in [("east", "node-a"), ("west", "node-b")] {
        world.create(name, "plain", "256Mi", Some(node));
    }
    let [east, west] =
        ["east", "west"].map(|name| world.until(name, |world| world.kubelets.published(name)));
    let (_one, other) = (Load::start(&east, "randread"), Load::start(&west, "randread"));
    world.cluster.apply(
        "apiVersion: iofair.dev/v1alpha1\nkind: Tenant\nmetadata: {name: default}\nspec: {max: 40MB/s}\n",
    );
    let rates = |world: &World<'_>| NODES.map(|node| world.rate(node));
    world.until("both have a part", |world| {
        let rates = rates(world);
        (rates.iter().all(|&rate| rate > MAX / 4) && rates.iter().sum::<u64>() < MAX * 21 / 20)
            .then_some(())
    });
    for _ in 0..20 {
        world.kubelets.step();
        let sum: u64 = rates(world).iter().sum();
        assert!(sum < MAX * 11 / 10, "{sum}");
    }
    drop(other);
    world.until("one has what the other leaves", |world| {
        (world.rate("node-a") > MAX * 4 / 5).then_some(())
    });
    world.cluster.kubectl(&["delete", "tenant", "default", "--wait=false"]);
    world.until("a deleted tenant is gone", |world| {
        world.cluster.get("tenant", "default").is_none().then_some(())
    });
    assert!(world.rate("node-a") > MAX * 4 / 5);
    drop(_one);
    for name in ["east", "west"] {
        world.delete(name);
        world.until("gone", |world| world.is_gone(name));
    }
}

/// Prints the ends of all logs if the test fails.
struct Logs(PathBuf);

impl Drop for Logs {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let files =
            Command::new("find").arg(&self.0).args(["-name", "*.log"]).output().expect("find");
        for file in String::from_utf8_lossy(&files.stdout).lines() {
            let text = fs::read(file).unwrap_or_default();
            let end = String::from_utf8_lossy(&text[text.len().saturating_sub(3000)..]).to_string();
            eprintln!("==== {file}\n{end}");
        }
    }
}

/// The contract of a volume changes while fio reads from it.
fn change(world: &mut World<'_>, device: &Path) {
    println!("its class changes under load");
    let load = Load::start(device, "randread");
    for (class, most) in [("slow", 8_000_000), ("fast", 60_000_000), ("slow", 8_000_000)] {
        let change = json!({ "spec": { "volumeAttributesClassName": class } }).to_string();
        world.cluster.kubectl(&["patch", "pvc", "one", "--type=merge", "-p", &change]);
        world.until(&format!("the server has {class}"), |world| {
            world.ceiling("one").filter(|&ceiling| ceiling == most)
        });
        let begin = Instant::now();
        world.until(&format!("the rate follows {class}"), |world| {
            let rate = world.rate("node-b");
            (rate <= most * 21 / 20 && rate > most / 2).then_some(())
        });
        assert!(
            begin.elapsed() < Duration::from_secs(4),
            "the rate of the last second, two seconds later"
        );
    }
    drop(load);
}

/// A class that the node cannot keep, and one that no node can.
fn refuse(world: &mut World<'_>) {
    println!("what no node can keep");
    let change =
        |class: &str| json!({ "spec": { "volumeAttributesClassName": class } }).to_string();
    world.cluster.kubectl(&["patch", "pvc", "one", "--type=merge", "-p", &change("greedy")]);
    let event = world.until("the claim hears the numbers", |world| {
        let events = world.cluster.list("events");
        let failed = events.iter().find(|event| event["reason"] == "VolumeModifyFailed")?;
        failed["message"].as_str().map(str::to_string)
    });
    println!("    {event}");
    assert!(event.contains("node node-b: ") && event.contains("allowed: "), "{event}");
    assert_eq!(world.ceiling("one"), Some(8_000_000), "the contract stays");
    world.cluster.kubectl(&["patch", "pvc", "one", "--type=merge", "-p", &change("fast")]);
    world.until("another class is taken", |world| {
        world.ceiling("one").filter(|&ceiling| ceiling == 60_000_000)
    });
    world.create("two", "impossible", "64Mi", None);
    world.until("the Pod hears why it waits", |world| {
        let events = world.cluster.list("events");
        let text = |event: &Json| event["message"].as_str().unwrap_or_default().to_string();
        events.iter().map(text).find(|text| text.contains("did not have enough free storage"))
    });
    world.delete("two");
}

/// One control plane at a time: nodes have fixed addresses.
static ONE: Mutex<()> = Mutex::new(());

/// Code blocks of a page that begin with ```LANGUAGE.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let parts = page.split(fence.as_str()).skip(1);
    parts.filter_map(|part| part.split_once("```")).map(|(block, _)| block.to_string()).collect()
}

impl World<'_> {
    /// Runs a block of commands while kubelets work.
    fn shell(&mut self, directory: &Path, commands: &str) {
        let path =
            format!("{}:{}", of_kubernetes("").display(), std::env::var("PATH").expect("a path"));
        let mut shell = Command::new("sh");
        shell.args(["-euxc", commands]).current_dir(directory).env("PATH", path);
        shell.env("KUBECONFIG", &self.cluster.config).env("HOME", directory);
        let mut child = shell.stdin(Stdio::null()).spawn().expect("a shell");
        let ended = self
            .until(commands.lines().next().unwrap_or(""), |_| child.try_wait().expect("its state"));
        assert!(ended.success(), "{commands}");
    }
}

/// Goal: the commands of the page do what is said around them. Method: all but those that build an image, for which there is no
/// registry; then Pods that use the claims of both tenants.
#[test]
#[ignore = "needs kubernetes: scripts/kubernetes makes its programs; minutes long"]
fn needs_kubernetes_the_page_is_true() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let page = fs::read_to_string(root.join("docs/kubernetes.md")).expect("the page");
    let scratch = Scratch::new("page");
    let _logs = Logs(scratch.0.clone());
    let cluster = Cluster::start(&scratch.0);
    let kubelets = Kubelets::start(&cluster, &NODES);
    let mut world = World { cluster: &cluster, kubelets };
    let here = scratch.0.join("here");
    fs::create_dir_all(&here).expect("created");
    std::os::unix::fs::symlink(root.join("packaging"), here.join("packaging")).expect("linked");
    let values = blocks(&page, "yaml");
    let values = values.iter().find(|block| block.starts_with("# values.yaml")).expect("values");
    // Without ublk and NBD, volumes become devices through files.
    let values = values.replace("server:\n", "server:\n  fuse: true\n");
    fs::write(here.join("values.yaml"), values + "driver: {devices: loop}\n").expect("written");
    let commands = blocks(&page, "sh");
    let ours = |line: &&String| line.contains("helm ") || line.contains("kubectl ");
    let commands: Vec<&String> = commands.iter().filter(ours).collect();
    assert!(commands.len() >= 3, "the page has lost its commands");
    for block in commands {
        world.shell(&here, block);
    }
    for tenant in ["alice", "bob"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": tenant, "namespace": tenant },
            "spec": {
                "containers": [{ "name": "a", "image": "a", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]
            }
        });
        cluster.apply(&pod.to_string());
        let place = world.until(tenant, |world| world.kubelets.published(tenant));
        fs::write(place.join("file"), tenant).expect("a file system");
    }
    let minimum = |world: &World<'_>, group: &str| {
        let of = |node: &str| {
            let list = world.server(node, &["group", "list"]);
            let groups = list["groups"].as_array().cloned().unwrap_or_default();
            let found = groups
                .iter()
                .find(|tenant| tenant["name"].as_str().is_some_and(|name| name.starts_with(group)));
            found.and_then(|group| group["in_force"]["min_bytes_per_second"].as_u64())
        };
        NODES.iter().find_map(|node| of(node))
    };
    assert_eq!(minimum(&world, "kubernetes/alice/pvc-"), Some(20_000_000));
    assert_eq!(minimum(&world, "kubernetes/bob/pvc-"), None);
    world.until("the tenant has its minimum", |world| {
        minimum(world, "kubernetes/alice").filter(|&min| min == 30_000_000)
    });
    println!("{}", cluster.kubectl(&["get", "tenants"]));
    for tenant in ["alice", "bob"] {
        cluster.kubectl(&["delete", "namespace", tenant, "--wait=false"]);
    }
    world.until("all volumes are gone", |world| world.cluster.list("pv").is_empty().then_some(()));
}

/// Goal: what `docs/kubernetes.md` promises, on a real control plane, with the rights of the chart.
#[test]
#[ignore = "needs kubernetes: scripts/kubernetes makes its programs; minutes long"]
fn needs_kubernetes_tenants_get_what_they_were_promised() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new("kubernetes");
    let _logs = Logs(scratch.0.clone());
    let cluster = Cluster::start(&scratch.0);
    let kubelets = Kubelets::start(&cluster, &NODES);
    let mut world = World { cluster: &cluster, kubelets };
    install(&mut world, &scratch.0);

    println!("capacity is admission");
    world.until("gold has room on node-b only", |world| {
        let mut room: Vec<(String, bool)> = Vec::new();
        for object in world.cluster.list("csistoragecapacities") {
            let node =
                object["nodeTopology"]["matchLabels"]["csi.iofair.dev/node"].as_str()?.to_string();
            let is_empty = object["capacity"].as_str().is_none_or(|capacity| capacity == "0");
            if object["storageClassName"] == "gold" {
                room.push((node, !is_empty));
            }
        }
        room.sort();
        (room == [("node-a".to_string(), false), ("node-b".to_string(), true)]).then_some(())
    });

    println!("a claim with a promise");
    world.create("one", "gold", "512Mi", None);
    let device =
        world.until("placed, bound and published", |world| world.kubelets.published("one"));
    assert!(device.starts_with(world.kubelets.root("node-b")), "the node that can keep it");
    verify(&device);
    assert_eq!(device_bytes(&device), 512 * MIB);

    println!("it grows");
    let more = json!({ "spec": { "resources": { "requests": { "storage": "1Gi" } } } }).to_string();
    cluster.kubectl(&["patch", "pvc", "one", "--type=merge", "-p", &more]);
    world.until("the device has its new size", |_| {
        (device_bytes(&device) == 1024 * MIB).then_some(())
    });

    change(&mut world, &device);
    refuse(&mut world);

    println!("all goes");
    world.delete("one");
    world.until("the volume is gone", |world| world.is_gone("one"));
    assert_eq!(world.groups("node-b"), Some(Vec::new()));
    divide(&mut world);
    for (at, victim) in VICTIMS.iter().enumerate() {
        live_through(&mut world, victim, at);
    }
}
