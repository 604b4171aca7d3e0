//! Time as a number: instants and durations in integer nanoseconds.
//!
//! The engine never reads a clock. Whoever owns the loop reads one once per turn and passes the
//! instant in; in the lab that clock is virtual.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A duration in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

/// A point in time: nanoseconds since an epoch that the owner of the loop chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest duration there is (584 years).
    pub const MAX: Self = Self(u64::MAX);

    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Self {
        Self(n * 1_000)
    }
    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
    /// Whole microseconds, rounded down.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// Whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// `self - other`, or zero when `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// The time that `units` take at `per_second` units a second, rounded up.
    ///
    /// `per_second` must not be zero.
    #[must_use]
    pub fn for_units_ceil(units: u64, per_second: u64) -> Self {
        // Divisions of 128 bits take several times as long as these.
        if let Some(nanos) = units.checked_mul(1_000_000_000) {
            return Self(nanos.div_ceil(per_second));
        }
        let nanos = (u128::from(units) * 1_000_000_000).div_ceil(u128::from(per_second));
        Self(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
    /// The units that pass in this time at `per_second` units a second, rounded down.
    #[must_use]
    pub fn units_floor(self, per_second: u64) -> u64 {
        if let Some(units) = self.0.checked_mul(per_second) {
            return units / 1_000_000_000;
        }
        let units = u128::from(self.0) * u128::from(per_second) / 1_000_000_000;
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

impl Instant {
    /// The epoch.
    pub const ZERO: Self = Self(0);
    /// The end of time; used as "never" in comparisons.
    pub const MAX: Self = Self(u64::MAX);

    /// Time since `earlier`, or zero if `earlier` is in fact later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
    /// `self - duration`, stopping at the epoch.
    #[must_use]
    pub const fn saturating_sub(self, duration: Nanos) -> Self {
        Self(self.0.saturating_sub(duration.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, rhs: Nanos) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}
impl AddAssign<Nanos> for Instant {
    fn add_assign(&mut self, rhs: Nanos) {
        *self = *self + rhs;
    }
}
impl Add for Nanos {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}
impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}
impl Sub for Nanos {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}
impl SubAssign for Nanos {
    fn sub_assign(&mut self, rhs: Self) {
        *self = *self - rhs;
    }
}
impl Mul<u64> for Nanos {
    type Output = Self;
    fn mul(self, rhs: u64) -> Self {
        Self(self.0.saturating_mul(rhs))
    }
}
impl Div<u64> for Nanos {
    type Output = Self;
    fn div(self, rhs: u64) -> Self {
        Self(self.0 / rhs)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = match self.0 {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("us", 1_000),
            1_000_000..1_000_000_000 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        };
        let (whole, rest) = (self.0 / scale, self.0 % scale);
        if rest == 0 {
            return write!(f, "{whole}{unit}");
        }
        write!(f, "{whole}.{:03}{unit}", rest * 1_000 / scale)
    }
}
impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", Nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    /// Goal: a rate turned into time and back never gives more than was paid for. Method: round trip.
    #[test]
    fn rates_round_against_the_payer() {
        for units in [1, 511, 4096, 1 << 20] {
            for rate in [1, 999, 10_000_000, 3_500_000_000] {
                let time = Nanos::for_units_ceil(units, rate);
                assert!(time.units_floor(rate) >= units);
                assert!(Nanos(time.0 - 1).units_floor(rate) < units || time.0 == 1);
            }
        }
    }

    /// Goal: durations print as people write them. Method: one example a unit.
    #[test]
    fn durations_print_with_their_unit() {
        assert_eq!(format!("{}", Nanos::from_millis(8)), "8ms");
        assert_eq!(format!("{}", Nanos(1_500)), "1.500us");
        assert_eq!(format!("{}", Nanos(7)), "7ns");
    }
}
