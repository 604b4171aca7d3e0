//! Socket units of systemd, and the places where they listen.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a socket is bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A path, or none if the socket has no path.
    Unix(Option<PathBuf>),
    Tcp(SocketAddr),
}

impl Place {
    /// Whether a path is this place, under any name of its directory.
    pub(super) fn is_path(&self, path: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        match self {
            Self::Unix(Some(place)) => place == path || real(place) == real(path),
            Self::Unix(None) | Self::Tcp(_) => false,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.as_deref().unwrap_or(Path::new("no path")).display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// A line of `systemctl list-sockets`.
#[derive(serde::Deserialize)]
struct Unit {
    listen: String,
    unit: String,
}

/// The socket unit that listens at a place. Only systemd can tell: the descriptors of process 1 are visible to root alone,
/// and a connection would start the service.
pub(crate) fn unit_at(place: &Place) -> Option<String> {
    let mut systemctl = Command::new("systemctl");
    systemctl.args(["list-sockets", "--no-pager", "--output=json"]);
    // Without systemd there are no units.
    let output = systemctl.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    unit_in(&output.stdout, place)
}

fn unit_in(list: &[u8], place: &Place) -> Option<String> {
    let units: Vec<Unit> = serde_json::from_slice(list).ok()?;
    let is_there = |unit: &Unit| match place {
        Place::Unix(_) => place.is_path(Path::new(&unit.listen)),
        Place::Tcp(address) => unit.listen.parse() == Ok(*address),
    };
    units.into_iter().find(is_there).map(|unit| unit.unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a place that a socket unit listens on is found, and no other place. Method: a list as systemctl prints it.
    #[test]
    fn units_are_found_by_their_place() {
        let list = br#"[{"listen":"/run/iofair/nbd.sock","unit":"iofair.socket","activates":"iofair.service"},
            {"listen":"[::]:10809","unit":"tcp.socket","activates":null},
            {"listen":"kobject-uevent 1","unit":"systemd-udevd-kernel.socket","activates":["a","b"]}]"#;
        let unix = |path: &str| unit_in(list, &Place::Unix(Some(path.into())));
        let tcp = |address: &str| unit_in(list, &Place::Tcp(address.parse().unwrap()));
        assert_eq!(unix("/run/iofair/nbd.sock").as_deref(), Some("iofair.socket"));
        assert_eq!(tcp("[::]:10809").as_deref(), Some("tcp.socket"));
        assert_eq!(unix("/run/iofair/control.sock").or(tcp("127.0.0.1:10809")), None);
        assert_eq!(unit_in(b"", &Place::Unix(Some("/run/iofair/nbd.sock".into()))), None);
    }
}
