//! Clocks of minimums: which group is due.
//!
//! A group with a minimum has a clock: the time up to which its minimum is kept. A command moves it by its *worth*, the time
//! in which the minimum promises as much ([`Minimum::worth`]). A disk loses time at each change of the client, so a minimum is
//! served once in a frame, and a second is a whole number of frames:
//!
//! ```text
//! due          clock < end of the frame, while requests are queued
//! on dispatch  clock += worth             if clock < end of the frame
//! on arrival   clock = min(clock + pause, now)   after a pause: no claim arises from it
//! always       clock >= now - LAG_MAX
//! ```
//!
//! Of the groups that are due, the most urgent class goes first, and in a class the smallest clock: if not all minimums can be
//! kept, those of the least urgent class are missed first, and within a class all in proportion.
//!
//! *Infeasible minimums.* A minimum that is behind throughout a [`PERIOD`], and is not catching up, is cut to 13/16 of what it reached
//! in it. After [`CUT`] it grows by 1/16 in each period in which it is kept.
//!
//! Source: Zhang, "VirtualClock" (1990).

use alloc::vec::Vec;

use crate::parts::entity::EntityId;
use crate::parts::scale::scale;
use crate::parts::tree::{Arena, NodeId, Tree};
use iofair_core::minimum::{Amount, Minimum};
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};

/// Length of a frame: half a second, so that each second has what is promised for it, and a frame has room for two turns.
pub(super) const FRAME: Nanos = Nanos::from_millis(500);
/// How far a clock may fall behind: as long as a disk takes to write out its cache. Older claims expire.
const LAG_MAX: Nanos = Nanos::from_secs(2);
/// A shorter time without requests is no pause, and a turn for a minimum waits as long for the next one: losing the turn would cost
/// the client a whole turn of another one. With 16 ms, 3 of 130 fresh cases of the search missed a minimum, since the host flushes
/// or uses what it read between two requests.
pub(super) const PAUSE: Nanos = Nanos::from_millis(32);
/// Period over which a minimum is compared with the service: five times the longest stall.
const PERIOD: Nanos = Nanos::from_secs(10);
/// For how long a minimum stays cut: the groups without one lose a tenth of the time at most.
const CUT: Nanos = Nanos::from_secs(100);
/// The value of [`Clock::kept`] that means all of the minimum.
const WHOLE: u64 = 1 << 20;

const NOWHERE: NodeId = NodeId(u32::MAX);

/// The clock of a group.
#[derive(Clone, Copy, Debug)]
struct Clock {
    at: Instant,
    minimum: Minimum,
    class: Class,
    /// Its node in the tree of its class, if requests are queued.
    node: NodeId,
    /// When the group last had no request queued or in flight.
    idle_since: Instant,
    /// The part of the minimum that is kept, in units of 1 / [`WHOLE`], and until when it stays cut.
    kept: u64,
    cut_until: Instant,
    /// Begin of the period, and the worth of the service in it by the whole minimum.
    period: Instant,
    served: Nanos,
    /// Whether the clock was behind by a frame throughout the period.
    behind: bool,
}

impl Clock {
    const NEW: Self = Self {
        at: Instant::ZERO,
        minimum: Minimum::NONE,
        class: Class::BestEffort,
        node: NOWHERE,
        idle_since: Instant::ZERO,
        kept: WHOLE,
        cut_until: Instant::ZERO,
        period: Instant::ZERO,
        served: Nanos::ZERO,
        behind: true,
    };
    fn begin_period(&mut self, now: Instant) {
        (self.period, self.served, self.behind) = (now, Nanos::ZERO, true);
    }
    fn end_period(&mut self, now: Instant) {
        let time = now.since(self.period);
        if time < PERIOD {
            return;
        }
        let reached = scale(self.served.0, WHOLE, time.0);
        // A group that gets more than its minimum is catching up.
        if self.behind && reached < self.kept {
            self.kept = (reached / 16 * 13).max(1);
            (self.at, self.cut_until) = (now, now + CUT);
        } else if now >= self.cut_until {
            self.kept = WHOLE.min(self.kept + self.kept / 16 + 1);
        }
        self.begin_period(now);
    }
}

/// The clocks of all groups.
#[derive(Default, Debug)]
pub(super) struct Clocks {
    /// Indexed by group.
    clocks: Vec<Clock>,
    /// Groups with a minimum.
    count: usize,
    /// By class: groups that have requests queued, by their clocks.
    trees: [Tree; Class::ALL.len()],
    arena: Arena<(Instant, EntityId), EntityId>,
    /// When a request of a group with a minimum last arrived.
    used: Instant,
}

/// The end of the present frame.
pub(super) fn frame_end(now: Instant) -> Instant {
    Instant((now.0 / FRAME.0 + 1) * FRAME.0)
}

impl Clocks {
    /// Adds a group, or changes its minimum and the class of its minimum. It counts as one without requests until [`Self::put`].
    pub(super) fn set(&mut self, now: Instant, id: EntityId, minimum: Minimum, class: Class) {
        if id.member() >= self.clocks.len() {
            self.clocks.resize(id.member() + 1, Clock::NEW);
        }
        self.put(id, false);
        let clock = &mut self.clocks[id.member()];
        clock.class = class;
        if clock.minimum != minimum {
            let before = usize::from(clock.minimum.is_some());
            self.count = self.count + usize::from(minimum.is_some()) - before;
            (clock.minimum, clock.kept, clock.at) = (minimum, WHOLE, clock.at.max(now));
            clock.begin_period(now);
        }
    }
    /// Removes a group, which has no requests.
    pub(super) fn remove(&mut self, id: EntityId) {
        self.set(Instant::ZERO, id, Minimum::NONE, Class::BestEffort);
        self.clocks[id.member()] = Clock::NEW;
    }
    /// Puts a group where it belongs by its clock; `queued`: requests of it are queued.
    pub(super) fn put(&mut self, id: EntityId, queued: bool) {
        let Clock { at, node, class, minimum, .. } = self.clocks[id.member()];
        let tree = &mut self.trees[class as usize];
        self.clocks[id.member()].node = match (node, queued && minimum.is_some()) {
            (NOWHERE, false) => NOWHERE,
            (NOWHERE, true) => self.arena.insert(tree, (at, id), id),
            (node, false) => {
                self.arena.remove(tree, node);
                NOWHERE
            }
            (node, true) => {
                if self.arena.key(node).0 != at {
                    self.arena.replace(tree, node, (at, id), id);
                }
                node
            }
        };
    }
    /// Whether no group has a minimum.
    pub(super) fn are_none(&self) -> bool {
        self.count == 0
    }
    /// Whether a request of a group with a minimum arrived recently.
    pub(super) fn are_used(&self, now: Instant) -> bool {
        self.count > 0 && now < self.used_until()
    }
    /// Until when [`Self::are_used`] holds, if there is a minimum.
    pub(super) fn used_until(&self) -> Instant {
        self.used + LAG_MAX
    }
    /// Up to when the minimum of a group is kept.
    pub(super) fn kept_until(&self, id: EntityId) -> Instant {
        self.clocks[id.member()].at
    }
    /// The group that is due, and how far it is behind.
    pub(super) fn due(&self, now: Instant) -> Option<(EntityId, Nanos)> {
        let end = frame_end(now);
        let first = |tree| self.arena.first_key(tree).filter(|(at, _)| *at < end);
        self.trees.iter().find_map(first).map(|(at, id)| (id, now.since(at)))
    }
    /// The group that is due next, and its clock.
    pub(super) fn first(&self) -> Option<(Instant, EntityId)> {
        self.trees.iter().filter_map(|tree| self.arena.first_key(tree)).min()
    }
    /// When it is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.first().map(|(at, _)| Instant(at.0 / FRAME.0 * FRAME.0))
    }

    /// A request arrives; `wakes`: the group had none queued or in flight.
    pub(super) fn arrive(&mut self, now: Instant, id: EntityId, wakes: bool) {
        let clock = &mut self.clocks[id.member()];
        if !clock.minimum.is_some() {
            return;
        }
        self.used = now;
        let pause = now.since(clock.idle_since);
        if wakes && pause > PAUSE {
            clock.at = clock.at.max((clock.at + pause).min(now));
            clock.begin_period(now);
        }
        clock.at = clock.at.max(now.saturating_sub(LAG_MAX));
        self.put(id, true);
    }
    /// A command is dispatched; `queued`: more requests are queued.
    pub(super) fn dispatch(&mut self, now: Instant, id: EntityId, amount: Amount, queued: bool) {
        let clock = &mut self.clocks[id.member()];
        let Some(whole) = clock.minimum.worth(amount) else { return };
        clock.served += whole;
        clock.at = clock.at.max(now.saturating_sub(LAG_MAX));
        if clock.at < frame_end(now) {
            clock.at += Nanos(scale(whole.0, WHOLE, clock.kept)).min(LAG_MAX);
        }
        clock.behind &= clock.at + FRAME <= now;
        clock.end_period(now);
        self.put(id, queued);
    }
    /// The group has nothing queued or in flight any more.
    pub(super) fn rest(&mut self, now: Instant, id: EntityId) {
        self.clocks[id.member()].idle_since = now;
    }
}
