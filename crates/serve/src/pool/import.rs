//! Converts a pool of an earlier version into one with a table. Its volumes keep their position and data.
//!
//! Before the first superblock, only free space behind the last volume is written: the two slots, and a copy of the
//! first MiB; volumes at that position use the copy afterwards. Until that one sector is durable, the old pool is
//! unchanged; from then on, the new pool is in force.

use uuid::Uuid;

use super::format::{
    BLOCK, Extent, HEAD, Record, SLOT_BYTES_MIN, State, Superblock, Table, TableCopy,
};
use super::medium::Medium;
use super::table::{joined, without};
use super::{Pool, PoolError, Survey, slot_bytes};

/// A volume of an earlier version's pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// `None`: the contracts do not have it.
    pub(crate) group: Option<String>,
    /// First byte.
    pub(crate) base: u64,
    pub(crate) size: u64,
}

/// Blocks of the head.
const HEAD_BLOCKS: u64 = HEAD / BLOCK;

impl<M: Medium> Pool<M> {
    /// Makes a pool of these volumes.
    pub(crate) fn import(mut medium: M, found: &[Found]) -> Result<Self, PoolError> {
        if Survey::read(&medium)?.newest().is_some() {
            return Err(PoolError::Room("it has a table of volumes already".into()));
        }
        let mut volumes: Vec<Record> = found.iter().map(record).collect();
        let end = volumes.iter().flat_map(|volume| &volume.extents).map(Extent::end).max();
        let end = end.unwrap_or(0).max(HEAD_BLOCKS);
        let length = medium.length()?.div_ceil(BLOCK);
        let grows = medium.grows();
        let mut slot_blocks = slot_bytes(medium.length()?, grows) / BLOCK;
        let room = if grows { u64::MAX } else { (medium.length()? / BLOCK).saturating_sub(end) };
        let needed = |slot_blocks: u64| HEAD_BLOCKS + 2 * slot_blocks;
        while needed(slot_blocks) > room && slot_blocks * BLOCK > SLOT_BYTES_MIN {
            slot_blocks = (slot_blocks / 2).max(SLOT_BYTES_MIN / BLOCK);
        }
        if needed(slot_blocks) > room {
            let message = format!(
                "the table of volumes needs {} bytes behind the last volume, and there are {}: free the last volume, \
                 or make the device longer",
                needed(slot_blocks) * BLOCK,
                room * BLOCK
            );
            return Err(PoolError::Room(message));
        }
        // Behind everything that a file holds, whoever wrote it.
        let first = if grows { end.max(length) } else { end };
        let blocks = if grows { first + needed(slot_blocks) } else { medium.length()? / BLOCK };
        medium.lengthen(blocks * BLOCK)?;
        let mut head = vec![0; HEAD as usize];
        medium.read_at(0, &mut head)?;
        medium.write_at(first * BLOCK, &head)?;
        let slot = first + HEAD_BLOCKS;
        let superblock = Superblock {
            pool: Uuid::new_v4(),
            generation: 0,
            blocks,
            slot_blocks,
            slots: [slot, slot + slot_blocks],
            current: 1,
            tables: [TableCopy::default(); 2],
        };
        for volume in &mut volumes {
            volume.extents = volume.extents.iter().flat_map(|one| moved(*one, first)).collect();
        }
        let mut table = Table { volumes, dirty: Vec::new() };
        let mut taken = superblock.reserved();
        taken.extend(table.assigned());
        table.dirty = without(&[Extent { start: 0, blocks }], &joined(taken));
        Self::begin(medium, superblock, table)
    }
}

fn record(found: &Found) -> Record {
    let Found { name, group, base, size } = found.clone();
    let state = if group.is_some() { State::Live } else { State::Kept };
    let extents = vec![Extent { start: base / BLOCK, blocks: size.div_ceil(BLOCK) }];
    Record { id: Uuid::new_v4(), name, group: group.unwrap_or_default(), state, size, extents }
}

/// An extent with what lies in the head moved to its copy.
fn moved(extent: Extent, copy: u64) -> Vec<Extent> {
    if extent.start >= HEAD_BLOCKS {
        return vec![extent];
    }
    let blocks = extent.blocks.min(HEAD_BLOCKS - extent.start);
    let mut pieces = vec![Extent { start: copy + extent.start, blocks }];
    if extent.blocks > blocks {
        pieces.push(Extent { start: HEAD_BLOCKS, blocks: extent.blocks - blocks });
    }
    pieces
}
