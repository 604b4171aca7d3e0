//! A guaranteed rate, and what counts for it.
//!
//! A minimum is one in bytes a second, in I/Os a second, or in both. What a group gets is counted in time: a request is worth
//! the time in which the minimum promises as much. With both, it is worth the shorter of the two times, so that neither is
//! missed however long requests are.
//!
//! An I/O of a minimum has at most [`IO_BYTES`]: a longer request counts as several, or a client with large requests would
//! be owed the whole drive. Public clouds count in the same way (AWS documentation, "Amazon EBS volume types": I/Os of
//! provisioned IOPS volumes are counted in units of 16 KiB).

use core::ops::{AddAssign, SubAssign};

use crate::time::Nanos;

/// Most bytes of one I/O of a minimum.
pub const IO_BYTES: u64 = 16 << 10;

/// What counts for a minimum.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// I/Os of at most [`IO_BYTES`].
    pub ios: u64,
}

impl Amount {
    /// A request of so many bytes.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        let ios = bytes.div_ceil(IO_BYTES);
        Self { bytes, ios: if ios == 0 { 1 } else { ios } }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        (self.bytes, self.ios) = (self.bytes + other.bytes, self.ios + other.ios);
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        (self.bytes, self.ios) = (self.bytes - other.bytes, self.ios - other.ios);
    }
}

/// What a group is guaranteed, whatever others do; nothing if both are `None` or zero.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Minimum {
    /// Bytes a second.
    pub bytes_per_s: Option<u64>,
    /// I/Os a second, of at most [`IO_BYTES`] each.
    pub ios_per_s: Option<u64>,
}

impl Minimum {
    /// Nothing.
    pub const NONE: Self = Self { bytes_per_s: None, ios_per_s: None };

    /// Is anything guaranteed?
    #[must_use]
    pub const fn is_some(self) -> bool {
        matches!(self.bytes_per_s, Some(1..)) || matches!(self.ios_per_s, Some(1..))
    }
    /// The time in which so much is guaranteed, rounded up; `None` if nothing is.
    #[must_use]
    pub fn worth(self, amount: Amount) -> Option<Nanos> {
        let time = |units, rate: Option<u64>| {
            Some(Nanos::for_units_ceil(units, rate.filter(|rate| *rate > 0)?))
        };
        let [bytes, ios] = [time(amount.bytes, self.bytes_per_s), time(amount.ios, self.ios_per_s)];
        bytes.into_iter().chain(ios).min()
    }
    /// The same as a rate of bytes, if every I/O has so many: the larger of the two rates.
    #[must_use]
    pub fn in_bytes(self, io_bytes: u64) -> Option<u64> {
        let (bytes, ios) = (self.bytes_per_s.unwrap_or(0), self.ios_per_s.unwrap_or(0));
        let is_any = self.bytes_per_s.is_some() || self.ios_per_s.is_some();
        is_any.then_some(bytes.max(ios.saturating_mul(io_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a request is worth as long as the minimum promises as much, in its own unit. Method: examples by hand, of each
    /// unit, both and none.
    #[test]
    fn requests_are_worth_time() {
        let minimum = |bytes_per_s, ios_per_s| Minimum { bytes_per_s, ios_per_s };
        let (small, large) = (Amount::of(4096), Amount::of(1 << 20));
        assert_eq!((small.ios, large.ios, Amount::of(0).ios), (1, 64, 1));
        let bytes = minimum(Some(4_096_000), None);
        assert_eq!(bytes.worth(small), Some(Nanos::from_millis(1)));
        assert_eq!(bytes.worth(large), Some(Nanos::from_millis(256)));
        let ios = minimum(None, Some(500));
        assert_eq!(ios.worth(small), Some(Nanos::from_millis(2)));
        assert_eq!(ios.worth(large), Some(Nanos::from_millis(128)));
        let both = minimum(Some(4_096_000), Some(500));
        assert_eq!(both.worth(small), bytes.worth(small));
        assert_eq!(both.worth(large), ios.worth(large));
        for none in [Minimum::NONE, minimum(Some(0), Some(0))] {
            assert!(!none.is_some() && none.worth(small).is_none());
        }
        assert_eq!(both.in_bytes(4096), Some(4_096_000));
        assert_eq!(ios.in_bytes(4096), Some(2_048_000));
    }
}
