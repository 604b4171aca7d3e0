//! The flash units: each processes one page at a time, in the order in which pages are sent to it.
//!
//! A unit is a FIFO server, so the time at which a page is finished is known when it is sent, and no event is
//! needed for its start. With flash translation, each program brings its share of collection with it. A drive that suspends
//! programs lets a read go before the work of its unit, after a random time.

use iofair_core::time::Nanos;

use crate::random::Random;

use super::ftl::Translation;
use super::parameters::{Parameters, Suspend};

/// The random stream of page times; a drive has only this actor.
const STREAM_FLASH: u64 = 0xF1A5;

/// When a unit will have processed everything that was sent to it.
#[derive(Clone, Copy, Default, Debug)]
struct Unit {
    reads: u64,
    /// Programs and collection.
    work: u64,
}

/// Flash translation and what it costs.
#[derive(Debug)]
struct Collection {
    table: Translation,
    /// Time of a unit to copy a page.
    copy: u64,
    /// Collection works this long on all units at once.
    batch: u64,
    /// Time of units that it has not used yet.
    owed: u64,
}

#[derive(Debug)]
pub(super) struct Flash {
    units: Vec<Unit>,
    random: Random,
    page: u64,
    read_least: u64,
    read_width: u64,
    program: u64,
    /// Time of a program while there is fast flash, and the number of fast pages: all, and those left.
    fast_program: u64,
    fast_pages: u64,
    fast_left: u64,
    /// Unit of the next program; units are used in turn.
    next_program: usize,
    collection: Option<Collection>,
    suspend: Option<Suspend>,
    /// Whether a write waits for room in the cache.
    pub(super) is_pressed: bool,
}

impl Flash {
    /// Capacities of what grows and shrinks, for the test that nothing grows.
    #[cfg(test)]
    pub(super) fn rooms(&self) -> [usize; 3] {
        [self.collection.as_ref().map_or(0, |collection| collection.table.room()), 0, 0]
    }
    pub(super) fn new(parameters: &Parameters, seed: u64) -> Self {
        let mean = parameters.page_read.0;
        let spread = mean * u64::from(parameters.page_read_spread) / 100;
        let fast_pages = parameters.slc.map_or(0, |slc| slc.size / parameters.page);
        let collection = parameters.ftl.as_ref().map(|ftl| Collection {
            table: Translation::new(parameters.capacity, ftl, seed),
            copy: ftl.copy.0,
            batch: ftl.batch.0,
            owed: 0,
        });
        let is_full = parameters.ftl.as_ref().is_some_and(|ftl| ftl.state.fills_fast_flash());
        Self {
            units: vec![Unit::default(); parameters.units as usize],
            random: Random::new(seed, STREAM_FLASH),
            page: parameters.page,
            read_least: mean - spread,
            read_width: 2 * spread + 1,
            program: parameters.page_program().0,
            fast_program: parameters.slc.map_or(0, |slc| parameters.program_at(slc.drain).0),
            fast_pages,
            fast_left: if is_full { 0 } else { fast_pages },
            next_program: 0,
            collection,
            suspend: parameters.ftl.and_then(|ftl| ftl.suspend),
            is_pressed: false,
        }
    }
    pub(super) fn units(&self) -> u32 {
        u32::try_from(self.units.len()).expect("built from a u32")
    }
    /// The shortest time of a page read.
    pub(super) fn read_least(&self) -> u64 {
        self.read_least
    }
    /// Sends a page read to unit `index`; returns when the page has been read.
    pub(super) fn read(&mut self, now: u64, index: u32) -> u64 {
        let time = self.read_least + self.random.below(self.read_width);
        let unit = &mut self.units[index as usize];
        let mut start = now.max(unit.reads);
        if unit.work > start {
            let work = unit.work;
            start = match self.suspend {
                None => work,
                Some(suspend) => {
                    unit.work += time;
                    work.min(start + self.wait(suspend))
                }
            };
        }
        let end = start + time;
        self.units[index as usize].reads = end;
        end
    }
    /// How long a unit at work takes to be suspended.
    fn wait(&mut self, suspend: Suspend) -> u64 {
        let mean = if self.is_pressed { suspend.mean_full } else { suspend.mean };
        suspend.least.0 + self.random.exponential(mean).0
    }
    /// Sends a page program to the next unit in turn; returns when it ends.
    pub(super) fn program(&mut self, now: u64) -> u64 {
        let is_fast = self.fast_left > 0;
        let time = if is_fast { self.fast_program } else { self.program };
        self.fast_left = self.fast_left.saturating_sub(1);
        let index = self.next_program;
        self.next_program = if index + 1 == self.units.len() { 0 } else { index + 1 };
        let unit = &mut self.units[index];
        unit.work = now.max(unit.work).max(unit.reads) + time;
        let end = unit.work;
        if !is_fast {
            self.collect(now, index);
        }
        end
    }
    /// The collection that comes with a program on `unit`.
    fn collect(&mut self, now: u64, unit: usize) {
        let Some(collection) = &mut self.collection else { return };
        let time = collection.table.pay(self.page) * collection.copy / self.page;
        if collection.batch == 0 {
            self.units[unit].work += time;
            return;
        }
        collection.owed += time;
        let all = collection.batch * self.units.len() as u64;
        while collection.owed >= all {
            collection.owed -= all;
            for unit in &mut self.units {
                unit.work = now.max(unit.work).max(unit.reads) + collection.batch;
            }
        }
    }

    /// The host has written these bytes. Fast flash takes them without collection, which follows in idle time.
    pub(super) fn write(&mut self, start: u64, end: u64) {
        if let Some(collection) = &mut self.collection {
            collection.table.write(start, end, self.fast_left == 0);
        }
    }
    /// The host does not need these bytes any more.
    pub(super) fn trim(&mut self, start: u64, end: u64) {
        if let Some(collection) = &mut self.collection {
            collection.table.trim(start, end);
        }
    }
    /// The drive was idle: fast flash is emptied first, then blocks are collected.
    pub(super) fn rest(&mut self, time: Nanos) {
        let Some(collection) = &mut self.collection else { return };
        let pages = (u128::from(time.0) * self.units.len() as u128) / u128::from(collection.copy);
        let pages = u64::try_from(pages).unwrap_or(u64::MAX);
        let emptied = pages.min(self.fast_pages - self.fast_left);
        self.fast_left += emptied;
        let bytes = (pages - emptied).saturating_mul(self.page);
        collection.table.rest(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
