//! Replays of traces, and calibrations: the same code and results as `iofair-lab replay --json` and `iofair calibrate --json`.

use std::path::PathBuf;

use iofair_core::unit::parse_time;
use iofair_drive::profile;
use iofair_experiments::replay::Mode;
use iofair_experiments::replay::request::{self, Request};
use iofair_simulator::calibration::{self, results};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::policy;
use crate::{Factories, bad, interruptible};

/// Replays a trace under stacks; the JSON of `iofair-lab replay --json`.
#[pyfunction]
#[pyo3(signature = (traces, *, stacks, drive, format, columns, mode, scale, duration, contracts, groups, seed, policies))]
#[allow(clippy::too_many_arguments)] // keyword arguments of Python
pub(crate) fn replay(
    py: Python<'_>,
    traces: Vec<PathBuf>,
    mut stacks: Vec<String>,
    drive: Option<String>,
    format: Option<String>,
    columns: Option<String>,
    mode: &str,
    scale: f64,
    duration: Option<&str>,
    contracts: Option<PathBuf>,
    groups: Vec<String>,
    seed: u64,
    policies: Factories,
) -> PyResult<String> {
    let refuse = |text: String| PyValueError::new_err(text);
    let mode = Mode::find(mode)
        .ok_or_else(|| refuse(format!("mode = {mode:?}: allowed are open, closed, think")))?;
    if !(0.001..=1_000_000.0).contains(&scale) {
        return Err(refuse(format!("scale = {scale}: allowed are 0.001 to 1000000")));
    }
    let scale = (scale * 1000.0).round() as u64;
    let duration = duration.map(parse_time).transpose().map_err(bad)?;
    let failure = Failure::default();
    if stacks.is_empty() {
        stacks.extend(policies.iter().map(|(name, _)| format!("prop-{name}")));
    }
    let (table, registered) = policy::table(policies, &failure)?;
    let request = Request {
        traces,
        format,
        columns,
        stacks,
        table,
        drive,
        mode,
        scale,
        duration,
        contracts,
        groups,
        seed,
    };
    let played = interruptible(py, move |_| {
        let _alive = registered;
        let played = Python::attach(|py| py.detach(|| request::run(&request)));
        let played = played.map_err(|error| error.to_string())?;
        serde_json::to_string(&played).map_err(|error| error.to_string())
    })?;
    failure.take().map_or_else(|| played.map_err(bad), Err)
}

/// Fits a profile to what fio or resctl-bench measured (`results`), or to what a model gives in simulated time (`drive`). The text of
/// the profile, and the JSON of `iofair calibrate --json`.
#[pyfunction]
#[pyo3(signature = (drive, results))]
pub(crate) fn calibrate(
    py: Python<'_>,
    drive: Option<String>,
    results: Option<PathBuf>,
) -> PyResult<(String, String)> {
    let done = interruptible(py, move |is_over| {
        let measured = match (drive, results) {
            (Some(drive), None) => {
                let profile = profile::read(&drive).map_err(|error| error.to_string())?;
                calibration::simulated(&profile, is_over).ok_or("interrupted")?
            }
            (None, Some(path)) => {
                let place = path.display().to_string();
                let text = std::fs::read_to_string(&path);
                results::read(&place, &text.map_err(|error| format!("{place}: {error}"))?, None)?
            }
            _ => return Err("give a drive, or results".to_owned()),
        };
        let implausible = |why| format!("these numbers cannot come from the drive: {why}");
        measured.check().map_err(implausible)?;
        let fitted = measured.fit(is_over);
        let report = measured.report(&fitted);
        let json = serde_json::to_string(&report).map_err(|error| error.to_string())?;
        Ok((measured.profile(&fitted, &report), json))
    })?;
    done.map_err(bad)
}
