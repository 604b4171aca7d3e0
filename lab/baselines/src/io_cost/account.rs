//! One group's account: its own virtual time, its waiters, its debt.

use crate::parts::shares::Share;
use iofair_core::parts::fifo::Fifo;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_policies::parts::tree::NodeId;

use super::vrate::Virtual;

/// When a timer expires. Of equal times, the one that was set first comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Due {
    pub(super) at: Instant,
    pub(super) number: u64,
}

/// The state of a group's own requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    /// Its index among the active accounts.
    pub(super) active: Option<u32>,
    /// Budget used: the group's own time, which follows the clock.
    pub(super) vtime: Virtual,
    /// The value that `vtime` will have when everything in flight has completed.
    pub(super) done_vtime: Virtual,
    /// The period in which it sent its last request.
    pub(super) sent_in: u64,
    pub(super) active_since: Instant,
    /// How far `vtime` was behind the clock when the weight was last set.
    pub(super) saved_margin: i64,
    /// Its share, and the generation of weights of which it is.
    pub(super) share: Share,
    pub(super) share_of: u64,
    /// Whether part of its weight is lent.
    pub(super) lends: bool,
    /// Its weight in use before the last change.
    pub(super) last_inuse: u64,
    /// Where its last request ended.
    pub(super) cursor: Option<Sectors>,
    /// Device time, in virtual units, that it used in this period.
    pub(super) used: u64,
    /// `first.rs`: the value of `vtime` at the last check, and the last usages.
    pub(super) seen: Virtual,
    pub(super) usages: [u64; 3],
    pub(super) usage_at: usize,
    pub(super) waiters: Fifo,
    /// When its timer expires.
    pub(super) due: Option<Due>,
    /// The timer's place in the tree, if it expires soon.
    pub(super) timer: Option<NodeId>,
    /// Device time, in virtual units, that went out without a budget.
    pub(super) debt: u64,
    /// By how much its clients are held up because of the debt, as of `delay_at`; halves each second.
    pub(super) delay: Nanos,
    pub(super) delay_at: Instant,
    /// Until when its clients are delayed.
    pub(super) held_until: Instant,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            active: None,
            vtime: Virtual::default(),
            done_vtime: Virtual::default(),
            sent_in: 0,
            active_since: Instant::ZERO,
            saved_margin: 0,
            share: Share { active: 1, inuse: 1 },
            share_of: u64::MAX,
            lends: false,
            last_inuse: 0,
            cursor: None,
            used: 0,
            seen: Virtual::default(),
            usages: [0; 3],
            usage_at: 0,
            waiters: Fifo::new(),
            due: None,
            timer: None,
            debt: 0,
            delay: Nanos::ZERO,
            delay_at: Instant::ZERO,
            held_until: Instant::ZERO,
        }
    }
    pub(super) fn is_active(&self) -> bool {
        self.active.is_some()
    }
    /// Whether it waits for something that only time brings.
    pub(super) fn waits(&self) -> bool {
        !self.waiters.is_empty() || self.debt > 0 || self.delay > Nanos::ZERO
    }
    /// Whether it has requests in flight.
    pub(super) fn is_under_way(&self) -> bool {
        self.vtime != self.done_vtime
    }
    /// Moves its own time on, without any request.
    pub(super) fn skip(&mut self, time: i64) {
        self.vtime = self.vtime.plus(time);
        self.done_vtime = self.done_vtime.plus(time);
    }
}
