//! Identifiers: which volume of which server.

use std::fmt;

use iofair_serve::control::client::is_volume_name;
use uuid::Uuid;

/// Longest identifier, in bytes, by the interface.
const ID_BYTES_MAX: usize = 128;
/// Longest name of a volume here, in bytes: its identifier has room for the name of a node.
const NAME_BYTES_MAX: usize = 63;
/// How names begin that were made from a name that a server would not take.
const MADE: &str = "csi-";

/// A volume of the server on a node. As text: `NODE/VOLUME`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct VolumeId {
    pub(crate) node: String,
    pub(crate) volume: String,
}

impl VolumeId {
    /// Reads an identifier; `None` if no volume of this driver has such a one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (node, volume) = text.split_once('/')?;
        let fine = !node.is_empty() && is_name(volume) && text.len() <= ID_BYTES_MAX;
        fine.then(|| Self { node: node.to_string(), volume: volume.to_string() })
    }
    /// Whether the identifier is short enough for the interface.
    pub(crate) fn fits(&self) -> bool {
        self.node.len() + 1 + self.volume.len() <= ID_BYTES_MAX
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.volume)
    }
}

/// Whether a server takes this name of a volume, and an identifier has room for it.
fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && is_volume_name(name)
}

/// The volume's name on a server: the name that the caller chose, or one made from it. The same name gives the same one.
pub(crate) fn volume_name(wanted: &str) -> String {
    if is_name(wanted) && !wanted.starts_with(MADE) {
        return wanted.to_string();
    }
    format!("{MADE}{}", Uuid::new_v5(&Uuid::NAMESPACE_URL, wanted.as_bytes()).simple())
}

/// Whether a name is one that the provisioner chooses for the volume of a claim, or [`volume_name`] has made. People choose others.
pub(crate) fn is_of_claim(name: &str) -> bool {
    let id = name.strip_prefix("pvc-").or_else(|| name.strip_prefix(MADE));
    id.is_some_and(|id| Uuid::parse_str(id).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every name gives a name that a server takes, the same each time, and other names give others.
    #[test]
    fn any_name_becomes_a_volumes_name() {
        assert_eq!(volume_name("pvc-0e9c1f6a"), "pvc-0e9c1f6a");
        let invalid = ["", "a/b", "a b", ".hidden", "-rf", "csi-0", &"x".repeat(128), "ä"];
        let mut made: Vec<String> = invalid.iter().map(|name| volume_name(name)).collect();
        assert!(made.iter().all(|name| is_name(name) && name.starts_with(MADE)), "{made:?}");
        assert_eq!(made[1], volume_name("a/b"));
        made.sort();
        made.dedup();
        assert_eq!(made.len(), invalid.len());
        assert!(made.iter().all(|name| is_of_claim(name)), "{made:?}");
        assert!(is_of_claim("pvc-0e9c1f6a-7f4c-4c3b-8f7a-1b2c3d4e5f60"));
        assert!(!is_of_claim("team-a") && !is_of_claim("pvc-0e9c1f6a"));
    }

    /// Goal: identifiers are read as they are written, and others are refused.
    #[test]
    fn identifiers_are_read_as_written() {
        let id = VolumeId { node: "a.example".into(), volume: "pvc-1".into() };
        assert_eq!(VolumeId::parse(&id.to_string()), Some(id));
        for text in [
            "",
            "pvc-1",
            "/pvc-1",
            "node/",
            "node/a/b",
            "node/a b",
            &format!("node/{}", "x".repeat(64)),
        ] {
            assert_eq!(VolumeId::parse(text), None, "{text}");
        }
        let long = VolumeId { node: "n".repeat(100), volume: "v".repeat(63) };
        assert!(!long.fits() && VolumeId::parse(&long.to_string()).is_none());
    }
}
