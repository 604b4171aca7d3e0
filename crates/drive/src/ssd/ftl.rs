//! Flash translation: which pages are valid, what collection copies, and how much room is left.
//!
//! The table is that of the drive, sampled: of each group of neighbouring pages one is followed exactly, as if the drive had this
//! page only (after SHARDS, Waldspurger et al. 2015). Which one depends on the group, so that writes of any order and
//! locality meet their share of followed pages. The sampled drive has as large a part of spare blocks as the real one, so it
//! amplifies writes as much; one mechanism gives uniform, skewed and sequential writes, trim, fill level and idling.
//!
//! Blocks are erased to be written again. Collection picks the closed block with the fewest valid pages, and copies these to
//! an open block of its own.

use crate::random::Random;

use super::parameters::{Ftl, State};

/// Bytes of a page of the table.
const PAGE_BYTES: u64 = 4096;
/// Followed pages of a drive, about.
const FOLLOWED: u64 = 1 << 16;
/// Pages of a block. With fewer, greedy collection finds emptier blocks than in a real drive.
const BLOCK: u32 = 128;
/// Spare blocks at least, of a tiny drive: two are open, one is erased, and one is to be collected.
const SPARE_MIN: u64 = 4;
/// Collection lags behind the host by this many followed pages on average, so that it proceeds evenly although blocks are
/// collected whole.
const LAG: u64 = 8 * BLOCK as u64;
/// Writes until the state of a drive that is overwritten at random no longer changes, in multiples of its size.
const OVERWRITES: u64 = 3;
/// The random stream of these writes.
const STREAM_STATE: u64 = 0xF711;
const NONE: u32 = u32::MAX;

/// A block that is being written.
#[derive(Clone, Copy, Default, Debug)]
struct Open {
    next: u32,
    end: u32,
}

/// The table of the followed pages, and the copies that collection owes.
#[derive(Debug)]
pub(super) struct Translation {
    /// Pages of a group.
    group: u64,
    /// Where each followed page is, and which one each page of flash holds.
    place: Vec<u32>,
    holds: Vec<u32>,
    /// Valid pages of each block, and whether it may be collected.
    valid: Vec<u32>,
    /// Valid pages of all blocks.
    live: u64,
    closed: Vec<bool>,
    erased: Vec<u32>,
    host: Open,
    collection: Open,
    /// Erased blocks that collection aims at while the drive is idle.
    target: usize,
    /// Bytes that collection has to copy.
    debt: u64,
    /// Bytes that it may copy in idle time that has passed.
    credit: i64,
}

impl Translation {
    /// Capacity of its queue, for the test that nothing grows.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.erased.capacity()
    }
    /// The table of a drive of this many bytes, in its state.
    pub(super) fn new(capacity: u64, ftl: &Ftl, seed: u64) -> Self {
        let pages = capacity.div_ceil(PAGE_BYTES);
        let group = pages.div_ceil(FOLLOWED);
        let followed = pages.div_ceil(group);
        let block_bytes = group * PAGE_BYTES * u64::from(BLOCK);
        let blocks = (capacity + ftl.over_provisioning).div_ceil(block_bytes);
        let blocks = blocks.max(followed.div_ceil(u64::from(BLOCK)) + SPARE_MIN);
        let blocks = u32::try_from(blocks).expect("fewer than followed pages");
        let mut table = Self {
            group,
            place: vec![NONE; usize::try_from(followed).expect("few are followed")],
            holds: vec![NONE; (blocks * BLOCK) as usize],
            valid: vec![0; blocks as usize],
            live: 0,
            closed: vec![false; blocks as usize],
            erased: (0..blocks).rev().collect(),
            host: Open::default(),
            collection: Open::default(),
            target: usize::try_from(ftl.idle_reserve / block_bytes).unwrap_or(usize::MAX),
            debt: 0,
            credit: 0,
        };
        table.prepare(ftl.state, followed * u64::from(ftl.filled_percent) / 100, seed);
        table
    }
    fn prepare(&mut self, state: State, filled: u64, seed: u64) {
        if state == State::Fresh || filled == 0 {
            return;
        }
        (0..filled).for_each(|page| self.write_followed(page as u32));
        if state == State::Filled {
            return;
        }
        let mut random = Random::new(seed, STREAM_STATE);
        for _ in 0..OVERWRITES * filled {
            self.write_followed(random.below(filled) as u32);
            self.pay(self.group * PAGE_BYTES);
        }
        if state == State::Idle {
            self.rest(i64::MAX / 2);
            (self.debt, self.credit) = (0, 0);
        }
    }

    /// The followed pages among the bytes from `start` to `end`.
    fn followed(&self, start: u64, end: u64) -> impl Iterator<Item = u32> + use<> {
        let (first, last, group) = (start / PAGE_BYTES, (end - 1) / PAGE_BYTES, self.group);
        (first / group..=last / group).filter_map(move |index| {
            let within = (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % group;
            (first..=last).contains(&(index * group + within)).then_some(index as u32)
        })
    }
    /// The host has written these bytes. `owes` says whether collection has to copy what it takes to make room for them.
    pub(super) fn write(&mut self, start: u64, end: u64, owes: bool) {
        let debt = self.debt;
        self.followed(start, end).for_each(|page| self.write_followed(page));
        if !owes {
            self.debt = debt;
        }
    }
    /// The host does not need these bytes any more. Copies of them are not owed either.
    pub(super) fn trim(&mut self, start: u64, end: u64) {
        for page in self.followed(start, end) {
            if self.place[page as usize] != NONE {
                self.debt -= self.debt / self.live;
                self.invalidate(page);
            }
        }
    }

    fn write_followed(&mut self, page: u32) {
        self.invalidate(page);
        if self.host.next == self.host.end {
            while self.erased.len() < 2
                && let Some(copies) = self.collect()
            {
                self.debt += copies;
            }
            self.host = self.open(self.host);
        }
        self.live += 1;
        self.place[page as usize] = self.host.next;
        let next = &mut self.host.next;
        self.holds[*next as usize] = page;
        self.valid[(*next / BLOCK) as usize] += 1;
        *next += 1;
    }
    fn invalidate(&mut self, page: u32) {
        let place = std::mem::replace(&mut self.place[page as usize], NONE);
        if place != NONE {
            self.live -= 1;
            self.holds[place as usize] = NONE;
            self.valid[(place / BLOCK) as usize] -= 1;
        }
    }
    /// Closes a full block, and opens an erased one.
    fn open(&mut self, full: Open) -> Open {
        if full.end > 0 {
            self.closed[(full.end / BLOCK - 1) as usize] = true;
        }
        let block = self.erased.pop().expect("collection keeps a block for each of the two");
        Open { next: block * BLOCK, end: (block + 1) * BLOCK }
    }
    /// Collects the block with the fewest valid pages, and returns the bytes that have to be copied; `None` if none has room.
    fn collect(&mut self) -> Option<u64> {
        let closed = self.closed.iter().zip(&self.valid).enumerate();
        let closed =
            closed.filter_map(|(block, (closed, valid))| closed.then_some((*valid, block)));
        let (copies, block) = closed.min().filter(|(valid, _)| *valid < BLOCK)?;
        let first = block as u32 * BLOCK;
        for from in first..first + BLOCK {
            let page = std::mem::replace(&mut self.holds[from as usize], NONE);
            if page != NONE {
                if self.collection.next == self.collection.end {
                    self.collection = self.open(self.collection);
                }
                let to = self.collection.next;
                self.collection.next += 1;
                self.place[page as usize] = to;
                self.holds[to as usize] = page;
                self.valid[(to / BLOCK) as usize] += 1;
            }
        }
        self.valid[block] = 0;
        self.closed[block] = false;
        self.erased.push(block as u32);
        Some(u64::from(copies) * self.group * PAGE_BYTES)
    }

    /// Bytes that collection copies while the host writes `bytes`.
    pub(super) fn pay(&mut self, bytes: u64) -> u64 {
        let copied = self.debt / (LAG * self.group * PAGE_BYTES / bytes).max(1);
        self.debt -= copied;
        copied
    }
    /// Lets collection work while the drive is idle, as long as it takes to copy `bytes`.
    pub(super) fn rest(&mut self, bytes: i64) {
        self.credit = self.credit.saturating_add(bytes);
        while self.credit > 0 {
            let wanted = self.erased.len() < self.target;
            let Some(copies) = wanted.then(|| self.collect()).flatten() else {
                self.credit = 0;
                return;
            };
            self.credit -= i64::try_from(copies).unwrap_or(i64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_core::time::Nanos;

    const CAPACITY: u64 = 1 << 36;
    /// Commands of this length, so that the tests are quick.
    const COMMAND: u64 = 16 * PAGE_BYTES;
    const COMMANDS: u64 = CAPACITY / COMMAND;

    fn table(state: State, over_provisioning_percent: u64) -> Translation {
        let ftl = Ftl {
            state,
            filled_percent: 100,
            over_provisioning: CAPACITY / 100 * over_provisioning_percent,
            idle_reserve: CAPACITY / 50,
            copy: Nanos(1),
            batch: Nanos::ZERO,
            suspend: None,
            in_order: false,
        };
        Translation::new(CAPACITY, &ftl, 1)
    }
    /// Bytes written to flash for each byte of the host, times 1,000, while the host writes its whole drive twice.
    fn amplification(table: &mut Translation, mut place: impl FnMut(u64) -> u64) -> u64 {
        let mut copied = 0;
        for index in 0..2 * COMMANDS {
            let start = place(index) * COMMAND;
            table.write(start, start + COMMAND, true);
            copied += table.pay(COMMAND);
        }
        1_000 + copied * 1_000 / (2 * CAPACITY)
    }

    /// Goal: overwriting at random amplifies as greedy collection of large blocks does, A = a / (a + W(-a exp(-a))) with a = 1 +
    /// over-provisioning (Desnoyers 2012), from the first write on. Method: 7, 10 and 28 %.
    #[test]
    fn random_writes_amplify_as_greedy_collection_does() {
        for (percent, expected) in [(7, 7_817), (10, 5_677), (28, 2_481)] {
            let mut random = Random::new(5, 5);
            let mut table = table(State::Overwritten, percent);
            let seen = amplification(&mut table, |_| random.below(COMMANDS));
            assert!(seen.abs_diff(expected) < expected / 25, "{percent} %: {seen}, not {expected}");
        }
    }

    /// Goal: writes in order amplify nothing, on a filled drive at once and on one that was overwritten at random once they have
    /// gone over it. Method: the whole drive in order, several times.
    #[test]
    fn sequential_writes_do_not_amplify() {
        let mut filled = table(State::Filled, 7);
        let seen = amplification(&mut filled, |index| index % COMMANDS);
        assert!(seen < 1_010, "{seen}");
        let mut overwritten = table(State::Overwritten, 7);
        amplification(&mut overwritten, |index| index % COMMANDS);
        let seen = amplification(&mut overwritten, |index| index % COMMANDS);
        assert!(seen < 1_010, "{seen}");
    }

    /// Goal: skewed writes amplify as in measured drives. Method: 95 % of the writes to 5 % of the drive, 13 % more than the 4.2
    /// of uniform ones. SSD-iq's PE8110, CM7-R and 7450 write 13 to 19 % less then.
    #[test]
    fn skewed_writes_amplify_more() {
        let mut table = table(State::Overwritten, 14);
        let mut random = Random::new(5, 5);
        let hot = COMMANDS / 20;
        let mut skewed = |_| match random.chance(95) {
            // Hot places are all over the drive.
            true => random.below(hot) * 20,
            false => random.below(COMMANDS),
        };
        amplification(&mut table, &mut skewed);
        let seen = amplification(&mut table, &mut skewed);
        assert!((4_550..4_950).contains(&seen), "{seen}");
    }

    /// Goal: room decides: a fresh drive and a half full one amplify little, and trim makes room. Method: random writes to half
    /// of a fresh drive, and to a drive of which half is trimmed.
    #[test]
    fn trim_makes_room() {
        let mut random = Random::new(5, 5);
        let mut half = |_| random.below(COMMANDS / 2);
        assert!(amplification(&mut table(State::Fresh, 7), &mut half) < 1_250);
        let mut trimmed = table(State::Overwritten, 7);
        let owed = trimmed.debt;
        trimmed.trim(CAPACITY / 2, CAPACITY);
        assert!((owed * 9 / 20..owed * 11 / 20).contains(&trimmed.debt));
        amplification(&mut trimmed, &mut half);
        let seen = amplification(&mut trimmed, &mut half);
        assert!(seen < 1_250, "{seen}");
    }

    /// Goal: collection in idle time makes room for a while. Method: a drive that rested writes its reserve without copies,
    /// and then as before; rests in between have no effect beyond the reserve.
    #[test]
    fn rest_makes_room() {
        let mut random = Random::new(5, 5);
        let mut table = table(State::Idle, 7);
        table.rest(1 << 50);
        let copied: Vec<u64> = (0..40)
            .map(|_| {
                (0..COMMANDS / 100)
                    .map(|_| {
                        let start = random.below(COMMANDS) * COMMAND;
                        table.write(start, start + COMMAND, true);
                        table.pay(COMMAND)
                    })
                    .sum::<u64>()
                    * 100
                    / CAPACITY
            })
            .collect();
        assert_eq!(copied[..1], [0], "{copied:?}");
        assert!(copied[39] >= 5, "{copied:?}");
    }
}
