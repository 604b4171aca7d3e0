//! A pool: volumes on one block device or file, identified by UUIDs, with a table that survives power cuts.
//!
//! A change is durable before it is acknowledged, and is atomic. The server zeroes the space that it allocates,
//! writes the whole table to the slot that is not in force, syncs, writes the superblock that names it, and syncs.
//! Until that superblock is durable, the old table and the old superblock are in force; afterwards both superblocks
//! are written with the same contents. So the newest readable superblock is at least as new as the last acknowledged
//! change, and its table was durable before it.

pub mod admin;
pub mod format;
mod import;
pub(crate) mod medium;
pub(crate) mod served;
pub(crate) mod table;
mod used;
pub(crate) mod zeroing;

#[cfg(test)]
mod cuts;
#[cfg(test)]
mod simulated;

use std::io;

use uuid::Uuid;

use format::{
    BLOCK, Defect, Extent, HEAD, SLOT_BYTES_MAX, SLOT_BYTES_MIN, SUPERBLOCK_BYTES, SUPERBLOCKS,
    Superblock, Table, TableCopy,
};
use medium::{Medium, ZERO_PIECE};
use table::{Index, common, total, without};

/// Why a pool cannot be opened or changed.
#[derive(Debug)]
pub(crate) enum PoolError {
    /// There is no pool.
    Absent,
    /// A part is damaged, and the newest change may be lost with it.
    Damaged {
        /// What.
        what: String,
        /// The newest change of which all is there.
        good: Option<u64>,
    },
    /// A newer program wrote it.
    Version(u32),
    /// The medium is shorter than the pool.
    Shorter { pool: u64, medium: u64 },
    /// It does not fit.
    Room(String),
    /// The change was not what a change may be.
    Table(Defect),
    /// A change before this one failed half way.
    Broken,
    /// The operating system refused something.
    System(io::Error),
}

impl From<io::Error> for PoolError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Which step a change leaves out, for canaries in tests.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Omit {
    #[default]
    Nothing,
    /// The sync between table and superblock.
    TableSync,
    /// The zeroes.
    Zeroes,
}

/// Told of zeroes: how many bytes are made, of how many.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// An opened pool.
#[derive(Debug)]
pub(crate) struct Pool<M> {
    medium: M,
    superblock: Superblock,
    table: Table,
    /// What is durable is not known any more.
    broken: bool,
    #[cfg(test)]
    pub(crate) omit: Omit,
}

/// The length of a table's slot on a pool of this size.
fn slot_bytes(pool_bytes: u64, grows: bool) -> u64 {
    let wanted = if grows { SLOT_BYTES_MAX } else { pool_bytes / 256 };
    wanted.clamp(SLOT_BYTES_MIN, SLOT_BYTES_MAX).next_multiple_of(BLOCK)
}

impl<M: Medium> Pool<M> {
    /// Makes an empty pool of all there is. `blank`: what is there reads as zeroes.
    pub(crate) fn create(mut medium: M, blank: bool) -> Result<Self, PoolError> {
        let mut bytes = medium.length()?;
        let slot_blocks = slot_bytes(bytes, medium.grows()) / BLOCK;
        let first = HEAD / BLOCK;
        let needed = (first + 2 * slot_blocks) * BLOCK;
        if medium.grows() && bytes < needed {
            medium.lengthen(needed)?;
            bytes = needed;
        }
        if bytes < needed + BLOCK && !medium.grows() {
            let message =
                format!("a pool needs at least {} bytes; this has {bytes}", needed + BLOCK);
            return Err(PoolError::Room(message));
        }
        // What an earlier pool left would be newer than a first change.
        for place in SUPERBLOCKS {
            medium.write_at(place, &[0; BLOCK as usize])?;
        }
        medium.sync()?;
        let superblock = Superblock {
            pool: Uuid::new_v4(),
            generation: 0,
            blocks: bytes / BLOCK,
            slot_blocks,
            slots: [first, first + slot_blocks],
            current: 1,
            tables: [TableCopy::default(); 2],
        };
        let room = Extent { start: needed / BLOCK, blocks: bytes / BLOCK - needed / BLOCK };
        let dirty = if blank || room.blocks == 0 { Vec::new() } else { vec![room] };
        Self::begin(medium, superblock, Table { volumes: Vec::new(), dirty })
    }
    /// Writes the first table of a pool, or of a repaired one. Nothing of it is in force until its first superblock is
    /// there.
    fn begin(medium: M, superblock: Superblock, table: Table) -> Result<Self, PoolError> {
        let mut this = Self {
            medium,
            superblock,
            table: Table::default(),
            broken: false,
            #[cfg(test)]
            omit: Omit::Nothing,
        };
        this.write(table)?;
        Ok(this)
    }
    /// Opens a pool.
    pub(crate) fn open(medium: M) -> Result<Self, PoolError> {
        let survey = Survey::of_length(&medium)?;
        let (superblock, table) = survey.in_force()?;
        let mut this = Self {
            medium,
            superblock,
            table,
            broken: false,
            #[cfg(test)]
            omit: Omit::Nothing,
        };
        if survey.superblocks.iter().any(|one| one.as_ref() != Ok(&superblock)) {
            // The power went between the two, or one is damaged: from now on both are good again.
            this.write(this.table.clone())?;
        }
        Ok(this)
    }
    /// Opens a damaged pool with the newest copy that is whole, and writes both copies anew.
    pub(crate) fn repair(medium: M) -> Result<Self, PoolError> {
        let survey = Survey::of_length(&medium)?;
        let Some((mut superblock, mut table)) = survey.newest_whole() else {
            return Err(survey.in_force().err().unwrap_or(PoolError::Absent));
        };
        // Past anything that was written, so that the damaged copy never wins.
        let all = survey.superblocks.iter().flatten().map(|one| one.generation);
        superblock.generation = all.max().unwrap_or(0).max(superblock.generation);
        // What the lost change did is not known: no free block is trusted.
        let mut taken = superblock.reserved();
        taken.extend(table.assigned());
        let whole = [Extent { start: 0, blocks: superblock.blocks }];
        table.dirty = without(&whole, &table::joined(taken));
        Self::begin(medium, superblock, table)
    }
    /// Its volumes.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }
    /// Where its tables are.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }
    /// Whether it may become longer.
    pub(crate) fn grows(&self) -> bool {
        self.medium.grows()
    }
    /// A device became longer: what was added may be given out.
    pub(crate) fn adopt_length(&mut self) -> Result<bool, PoolError> {
        let blocks = self.medium.length()? / BLOCK;
        let more = blocks.saturating_sub(self.superblock.blocks);
        if more == 0 || self.grows() {
            return Ok(false);
        }
        let mut table = self.table.clone();
        table.dirty.push(Extent { start: self.superblock.blocks, blocks: more });
        self.superblock.blocks = blocks;
        table.dirty = table::joined(table.dirty);
        self.write(table)?;
        Ok(true)
    }
    /// Makes `table` the pool's, durably. On an error it is as before, or broken: then nothing can be changed until
    /// it is opened again.
    pub(crate) fn commit(
        &mut self,
        mut table: Table,
        progress: Progress<'_>,
    ) -> Result<(), PoolError> {
        if self.broken {
            return Err(PoolError::Broken);
        }
        let Some(given) = table.given_out(&self.table) else {
            let what = "a block passes from one volume to another in one change";
            return Err(PoolError::Table(Defect::Value(what.into())));
        };
        let zeroed = common(&given, &self.table.dirty);
        table.dirty = table.dirty_after(&self.table);
        if table == self.table {
            return Ok(());
        }
        let before = self.superblock.blocks;
        let end = table.assigned().last().map_or(0, Extent::end);
        // Zeroes at the end of a file that somebody has cut off would hide that from the next start.
        if end > before || !zeroed.is_empty() {
            check_length(&self.superblock, self.medium.length()?)?;
        }
        self.zero(&zeroed, progress)?;
        self.zero_tails(&table)?;
        if end > before {
            // A change that did not come to its end may have made the file longer.
            let there = self.medium.length()?.min(end * BLOCK);
            if there > before * BLOCK {
                self.medium.zero(before * BLOCK, there - before * BLOCK)?;
            }
            self.medium.lengthen(end * BLOCK)?;
            self.superblock.blocks = end;
        }
        let written = self.write(table);
        if written.is_err() && !self.broken {
            self.superblock.blocks = before;
        }
        written
    }
    /// These extents are zeroes, written before: they become durable with the table that no longer has them as dirty.
    pub(crate) fn cleaned(&mut self, zeroed: &[Extent]) -> Result<(), PoolError> {
        if self.broken {
            return Err(PoolError::Broken);
        }
        let dirty = without(&self.table.dirty, zeroed);
        if dirty == self.table.dirty {
            return Ok(());
        }
        self.write(Table { dirty, ..self.table.clone() })
    }
    /// Whether nothing can be changed until it is opened again.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }
    fn zero(&mut self, extents: &[Extent], progress: Progress<'_>) -> Result<(), PoolError> {
        #[cfg(test)]
        if self.omit == Omit::Zeroes {
            return Ok(());
        }
        let (mut done, all) = (0, total(extents) * BLOCK);
        for extent in extents {
            let (mut at, end) = (extent.start * BLOCK, extent.end() * BLOCK);
            while at < end {
                let piece = ZERO_PIECE.min(end - at);
                self.medium.zero(at, piece)?;
                at += piece;
                done += piece;
                progress(done, all);
            }
        }
        Ok(())
    }
    /// What lies between the end of a volume and the end of its last block, and becomes a part of the volume.
    fn zero_tails(&mut self, new: &Table) -> Result<(), PoolError> {
        let known = Index::new(new);
        for old in &self.table.volumes {
            let now = known.find(Some(old.id), &old.name).map(|index| &new.volumes[index]);
            let grown = now.is_some_and(|now| now.size > old.size);
            let (tail, last) = (old.size % BLOCK, old.extents.last().map_or(0, Extent::end));
            if grown && tail > 0 && !old.is_cut_short() {
                self.medium.zero((last - 1) * BLOCK + tail, BLOCK - tail)?;
            }
        }
        Ok(())
    }
    /// Writes the table to the other slot, then the superblocks.
    fn write(&mut self, table: Table) -> Result<(), PoolError> {
        let mut superblock = self.superblock;
        superblock.generation += 1;
        superblock.current = 1 - superblock.current;
        let bytes = table.encode(superblock.pool, superblock.generation);
        let (length, room) = (bytes.len() as u64, superblock.slot_blocks * BLOCK);
        if length > room {
            let message =
                format!("the table of volumes needs {length} bytes, and has room for {room}");
            return Err(PoolError::Room(message));
        }
        let checksum = crc32c::crc32c(&bytes);
        superblock.tables[superblock.current] =
            TableCopy { generation: superblock.generation, bytes: length, checksum };
        table.check(&superblock).map_err(PoolError::Table)?;
        self.medium.write_at(superblock.slots[superblock.current] * BLOCK, &bytes)?;
        #[cfg(test)]
        let synced = if self.omit == Omit::TableSync { Ok(()) } else { self.medium.sync() };
        #[cfg(not(test))]
        let synced = self.medium.sync();
        synced?;
        // From here on it is not known which one is in force, until the sync has returned.
        self.broken = true;
        let (first, second) = (superblock.current, 1 - superblock.current);
        let encoded = superblock.encode();
        self.medium.write_at(SUPERBLOCKS[first], &encoded)?;
        self.medium.sync()?;
        self.broken = false;
        (self.superblock, self.table) = (superblock, table);
        // The change is durable. If this fails the other one is enough, and the next change writes both again.
        let _ =
            self.medium.write_at(SUPERBLOCKS[second], &encoded).and_then(|()| self.medium.sync());
        Ok(())
    }
}

fn check_length(superblock: &Superblock, length: u64) -> Result<(), PoolError> {
    let pool = superblock.blocks * BLOCK;
    match length < pool {
        true => Err(PoolError::Shorter { pool, medium: length }),
        false => Ok(()),
    }
}

/// What of a pool can be read.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) superblocks: [Result<Superblock, Defect>; 2],
    /// The two tables that the newest superblock names.
    pub(crate) tables: [Result<Table, Defect>; 2],
}

impl Survey {
    pub(crate) fn read(medium: &impl Medium) -> io::Result<Self> {
        let length = medium.length()?;
        let mut superblocks = [Err(Defect::Absent), Err(Defect::Absent)];
        for (place, found) in SUPERBLOCKS.iter().zip(&mut superblocks) {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            if place + BLOCK <= length {
                medium.read_at(*place, &mut bytes)?;
                *found = Superblock::decode(&bytes);
            }
        }
        let mut this = Self { superblocks, tables: [Err(Defect::Absent), Err(Defect::Absent)] };
        if let Some(newest) = this.newest().copied() {
            for slot in 0..2 {
                let copy = newest.tables[slot];
                let (offset, bytes) = (newest.slots[slot] * BLOCK, copy.bytes);
                if offset + bytes <= length {
                    let mut bytes = vec![0; bytes as usize];
                    medium.read_at(offset, &mut bytes)?;
                    this.tables[slot] = Table::decode(&bytes, &newest, slot);
                }
            }
        }
        Ok(this)
    }
    /// The same of a medium that has all of the pool: what was cut off is not to be repaired.
    fn of_length(medium: &impl Medium) -> Result<Self, PoolError> {
        let this = Self::read(medium)?;
        if let Some(newest) = this.newest() {
            check_length(newest, medium.length()?)?;
        }
        Ok(this)
    }
    /// The newest superblock.
    pub(crate) fn newest(&self) -> Option<&Superblock> {
        self.superblocks.iter().flatten().max_by_key(|one| one.generation)
    }
    /// What is in force, if nothing says that a change may be lost.
    fn in_force(&self) -> Result<(Superblock, Table), PoolError> {
        let Some(newest) = self.newest() else {
            let version = self.superblocks.iter().find_map(|one| match one {
                Err(Defect::Version(version)) => Some(*version),
                _ => None,
            });
            return Err(match version {
                Some(version) => PoolError::Version(version),
                None if self.superblocks.iter().all(|one| *one == Err(Defect::Absent)) => {
                    PoolError::Absent
                }
                None => PoolError::Damaged { what: "both superblocks".into(), good: None },
            });
        };
        let good = self
            .newest_whole()
            .map(|(superblock, _)| superblock.tables[superblock.current].generation);
        let damaged = |what: String| PoolError::Damaged { what, good };
        for (name, found) in ["first", "second"].iter().zip(&self.superblocks) {
            match found {
                Ok(other) if other.pool != newest.pool => {
                    return Err(damaged("the superblocks belong to different pools".into()));
                }
                // A sector that was torn when the power went was being written: the other one is as new as anything
                // that was acknowledged. One that is not there at all was overwritten, unless the pool is so new that
                // it was never written.
                Ok(_) | Err(Defect::Checksum) => {}
                Err(Defect::Absent) if newest.generation == 1 => {}
                Err(defect) => return Err(damaged(format!("the {name} superblock is {defect}"))),
            }
        }
        match &self.tables[newest.current] {
            Ok(table) => Ok((*newest, table.clone())),
            Err(defect) => {
                let generation = newest.generation;
                Err(damaged(format!("the table of change {generation} is {defect}")))
            }
        }
    }
    /// The newest table that is whole, and a superblock in which it is in force.
    fn newest_whole(&self) -> Option<(Superblock, Table)> {
        let newest = self.newest()?;
        [newest.current, 1 - newest.current].into_iter().find_map(|slot| {
            let table = self.tables[slot].as_ref().ok()?;
            let (current, generation) = (slot, newest.tables[slot].generation);
            Some((Superblock { current, generation, ..*newest }, table.clone()))
        })
    }
}
