//! What policies and clients in Python see and say: requests, drives, calls. Offsets and lengths are in bytes, times in
//! nanoseconds.

use iofair_core::id::RequestId;
use iofair_core::policy::{Context, DriveFacts};
use iofair_core::request::{Operation, Request};
use iofair_core::time::Nanos;
use iofair_core::unit::{Sectors, parse_time};
use iofair_simulator::scenario::{Action, Seat};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

const SECTOR: u64 = 512;

/// Names of operations in Python.
const OPERATIONS: [(Operation, &str); 5] = [
    (Operation::Read, "read"),
    (Operation::Write, "write"),
    (Operation::Discard, "trim"),
    (Operation::WriteZeroes, "write-zeroes"),
    (Operation::Flush, "flush"),
];

fn name(operation: Operation) -> &'static str {
    OPERATIONS.iter().find(|(known, _)| *known == operation).map_or("", |(_, name)| name)
}

/// A request that a policy holds, as it was when it was submitted.
#[pyclass(frozen, get_all, name = "Request", module = "iofair")]
pub(crate) struct PyRequest {
    /// Its number, unique while it is in the engine.
    pub(crate) id: u32,
    /// "read", "write", "trim", "write-zeroes" or "flush".
    operation: &'static str,
    /// Bytes from the beginning of the drive.
    offset: u64,
    /// Bytes.
    length: u64,
    /// The number of its client.
    client: u64,
    /// The path of its group; empty for the root.
    group: String,
    /// The weight of its group.
    weight: u32,
    /// The minimum of its group in bytes a second, if it has one.
    minimum: Option<u64>,
    /// Whether its client waits for it: reads, direct writes.
    waits: bool,
    /// When it was submitted, in nanoseconds from the beginning of the run.
    submitted: u64,
}

impl PyRequest {
    pub(crate) fn new(cx: &Context<'_>, id: RequestId) -> Self {
        let request: &Request = &cx.requests[id];
        let group = cx.groups.group(request.group);
        Self {
            id: id.0,
            operation: name(request.operation),
            offset: request.start.bytes(),
            length: request.length.bytes(),
            client: request.client.index() as u64,
            group: group.name.clone(),
            weight: group.contract.weight,
            minimum: group.contract.min,
            waits: request.is_sync(),
            submitted: request.submitted.0,
        }
    }
}

#[pymethods]
impl PyRequest {
    fn __repr__(&self) -> String {
        let Self { id, operation, offset, length, group, .. } = self;
        format!(
            "<iofair.Request {id}: {operation} of {length} bytes at {offset}, group \"{group}\">"
        )
    }
}

/// The drive that a policy is for.
#[pyclass(frozen, get_all, name = "Drive", module = "iofair")]
pub(crate) struct PyDrive {
    /// Whether it is a hard disk.
    rotational: bool,
    /// Commands that it takes at once.
    depth: u32,
    /// Bytes.
    capacity: u64,
    /// Bytes of its longest command.
    longest: u64,
}

impl PyDrive {
    pub(crate) fn new(facts: &DriveFacts) -> Self {
        let DriveFacts { rotational, depth, max_request, capacity } = *facts;
        Self { rotational, depth, capacity: capacity.bytes(), longest: max_request.bytes() }
    }
}

/// The process whose calls a client in Python decides.
#[pyclass(frozen, get_all, name = "Process", module = "iofair")]
pub(crate) struct PyProcess {
    /// Its number in the run.
    number: u32,
    /// Which of its calls in flight this is, from 0.
    slot: u32,
    /// Bytes of its file.
    file_size: u64,
    /// The block size of its job.
    block: u64,
    /// A seed of its own, the same in every run with the same seed.
    seed: u64,
}

impl PyProcess {
    pub(crate) fn new(seat: Seat) -> Self {
        let Seat { process, slot, file_size, block, seed } = seat;
        let own = u64::from(process) << 32 | u64::from(slot);
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ own.wrapping_add(1);
        let (file_size, block) = (file_size.bytes(), block.bytes());
        Self { number: process, slot, file_size, block, seed }
    }
}

/// What a client in Python does next: a call or a pause.
#[pyclass(frozen, name = "Action", module = "iofair")]
pub(crate) struct PyAction {
    pub(crate) action: Action,
}

fn sectors(what: &str, bytes: i64) -> PyResult<Sectors> {
    match u64::try_from(bytes) {
        Ok(bytes) if bytes % SECTOR == 0 => Ok(Sectors(bytes / SECTOR)),
        _ => Err(PyValueError::new_err(format!(
            "{what} = {bytes}: allowed are multiples of {SECTOR} from 0"
        ))),
    }
}

#[pymethods]
impl PyAction {
    /// A direct call: `operation` is "read", "write" or "trim".
    #[staticmethod]
    fn call(operation: &str, offset: i64, length: i64) -> PyResult<Self> {
        let allowed = OPERATIONS[..3].iter().find(|(_, name)| *name == operation);
        let Some((operation, _)) = allowed else {
            let message = format!("operation = {operation:?}: allowed are read, write, trim");
            return Err(PyValueError::new_err(message));
        };
        let (offset, length) = (sectors("offset", offset)?, sectors("length", length)?);
        if length == Sectors::ZERO {
            return Err(PyValueError::new_err("length = 0: allowed are multiples of 512 above it"));
        }
        Ok(Self { action: Action::Call { operation: *operation, offset, length } })
    }
    /// A flush, which ends when all completed writes are durable.
    #[staticmethod]
    fn flush() -> Self {
        let (operation, offset, length) = (Operation::Flush, Sectors::ZERO, Sectors::ZERO);
        Self { action: Action::Call { operation, offset, length } }
    }
    /// A pause: nanoseconds, or a text with a unit such as "2ms".
    #[staticmethod]
    fn wait(time: &Bound<'_, PyAny>) -> PyResult<Self> {
        let pause = match time.extract::<String>() {
            Ok(text) => {
                parse_time(&text).map_err(|error| PyValueError::new_err(error.to_string()))?
            }
            Err(_) => Nanos(time.extract().map_err(|_| {
                PyTypeError::new_err(
                    "a pause is a number of nanoseconds, or a text such as \"2ms\"",
                )
            })?),
        };
        Ok(Self { action: Action::Wait(pause) })
    }
    fn __repr__(&self) -> String {
        match self.action {
            Action::Call { operation: Operation::Flush, .. } => "<iofair.Action flush>".to_owned(),
            Action::Call { operation, offset, length } => {
                let (name, bytes) = (name(operation), length.bytes());
                format!("<iofair.Action {name} of {bytes} bytes at {}>", offset.bytes())
            }
            Action::Wait(pause) => format!("<iofair.Action pause of {} ns>", pause.0),
            Action::End => "<iofair.Action end>".to_owned(),
        }
    }
}

/// What a client in Python receives when its action is done.
#[pyclass(frozen, get_all, name = "Done", module = "iofair")]
pub(crate) struct PyDone {
    /// Nanoseconds from the beginning of the run.
    pub(crate) now: u64,
    /// What the call took; None after a pause.
    pub(crate) latency: Option<u64>,
}
