//! Where clients connect, and who may open what.
//!
//! ```toml
//! [listen]
//! unix = "/run/iofair/pool.sock"
//! mode = "0660"                       # of the Unix socket, and its `group`: see `access`
//! tcp = "0.0.0.0:10809"
//! insecure = true                     # TCP without TLS; refused unless written
//! connections = 1024                  # at once, over all volumes
//! handshakes = 64                     # clients at once that have not chosen a volume yet
//! in_flight = 256                     # requests of one connection inside at once
//! memory = "1GiB"                     # that requests of all clients may take up beyond a small share each
//! handshake = "10s"                   # a client that has chosen no volume by then is cut off
//!
//! [listen.tls]
//! certificate = "server.pem"          # with the chain, if there is one
//! key = "server-key.pem"
//! clients = "ca.pem"                  # clients need a certificate that this CA signed
//! required = true                     # or "tcp": only there; or false: whoever wants to
//!
//! [[group]]
//! name = "tenants/alice"
//! clients = ["alice", "uid:1000"]     # names of certificates, user ids over the Unix socket, or "*"
//! connections = 64                    # at once to the volumes of this group and of those in it
//!
//! [[volume]]
//! name = "alice-root"
//! listen = "unix"                     # or "tcp", "none"; both unless written
//! connections = 16                    # at once to this volume
//! ```
//!
//! As long as no group has `clients`, whoever may connect opens every volume. As soon as one has, a volume
//! is open only to those whom its group names, or a group above it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};

use iofair_core::time::Nanos;
use serde::Deserialize;

use super::access::{self, Access};
use super::table::Table;
use crate::errors::{Errors, all};
use crate::units::{Bytes, Time};
use crate::{ConfigError, Source, Spanned, shell};

/// Connections at once, and the most that may be written.
const CONNECTIONS: u32 = 1024;
const CONNECTIONS_MAX: u32 = 65_536;
/// Clients at once that have not chosen a volume.
const HANDSHAKES: u32 = 64;
/// Requests of one connection at once, and the most that may be written.
const IN_FLIGHT: u32 = 256;
const IN_FLIGHT_MAX: u32 = 4096;
/// Memory for requests, and the least that may be written: two of the longest requests.
const MEMORY: u64 = 1 << 30;
const MEMORY_MIN: u64 = 64 << 20;
/// A handshake over the slowest network is over in seconds.
const HANDSHAKE: Nanos = Nanos::from_secs(10);
/// The error for NBD over TCP without TLS, and what is allowed instead.
const PLAIN_TCP: &str = "NBD over TCP without TLS: anyone who reaches the port, or the network path to it, can read and \
                         write every volume";
const TLS_OR_INSECURE: &str =
    "[listen.tls] with required = true or \"tcp\", or insecure = true in [listen]";
/// In `clients`: every client that may connect.
pub(super) const ANY_CLIENT: &str = "*";
/// The prefix of a user id in `clients`.
const USER: &str = "uid:";

/// Where and how clients connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listen {
    /// Path of a Unix socket.
    pub unix: Option<PathBuf>,
    /// Users and groups that may connect to the Unix socket.
    pub access: Access,
    /// Address and port.
    pub tcp: Option<SocketAddr>,
    /// Encryption, if offered.
    pub tls: Option<Tls>,
    /// Whether `insecure = true` allows TCP without encryption.
    pub insecure: bool,
    /// Limits on clients.
    pub limits: Limits,
}

impl Default for Listen {
    fn default() -> Self {
        let (access, limits) = (Access::default(), Limits::default());
        Self { unix: None, access, tcp: None, tls: None, insecure: false, limits }
    }
}

impl Listen {
    /// Whether a TCP client may connect without encryption.
    pub fn plain_tcp(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.required == Required::Never)
    }
    /// The reason why a TCP socket may not be served, if there is one.
    pub fn refuses_tcp(&self) -> Option<&'static str> {
        (self.plain_tcp() && !self.insecure).then_some(PLAIN_TCP)
    }
}

/// Limits on clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Number of connections.
    pub connections: u32,
    /// Number of clients that have not chosen a volume.
    pub handshakes: u32,
    /// Requests in flight on one connection.
    pub in_flight: u32,
    /// Bytes of memory for the requests of all connections, beyond a small amount for each connection.
    pub memory_bytes: u64,
    /// Time in which a client must choose a volume.
    pub handshake: Nanos,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            handshakes: HANDSHAKES,
            in_flight: IN_FLIGHT,
            memory_bytes: MEMORY,
            handshake: HANDSHAKE,
        }
    }
}

/// Encryption: files in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The server's certificate and the intermediate ones.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA of client certificates; without it clients need no certificate.
    pub clients: Option<PathBuf>,
    /// The connections that must be encrypted.
    pub required: Required,
}

/// The connections that must be encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Required {
    /// None.
    Never,
    /// Those over TCP.
    Tcp,
    /// All.
    Always,
}

/// The clients that may open a volume, and over which transports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Names of clients that may open it; `None`: all that may connect.
    pub names: Option<Vec<String>>,
    /// Whether it is open over the Unix socket.
    pub unix: bool,
    /// Whether it is open over TCP.
    pub tcp: bool,
    /// Limit on its connections.
    pub connections: u32,
    /// Its ancestor groups with a limit on connections, outermost first, and the limits.
    pub groups: Vec<(String, u32)>,
}

impl Default for Entry {
    fn default() -> Self {
        let groups = Vec::new();
        Self { names: None, unix: true, tcp: true, connections: CONNECTIONS_MAX, groups }
    }
}

/// The name of a user of the Unix socket in [`Entry::names`].
pub fn user(id: u32) -> String {
    format!("{USER}{id}")
}

/// Whether a certificate with this name could be mistaken for another kind of client.
pub fn is_reserved(name: &str) -> bool {
    name == ANY_CLIENT || name.starts_with(USER)
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawListen {
    pub(super) unix: Option<Spanned<String>>,
    mode: Option<Spanned<String>>,
    group: Option<Spanned<String>>,
    tcp: Option<Spanned<String>>,
    tls: Option<Table<RawTls>>,
    #[serde(default)]
    insecure: bool,
    connections: Option<Spanned<i64>>,
    handshakes: Option<Spanned<i64>>,
    in_flight: Option<Spanned<i64>>,
    memory: Option<Spanned<Bytes>>,
    handshake: Option<Spanned<Time>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTls {
    certificate: Spanned<String>,
    key: Spanned<String>,
    clients: Option<Spanned<String>>,
    required: Option<Spanned<RawRequired>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawRequired {
    Always(bool),
    Word(String),
}

/// The transport over which a volume is open.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Transport {
    Unix,
    Tcp,
    None,
}

pub(super) fn check(source: &Source, written: &RawListen) -> Result<Listen, ConfigError> {
    let mut errors = Errors::default();
    let mut listen = Listen {
        unix: errors.or_default(socket(source, written.unix.as_ref())),
        access: errors.or_default(access::check(
            source,
            written.mode.as_ref(),
            written.group.as_ref(),
        )),
        tcp: errors.or_default(address(source, written.tcp.as_ref())),
        insecure: written.insecure,
        ..Listen::default()
    };
    match written.tls.as_ref().map(|written| tls(source, written)).transpose() {
        Ok(tls) => listen.tls = tls,
        Err(error) => {
            errors.add(error);
            // Whether it is enough for TCP is not known.
            listen.insecure = true;
        }
    }
    // Of an address that is none, nothing else is said.
    let tcp = written.tcp.as_ref().filter(|_| listen.tcp.is_some());
    if let (Some(tcp), Some(message)) = (tcp, listen.refuses_tcp()) {
        errors.add(source.error(tcp.span(), message).allowed(TLS_OR_INSECURE));
    }
    let mut count = |written: &Option<Spanned<i64>>, default, most| {
        errors.or_default(count(source, written.as_ref(), default, most))
    };
    let limits = &mut listen.limits;
    limits.connections = count(&written.connections, CONNECTIONS, CONNECTIONS_MAX);
    limits.handshakes = count(&written.handshakes, HANDSHAKES, CONNECTIONS_MAX);
    limits.in_flight = count(&written.in_flight, IN_FLIGHT, IN_FLIGHT_MAX);
    if let Some(memory) = &written.memory {
        limits.memory_bytes = memory.get_ref().0;
        if limits.memory_bytes < MEMORY_MIN {
            let error = source.error(memory.span(), "less than two of the longest requests");
            errors.add(error.allowed("at least 64MiB"));
        }
    }
    if let Some(handshake) = &written.handshake {
        limits.handshake = handshake.get_ref().nanos();
        if limits.handshake == Nanos::ZERO {
            let error =
                source.error(handshake.span(), "the handshake timeout must be greater than 0");
            errors.add(error.allowed("more than 0s"));
        }
    }
    errors.end().map(|()| listen)
}

/// Path of a socket.
pub(super) fn socket(
    source: &Source,
    written: Option<&Spanned<String>>,
) -> Result<Option<PathBuf>, ConfigError> {
    written.map(|unix| path(source, unix, "a path for a socket")).transpose()
}

/// No two sockets may have the same path.
pub(super) fn sockets_differ<'a>(
    source: &Source,
    paths: impl Iterator<Item = &'a Spanned<String>>,
) -> Result<(), ConfigError> {
    // `./a` is `a`.
    let place = |path: &Spanned<String>| -> PathBuf {
        let parts = Path::new(path.get_ref()).components();
        parts.filter(|part| *part != Component::CurDir).collect()
    };
    let mut seen: HashMap<PathBuf, &Spanned<String>> = HashMap::new();
    let paths = paths.filter(|path| !path.get_ref().is_empty());
    all(paths.map(|path| match seen.insert(place(path), path) {
        None => Ok(()),
        Some(first) => {
            let line = source.error(first.span(), "").line();
            let message = format!("the socket \"{}\" is in line {line} too", path.get_ref());
            Err(source.error(path.span(), message).allowed("one path a socket"))
        }
    }))
    .map(drop)
}

/// Address of a socket.
pub(super) fn address(
    source: &Source,
    written: Option<&Spanned<String>>,
) -> Result<Option<SocketAddr>, ConfigError> {
    let Some(tcp) = written else { return Ok(None) };
    let address = tcp.get_ref().parse::<SocketAddr>().map_err(|_| {
        let mut message = format!("\"{}\" is not an address", tcp.get_ref());
        if let Some(right) = shell::with_brackets(tcp.get_ref()) {
            message += &format!(": an IPv6 address needs brackets, \"{right}\"");
        }
        let allowed = "IP:PORT, as in \"127.0.0.1:10809\" or \"[::1]:10809\"";
        source.error(tcp.span(), message).allowed(allowed)
    })?;
    Ok(Some(address))
}

/// A path that is written.
pub(super) fn path(
    source: &Source,
    path: &Spanned<String>,
    what: &str,
) -> Result<PathBuf, ConfigError> {
    if path.get_ref().is_empty() {
        return Err(source.error(path.span(), "an empty path").allowed(what));
    }
    Ok(source.beside(path.get_ref()))
}

fn count(
    source: &Source,
    written: Option<&Spanned<i64>>,
    default: u32,
    most: u32,
) -> Result<u32, ConfigError> {
    let Some(written) = written else { return Ok(default) };
    let count = u32::try_from(*written.get_ref()).ok();
    count.filter(|count| (1..=most).contains(count)).ok_or_else(|| {
        let message = format!("{} is out of range", written.get_ref());
        source.error(written.span(), message).allowed(format!("1 to {most}"))
    })
}

fn tls(source: &Source, written: &RawTls) -> Result<Tls, ConfigError> {
    const PEM: &str = "the path of a file in PEM";
    let required = match &written.required {
        None => Required::Always,
        Some(required) => match required.get_ref() {
            RawRequired::Always(true) => Required::Always,
            RawRequired::Always(false) => Required::Never,
            RawRequired::Word(word) if word == "tcp" => Required::Tcp,
            RawRequired::Word(word) => {
                let message = format!("`{word}` is not one of the allowed values");
                return Err(source.error(required.span(), message).allowed("true, \"tcp\", false"));
            }
        },
    };
    let clients = written.clients.as_ref().map(|clients| path(source, clients, PEM));
    let mut errors = Errors::default();
    let tls = Tls {
        certificate: errors.or_default(path(source, &written.certificate, PEM)),
        key: errors.or_default(path(source, &written.key, PEM)),
        clients: errors.or_default(clients.transpose()),
        required,
    };
    errors.end().map(|()| tls)
}

/// The names that a group lets in. `listen`: `None` if that is wrong.
pub(super) fn clients(
    source: &Source,
    written: &[Spanned<String>],
    listen: Option<&Listen>,
) -> Result<Vec<String>, ConfigError> {
    let shows = |listen: &Listen| listen.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
    // What is wrong with [listen] is told elsewhere.
    let has_certificates = listen.is_none_or(shows);
    let check = |client: &Spanned<String>| {
        let name = client.get_ref();
        let refuse = |message: String, allowed: &str| {
            Err(source.error(client.span(), message).allowed(allowed))
        };
        if let Some(id) = name.strip_prefix(USER) {
            // Exactly as `user` prints it, since names are compared as text.
            if id.parse::<u32>().map(user).as_ref() != Ok(name) {
                return refuse(
                    format!("\"{id}\" is not a user id"),
                    "a number, as in \"uid:1000\"",
                );
            }
        } else if name.is_empty() {
            return refuse("an empty name".into(), "a name of a certificate, \"uid:N\", \"*\"");
        } else if name != ANY_CLIENT && !has_certificates {
            let message = format!("no client can show a certificate of \"{name}\"");
            return refuse(message, "\"uid:N\", \"*\", or `clients` in [listen.tls]");
        }
        Ok(name.clone())
    };
    all(written.iter().map(check))
}

/// What a volume says of its own; `names` come with the groups.
pub(super) fn entry(
    source: &Source,
    transport: Option<Transport>,
    connections: Option<&Spanned<i64>>,
) -> Result<Entry, ConfigError> {
    Ok(Entry {
        names: None,
        unix: transport.is_none_or(|transport| transport == Transport::Unix),
        tcp: transport.is_none_or(|transport| transport == Transport::Tcp),
        connections: count(source, connections, CONNECTIONS_MAX, CONNECTIONS_MAX)?,
        groups: Vec::new(),
    })
}

/// The connections that a group may have.
pub(super) fn group_connections(
    source: &Source,
    connections: Option<&Spanned<i64>>,
) -> Result<Option<u32>, ConfigError> {
    connections.map(|_| count(source, connections, 1, CONNECTIONS_MAX)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::Contracts;

    const HEAD: &str = "[drive]\nback = 'memory:1GiB'\nstack = 'none-none'\n";
    const TLS: &str = "[listen.tls]\ncertificate = 'c'\nkey = 'k'\nclients = 'ca'\n";

    fn parse(text: &str) -> Result<Contracts, ConfigError> {
        Contracts::parse("listen.toml", &format!("{HEAD}{text}"))
    }

    /// Goal: every key means what it says, and what is not written is tight. Method: a file with all of
    /// them, one with none.
    #[test]
    fn keys_are_read() {
        let keys = "[listen]\nunix = 's'\nmode = '0660'\ntcp = '127.0.0.1:1'\nconnections = 9\n\
                    handshakes = 7\nin_flight = 8\nmemory = '64MiB'\nhandshake = '7s'\n";
        let listen = parse(&format!("{keys}{TLS}required = 'tcp'\n")).expect("good").listen;
        let (memory_bytes, handshake) = (64 << 20, Nanos::from_secs(7));
        let (connections, handshakes, in_flight) = (9, 7, 8);
        let limits = Limits { connections, handshakes, in_flight, memory_bytes, handshake };
        assert_eq!((listen.access.mode, listen.limits), (0o660, limits));
        let tls = listen.tls.expect("written");
        assert_eq!((tls.required, tls.clients), (Required::Tcp, Some("ca".into())));
        let listen = parse(TLS).expect("good").listen;
        assert_eq!((listen.access.mode, listen.limits), (0o600, Limits::default()));
        assert_eq!(listen.tls.expect("written").required, Required::Always);
        let plain = "[listen]\ntcp = '127.0.0.1:1'\ninsecure = true\n";
        for (text, plain) in [(plain.to_string(), true), (format!("{plain}{TLS}"), false)] {
            let listen = parse(&text).expect("good").listen;
            assert_eq!((listen.plain_tcp(), listen.refuses_tcp()), (plain, None), "{text}");
        }
        let listen = parse(&format!("{TLS}required = false")).expect("good").listen;
        assert_eq!(listen.tls.expect("written").required, Required::Never);
    }

    /// Goal: names of a group open what is below it, as soon as there are names nothing else does.
    /// Method: a tree with names at two levels, one without any, and one for everybody.
    #[test]
    fn client_names_apply_to_subgroups() {
        let group = |name: &str, keys: &str| format!("[[group]]\nname = '{name}'\n{keys}\n");
        let volume = |group: &str, keys: &str| {
            let name = group.replace('/', "-");
            format!("[[volume]]\nname = '{name}'\ngroup = '{group}'\nsize = '1MiB'\n{keys}\n")
        };
        let volumes = volume("a", "listen = 'unix'")
            + &volume("a/b", "listen = 'tcp'\nconnections = 3")
            + &volume("ab", "listen = 'none'")
            + &volume("open", "");
        let groups = |with: &str| {
            let [one, two, all] = [("a", "'one'"), ("a/b", "'uid:0', 'two'"), ("open", "'*'")]
                .map(|(name, names)| group(name, &with.replace("NAMES", names)));
            one + &two + &all + &group("ab", "")
        };
        let entries = |text: &str| -> Vec<Entry> {
            let contracts = parse(text).unwrap_or_else(|error| panic!("{error}"));
            contracts.volumes.into_iter().map(|volume| volume.entry).collect()
        };
        let found = entries(&format!("{TLS}{}{volumes}", groups("clients = [NAMES]")));
        let names = |index: usize| found[index].names.as_deref();
        assert_eq!(names(0), Some(&["one".to_string()][..]));
        assert_eq!(names(1), Some(&["one", "two", "uid:0"].map(String::from)[..]));
        assert_eq!(names(2), Some(&[][..]), "not named: nobody");
        assert_eq!(names(3), None, "everybody");
        let ways: Vec<_> = found.iter().map(|entry| (entry.unix, entry.tcp)).collect();
        assert_eq!(ways, [(true, false), (false, true), (false, false), (true, true)]);
        assert_eq!([found[0].connections, found[1].connections], [CONNECTIONS_MAX, 3]);
        let found = entries(&format!("{}{volumes}", groups("")));
        assert!(found.iter().all(|entry| entry.names.is_none()), "no names: everybody");
    }

    /// Goal: bad values are refused in their line with what is allowed. Method: one a rule.
    #[test]
    fn bad_values_are_refused() {
        let group = |client: &str| format!("[[group]]\nname = 'g'\nclients = ['{client}']\n");
        let volume = "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n";
        for (text, line, allowed) in [
            ("[listen]\nconnections = 0".to_string(), 5, "1 to 65536"),
            ("[listen]\nin_flight = 5000".to_string(), 5, "1 to 4096"),
            ("[listen]\nmemory = '1MiB'".to_string(), 5, "64MiB"),
            ("[listen]\nhandshake = '0s'".to_string(), 5, "more than 0s"),
            ("[listen]\ntcp = '127.0.0.1:1'".to_string(), 5, "insecure = true"),
            (format!("[listen]\ntcp = '[::1]:1'\n{TLS}required = false"), 5, "insecure = true"),
            ("[listen.tls]\nkey = 'k'".to_string(), 4, ""),
            ("[listen.tls]\ncertificate = ''\nkey = 'k'".to_string(), 5, "PEM"),
            (format!("{TLS}required = 'unix'"), 8, "\"tcp\""),
            (group("alice"), 6, "[listen.tls]"),
            (group("uid:x"), 6, "uid:1000"),
            (group("uid:01"), 6, "uid:1000"),
            (group(""), 6, "uid:N"),
            (format!("{volume}listen = 'udp'"), 10, "unix, tcp, none"),
            (format!("{volume}connections = -1"), 10, "1 to 65536"),
        ] {
            let error = parse(&text).expect_err(&text);
            assert_eq!(error.line(), line, "{text}\n{error}");
            let told = error.allowed.as_deref().unwrap_or_default().replace('`', "");
            assert!(told.contains(allowed), "{text}\n{error}");
        }
    }
}
