//! What kubelets do, on two nodes of this machine: run the containers of the driver's Pods as processes, register the driver, and
//! stage and publish the volumes of other Pods.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::cluster::{Cluster, write_config};
use crate::node::{self, Claimed};
use crate::programs::{Program, of_kubernetes};
use crate::rig;

/// Namespace of the driver.
pub(crate) const NAMESPACE: &str = "iofair-system";

/// A Pod that runs here.
#[derive(Default)]
struct Running {
    programs: Vec<Program>,
    /// Published volumes, with their places.
    claims: Vec<(Claimed, PathBuf)>,
}

/// The kubelets of all nodes.
pub(crate) struct Kubelets<'a> {
    cluster: &'a Cluster,
    nodes: Vec<String>,
    pods: BTreeMap<String, Running>,
}

impl<'a> Kubelets<'a> {
    /// Registers nodes.
    pub(crate) fn start(cluster: &'a Cluster, nodes: &[&str]) -> Self {
        for node in nodes {
            cluster.apply(&format!(
                "apiVersion: v1\nkind: Node\nmetadata:\n  name: {node}\n  \
                 annotations: {{volumes.kubernetes.io/controller-managed-attach-detach: 'true'}}\n  \
                 labels: {{kubernetes.io/os: linux, kubernetes.io/hostname: {node}}}\n"
            ));
            let resources = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
            let ready =
                json!([{ "type": "Ready", "status": "True", "reason": "Test", "message": "" }]);
            let status = json!({ "status": { "capacity": resources, "allocatable": resources, "conditions": ready } });
            let patch = status.to_string();
            cluster.kubectl(&[
                "patch",
                "node",
                node,
                "--subresource=status",
                "--type=merge",
                "-p",
                &patch,
            ]);
            let free = json!({ "spec": { "taints": null } }).to_string();
            cluster.kubectl(&["patch", "node", node, "--type=merge", "-p", &free]);
        }
        Self {
            cluster,
            nodes: nodes.iter().map(|node| node.to_string()).collect(),
            pods: BTreeMap::new(),
        }
    }
    /// The root directory of a node.
    pub(crate) fn root(&self, node: &str) -> PathBuf {
        self.cluster.directory.join(node)
    }
    /// The address of a node.
    fn address(&self, node: &str) -> String {
        let at = self.nodes.iter().position(|known| known == node).expect("a node");
        format!("127.0.0.{}", at + 2)
    }
    /// Where a Pod's volume of this claim is published.
    pub(crate) fn published(&self, pod: &str) -> Option<PathBuf> {
        let (claim, place) = self.pods.get(pod)?.claims.first()?;
        claim.is_published.then(|| place.clone())
    }
    /// Kills a program of the driver's Pods and starts it again. `node`: on this node only.
    pub(crate) fn crash(&mut self, name: &str) -> bool {
        let programs = self.pods.values_mut().flat_map(|pod| &mut pod.programs);
        let found = programs.into_iter().find(|program| program.name == name);
        found.map(Program::crash).is_some()
    }
    /// One look at all Pods.
    pub(crate) fn step(&mut self) {
        self.cluster.supervise();
        self.pods.values_mut().flat_map(|pod| &mut pod.programs).for_each(Program::supervise);
        for pod in self.cluster.list("pods") {
            let name = pod["metadata"]["name"].as_str().expect("a name").to_string();
            let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
            let is_ours = pod["metadata"]["namespace"] == NAMESPACE;
            if pod["metadata"]["deletionTimestamp"].is_string() {
                self.end(&name, node, &pod);
            } else if is_ours && !self.pods.contains_key(&name) {
                let running = self.begin(node, &pod);
                self.pods.insert(name.clone(), running);
                self.set_running(&name, node, &pod);
            } else if !is_ours {
                self.publish(&name, node, &pod);
            }
        }
        for node in self.nodes.clone() {
            self.register(&node);
        }
    }
    fn set_running(&self, name: &str, node: &str, pod: &Json) {
        let namespace = pod["metadata"]["namespace"].as_str().expect("a namespace");
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let address = self.address(node);
        let status = json!({ "status": {
            "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }], "conditions": ready
        } });
        let patch = status.to_string();
        let arguments = [
            "patch",
            "pod",
            name,
            "-n",
            namespace,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        self.cluster.kubectl(&arguments);
    }
    /// Tells the API server of the driver on a node, as soon as it responds.
    fn register(&self, node: &str) {
        let socket = self.root(node).join("var/lib/kubelet/plugins/csi.iofair.dev/csi.sock");
        if self.cluster.get("csinode", node).is_some() || !socket.exists() {
            return;
        }
        let Some((id, keys)) = node::info(&socket) else { return };
        let uid = self.cluster.get("node", node).expect("it is there")["metadata"]["uid"].clone();
        let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid }]);
        let driver = json!({ "name": "csi.iofair.dev", "nodeID": id, "topologyKeys": keys.keys().collect::<Vec<_>>() });
        let object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": { "name": node, "ownerReferences": owner }, "spec": { "drivers": [driver] }
        });
        self.cluster.apply(&object.to_string());
        let labels = json!({ "metadata": { "labels": keys } }).to_string();
        self.cluster.kubectl(&["patch", "node", node, "--type=merge", "-p", &labels]);
    }

    /// Starts the containers of a Pod of the driver.
    fn begin(&self, node: &str, pod: &Json) -> Running {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let directory = self.root(node).join("pods").join(name);
        fs::create_dir_all(&directory).expect("created");
        let containers = |key: &str| pod["spec"][key].as_array().cloned().unwrap_or_default();
        let (first, all) = (containers("initContainers"), containers("containers"));
        // Each container sees its volumes at paths of its own; here all of a Pod's paths are different anyway.
        let mut paths = HashMap::new();
        for container in first.iter().chain(&all) {
            for mount in container["volumeMounts"].as_array().into_iter().flatten() {
                let volume = mount["name"].as_str().expect("a name");
                if let Some(place) = self.volume(node, &directory, pod, volume) {
                    paths.insert(mount["mountPath"].as_str().expect("a path").to_string(), place);
                }
            }
        }
        let mapped = |text: &str| map(text, &paths, &self.address(node));
        for volume in paths.values().filter(|path| path.starts_with(&directory)) {
            for file in fs::read_dir(volume).into_iter().flatten().flatten() {
                if file.path().extension().is_some_and(|extension| extension == "toml") {
                    let text = fs::read_to_string(file.path()).expect("text");
                    fs::write(file.path(), mapped(&text)).expect("written");
                }
            }
        }
        let words = |container: &Json, key: &str| -> Vec<String> {
            let all = container[key].as_array().into_iter().flatten();
            all.filter_map(|argument| argument.as_str())
                .map(|argument| mapped(&argument.replace("$(NODE)", node)))
                .collect()
        };
        for container in &first {
            let line = [words(container, "command"), words(container, "args")].concat();
            let done = Command::new(&line[0]).args(&line[1..]).output().expect("it runs");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default");
        let config = directory.join("client.conf");
        let token =
            self.cluster.kubectl(&["create", "token", account, "-n", NAMESPACE, "--duration=8h"]);
        write_config(&config, &self.cluster.server, token.trim());
        let environment = vec![
            ("NAMESPACE".into(), NAMESPACE.into()),
            ("POD_NAMESPACE".into(), NAMESPACE.into()),
            ("POD_NAME".into(), name.into()),
            ("KUBECONFIG".into(), config.display().to_string()),
        ];
        let mut programs = Vec::new();
        for container in &all {
            let kind = container["name"].as_str().expect("a name");
            let mut arguments = words(container, "args");
            let path = match words(container, "command").first().map(String::as_str) {
                Some("iofair") => rig::program(),
                Some("iofair-csi") => rig::driver_program(),
                // Kubelets find the driver through it; here `register` does that.
                _ if kind == "registrar" => continue,
                _ => {
                    arguments.push(format!("--kubeconfig={}", config.display()));
                    of_kubernetes(&format!("csi-{kind}"))
                }
            };
            let label = match kind {
                "driver" if all.len() == 2 => format!("node-driver-{node}"),
                "server" => format!("server-{node}"),
                _ => kind.to_string(),
            };
            programs.push(Program::start(&label, path, arguments, environment.clone(), &directory));
        }
        Running { programs, claims: Vec::new() }
    }
    /// Makes a volume of a Pod of the driver.
    fn volume(&self, node: &str, directory: &Path, pod: &Json, name: &str) -> Option<PathBuf> {
        let volumes = pod["spec"]["volumes"].as_array()?;
        let volume = volumes.iter().find(|volume| volume["name"] == name)?;
        if let Some(path) = volume["hostPath"]["path"].as_str() {
            if path == "/dev" {
                return None;
            }
            let place = self.root(node).join(path.trim_start_matches('/'));
            fs::create_dir_all(&place).expect("created");
            return Some(place);
        }
        let place = directory.join(name);
        fs::create_dir_all(&place).expect("created");
        if let Some(map) = volume["configMap"]["name"].as_str() {
            let text =
                self.cluster.kubectl(&["get", "configmap", map, "-n", NAMESPACE, "-o", "json"]);
            let object: Json = serde_json::from_str(&text).expect("JSON");
            for (file, text) in object["data"].as_object().into_iter().flatten() {
                fs::write(place.join(file), text.as_str().expect("text")).expect("written");
            }
        }
        if let Some(secret) = volume["secret"]["secretName"].as_str() {
            for item in volume["secret"]["items"].as_array().into_iter().flatten() {
                let (key, file) =
                    (item["key"].as_str().expect("a key"), item["path"].as_str().expect("a path"));
                let form = format!("go-template={{{{index .data \"{key}\" | base64decode}}}}");
                let text =
                    self.cluster.kubectl(&["get", "secret", secret, "-n", NAMESPACE, "-o", &form]);
                fs::write(place.join(file), text).expect("written");
            }
        }
        Some(place)
    }

    /// Stages and publishes the volume of a Pod, one try.
    fn publish(&mut self, name: &str, node: &str, pod: &Json) {
        let root = self.root(node);
        let socket = root.join("var/lib/kubelet/plugins/csi.iofair.dev/csi.sock");
        let known = self.pods.get(name).and_then(|pod| pod.claims.first());
        if known.is_some_and(|(claim, _)| claim.is_published) {
            return self.resize(name, &socket);
        }
        let Some(mut claim) = node::claim_of(self.cluster, pod, node) else { return };
        let place = root.join("pods").join(name).join("volume");
        fs::create_dir_all(place.parent().expect("a parent")).expect("created");
        let staging = root.join("staging").join(&claim.volume);
        fs::create_dir_all(staging.parent().expect("a parent")).expect("created");
        match node::publish(&socket, &claim, &staging, &place) {
            Ok(()) => {
                claim.is_published = true;
                self.pods.entry(name.into()).or_default().claims = vec![(claim, place)];
                self.set_running(name, node, pod);
            }
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    /// What a kubelet does when a claim has grown.
    fn resize(&mut self, pod: &str, socket: &Path) {
        let Some((claim, place)) = self.pods.get(pod).and_then(|pod| pod.claims.first()) else {
            return;
        };
        if let Err(error) = node::resize(self.cluster, claim, socket, place) {
            eprintln!("{pod}: {error}");
        }
    }
    /// Ends a Pod that is to be deleted.
    fn end(&mut self, name: &str, node: &str, pod: &Json) {
        let root = self.root(node);
        let socket = root.join("var/lib/kubelet/plugins/csi.iofair.dev/csi.sock");
        if let Some(running) = self.pods.get(name) {
            for (claim, place) in &running.claims {
                let staging = root.join("staging").join(&claim.volume);
                if let Err(error) = node::unpublish(&socket, claim, &staging, place) {
                    return eprintln!("{name}: {error}");
                }
            }
        }
        self.pods.remove(name);
        let namespace = pod["metadata"]["namespace"].as_str().expect("a namespace");
        self.cluster.kubectl(&[
            "delete",
            "pod",
            name,
            "-n",
            namespace,
            "--force",
            "--grace-period=0",
            "--wait=false",
            "--ignore-not-found",
        ]);
    }
}

/// Replaces paths in containers by those on this machine.
fn map(text: &str, paths: &HashMap<String, PathBuf>, address: &str) -> String {
    let text = text.replace("0.0.0.0:", &format!("{address}:"));
    let (mut mapped, mut rest) = (String::new(), text.as_str());
    while let Some(at) = rest.find('/') {
        let (before, path) = rest.split_at(at);
        mapped.push_str(before);
        // A path begins here, and one that is mapped ends here or goes on with a slash.
        let begins = !mapped.ends_with(|last: char| last.is_alphanumeric() || "-_.".contains(last));
        let fits = |(from, _): &(&String, &PathBuf)| {
            let after = path.strip_prefix(from.as_str());
            let ends = |rest: &str| rest.is_empty() || rest.starts_with(['/', '"', ' ', '\n']);
            begins && after.is_some_and(ends)
        };
        match paths.iter().filter(fits).max_by_key(|(from, _)| from.len()) {
            Some((from, to)) => {
                mapped.push_str(&to.display().to_string());
                rest = &path[from.len()..];
                // The rest of the path is not another one.
                let end = rest.find(['"', ' ', '\n', ',']).unwrap_or(rest.len());
                mapped.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            None => {
                mapped.push('/');
                rest = &path[1..];
            }
        }
    }
    mapped + rest
}
