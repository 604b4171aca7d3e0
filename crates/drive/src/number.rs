//! Numbers in drive profiles: their units, their sources, and which the models refuse.

use iofair_core::time::Nanos;
use iofair_core::unit::{UnitError, parse_bytes, parse_rate, parse_time};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// A number that the model does not support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// Its key.
    pub key: &'static str,
    /// The allowed values.
    pub allowed: &'static str,
}

/// A parameter of a profile with its source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number<T> {
    /// The value.
    pub value: T,
    /// Its source, or the measured row that determines it.
    pub source: String,
    /// Whether no measured row determines it.
    #[serde(default)]
    pub free: bool,
}

/// A time, written `"13.6us"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub Nanos);
/// An amount of bytes, written `"128KiB"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);
/// Bytes a second, written `"535MB/s"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub u64);

fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, UnitError>,
) -> Result<T, D::Error> {
    parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}
impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, parse_time).map(Self)
    }
}
impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, parse_bytes).map(Self)
    }
}
impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, parse_rate).map(Self)
    }
}

/// The part of a profile that all kinds of drives share.
#[derive(Clone, Copy, Debug)]
pub struct Common {
    /// Size of the drive in bytes.
    pub capacity: u64,
    /// Longest command in bytes.
    pub max_request: u64,
    /// The rate in bytes a second on which admission control may rely.
    pub worst_case: u64,
}
