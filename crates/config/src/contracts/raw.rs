//! The contract file as it is written: every key that may appear, each with its span.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::faults::RawFaults;
use super::keys::{Keys, beside};
use super::reaches::RawReaches;
use super::table::{Table, tables};
use super::{control, listen};
use crate::Spanned;
use crate::units::{Bytes, Rate, Scalar, Time};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) drive: Table<Drive>,
    #[serde(default)]
    pub(super) listen: Table<listen::RawListen>,
    #[serde(default)]
    pub(super) control: Table<control::RawControl>,
    #[serde(default)]
    pub(super) metrics: Table<control::RawMetrics>,
    #[serde(default)]
    pub(super) vhost: Table<Vhost>,
    #[serde(default)]
    pub(super) fuse: Table<Fuse>,
    #[serde(default)]
    pub(super) group: Vec<Group>,
    #[serde(default, deserialize_with = "tables")]
    pub(super) volume: Vec<Volume>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Fuse {
    pub(super) mount: Option<Spanned<String>>,
}

/// Policy name, then parameter name, then value.
pub(super) type Parameters = BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, Spanned<Scalar>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drive {
    pub(super) back: Spanned<String>,
    pub(super) pool: Option<Spanned<String>>,
    pub(super) rotational: Option<Spanned<bool>>,
    pub(super) stack: Option<Spanned<String>>,
    pub(super) worst_case: Option<Spanned<Rate>>,
    pub(super) reaches: Option<Spanned<Table<RawReaches>>>,
    pub(super) timeout: Option<Spanned<Time>>,
    pub(super) drain: Option<Spanned<Time>>,
    pub(super) faults: Option<Spanned<Table<RawFaults>>>,
    #[serde(default)]
    pub(super) paths: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) policy: Parameters,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Vhost {
    #[serde(default)]
    pub(super) paths: Vec<Spanned<String>>,
    pub(super) mode: Option<Spanned<String>>,
    pub(super) group: Option<Spanned<String>>,
    pub(super) memory: Option<Spanned<Bytes>>,
    pub(super) memory_each: Option<Spanned<Bytes>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(super) struct Group {
    pub(super) name: Spanned<String>,
    #[serde(skip)]
    pub(super) keys: Keys,
    #[serde(default)]
    pub(super) clients: Vec<Spanned<String>>,
    pub(super) connections: Option<Spanned<i64>>,
}

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (group, keys) = beside(deserializer, |own| Self::deserialize(own))?;
        Ok(Self { keys, ..group })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Volume {
    pub(super) name: Spanned<String>,
    pub(super) group: Spanned<String>,
    pub(super) size: Spanned<Bytes>,
    #[serde(default)]
    pub(super) read_only: bool,
    pub(super) uuid: Option<Spanned<String>>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) listen: Option<listen::Transport>,
    pub(super) connections: Option<Spanned<i64>>,
    pub(super) vhost: Option<Spanned<String>>,
    pub(super) ublk: Option<Spanned<RawUblk>>,
}

/// Any block device, none, or the one with this number.
#[derive(Deserialize, Clone, Copy)]
#[serde(expecting = "expected true, false or the N of /dev/ublkbN")]
#[serde(untagged)]
pub(super) enum RawUblk {
    Any(bool),
    Number(i64),
}
