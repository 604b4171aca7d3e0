//! Creation of engines, and the path of requests through them.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use iofair_config::contracts::Contracts;
use iofair_config::contracts::admission::{AdmissionError, Known};
use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, Stack};
use iofair_core::id::CommandId;
use iofair_core::time::Instant;
use iofair_policies::TABLE;

use crate::error::*;
use crate::guard::{Engine, call, without};
use crate::inner::Inner;
use crate::pointer::{self, Out, OutArray};
use crate::request::{Command, Completion, Counters, Part, Request};
use crate::setup::Setup;
use crate::tree::client_handle;

/// iofair_next_wakeup: no wake-up is needed.
pub const IOFAIR_NEVER: u64 = u64::MAX;

/// Completions that are kept for a caller who reads none; see `IOFAIR_ERROR_UNREAD`.
const UNREAD_MAX: usize = 65536;

/// Returns the version of the library, such as "0.1.0". Do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn iofair_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero in it"),
        };
    VERSION.as_ptr()
}

/// `NAME POLICY.PARAMETER=VALUE ...`
fn stack(text: &str) -> Result<Stack, Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::new(IOFAIR_ERROR_STACK, error);
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    let mut stack = TABLE.stack(name).map_err(|error| refused(&error))?;
    for word in words {
        let written = word.split_once('=').and_then(|(left, value)| {
            let (policy, parameter) = left.split_once('.')?;
            Some((policy, parameter, value))
        });
        let Some((policy, parameter, value)) = written else {
            return Err(refused(&format_args!("\"{word}\" is not POLICY.PARAMETER=VALUE")));
        };
        stack.set(policy, parameter, value).map_err(|error| refused(&error))?;
    }
    Ok(stack)
}

impl Inner {
    fn new(setup: &Setup, stack: Stack) -> Result<Self, Failure> {
        let mut checked = setup.check()?;
        if checked.tags == 0 {
            checked.tags = stack.tags(&checked.facts);
        }
        let mut controller = Controller::new(checked, stack);
        if setup.has_separate_flushes() {
            controller.separate_flushes();
        }
        Ok(Self {
            controller,
            done: Vec::new(),
            unread: VecDeque::new(),
            tags_of_stack: setup.tags == 0,
        })
    }
    fn from_contracts(setup: &Setup, text: &str) -> Result<Self, Failure> {
        let refused = |error: &dyn std::fmt::Display| Failure::new(IOFAIR_ERROR_CONTRACT, error);
        let contracts = Contracts::parse("contracts", text).map_err(|error| refused(&error))?;
        let admitted = contracts.admit(&Known::default(), None).map_err(|error| match error {
            AdmissionError::Config(error) => refused(&error),
            AdmissionError::Sum(error) => refused(&error),
        })?;
        let mut inner = Self::new(setup, contracts.drive.stack.clone())?;
        for (path, contract) in admitted {
            let contract: Contract = contract;
            inner.controller.add_group(Instant::ZERO, &path, contract)?;
        }
        Ok(inner)
    }
}

fn give(inner: Inner, engine: Out<*mut Engine>) -> i32 {
    engine.set(Box::into_raw(Box::new(Engine::new(inner))));
    IOFAIR_OK
}

/// Creates an engine with a root group. `stack` is the name of a policy stack, optionally followed by parameters of its
/// policies: "promise", or "max+prop-bfq bfq.slice_idle=4ms". Sets `*engine`; free it with iofair_engine_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_engine_new(
    setup: *const Setup,
    stack: *const c_char,
    engine: *mut *mut Engine,
) -> i32 {
    without(|| {
        // SAFETY: the header requires valid structures, text and results during the call.
        let (setup, text, engine) = unsafe {
            (
                pointer::read(setup, "setup")?,
                pointer::text(stack, "stack")?,
                Out::new(engine, "engine")?,
            )
        };
        Ok(give(Inner::new(setup, self::stack(text)?)?, engine))
    })
}

/// Creates an engine from the text of a contract file, the same format as for `iofair serve`. The library uses the stack, its
/// parameters and the groups. It refuses minimums that exceed the file's `reaches` or `worst_case`. Other settings,
/// `back` too, are checked but have no effect. Get the groups with iofair_find_group. Sets `*engine`; free it with
/// iofair_engine_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_engine_from_contracts(
    setup: *const Setup,
    contracts: *const c_char,
    engine: *mut *mut Engine,
) -> i32 {
    without(|| {
        // SAFETY: the header requires valid structures, text and results during the call.
        let (setup, text, engine) = unsafe {
            (
                pointer::read(setup, "setup")?,
                pointer::text(contracts, "contracts")?,
                Out::new(engine, "engine")?,
            )
        };
        Ok(give(Inner::from_contracts(setup, text)?, engine))
    })
}

/// Frees an engine. Pending requests are dropped. NULL is allowed. No other thread may be inside a call on the engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_engine_free(engine: *mut Engine) {
    if !engine.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the header says that it is freed once.
        let engine = unsafe { Box::from_raw(engine) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(engine)));
    }
}

/// Changes the stack; see iofair_engine_new for the syntax. Takes effect at once: the new stack takes over the requests
/// that wait, in order; commands in flight complete as usual. Call iofair_dispatch afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_set_stack(
    engine: *mut Engine,
    now_ns: u64,
    stack: *const c_char,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid text during the call.
        let stack = unsafe { self::stack(pointer::text(stack, "stack")?)? };
        if inner.tags_of_stack {
            inner.controller.set_tags(stack.tags(inner.controller.facts()))?;
        }
        inner.controller.switch(Instant(now_ns), stack);
        Ok(IOFAIR_OK)
    })
}

/// Submits a request. Call iofair_dispatch afterwards. The library copies the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_submit(
    engine: *mut Engine,
    now_ns: u64,
    request: *const Request,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid structures during the call.
        let request = unsafe { pointer::read(request, "request")? };
        let submission = request.submission(inner.live_client(request.client)?)?;
        inner.controller.submit(Instant(now_ns), submission)?;
        Ok(IOFAIR_OK)
    })
}

/// Writes the next command for the drive to `*command`. Returns IOFAIR_NONE if no request is pending, if iofair_setup.depth
/// commands are in flight, or if a policy holds the pending requests (see iofair_next_wakeup). Call it until then. Complete
/// every command with iofair_complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_dispatch(
    engine: *mut Engine,
    now_ns: u64,
    command: *mut Command,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid results during the call.
        let command = unsafe { Out::new(command, "command")? };
        let Some(dispatch) = inner.controller.dispatch(Instant(now_ns)) else {
            return Ok(IOFAIR_NONE);
        };
        command.set(Command::from(dispatch));
        Ok(IOFAIR_OK)
    })
}

/// Gets the requests in a command in flight, by offset. There are several if requests were merged or if flushes share a
/// command. Writes at most `capacity` elements to `parts` (which may be NULL if `capacity` is 0), and the number of requests
/// to `*count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_command_parts(
    engine: *mut Engine,
    command: u64,
    parts: *mut Part,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid results during the call.
        let (mut parts, count) =
            unsafe { (OutArray::new(parts, capacity, "parts")?, Out::new(count, "count")?) };
        let mut found = 0;
        for part in inner.controller.parts(CommandId::from_bits(command)) {
            parts.set(found, Part::new(&part, client_handle(part.client)));
            found += 1;
        }
        if found == 0 {
            let message = format_args!("the drive does not have command {command:#x}");
            return Err(Failure::new(IOFAIR_ERROR_NOT_IN_DRIVE, message));
        }
        count.set(found);
        Ok(IOFAIR_OK)
    })
}

/// Completes a command. `status` is zero, or an error number that the library passes on to the completions. Call
/// iofair_next_completion and iofair_dispatch afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_complete(
    engine: *mut Engine,
    now_ns: u64,
    command: u64,
    status: i32,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        if inner.unread.len() >= UNREAD_MAX {
            return Err(Failure::new(IOFAIR_ERROR_UNREAD, "read the completions first"));
        }
        let command = CommandId::from_bits(command);
        inner.controller.complete(Instant(now_ns), command, status, &mut inner.done)?;
        for completion in inner.done.drain(..) {
            let client = client_handle(completion.part.client);
            inner.unread.push_back(Completion::new(&completion, client));
        }
        Ok(IOFAIR_OK)
    })
}

/// Writes the next completed request to `*completion`, or returns IOFAIR_NONE. A command may complete several requests, or
/// none if other pieces of its request are missing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_next_completion(
    engine: *mut Engine,
    completion: *mut Completion,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid results during the call.
        let completion = unsafe { Out::new(completion, "completion")? };
        let Some(next) = inner.unread.pop_front() else { return Ok(IOFAIR_NONE) };
        completion.set(next);
        Ok(IOFAIR_OK)
    })
}

/// Sets `*at_ns` to the time at which to call iofair_dispatch even if no other event occurs, or to IOFAIR_NEVER. Call it after
/// iofair_dispatch has returned IOFAIR_NONE. Early, late and repeated wake-ups are harmless.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_next_wakeup(engine: *mut Engine, at_ns: *mut u64) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid results during the call.
        let at = unsafe { Out::new(at_ns, "at_ns")? };
        at.set(inner.controller.next_wakeup().map_or(IOFAIR_NEVER, |at| at.0));
        Ok(IOFAIR_OK)
    })
}

/// Writes the counters of a client since it was added to `*counters`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iofair_client_counters(
    engine: *mut Engine,
    client: u64,
    counters: *mut Counters,
) -> i32 {
    // SAFETY: the header requires a valid engine.
    let engine = unsafe { Engine::at(engine) };
    call(engine, |inner| {
        // SAFETY: the header requires valid results during the call.
        let counters = unsafe { Out::new(counters, "counters")? };
        let client = inner.live_client(client)?;
        let controller = &inner.controller;
        let pending = controller.pending_of(client);
        counters.set(Counters::new(&controller.counters(client), pending));
        Ok(IOFAIR_OK)
    })
}
