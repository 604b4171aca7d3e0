//! The flash units: each processes one page at a time, in the order in which pages are sent to it.
//!
//! A unit is a plain FIFO server, so the time at which a page is finished is known when it is sent, and no event is
//! needed for its start.

use crate::random::Random;

use super::Parameters;

/// The random stream of page times; a drive has only this actor.
const STREAM_FLASH: u64 = 0xF1A5;

#[derive(Debug)]
pub(super) struct Flash {
    /// When each unit will have processed everything that was sent to it.
    free: Vec<u64>,
    random: Random,
    read_least: u64,
    read_width: u64,
    program: u64,
    /// Time of a program while there is fast flash, and the number of fast pages left.
    fast_program: u64,
    fast_pages: u64,
    /// Unit of the next program; units are used in turn.
    next_program: usize,
}

impl Flash {
    pub(super) fn new(parameters: &Parameters, seed: u64) -> Self {
        let mean = parameters.page_read.0;
        let spread = mean * u64::from(parameters.page_read_spread) / 100;
        Self {
            free: vec![0; parameters.units as usize],
            random: Random::new(seed, STREAM_FLASH),
            read_least: mean - spread,
            read_width: 2 * spread + 1,
            program: parameters.page_program().0,
            fast_program: parameters.slc.map_or(0, |slc| parameters.program_at(slc.drain).0),
            fast_pages: parameters.slc.map_or(0, |slc| slc.size / parameters.page),
            next_program: 0,
        }
    }
    pub(super) fn units(&self) -> u32 {
        u32::try_from(self.free.len()).expect("built from a u32")
    }
    /// The shortest time of a page read.
    pub(super) fn read_least(&self) -> u64 {
        self.read_least
    }
    /// Sends a page read to `unit`; returns when the page has been read.
    pub(super) fn read(&mut self, now: u64, unit: u32) -> u64 {
        let time = self.read_least + self.random.below(self.read_width);
        let free = &mut self.free[unit as usize];
        *free = now.max(*free) + time;
        *free
    }
    /// Sends a page program to the next unit in turn; returns when it ends.
    pub(super) fn program(&mut self, now: u64) -> u64 {
        let unit = self.next_program;
        self.next_program = if unit + 1 == self.free.len() { 0 } else { unit + 1 };
        let free = &mut self.free[unit];
        let time = if self.fast_pages > 0 { self.fast_program } else { self.program };
        self.fast_pages = self.fast_pages.saturating_sub(1);
        *free = now.max(*free) + time;
        *free
    }
}
