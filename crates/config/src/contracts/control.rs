//! Where a running server is controlled and watched, and by whom.
//!
//! ```toml
//! [control]
//! unix = "/run/iofair/control.sock"   # its `mode` and `group`: see `access`
//! admins = ["uid:0", "user:alice", "group:operators"]   # who may change; unless written: the server's user and root
//! tcp = "0.0.0.0:9720"                # only with TLS
//! audit = "/var/lib/iofair/audit.jsonl"                 # every change; unless written: standard error
//!
//! [control.tls]
//! certificate = "server.pem"
//! key = "server-key.pem"
//! clients = "ca.pem"                  # callers show a certificate that this CA signed
//! viewers = ["dashboard"]             # names of certificates that may look
//! operators = ["alice"]               # names of certificates that may look and change
//!
//! [metrics]
//! tcp = "127.0.0.1:9090"              # /metrics and /healthz, nothing else; read-only, so it needs no TLS
//! unix = "/run/iofair/metrics.sock"   # its `mode` and `group`: see `access`
//! hosts = ["pool1.example"]           # names in a caller's `Host`, beside addresses and localhost
//! detail = "groups"                   # none, groups, volumes: what a page shows unless its caller asks
//! page = true                         # a live page for browsers, too: what groups are promised and what they get
//! ```
//!
//! Plain TCP is not offered for control: whoever reaches a port, or is on the way to it, would be an operator.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;

use super::access::{self, Access};
use super::listen::{self, Required, Tls, is_reserved};
use super::table::Table;
use crate::errors::{Errors, all};
use crate::{ConfigError, Source, Spanned};

/// Names and administrators that may be written; far more than a site has.
const NAMES_MAX: usize = 256;
pub(super) const ADMINS: &str = "\"uid:N\", \"user:NAME\" or \"group:NAME\"";
const PLAIN_CONTROL: &str =
    "control over TCP without TLS: anyone who reaches the port could change everything";

/// Where a running server is controlled.
#[derive(Clone, Default, Debug)]
pub struct Control {
    /// Path of a Unix socket.
    pub unix: Option<PathBuf>,
    /// Who may connect to it.
    pub access: Access,
    /// Who may change over it; `None`: the server's own user and root.
    pub admins: Option<Vec<Admin>>,
    /// Address and port; there is TLS then.
    pub tcp: Option<SocketAddr>,
    /// Encryption, and what callers over TCP may do.
    pub tls: Option<ControlTls>,
    /// The file of the audit log.
    pub audit: Option<PathBuf>,
}

/// Encryption of control over TCP, and who may do what there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlTls {
    /// The files; `clients` is always there.
    pub files: Tls,
    /// Names of certificates that may look.
    pub viewers: Vec<String>,
    /// Names of certificates that may look and change.
    pub operators: Vec<String>,
}

/// A user or group that may change the server over the Unix socket.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The user or group.
    pub who: Who,
    pub(super) span: Range<usize>,
}

/// A user or a group of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// A user by number.
    Uid(u32),
    /// A user by name.
    User(String),
    /// Members of a group, by its name or number.
    Group(String),
}

/// Where metrics and health are read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Metrics {
    /// Path of a Unix socket.
    pub unix: Option<PathBuf>,
    /// Who may connect to it.
    pub access: Access,
    /// Address and port.
    pub tcp: Option<SocketAddr>,
    /// Names by which callers over TCP may call the server, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// What a page shows.
    pub detail: Detail,
    /// Whether there is a live page for browsers.
    pub page: bool,
}

/// How much a page of metrics shows.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// The server as a whole.
    None,
    /// Groups, too.
    Groups,
    /// Volumes, too.
    #[default]
    Volumes,
}

impl Detail {
    /// The level of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "groups" => Some(Self::Groups),
            "volumes" => Some(Self::Volumes),
            _ => None,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawControl {
    pub(super) unix: Option<Spanned<String>>,
    mode: Option<Spanned<String>>,
    group: Option<Spanned<String>>,
    admins: Option<Spanned<Vec<Spanned<String>>>>,
    tcp: Option<Spanned<String>>,
    tls: Option<Table<RawTls>>,
    audit: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTls {
    certificate: Spanned<String>,
    key: Spanned<String>,
    clients: Spanned<String>,
    #[serde(default)]
    viewers: Vec<Spanned<String>>,
    #[serde(default)]
    operators: Vec<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMetrics {
    pub(super) unix: Option<Spanned<String>>,
    mode: Option<Spanned<String>>,
    group: Option<Spanned<String>>,
    tcp: Option<Spanned<String>>,
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
    #[serde(default)]
    detail: Detail,
    page: Option<Spanned<bool>>,
}

pub(super) fn control(source: &Source, written: &RawControl) -> Result<Control, ConfigError> {
    let mut errors = Errors::default();
    let tcp = errors.or_default(listen::address(source, written.tcp.as_ref()));
    if let (Some(written), None, Some(_)) = (&written.tcp, &written.tls, tcp) {
        let allowed = "[control.tls] beside it, or unix; metrics have a table [metrics]";
        errors.add(source.error(written.span(), PLAIN_CONTROL).allowed(allowed));
    }
    let tls = written.tls.as_ref().map(|written| tls(source, written));
    let admins = written.admins.as_ref().map(|written| {
        let list = written.get_ref();
        if list.is_empty() {
            return Err(source.error(written.span(), "no user could make changes").allowed(ADMINS));
        }
        bounded(source, list)?;
        all(list.iter().map(|admin| self::admin(source, admin)))
    });
    let audit = written.audit.as_ref();
    let audit = audit.map(|path| listen::path(source, path, "the path of a file"));
    let control = Control {
        unix: errors.or_default(listen::socket(source, written.unix.as_ref())),
        access: errors.or_default(access::check(
            source,
            written.mode.as_ref(),
            written.group.as_ref(),
        )),
        admins: errors.or_default(admins.transpose()),
        tcp,
        tls: errors.or_default(tls.transpose()),
        audit: errors.or_default(audit.transpose()),
    };
    errors.end().map(|()| control)
}

fn bounded(source: &Source, list: &[Spanned<String>]) -> Result<(), ConfigError> {
    let Some(first) = list.get(NAMES_MAX) else { return Ok(()) };
    let error = source.error(first.span(), format!("more than {NAMES_MAX} names"));
    Err(error.allowed("a group of this host, or a certificate that several share"))
}

fn admin(source: &Source, written: &Spanned<String>) -> Result<Admin, ConfigError> {
    let text = written.get_ref();
    let odd =
        |letter: char| letter.is_whitespace() || letter.is_control() || ":/,".contains(letter);
    let name = |name: &str| (!name.is_empty() && !name.contains(odd)).then(|| name.to_string());
    let who = match text.split_once(':') {
        Some(("uid", number)) => number.parse().ok().map(Who::Uid),
        Some(("user", user)) => name(user).map(Who::User),
        Some(("group", group)) => name(group).map(Who::Group),
        _ => None,
    };
    let error = || {
        source.error(written.span(), format!("\"{text}\" is not an administrator")).allowed(ADMINS)
    };
    Ok(Admin { who: who.ok_or_else(error)?, span: written.span() })
}

fn tls(source: &Source, written: &RawTls) -> Result<ControlTls, ConfigError> {
    const PEM: &str = "the path of a file in PEM";
    let names = |list: &[Spanned<String>]| {
        bounded(source, list)?;
        let name = |name: &Spanned<String>| {
            let text = name.get_ref();
            if text.is_empty() || is_reserved(text) {
                let message = format!("\"{text}\" is not a name of a certificate");
                return Err(source
                    .error(name.span(), message)
                    .allowed("a common name, DNS name or URI"));
            }
            Ok(text.clone())
        };
        all(list.iter().map(name))
    };
    let mut errors = Errors::default();
    let [viewers, operators] =
        [&written.viewers, &written.operators].map(|list| errors.or_default(names(list)));
    if written.viewers.is_empty() && written.operators.is_empty() {
        let message = "no certificate may do anything";
        let error = source.error(written.clients.span(), message);
        errors.add(error.allowed("names of certificates in viewers or operators"));
    }
    let [certificate, key, clients] = [&written.certificate, &written.key, &written.clients]
        .map(|path| errors.or_default(listen::path(source, path, PEM)));
    let files = Tls { certificate, key, clients: Some(clients), required: Required::Always };
    errors.end().map(|()| ControlTls { files, viewers, operators })
}

pub(super) fn metrics(source: &Source, written: &RawMetrics) -> Result<Metrics, ConfigError> {
    let mut errors = Errors::default();
    errors.or_default(bounded(source, &written.hosts));
    for host in &written.hosts {
        let letters = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        if host.get_ref().is_empty() || !host.get_ref().chars().all(letters) {
            let message = format!("\"{}\" is not a host name", host.get_ref());
            errors.add(source.error(host.span(), message).allowed("as in \"pool1.example\""));
        }
    }
    let page = written.page.as_ref().filter(|page| *page.get_ref());
    if let Some(page) = page.filter(|_| written.detail == Detail::None) {
        let message = "a live page shows groups, and `detail` says that nobody may see them";
        let error = source.error(page.span(), message);
        errors.add(error.allowed("detail = \"groups\" or \"volumes\""));
    }
    let metrics = Metrics {
        unix: errors.or_default(listen::socket(source, written.unix.as_ref())),
        access: errors.or_default(access::check(
            source,
            written.mode.as_ref(),
            written.group.as_ref(),
        )),
        tcp: errors.or_default(listen::address(source, written.tcp.as_ref())),
        hosts: written.hosts.iter().map(|host| host.get_ref().to_ascii_lowercase()).collect(),
        detail: written.detail,
        page: page.is_some(),
    };
    errors.end().map(|()| metrics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::Contracts;

    const HEAD: &str = "[drive]\nback = 'memory:1GiB'\nstack = 'none-none'\n";
    const TLS: &str = "[control.tls]\ncertificate = 'c'\nkey = 'k'\nclients = 'ca'\n";

    fn parse(text: &str) -> Result<Contracts, ConfigError> {
        Contracts::parse("control.toml", &format!("{HEAD}{text}"))
    }

    /// Goal: every key means what it says, and what is not written is tight. Method: a file with all of them, one
    /// with none.
    #[test]
    fn keys_are_read() {
        let text = format!(
            "[control]\nunix = 's'\nadmins = ['uid:0', 'user:al', 'group:ops']\naudit = 'log'\n\
             tcp = '127.0.0.1:1'\n{TLS}viewers = ['grafana']\noperators = ['alice']\n\
             [metrics]\ntcp = '127.0.0.1:2'\nhosts = ['Pool1.example']\ndetail = 'groups'\npage = true\n"
        );
        let Contracts { control, metrics, .. } = parse(&text).expect("good");
        let who: Vec<Who> = control.admins.expect("written").into_iter().map(|a| a.who).collect();
        assert_eq!(who, [Who::Uid(0), Who::User("al".into()), Who::Group("ops".into())]);
        let tls = control.tls.expect("written");
        assert_eq!((tls.viewers[0].as_str(), tls.operators[0].as_str()), ("grafana", "alice"));
        assert_eq!((tls.files.clients, control.audit), (Some("ca".into()), Some("log".into())));
        assert_eq!((metrics.hosts, metrics.detail), (vec!["pool1.example".into()], Detail::Groups));
        assert!(metrics.page);
        let Contracts { control, metrics, .. } = parse("").expect("good");
        assert!(control.admins.is_none() && control.tcp.is_none() && control.audit.is_none());
        assert_eq!(metrics, Metrics::default());
    }

    /// Goal: bad values are refused in their line with what is allowed. Method: one a rule.
    #[test]
    fn bad_values_are_refused() {
        for (text, line, allowed) in [
            ("[control]\ntcp = '127.0.0.1:1'".to_string(), 5, "[control.tls]"),
            ("[control]\nadmins = []".to_string(), 5, "uid:N"),
            ("[control]\nadmins = ['alice']".to_string(), 5, "user:NAME"),
            ("[control]\nadmins = ['uid:-1']".to_string(), 5, "uid:N"),
            ("[control]\nadmins = ['group:']".to_string(), 5, "group:NAME"),
            ("[control]\naudit = ''".to_string(), 5, "a file"),
            (TLS.to_string(), 7, "operators"),
            (format!("{TLS}viewers = ['uid:0']"), 8, "a common name"),
            (format!("{TLS}viewers = ['*']"), 8, "a common name"),
            ("[metrics]\ndetail = 'all'".to_string(), 5, "none, groups, volumes"),
            ("[metrics]\ndetail = 'none'\npage = true".to_string(), 6, "groups"),
            ("[metrics]\nhosts = ['a b']".to_string(), 5, "pool1.example"),
            ("[metrics]\nunix = 's'\n[control]\nunix = 's'".to_string(), 5, "one path a socket"),
            ("[metrics]\nunix = './s'\n[control]\nunix = 's'".to_string(), 5, "one path a socket"),
        ] {
            let error = parse(&text).expect_err(&text);
            assert_eq!(error.line(), line, "{text}\n{error}");
            let told = error.allowed.as_deref().unwrap_or_default().replace('`', "");
            assert!(told.contains(allowed), "{text}\n{error}");
        }
    }
}
