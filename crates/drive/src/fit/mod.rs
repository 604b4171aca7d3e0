//! Calibration: from measurements of a device to a drive profile.
//!
//! [`Scope`] plans the rows: first a [`Survey`], then rows that follow from it. The caller runs them on the device
//! ([`Row::run`]). [`fit`] finds the parameters of a model that explain the numbers best, and says which of them the rows
//! decide. It is pure: the same numbers always give the same profile. Floating-point numbers end here; the profile has
//! integers.

mod disk;
mod flash;
mod kernel;
mod limited;
mod limits;
mod model;
mod plan;
mod plausible;
mod problem;
mod published;
mod regimes;
mod row;
mod scope;
mod solve;
mod start;
mod survey;
#[cfg(test)]
mod tests;
mod text;

pub use self::kernel::{KernelCosts, costs};
pub use self::limits::Limits;
pub use self::model::{Fitted, Parameter, Value};
pub use self::plausible::{Implausible, Odd, check};
pub use self::problem::Residual;
#[cfg(test)]
pub(crate) use self::published::beside_writers;
pub use self::published::{Published, published};
pub use self::regimes::Regime;
pub use self::row::{Measured, Quantity, Record, Row, SEED};
pub use self::scope::Scope;
pub use self::survey::Survey;
pub use self::text::{library_numbers, profile_text};

use self::problem::{Numbers, left_out, numbers, profile_of, residuals};
use crate::library;
use crate::profile::{Model, ProfileError};
use crate::volume;

/// Fits a model to the numbers of these rows; those that no drive has are only shown beside it. Once `is_over` returns true, the search ends with the best model so far.
pub fn fit(
    scope: &Scope,
    survey: &Survey,
    rows: &[Row],
    records: &[Record],
    is_over: &dyn Fn() -> bool,
) -> Fitted {
    let odd = plausible::odd(survey, records);
    let known: Numbers = numbers(&plausible::kept(&odd, records));
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
            let (flash, best) = limited::best(flash);
            let mut parameters = flash.parameters(&best);
            if flash.volume.is_some() {
                // The path is an estimate, and what is left to choose from explains its error.
                let choices = parameters.iter_mut().filter(|parameter| parameter.error.is_none());
                choices.for_each(|parameter| parameter.decided = false);
                parameters.extend(limited::parameters(&flash, &best));
            }
            (Model::Ssd(best), flash.volume, parameters)
        }
    };
    let profile = profile_of(model.clone(), volume);
    let mut residuals = residuals(&profile, rows, numbers);
    residuals.extend(left_out(&profile, rows, records, &odd));
    let volume = survey.limits.zip(volume).map(|(limits, volume)| {
        let burst = limits.whole_burst(&volume);
        volume::Parameters { burst, ..volume }
    });
    Fitted { model, volume, parameters, residuals, class: None }
}

/// Fits a drive of a class to published rows.
///
/// # Errors
/// A class without defaults.
pub fn near(
    published: &Published,
    class: &str,
    is_over: &dyn Fn() -> bool,
) -> Result<Fitted, ProfileError> {
    let (rows, records) = (&published.rows, &published.records);
    let odd = plausible::odd_numbers(records);
    let numbers: Numbers = numbers(&plausible::kept(&odd, records));
    let start = published.start(class)?;
    let (best, mut parameters) = flash::near(&start, rows, &numbers, is_over);
    for (key, value) in library::defaults(class) {
        let Some(key) = key.strip_prefix("model.ssd.") else { continue };
        if parameters.iter().all(|parameter| parameter.key != key) {
            let (key, value) = (key.to_owned(), Value::Text(value));
            parameters.push(Parameter { key, value, error: None, decided: false });
        }
    }
    let model = Model::Ssd(best);
    let profile = profile_of(model.clone(), None);
    let mut residuals = residuals(&profile, rows, &numbers);
    residuals.extend(left_out(&profile, rows, records, &odd));
    Ok(Fitted { model, volume: None, parameters, residuals, class: Some(class.to_owned()) })
}

/// Bytes a second of the worst mix of small requests that was measured.
pub fn worst_case(survey: &Survey, records: &[Record]) -> u64 {
    let records = plausible::kept(&plausible::odd(survey, records), records);
    let of = |name: &str, quantity: Quantity| {
        records.iter().find(|record| record.row == name).and_then(|record| record.number(quantity))
    };
    let mix = |name: &str| {
        let other = of(name, Quantity::Rate(1)).unwrap_or(0.0);
        of(name, Quantity::Rate(0)).map(|rate| rate + other)
    };
    let rate = |depth: f64, latency: f64| depth * row::SMALL as f64 * 1e9 / latency.max(1.0);
    let lone_read = rate(1.0, survey.lone_read.0);
    if survey.is_disk {
        return mix(row::DISK_MIX).into_iter().fold(lone_read, f64::min).max(1.0) as u64;
    }
    let reads = of("4 KiB random reads, QD32", Quantity::Latency(0)).map(|time| rate(32.0, time));
    let mix = mix(row::MIX);
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
    let highest = rates.iter().map(|rate| rate.1).fold(0.0, f64::max);
    let all = rates.iter().filter(|rate| rate.1 >= 0.95 * highest).map(|rate| rate.0);
    all.min().filter(|_| rates.len() > 1)
}
