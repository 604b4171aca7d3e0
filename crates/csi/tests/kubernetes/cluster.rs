//! A control plane: etcd, API server, controller manager, scheduler; and kubectl.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde_json::Value as Json;

use crate::programs::{Program, of_kubernetes, wait};

/// The administrator's token.
const ADMINISTRATOR: &str = "administrator-of-this-test";

/// The control plane.
pub(crate) struct Cluster {
    pub(crate) directory: PathBuf,
    pub(crate) config: PathBuf,
    pub(crate) server: String,
    pub(crate) programs: Mutex<Vec<Program>>,
}

fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

/// Writes the configuration of a client.
pub(crate) fn write_config(path: &Path, server: &str, token: &str) {
    // The API server makes its own certificate.
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {{server: '{server}', insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: test, user: {{token: '{token}'}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
    );
    fs::write(path, text).expect("written");
}

impl Cluster {
    /// Starts everything in this directory.
    pub(crate) fn start(directory: &Path) -> Self {
        let at = |name: &str| directory.join(name).display().to_string();
        let key = at("accounts.key");
        let made = Command::new("openssl").args(["genrsa", "-out", &key, "2048"]).output();
        assert!(made.expect("openssl").status.success());
        let token = format!("{ADMINISTRATOR},admin,admin,system:masters\n");
        fs::write(directory.join("tokens.csv"), token).expect("written");
        let (etcd, peers, api) = (port(), port(), port());
        let server = format!("https://127.0.0.1:{api}");
        let config = directory.join("admin.conf");
        write_config(&config, &server, ADMINISTRATOR);
        let config_text = config.display();
        let all = [
            (
                "etcd",
                format!(
                    "--data-dir {} --listen-client-urls http://127.0.0.1:{etcd} \
                     --advertise-client-urls http://127.0.0.1:{etcd} --listen-peer-urls http://127.0.0.1:{peers}",
                    at("etcd")
                ),
            ),
            (
                "kube-apiserver",
                format!(
                    "--etcd-servers http://127.0.0.1:{etcd} --secure-port {api} --bind-address 127.0.0.1 \
                     --cert-dir {} --token-auth-file {} --authorization-mode RBAC --allow-privileged=true \
                     --service-cluster-ip-range 10.96.0.0/16 --service-account-issuer https://kubernetes.default.svc \
                     --service-account-key-file {key} --service-account-signing-key-file {key}",
                    at("certificates"),
                    at("tokens.csv")
                ),
            ),
            (
                "kube-controller-manager",
                format!(
                    "--kubeconfig {config_text} --leader-elect=false --secure-port 0 \
                     --service-account-private-key-file {key} --use-service-account-credentials=false \
                     --controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-cloud-node-lifecycle-controller \
                     --attach-detach-reconcile-sync-period 2s --pvclaimbinder-sync-period 2s"
                ),
            ),
            (
                "kube-scheduler",
                format!("--kubeconfig {config_text} --leader-elect=false --secure-port 0"),
            ),
        ];
        let programs = all.map(|(name, arguments)| {
            Program::start(name, of_kubernetes(name), words(&arguments), Vec::new(), directory)
        });
        let cluster = Self {
            directory: directory.to_path_buf(),
            config,
            server,
            programs: Mutex::new(programs.into()),
        };
        wait("an API server", 120, || {
            cluster.supervise();
            cluster.try_kubectl(&["get", "--raw", "/readyz"], "").ok()
        });
        cluster
    }
    /// Starts programs again that have ended by themselves, as Kubernetes' do without their API server.
    pub(crate) fn supervise(&self) {
        self.programs.lock().expect("no panic").iter_mut().for_each(Program::supervise);
    }
    /// Kills a program of the control plane and starts it again.
    pub(crate) fn crash(&self, name: &str) -> bool {
        let mut programs = self.programs.lock().expect("no panic");
        let found = programs.iter_mut().find(|program| program.name == name);
        found.map(Program::crash).is_some()
    }
    /// Runs kubectl; returns what it prints.
    pub(crate) fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        self.run("kubectl", arguments, input)
    }
    /// Runs a program with the administrator's configuration.
    pub(crate) fn run(
        &self,
        name: &str,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, String> {
        let mut command = Command::new(of_kubernetes(name));
        command.args(arguments).env("KUBECONFIG", &self.config).env("HOME", &self.directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        // It need not read its input.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        let done = child.wait_with_output().expect("its output");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_string();
        if done.status.success() {
            return Ok(text(&done.stdout));
        }
        Err(format!("{name} {}: {}{}", arguments.join(" "), text(&done.stdout), text(&done.stderr)))
    }
    /// Runs kubectl, which must succeed; again while the API server does not respond.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with(arguments, "")
    }
    /// The same with this input.
    pub(crate) fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        wait(&format!("kubectl {arguments:?}"), 60, || match self.try_kubectl(arguments, input) {
            Ok(text) => Some(text),
            Err(error) if is_passing(&error) => None,
            Err(error) => panic!("{error}"),
        })
    }
    /// Creates or changes objects.
    pub(crate) fn apply(&self, yaml: &str) {
        self.kubectl_with(&["apply", "-f", "-"], yaml);
    }
    /// An object, if it is there.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<Json> {
        let text = self.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"]);
        (!text.is_empty()).then(|| serde_json::from_str(&text).expect("JSON"))
    }
    /// Objects of all namespaces.
    pub(crate) fn list(&self, kind: &str) -> Vec<Json> {
        let text = self.kubectl(&["get", kind, "-A", "-o", "json"]);
        let list: Json = serde_json::from_str(&text).expect("JSON");
        list["items"].as_array().expect("a list").clone()
    }
}

/// Whether an error comes from a control plane that was killed.
fn is_passing(error: &str) -> bool {
    let words = [
        "refused",
        "timeout",
        "EOF",
        "reset by peer",
        "etcdserver",
        "unavailable",
        "not ready",
        "conflict",
        "http2",
    ];
    words.iter().any(|word| error.to_lowercase().contains(&word.to_lowercase()))
}
