//! The first exception of code in Python that the simulator called. The simulator has no place for exceptions: what raised one is
//! replaced by something harmless until the run ends, and the exception is raised then.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

/// The exception, if there was one.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<PyErr>>>);

impl Failure {
    /// Keeps the first exception only.
    pub(crate) fn set(&self, error: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
    pub(crate) fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
