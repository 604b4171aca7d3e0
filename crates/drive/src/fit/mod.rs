//! Calibration: from measurements of a device to a drive profile.
//!
//! [`Scope`] plans the rows: first a [`Survey`], then rows that follow from it. Whoever has the device runs them
//! ([`Row::run`]). [`fit`] finds the parameters of a model that explain the numbers best, and says which of them the rows
//! decide. It is pure: the same numbers always give the same profile. Floating-point numbers end here; the profile has
//! integers.

mod disk;
mod flash;
mod kernel;
mod limits;
mod plan;
mod plausible;
mod problem;
mod row;
mod solve;
mod survey;
#[cfg(test)]
mod tests;
mod text;

use serde::Serialize;

pub use self::kernel::{KernelCosts, costs};
pub use self::plan::Scope;
pub use self::plausible::{Implausible, check};
pub use self::problem::Residual;
pub use self::row::{Measured, Quantity, Record, Row, SEED};
pub use self::survey::{Regime, Survey};
pub use self::text::profile_text;

pub use self::limits::Limits;

use self::problem::{Numbers, numbers, profile_of, residuals};
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
    fn of(key: &str, value: f64) -> Self {
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
}

/// Fits a model to the numbers of these rows. `is_over` is asked now and then, and ends the search with what it has.
pub fn fit(
    scope: &Scope,
    survey: &Survey,
    rows: &[Row],
    records: &[Record],
    is_over: &dyn Fn() -> bool,
) -> Fitted {
    let known: Numbers = numbers(records);
    let numbers = &known;
    let simulations = &problem::Simulations::default();
    let (model, volume, parameters) = match survey.is_disk {
        true => {
            let disk = disk::Disk { scope, survey, rows, numbers, simulations, is_over };
            let (best, others) = disk.best();
            let parameters = disk.parameters(&best, &others);
            (Model::Hdd(best), None, parameters)
        }
        false => {
            let volume = None;
            let flash = flash::Flash { scope, survey, rows, numbers, volume, simulations, is_over };
            let (flash, best) = limits::best(flash);
            let mut parameters = flash.parameters(&best);
            if flash.volume.is_some() {
                // The path is an estimate, and what is left to choose from explains its error.
                let choices = parameters.iter_mut().filter(|it| it.error.is_none());
                choices.for_each(|it| it.decided = false);
                parameters.extend(limits::parameters(&flash, &best));
            }
            (Model::Ssd(best), flash.volume, parameters)
        }
    };
    let residuals = residuals(&profile_of(model.clone(), volume), rows, numbers);
    let volume = survey.limits.zip(volume).map(|(limits, it)| {
        let burst = limits.whole_burst(&it);
        volume::Parameters { burst, ..it }
    });
    Fitted { model, volume, parameters, residuals }
}

/// Bytes a second of the worst mix of small requests that was measured.
pub fn worst_case(survey: &Survey, records: &[Record]) -> u64 {
    let of = |name: &str, quantity: Quantity| {
        records.iter().find(|it| it.row == name).and_then(|it| it.number(quantity))
    };
    let mix = |name: &str| {
        let other = of(name, Quantity::Rate(1)).unwrap_or(0.0);
        of(name, Quantity::Rate(0)).map(|it| it + other)
    };
    let rate = |depth: f64, latency: f64| depth * plan::SMALL as f64 * 1e9 / latency.max(1.0);
    let lone_read = rate(1.0, survey.lone_read.0);
    if survey.is_disk {
        return mix(plan::DISK_MIX).into_iter().fold(lone_read, f64::min).max(1.0) as u64;
    }
    let reads = of("4 KiB random reads, QD32", Quantity::Latency(0)).map(|it| rate(32.0, it));
    let mix = mix(plan::MIX);
    reads.into_iter().chain(mix).reduce(f64::min).unwrap_or(lone_read).max(1.0) as u64
}

/// The depth of small random reads beyond which they only wait longer: the first one with at least 95 % of the highest
/// rate.
pub fn knee(records: &[Record]) -> Option<u32> {
    let of = |record: &Record| {
        let depth: u32 = record.row.strip_prefix("4 KiB random reads, QD")?.parse().ok()?;
        Some((depth, f64::from(depth) / record.number(Quantity::Latency(0))?.max(1.0)))
    };
    let rates: Vec<(u32, f64)> = records.iter().filter_map(of).collect();
    let highest = rates.iter().map(|it| it.1).fold(0.0, f64::max);
    let all = rates.iter().filter(|it| it.1 >= 0.95 * highest).map(|it| it.0);
    all.min().filter(|_| rates.len() > 1)
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
            Model::Hdd(it) => it.write_cache * 4096,
            Model::Ssd(it) => it.write_cache,
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
