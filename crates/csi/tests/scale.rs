//! The controller service with many servers, which are played here: they keep groups and volumes in memory and count calls.
//! 1,000 nodes and 20,000 volumes: `IOFAIR_NODES=1000 IOFAIR_VOLUMES=20000`, as in `make kubernetes`.

mod rig;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rig::csi::controller_client::ControllerClient;
use rig::csi::volume_capability::{AccessMode, AccessType, BlockVolume, access_mode::Mode};
use rig::csi::{
    ControllerModifyVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest, GetCapacityRequest,
    ListVolumesRequest, Topology, TopologyRequirement, VolumeCapability,
};
use rig::{Scratch, connect, driver};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::Channel;

const KEY: &str = "csi.iofair.dev/node";

/// Calls of all servers.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// What a server keeps.
#[derive(Default)]
struct Kept {
    groups: BTreeMap<String, Json>,
    volumes: BTreeMap<String, Json>,
}

fn missing() -> (u16, Json) {
    (404, json!({ "error": { "kind": "missing", "text": "there is none" } }))
}

impl Kept {
    fn respond(&mut self, method: &str, target: &str, body: Json) -> (u16, Json) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let name = path.rsplit_once("s/").map_or("", |(_, name)| name).replace("%2F", "/");
        let is_volume = path.starts_with("/v1/volumes");
        if path == "/v1/status" {
            return (200, json!({ "free_bytes": 1_u64 << 40 }));
        }
        let all = if is_volume { &mut self.volumes } else { &mut self.groups };
        match method {
            "GET" if name.is_empty() => {
                let what = if is_volume { "volumes" } else { "groups" };
                (200, json!({ what: all.values().collect::<Vec<_>>() }))
            }
            "GET" => all.get(&name).map_or_else(missing, |found| (200, json!({ "volume": found }))),
            "DELETE" => all.remove(&name).map_or_else(missing, |_| (200, json!({}))),
            _ if query.contains("dry_run") => (200, json!({})),
            _ => {
                let size = body["size"].as_str().and_then(|size| size.parse::<u64>().ok());
                let shown = json!({ "name": name, "settings": body, "size_bytes": size, "in_force": { "ceilings": [] } });
                all.insert(name, shown);
                (200, json!({}))
            }
        }
    }
}

async fn serve(stream: UnixStream, kept: Arc<Mutex<Kept>>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    stream.read_line(&mut first).await?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let mut words = first.split_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let body = serde_json::from_slice(&body).unwrap_or(Json::Null);
    let (status, mut reply) = kept.lock().expect("no panic").respond(method, target, body);
    reply["revision"] = json!("0");
    let reply = reply.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        reply.len()
    );
    stream.write_all((head + &reply).as_bytes()).await
}

/// Starts the servers, and writes the file that lists them.
fn servers(directory: &Path, nodes: usize) -> Vec<Arc<Mutex<Kept>>> {
    let (mut list, mut all) = (String::new(), Vec::new());
    for node in 0..nodes {
        let socket = directory.join(node.to_string());
        writeln!(list, "[[server]]\nnode = 'node-{node}'\ncontrol = '{}'", socket.display())
            .expect("text");
        let listener = UnixListener::bind(socket).expect("a socket");
        let kept: Arc<Mutex<Kept>> = Arc::default();
        all.push(Arc::clone(&kept));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&kept)));
            }
        });
    }
    fs::write(directory.join("servers.toml"), list).expect("written");
    all
}

/// How many calls something took, and how long.
struct Measured {
    what: &'static str,
    times: Vec<Duration>,
    calls: u64,
}

impl Measured {
    fn new(what: &'static str) -> Self {
        Self { what, times: Vec::new(), calls: 0 }
    }
    /// Makes a call, counts what it costs, and returns its response.
    async fn call<T>(
        &mut self,
        work: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> T {
        let (before, begin) = (CALLS.load(Ordering::Relaxed), Instant::now());
        let done = work.await.unwrap_or_else(|error| panic!("{}: {error}", self.what)).into_inner();
        self.times.push(begin.elapsed());
        self.calls += CALLS.load(Ordering::Relaxed) - before;
        done
    }
    /// Prints it; returns the calls of one.
    fn say(mut self) -> f64 {
        self.times.sort();
        let (count, at) = (self.times.len(), |part: usize| {
            self.times[self.times.len() * part / 100].as_secs_f64() * 1e3
        });
        let each = self.calls as f64 / count as f64;
        println!(
            "{}: {count} times, {each:.2} calls, median {:.2} ms, 99 % {:.2} ms",
            self.what,
            at(50),
            at(99)
        );
        each
    }
}

fn topology(node: &str) -> Topology {
    Topology { segments: [(KEY.to_string(), node.to_string())].into() }
}

/// The creation of a volume on a node.
fn wanted(number: usize, node: &str) -> CreateVolumeRequest {
    let access_mode = Some(AccessMode { mode: Mode::SingleNodeWriter.into() });
    let access_type = Some(AccessType::Block(BlockVolume {}));
    CreateVolumeRequest {
        name: format!("pvc-{number}"),
        volume_capabilities: vec![VolumeCapability { access_mode, access_type }],
        parameters: [("min".to_string(), "1MB/s".to_string())].into(),
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![topology(node)],
            preferred: vec![topology(node)],
        }),
        ..CreateVolumeRequest::default()
    }
}

/// Lists all volumes in pages; returns how many there are.
async fn list_all(client: &mut ControllerClient<Channel>, measured: &mut Measured) -> usize {
    let (mut seen, mut token) = (0, String::new());
    loop {
        let request = ListVolumesRequest { max_entries: 500, starting_token: token };
        let page = measured.call(client.list_volumes(request)).await;
        seen += page.entries.len();
        token = page.next_token;
        if token.is_empty() {
            return seen;
        }
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Goal: what a change of one volume costs does not grow with the number of nodes and volumes.
#[test]
fn a_change_calls_one_server() {
    let (nodes, volumes) = (number("IOFAIR_NODES", 40), number("IOFAIR_VOLUMES", 400));
    let scratch = Scratch::new("scale");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let kept = servers(&scratch.0, nodes);
        let list = scratch.0.join("servers.toml").display().to_string();
        let place = scratch.0.clone();
        let start = move || driver(&place, &["--services", "controller", "--servers", &list]);
        let _driver = tokio::task::spawn_blocking(start).await.expect("a driver");
        let mut client = ControllerClient::new(connect(&scratch.0).await);
        // The driver looks once at every server when it starts.
        while CALLS.load(Ordering::Relaxed) < 2 * nodes as u64 {
            tokio::task::yield_now().await;
        }
        let [mut create, mut ask, mut modify, mut delete, mut listing] =
            ["create", "capacity of a class on a node", "modify", "delete", "list a page"]
                .map(Measured::new);
        let mut ids = Vec::new();
        for number in 0..volumes {
            let node = format!("node-{}", number % nodes);
            let request = wanted(number, &node);
            let made = create.call(client.create_volume(request)).await.volume.expect("a volume");
            assert_eq!(made.accessible_topology, [topology(&node)]);
            ids.push(made.volume_id);
        }
        for node in 0..nodes.min(100) {
            let request = GetCapacityRequest {
                accessible_topology: Some(topology(&format!("node-{node}"))),
                parameters: [("min".to_string(), "1MB/s".to_string())].into(),
                ..GetCapacityRequest::default()
            };
            ask.call(client.get_capacity(request)).await;
        }
        let seen = list_all(&mut client, &mut listing).await;
        assert_eq!(seen, volumes);
        for id in ids.iter().take(1000) {
            let request = ControllerModifyVolumeRequest {
                volume_id: id.clone(),
                mutable_parameters: [("max".to_string(), "5MB/s".to_string())].into(),
                ..ControllerModifyVolumeRequest::default()
            };
            modify.call(client.controller_modify_volume(request)).await;
        }
        for id in &ids {
            let request =
                DeleteVolumeRequest { volume_id: id.clone(), ..DeleteVolumeRequest::default() };
            delete.call(client.delete_volume(request)).await;
        }
        assert!(kept.iter().all(|node| {
            let node = node.lock().expect("no panic");
            node.volumes.is_empty() && node.groups.is_empty()
        }));
        // A driver with a client that stays connected takes its time to end.
        drop(client);
        println!("{nodes} nodes, {volumes} volumes");
        listing.say();
        for (measured, most) in [(create, 3.0), (ask, 2.0), (modify, 2.0), (delete, 3.0)] {
            let what = measured.what;
            assert!(measured.say() <= most, "{what}");
        }
    });
}
