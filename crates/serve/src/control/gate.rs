//! Access control: callers over the Unix socket are identified by the kernel, callers over TLS by their certificates.
//!
//! Everyone who can connect to the Unix socket (its mode decides) may read; administrators may make changes. Over
//! TCP, the caller's certificate must have a name in `viewers` or `operators`. The rules are read again at every
//! reload and checked at every call, so revoking access takes effect at once.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use iofair_config::contracts::{Contracts, Metrics, Who};
use rustls::server::ServerConfig;
use serde::Serialize;

use crate::accounts::{self, Credentials, NOBODY};
use crate::error::ServeError;
use crate::reactor::deferred::Origin;
use crate::{security, socket};

/// What somebody may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Role {
    /// Look.
    Viewer,
    /// Look and change.
    Operator,
}

/// Who calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Caller {
    /// Over a Unix socket.
    Unix(Credentials),
    /// Over TLS, with these names in the certificate.
    Tls { names: Vec<String>, address: SocketAddr },
    /// Over TCP without TLS, which is for metrics only.
    Tcp(SocketAddr),
}

/// What a caller's connections and calls are counted by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    User(u32),
    /// A host: an address, of IPv6 the network that one host has.
    Host(IpAddr),
    Certificate(String),
}

impl Key {
    pub(super) fn host(address: SocketAddr) -> Self {
        match Origin::host(address.ip()) {
            Origin::Host(host) => Self::Host(host),
            Origin::User(user) => Self::User(user),
        }
    }
}

impl Caller {
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Unix(credentials) => Key::User(credentials.uid),
            Self::Tls { names, address } => match names.first() {
                Some(name) => Key::Certificate(name.clone()),
                None => Key::host(*address),
            },
            Self::Tcp(address) => Key::host(*address),
        }
    }
}

/// Who made a change, for the audit log.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Author {
    /// `unix`, `tls`, `tcp`, `signal`, or `start`.
    #[cfg_attr(test, schemars(extend("enum" = ["unix", "tls", "tcp", "signal", "start"])))]
    pub(super) source: &'static str,
    /// User id of a caller over the Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    /// The user's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    /// Names in the certificate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    certificate: Vec<String>,
    /// The address of a caller over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
}

impl Author {
    /// The server itself.
    pub(super) fn own(source: &'static str) -> Self {
        let uid = accounts::own();
        Self { source, uid: Some(uid), user: accounts::user_name(uid), ..Self::default() }
    }
    /// With the name of the user, which may have to come from another host: not on the thread of the sockets.
    pub(super) fn named(mut self) -> Self {
        self.user = self.user.or_else(|| self.uid.and_then(accounts::user_name));
        self
    }
    /// With the number of a user, who has no name yet.
    pub(super) fn from_caller(caller: &Caller) -> Self {
        match caller {
            Caller::Unix(Credentials { uid, pid, .. }) => {
                Self { source: "unix", uid: Some(*uid), pid: Some(*pid), ..Self::default() }
            }
            Caller::Tls { names, address } => {
                let certificate = names.clone();
                Self { source: "tls", certificate, address: Some(*address), ..Self::default() }
            }
            Caller::Tcp(address) => {
                Self { source: "tcp", address: Some(*address), ..Self::default() }
            }
        }
    }
}

/// An administrator, with the numbers of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    User(u32),
    Group(u32),
}

impl Rule {
    fn is(self, caller: &Credentials) -> bool {
        match self {
            // Somebody whom the kernel cannot name may be anybody.
            Self::User(id) => id == caller.uid && id != NOBODY,
            Self::Group(id) => id != NOBODY && caller.groups.contains(&id),
        }
    }
}

/// The rules in force.
#[derive(Debug)]
pub(super) struct Gate {
    admins: Vec<Rule>,
    viewers: Vec<String>,
    operators: Vec<String>,
    /// Certificates and keys for callers over TCP.
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// Names by which callers over TCP may call the server.
    pub(super) hosts: Vec<String>,
    /// What callers of the metrics see, and by which names.
    pub(super) metrics: Metrics,
}

impl Gate {
    /// Asks this host for the numbers of its users and groups, and reads certificates.
    pub(super) fn load(contracts: &Contracts) -> Result<Self, ServeError> {
        let control = &contracts.control;
        let (mut viewers, mut operators, mut hosts, mut tls) = Default::default();
        if let Some(written) = &control.tls {
            tls = Some(security::server_config(&written.files)?);
            hosts = security::names_of(&written.files.certificate)?;
            (viewers, operators) = (written.viewers.clone(), written.operators.clone());
        }
        let metrics = contracts.metrics.clone();
        Ok(Self { admins: admins(contracts)?, viewers, operators, tls, hosts, metrics })
    }
    /// What a caller may do; `None`: nothing.
    pub(super) fn role(&self, caller: &Caller) -> Option<Role> {
        let named = |list: &[String], names: &[String]| names.iter().any(|n| list.contains(n));
        match caller {
            Caller::Unix(caller) if self.admins.iter().any(|rule| rule.is(caller)) => {
                Some(Role::Operator)
            }
            Caller::Unix(_) => Some(Role::Viewer),
            Caller::Tls { names, .. } if named(&self.operators, names) => Some(Role::Operator),
            Caller::Tls { names, .. } if named(&self.viewers, names) => Some(Role::Viewer),
            Caller::Tls { .. } | Caller::Tcp(_) => None,
        }
    }
}

fn admins(contracts: &Contracts) -> Result<Vec<Rule>, ServeError> {
    let Some(written) = &contracts.control.admins else {
        return Ok(vec![Rule::User(0), Rule::User(accounts::own())]);
    };
    let mut rules = Vec::new();
    for admin in written {
        let what = |name: &str| ServeError::system(format!("looking for \"{name}\""));
        let (rule, kind, name) = match &admin.who {
            Who::Uid(id) => (Some(Rule::User(*id)), "user", String::new()),
            Who::User(name) => {
                let found = accounts::user(name).map_err(what(name))?;
                (found.map(Rule::User), "user", name.clone())
            }
            Who::Group(name) => {
                let found = match name.parse() {
                    Ok(number) => Some(number),
                    Err(_) => socket::group(name).map_err(what(name))?,
                };
                (found.map(Rule::Group), "group", name.clone())
            }
        };
        let missing =
            || contracts.admin_error(admin, format!("this host has no {kind} \"{name}\""));
        rules.push(rule.ok_or_else(missing)?);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(admins: &str) -> Result<Gate, ServeError> {
        let drive = "[drive]\nback = 'memory:1GiB'\nstack = 'none-none'\n";
        Gate::load(&Contracts::parse("a.toml", &format!("{drive}[control]\n{admins}\n")).unwrap())
    }
    fn unix(uid: u32, groups: &[u32]) -> Caller {
        Caller::Unix(Credentials { uid, pid: 1, groups: groups.to_vec() })
    }

    /// Goal: administrators are those that are listed, unless the list is empty, and never a user without a number. Method:
    /// the lists that there can be, against callers in and outside of them.
    #[test]
    fn administrators_are_those_that_are_listed() {
        let role = |gate: &Gate, uid, groups: &[u32]| gate.role(&unix(uid, groups)).unwrap();
        let usual = gate("").unwrap();
        assert_eq!(role(&usual, 0, &[]), Role::Operator);
        assert_eq!(role(&usual, accounts::own(), &[]), Role::Operator);
        assert_eq!(role(&usual, 4711, &[0]), Role::Viewer);
        let listed = gate("admins = ['uid:4711', 'group:12', 'uid:65534', 'group:root']").unwrap();
        assert_eq!(role(&listed, 4711, &[]), Role::Operator);
        assert_eq!(role(&listed, 1, &[5, 12]), Role::Operator);
        assert_eq!(role(&listed, 1, &[0]), Role::Operator);
        assert_eq!(role(&listed, 1, &[5]), Role::Viewer);
        assert_eq!(role(&listed, 0, &[]), Role::Viewer, "not in the list");
        assert_eq!(role(&listed, NOBODY, &[NOBODY]), Role::Viewer);
        let named = gate("admins = ['user:root']").unwrap();
        assert_eq!(role(&named, 0, &[]), Role::Operator);
        let error = gate("admins = ['user:nobody-has-this-name']").unwrap_err().to_string();
        assert!(error.contains("a.toml:5:11: this host has no user"), "{error}");
    }

    /// Goal: a host of IPv6 is one caller, whatever addresses it takes. Method: two addresses of one network, one of
    /// another, and an address of IPv4 in both ways of writing.
    #[test]
    fn a_host_is_one_caller() {
        let key = |text: &str| Key::host(text.parse().unwrap());
        assert_eq!(key("[2001:db8::1]:1"), key("[2001:db8::ffff:2]:9"));
        assert_ne!(key("[2001:db8::1]:1"), key("[2001:db8:0:1::1]:1"));
        assert_eq!(key("[::ffff:10.0.0.1]:1"), key("10.0.0.1:5"));
    }
}
