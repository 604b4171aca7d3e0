//! Amounts as serde types, parsed by [`iofair_core::unit`].
//!
//! A number without a unit is refused (`"8ms"`, `"4KiB"` and `"10MB/s"` are valid).

use std::fmt;

use iofair_core::time::Nanos;
use iofair_core::unit::{self, Sectors, UnitError};
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

/// A size in bytes: `"4KiB"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Bytes(pub u64);

/// A rate in bytes a second: `"10MB/s"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Rate(pub u64);

/// A time: `"8ms"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub Nanos);

/// A number of things: at most what TOML can write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Count(pub u64);

/// A value whose type is known only later (a policy's parameter): a string, a number or a boolean, kept as text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Scalar(pub String);

impl Bytes {
    /// In sectors, rounded up.
    pub const fn sectors_ceil(self) -> Sectors {
        Sectors::from_bytes_ceil(self.0)
    }
}

impl Time {
    /// As the engine's type.
    pub const fn nanos(self) -> Nanos {
        self.0
    }
}

/// Reads a string with one of the parsers of [`mod@unit`].
struct Text<T> {
    read: fn(&str) -> Result<T, UnitError>,
    expecting: &'static str,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).map_err(|e| {
            let wrong = if e.is_too_large { "is too large" } else { "cannot be read" };
            E::custom(format_args!("\"{}\" {wrong}, expected {}", e.given, e.allowed))
        })
    }
}

/// The allowed values, as the parser describes them.
fn allowed<T>(read: fn(&str) -> Result<T, UnitError>) -> &'static str {
    read("").err().map_or("a value", |error| error.allowed)
}

fn text<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    read: fn(&str) -> Result<T, UnitError>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(Text { read, expecting: allowed(read) })
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, unit::parse_bytes).map(Self)
    }
}
impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, unit::parse_rate).map(Self)
    }
}
impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, unit::parse_time).map(Self)
    }
}

struct Number;

impl Visitor<'_> for Number {
    type Value = Count;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number such as 300, at most {}", i64::MAX)
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Count, E> {
        let invalid = |_| E::invalid_value(Unexpected::Signed(number), &self);
        u64::try_from(number).map(Count).map_err(invalid)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_i64(Number)
    }
}

struct AnyScalar;

impl Visitor<'_> for AnyScalar {
    type Value = Scalar;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text with a unit (\"8ms\"), a whole number, true or false")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar(text.to_string()))
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyScalar)
    }
}
