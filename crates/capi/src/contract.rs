//! Contracts in C: zero means "not set".

use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::contract;
use iofair_core::key::Field;
use iofair_core::priority::Class;

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
    /// Time in which 99 of 100 reads are to be completed, in nanoseconds.
    pub latency_ns: u64,
    /// Share of the spare bandwidth relative to sibling groups, 1 to 1000; 0 means 100.
    pub weight: u32,
    /// IOFAIR_CLASS_...
    pub sched_class: u32,
    /// Time in which 99 of 100 writes are to be completed, in nanoseconds. Only the stack "promise" enforces it.
    pub write_latency_ns: u64,
    /// Time in which 99 of 100 flushes are to be completed, in nanoseconds. Only the stack "promise" enforces it.
    pub sync_latency_ns: u64,
    /// Must be zero.
    pub reserved: [u64; 2],
}

pub(crate) fn class(number: u32) -> Result<Class, Failure> {
    match number {
        IOFAIR_CLASS_BEST_EFFORT => Ok(Class::BestEffort),
        IOFAIR_CLASS_REALTIME => Ok(Class::RealTime),
        IOFAIR_CLASS_IDLE => Ok(Class::Idle),
        _ => Err(Failure::argument(format_args!("there is no class {number}"))),
    }
}

/// The field of each key that is not `class` or `weight`.
type Amount = fn(&mut Contract) -> &mut u64;
const AMOUNTS: [(&str, Amount); 14] = [
    ("min", |contract| &mut contract.min_bytes_per_s),
    ("min_iops", |contract| &mut contract.min_ios_per_s),
    ("alone", |contract| &mut contract.alone_bytes_per_s),
    ("max.read", |contract| &mut contract.max_read_bytes_per_s),
    ("max.write", |contract| &mut contract.max_write_bytes_per_s),
    ("max.total", |contract| &mut contract.max_total_bytes_per_s),
    ("max.read_iops", |contract| &mut contract.max_read_ios_per_s),
    ("max.write_iops", |contract| &mut contract.max_write_ios_per_s),
    ("max.total_iops", |contract| &mut contract.max_total_ios_per_s),
    ("max.burst", |contract| &mut contract.max_burst_bytes),
    ("max.burst_requests", |contract| &mut contract.max_burst_ios),
    ("latency.read", |contract| &mut contract.latency_ns),
    ("latency.write", |contract| &mut contract.write_latency_ns),
    ("latency.sync", |contract| &mut contract.sync_latency_ns),
];

/// Each field with its key.
fn amounts() -> impl Iterator<Item = (&'static Field, Amount)> {
    AMOUNTS.iter().filter_map(|(key, amount)| Some((Field::named(key)?, *amount)))
}

impl Contract {
    pub(crate) fn check(&self) -> Result<contract::Contract, Failure> {
        if self.reserved != [0; 2] {
            return Err(Failure::argument("a reserved field of the contract is not zero"));
        }
        let weight = if self.weight == 0 { WEIGHT_DEFAULT } else { self.weight };
        let class = class(self.sched_class)?;
        let mut contract = contract::Contract { weight, class, ..Default::default() };
        let mut written = *self;
        for (field, amount) in amounts() {
            let value = *amount(&mut written);
            field.set(&mut contract, Some(value).filter(|value| *value > 0));
        }
        Ok(contract)
    }
}

impl From<&contract::Contract> for Contract {
    fn from(contract: &contract::Contract) -> Self {
        let sched_class = match contract.class {
            Class::BestEffort => IOFAIR_CLASS_BEST_EFFORT,
            Class::RealTime => IOFAIR_CLASS_REALTIME,
            Class::Idle => IOFAIR_CLASS_IDLE,
        };
        let mut written = Self { weight: contract.weight, sched_class, ..Self::default() };
        for (field, amount) in amounts() {
            *amount(&mut written) = field.get(contract).unwrap_or(0);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::key::FIELDS;

    use super::*;

    /// Goal: the contract that is read is the one that was written. Method: every field another value, there and back.
    #[test]
    fn contracts_survive() {
        let sched_class = IOFAIR_CLASS_IDLE;
        let mut written = Contract { weight: 100, sched_class, ..Contract::default() };
        for (value, (_, amount)) in (1..).zip(AMOUNTS) {
            *amount(&mut written) = value;
        }
        for (value, (key, amount)) in (1..).zip(AMOUNTS) {
            assert_eq!(*amount(&mut written), value, "{key} has a field of its own");
        }
        assert_eq!(Contract::from(&written.check().unwrap()), written);
        assert_eq!(Contract::default().check().unwrap(), contract::Contract::default());
    }

    /// Goal: C programs can set every key that the server's policies enforce. Method: the table of keys beside the fields.
    #[test]
    fn every_key_has_a_field() {
        let others = ["weight", "class"];
        let keys =
            FIELDS.iter().filter(|field| field.top() != "low" && !others.contains(&field.name));
        let named: Vec<&str> = amounts().map(|(field, _)| field.name).collect();
        assert_eq!(named, keys.map(|field| field.name).collect::<Vec<_>>());
        assert_eq!(named.len(), AMOUNTS.len());
    }
}
