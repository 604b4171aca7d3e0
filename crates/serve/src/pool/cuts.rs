//! Goal: whenever the power goes, a pool opens as it was before or after the change in progress, with everything that
//! was acknowledged, and no volume reads a byte of another. Method: random changes on a drive with a volatile cache,
//! each with a cut in a random call; then the table and every byte of every volume against a model, and every free byte
//! that the table does not call dirty is zero. Between changes parts of the dirty extents are zeroed, as in the background
//! of a server, with cuts too. Canaries: a drive whose sync does nothing, a change that leaves out a sync, one that leaves
//! out the zeroes, and a table that calls extents clean before they are zeroed must be found out.
//!
//! `IOFAIR_CUTS=10000` makes at least this many cuts.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::format::{BLOCK, Extent, Record, State, Table};
use super::import::Found;
use super::medium::Medium;
use super::simulated::{Drive, Random};
use super::table::{Free, Wanted, joined, without};
use super::{Omit, Pool, PoolError};

/// Bytes of the drive: head, two small slots and room for some volumes.
const BYTES: usize = 1 << 21;
/// Changes of a pool's life.
const CHANGES: u64 = 16;
/// A change has at most this many calls that the power can go in, most of the time.
const CALLS: u64 = 10;
/// Cuts in an ordinary run.
const CUTS: u64 = 400;

/// What is wrong with the drive or the program.
#[derive(Clone, Copy, Default)]
struct Mistake {
    lies: bool,
    omit: Omit,
    /// Extents leave the list of dirty ones before they are zeroed.
    early: bool,
}

/// One pool and what is known of it.
struct World {
    drive: Drive,
    random: Random,
    mistake: Mistake,
    /// What volumes hold.
    bytes: BTreeMap<Uuid, Vec<u8>>,
    names: u64,
    cuts: u64,
}

/// A contract file's line.
#[derive(Clone)]
struct Line {
    id: Option<Uuid>,
    name: String,
    group: String,
    size: u64,
}

fn lines(table: &Table) -> Vec<Line> {
    let live = table.volumes.iter().filter(|volume| volume.state == State::Live);
    let line = |volume: &Record| Line {
        id: Some(volume.id),
        name: volume.name.clone(),
        group: volume.group.clone(),
        size: volume.size,
    };
    live.map(line).collect()
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> Self {
        let mut random = Random(seed);
        let file = random.below(2) == 0;
        let mut drive = Drive::new(if file { 0 } else { BYTES }, file, random.next());
        if !file {
            // Somebody used the device before.
            let junk: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8 | 1).collect();
            drive.write_durably(0, &junk);
        }
        drive.lies = mistake.lies;
        Self { drive, random, mistake, bytes: BTreeMap::new(), names: 0, cuts: 0 }
    }
    /// Lets the power go in one of the next calls.
    fn arm(&mut self, calls: u64) {
        let after = 1 + self.random.below(calls);
        self.drive.cut_after(after);
    }
    /// Power again if it had gone, and none planned.
    fn settle(&mut self) {
        if self.drive.is_dead() {
            self.cuts += 1;
        }
        let dead = self.drive.is_dead();
        let drive = std::mem::replace(&mut self.drive, Drive::new(0, true, 0));
        self.drive = if dead { drive.restart() } else { drive };
        self.drive.cut_after(u64::MAX);
    }
    fn create(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            self.arm(CALLS);
            let created = Pool::create(&mut self.drive, false).is_ok();
            self.settle();
            match Pool::open(&mut self.drive) {
                Ok(pool) if pool.table().volumes.is_empty() => return Ok(()),
                Ok(_) => return Err("a new pool has volumes".into()),
                Err(PoolError::Absent) if !created => {}
                Err(error) => return Err(format!("a new pool does not open: {error:?}")),
            }
        }
        Pool::create(&mut self.drive, false).map_err(|error| format!("{error:?}"))?;
        Ok(())
    }
    /// What the contracts say next, and which volumes shall be deleted.
    fn next(&mut self, table: &Table) -> (Vec<Line>, Vec<String>) {
        let (mut lines, mut delete) = (lines(table), Vec::new());
        let size = (1 + self.random.below(300)) * 512;
        let group = ["g", "h"][self.random.below(2) as usize].to_string();
        let index = self.random.below(lines.len() as u64) as usize;
        self.names += 1;
        let name = format!("v{}", self.names);
        let kept: Vec<&Record> =
            table.volumes.iter().filter(|volume| volume.state == State::Kept).collect();
        match self.random.below(8) {
            _ if lines.is_empty() => lines.push(Line { id: None, name, group, size }),
            0 | 1 => lines.insert(index, Line { id: None, name, group, size }),
            2 => delete.push(lines.remove(index).name),
            3 | 4 => lines[index].size = size,
            5 => lines[index].name = name,
            6 => drop(lines.remove(index)),
            _ => match kept.first() {
                Some(volume) if self.random.below(2) == 0 => delete.push(volume.name.clone()),
                Some(volume) => lines.push(Line {
                    id: Some(volume.id),
                    name: volume.name.clone(),
                    group,
                    size: volume.size,
                }),
                None => lines.reverse(),
            },
        }
        (lines, delete)
    }
    /// One change, cut or not. Returns whether it was one.
    fn change(&mut self) -> Result<(), String> {
        let pool = Pool::open(&mut self.drive).map_err(|error| format!("{error:?}"))?;
        let old = pool.table().clone();
        let (lines, delete) = self.next(&old);
        let wanted: Vec<Wanted<'_>> = lines
            .iter()
            .map(|line| Wanted {
                id: line.id,
                name: &line.name,
                group: &line.group,
                size: line.size,
                shrink: true,
                take_over: true,
            })
            .collect();
        self.arm(2 * CALLS);
        let mut pool = Pool::open(&mut self.drive).map_err(|error| format!("{error:?}"))?;
        pool.omit = self.mistake.omit;
        let free = Free::new(pool.table(), pool.superblock(), pool.grows(), &[]);
        // A full pool refuses; that is no change.
        let Ok(grown) = old.with(&wanted, free) else {
            drop(pool);
            self.drive.cut_after(u64::MAX);
            return Ok(());
        };
        let cut = grown.cut(&delete);
        let mut acknowledged = 0;
        for table in [&grown, &cut] {
            if pool.commit(table.clone(), &mut |_, _| {}).is_err() {
                break;
            }
            acknowledged += 1;
        }
        drop(pool);
        self.settle();
        self.judge(&[&old, &grown, &cut], acknowledged)
    }
    /// Which of these tables is in force, not older than what was acknowledged? Then every byte of it is compared.
    fn judge(&mut self, tables: &[&Table], acknowledged: usize) -> Result<(), String> {
        // The power may go again while the pool is opened.
        self.arm(2 * CALLS);
        drop(Pool::open(&mut self.drive));
        self.settle();
        let pool = Pool::open(&mut self.drive);
        let found = pool.map_err(|error| format!("it does not open: {error:?}"))?.table().clone();
        let state = (acknowledged..tables.len()).find(|i| tables[*i].volumes == found.volumes);
        if state.is_none() {
            return Err(format!("neither before nor after: {found:?}"));
        }
        self.judge_free()?;
        let known: Vec<Uuid> = found.volumes.iter().map(|volume| volume.id).collect();
        self.bytes.retain(|id, _| known.contains(id));
        for volume in &found.volumes {
            let bytes = self.bytes.entry(volume.id).or_default();
            let (size, there) = (volume.size as usize, content(&self.drive, volume));
            bytes.resize(size, 0);
            if *bytes != there[..size] {
                return Err(format!("\"{}\" has other bytes", volume.name));
            }
            if volume.is_cut_short() {
                // If it grows before the change that made it shorter has come to its end, it has what it had.
                *bytes = there;
            }
        }
        Ok(())
    }
    /// Every free block that is not dirty is zeroes.
    fn judge_free(&mut self) -> Result<(), String> {
        let pool = Pool::open(&mut self.drive).map_err(|error| format!("{error:?}"))?;
        let mut taken = pool.superblock().reserved();
        taken.extend(pool.table().assigned());
        taken.extend(&pool.table().dirty);
        let all = [Extent { start: 0, blocks: pool.superblock().blocks }];
        drop(pool);
        for extent in without(&all, &joined(taken)) {
            let mut bytes = vec![0; (extent.blocks * BLOCK) as usize];
            self.drive.read(extent.start * BLOCK, &mut bytes).map_err(|error| error.to_string())?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Err(format!("{extent:?} is free, not dirty, and not zero"));
            }
        }
        Ok(())
    }
    /// A part of the dirty extents is zeroed and taken off the list, cut or not.
    fn clean(&mut self) -> Result<(), String> {
        let pool = Pool::open(&mut self.drive).map_err(|error| format!("{error:?}"))?;
        let old = pool.table().clone();
        let mut zeroed = old.dirty.clone();
        zeroed.retain(|_| self.random.below(2) == 0);
        for extent in &mut zeroed {
            let skipped = self.random.below(extent.blocks);
            extent.start += skipped;
            extent.blocks = 1 + self.random.below(extent.blocks - skipped);
        }
        self.arm(CALLS);
        let mut pool = Pool::open(&mut self.drive).map_err(|error| format!("{error:?}"))?;
        pool.omit = self.mistake.omit;
        let mut made = || -> Result<(), PoolError> {
            if self.mistake.early {
                pool.cleaned(&zeroed)?;
            }
            for extent in zeroed.iter().filter(|_| self.mistake.omit != Omit::Zeroes) {
                pool.medium.zero(extent.start * BLOCK, extent.blocks * BLOCK)?;
            }
            pool.cleaned(&zeroed)
        };
        // Whether it was cut shows in what is there afterwards.
        let _ = made();
        drop(pool);
        self.settle();
        self.judge(&[&old], 0)
    }
    /// Clients write somewhere, and flush.
    fn write(&mut self) {
        let Ok(pool) = Pool::open(&mut self.drive) else { return };
        let table = pool.table().clone();
        for volume in &table.volumes {
            let at = self.random.below(volume.size / 512) * 512;
            let length = 512 * (1 + self.random.below((volume.size - at) / 512));
            let value = self.random.next() as u8 | 1;
            let known = self.bytes.get_mut(&volume.id).expect("judged before");
            known[at as usize..(at + length) as usize].fill(value);
            let mut start = 0;
            for extent in &volume.extents {
                let end = (start + extent.blocks * BLOCK).min(volume.size);
                let piece = &known[start as usize..end as usize];
                self.drive.write_durably(extent.start * BLOCK, piece);
                start = end;
            }
        }
    }
    fn live(mut self) -> Result<u64, String> {
        self.create()?;
        for _ in 0..CHANGES {
            self.change()?;
            self.write();
            self.clean()?;
        }
        Ok(self.cuts)
    }
}

/// The bytes of a volume.
fn content(drive: &Drive, volume: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    for extent in &volume.extents {
        let mut piece = vec![0; (extent.blocks * BLOCK) as usize];
        drive.read(extent.start * BLOCK, &mut piece).unwrap();
        bytes.extend(piece);
    }
    bytes
}

fn cuts_wanted() -> u64 {
    let written = std::env::var("IOFAIR_CUTS").ok();
    written.map_or(CUTS, |text| text.parse().expect("IOFAIR_CUTS is a number"))
}

/// See the top of the file.
#[test]
fn pools_survive_power_cuts() {
    let (mut cuts, mut seed) = (0, 0);
    while cuts < cuts_wanted() {
        let lived = World::new(seed, Mistake::default()).live();
        cuts += lived.unwrap_or_else(|message| panic!("seed {seed}: {message}"));
        seed += 1;
    }
    println!("{cuts} power cuts in {seed} pools");
}

/// See the top of the file.
#[test]
fn canaries_are_found() {
    let mistakes = [
        Mistake { lies: true, ..Mistake::default() },
        Mistake { omit: Omit::TableSync, ..Mistake::default() },
        Mistake { omit: Omit::Zeroes, ..Mistake::default() },
        Mistake { early: true, ..Mistake::default() },
    ];
    for (index, mistake) in mistakes.into_iter().enumerate() {
        let found = (0..60).find(|seed| World::new(*seed, mistake).live().is_err());
        assert!(found.is_some(), "mistake {index} was not found");
    }
}

/// Goal: a cut in the middle of an import leaves the old pool as it was, or the new one with all data. Method: volumes
/// across the head and behind it on both kinds of medium, a cut in every call, the bytes compared.
#[test]
fn imports_survive_power_cuts() {
    let kib = |kib: u64| kib << 10;
    let old = [("a", 0, kib(600)), ("b", kib(600), kib(800) + 512), ("c", kib(1404), kib(4))];
    let found: Vec<Found> = old
        .map(|(name, base, size)| {
            let group = (name != "c").then(|| "g".to_string());
            Found { name: name.into(), group, base, size }
        })
        .into();
    let byte = |at: u64| (at / 512 % 251) as u8;
    let mut done = 0;
    for seed in 0..cuts_wanted().div_ceil(4) {
        let file = seed % 2 == 0;
        let bytes = if file { kib(1408) } else { kib(2700) };
        let mut drive = Drive::new(bytes as usize, file, seed);
        drive.write_durably(0, &(0..bytes).map(byte).collect::<Vec<_>>());
        drive.cut_after(1 + seed / 2 % 9);
        let imported = Pool::import(&mut drive, &found).is_ok();
        let mut drive = if drive.is_dead() { drive.restart() } else { drive };
        drive.cut_after(u64::MAX);
        let read = |drive: &Drive, base: u64, size: u64| {
            let mut bytes = vec![0; size as usize];
            drive.read(base, &mut bytes).unwrap();
            bytes.into_iter().enumerate().all(|(at, value)| value == byte(base + at as u64))
        };
        let opened = Pool::open(&mut drive).map(drop);
        if let Err(error) = opened {
            assert!(matches!(error, PoolError::Absent) && !imported, "seed {seed}: {error:?}");
            assert!(old.iter().all(|(_, base, size)| read(&drive, *base, *size)), "seed {seed}");
            Pool::import(&mut drive, &found).unwrap();
        } else {
            done += 1;
        }
        let table = Pool::open(&mut drive).unwrap().table().clone();
        for (volume, (name, base, size)) in table.volumes.iter().zip(old) {
            let kept = if name == "c" { State::Kept } else { State::Live };
            assert_eq!((&*volume.name, volume.size, volume.state), (name, size, kept));
            let bytes = content(&drive, volume);
            let same = |(at, value): (usize, &u8)| *value == byte(base + at as u64);
            assert!(bytes[..size as usize].iter().enumerate().all(same), "seed {seed}: {name}");
        }
    }
    assert!(done > 0);
}

/// Goal: a damaged copy is seen, named and mended, and nothing is given out unzeroed afterwards. Method: damage in each
/// superblock and each table.
#[test]
fn damaged_copies_are_mended() {
    let fresh = || {
        let mut drive = Drive::new(BYTES, false, 1);
        let mut pool = Pool::create(&mut drive, true).unwrap();
        for size in [4096, 8192] {
            let one =
                Wanted { id: None, name: "v", group: "g", size, shrink: false, take_over: false };
            let free = Free::new(pool.table(), pool.superblock(), false, &[]);
            let table = pool.table().with(&[one], free).unwrap();
            pool.commit(table, &mut |_, _| {}).unwrap();
        }
        let superblock = *pool.superblock();
        drop(pool);
        (drive, superblock)
    };
    let (_, superblock) = fresh();
    let current = superblock.slots[superblock.current] * BLOCK;
    let damage = |places: &[u64], value: u8| {
        let (mut drive, _) = fresh();
        places.iter().for_each(|place| drive.write_durably(*place, &[value; 512]));
        drive
    };
    let [first, second] = super::format::SUPERBLOCKS;
    // A torn one is written again when the pool is opened.
    for place in [first, second] {
        let mut drive = damage(&[place + 64], 1);
        assert_eq!(Pool::open(&mut drive).unwrap().table().volumes[0].size, 8192);
        assert!(super::Survey::read(&&mut drive).unwrap().superblocks.iter().all(Result::is_ok));
    }
    // One that somebody overwrote, and a damaged table, need somebody to say so.
    for (places, good, size) in [(&[first][..], 3, 8192), (&[current], 2, 4096)] {
        let mut drive = damage(places, 0);
        match Pool::open(&mut drive).map(drop) {
            Err(PoolError::Damaged { good: Some(copy), .. }) => assert_eq!(copy, good),
            other => panic!("{other:?}"),
        }
        let pool = Pool::repair(&mut drive).unwrap();
        assert_eq!((pool.table().volumes[0].size, pool.superblock().generation), (size, 4));
        assert!(!pool.table().dirty.is_empty(), "no free block is trusted");
        drop(pool);
        Pool::open(&mut drive).unwrap();
    }
    let mut drive = damage(&[first, second], 9);
    assert!(matches!(Pool::repair(&mut drive).map(drop), Err(PoolError::Absent)));
}
