//! Parameters of policies: declared once in the policy's table, read from text, handed to its builder.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::time::Nanos;
use crate::unit;

/// What a parameter measures; decides how it is written and printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A plain number.
    Count,
    /// A percentage with up to two decimals; the value is in hundredths.
    Percent,
    /// A time; the value is in nanoseconds.
    Time,
    /// A size; the value is in bytes.
    Bytes,
    /// A byte rate; the value is in bytes a second.
    Rate,
}

/// One parameter of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Name, the field's own where it has one (`slice_idle`).
    pub name: &'static str,
    /// One sentence for help texts and docs.
    pub doc: &'static str,
    /// What it measures.
    pub kind: Kind,
    /// Default, in the unit of `kind`.
    pub default: u64,
    /// Smallest and largest value allowed.
    pub range: (u64, u64),
}

impl Parameter {
    /// A switch.
    pub const fn bool(name: &'static str, default: bool, doc: &'static str) -> Self {
        Self { name, doc, kind: Kind::Bool, default: default as u64, range: (0, 1) }
    }
    /// A number from `range.0` to `range.1`.
    pub const fn count(
        name: &'static str,
        default: u64,
        range: (u64, u64),
        doc: &'static str,
    ) -> Self {
        Self { name, doc, kind: Kind::Count, default, range }
    }
    /// A time, at most an hour.
    pub const fn time(name: &'static str, default: Nanos, doc: &'static str) -> Self {
        Self { name, doc, kind: Kind::Time, default: default.0, range: (0, 3_600_000_000_000) }
    }
    /// A size in bytes, at most 1 TiB.
    pub const fn bytes(name: &'static str, default: u64, doc: &'static str) -> Self {
        Self { name, doc, kind: Kind::Bytes, default, range: (0, 1 << 40) }
    }
    /// A byte rate.
    pub const fn rate(name: &'static str, default: u64, doc: &'static str) -> Self {
        Self { name, doc, kind: Kind::Rate, default, range: (0, u64::MAX) }
    }
    /// Reads a value of this parameter.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Value`] with the allowed values.
    pub fn parse(&self, text: &str) -> Result<u64, ParameterError> {
        let refuse = |allowed: String| ParameterError::Value {
            name: self.name.to_string(),
            given: text.to_string(),
            allowed,
        };
        let value = match self.kind {
            Kind::Bool => match text {
                "true" | "1" => 1,
                "false" | "0" => 0,
                _ => return Err(refuse("true or false".to_string())),
            },
            Kind::Count => text.parse().map_err(|_| refuse("a whole number".to_string()))?,
            Kind::Percent => {
                unit::parse_percent(text).map_err(|e| refuse(e.allowed.to_string()))?
            }
            Kind::Time => unit::parse_time(text).map_err(|e| refuse(e.allowed.to_string()))?.0,
            Kind::Bytes => unit::parse_bytes(text).map_err(|e| refuse(e.allowed.to_string()))?,
            Kind::Rate => unit::parse_rate(text).map_err(|e| refuse(e.allowed.to_string()))?,
        };
        if value < self.range.0 || value > self.range.1 {
            let (low, high) = (self.show(self.range.0), self.show(self.range.1));
            return Err(refuse(alloc::format!("{low} to {high}")));
        }
        Ok(value)
    }
    /// A value of this parameter as people write it.
    pub fn show(&self, value: u64) -> String {
        match self.kind {
            Kind::Bool => (value != 0).to_string(),
            Kind::Count => value.to_string(),
            Kind::Percent => alloc::format!("{}.{:02}", value / 100, value % 100),
            Kind::Time => Nanos(value).to_string(),
            Kind::Bytes if value >= 1024 && value.is_multiple_of(1024) => {
                alloc::format!("{}KiB", value / 1024)
            }
            Kind::Bytes => alloc::format!("{value}B"),
            Kind::Rate => alloc::format!("{value}B/s"),
        }
    }
}

/// Why a parameter was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParameterError {
    /// The policy has no such parameter.
    Unknown {
        /// What was written.
        name: String,
        /// What it has.
        known: Vec<&'static str>,
    },
    /// The value does not fit.
    Value {
        /// The parameter.
        name: String,
        /// What was written.
        given: String,
        /// What would have been accepted.
        allowed: String,
    },
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } => {
                write!(f, "no parameter \"{name}\"; there are: {}", known.join(", "))
            }
            Self::Value { name, given, allowed } => {
                write!(f, "{name} = \"{given}\": allowed is {allowed}")
            }
        }
    }
}
impl core::error::Error for ParameterError {}

/// The values of one policy's parameters: defaults, then what was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Values {
    table: &'static [Parameter],
    values: Vec<u64>,
}

impl Values {
    /// The defaults of `table`, with a variant's own defaults on top.
    ///
    /// # Panics
    ///
    /// If `overrides` has a parameter that is not in `table`.
    pub fn new(table: &'static [Parameter], overrides: &[(&'static str, u64)]) -> Self {
        let mut this = Self { table, values: table.iter().map(|p| p.default).collect() };
        for (name, value) in overrides {
            let index = this.index(name).expect("a variant overrides parameters that exist");
            this.values[index] = *value;
        }
        this
    }
    fn index(&self, name: &str) -> Option<usize> {
        self.table.iter().position(|p| p.name == name)
    }
    /// Sets one parameter from text, such as `"8ms"`, `"true"` or `"10MB/s"`.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Unknown`] or [`ParameterError::Value`].
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ParameterError> {
        let Some(index) = self.index(name) else {
            let known = self.table.iter().map(|p| p.name).collect();
            return Err(ParameterError::Unknown { name: name.to_string(), known });
        };
        self.values[index] = self.table[index].parse(text)?;
        Ok(())
    }
    /// The raw value of a parameter that the policy declares.
    ///
    /// # Panics
    ///
    /// If the policy does not declare the parameter.
    pub fn count(&self, name: &str) -> u64 {
        let index = self.index(name).expect("a policy asks for parameters it declares");
        self.values[index]
    }
    /// A switch that the policy declares.
    pub fn bool(&self, name: &str) -> bool {
        self.count(name) != 0
    }
    /// A time that the policy declares.
    pub fn time(&self, name: &str) -> Nanos {
        Nanos(self.count(name))
    }
    /// Every parameter with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Parameter, u64)> + '_ {
        self.table.iter().zip(self.values.iter().copied())
    }
}
