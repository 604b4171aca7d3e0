//! What a request costs: the linear model.
//!
//! A cost is device time in virtual units, [`SECOND`] of which make a second at 100 %.

use iofair_core::request::{Operation, Request};
use iofair_core::unit::Sectors;

/// Virtual time in a second of a drive that runs at 100 % (`VTIME_PER_SEC`).
pub(super) const SECOND: u64 = 1 << 37;

/// Virtual time as nanoseconds of a drive at 100 %, for people to read.
pub(super) fn nanos(cost: u64) -> u64 {
    u64::try_from(u128::from(cost) * 1_000_000_000 / u128::from(SECOND)).unwrap_or(u64::MAX)
}
/// `value * times / parts`, rounded down. A division of 128 bits takes several times as long as one of 64, which is
/// nearly always enough.
pub(super) fn scale(value: u64, times: u64, parts: u64) -> u128 {
    match value.checked_mul(times) {
        Some(product) => u128::from(product / parts),
        None => u128::from(value) * u128::from(times) / u128::from(parts),
    }
}
/// The same, rounded up.
pub(super) fn scale_up(value: u64, times: u64, parts: u64) -> u128 {
    match value.checked_mul(times) {
        Some(product) => u128::from(product.div_ceil(parts)),
        None => (u128::from(value) * u128::from(times)).div_ceil(u128::from(parts)),
    }
}
/// Sectors in a page, the unit of size.
const PAGE_SECTORS: u64 = 8;
const PAGE_BYTES: u64 = 4096;
/// A request further than this from the end of its group's last one is random
/// (`LCOEF_RANDIO_PAGES`, 4096 pages).
const RANDOM_PAGES: u64 = 4096;
/// Slowest drive that the model takes: slower parameters count as this. The kernel has no such bound;
/// without it a request could wait for years.
const SLOWEST: [u64; 3] = [1 << 20, 16, 16];

/// One direction of a drive as users state it: bytes, sequential and random 4 KiB requests a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rates {
    pub(super) bytes: u64,
    pub(super) sequential: u64,
    pub(super) random: u64,
}

/// Costs of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line {
    page: u64,
    sequential: u64,
    random: u64,
}

impl Line {
    /// What a second buys, turned round; the cost of a page is part of what a 4 KiB request takes.
    fn new(rates: Rates) -> Self {
        let [bytes, sequential, random] = SLOWEST;
        let page = SECOND.div_ceil(rates.bytes.max(bytes).div_ceil(PAGE_BYTES));
        let base = |rate: u64| SECOND.div_ceil(rate).saturating_sub(page);
        let (sequential, random) = (rates.sequential.max(sequential), rates.random.max(random));
        Self { page, sequential: base(sequential), random: base(random) }
    }
}

/// The model of a drive: reads, writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Model([Line; 2]);

impl Model {
    pub(super) fn new(rates: [Rates; 2]) -> Self {
        Self(rates.map(Line::new))
    }
    fn line(&self, operation: Operation) -> Option<&Line> {
        match operation {
            Operation::Read => Some(&self.0[0]),
            // In Linux a flush gets here as a write without sectors, which costs a page.
            Operation::Write | Operation::Flush => Some(&self.0[1]),
            Operation::Discard | Operation::WriteZeroes => None,
        }
    }
    /// The whole cost; `cursor` is where the group's last request ended. Zero: free.
    pub(super) fn cost(&self, request: &Request, cursor: Option<Sectors>) -> u64 {
        let Some(line) = self.line(request.operation) else { return 0 };
        let seek = cursor.map_or(0, |cursor| request.start.distance(cursor).0) / PAGE_SECTORS;
        let base = if seek > RANDOM_PAGES { line.random } else { line.sequential };
        base + (request.length.0 / PAGE_SECTORS).max(1) * line.page
    }
    /// The part of the cost that the size makes, which a latency is allowed for; rounded down.
    pub(super) fn size_cost(&self, operation: Operation, length: Sectors) -> u64 {
        self.line(operation).map_or(0, |line| length.0 / PAGE_SECTORS * line.page)
    }
}
