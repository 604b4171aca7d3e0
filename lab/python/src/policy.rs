//! Schedulers in Python: an object that takes requests and says which one goes to the drive next.
//!
//! The table of policies is static, so each name that a caller gives to a policy gets a row that is never freed, with the number of
//! its factory as the default of its only parameter.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use iofair_baselines::TABLE;
use iofair_core::controller::Stack;
use iofair_core::id::RequestId;
use iofair_core::key::Key;
use iofair_core::params::Parameter;
use iofair_core::policy::{Build, Context, Judgement, Policy, Role, Row, Table, Tags};
use iofair_core::request::Requests;
use iofair_core::time::Instant;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::request::{PyDrive, PyRequest};

/// The parameter of a row: the number of its factory.
const FACTORY: &str = "factory";

struct Factory {
    name: String,
    make: Py<PyAny>,
    failure: Failure,
}

static FACTORIES: Mutex<Vec<Option<Factory>>> = Mutex::new(Vec::new());

/// The factories of a plan, which are forgotten with it. Their rows and table stay: some hundred bytes.
#[derive(Default)]
pub(crate) struct Registered(Vec<usize>);

impl Drop for Registered {
    fn drop(&mut self) {
        let mut factories = FACTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = self.0.iter().map(|number| factories[*number].take()).collect();
        // An object of Python may do anything when it goes.
        drop(factories);
        drop(gone);
    }
}

/// Policies by name, in a table with all others.
pub(crate) fn table(
    policies: Vec<(String, Py<PyAny>)>,
    failure: &Failure,
) -> PyResult<(&'static Table, Registered)> {
    let mut registered = Registered::default();
    if policies.is_empty() {
        return Ok((&TABLE, registered));
    }
    let mut rows = TABLE.policies.to_vec();
    for (name, make) in policies {
        check(&name)?;
        let mut factories = FACTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        let number = factories.len();
        factories.push(Some(Factory { name: name.clone(), make, failure: failure.clone() }));
        registered.0.push(number);
        rows.push(row(name, number as u64));
    }
    let table = Table { policies: Box::leak(rows.into()), stacks: TABLE.stacks };
    Ok((Box::leak(Box::new(table)), registered))
}

fn check(name: &str) -> PyResult<()> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let taken = TABLE.find(name).is_some() || name == "prop";
    if !taken && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(letters) {
        return Ok(());
    }
    let why = if taken { "is taken" } else { "is no name" };
    Err(PyValueError::new_err(format!(
        "policies: \"{name}\" {why}: allowed are a letter and then letters, digits and _, all lower case"
    )))
}

fn row(name: String, number: u64) -> &'static Row {
    let name: &'static str = Box::leak(name.into_boxed_str());
    let parameter = Parameter::count(FACTORY, number, (number, number), "set by the package");
    Box::leak(Box::new(Row {
        name,
        short: name,
        role: Role::Scheduler { groups: true, tags: Tags::Unlimited, flushes: false },
        enforces: |key, _| matches!(key, Key::Min | Key::MinIops | Key::Weight | Key::Latency),
        summary: "a policy in Python",
        file: "",
        parameters: Box::leak(Box::new([parameter])),
        overrides: &[],
        judgement: Judgement::NONE,
        build,
    }))
}

/// A stack of the table, by the name that the caller gives it.
pub(crate) fn stack(table: &'static Table, name: &str) -> PyResult<Stack> {
    table.stack(name).map_err(|error| PyValueError::new_err(format!("stacks: {error}")))
}

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let number = build.values.count(FACTORY) as usize;
    let factories = FACTORIES.lock().unwrap_or_else(PoisonError::into_inner);
    let Factory { name, make, failure } =
        factories[number].as_ref().expect("the plan of a run lives as long as the run");
    let (name, failure) = (name.clone(), failure.clone());
    let make = Python::attach(|py| make.clone_ref(py));
    drop(factories);
    let made = Python::attach(|py| make.call1(py, (PyDrive::new(build.facts),)));
    let object = made.map_err(|error| failure.set(error)).ok();
    let has_method = |method: &str| {
        let asked = |policy: &Py<PyAny>| Python::attach(|py| policy.bind(py).hasattr(method));
        object.as_ref().is_some_and(|policy| asked(policy).unwrap_or(false))
    };
    let (completes, wakes) = (has_method("complete"), has_method("next_wakeup"));
    Box::new(Scheduler {
        name,
        object,
        completes,
        wakes,
        failure,
        held: BTreeMap::new(),
        asked: Instant::ZERO,
        in_drive: BTreeMap::new(),
    })
}

struct Scheduler {
    name: String,
    object: Option<Py<PyAny>>,
    /// Which of the methods that need not be there it has.
    completes: bool,
    wakes: bool,
    failure: Failure,
    /// Requests that it holds and, if it is told of completions, those that the drive has, as Python has them.
    held: BTreeMap<RequestId, Py<PyRequest>>,
    /// When it was asked last.
    asked: Instant,
    in_drive: BTreeMap<RequestId, Py<PyRequest>>,
}

impl Scheduler {
    /// The object, until one of its methods has raised an exception.
    fn object(&self) -> Option<&Py<PyAny>> {
        self.object.as_ref().filter(|_| !self.failure.is_set())
    }
    /// In place of an object that has failed: first come, first served.
    fn first(&self, requests: &Requests) -> Option<RequestId> {
        self.held.keys().copied().min_by_key(|id| requests[*id].sequence)
    }
    fn choose(&self, object: &Py<PyAny>, cx: &Context<'_>) -> PyResult<Option<RequestId>> {
        let chosen: Option<Py<PyAny>> = Python::attach(|py| {
            let chosen = object.call_method1(py, "dispatch", (cx.now.0, cx.in_flight))?;
            PyResult::Ok(if chosen.is_none(py) { None } else { Some(chosen) })
        })?;
        let Some(chosen) = chosen else { return self.holds(object, cx) };
        Python::attach(|py| {
            let chosen = chosen.bind(py);
            let id = chosen.cast::<PyRequest>().ok().map(|request| RequestId(request.get().id));
            let held = |id: &RequestId| self.held.get(id).is_some_and(|request| request.is(chosen));
            match id.filter(held) {
                Some(id) => Ok(Some(id)),
                None => Err(PyValueError::new_err(format!(
                    "policy \"{}\": dispatch returned {}: allowed are a request that it holds, and None",
                    self.name,
                    chosen.repr()?
                ))),
            }
        })
    }
    /// While the drive is idle, requests may be held back only until a wake-up.
    fn holds(&self, object: &Py<PyAny>, cx: &Context<'_>) -> PyResult<Option<RequestId>> {
        let stuck = !self.held.is_empty() && cx.in_flight == 0;
        if stuck && self.wakeup(object)?.is_none_or(|at| at <= cx.now) {
            return Err(PyRuntimeError::new_err(format!(
                "policy \"{}\" holds {} requests while the drive is idle, and next_wakeup names no later time",
                self.name,
                self.held.len()
            )));
        }
        Ok(None)
    }
    fn wakeup(&self, object: &Py<PyAny>) -> PyResult<Option<Instant>> {
        if !self.wakes {
            return Ok(None);
        }
        Python::attach(|py| {
            let at = object.call_method0(py, "next_wakeup")?;
            Ok(at.extract::<Option<u64>>(py)?.map(Instant))
        })
    }
}

impl Policy for Scheduler {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let request = Python::attach(|py| Py::new(py, PyRequest::new(cx, id)));
        let request = request.expect("Python has memory for a request");
        if let Some(object) = self.object() {
            let told = Python::attach(|py| object.call_method1(py, "submit", (&request,)));
            let _ = told.map_err(|error| self.failure.set(error));
        }
        self.held.insert(id, request);
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.asked = cx.now;
        let chosen = self.object().map(|object| self.choose(object, cx));
        let id = match chosen {
            Some(Ok(id)) => id,
            Some(Err(error)) => {
                self.failure.set(error);
                self.first(cx.requests)
            }
            None => self.first(cx.requests),
        }?;
        let request = self.held.remove(&id)?;
        if self.completes {
            self.in_drive.insert(id, request);
        }
        Some(id)
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let request = self.in_drive.remove(&id);
        let (Some(object), Some(request)) = (self.object(), request) else { return };
        let told = Python::attach(|py| object.call_method1(py, "complete", (request, cx.now.0)));
        let _ = told.map_err(|error| self.failure.set(error));
    }
    fn next_wakeup(&self) -> Option<Instant> {
        let at = self.wakeup(self.object()?);
        let at = at.unwrap_or_else(|error| {
            self.failure.set(error);
            None
        });
        // At a time at which it was already asked it has nothing more to say.
        at.filter(|at| *at > self.asked)
    }
}
