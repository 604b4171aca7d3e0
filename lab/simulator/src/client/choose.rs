//! Chooses direction, place and length of the next call of a job whose calls differ.

use std::collections::BTreeMap;

use iofair_core::unit::Sectors;
use iofair_drive::random::Random;

use super::places::{Order, Places};
use crate::scenario::{Calls, Direction, Distribution, Files, Gap, Job, Mix, Sizes, Turn};

/// Chooses calls.
#[derive(Debug)]
pub(crate) struct Chooser {
    mix: Mix,
    sequential: bool,
    turn: Turn,
    sides: [Side; 3],
    /// Of the file.
    size: Sectors,
    /// Files in turn, the calls of each, and those made in all.
    files: Option<Files>,
    of_each: u64,
    made: u64,
    /// What was trimmed last in each file and is to be written next.
    trimmed: BTreeMap<u64, (Sectors, Sectors)>,
    /// The order of all blocks, shared by all directions.
    order: Option<Order>,
    /// Whether the present call is the first of another round through all blocks.
    began_anew: bool,
    /// Bytes of the present pass, and of all passes before it.
    pass: u64,
    done: u64,
}

/// The calls of one direction.
#[derive(Debug)]
struct Side {
    sizes: Sizes,
    least: Sectors,
    /// Places of random calls are multiples of this; `blocks` is their number in the file.
    unit: Sectors,
    blocks: u64,
    /// `None`: uniformly distributed.
    places: Option<Places>,
    /// Where the next call goes that follows the last one.
    position: Sectors,
    /// Calls that are left of a turn.
    turn_left: u64,
}

impl Side {
    fn length(&self, random: &mut Random) -> Sectors {
        let [(only, _)] = self.sizes[..] else {
            let mut drawn = random.below(100) as u32;
            for (size, percent) in &self.sizes {
                if drawn < *percent {
                    return *size;
                }
                drawn -= percent;
            }
            return self.least;
        };
        only
    }
    fn anywhere(&self, random: &mut Random) -> Sectors {
        let block = match &self.places {
            Some(places) => places.draw(random),
            None => random.below(self.blocks),
        };
        Sectors(block * self.unit.0)
    }
}

/// The smallest call of a direction.
pub(crate) fn least(job: &Job, direction: Direction) -> Sectors {
    job.calls.sizes[direction.index()].iter().map(|size| size.0).min().unwrap_or(job.block)
}

impl Chooser {
    pub(crate) fn new(job: &Job, size: Sectors, random: &mut Random) -> Self {
        let Calls { mix, sizes, distribution, turn, files, align, .. } = &job.calls;
        let side = |direction: Direction| {
            let (least, sizes) = (least(job, direction), &sizes[direction.index()]);
            let sizes = if sizes.is_empty() { vec![(job.block, 100)] } else { sizes.clone() };
            let unit = align.unwrap_or(least).max(Sectors(1));
            let blocks = size.0.checked_sub(least.0).map_or(1, |room| room / unit.0 + 1);
            let uniform = matches!(distribution, Distribution::Uniform | Distribution::Once);
            let places = (!uniform).then(|| Places::new(distribution, blocks, &mut random.clone()));
            Side { sizes, least, unit, blocks, places, position: Sectors::ZERO, turn_left: 0 }
        };
        let sides = Direction::ALL.map(side);
        // `Places` drew from a copy of the generator, so that all directions have the same hot blocks.
        random.bits();
        let sequential = job.pattern.is_sequential();
        let alike = sizes.iter().all(Vec::is_empty) && *turn == Turn::Each && !sequential;
        let once = alike && *distribution == Distribution::Once;
        let order = once.then(|| Order::new(sides[0].blocks, random));
        let of_file = |files: &Files| size.0 / files.number / job.block.0 * mix.calls_of_block();
        Self {
            mix: *mix,
            sequential,
            turn: *turn,
            sides,
            size,
            files: *files,
            of_each: files.as_ref().map_or(0, of_file),
            made: 0,
            trimmed: BTreeMap::new(),
            order,
            began_anew: false,
            pass: 0,
            done: 0,
        }
    }

    /// Whether all blocks had been used before the present call.
    pub(crate) fn began_anew(&mut self) -> bool {
        std::mem::take(&mut self.began_anew)
    }
    /// The direction of the next call, by chance.
    pub(crate) fn direction(&mut self, plain: Direction, random: &mut Random) -> Direction {
        let file = self.in_turn().0;
        match self.mix {
            Mix::Pattern => plain,
            Mix::ReadsAndWrites { reads } if random.chance(reads) => Direction::Read,
            Mix::ReadsAndWrites { .. } => Direction::Write,
            Mix::Trims => Direction::Trim,
            Mix::TrimsThenWrites if self.trimmed.contains_key(&file) => Direction::Write,
            Mix::TrimsThenWrites => Direction::Trim,
        }
    }
    /// The direction that may take the place of another whose pace does not allow a call yet.
    pub(crate) fn other(&self, direction: Direction) -> Option<Direction> {
        match (self.mix, direction) {
            (Mix::ReadsAndWrites { reads }, Direction::Read) if reads < 100 => {
                Some(Direction::Write)
            }
            (Mix::ReadsAndWrites { reads }, Direction::Write) if reads > 0 => Some(Direction::Read),
            _ => None,
        }
    }
    /// The length of the next sequential call at `offset`.
    pub(crate) fn length_at(
        &self,
        direction: Direction,
        offset: Sectors,
        most: Sectors,
        random: &mut Random,
    ) -> Sectors {
        let side = &self.sides[direction.index()];
        side.length(random).min(most).min(self.size - offset)
    }

    /// Place and length of the next call; not longer than `most`. `None`: the job has ended.
    pub(crate) fn next(
        &mut self,
        direction: Direction,
        most: Sectors,
        random: &mut Random,
    ) -> Option<(Sectors, Sectors)> {
        let (file, calls) = self.in_turn();
        self.made += 1;
        if let Some(range) = self.trimmed.remove(&file) {
            return Some(range);
        }
        let offset = match self.turn {
            Turn::Gap(gap) => self.with_gap(direction, gap)?,
            _ if self.sequential => self.in_sequence(direction, file, calls),
            _ => self.offset(direction, random),
        };
        let side = &mut self.sides[direction.index()];
        // A call ends at the end of the file.
        let length = side.length(random).min(self.size - offset).min(most);
        let whole = Sectors(length.0 / side.least.0 * side.least.0);
        let length = if whole > Sectors::ZERO { whole } else { length };
        if !matches!(self.turn, Turn::Same(_)) || self.sequential {
            side.position = offset + length;
        }
        self.pass += length.bytes();
        if self.mix == Mix::TrimsThenWrites {
            self.trimmed.insert(file, (offset, length));
        }
        Some((offset, length))
    }
    /// The file of the next call, and the number of its calls before.
    fn in_turn(&mut self) -> (u64, u64) {
        let Some(files) = &self.files else { return (0, 0) };
        let turn = files.turn(self.made, self.of_each).filter(|_| self.made < files.pass);
        turn.unwrap_or_else(|| {
            (self.made, self.trimmed) = (0, BTreeMap::new());
            (0, 0)
        })
    }
    /// Where a sequential call goes that comes after so many in its file.
    fn in_sequence(&self, direction: Direction, file: u64, calls: u64) -> Sectors {
        let Side { position: end, least, .. } = self.sides[direction.index()];
        match &self.files {
            Some(files) => {
                let block = calls / self.mix.calls_of_block();
                Sectors(self.size.0 / files.number * file + least.0 * block)
            }
            None if end + least <= self.size => end,
            None => Sectors::ZERO,
        }
    }
    /// Where a call goes that does not follow the last one; `None` if the last pass has ended.
    fn with_gap(&mut self, direction: Direction, gap: Gap) -> Option<Sectors> {
        let side = &self.sides[direction.index()];
        let is_full = gap.passes.is_some_and(|passes| self.pass >= passes.bytes);
        let fits = |place: &Sectors| *place + side.least <= self.size;
        let next = || gap.after(side.position).filter(fits);
        if let Some(place) = (!is_full).then(next).flatten() {
            return Some(place);
        }
        self.done += self.pass;
        if let Turn::Gap(Gap { passes: Some(passes), .. }) = &mut self.turn {
            passes.end(self.pass, self.done).then_some(())?;
        }
        self.pass = 0;
        self.sides.iter_mut().for_each(|side| side.position = Sectors::ZERO);
        let side = &self.sides[direction.index()];
        gap.after(Sectors::ZERO).filter(|place| *place + side.least <= self.size)
    }
    fn offset(&mut self, direction: Direction, random: &mut Random) -> Sectors {
        let size = self.size;
        let side = &mut self.sides[direction.index()];
        let fits = side.position + side.least <= size;
        let turn = match self.turn {
            Turn::Run(calls) | Turn::Same(calls) => calls,
            _ => 1,
        };
        if side.turn_left > 0 && fits {
            side.turn_left -= 1;
            return side.position;
        }
        self.began_anew = self.order.as_ref().is_some_and(Order::is_through);
        side.turn_left = turn.saturating_sub(1);
        side.position = match &mut self.order {
            Some(order) => Sectors(order.next(random) * side.unit.0),
            None => side.anywhere(random),
        };
        side.position
    }
}

impl Gap {
    /// Where the call begins that follows one with this end, as with fio 3.33. Where fio compares a distance from the first call
    /// with a place in the file, so does this.
    fn after(&self, end: Sectors) -> Option<Sectors> {
        let [start, reach, room] = [self.start, self.reach, self.room].map(|bytes| bytes as i64);
        let mut place = end.bytes() as i64;
        let gap = self.sectors.saturating_mul(512);
        let found = |place: i64| Some(Sectors(place as u64 / 512));
        if self.zone > 0 {
            let stride = self.zone.saturating_add_signed(self.sectors);
            if end > Sectors::ZERO && end.0 % stride == self.zone % stride {
                place = Some(place.saturating_add(gap)).filter(|place| *place < room).unwrap_or(0);
            }
            return found(place).filter(|_| place < room);
        }
        if place >= reach && self.passes.is_none() {
            place = 0;
        }
        let top = reach.min(start + room);
        if place >= room {
            return None;
        }
        if place == 0 && start > 0 && gap < 0 {
            place = top - start;
        }
        if place != 0 && gap != 0 {
            place = place.saturating_add(gap);
            if !(0..start + room).contains(&place) {
                place = if gap > 0 { start } else { top + gap };
            }
        }
        found(place).filter(|_| (0..reach.min(room)).contains(&place))
    }
}

impl Files {
    /// The file of the call with this number, and the number of that file's calls before; `None` behind the last one. The last turns
    /// are shorter if the calls of a file are no multiple of a turn's.
    fn turn(&self, call: u64, of_each: u64) -> Option<(u64, u64)> {
        let rounds = of_each / self.calls;
        let (turn, done, nth) = match call.checked_sub(rounds * self.calls * self.number) {
            None => {
                let round = self.calls * self.number;
                (self.calls, call / round * self.calls, call % round)
            }
            Some(nth) => (of_each % self.calls, rounds * self.calls, nth),
        };
        (call < of_each * self.number).then(|| (nth / turn, done + nth % turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Passes, Pattern};
    use crate::testing::{job, kib};

    /// A pass of any length through a file of 64k.
    const GAP: Gap = {
        let passes = Passes { number: 1, bytes: u64::MAX, wanted: 0, goes_on: false, most: 0 };
        let reach = 64 << 10;
        Gap { sectors: 0, zone: 0, start: 0, reach, room: reach, passes: Some(passes) }
    };

    fn chooser(pattern: Pattern, calls: Calls, size: Sectors) -> (Chooser, Random) {
        let mut random = Random::new(1, 9);
        let job = Job { calls, ..job(pattern, 4, false) };
        (Chooser::new(&job, size, &mut random), random)
    }

    /// Goal: sizes and directions come as often as they should. Method: 100,000 calls of a mix with two sizes of reads.
    #[test]
    fn shares_are_kept() {
        let sizes = [vec![(kib(4), 90), (kib(64), 10)], Sizes::new(), Sizes::new()];
        let mix = Mix::ReadsAndWrites { reads: 70 };
        let calls = Calls { mix, sizes, ..Calls::default() };
        let (mut chooser, mut random) = chooser(Pattern::RandomRead, calls, kib(1 << 20));
        let (mut reads, mut long) = (0, 0);
        for _ in 0..100_000 {
            let direction = chooser.direction(Direction::Read, &mut random);
            let (offset, length) = chooser.next(direction, Sectors(u64::MAX), &mut random).unwrap();
            assert!(offset + length <= kib(1 << 20) && offset.0 % 8 == 0);
            if direction == Direction::Read {
                reads += 1;
                long += u32::from(length == kib(64));
            } else {
                assert_eq!(length, kib(4));
            }
        }
        assert!((69_000..71_000).contains(&reads), "{reads}");
        assert!((6_700..7_300).contains(&long), "{long}");
    }

    /// Goal: places are aligned as asked, and calls end in the file. Method: calls of 4 KiB at multiples of 16 KiB, and of 1.
    #[test]
    fn places_are_aligned() {
        for (align, kept) in [(kib(16), 16), (kib(1), 1)] {
            let calls = Calls { align: Some(align), ..Calls::default() };
            let (mut chooser, mut random) = chooser(Pattern::RandomRead, calls, kib(64));
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..2_000 {
                let (offset, length) =
                    chooser.next(Direction::Read, Sectors(u64::MAX), &mut random).unwrap();
                assert!(length == kib(4) && offset + length <= kib(64));
                seen.insert(offset.bytes() >> 10);
            }
            assert_eq!(seen.len() as u64, 60 / kept + 1);
            assert!(seen.iter().all(|place| place % kept == 0));
        }
    }

    /// Goal: sequential calls, gaps, runs and repetitions go where fio's manual says. Method: the first offsets of each.
    #[test]
    fn turns_go_where_they_should() {
        let offsets = |pattern, turn, count| {
            let (mut chooser, mut random) =
                chooser(pattern, Calls { turn, ..Calls::default() }, kib(64));
            let mut next = || chooser.next(Direction::Read, Sectors(u64::MAX), &mut random);
            (0..count).map(|_| next().unwrap().0.bytes() >> 10).collect::<Vec<u64>>()
        };
        let sequential = Pattern::SequentialRead;
        assert_eq!(offsets(sequential, Turn::Each, 3), [0, 4, 8]);
        assert_eq!(offsets(sequential, Turn::Each, 17)[16], 0, "the end of the file");
        let back = Turn::Gap(Gap { sectors: -16, ..GAP });
        let backwards = offsets(sequential, back, 18);
        let wanted = [0, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0, 56, 52];
        assert_eq!(backwards, wanted, "as fio 3.33 does it");
        let runs = offsets(Pattern::RandomRead, Turn::Run(4), 400);
        let follows = |pair: &&[u64]| pair[1] == pair[0] + 4;
        assert!(runs.windows(2).filter(follows).count() >= 250);
        let same = offsets(Pattern::RandomRead, Turn::Same(4), 40);
        assert!(same.chunks(4).all(|four| four.iter().all(|place| *place == four[0])), "{same:?}");
        assert!(same.chunks(4).any(|four| four[0] != same[0]));
    }

    /// Goal: a mix with gaps goes where fio 3.33 goes, and ends where it ends. Method: sizes in blocks of 4 KiB, what follows the
    /// last call, and calls from fio's log (`--write_iolog`) with the direction in which it could make none.
    #[test]
    fn gaps_of_a_mix_are_fios() {
        const PASS: &str = "r0 r3 r6 w0 r9 r12 w3 w6 w9 r15 w12";
        let passes = |number, size| {
            Some(Passes { number, bytes: size, wanted: size, goes_on: false, most: 4096 })
        };
        for (gap, blocks, start, number, log) in [
            // Sizes of 124k, and of 64k twice: the last call ends with the file.
            (2, 31, 0, 1, "r0 r3 r6 w0 r9 r12 w3 r15 r18 r21 w6 r24 w9 r27 r30 r!"),
            (2, 16, 0, 2, &[PASS, PASS, "r!"].join(" ")),
            // 128k: a call behind r30 would begin behind the end.
            (2, 32, 0, 1, "r0 r3 r6 r9 r12 r15 r18 w0 r21 r24 r27 r30 r0 w3 r3"),
            // The same of a part of a file: --offset=64k.
            (2, 32, 16, 1, "r0 r3 r6 r9 r12 r15 r18 w0 r21 r24 r27 r30 w3 r!"),
            // --time_based
            (2, 16, 0, 0, "r0 r3 r6 w0 r9 r12 w3 r15 r0 r3 w6 r6 w9 r9 w12 w15 r12 w0"),
        ] {
            let (size, start) = (blocks << 12, start << 12);
            let passes = passes(number, size).filter(|_| number > 0);
            let gap = Gap { sectors: gap * 8, zone: 0, start, reach: size, room: size, passes };
            let turn = Turn::Gap(gap);
            let mix = Mix::ReadsAndWrites { reads: 50 };
            let calls = Calls { turn, mix, ..Calls::default() };
            let (mut chooser, mut random) =
                chooser(Pattern::SequentialRead, calls, kib(4 * blocks));
            for call in log.split(' ') {
                let (direction, place) = call.split_at(1);
                let direction = if direction == "r" { Direction::Read } else { Direction::Write };
                let got = chooser.next(direction, Sectors(u64::MAX), &mut random);
                let wanted = place.parse().ok().map(|block: u64| (kib(4 * block), kib(4)));
                assert_eq!(got, wanted, "{call} of {log}");
            }
        }
    }

    /// Goal: zones are read, and skipped, as by fio 3.33, again and again. Method: its log with zones of 16k and 32k between them in
    /// files of 256k and of 250k.
    #[test]
    fn zones_are_fios() {
        for (blocks, log) in [
            (64, &[0, 1, 2, 3, 12, 13, 14, 15, 24, 25, 26, 27, 36, 37, 38, 39, 48][..]),
            (62, &[0, 1, 2, 3, 12, 13, 14, 15, 24, 25, 26, 27, 36, 37, 38, 39, 48]),
        ] {
            let gap = Gap { sectors: 64, zone: 32, room: blocks << 12, ..GAP };
            let calls = Calls { turn: Turn::Gap(gap), ..Calls::default() };
            let (mut chooser, mut random) =
                chooser(Pattern::SequentialRead, calls, kib(4 * blocks));
            let mut next = || chooser.next(Direction::Read, Sectors(u64::MAX), &mut random);
            for block in log.iter().copied().chain([49, 50, 51, 60, 61]) {
                assert_eq!(next(), Some((kib(4 * block), kib(4))), "{block} of {blocks}");
            }
            match blocks {
                64 => assert_eq!(
                    [62, 63, 0, 1].map(|block| Some((kib(4 * block), kib(4)))),
                    [next(), next(), next(), next()]
                ),
                _ => assert_eq!(next(), None, "62 would end behind the file"),
            }
        }
    }

    /// Goal: files are used in turn as by fio 3.33, again and again. Method: its log (`--write_iolog`) of two files of 20k with one
    /// call and two in a turn, file and block.
    #[test]
    fn turns_between_files_are_fios() {
        for (calls, log) in [
            (1, [0, 100, 1, 101, 2, 102, 3, 103, 4, 104, 0, 100]),
            (2, [0, 1, 100, 101, 2, 3, 102, 103, 4, 104, 0, 1]),
        ] {
            let files = Some(Files { number: 2, calls, pass: u64::MAX });
            let calls = Calls { files, ..Calls::default() };
            let (mut chooser, mut random) = chooser(Pattern::SequentialRead, calls, kib(42));
            for call in log {
                let (place, length) =
                    chooser.next(Direction::Read, Sectors(u64::MAX), &mut random).unwrap();
                let wanted = Sectors(call / 100 * 42) + kib(call % 100 * 4);
                assert_eq!((place, length), (wanted, kib(4)), "{call}");
            }
        }
    }

    /// Goal: trims and writes of several files go where fio 3.33 goes. Method: its log of two files of 16k with three and with one call in a
    /// turn, file and block.
    #[test]
    fn trims_and_writes_of_files_are_fios() {
        for (calls, pass, log) in [
            (3, u64::MAX, "t0 w0 t1 t100 w100 t101 w1 t2 w2 w101 t102 w102 t3 w3 t103 w103 t0"),
            (1, u64::MAX, "t0 t100 w0 w100 t1 t101 w1 w101 t2 t102 w2 w102 t3 t103 w3 w103 t0"),
            // A pass ends before all is written that was trimmed.
            (1, 5, "t0 t100 w0 w100 t1 t0 t100"),
        ] {
            let files = Some(Files { number: 2, calls, pass });
            let calls = Calls { files, mix: Mix::TrimsThenWrites, ..Calls::default() };
            let (mut chooser, mut random) = chooser(Pattern::SequentialWrite, calls, kib(32));
            for call in log.split(' ') {
                let direction = chooser.direction(Direction::Write, &mut random);
                let (place, _) =
                    chooser.next(direction, Sectors(u64::MAX), &mut random).expect("it goes on");
                let kind = if direction == Direction::Trim { 't' } else { 'w' };
                let block = place.bytes() >> 12;
                assert_eq!(format!("{kind}{}", block / 4 * 100 + block % 4), call, "{log}");
            }
        }
    }

    /// Goal: a block is trimmed before it is written; a mix goes on separately in each direction. Method: the first calls.
    #[test]
    fn directions_go_on_by_themselves() {
        use Direction::{Read, Trim, Write};
        let trims = Calls { mix: Mix::TrimsThenWrites, ..Calls::default() };
        let (mut trimming, mut random) = chooser(Pattern::SequentialWrite, trims, kib(64));
        let mut told = Vec::new();
        for _ in 0..4 {
            let direction = trimming.direction(Write, &mut random);
            let place = trimming.next(direction, Sectors(u64::MAX), &mut random);
            told.push((direction, place.unwrap().0));
        }
        assert_eq!(told, [(Trim, kib(0)), (Write, kib(0)), (Trim, kib(4)), (Write, kib(4))]);
        let mix = Calls { mix: Mix::ReadsAndWrites { reads: 50 }, ..Calls::default() };
        let (mut mixed, mut random) = chooser(Pattern::SequentialRead, mix, kib(64));
        let mut at = |direction| mixed.next(direction, Sectors(u64::MAX), &mut random).unwrap().0;
        assert_eq!(
            [at(Read), at(Read), at(Write), at(Read), at(Write)].map(|place| place.0 / 8),
            [0, 1, 0, 2, 1]
        );
    }
}
