//! The contract file as it is written: every key that may appear, each with its span.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use iofair_core::contract::{self, Burst, Limits, Total};
use iofair_core::priority::Class;
use iofair_core::unit::parse_rate;
use serde::Deserialize;
use serde::de::{self, Expected, MapAccess, Visitor, value::MapAccessDeserializer};

use super::faults::RawFaults;
use super::reaches::RawReaches;
use super::{control, listen};
use crate::Spanned;
use crate::units::{Bytes, Rate, Scalar, Time};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) drive: Drive,
    #[serde(default)]
    pub(super) listen: listen::RawListen,
    #[serde(default)]
    pub(super) control: control::RawControl,
    #[serde(default)]
    pub(super) metrics: control::RawMetrics,
    #[serde(default)]
    pub(super) vhost: Vhost,
    #[serde(default)]
    pub(super) fuse: Fuse,
    #[serde(default)]
    pub(super) group: Vec<Group>,
    #[serde(default)]
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
    pub(super) stack: Option<Spanned<String>>,
    pub(super) worst_case: Option<Spanned<Rate>>,
    pub(super) reaches: Option<Spanned<RawReaches>>,
    pub(super) timeout: Option<Spanned<Time>>,
    pub(super) drain: Option<Spanned<Time>>,
    pub(super) faults: Option<Spanned<RawFaults>>,
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
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) name: Spanned<String>,
    pub(super) min: Option<Spanned<Rate>>,
    pub(super) min_iops: Option<Spanned<i64>>,
    pub(super) alone: Option<Spanned<Rate>>,
    pub(super) weight: Option<Spanned<i64>>,
    pub(super) max: Option<Spanned<Max>>,
    pub(super) low: Option<Spanned<Low>>,
    pub(super) latency: Option<Spanned<Time>>,
    pub(super) class: Option<Spanned<ClassName>>,
    #[serde(default)]
    pub(super) clients: Vec<Spanned<String>>,
    pub(super) connections: Option<Spanned<i64>>,
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

/// One rate for both directions, or a table of limits and thresholds.
#[derive(Clone, Copy, Debug)]
pub struct Low(pub contract::Low);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaxTable {
    read: Option<Rate>,
    write: Option<Rate>,
    total: Option<Rate>,
    read_iops: Option<u64>,
    write_iops: Option<u64>,
    total_iops: Option<u64>,
    burst: Option<Bytes>,
    burst_requests: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LowTable {
    read: Option<Rate>,
    write: Option<Rate>,
    read_iops: Option<u64>,
    write_iops: Option<u64>,
    latency: Option<Time>,
    idle: Option<Time>,
}

impl From<Limits> for Max {
    fn from(limits: Limits) -> Self {
        Self(limits)
    }
}
impl From<MaxTable> for Max {
    fn from(table: MaxTable) -> Self {
        let bytes_per_s = [table.read, table.write].map(|rate| rate.map(|rate| rate.0));
        let total = Total { bytes_per_s: table.total.map(|rate| rate.0), iops: table.total_iops };
        let burst = Burst { bytes: table.burst.map(|size| size.0), requests: table.burst_requests };
        Self(Limits { bytes_per_s, iops: [table.read_iops, table.write_iops], total, burst })
    }
}
impl From<Limits> for Low {
    fn from(limits: Limits) -> Self {
        Self(contract::Low { limits, ..contract::Low::default() })
    }
}
impl From<LowTable> for Low {
    fn from(table: LowTable) -> Self {
        let bytes_per_s = [table.read, table.write].map(|rate| rate.map(|rate| rate.0));
        Self(contract::Low {
            limits: Limits {
                bytes_per_s,
                iops: [table.read_iops, table.write_iops],
                ..Limits::NONE
            },
            latency: table.latency.map(|time| time.0),
            idle: table.idle.map(|time| time.0),
        })
    }
}

/// Reads a rate or a table `T`; `0` says what keys the table may have.
struct LimitsVisitor<V, T>(&'static str, PhantomData<(V, T)>);

impl<'de, V: From<Limits> + From<T>, T: Deserialize<'de>> Visitor<'de> for LimitsVisitor<V, T> {
    type Value = V;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a rate such as \"10MB/s\", or a table {{ {} }}", self.0)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<V, E> {
        let rate = parse_rate(text).map_err(|_| {
            let expected: &dyn Expected = &self;
            E::custom(format_args!("\"{text}\" cannot be read, expected {expected}"))
        })?;
        Ok(Limits::both(rate).into())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(V::from)
    }
}

impl<'de> Deserialize<'de> for Max {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = "read, write, total, read_iops, write_iops, total_iops, burst, burst_requests";
        deserializer.deserialize_any(LimitsVisitor::<Self, MaxTable>(keys, PhantomData))
    }
}
impl<'de> Deserialize<'de> for Low {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = "read, write, read_iops, write_iops, latency, idle";
        deserializer.deserialize_any(LimitsVisitor::<Self, LowTable>(keys, PhantomData))
    }
}
