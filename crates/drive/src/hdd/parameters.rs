//! The parameters of the model, and their format in a profile.

use iofair_core::time::Nanos;
use serde::Deserialize;

use crate::number::{Common, Invalid, Number, Rate, Size, Time};

/// Bytes in a block: the unit of this model.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// Which waiting command the arm executes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// In order of arrival.
    Fcfs,
    /// The nearest block.
    Sstf,
}

/// Platters and arm.
#[derive(Clone, Debug)]
pub struct Mechanics {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Surfaces.
    pub heads: u64,
    /// One revolution.
    pub revolution: Nanos,
    /// Media rate of the outermost zone, bytes a second.
    pub outer: u64,
    /// Media rate of the innermost zone, bytes a second.
    pub inner: u64,
    /// Seek to the next cylinder, settling included.
    pub seek_track: Nanos,
    /// Seek over a third of the stroke.
    pub seek_average: Nanos,
    /// Seek over the whole stroke.
    pub seek_full: Nanos,
    /// From one surface or track to the next.
    pub head_switch: Nanos,
    /// Additional settling time before a write if the arm has moved.
    pub write_settle: Nanos,
}

/// All parameters of a hard disk.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Platters and arm.
    pub mechanics: Mechanics,
    /// Number of commands that the drive accepts at once.
    pub slots: u32,
    /// Processing time before the arm starts for a read, and of a read from memory.
    pub overhead_read: Nanos,
    /// Processing time of a write that goes to memory.
    pub overhead_write: Nanos,
    /// Interface, bytes a second.
    pub bus: u64,
    /// How the next command is chosen.
    pub order: Order,
    /// If the drive has more commands than this, commands that continue at the head's position go before all others
    /// ...
    pub streams_above: u32,
    /// ... until the oldest command has waited for this long. The same limit applies to nearer commands under
    /// [`Order::Sstf`] and to destages into a full cache.
    pub age: Nanos,
    /// Read-ahead segments.
    pub segments: usize,
    /// Number of 4 KiB blocks that the head reads beyond the last requested one.
    pub read_ahead: u64,
    /// Write cache in 4 KiB blocks.
    pub write_cache: u64,
    /// Time of a flush in addition to its writes.
    pub flush: Nanos,
    /// Longest command in bytes.
    pub max_request: u64,
    /// The rate in bytes a second on which admission control may rely.
    pub worst_case: u64,
}

/// The `[model.hdd]` table of a profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields of Parameters and Mechanics, as written")]
pub struct Table {
    pub slots: Number<u32>,
    pub overhead_read: Number<Time>,
    pub overhead_write: Number<Time>,
    pub bus: Number<Rate>,
    pub order: Number<Order>,
    pub streams_above: Number<u32>,
    pub age: Number<Time>,
    pub segments: Number<usize>,
    pub read_ahead: Number<Size>,
    pub write_cache: Number<Size>,
    pub flush: Number<Time>,
    pub heads: Number<u64>,
    pub revolution: Number<Time>,
    pub outer: Number<Rate>,
    pub inner: Number<Rate>,
    pub seek_track: Number<Time>,
    pub seek_average: Number<Time>,
    pub seek_full: Number<Time>,
    pub head_switch: Number<Time>,
    pub write_settle: Number<Time>,
}

impl Table {
    /// The parameters, if they are valid.
    pub fn parameters(&self, common: &Common) -> Result<Parameters, Invalid> {
        let mechanics = Mechanics {
            capacity: common.capacity,
            heads: self.heads.value,
            revolution: self.revolution.value.0,
            outer: self.outer.value.0,
            inner: self.inner.value.0,
            seek_track: self.seek_track.value.0,
            seek_average: self.seek_average.value.0,
            seek_full: self.seek_full.value.0,
            head_switch: self.head_switch.value.0,
            write_settle: self.write_settle.value.0,
        };
        let parameters = Parameters {
            mechanics,
            slots: self.slots.value,
            overhead_read: self.overhead_read.value.0,
            overhead_write: self.overhead_write.value.0,
            bus: self.bus.value.0,
            order: self.order.value,
            streams_above: self.streams_above.value,
            age: self.age.value.0,
            segments: self.segments.value,
            read_ahead: self.read_ahead.value.0 / BLOCK_BYTES,
            write_cache: self.write_cache.value.0 / BLOCK_BYTES,
            flush: self.flush.value.0,
            max_request: common.max_request,
            worst_case: common.worst_case,
        };
        parameters.check()?;
        Ok(parameters)
    }
}

impl Parameters {
    fn check(&self) -> Result<(), Invalid> {
        let m = &self.mechanics;
        let rules = [
            (self.slots >= 1 && self.slots <= 65_536, "slots", "1 to 65536"),
            (m.heads >= 1 && m.heads <= 64, "heads", "1 to 64"),
            (m.revolution >= Nanos::from_millis(1), "revolution", "at least 1ms"),
            (m.inner >= 1_000_000, "inner", "at least 1MB/s"),
            (m.outer >= m.inner && m.outer <= 10_000_000_000, "outer", "from inner to 10GB/s"),
            (m.seek_track <= m.seek_average, "seek-average", "at least seek-track"),
            (m.seek_average <= m.seek_full, "seek-full", "at least seek-average"),
            (m.seek_full <= Nanos::from_secs(1), "seek-full", "at most 1s"),
            (m.head_switch < m.revolution, "head-switch", "less than a revolution"),
            (self.bus >= 1_000_000, "bus", "at least 1MB/s"),
            (self.segments >= 1 && self.segments <= 1_024, "segments", "1 to 1024"),
            (self.read_ahead >= 1, "read-ahead", "at least 4KiB"),
            (self.write_cache >= 1, "write-cache", "at least 4KiB"),
            (m.capacity >= 1_000_000_000, "capacity", "at least 1GB"),
        ];
        let broken = rules.into_iter().find(|(holds, ..)| !holds);
        broken.map_or(Ok(()), |(_, key, allowed)| Err(Invalid { key, allowed }))
    }
}
