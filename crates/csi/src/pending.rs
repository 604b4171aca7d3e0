//! One operation on a volume at a time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

/// The volumes with an operation in progress.
#[derive(Clone, Default, Debug)]
pub(crate) struct Pending(Arc<Mutex<HashSet<String>>>);

/// An operation in progress; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Operation {
    all: Pending,
    volume: String,
}

impl Pending {
    /// Begins an operation on a volume.
    ///
    /// # Errors
    /// ABORTED while another one is in progress: the caller tries again.
    pub(crate) fn begin(&self, volume: &str) -> Result<Operation, Status> {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !set.insert(volume.to_string()) {
            let message = format!("an operation on volume {volume} is in progress");
            return Err(Status::aborted(message));
        }
        Ok(Operation { all: self.clone(), volume: volume.to_string() })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a second operation on a volume is refused until the first one has ended; other volumes are not held.
    #[test]
    fn one_operation_at_a_time() {
        let pending = Pending::default();
        let first = pending.begin("a").expect("none is in progress");
        assert_eq!(pending.begin("a").expect_err("one is").code(), tonic::Code::Aborted);
        let _other = pending.begin("b").expect("another volume");
        drop(first);
        let _again = pending.begin("a").expect("it has ended");
    }
}
