//! The simulator as an extension module of Python. The package `iofair` (in `python/`) is its interface for people; this crate
//! only reads experiments and runs them, without Python's lock.

mod client;
mod failure;
mod policy;
mod request;
mod tools;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{available_parallelism, spawn};
use std::time::Duration;

use iofair_core::policy::Table;
use iofair_core::unit::parse_time;
use iofair_experiments::experiment::{self, Experiment, Overrides, Results, Runner};
use iofair_experiments::report;
use iofair_simulator::scenario::Scenario;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use self::failure::Failure;
use self::policy::Registered;
use self::request::{PyAction, PyDone, PyDrive, PyProcess, PyRequest};

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
    failure: Failure,
    registered: Arc<Registered>,
}

/// Policies or clients by name, with what makes them.
type Factories = Vec<(String, Py<PyAny>)>;

fn bad(error: impl ToString) -> PyErr {
    ExperimentError::new_err(error.to_string())
}

/// Policies in Python and the stacks that contain them.
struct Own {
    /// All stacks that the caller named, if any.
    named: Option<Vec<String>>,
    table: &'static Table,
    policies: Vec<String>,
    registered: Arc<Registered>,
}

impl Own {
    fn new(named: Option<Vec<String>>, policies: Factories, failure: &Failure) -> PyResult<Self> {
        let names = policies.iter().map(|(name, _)| name.clone()).collect();
        let (table, registered) = policy::table(policies, failure)?;
        Ok(Self { named, table, policies: names, registered: Arc::new(registered) })
    }
    fn is_own(&self, stack: &str) -> bool {
        let scheduler = stack.rsplit_once('-').map(|(_, scheduler)| scheduler);
        self.policies.iter().any(|own| Some(own.as_str()) == scheduler)
    }
    /// The stacks that the experiment knows without them; `None`: those of its file.
    fn others(&self) -> Option<Vec<String>> {
        let named = self.named.as_ref()?;
        let others: Vec<String> = named.iter().filter(|name| !self.is_own(name)).cloned().collect();
        if others.is_empty() { None } else { Some(others) }
    }
    /// Adds their stacks after all others, whose places claims refer to: those that were named, or one for each policy, `prop-`
    /// and its name.
    fn add(&self, experiment: &mut Experiment) -> PyResult<()> {
        let own: Vec<String> = match &self.named {
            Some(named) => named.iter().filter(|name| self.is_own(name)).cloned().collect(),
            None => self.policies.iter().map(|own| format!("prop-{own}")).collect(),
        };
        if self.named.is_some() && self.others().is_none() {
            experiment.stacks.clear();
            experiment.claims.clear();
        }
        for name in own {
            let stack = policy::stack(self.table, &name)?;
            experiment.stacks.push((name, stack));
        }
        Ok(())
    }
}

#[pymethods]
impl Plan {
    /// Reads an experiment from `text`, or from the file `path` if there is no text. Times are strings with units ("2s").
    #[new]
    #[pyo3(signature = (path, text=None, *, stacks=None, settings=Vec::new(), sweeps=Vec::new(), variants=Vec::new(),
        repeats=None, time=None, ramp=None, seed=None, policies=Vec::new(), clients=Vec::new()))]
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
        policies: Factories,
        clients: Factories,
    ) -> PyResult<Self> {
        let parse = |text: Option<&str>| text.map(parse_time).transpose().map_err(bad);
        let (time, ramp) = (parse(time)?, parse(ramp)?);
        let rest = Overrides::default();
        let failure = Failure::default();
        let own = Own::new(stacks, policies, &failure)?;
        let stacks = own.others();
        let overrides = Overrides { stacks, repeats, time, ramp, seed, settings, sweeps, ..rest };
        let read = match text {
            Some(text) => experiment::parse(path, text, &overrides),
            None => experiment::read(Path::new(path), &overrides),
        };
        let mut experiment = read.map_err(bad)?;
        if !variants.is_empty() {
            experiment.keep_variants(&variants).map_err(bad)?;
        }
        own.add(&mut experiment)?;
        for (name, factory) in clients {
            client::replace(&mut experiment, &name, factory, &failure)?;
        }
        Ok(Self { experiment, failure, registered: own.registered })
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
    /// Runs all of it on `jobs` threads (default: one per processor) and returns the JSON of `iofair-lab run --json`.
    #[pyo3(signature = (jobs=None))]
    fn run(&self, py: Python<'_>, jobs: Option<usize>) -> PyResult<String> {
        let jobs = jobs.or_else(|| available_parallelism().ok().map(usize::from)).unwrap_or(1);
        let (experiment, failure) = (self.experiment.clone(), self.failure.clone());
        let registered = self.registered.clone();
        let text = interruptible(py, move |is_over| {
            let _alive = registered;
            let results = simulate(experiment, jobs.max(1), is_over, &failure);
            results.map(|results| report::json(&results))
        });
        // An interrupted run calls no Python code any more, so that it ends.
        let text = text.inspect_err(|error| self.failure.set(error.clone_ref(py)))?;
        self.failure.take().map_or_else(|| text.map_err(bad), Err)
    }
}

/// Does long work without Python's lock. After Ctrl-C its result is dropped, and `is_over` tells it to end.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> T + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let (told, result) = channel();
    let result = Mutex::new(result);
    spawn(move || told.send(work(&|| stopped.load(Ordering::Relaxed))));
    loop {
        let wait = || result.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK);
        match py.detach(wait) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the simulator ended; this is a bug"));
            }
        }
    }
}

fn simulate(
    experiment: Experiment,
    jobs: usize,
    is_over: &(dyn Fn() -> bool + Sync),
    failure: &Failure,
) -> Result<Vec<Results>, String> {
    let run = |scenario: &Scenario| match is_over() || failure.is_set() {
        true => Err("interrupted".to_string()),
        // A thread that is known to Python for the whole run takes its lock in a fraction of the time.
        false => Python::attach(|py| py.detach(|| iofair_simulator::simulate(scenario)))
            .map_err(|error| error.to_string()),
    };
    experiment::run(vec![experiment], &Runner { jobs, simulate: &run, finished: &|_| {} })
}

/// The extension module.
#[pymodule]
fn _iofair(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ExperimentError", module.py().get_type::<ExperimentError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(tools::replay, module)?)?;
    module.add_function(wrap_pyfunction!(tools::calibrate, module)?)?;
    module.add_class::<Plan>()?;
    module.add_class::<PyRequest>()?;
    module.add_class::<PyDrive>()?;
    module.add_class::<PyProcess>()?;
    module.add_class::<PyAction>()?;
    module.add_class::<PyDone>()
}
