//! The parameters of the model, and their format in a profile.

use iofair_core::time::Nanos;
use serde::Deserialize;

use crate::number::{Common, Invalid, Number, Rate, Size, Time};

/// The order in which pages that are ready cross the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkOrder {
    /// One page of each command in turn.
    RoundRobin,
    /// Commands in the order in which their first page became ready; a command keeps the link while it has pages
    /// ready.
    Fifo,
}

/// Whether the link carries both directions at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplex {
    /// SATA: reads and writes share one server and alternate if both wait.
    Half,
    /// PCI Express: one server for each direction.
    Full,
}

/// With many commands outstanding, large or sequential reads go before small ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeepQueue {
    /// The rule applies with more outstanding commands than this.
    pub above: u32,
    /// How often a small command may be overtaken.
    pub overtakes: u32,
}

/// Fast flash: pages are programmed with one bit per cell until there is no room for such pages. Only with flash translation
/// is it freed again, when the drive is idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slc {
    /// Bytes of fast flash.
    pub size: u64,
    /// Rate in bytes a second at which all units together program fast flash.
    pub drain: u64,
}

/// What was done with a drive before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Trimmed as a whole.
    Fresh,
    /// Written once in order.
    Filled,
    /// Filled, then overwritten uniformly at random until nothing changes any more.
    Overwritten,
    /// Overwritten, then idle until collection had nothing left to do.
    Idle,
}

impl State {
    /// All states, as in a drive's name.
    pub const NAMES: [&str; 4] = ["fresh", "filled", "overwritten", "idle"];
    /// Whether fast flash is full.
    pub(super) fn fills_fast_flash(self) -> bool {
        matches!(self, Self::Filled | Self::Overwritten)
    }
}

/// A read waits for a unit that programs or collects until this is suspended: at least this long, and an exponentially
/// distributed time longer. Then it goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Suspend {
    /// Always.
    pub least: Nanos,
    /// Mean of the rest.
    pub mean: Nanos,
    /// The same while a write waits for room in the write cache.
    pub mean_full: Nanos,
}

/// Flash translation: pages are written elsewhere, and collection makes room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ftl {
    /// What was done with the drive before.
    pub state: State,
    /// The part of the drive that holds data then, in percent.
    pub filled_percent: u32,
    /// Bytes of flash beyond the drive's size that collection can count on.
    pub over_provisioning: u64,
    /// Bytes of erased flash that collection aims at while the drive is idle.
    pub idle_reserve: u64,
    /// Time of a unit to copy a valid page, including its part of an erase.
    pub copy: Nanos,
    /// Collection works on all units at once for this time; zero: with each program on its unit.
    pub batch: Nanos,
    /// Suspension of programs and collection; without it, a read waits for all that its unit was sent before.
    pub suspend: Option<Suspend>,
    /// Whether the commands behind a write that waits for room in the write cache wait too.
    pub in_order: bool,
}

/// All parameters of a solid-state drive.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Number of commands that the drive accepts at once.
    pub slots: u32,
    /// Serial firmware time of a read.
    pub firmware_read: Nanos,
    /// Serial firmware time of a write.
    pub firmware_write: Nanos,
    /// Additional time of each large read (32 KiB and more) before its pages are sent; the firmware can serve other
    /// commands meanwhile.
    pub large_setup: Nanos,
    /// Flash units.
    pub units: u32,
    /// Bytes in a flash page, a power of two.
    pub page: u64,
    /// Mean time of a page read.
    pub page_read: Nanos,
    /// Spread of that time, uniform, in percent in either direction.
    pub page_read_spread: u32,
    /// Rate of the link in bytes a second.
    pub link: u64,
    /// Order of pages on the link.
    pub link_order: LinkOrder,
    /// One server or two.
    pub duplex: Duplex,
    /// Limit on bytes between flash and link.
    pub read_buffer: u64,
    /// Rate in bytes a second at which all units together program.
    pub drain: u64,
    /// Fast flash, if the drive has any.
    pub slc: Option<Slc>,
    /// Flash translation; without it, writes cost the same whatever was written before.
    pub ftl: Option<Ftl>,
    /// Bytes of write cache.
    pub write_cache: u64,
    /// Time of a flush after the cache is empty, and of a durable write after its programs. With a protected cache:
    /// time of a flush after the firmware.
    pub flush: Nanos,
    /// Whether the write cache survives a loss of power. A flush then has nothing to wait for, and a write is durable
    /// once it is in the cache.
    pub protected: bool,
    /// The deep-queue rule, if the drive has one.
    pub deep_queue: Option<DeepQueue>,
    /// Size of the drive in bytes.
    pub capacity: u64,
    /// Longest command in bytes.
    pub max_request: u64,
    /// The rate in bytes a second on which admission control may rely.
    pub worst_case: u64,
}

impl Parameters {
    /// Time of a page program: with it, all units together reach the rate `drain`.
    pub(crate) fn page_program(&self) -> Nanos {
        self.program_at(self.drain)
    }
    /// The same drive for loads without writes: what only matters for writes has fixed values.
    pub(crate) fn of_reads(&self) -> Self {
        let (firmware_write, flush, slc, ftl) = (Nanos::ZERO, Nanos::ZERO, None, None);
        let (duplex, protected) = (Duplex::Half, false);
        let (drain, write_cache) = (self.link, self.page);
        Self {
            firmware_write,
            flush,
            slc,
            ftl,
            duplex,
            protected,
            drain,
            write_cache,
            ..self.clone()
        }
    }
    /// The same drive for loads without reads: what only matters for reads has fixed values.
    pub(crate) fn of_writes(&self) -> Self {
        let [firmware_read, large_setup, page_read] = [Nanos::ZERO; 3];
        let (page_read_spread, read_buffer) = (0, self.page);
        let (link_order, deep_queue) = (LinkOrder::RoundRobin, None);
        Self {
            firmware_read,
            large_setup,
            page_read,
            page_read_spread,
            read_buffer,
            link_order,
            deep_queue,
            ..self.clone()
        }
    }
    /// The same for this rate.
    pub(super) fn program_at(&self, drain: u64) -> Nanos {
        Nanos::for_units_ceil(u64::from(self.units) * self.page, drain)
    }
}

/// The `[model.ssd]` table of a profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields of Parameters, as written")]
pub struct Table {
    pub slots: Number<u32>,
    pub firmware_read: Number<Time>,
    pub firmware_write: Number<Time>,
    pub large_setup: Number<Time>,
    pub units: Number<u32>,
    pub page: Number<Size>,
    pub page_read: Number<Time>,
    pub page_read_spread_percent: Number<u32>,
    pub link: Number<Rate>,
    pub link_order: Number<LinkOrder>,
    pub duplex: Number<Duplex>,
    pub read_buffer: Number<Size>,
    pub drain: Number<Rate>,
    pub slc: Option<SlcTable>,
    pub ftl: Option<FtlTable>,
    pub write_cache: Number<Size>,
    pub flush: Number<Time>,
    pub power_loss_protection: Option<Number<bool>>,
    pub deep_queue: DeepQueueTable,
}

/// The format of fast flash in a profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields of Slc, as written")]
pub struct SlcTable {
    pub size: Number<Size>,
    pub drain: Number<Rate>,
}

/// The format of flash translation in a profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields of Ftl, as written")]
pub struct FtlTable {
    pub state: Number<State>,
    pub filled_percent: Option<Number<u32>>,
    pub over_provisioning: Number<Size>,
    pub idle_reserve: Number<Size>,
    pub copy: Number<Time>,
    pub batch: Number<Time>,
    pub suspend: Option<SuspendTable>,
    pub in_order: Option<Number<bool>>,
}

/// The format of suspension in a profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields of Suspend, as written")]
pub struct SuspendTable {
    pub least: Number<Time>,
    pub mean: Number<Time>,
    pub mean_full: Option<Number<Time>>,
}

impl FtlTable {
    fn ftl(&self) -> Ftl {
        let suspend = self.suspend.as_ref().map(|suspend| Suspend {
            least: suspend.least.value.0,
            mean: suspend.mean.value.0,
            mean_full: suspend.mean_full.as_ref().unwrap_or(&suspend.mean).value.0,
        });
        Ftl {
            state: self.state.value,
            filled_percent: self.filled_percent.as_ref().map_or(100, |percent| percent.value),
            over_provisioning: self.over_provisioning.value.0,
            idle_reserve: self.idle_reserve.value.0,
            copy: self.copy.value.0,
            batch: self.batch.value.0,
            suspend,
            in_order: self.in_order.as_ref().is_some_and(|number| number.value),
        }
    }
}

/// The format of the deep-queue rule in a profile; `overtakes = 0` disables it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields of DeepQueue, as written")]
pub struct DeepQueueTable {
    pub above: Number<u32>,
    pub overtakes: Number<u32>,
}

impl Table {
    /// The parameters, if they are valid.
    pub fn parameters(&self, common: &Common) -> Result<Parameters, Invalid> {
        let slc = self.slc.as_ref();
        let parameters = Parameters {
            slots: self.slots.value,
            firmware_read: self.firmware_read.value.0,
            firmware_write: self.firmware_write.value.0,
            large_setup: self.large_setup.value.0,
            units: self.units.value,
            page: self.page.value.0,
            page_read: self.page_read.value.0,
            page_read_spread: self.page_read_spread_percent.value,
            link: self.link.value.0,
            link_order: self.link_order.value,
            duplex: self.duplex.value,
            read_buffer: self.read_buffer.value.0,
            drain: self.drain.value.0,
            slc: slc.map(|slc| Slc { size: slc.size.value.0, drain: slc.drain.value.0 }),
            ftl: self.ftl.as_ref().map(FtlTable::ftl),
            write_cache: self.write_cache.value.0,
            flush: self.flush.value.0,
            protected: self.power_loss_protection.as_ref().is_some_and(|number| number.value),
            deep_queue: self.deep_queue(),
            capacity: common.capacity,
            max_request: common.max_request,
            worst_case: common.worst_case,
        };
        parameters.check().map(|()| parameters)
    }
    fn deep_queue(&self) -> Option<DeepQueue> {
        let overtakes = self.deep_queue.overtakes.value;
        (overtakes > 0).then_some(DeepQueue { above: self.deep_queue.above.value, overtakes })
    }
}

impl Parameters {
    fn check(&self) -> Result<(), Invalid> {
        let refuse = |key, allowed| Err(Invalid { key, allowed });
        if !(1..=65_536).contains(&self.slots) {
            return refuse("slots", "from 1 to 65536");
        }
        if !(1..=65_536).contains(&self.units) {
            return refuse("units", "from 1 to 65536");
        }
        if !self.page.is_power_of_two() || !(512..=1 << 24).contains(&self.page) {
            return refuse("page", "a power of two from 512B to 16MiB");
        }
        if self.page_read_spread > 100 {
            return refuse("page-read-spread-percent", "from 0 to 100");
        }
        if self.read_buffer < self.page {
            return refuse("read-buffer", "at least one page");
        }
        if self.link == 0 || self.drain == 0 {
            return refuse("link and drain", "above zero");
        }
        if self.slc.is_some_and(|slc| slc.drain == 0) {
            return refuse("slc.drain", "above zero");
        }
        self.ftl.as_ref().map_or(Ok(()), |ftl| ftl.check(self.capacity))
    }
}

impl Ftl {
    fn check(&self, capacity: u64) -> Result<(), Invalid> {
        let refuse = |key, allowed| Err(Invalid { key, allowed });
        if !(capacity / 50..=capacity).contains(&self.over_provisioning) {
            return refuse("ftl.over-provisioning", "from 2 to 100 % of the capacity");
        }
        if self.idle_reserve > self.over_provisioning {
            return refuse("ftl.idle-reserve", "at most the over-provisioning");
        }
        if self.filled_percent > 100 {
            return refuse("ftl.filled-percent", "from 0 to 100");
        }
        if !(1..=1_000_000_000).contains(&self.copy.0) {
            return refuse("ftl.copy", "above zero, at most 1s");
        }
        // Otherwise reads could keep programs from ever ending.
        if self.suspend.is_some_and(|suspend| suspend.mean.0.min(suspend.mean_full.0) == 0) {
            return refuse("ftl.suspend.mean and mean-full", "above zero");
        }
        Ok(())
    }
}
