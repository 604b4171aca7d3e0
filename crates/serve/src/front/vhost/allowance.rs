//! Limits on the memory that clients share, each and all together. The sizes that they announce are counted, before
//! anything is mapped.
//!
//! Regions are counted, too: each is a mapping of this process, of which the kernel allows 65,530 by default. When
//! they are used up, the whole process cannot allocate memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iofair_config::contracts::GuestMemory;
use iofair_core::unit::Count;

/// Pieces of memory that all clients may share together: a quarter of what the kernel allows.
const PIECES_MAX: usize = 16 << 10;

#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    bytes: u64,
    pieces: usize,
}

#[derive(Debug)]
struct State {
    limits: GuestMemory,
    taken: Amount,
}

/// What all clients of a server share, and may share.
#[derive(Debug)]
pub(crate) struct Allowance(Mutex<State>);

impl Allowance {
    pub(crate) fn new(limits: GuestMemory) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { limits, taken: Amount::default() })))
    }
    /// Other limits from now on; what is shared already stays.
    pub(crate) fn set_limits(&self, limits: GuestMemory) {
        self.state().limits = limits;
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one client has taken of it.
#[derive(Debug)]
pub(crate) struct Claim {
    allowance: Arc<Allowance>,
    taken: Amount,
}

impl Claim {
    /// Nothing yet.
    pub(crate) fn new(allowance: Arc<Allowance>) -> Self {
        Self { allowance, taken: Amount::default() }
    }
    /// The client wants to share this many pieces of together this many bytes, and nothing else from now on. The message
    /// says why not.
    pub(crate) fn resize(&mut self, pieces: usize, bytes: u64) -> Result<(), String> {
        let mut state = self.allowance.state();
        let others = Amount {
            bytes: state.taken.bytes - self.taken.bytes,
            pieces: state.taken.pieces - self.taken.pieces,
        };
        let GuestMemory { all_bytes, each_bytes } = state.limits;
        if bytes > each_bytes {
            let (asked, limit) = (size(bytes), size(each_bytes));
            return Err(format!(
                "{asked} of memory; one machine may share {limit} ([vhost] memory_each)"
            ));
        }
        if bytes > all_bytes.saturating_sub(others.bytes) {
            let (asked, shared, limit) = (size(bytes), size(others.bytes), size(all_bytes));
            return Err(format!(
                "{asked} of memory beside {shared} of other machines; together they may share {limit} ([vhost] memory)"
            ));
        }
        if pieces > PIECES_MAX.saturating_sub(others.pieces) {
            let message =
                format!("{} of memory beside {} of others", Count(pieces, "piece"), others.pieces);
            return Err(format!("{message}; together there may be {PIECES_MAX}"));
        }
        self.taken = Amount { bytes, pieces };
        state.taken = Amount { bytes: others.bytes + bytes, pieces: others.pieces + pieces };
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.allowance.state();
        state.taken.bytes -= self.taken.bytes;
        state.taken.pieces -= self.taken.pieces;
    }
}

/// A size for people.
fn size(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: neither one client nor all together share more than they may, whatever they shared before, and what goes
    /// can be shared again. Method: two clients up to the limits and beyond.
    #[test]
    fn shares_are_bounded() {
        let limits = GuestMemory { all_bytes: 6 << 20, each_bytes: 4 << 20 };
        let all = Allowance::new(limits);
        let (mut one, mut two) = (Claim::new(all.clone()), Claim::new(all.clone()));
        assert!(one.resize(1, 5 << 20).unwrap_err().contains("may share 4 MiB"));
        one.resize(1, 4 << 20).unwrap();
        one.resize(2, 4 << 20).unwrap();
        let message = two.resize(1, 3 << 20).unwrap_err();
        assert!(message.contains("beside 4 MiB") && message.contains("6 MiB"), "{message}");
        two.resize(1, 2 << 20).unwrap();
        assert!(two.resize(1, u64::MAX).is_err());
        drop(one);
        two.resize(1, 4 << 20).unwrap();
        let mut three = Claim::new(all.clone());
        assert!(three.resize(PIECES_MAX, 1).unwrap_err().contains("pieces"));
        three.resize(PIECES_MAX - 1, 1).unwrap();
        all.set_limits(GuestMemory { all_bytes: 1, each_bytes: 1 });
        assert!(two.resize(1, 4096).is_err(), "not even what it had, if it asks anew");
        two.resize(0, 0).unwrap();
        drop(three);
        let Amount { bytes, pieces } = all.state().taken;
        assert_eq!((bytes, pieces), (0, 0));
    }
}
