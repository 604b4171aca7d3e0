//! The contract file as it is written: every key that may appear, each with its span.

use std::collections::BTreeMap;
use std::fmt;

use iofair_core::contract::{Limits, WEIGHT_DEFAULT};
use iofair_core::group::Class;
use iofair_core::unit::parse_rate;
use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};

use crate::Spanned;
use crate::units::{Bytes, Rate, Scalar, Time};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) drive: Drive,
    #[serde(default)]
    pub(super) listen: Listen,
    #[serde(default)]
    pub(super) group: Vec<Group>,
    #[serde(default)]
    pub(super) volume: Vec<Volume>,
}

/// Policy name, then parameter name, then value.
pub(super) type Parameters = BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, Spanned<Scalar>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drive {
    pub(super) back: Spanned<String>,
    pub(super) stack: Spanned<String>,
    pub(super) worst_case: Option<Spanned<Rate>>,
    #[serde(default)]
    pub(super) policy: Parameters,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Listen {
    pub(super) unix: Option<Spanned<String>>,
    pub(super) tcp: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) name: Spanned<String>,
    pub(super) min: Option<Spanned<Rate>>,
    #[serde(default = "default_weight")]
    pub(super) weight: Spanned<i64>,
    pub(super) max: Option<Spanned<Max>>,
    pub(super) latency: Option<Spanned<Time>>,
    #[serde(default)]
    pub(super) class: ClassName,
}

fn default_weight() -> Spanned<i64> {
    Spanned::new(0..0, i64::from(WEIGHT_DEFAULT))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Volume {
    pub(super) name: Spanned<String>,
    pub(super) group: Spanned<String>,
    pub(super) size: Spanned<Bytes>,
    #[serde(default)]
    pub(super) read_only: bool,
}

/// A scheduling class by its name.
#[derive(Deserialize, Clone, Copy, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum ClassName {
    /// `realtime`
    #[serde(rename = "realtime")]
    RealTime,
    /// `best-effort`
    #[default]
    BestEffort,
    /// `idle`
    Idle,
}

impl ClassName {
    /// As the engine knows it.
    pub fn class(self) -> Class {
        match self {
            Self::RealTime => Class::RealTime,
            Self::BestEffort => Class::BestEffort,
            Self::Idle => Class::Idle,
        }
    }
}

/// One rate for both directions, or a table of limits.
#[derive(Clone, Copy, Debug)]
pub struct Max(pub Limits);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaxTable {
    read: Option<Rate>,
    write: Option<Rate>,
    read_iops: Option<u64>,
    write_iops: Option<u64>,
}

struct MaxVisitor;

impl<'de> Visitor<'de> for MaxVisitor {
    type Value = Max;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate such as \"10MB/s\", or a table { read, write, read_iops, write_iops }")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Max, E> {
        let wrong = |_| E::custom(format_args!("\"{text}\" is not right, expected {}", Expected));
        parse_rate(text).map(|rate| Max(Limits::both(rate))).map_err(wrong)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Max, A::Error> {
        let table = MaxTable::deserialize(MapAccessDeserializer::new(map))?;
        let bytes = |rate: Option<Rate>| rate.map(|rate| rate.0);
        Ok(Max(Limits {
            bytes_per_s: [bytes(table.read), bytes(table.write)],
            iops: [table.read_iops, table.write_iops],
        }))
    }
}

/// What [`MaxVisitor`] accepts, in words.
struct Expected;

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        MaxVisitor.expecting(f)
    }
}

impl<'de> Deserialize<'de> for Max {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MaxVisitor)
    }
}
