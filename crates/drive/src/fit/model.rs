//! A fitted model: its parameters, and how well it explains the rows.

use serde::Serialize;

use super::problem::{self, Residual, profile_of};
use crate::profile::{Model, Profile};
use crate::volume;

/// The value of a parameter.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Nanoseconds.
    Nanos(u64),
    /// Bytes.
    Bytes(u64),
    /// Bytes a second.
    Rate(u64),
    /// A number.
    Count(u64),
    /// Yes or no.
    Flag(bool),
    /// A word.
    Text(&'static str),
}

impl Value {
    /// A parameter with this key, in the unit of the key.
    pub(super) fn new(key: &str, value: f64) -> Self {
        let whole = value.max(0.0).round() as u64;
        match key {
            "link" | "drain" | "bus" | "outer" | "inner" => Self::Rate(whole),
            "read-buffer" | "write-cache" | "read-ahead" | "page" => Self::Bytes(whole),
            "units" | "page-read-spread-percent" | "heads" => Self::Count(whole),
            _ => Self::Nanos(whole),
        }
    }
    /// As a profile has it, with quotes where TOML needs them.
    pub fn written(self) -> String {
        match self {
            Self::Nanos(value) => format!("\"{value}ns\""),
            Self::Bytes(value) => format!("\"{value}B\""),
            Self::Rate(value) => format!("\"{value}B/s\""),
            Self::Count(value) => value.to_string(),
            Self::Flag(value) => value.to_string(),
            Self::Text(value) => format!("\"{value}\""),
        }
    }
}

/// A parameter of the fitted model.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Parameter {
    /// Its key in the profile.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Its standard error, relative; none for a choice between values.
    pub error: Option<f64>,
    /// Whether the rows decide it: an error of 10 %, or another choice, would show.
    pub decided: bool,
}

/// A fitted profile.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The drive.
    pub model: Model,
    /// Limits before it.
    pub volume: Option<volume::Parameters>,
    /// Their parameters.
    pub parameters: Vec<Parameter>,
    /// All numbers beside those of the model.
    pub residuals: Vec<Residual>,
    /// The class whose defaults it has otherwise, if it was fitted to published rows.
    pub class: Option<String>,
}

/// Mean error of the fitted rows, in percent, above which a model does not explain a drive.
const EXPLAINED_PERCENT: f64 = 10.0;

impl Fitted {
    /// Whether the model explains the rows.
    pub fn is_explained(&self) -> bool {
        self.mean_error(false).is_none_or(|error| error <= EXPLAINED_PERCENT)
    }
    /// Bytes of its write cache.
    pub fn write_cache(&self) -> u64 {
        match &self.model {
            Model::Hdd(disk) => disk.write_cache * 4096,
            Model::Ssd(ssd) => ssd.write_cache,
        }
    }
    /// A profile with the fitted model.
    pub fn profile(&self) -> Profile {
        profile_of(self.model.clone(), self.volume)
    }
    /// Mean absolute error of the rows, in percent: of those that were fitted, or of those that only verify.
    pub fn mean_error(&self, held_out: bool) -> Option<f64> {
        problem::mean_error(&self.residuals, held_out)
    }
}
