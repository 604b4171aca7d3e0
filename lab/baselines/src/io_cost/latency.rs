//! Observations of the drive in a period: late requests, and the time spent waiting for tags.

use super::settings::Settings;
use iofair_core::request::{Operation, Request};
use iofair_core::time::{Instant, Nanos};

const MILLION: u64 = 1_000_000;
/// If waiting for tags takes more than this percentage of a period, the drive is saturated (`RQ_WAIT_BUSY_PCT`).
const WAIT_BUSY_PERCENT: u64 = 5;
/// Below this percentage of a limit, the limit is easily kept (`UNBUSY_THR_PCT`).
const WELL_PERCENT: u64 = 75;

/// Counters of a period.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Latency {
    /// Reads, writes: in time, late.
    met: [u64; 2],
    missed: [u64; 2],
    /// Sum over all requests.
    tag_wait: Nanos,
}

/// The result of a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// No request completed.
    Nothing,
    /// Targets are missed, or tags are waited for.
    Busy,
    /// Between the two.
    Fine,
    /// All targets are met by far.
    Unbusy,
}

impl Latency {
    /// Counts a completion.
    pub(super) fn count(&mut self, settings: &Settings, request: &Request, now: Instant) {
        let direction = match request.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            _ => return,
        };
        let size = match settings.size_latency {
            true => settings.model.size_cost(request.operation, request.length),
            false => 0,
        };
        // Virtual time in a nanosecond at 100 %, rounded down as in the source.
        let size = Nanos(size / 137);
        let time = now.since(request.asked_tag).saturating_sub(size);
        match time <= settings.latency[direction] {
            true => self.met[direction] += 1,
            false => self.missed[direction] += 1,
        }
        self.tag_wait += request.got_tag.since(request.asked_tag);
    }
    /// Whether requests wait for tags.
    pub(super) fn is_clogged(&self, period: Nanos) -> bool {
        self.tag_wait.0 * 100 / period.0 > WAIT_BUSY_PERCENT
    }
    /// Ends the period.
    pub(super) fn take(&mut self, settings: &Settings, period: Nanos) -> Verdict {
        let Self { met, missed, tag_wait } = core::mem::take(self);
        let wait_percent = u128::from(tag_wait.0) * 100 / u128::from(period.0);
        let misses = |direction: usize| match met[direction] + missed[direction] {
            0 => 0,
            all => (missed[direction] * MILLION).div_ceil(all),
        };
        let within = |percent: u64| {
            let below = |value: u128, limit: u64| value <= u128::from(limit * percent / 100);
            below(wait_percent, WAIT_BUSY_PERCENT)
                && (0..2).all(|d| below(u128::from(misses(d)), settings.misses_max[d]))
        };
        if met == [0; 2] && missed == [0; 2] {
            Verdict::Nothing
        } else if !within(100) {
            Verdict::Busy
        } else if within(WELL_PERCENT) {
            Verdict::Unbusy
        } else {
            Verdict::Fine
        }
    }
}
