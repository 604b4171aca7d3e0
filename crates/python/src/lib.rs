//! The simulator as an extension module of Python. The package `iofair` (in `python/`) is its interface for people; this crate
//! only reads experiments and runs them, without Python's lock.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{available_parallelism, spawn};
use std::time::Duration;

use iofair_core::unit::parse_time;
use iofair_lab::experiment::{self, Experiment, Overrides, Results, Runner};
use iofair_lab::report;
use iofair_lab::scenario::Scenario;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    iofair,
    ExperimentError,
    PyValueError,
    "An experiment that cannot be run: the file, the place in it, what is wrong and what is allowed."
);

/// How often a run is interrupted to look for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// An experiment and what is changed about it.
#[pyclass(frozen, module = "iofair._iofair")]
struct Plan {
    experiment: Experiment,
}

fn bad(error: impl ToString) -> PyErr {
    ExperimentError::new_err(error.to_string())
}

#[pymethods]
impl Plan {
    /// Reads an experiment from `text`, or from the file `path` if there is no text. Times are strings with units ("2s").
    #[new]
    #[pyo3(signature = (path, text=None, *, stacks=None, settings=Vec::new(), sweeps=Vec::new(), variants=Vec::new(),
        repeats=None, time=None, ramp=None, seed=None))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn new(
        path: &str,
        text: Option<&str>,
        stacks: Option<Vec<String>>,
        settings: Vec<String>,
        sweeps: Vec<String>,
        variants: Vec<String>,
        repeats: Option<u32>,
        time: Option<&str>,
        ramp: Option<&str>,
        seed: Option<u64>,
    ) -> PyResult<Self> {
        let parse = |text: Option<&str>| text.map(parse_time).transpose().map_err(bad);
        let (time, ramp) = (parse(time)?, parse(ramp)?);
        let rest = Overrides::default();
        let overrides = Overrides { stacks, repeats, time, ramp, seed, settings, sweeps, ..rest };
        let read = match text {
            Some(text) => experiment::parse(path, text, &overrides),
            None => experiment::read(Path::new(path), &overrides),
        };
        let mut experiment = read.map_err(bad)?;
        if !variants.is_empty() {
            experiment.keep_variants(&variants).map_err(bad)?;
        }
        Ok(Self { experiment })
    }
    /// Names of the variants, points of sweeps included.
    #[getter]
    fn variants(&self) -> Vec<String> {
        self.experiment.variants.iter().map(|variant| variant.name.clone()).collect()
    }
    /// Names of the policy stacks.
    #[getter]
    fn stacks(&self) -> Vec<String> {
        self.experiment.stacks.iter().map(|(name, _)| name.clone()).collect()
    }
    /// Number of runs: variants times stacks times repeats.
    #[getter]
    fn runs(&self) -> usize {
        self.experiment.runs()
    }
    /// Runs all of it on `jobs` threads (default: one per processor) and returns the JSON of `iofair run --json`.
    #[pyo3(signature = (jobs=None))]
    fn run(&self, py: Python<'_>, jobs: Option<usize>) -> PyResult<String> {
        let jobs = jobs.or_else(|| available_parallelism().ok().map(usize::from)).unwrap_or(1);
        let stop = Arc::new(AtomicBool::new(false));
        let (told, result) = channel();
        let result = Mutex::new(result);
        let (experiment, stopped) = (self.experiment.clone(), stop.clone());
        // After Ctrl-C, runs that have begun end by themselves, and nobody waits for them.
        spawn(move || {
            let results = simulate(experiment, jobs.max(1), &stopped);
            let _ = told.send(results.map(|results| report::json(&results)));
        });
        loop {
            let wait = || result.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK);
            match py.detach(wait) {
                Ok(text) => return text.map_err(bad),
                Err(RecvTimeoutError::Timeout) => {
                    py.check_signals().inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("the simulator ended; this is a bug"));
                }
            }
        }
    }
}

fn simulate(
    experiment: Experiment,
    jobs: usize,
    stop: &AtomicBool,
) -> Result<Vec<Results>, String> {
    let run = |scenario: &Scenario| match stop.load(Ordering::Relaxed) {
        true => Err("interrupted".to_string()),
        false => iofair_lab::simulate(scenario).map_err(|error| error.to_string()),
    };
    experiment::run(vec![experiment], &Runner { jobs, simulate: &run, finished: &|_| {} })
}

/// The extension module.
#[pymodule]
fn _iofair(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ExperimentError", module.py().get_type::<ExperimentError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Plan>()
}
