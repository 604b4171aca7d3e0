//! A disk with a volatile write cache, and the effect of a power cut on it. This file knows nothing of rings.
//!
//! The image consists of real files. A write enters the cache sector by sector. A flush moves writes to the files
//! that *completed* before the flush began; a durable write moves its own data. At the power cut, every sector in the
//! cache keeps its durable value or gets one of the versions written since. After that, nothing is written to the
//! files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iofair_core::unit::SECTOR_BYTES;
use iofair_drive::random::Random;

/// Bytes of a sector: what a power cut leaves whole.
const SECTOR: usize = SECTOR_BYTES as usize;

/// A deliberate defect of the disk or of the server. Tests must detect each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Defect {
    /// Nothing.
    #[default]
    None,
    /// The disk completes flushes but keeps the data in its cache.
    FlushIgnored,
    /// The server completes flushes without passing them to the disk.
    FlushSkipped,
    /// The server treats durable writes like any others.
    FuaIgnored,
}

/// How a cut treats the cache; drawn anew for every cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    /// Everything that is not durable is lost.
    All,
    /// Nothing is lost.
    Nothing,
    /// Each command survives whole or not at all, whatever its place in time.
    Commands,
    /// Each sector for itself: commands are torn.
    Sectors,
}

/// A write of a command, or a part of it.
pub(crate) struct Write<'a> {
    pub(crate) command: CommandId,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) durable: bool,
}

/// Counters of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tally {
    /// Writes, trims and zeroes.
    pub(crate) writes: u64,
    /// Flushes and durable writes.
    pub(crate) flushes: u64,
    /// Sectors in the cache at the power cut.
    pub(crate) cached: u64,
    /// Of these, sectors that are older than the last write.
    pub(crate) lost: u64,
    /// Commands of which only a part survived.
    pub(crate) torn: u64,
}

/// The number of a command, in the order in which commands started.
pub(crate) type CommandId = u64;

/// A sector as a command left it.
#[derive(Clone, Debug)]
struct Version {
    command: CommandId,
    bytes: Arc<[u8; SECTOR]>,
}

/// One file and its part of the cache.
#[derive(Debug)]
struct Medium {
    file: File,
    /// By sector, the oldest version first. The file holds what is older than all of them.
    cache: BTreeMap<u64, Vec<Version>>,
}

#[derive(Debug)]
struct State {
    media: Vec<Medium>,
    random: Random,
    defect: Defect,
    /// When each command with sectors in the cache was completed, by a counter of completions.
    completed: BTreeMap<CommandId, u64>,
    completions: u64,
    commands: CommandId,
    /// Commands until the cut.
    left: u64,
    off: bool,
    tally: Tally,
}

/// A handle to a disk: the back end has one, the test another.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// A disk with power; the seed decides what survives a power cut.
    pub(crate) fn new(seed: u64, defect: Defect) -> Self {
        Self(Arc::new(Mutex::new(State {
            media: Vec::new(),
            random: Random::new(seed, 0x6375_7473),
            defect,
            completed: BTreeMap::new(),
            completions: 0,
            commands: 0,
            left: u64::MAX,
            off: false,
            tally: Tally::default(),
        })))
    }
    fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed elsewhere has poisoned nothing that matters.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Cuts the power after this many further commands have been executed.
    pub(crate) fn cut_after(&self, commands: u64) {
        self.state().left = commands;
    }
    /// Cuts the power now, if it is still on.
    pub(crate) fn cut(&self) {
        self.state().cut();
    }
    /// Whether the power has been cut.
    pub(crate) fn is_off(&self) -> bool {
        self.state().off
    }
    /// The counters.
    pub(crate) fn tally(&self) -> Tally {
        self.state().tally
    }
    pub(crate) fn defect(&self) -> Defect {
        self.state().defect
    }
    /// Adds a file; returns its number.
    pub(crate) fn add(&self, file: File) -> usize {
        let mut state = self.state();
        state.media.push(Medium { file, cache: BTreeMap::new() });
        state.media.len() - 1
    }
    /// A command begins; for a flush, the completions that it covers.
    pub(crate) fn begin(&self) -> (CommandId, u64) {
        let mut state = self.state();
        state.commands += 1;
        (state.commands, state.completions)
    }
    /// A command is completed: from now on a flush has to cover it. False if the power is gone.
    pub(crate) fn complete(&self, command: CommandId) -> bool {
        let mut state = self.state();
        state.completions += 1;
        let completions = state.completions;
        state.completed.insert(command, completions);
        !state.off
    }
    /// Reads what was written last.
    pub(crate) fn read(&self, medium: usize, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.carry_out()?;
        state.media[medium].read(offset, into)
    }
    /// Writes into the cache, and if it is durable to the file.
    pub(crate) fn write(&self, medium: usize, write: &Write<'_>) -> io::Result<()> {
        let Write { command, offset, bytes, durable } = *write;
        let mut state = self.state();
        if state.left == 0 && !state.off {
            // The power goes in the middle of this one.
            state.media[medium].write(command, offset, bytes)?;
        }
        state.carry_out()?;
        state.tally.writes += 1;
        let sectors = state.media[medium].write(command, offset, bytes)?;
        if durable && state.defect != Defect::FuaIgnored {
            state.tally.flushes += 1;
            state.media[medium].settle(sectors, |version| version.command == command)?;
        }
        Ok(())
    }
    /// Makes durable what was completed before `covered` completions had been given.
    pub(crate) fn flush(&self, medium: usize, covered: u64) -> io::Result<()> {
        let mut state = self.state();
        state.carry_out()?;
        state.tally.flushes += 1;
        if state.defect == Defect::FlushIgnored {
            return Ok(());
        }
        let State { media, completed, .. } = &mut *state;
        let is_covered = |version: &Version| {
            completed.get(&version.command).is_some_and(|number| *number <= covered)
        };
        media[medium].settle(0..u64::MAX, is_covered)?;
        // Commands without sectors in the cache need not be remembered.
        let cached = media.iter().flat_map(|medium| medium.cache.values().flatten());
        let oldest = cached.map(|version| version.command).min().unwrap_or(CommandId::MAX);
        *completed = completed.split_off(&oldest);
        Ok(())
    }
}

impl State {
    /// Counts a command; an error if the power is gone.
    fn carry_out(&mut self) -> io::Result<()> {
        if self.left == 0 {
            self.cut();
        }
        self.left = self.left.saturating_sub(1);
        if self.off { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }
    fn cut(&mut self) {
        if std::mem::replace(&mut self.off, true) {
            return;
        }
        let kinds = [Loss::All, Loss::Nothing, Loss::Commands, Loss::Sectors, Loss::Sectors];
        let loss = kinds[self.random.below(kinds.len() as u64) as usize];
        // Sectors of each command that survived and that did not.
        let mut fates: BTreeMap<CommandId, [u64; 2]> = BTreeMap::new();
        let salt = self.random.bits();
        for medium in &mut self.media {
            for (sector, versions) in std::mem::take(&mut medium.cache) {
                let kept = match loss {
                    Loss::All => None,
                    Loss::Nothing => Some(versions.len() - 1),
                    Loss::Commands => versions
                        .iter()
                        .rposition(|version| Random::new(salt, version.command).chance(50)),
                    Loss::Sectors => {
                        let drawn = self.random.below(versions.len() as u64 + 1) as usize;
                        drawn.checked_sub(1)
                    }
                };
                self.tally.cached += 1;
                self.tally.lost += u64::from(kept != Some(versions.len() - 1));
                for (place, version) in versions.iter().enumerate() {
                    let fate = fates.entry(version.command).or_default();
                    fate[usize::from(kept == Some(place))] += 1;
                }
                if let Some(kept) = kept {
                    let bytes = &versions[kept].bytes[..];
                    let written = medium.file.write_all_at(bytes, sector * SECTOR_BYTES);
                    written.expect("the image can be written");
                }
            }
        }
        self.tally.torn = fates.values().filter(|fate| fate[0] > 0 && fate[1] > 0).count() as u64;
    }
}

impl Medium {
    /// The sector as it was written last. What is not there yet is zeroes.
    fn sector(&self, sector: u64) -> io::Result<[u8; SECTOR]> {
        if let Some(last) = self.cache.get(&sector).and_then(|versions| versions.last()) {
            return Ok(*last.bytes);
        }
        let mut bytes = [0; SECTOR];
        self.read_file(sector * SECTOR_BYTES, &mut bytes)?;
        Ok(bytes)
    }
    fn read_file(&self, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let read = self.file.read_at(into, offset)?;
            if read == 0 {
                into.fill(0);
                return Ok(());
            }
            (offset, into) = (offset + read as u64, &mut into[read..]);
        }
        Ok(())
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_file(offset, into)?;
        let end = offset + into.len() as u64;
        let sectors = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        for (sector, versions) in self.cache.range(sectors) {
            let (first, last) = (sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES);
            let (from, to) = (first.max(offset), last.min(end));
            let newest = versions.last().expect("no sector is in the cache without a version");
            into[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&newest.bytes[(from - first) as usize..(to - first) as usize]);
        }
        Ok(())
    }
    /// Puts bytes into the cache; returns their sectors.
    fn write(&mut self, command: CommandId, offset: u64, bytes: &[u8]) -> io::Result<Range<u64>> {
        let end = offset + bytes.len() as u64;
        let sectors = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        for sector in sectors.clone() {
            let (first, last) = (sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES);
            let (from, to) = (first.max(offset), last.min(end));
            let whole = to - from == SECTOR_BYTES;
            let mut content = if whole { [0; SECTOR] } else { self.sector(sector)? };
            content[(from - first) as usize..(to - first) as usize]
                .copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
            let versions = self.cache.entry(sector).or_default();
            versions.push(Version { command, bytes: Arc::new(content) });
        }
        Ok(sectors)
    }
    /// Moves to the file the newest version of each sector that is to be durable, and forgets those before it.
    fn settle(
        &mut self,
        sectors: Range<u64>,
        is_durable: impl Fn(&Version) -> bool,
    ) -> io::Result<()> {
        let mut empty = Vec::new();
        for (sector, versions) in self.cache.range_mut(sectors) {
            let Some(newest) = versions.iter().rposition(&is_durable) else { continue };
            self.file.write_all_at(&versions[newest].bytes[..], sector * SECTOR_BYTES)?;
            versions.drain(..=newest);
            if versions.is_empty() {
                empty.push(*sector);
            }
        }
        empty.iter().for_each(|sector| drop(self.cache.remove(sector)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(seed: u64, defect: Defect) -> (Disk, File) {
        let number = CommandId::from(std::process::id());
        let path = std::env::temp_dir().join(format!("iofair-disk-{number}-{seed}-{defect:?}"));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(8 * SECTOR_BYTES).unwrap();
        let disk = Disk::new(seed, defect);
        disk.add(file.try_clone().unwrap());
        (disk, file)
    }
    fn write(disk: &Disk, sector: u64, sectors: usize, byte: u8, durable: bool) -> CommandId {
        let (command, _) = disk.begin();
        let bytes = vec![byte; sectors * SECTOR];
        let offset = sector * SECTOR_BYTES;
        disk.write(0, &Write { command, offset, bytes: &bytes, durable }).unwrap();
        command
    }
    fn image(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; 8 * SECTOR];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
    }

    /// Goal: a cut leaves every sector with what is durable or with one of the versions written since, all of these
    /// happen, and a flush covers what was completed before it began and nothing else. Method: a completed write, an
    /// uncompleted one and a flush, two more writes, one of them durable, and a cut; 200 seeds.
    #[test]
    fn a_power_cut_leaves_valid_versions() {
        let mut seen = BTreeMap::new();
        for seed in 0..200 {
            let (disk, file) = disk(seed, Defect::None);
            let first = write(&disk, 0, 3, 1, false);
            assert!(disk.complete(first));
            let uncompleted = write(&disk, 2, 2, 2, false);
            let (_, covered) = disk.begin();
            disk.complete(uncompleted);
            disk.flush(0, covered).unwrap();
            assert_eq!(image(&file)[..4], [1, 1, 1, 0], "the flush covers the first write alone");
            write(&disk, 0, 2, 3, false);
            write(&disk, 7, 1, 4, true);
            let mut now = [0; 2 * SECTOR];
            disk.read(0, SECTOR_BYTES, &mut now).unwrap();
            assert_eq!((now[0], now[SECTOR]), (3, 2), "reads find what was written last");
            disk.cut();
            let left = image(&file);
            for (sector, good) in [(0, [1, 3]), (1, [1, 3]), (2, [1, 2]), (3, [0, 2]), (7, [4; 2])]
            {
                assert!(good.contains(&left[sector]), "seed {seed}, sector {sector}: {left:?}");
            }
            assert!(disk.read(0, 0, &mut now).is_err() && !disk.complete(first));
            *seen.entry(left).or_insert(0) += 1;
        }
        assert!(seen.len() >= 8, "torn, reordered, lost and whole: {seen:?}");
    }

    /// Goal: a cut comes with the command that was asked for, and the defects are defects. Method: two commands
    /// before a cut; a flush and a durable write on defective disks.
    #[test]
    fn cuts_are_counted_and_defects_lose_data() {
        let (good, _) = disk(1, Defect::None);
        good.cut_after(2);
        write(&good, 0, 1, 1, false);
        write(&good, 0, 1, 1, false);
        assert!(!good.is_off());
        assert!(good.flush(0, u64::MAX).is_err() && good.is_off());
        for (defect, durable) in [(Defect::FlushIgnored, false), (Defect::FuaIgnored, true)] {
            let (bad, file) = disk(1, defect);
            let command = write(&bad, 0, 1, 1, durable);
            bad.complete(command);
            if !durable {
                bad.flush(0, u64::MAX).unwrap();
            }
            assert_eq!(image(&file)[0], 0, "{defect:?}");
        }
    }
}
