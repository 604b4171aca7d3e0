//! Which server is meant: an option, the environment, or a contract file.

use std::env;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf, absolute};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use iofair_config::contracts::{Contracts, Control};
use iofair_config::shell;
use iofair_serve::control::client::{Address, Call, Reply, Secured, call, host_and_port};
use serde_json::Value as Json;

use super::show;
use crate::failure::{Refused, Usage};
use crate::output::say;

/// Names a control socket.
const VARIABLE: &str = "IOFAIR_SOCKET";
/// Where a contract file is looked for.
const FILES: [&str; 2] = ["contracts.toml", "/etc/iofair/contracts.toml"];
/// How long a server of NBD may take to greet.
const GREETING_MAX: Duration = Duration::from_secs(1);
/// How long reading a contract file may take.
const FILE_MAX: Duration = Duration::from_secs(5);
/// Before the name of a server over TLS.
const HTTPS: &str = "https://";

/// What a contract file says of control. Its file system may not respond.
fn control_of(file: &Path) -> Result<Control> {
    let path = file.to_path_buf();
    let read = within(FILE_MAX, move || Contracts::open_with(&iofair_policies::TABLE, &path))?;
    let silent = || anyhow!("{} cannot be read: no response in {FILE_MAX:?}", file.display());
    Ok(read.ok_or_else(silent)??.control)
}

/// The result of something that may wait for ever; `None`: it takes longer than this.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (tell, told) = mpsc::channel();
    // Nobody may wait for it any more.
    let work = move || drop(tell.send(work()));
    thread::Builder::new().name("waits".into()).spawn(work)?;
    Ok(told.recv_timeout(limit).ok())
}

/// A call that got no response, with the most likely cause.
fn unreachable(address: &Address, error: io::Error) -> anyhow::Error {
    let hint = match (address, error.kind()) {
        (Address::Unix(path), io::ErrorKind::ConnectionRefused) if !is_socket(path) => {
            ": that is not a socket"
        }
        (Address::Unix(_), io::ErrorKind::NotFound) => {
            ": there is no such socket; is the server running?"
        }
        (_, io::ErrorKind::TimedOut) => {
            ": it accepts connections; is it stopped (SIGSTOP), or busy with a change?"
        }
        (Address::Unix(_), io::ErrorKind::WouldBlock) => {
            ": its queue of connections is full; is it stopped (SIGSTOP)?"
        }
        (Address::Unix(path), _) if is_nbd(path) => {
            ": that is the socket for NBD clients; control has one of its own, `unix` of [control] in the contract file"
        }
        (Address::Unix(_), io::ErrorKind::PermissionDenied) => {
            ": `mode` and `group` of [control] in the contract file say who may connect"
        }
        (_, io::ErrorKind::InvalidData) => {
            ": no response of HTTP; is that the control of an iofair server?"
        }
        (_, io::ErrorKind::ConnectionRefused) => ": nothing listens there; is the server running?",
        _ => "",
    };
    anyhow::Error::new(error).context(format!("cannot reach a server at {address}{hint}"))
}

/// The response to a call that succeeded.
pub(crate) fn respond(address: &Address, command: &Call) -> Result<Reply> {
    let reply = call(address, command).map_err(|error| unreachable(address, error))?;
    if reply.is_good() {
        return Ok(reply);
    }
    let error = reply.object("").map_err(|error| foreign(address, error))?["error"].take();
    Err(Refused { text: show::word(&error["text"]), error, status: reply.status }.into())
}

/// The object in the response to a call that succeeded, which has this field.
pub(crate) fn object(address: &Address, command: &Call, field: &str) -> Result<Json> {
    respond(address, command)?.object(field).map_err(|error| foreign(address, error))
}

/// Something else than iofair responded.
fn foreign(address: &Address, error: io::Error) -> anyhow::Error {
    let message = format!("{address} is not the control of an iofair server");
    anyhow::Error::new(error).context(message)
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Whether a server of NBD greets its clients there.
fn is_nbd(path: &Path) -> bool {
    let mut greeting = [0; 8];
    let greeted = UnixStream::connect(path).and_then(|mut stream| {
        stream.set_read_timeout(Some(GREETING_MAX))?;
        stream.read_exact(&mut greeting)
    });
    greeted.is_ok() && greeting == *b"NBDMAGIC"
}

/// Options that name a server.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// Path of the server's control socket, or https://HOST:PORT.
    /// [default: $IOFAIR_SOCKET, else the `[control]` table of the contract file]
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<String>,
    /// Contract file that names the control socket.
    /// [default: ./contracts.toml, else /etc/iofair/contracts.toml]
    #[arg(long, global = true, value_name = "FILE")]
    contracts: Option<PathBuf>,
    /// For https: file with the CA certificate of the server.
    #[arg(long, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// For https: file with your certificate.
    #[arg(long, global = true, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// For https: file with its private key.
    #[arg(long, global = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl Place {
    /// The options as they were given, for a command that is suggested, which works in any directory.
    pub(crate) fn options(&self) -> String {
        let socket = self.socket.as_ref().map(PathBuf::from);
        let options = [
            ("--socket", &socket),
            ("--contracts", &self.contracts),
            ("--tls-ca", &self.tls_ca),
            ("--tls-certificate", &self.tls_certificate),
            ("--tls-key", &self.tls_key),
        ];
        let given = options.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let option = |(name, value): (&str, &PathBuf)| {
            let is_path = !value.as_os_str().as_encoded_bytes().starts_with(HTTPS.as_bytes());
            let whole = if is_path { absolute(value).ok() } else { None };
            format!(" {name} {}", shell::path(whole.as_ref().unwrap_or(value)))
        };
        given.map(option).collect()
    }
    /// The server's address.
    pub(crate) fn find(&self) -> Result<Address> {
        let variable = env::var(VARIABLE).ok().filter(|path| !path.is_empty());
        match (&self.socket, &self.contracts, variable) {
            (Some(socket), ..) => self.read(socket),
            (None, Some(file), _) => self.of_file(file),
            (None, None, Some(socket)) => self.read(&socket),
            (None, None, None) => {
                match FILES.into_iter().map(Path::new).find(|file| file.exists()) {
                    Some(file) => self.of_file(file),
                    None => Err(Usage(format!(
                        "no server is given, and there is no {}: use --socket PATH, set {VARIABLE}, or name the \
                         contract file with --contracts",
                        FILES.join(" and no ")
                    ))
                    .into()),
                }
            }
        }
    }
    fn read(&self, text: &str) -> Result<Address> {
        let Some(place) = text.strip_prefix(HTTPS) else {
            if text.is_empty() {
                let message = format!("--socket is empty: give a path, or {HTTPS}HOST:PORT");
                return Err(Usage(message).into());
            }
            if text.starts_with("http://") {
                let message = format!(
                    "\"{text}\": control needs TLS; give https://HOST:PORT, or the path of a Unix socket"
                );
                return Err(Usage(message).into());
            }
            let tcp = shell::with_brackets(text)
                .or_else(|| text.parse::<std::net::SocketAddr>().is_ok().then(|| text.to_string()));
            if let Some(tcp) = tcp {
                let message = format!("\"{text}\": control over TCP needs TLS; write {HTTPS}{tcp}");
                return Err(Usage(message).into());
            }
            return Ok(Address::Unix(PathBuf::from(text)));
        };
        let (host, port) = host_and_port(place.trim_end_matches('/')).map_err(|wrong| {
            let like = "write one like https://pool1:9720";
            Usage(format!("\"{text}\" is not a server address; {like}: {wrong}"))
        })?;
        self.secured(host, port)
    }
    fn secured(&self, host: String, port: u16) -> Result<Address> {
        let (Some(authority), Some(certificate), Some(key)) =
            (self.tls_ca.clone(), self.tls_certificate.clone(), self.tls_key.clone())
        else {
            let needs = "needs --tls-ca, --tls-certificate and --tls-key";
            return Err(Usage(format!("{HTTPS}{host}:{port} {needs}")).into());
        };
        Ok(Address::Tls(Secured { host, name: None, port, authority, certificate, key }))
    }
    fn of_file(&self, file: &Path) -> Result<Address> {
        let control = control_of(file).inspect_err(|_| {
            say(format_args!("a server that runs keeps the contracts that it has: --socket PATH reaches it without this file"));
        })?;
        match (control.unix, control.tcp) {
            (Some(path), _) => Ok(Address::Unix(path)),
            (None, Some(address)) => self.secured(address.ip().to_string(), address.port()),
            (None, None) => {
                let lacks =
                    "has no [control] table, so its server has no control socket: add one with";
                Err(Usage(format!("{} {lacks} unix = \"PATH\"", file.display())).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a contract file whose file system does not respond is given up. Method: work that ends, and work that waits for what never
    /// comes.
    #[test]
    fn work_that_hangs_is_given_up() {
        assert_eq!(within(Duration::MAX, || 7).unwrap(), Some(7));
        let (never, waits) = mpsc::channel::<()>();
        let hangs = move || waits.recv().is_ok();
        assert_eq!(within(Duration::from_millis(1), hangs).unwrap(), None);
        drop(never);
    }
}
