//! Contracts in C: zero means "not set".

use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::contract::{self, Burst, Limits, Total};
use iofair_core::priority::Class;
use iofair_core::request::Direction;
use iofair_core::time::Nanos;

use crate::error::Failure;

/// iofair_contract.sched_class, iofair_add_client: the default class.
pub const IOFAIR_CLASS_BEST_EFFORT: u32 = 0;
/// iofair_contract.sched_class, iofair_add_client: before all other classes.
pub const IOFAIR_CLASS_REALTIME: u32 = 1;
/// iofair_contract.sched_class, iofair_add_client: only when the drive has no other requests.
pub const IOFAIR_CLASS_IDLE: u32 = 2;

/// The contract of a group. Initialise it with zeroes, then set the fields that you need. Zero means no guarantee or no limit.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Contract {
    /// Guaranteed minimum in bytes per second, reads and writes together. Only iofair_engine_from_contracts checks whether the
    /// drive can keep it.
    pub min_bytes_per_s: u64,
    /// Guaranteed minimum in requests per second. A request longer than 16 KiB counts as several. Only the stack "promise"
    /// enforces it.
    pub min_ios_per_s: u64,
    /// The rate that the group reaches without other load, in bytes per second, if it is known.
    pub alone_bytes_per_s: u64,
    /// Ceiling of reads in bytes per second.
    pub max_read_bytes_per_s: u64,
    /// Ceiling of writes in bytes per second.
    pub max_write_bytes_per_s: u64,
    /// Ceiling of reads in requests per second.
    pub max_read_ios_per_s: u64,
    /// Ceiling of writes in requests per second. A flush counts as one.
    pub max_write_ios_per_s: u64,
    /// Ceiling of reads and writes together in bytes per second.
    pub max_total_bytes_per_s: u64,
    /// Ceiling of reads and writes together in requests per second.
    pub max_total_ios_per_s: u64,
    /// Bytes that may pass each of the ceilings in bytes per second at once; 0 means what the ceiling gives in 100 ms.
    pub max_burst_bytes: u64,
    /// Requests that may pass each of the ceilings in requests per second at once; 0 means what the ceiling gives in 100 ms.
    pub max_burst_ios: u64,
    /// Target latency in nanoseconds.
    pub latency_ns: u64,
    /// Share of the spare bandwidth relative to sibling groups, 1 to 1000; 0 means 100.
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
                total: Total {
                    bytes_per_s: set(self.max_total_bytes_per_s),
                    iops: set(self.max_total_ios_per_s),
                },
                burst: Burst {
                    bytes: set(self.max_burst_bytes),
                    requests: set(self.max_burst_ios),
                },
            },
            latency: set(self.latency_ns).map(Nanos),
            class: class(self.sched_class)?,
        })
    }
}

impl From<&contract::Contract> for Contract {
    fn from(contract: &contract::Contract) -> Self {
        let [read, write] = Direction::BOTH.map(|direction| direction as usize);
        Self {
            min_bytes_per_s: contract.min.unwrap_or(0),
            min_ios_per_s: contract.min_iops.unwrap_or(0),
            alone_bytes_per_s: contract.alone.unwrap_or(0),
            max_read_bytes_per_s: contract.max.bytes_per_s[read].unwrap_or(0),
            max_write_bytes_per_s: contract.max.bytes_per_s[write].unwrap_or(0),
            max_read_ios_per_s: contract.max.iops[read].unwrap_or(0),
            max_write_ios_per_s: contract.max.iops[write].unwrap_or(0),
            max_total_bytes_per_s: contract.max.total.bytes_per_s.unwrap_or(0),
            max_total_ios_per_s: contract.max.total.iops.unwrap_or(0),
            max_burst_bytes: contract.max.burst.bytes.unwrap_or(0),
            max_burst_ios: contract.max.burst.requests.unwrap_or(0),
            latency_ns: contract.latency.map_or(0, |latency| latency.0),
            weight: contract.weight,
            sched_class: match contract.class {
                Class::BestEffort => IOFAIR_CLASS_BEST_EFFORT,
                Class::RealTime => IOFAIR_CLASS_REALTIME,
                Class::Idle => IOFAIR_CLASS_IDLE,
            },
            reserved: [0; 4],
        }
    }
}
