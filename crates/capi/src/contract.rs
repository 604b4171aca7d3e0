//! Contracts, as C writes them: zero is "not set".

use iofair_core::contract::{self, Limits, WEIGHT_DEFAULT};
use iofair_core::group::Class;
use iofair_core::request::Direction;
use iofair_core::time::Nanos;

use crate::error::Failure;

/// iofair_contract.sched_class, iofair_add_client: the usual class.
pub const IOFAIR_CLASS_BEST_EFFORT: u32 = 0;
/// iofair_contract.sched_class, iofair_add_client: before all others.
pub const IOFAIR_CLASS_REALTIME: u32 = 1;
/// iofair_contract.sched_class, iofair_add_client: only when nobody else wants the drive.
pub const IOFAIR_CLASS_IDLE: u32 = 2;

/// What a group is promised. Fill it with zeroes, then set what is needed: zero means that nothing is promised or limited.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Contract {
    /// Guaranteed minimum, bytes a second, reads and writes together. Not checked against the drive; a contract file is.
    pub min_bytes_per_s: u64,
    /// Guaranteed minimum, requests a second of at most 16 KiB each; a longer one counts as several. Only the stack "promise" keeps it.
    pub min_ios_per_s: u64,
    /// What the group reaches with the drive to itself, bytes a second, if that is known.
    pub alone_bytes_per_s: u64,
    /// Ceiling of reads, bytes a second.
    pub max_read_bytes_per_s: u64,
    /// Ceiling of writes, bytes a second.
    pub max_write_bytes_per_s: u64,
    /// Ceiling of reads, requests a second.
    pub max_read_ios_per_s: u64,
    /// Ceiling of writes, requests a second. A flush counts as one.
    pub max_write_ios_per_s: u64,
    /// Latency wanted, nanoseconds.
    pub latency_ns: u64,
    /// Share of the spare bandwidth among siblings, 1 to 1000; 0 means 100.
    pub weight: u32,
    /// IOFAIR_CLASS_...
    pub sched_class: u32,
    /// Must be zero.
    pub reserved: [u64; 4],
}

fn set(value: u64) -> Option<u64> {
    Some(value).filter(|value| *value > 0)
}

pub(crate) fn class(number: u32) -> Result<Class, Failure> {
    match number {
        IOFAIR_CLASS_BEST_EFFORT => Ok(Class::BestEffort),
        IOFAIR_CLASS_REALTIME => Ok(Class::RealTime),
        IOFAIR_CLASS_IDLE => Ok(Class::Idle),
        _ => Err(Failure::argument(format_args!("there is no class {number}"))),
    }
}

impl Contract {
    pub(crate) fn check(&self) -> Result<contract::Contract, Failure> {
        if self.reserved != [0; 4] {
            return Err(Failure::argument("a reserved field of the contract is not zero"));
        }
        Ok(contract::Contract {
            min: set(self.min_bytes_per_s),
            min_iops: set(self.min_ios_per_s),
            alone: set(self.alone_bytes_per_s),
            low: contract::Low::default(),
            weight: if self.weight == 0 { WEIGHT_DEFAULT } else { self.weight },
            max: Limits {
                bytes_per_s: [self.max_read_bytes_per_s, self.max_write_bytes_per_s].map(set),
                iops: [self.max_read_ios_per_s, self.max_write_ios_per_s].map(set),
            },
            latency: set(self.latency_ns).map(Nanos),
            class: class(self.sched_class)?,
        })
    }
}

impl From<&contract::Contract> for Contract {
    fn from(it: &contract::Contract) -> Self {
        let [read, write] = Direction::BOTH.map(|direction| direction as usize);
        Self {
            min_bytes_per_s: it.min.unwrap_or(0),
            min_ios_per_s: it.min_iops.unwrap_or(0),
            alone_bytes_per_s: it.alone.unwrap_or(0),
            max_read_bytes_per_s: it.max.bytes_per_s[read].unwrap_or(0),
            max_write_bytes_per_s: it.max.bytes_per_s[write].unwrap_or(0),
            max_read_ios_per_s: it.max.iops[read].unwrap_or(0),
            max_write_ios_per_s: it.max.iops[write].unwrap_or(0),
            latency_ns: it.latency.map_or(0, |latency| latency.0),
            weight: it.weight,
            sched_class: match it.class {
                Class::BestEffort => IOFAIR_CLASS_BEST_EFFORT,
                Class::RealTime => IOFAIR_CLASS_REALTIME,
                Class::Idle => IOFAIR_CLASS_IDLE,
            },
            reserved: [0; 4],
        }
    }
}
