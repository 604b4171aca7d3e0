//! Keys of contracts: the one place that says what they are called, what they measure, who enforces them and where a
//! [`Contract`] has them. Files, the control API, experiments, the C API and the documents follow from [`FIELDS`].

use core::ops::RangeInclusive;

use crate::bounds::{WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};
use crate::contract::Contract;
use crate::priority::Class;
use crate::time::Nanos;

/// What some policy of a stack has to enforce: a key of a contract, or several that belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Guaranteed bytes a second.
    Min,
    /// Guaranteed I/Os a second.
    MinIops,
    /// A share of what minimums leave.
    Weight,
    /// Ceilings on reads and on writes.
    Max,
    /// Ceilings on reads and writes together.
    MaxTotal,
    /// What may pass a ceiling at once.
    MaxBurst,
    /// Low limits.
    Low,
    /// A latency of reads.
    Latency,
    /// A latency of writes.
    LatencyWrite,
    /// A latency of flushes.
    LatencySync,
    /// Which minimums are broken first.
    Class,
}

impl Key {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Min,
        Self::MinIops,
        Self::Weight,
        Self::Max,
        Self::MaxTotal,
        Self::MaxBurst,
        Self::Low,
        Self::Latency,
        Self::LatencyWrite,
        Self::LatencySync,
        Self::Class,
    ];
    /// As files and errors spell it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::MinIops => "min_iops",
            Self::Weight => "weight",
            Self::Max => "max",
            Self::MaxTotal => "max.total",
            Self::MaxBurst => "max.burst",
            Self::Low => "low",
            Self::Latency => "latency",
            Self::LatencyWrite => "latency.write",
            Self::LatencySync => "latency.sync",
            Self::Class => "class",
        }
    }
}

/// What a key measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes a second, as in `"10MB/s"`.
    Rate,
    /// A number of requests, or of requests a second.
    Count,
    /// Bytes, as in `"64MB"`.
    Size,
    /// Nanoseconds, as in `"2ms"`.
    Time,
    /// A weight.
    Weight,
    /// The place of a class in [`Class::ALL`], by the name of the class.
    Class,
}

impl Unit {
    /// The values that a contract of a server may have.
    #[must_use]
    pub const fn range(self) -> RangeInclusive<u64> {
        match self {
            Self::Rate | Self::Count | Self::Size | Self::Time => 1..=u64::MAX,
            Self::Weight => WEIGHT_MIN as u64..=WEIGHT_MAX as u64,
            Self::Class => 0..=Class::ALL.len() as u64 - 1,
        }
    }
}

/// A value of a contract. Those with a dot in their name are keys of a table inside.
#[derive(Debug)]
pub struct Field {
    /// As files spell it: `min_iops`, `max.read`.
    pub name: &'static str,
    /// What it measures.
    pub unit: Unit,
    /// What has to be enforced for it; `None`: nothing, it only informs.
    pub enforced_as: Option<Key>,
    /// Its value in a sentence, `{}` standing for the number with its unit.
    pub shown: &'static str,
    /// Its meaning, for documents.
    pub doc: &'static str,
    place: Place,
}

/// Where a [`Contract`] has a value.
#[derive(Debug)]
enum Place {
    Amount(fn(&mut Contract) -> &mut Option<u64>),
    Time(fn(&mut Contract) -> &mut Option<Nanos>),
    Weight,
    Class,
}

/// All values of a contract, in the order of documents. Those of a table stand together.
pub const FIELDS: &[Field] = &[
    Field {
        name: "min",
        unit: Unit::Rate,
        enforced_as: Some(Key::Min),
        shown: "{}",
        doc: "guaranteed bytes a second",
        place: Place::Amount(|contract| &mut contract.min),
    },
    Field {
        name: "min_iops",
        unit: Unit::Count,
        enforced_as: Some(Key::MinIops),
        shown: "{} I/Os a second",
        doc: "guaranteed I/Os a second; a request of more than 16 KiB counts as several",
        place: Place::Amount(|contract| &mut contract.min_iops),
    },
    Field {
        name: "alone",
        unit: Unit::Rate,
        enforced_as: None,
        shown: "{}",
        doc: "bytes a second that the group reaches with the drive to itself",
        place: Place::Amount(|contract| &mut contract.alone),
    },
    Field {
        name: "weight",
        unit: Unit::Weight,
        enforced_as: Some(Key::Weight),
        shown: "{}",
        doc: "share of the spare bandwidth relative to siblings: 1 to 1000, by default 100",
        place: Place::Weight,
    },
    Field {
        name: "max.read",
        unit: Unit::Rate,
        enforced_as: Some(Key::Max),
        shown: "{} of reads",
        doc: "ceiling of reads, in bytes a second",
        place: Place::Amount(|contract| &mut contract.max.bytes_per_s[0]),
    },
    Field {
        name: "max.write",
        unit: Unit::Rate,
        enforced_as: Some(Key::Max),
        shown: "{} of writes",
        doc: "ceiling of writes, in bytes a second",
        place: Place::Amount(|contract| &mut contract.max.bytes_per_s[1]),
    },
    Field {
        name: "max.total",
        unit: Unit::Rate,
        enforced_as: Some(Key::MaxTotal),
        shown: "{} in all",
        doc: "ceiling of reads and writes together, in bytes a second",
        place: Place::Amount(|contract| &mut contract.max.total.bytes_per_s),
    },
    Field {
        name: "max.read_iops",
        unit: Unit::Count,
        enforced_as: Some(Key::Max),
        shown: "{} reads a second",
        doc: "ceiling of reads, in requests a second",
        place: Place::Amount(|contract| &mut contract.max.iops[0]),
    },
    Field {
        name: "max.write_iops",
        unit: Unit::Count,
        enforced_as: Some(Key::Max),
        shown: "{} writes a second",
        doc: "ceiling of writes, in requests a second",
        place: Place::Amount(|contract| &mut contract.max.iops[1]),
    },
    Field {
        name: "max.total_iops",
        unit: Unit::Count,
        enforced_as: Some(Key::MaxTotal),
        shown: "{} requests a second",
        doc: "ceiling of reads and writes together, in requests a second",
        place: Place::Amount(|contract| &mut contract.max.total.iops),
    },
    Field {
        name: "max.burst",
        unit: Unit::Size,
        enforced_as: Some(Key::MaxBurst),
        shown: "{}",
        doc: "bytes that may pass at once, at each of the ceilings in bytes a second",
        place: Place::Amount(|contract| &mut contract.max.burst.bytes),
    },
    Field {
        name: "max.burst_requests",
        unit: Unit::Count,
        enforced_as: Some(Key::MaxBurst),
        shown: "{} requests",
        doc: "requests that may pass at once, at each of the ceilings in requests a second",
        place: Place::Amount(|contract| &mut contract.max.burst.requests),
    },
    Field {
        name: "low.read",
        unit: Unit::Rate,
        enforced_as: Some(Key::Low),
        shown: "{} of reads",
        doc: "low limit of reads, in bytes a second",
        place: Place::Amount(|contract| &mut contract.low.limits.bytes_per_s[0]),
    },
    Field {
        name: "low.write",
        unit: Unit::Rate,
        enforced_as: Some(Key::Low),
        shown: "{} of writes",
        doc: "low limit of writes, in bytes a second",
        place: Place::Amount(|contract| &mut contract.low.limits.bytes_per_s[1]),
    },
    Field {
        name: "low.read_iops",
        unit: Unit::Count,
        enforced_as: Some(Key::Low),
        shown: "{} reads a second",
        doc: "low limit of reads, in requests a second",
        place: Place::Amount(|contract| &mut contract.low.limits.iops[0]),
    },
    Field {
        name: "low.write_iops",
        unit: Unit::Count,
        enforced_as: Some(Key::Low),
        shown: "{} writes a second",
        doc: "low limit of writes, in requests a second",
        place: Place::Amount(|contract| &mut contract.low.limits.iops[1]),
    },
    Field {
        name: "low.latency",
        unit: Unit::Time,
        enforced_as: Some(Key::Low),
        shown: "{}",
        doc: "increase of a request's latency over the usual one that counts as bad",
        place: Place::Time(|contract| &mut contract.low.latency),
    },
    Field {
        name: "low.idle",
        unit: Unit::Time,
        enforced_as: Some(Key::Low),
        shown: "{}",
        doc: "mean think time above which the group counts as idle",
        place: Place::Time(|contract| &mut contract.low.idle),
    },
    Field {
        name: "latency.read",
        unit: Unit::Time,
        enforced_as: Some(Key::Latency),
        shown: "reads completed within {}",
        doc: "time within which 99 of 100 reads are to be completed",
        place: Place::Time(|contract| &mut contract.latency.read),
    },
    Field {
        name: "latency.write",
        unit: Unit::Time,
        enforced_as: Some(Key::LatencyWrite),
        shown: "writes completed within {}",
        doc: "time within which 99 of 100 writes are to be completed",
        place: Place::Time(|contract| &mut contract.latency.write),
    },
    Field {
        name: "latency.sync",
        unit: Unit::Time,
        enforced_as: Some(Key::LatencySync),
        shown: "flushes completed within {}",
        doc: "time within which 99 of 100 flushes are to be completed: what fsync sends after its writes",
        place: Place::Time(|contract| &mut contract.latency.sync),
    },
    Field {
        name: "class",
        unit: Unit::Class,
        enforced_as: Some(Key::Class),
        shown: "{}",
        doc: "`realtime`, `best-effort` (the default) or `idle`: the less urgent minimums are broken first",
        place: Place::Class,
    },
];

impl Field {
    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.name == name)
    }
    /// The key of the contract itself: the table, if it is in one.
    #[must_use]
    pub fn top(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(table, _)| table)
    }
    /// The key inside its table.
    #[must_use]
    pub fn inner(&self) -> Option<&'static str> {
        self.name.split_once('.').map(|(_, inner)| inner)
    }
    /// Whether it is a rate in a table: a ceiling or a low limit, and not a burst or a threshold.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        let is_rate = matches!(self.unit, Unit::Rate | Unit::Count);
        self.inner().is_some() && is_rate && self.enforced_as != Some(Key::MaxBurst)
    }
    /// Its value in a contract; times in nanoseconds.
    #[must_use]
    pub fn get(&self, contract: &Contract) -> Option<u64> {
        let contract = &mut contract.clone();
        match self.place {
            Place::Amount(place) => *place(contract),
            Place::Time(place) => place(contract).map(|time| time.0),
            Place::Weight => Some(contract.weight.into()),
            Place::Class => Some(contract.class as u64),
        }
    }
    /// Sets it; `None`: to the default.
    pub fn set(&self, contract: &mut Contract, value: Option<u64>) {
        match self.place {
            Place::Amount(place) => *place(contract) = value,
            Place::Time(place) => *place(contract) = value.map(Nanos),
            Place::Weight => {
                let weight = value.map(|weight| u32::try_from(weight).unwrap_or(u32::MAX));
                contract.weight = weight.unwrap_or(WEIGHT_DEFAULT);
            }
            Place::Class => {
                let class = value.and_then(|index| Class::ALL.get(usize::try_from(index).ok()?));
                contract.class = class.copied().unwrap_or_default();
            }
        }
    }
}

/// The keys of a contract itself, each once: `min`, `max`.
pub fn tops() -> impl Iterator<Item = &'static str> {
    FIELDS.chunk_by(|a, b| a.top() == b.top()).map(|fields| fields[0].top())
}

/// The values that one value in place of a table stands for: both rates of `max` and `low`, and the latency of reads.
pub fn shorthand(table: &str) -> impl Iterator<Item = &'static Field> {
    inside(table).filter(|field| match field.inner() {
        Some("read") => true,
        Some("write") => field.unit == Unit::Rate,
        _ => false,
    })
}

/// The values in a table of a contract.
pub fn inside(table: &str) -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(move |field| field.inner().is_some() && field.top() == table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each row has a place of its own in a contract, and what is set is what is read. Method: a contract with a value of
    /// its own for each row, read after all are set; then each row back to its default.
    #[test]
    fn every_row_has_its_own_place() {
        let value = |index: usize| match FIELDS[index].unit {
            Unit::Class => 2,
            _ => index as u64 + 1,
        };
        let mut contract = Contract::default();
        (0..FIELDS.len()).for_each(|index| FIELDS[index].set(&mut contract, Some(value(index))));
        for (index, field) in FIELDS.iter().enumerate() {
            assert_eq!(field.get(&contract), Some(value(index)), "{}", field.name);
        }
        FIELDS.iter().for_each(|field| field.set(&mut contract, None));
        assert_eq!(contract, Contract::default());
    }

    /// Goal: what a policy may enforce is a key or a table of keys, and the keys of a table stand together. Method: every
    /// [`Key`] and every row.
    #[test]
    fn promises_are_keys() {
        for key in Key::ALL {
            assert!(FIELDS.iter().any(|field| field.enforced_as == Some(key)), "{key:?}");
            let word = key.word();
            assert!(Field::named(word).is_some() || inside(word).next().is_some(), "{word}");
        }
        let all: alloc::collections::BTreeSet<_> = tops().collect();
        assert_eq!(all.len(), tops().count());
    }
}
