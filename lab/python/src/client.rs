//! Clients in Python: a generator for each call in flight, which yields actions and receives their latencies.

use std::sync::Arc;

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_experiments::experiment::Experiment;
use iofair_experiments::experiment::quantity::is_process_of;
use iofair_simulator::scenario::{
    Action, Calls, Manner, Pattern, Program, Script, Seat, SharedProgram,
};
use pyo3::exceptions::{PyAttributeError, PyStopIteration, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::request::{PyAction, PyDone, PyProcess};

/// A function or class that is called with a [`PyProcess`] and gives a generator.
struct Generators {
    client: String,
    factory: Py<PyAny>,
    failure: Failure,
}

impl Program for Generators {
    fn start(&self, seat: Seat) -> Box<dyn Script + Send> {
        let made = Python::attach(|py| self.factory.call1(py, (PyProcess::new(seat),)));
        let generator = made.map_err(|error| self.failure.set(error)).ok();
        let (client, failure) = (self.client.clone(), self.failure.clone());
        let file_size = seat.file_size;
        Box::new(Generator { client, generator, has_begun: false, failure, file_size })
    }
}

struct Generator {
    client: String,
    /// None: it has ended.
    generator: Option<Py<PyAny>>,
    has_begun: bool,
    failure: Failure,
    file_size: Sectors,
}

impl Generator {
    fn ask(&self, generator: &Py<PyAny>, now: Instant, latency: Option<Nanos>) -> PyResult<Action> {
        Python::attach(|py| {
            let generator = generator.bind(py);
            // A generator that has not begun takes nothing but None.
            let sent = match self.has_begun {
                false => generator.call_method1("send", (py.None(),)),
                true => {
                    let latency = latency.map(|latency| latency.0);
                    generator.call_method1("send", (PyDone { now: now.0, latency },))
                }
            };
            let yielded = match sent {
                Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                    return Ok(Action::End);
                }
                Err(error) if error.is_instance_of::<PyAttributeError>(py) && !self.has_begun => {
                    let client = &self.client;
                    let message =
                        format!("clients: \"{client}\" is no generator function: it must yield");
                    return Err(PyTypeError::new_err(message));
                }
                other => other?,
            };
            let action = yielded.cast::<PyAction>().map_err(|_| {
                PyTypeError::new_err(format!(
                    "client \"{}\" yielded {yielded}: allowed are iofair.read, write, trim, flush and wait",
                    self.client
                ))
            })?;
            let action = action.get().action;
            self.check(action)?;
            Ok(action)
        })
    }
    fn check(&self, action: Action) -> PyResult<()> {
        let Action::Call { operation, offset, length } = action else { return Ok(()) };
        let end = offset.0.saturating_add(length.0);
        if operation == Operation::Flush || end <= self.file_size.0 {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "client \"{}\" asked for {} bytes at {} of a file of {}",
            self.client,
            length.bytes(),
            offset.0.saturating_mul(512),
            self.file_size.bytes()
        )))
    }
}

impl Script for Generator {
    fn next(&mut self, now: Instant, latency: Option<Nanos>) -> Action {
        // After a failure all clients end, so that the run ends.
        let generator = self.generator.take().filter(|_| !self.failure.is_set());
        let Some(generator) = generator else { return Action::End };
        match self.ask(&generator, now, latency) {
            Ok(Action::End) => Action::End,
            Ok(action) => {
                (self.generator, self.has_begun) = (Some(generator), true);
                action
            }
            Err(error) => {
                self.failure.set(error);
                Action::End
            }
        }
    }
}

/// Lets generators decide what the clients of this name do, in every variant.
pub(crate) fn replace(
    experiment: &mut Experiment,
    client: &str,
    factory: Py<PyAny>,
    failure: &Failure,
) -> PyResult<()> {
    let generators = Generators { client: client.to_owned(), factory, failure: failure.clone() };
    let program = SharedProgram(Arc::new(generators));
    let mut found = false;
    for spec in experiment.variants.iter_mut().flat_map(|variant| &mut variant.clients) {
        if is_process_of(&spec.name, client) {
            found = true;
            spec.manner = Manner::Program(program.clone());
            let job = &mut spec.job;
            (job.buffered, job.sync_writes, job.fdatasync_every) = (false, true, 0);
            (job.pattern, job.calls) = (Pattern::RandomRead, Calls::default());
        }
    }
    if found {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("clients: the experiment has no client \"{client}\"")))
}
