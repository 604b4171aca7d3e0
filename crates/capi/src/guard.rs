//! The boundary: one thread at a time, and no panic leaves the library.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Failure, IOFAIR_ERROR_IN_USE, IOFAIR_ERROR_POISONED, IOFAIR_OK};
use crate::inner::Inner;
use crate::pointer;

/// An engine: the groups, clients and pending requests of one drive.
pub struct Engine {
    /// Whether a call is in progress.
    entered: AtomicBool,
    inner: UnsafeCell<Guarded>,
}

struct Guarded {
    poisoned: bool,
    inner: Inner,
}

impl Engine {
    pub(crate) fn new(inner: Inner) -> Self {
        let inner = UnsafeCell::new(Guarded { poisoned: false, inner });
        Self { entered: AtomicBool::new(false), inner }
    }
    /// The engine that C names.
    ///
    /// # Safety
    /// `engine` is null, misaligned, or one of [`crate::iofair_engine_new`] that is not freed during `'a`.
    pub(crate) unsafe fn at<'a>(engine: *mut Self) -> Result<&'a Self, Failure> {
        // SAFETY: as the caller of this function vouches; what changes inside is in an `UnsafeCell` or atomic.
        unsafe { pointer::read(engine, "engine") }
    }
    /// Calls `call` unless another call is inside or an earlier one panicked.
    fn enter(&self, call: impl FnOnce(&mut Inner) -> Result<i32, Failure>) -> Result<i32, Failure> {
        if self.entered.swap(true, Ordering::Acquire) {
            return Err(Failure::new(
                IOFAIR_ERROR_IN_USE,
                "another thread is inside a call on this engine",
            ));
        }
        // SAFETY: `entered` was false, so no other reference exists; this one ends before it is false again.
        let guarded = unsafe { &mut *self.inner.get() };
        let result = match guarded.poisoned {
            true => Err(poisoned()),
            false => {
                catch_unwind(AssertUnwindSafe(|| call(&mut guarded.inner))).unwrap_or_else(|_| {
                    guarded.poisoned = true;
                    Err(poisoned())
                })
            }
        };
        self.entered.store(false, Ordering::Release);
        result
    }
}

fn poisoned() -> Failure {
    Failure::new(
        IOFAIR_ERROR_POISONED,
        "an internal error of libiofair has made this engine unusable",
    )
}

/// A call on an engine ([`Engine::at`]).
pub(crate) fn call(
    engine: Result<&Engine, Failure>,
    call: impl FnOnce(&mut Inner) -> Result<i32, Failure>,
) -> i32 {
    code(engine.and_then(|engine| engine.enter(call)))
}

/// A call without an engine.
pub(crate) fn without(call: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    code(catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(poisoned())))
}

fn code(result: Result<i32, Failure>) -> i32 {
    match result {
        Ok(code) => code,
        Err(Failure(code)) => {
            debug_assert!(code < IOFAIR_OK, "failures are negative");
            code
        }
    }
}
