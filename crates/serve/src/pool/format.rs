//! The on-disk format of a pool: two superblocks and two copies of the table of volumes. Pure: bytes in, values out.
//!
//! All numbers are little-endian; positions and lengths are in blocks of 4 KiB. The first MiB of a pool is reserved.
//! A superblock is the first 512 bytes of the reserved area's first and last block, so that it fits in one sector. It
//! gives the two slots for tables, with length, generation and checksum of each table, and which of them is in force.
//! A golden test fixes the layout:
//!
//! | Superblock offset | Bytes | Contents |
//! |---|---|---|
//! | 0 | 8 | `IOFAIRPL` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | CRC-32C of all 512 bytes, with zeroes here |
//! | 16 | 16 | UUID of the pool |
//! | 32 | 8 | generation: counts changes |
//! | 40 | 8 | blocks of the pool |
//! | 48 | 4 | blocks of a slot |
//! | 52 | 4 | the slot in force, 0 or 1 |
//! | 56 | 8, 8 | first block of each slot |
//! | 72, 96 | 8, 8, 4, 4 | for the table in each slot: generation, bytes, CRC-32C, zero |
//! | 120 | 392 | zero |
//!
//! | Table offset | Bytes | Contents |
//! |---|---|---|
//! | 0 | 8 | `IOFAIRTB` |
//! | 8 | 4, 4 | version, number of volumes |
//! | 16 | 16, 8 | UUID of the pool, generation |
//! | 40 | 4, 4 | number of dirty extents, zero |
//! | 48 | 8, 8 each | dirty extents: first block, number of blocks |
//! | then, for each volume | 16, 8 | UUID, size in bytes |
//! | | 2, 2, 2, 2 | state (0 live, 1 kept), bytes of name, bytes of group, zero |
//! | | 4 | number of extents |
//! | | | name, group |
//! | | 8, 8 each | extents, in the order of the volume: first block, number of blocks; too many while a change makes it shorter |

use uuid::Uuid;

/// The unit of positions and lengths, in bytes.
pub const BLOCK: u64 = 4096;
/// The version that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;
/// Bytes at the start of a pool that belong to no volume.
pub const HEAD: u64 = 1 << 20;
/// Positions of the superblocks in bytes: both ends of the head.
pub(crate) const SUPERBLOCKS: [u64; 2] = [0, HEAD - BLOCK];
/// Bytes of a superblock: one sector, which a drive writes atomically.
pub(crate) const SUPERBLOCK_BYTES: usize = 512;
/// Longest name of a volume: that of an NBD export here.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path of a group: a group of ten levels with names as long as file names fits.
pub(crate) const GROUP_BYTES_MAX: usize = 4096;
/// Largest slot of a table: 10,000 volumes with names and groups of 128 bytes each and 20 extents need 6 MB.
pub(crate) const SLOT_BYTES_MAX: u64 = 8 << 20;
/// Smallest one.
pub(crate) const SLOT_BYTES_MIN: u64 = 64 << 10;

const MAGIC: [u8; 8] = *b"IOFAIRPL";
const TABLE_MAGIC: [u8; 8] = *b"IOFAIRTB";
/// Where a superblock's checksum lies.
const CHECKSUM: usize = 12;
/// End of the used part of a superblock; what follows is zero.
const USED: usize = 120;

/// Why bytes are not a valid superblock or table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Defect {
    /// The magic number is missing.
    #[error("missing")]
    Absent,
    /// Another program wrote it, with this version.
    #[error("of format version {found}; this program knows version {known}", found = .0, known = VERSION)]
    Version(u32),
    /// The checksum does not match.
    #[error("damaged (its checksum does not match)")]
    Checksum,
    /// A value contradicts the rest.
    #[error("damaged ({0})")]
    Value(String),
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::Value(what.into()))
}

/// A contiguous range of blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Extent {
    /// The first block.
    pub start: u64,
    /// Number of blocks.
    pub blocks: u64,
}

impl Extent {
    /// The block after it.
    pub const fn end(&self) -> u64 {
        self.start + self.blocks
    }
}

/// Whether a volume is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It is in the contracts.
    Live,
    /// It was removed from the contracts, and its data is kept.
    Kept,
}

/// A volume's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its identity, independent of its name.
    pub id: Uuid,
    /// Name of the export.
    pub name: String,
    /// Path of its group.
    pub group: String,
    /// Whether it is in use.
    pub state: State,
    /// Size in bytes.
    pub size: u64,
    /// Its extents, in the volume's order.
    pub extents: Vec<Extent>,
}

/// All volumes, and free extents that may still hold old data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Volumes in the order of their creation.
    pub volumes: Vec<Record>,
    /// Free extents that must be zeroed before a volume gets them, in order; other free blocks read as zeroes.
    pub dirty: Vec<Extent>,
}

/// The contents of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableCopy {
    /// The change that wrote it; 0 if none has.
    pub generation: u64,
    /// Its length.
    pub bytes: u64,
    /// Its CRC-32C.
    pub checksum: u32,
}

/// The positions of a pool's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The pool's identity.
    pub pool: Uuid,
    /// Number of changes.
    pub generation: u64,
    /// Length of the pool.
    pub blocks: u64,
    /// Length of each slot.
    pub slot_blocks: u64,
    /// First block of each slot.
    pub slots: [u64; 2],
    /// The slot of the table in force.
    pub current: usize,
    /// The contents of the slots.
    pub tables: [TableCopy; 2],
}

impl Superblock {
    /// The superblock as bytes.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = Vec::with_capacity(SUPERBLOCK_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.pool.as_bytes());
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(self.blocks.to_le_bytes());
        bytes.extend((self.slot_blocks as u32).to_le_bytes());
        bytes.extend((self.current as u32).to_le_bytes());
        self.slots.iter().for_each(|slot| bytes.extend(slot.to_le_bytes()));
        for copy in &self.tables {
            bytes.extend(copy.generation.to_le_bytes());
            bytes.extend(copy.bytes.to_le_bytes());
            bytes.extend(copy.checksum.to_le_bytes());
            bytes.extend([0; 4]);
        }
        assert_eq!(bytes.len(), USED);
        bytes.resize(SUPERBLOCK_BYTES, 0);
        let checksum = crc32c::crc32c(&bytes);
        bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes.try_into().expect("just resized")
    }
    /// Parses a superblock.
    pub fn decode(bytes: &[u8]) -> Result<Self, Defect> {
        let Some(bytes) = bytes.get(..SUPERBLOCK_BYTES) else { return Err(Defect::Absent) };
        let mut reader = Reader(bytes);
        if reader.take(8)? != MAGIC {
            return Err(Defect::Absent);
        }
        let version = reader.u32()?;
        if version != VERSION {
            return Err(Defect::Version(version));
        }
        let checksum = reader.u32()?;
        let mut summed = bytes.to_vec();
        summed[CHECKSUM..CHECKSUM + 4].fill(0);
        if crc32c::crc32c(&summed) != checksum {
            return Err(Defect::Checksum);
        }
        let pool = reader.uuid()?;
        let (generation, blocks) = (reader.u64()?, reader.u64()?);
        let (slot_blocks, current) = (u64::from(reader.u32()?), reader.u32()? as usize);
        let slots = [reader.u64()?, reader.u64()?];
        let mut tables = [TableCopy::default(); 2];
        for copy in &mut tables {
            let (generation, bytes) = (reader.u64()?, reader.u64()?);
            *copy = TableCopy { generation, bytes, checksum: reader.u32()? };
            reader.zeroes(4)?;
        }
        reader.zeroes(SUPERBLOCK_BYTES - USED)?;
        let this = Self { pool, generation, blocks, slot_blocks, slots, current, tables };
        this.check()?;
        Ok(this)
    }
    fn check(&self) -> Result<(), Defect> {
        let slot_bytes = self.slot_blocks * BLOCK;
        if !(SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&slot_bytes) || self.current > 1 {
            return wrong("slots of an impossible size");
        }
        if self.blocks > u64::MAX / BLOCK / 2 {
            return wrong("an impossible length");
        }
        if self.slots.iter().any(|slot| slot.saturating_add(self.slot_blocks) > self.blocks) {
            return wrong("slots past the end");
        }
        let mut reserved = self.reserved();
        reserved.sort_unstable();
        if reserved.windows(2).any(|pair| pair[0].end() > pair[1].start) {
            return wrong("slots that overlap");
        }
        let copy = &self.tables[self.current];
        if copy.generation != self.generation || self.generation == 0 {
            return wrong("no table of its generation");
        }
        if self.tables.iter().any(|copy| copy.bytes > slot_bytes) {
            return wrong("a table longer than its slot");
        }
        Ok(())
    }
    /// The blocks that belong to no volume: head and slots.
    pub fn reserved(&self) -> Vec<Extent> {
        let slot = |start| Extent { start, blocks: self.slot_blocks };
        vec![Extent { start: 0, blocks: HEAD / BLOCK }, slot(self.slots[0]), slot(self.slots[1])]
    }
}

impl Table {
    /// The table as bytes.
    pub fn encode(&self, pool: Uuid, generation: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + 128 * self.volumes.len());
        bytes.extend(TABLE_MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.volumes.len() as u32).to_le_bytes());
        bytes.extend(pool.as_bytes());
        bytes.extend(generation.to_le_bytes());
        bytes.extend((self.dirty.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        put_extents(&mut bytes, &self.dirty);
        for volume in &self.volumes {
            bytes.extend(volume.id.as_bytes());
            bytes.extend(volume.size.to_le_bytes());
            bytes.extend((volume.state as u16).to_le_bytes());
            bytes.extend((volume.name.len() as u16).to_le_bytes());
            bytes.extend((volume.group.len() as u16).to_le_bytes());
            bytes.extend([0; 2]);
            bytes.extend((volume.extents.len() as u32).to_le_bytes());
            bytes.extend(volume.name.as_bytes());
            bytes.extend(volume.group.as_bytes());
            put_extents(&mut bytes, &volume.extents);
        }
        bytes
    }
    /// Parses the table in one of the slots of `superblock`.
    pub fn decode(bytes: &[u8], superblock: &Superblock, slot: usize) -> Result<Self, Defect> {
        let copy = &superblock.tables[slot];
        if copy.generation == 0 {
            return Err(Defect::Absent);
        }
        let bytes = usize::try_from(copy.bytes).ok().and_then(|length| bytes.get(..length));
        let Some(bytes) = bytes else { return wrong("it is cut off") };
        if crc32c::crc32c(bytes) != copy.checksum {
            return Err(Defect::Checksum);
        }
        let table = Self::parse(&mut Reader(bytes), superblock.pool, copy.generation)?;
        table.check(superblock)?;
        Ok(table)
    }
    fn parse(reader: &mut Reader<'_>, pool: Uuid, generation: u64) -> Result<Self, Defect> {
        if reader.take(8)? != TABLE_MAGIC {
            return Err(Defect::Absent);
        }
        let version = reader.u32()?;
        if version != VERSION {
            return Err(Defect::Version(version));
        }
        let volumes = reader.u32()?;
        if reader.uuid()? != pool || reader.u64()? != generation {
            return wrong("it belongs to another pool or change");
        }
        let dirty = reader.u32()?;
        reader.zeroes(4)?;
        let mut table = Self { volumes: Vec::new(), dirty: reader.extents(dirty)? };
        for _ in 0..volumes {
            let (id, size) = (reader.uuid()?, reader.u64()?);
            let state = match reader.u16()? {
                0 => State::Live,
                1 => State::Kept,
                other => return wrong(format!("a volume in state {other}")),
            };
            let (name, group) = (reader.u16()?, reader.u16()?);
            reader.zeroes(2)?;
            let extents = reader.u32()?;
            let (name, group) = (reader.text(name)?, reader.text(group)?);
            let extents = reader.extents(extents)?;
            table.volumes.push(Record { id, name, group, state, size, extents });
        }
        match reader.0 {
            [] => Ok(table),
            _ => wrong("something stands behind the last volume"),
        }
    }
    /// Checks that no block has two owners, and that every volume is complete and unambiguous.
    pub fn check(&self, superblock: &Superblock) -> Result<(), Defect> {
        let mut names: Vec<&str> = self.volumes.iter().map(|volume| &*volume.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return wrong(format!("two volumes are called \"{}\"", pair[0]));
        }
        let mut ids: Vec<Uuid> = self.volumes.iter().map(|volume| volume.id).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return wrong(format!("two volumes have the UUID {}", pair[0]));
        }
        for volume in &self.volumes {
            let Record { name, group, size, extents, .. } = volume;
            let long = name.len() > NAME_BYTES_MAX || group.len() > GROUP_BYTES_MAX;
            if name.is_empty() || long {
                return wrong("a name of impossible length");
            }
            let blocks = extents.iter().try_fold(0_u64, |sum, one| sum.checked_add(one.blocks));
            // A change that makes it shorter takes extents from it at its end.
            if blocks.is_none_or(|blocks| blocks < size.div_ceil(BLOCK)) || *size == 0 {
                return wrong(format!("volume \"{name}\" has another size than its extents"));
            }
        }
        let mut all = superblock.reserved();
        all.extend(&self.dirty);
        all.extend(self.volumes.iter().flat_map(|volume| &volume.extents));
        all.sort_unstable();
        let ends = |extent: &Extent| extent.start.checked_add(extent.blocks);
        let fits = |extent: &Extent| ends(extent).is_some_and(|end| end <= superblock.blocks);
        if let Some(extent) = all.iter().find(|extent| !fits(extent) || extent.blocks == 0) {
            return wrong(format!("an extent at block {} past the end", extent.start));
        }
        match all.windows(2).find(|pair| pair[0].end() > pair[1].start) {
            Some(pair) => wrong(format!("block {} belongs to two", pair[1].start)),
            None => Ok(()),
        }
    }
}

fn put_extents(bytes: &mut Vec<u8>, extents: &[Extent]) {
    for extent in extents {
        bytes.extend(extent.start.to_le_bytes());
        bytes.extend(extent.blocks.to_le_bytes());
    }
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Defect> {
        let Some((taken, rest)) = self.0.split_at_checked(bytes) else {
            return wrong("it ends too early");
        };
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Defect> {
        Ok(self.take(N)?.try_into().expect("just taken"))
    }
    fn u16(&mut self) -> Result<u16, Defect> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Result<u32, Defect> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, Defect> {
        self.array().map(u64::from_le_bytes)
    }
    fn uuid(&mut self) -> Result<Uuid, Defect> {
        self.array().map(Uuid::from_bytes)
    }
    /// Reserved bytes: a later version may mean something by them.
    fn zeroes(&mut self, bytes: usize) -> Result<(), Defect> {
        match self.take(bytes)?.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => wrong("reserved bytes are not zero"),
        }
    }
    fn text(&mut self, bytes: u16) -> Result<String, Defect> {
        let bytes = self.take(usize::from(bytes))?;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).or_else(|_| wrong("a name that is no UTF-8"))
    }
    fn extents(&mut self, count: u32) -> Result<Vec<Extent>, Defect> {
        // Their bytes are there before memory is taken for them.
        let mut list = Reader(self.take((count as usize).saturating_mul(16))?);
        let one = |_| Ok(Extent { start: list.u64()?, blocks: list.u64()? });
        (0..count).map(one).collect()
    }
}

/// Properties that hold for any bytes, for the fuzz target: the first 512 are a superblock, the rest a table. Both
/// are either refused or parsed, and what was parsed encodes to the same bytes.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Ok(mut superblock) = Superblock::decode(data) else { return reseal(data) };
    assert_eq!(superblock.encode()[..], data[..SUPERBLOCK_BYTES], "the same bytes again");
    let rest = &data[SUPERBLOCK_BYTES..];
    // As if its checksum were right, so that mutations reach what lies behind.
    let copy = TableCopy {
        generation: superblock.generation,
        bytes: rest.len() as u64,
        checksum: crc32c::crc32c(rest),
    };
    superblock.tables[superblock.current] = copy;
    if let Ok(table) = Table::decode(rest, &superblock, superblock.current) {
        assert_eq!(table.encode(superblock.pool, superblock.generation), rest);
        assert!(table.check(&superblock).is_ok());
    }
}

/// The same with a superblock whose checksum is made right.
fn reseal(data: &[u8]) {
    let mut data = data.to_vec();
    if data.len() < SUPERBLOCK_BYTES {
        return;
    }
    data[CHECKSUM..CHECKSUM + 4].fill(0);
    let checksum = crc32c::crc32c(&data[..SUPERBLOCK_BYTES]);
    data[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
    if Superblock::decode(&data).is_ok() {
        fuzz(&data);
    }
}

#[cfg(test)]
mod tests;
