//! The eventfd of a queue that its client signals. The descriptor stays open until the ring entry that names it
//! completes. The eventfds that we signal are in `reactor/bells.rs`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::types;

use crate::reactor::endpoint::ReactorContext;
use crate::request::entry::Entry;

/// Slots of a device's ring entries: one for each queue, then one for each other purpose.
pub(super) const KICK: u8 = 0;
pub(super) const COMMANDS: u8 = 250;
pub(super) const AGAIN: u8 = 251;
pub(super) const CANCEL: u8 = 252;
pub(super) const MUTED: u8 = 253;

/// An eventfd that the client writes to. It is never read: the ring reports every write.
#[derive(Debug, Default)]
pub(super) struct Kick {
    wanted: Option<Arc<OwnedFd>>,
    watched: Option<Arc<OwnedFd>>,
    cancelled: bool,
}

impl Kick {
    /// Watches this one from the end of the turn on, or none.
    pub(super) fn set(&mut self, file: Option<OwnedFd>) {
        self.wanted = file.map(Arc::new);
    }
    /// Does what is left to do for that. A kick that is muted is not watched.
    pub(super) fn settle(
        &mut self,
        slot: u8,
        is_muted: bool,
        cx: &mut ReactorContext<'_>,
    ) -> io::Result<()> {
        let wanted = self.wanted.as_ref().filter(|_| !is_muted);
        match (&self.watched, wanted) {
            (None, Some(wanted)) => {
                let entry = Entry::watch(wanted.as_raw_fd());
                self.watched = Some(wanted.clone());
                cx.push(entry, slot)
            }
            (Some(watched), wanted)
                if !self.cancelled && wanted.is_none_or(|w| !Arc::ptr_eq(w, watched)) =>
            {
                self.cancelled = true;
                cx.cancel(slot, CANCEL)
            }
            _ => Ok(()),
        }
    }
    /// The last completion of the ring has arrived.
    pub(super) fn on_end(&mut self) {
        (self.watched, self.cancelled) = (None, false);
    }
}

/// Kicks that told of nothing, and whether they are muted for that: a client that rings all the time would else keep the
/// reactor busy with the events of the ring alone.
///
/// A driver kicks once for each request at most, and less often while its queue is being looked at. One that has kicked
/// [`VAIN_MAX`] times more is not listened to until [`MUTE_TIME`] has passed; then its queues are looked at, and it
/// is listened to again.
#[derive(Debug, Default)]
pub(super) struct Mute {
    vain: u32,
    is_muted: bool,
}

const VAIN_MAX: u32 = 64;
pub(super) static MUTE_TIME: types::Timespec = types::Timespec::new().nsec(5_000_000);

impl Mute {
    /// The client kicked.
    pub(super) fn kicked(&mut self) {
        self.vain = self.vain.saturating_add(1);
    }
    /// A request was found.
    pub(super) fn found(&mut self) {
        self.vain = self.vain.saturating_sub(1);
    }
    /// Whether kicks must be muted from now on. [`Self::end`] is then called when the time has passed.
    pub(super) fn begins(&mut self) -> bool {
        let begins = self.is_due();
        self.is_muted |= begins;
        begins
    }
    pub(super) fn is_due(&self) -> bool {
        !self.is_muted && self.vain >= VAIN_MAX
    }
    pub(super) fn is_muted(&self) -> bool {
        self.is_muted
    }
    /// The client is listened to again; if it goes on like that, not for long.
    pub(super) fn end(&mut self) {
        (self.vain, self.is_muted) = (VAIN_MAX / 2, false);
    }
    /// Another client comes.
    pub(super) fn forget(&mut self) {
        self.vain = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a client that kicks without requests is muted again and again, and one that kicks for each request never.
    /// Method: kicks of both.
    #[test]
    fn useless_kicks_are_suppressed() {
        let mut mute = Mute::default();
        for _ in 0..1000 {
            (0..10).for_each(|_| mute.kicked());
            (0..10).for_each(|_| mute.found());
            assert!(!mute.begins());
        }
        let mut kicks = 0;
        for round in 0..10 {
            while !mute.begins() {
                mute.kicked();
                kicks += 1;
            }
            assert_eq!(kicks, VAIN_MAX + round * VAIN_MAX / 2);
            mute.kicked();
            assert!(mute.is_muted() && !mute.begins(), "once");
            mute.end();
        }
        mute.forget();
        mute.kicked();
        assert!(!mute.begins());
    }
}
