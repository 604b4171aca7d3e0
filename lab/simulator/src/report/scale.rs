//! The axis of values in a chart: from zero, or logarithmic where the values differ too much.

/// Values that differ by more than this factor get a logarithmic axis.
const LOG_FROM: f64 = 30.0;

/// The next of 1, 2, 5, 10, ... that is at least `value`.
pub(super) fn nice(value: f64) -> f64 {
    let mut step = 1e-6;
    for factor in [2.0, 2.5, 2.0].iter().cycle().take(60) {
        if step >= value * 0.999_999 {
            break;
        }
        step *= factor;
    }
    step
}

/// An axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Scale {
    /// From zero in steps.
    Linear {
        /// The upper end.
        high: f64,
        /// Between two ticks.
        step: f64,
    },
    /// Whole powers of ten.
    Log {
        /// The power at the lower end.
        low: i32,
        /// The power at the upper end.
        high: i32,
    },
}

impl Scale {
    /// The axis for these values.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0);
        // Values at or below zero have no place on a logarithmic axis; they do not make one.
        for value in values.filter(|it| it.is_finite() && *it > 1e-6) {
            (least, most) = (value.min(least), value.max(most));
        }
        if most > least * LOG_FROM {
            let low = (least.log10() - 1e-9).floor() as i32;
            return Self::Log { low, high: ((most.log10() - 1e-9).ceil() as i32).max(low + 1) };
        }
        // Nothing but zeros: any axis will do.
        let largest = if most > 0.0 { most } else { 1.0 };
        Self::from_zero(largest)
    }
    /// An axis from zero to at least this value.
    pub(super) fn from_zero(largest: f64) -> Self {
        let step = nice(largest / 5.0);
        Self::Linear { high: (largest * 1.06 / step).ceil() * step, step }
    }
    /// Whether it is logarithmic.
    pub(super) fn is_log(self) -> bool {
        matches!(self, Self::Log { .. })
    }
    /// Where a value lies, from 0 to 1.
    pub(super) fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear { high, .. } => (value / high).clamp(0.0, 1.0),
            Self::Log { low, high } => {
                let power = value.max(1e-12).log10() - f64::from(low);
                (power / f64::from(high - low)).clamp(0.0, 1.0)
            }
        }
    }
    /// The values that are written at it.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { high, step } => {
                let count = (high / step + 1e-6) as u32;
                (0..=count).map(|part| f64::from(part) * step).collect()
            }
            Self::Log { low, high } => (low..=high).map(|power| 10f64.powi(power)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an axis is logarithmic where values differ by more than a factor of 30, zeros aside. Method: values at both sides
    /// of the border.
    #[test]
    fn values_far_apart_get_a_logarithmic_axis() {
        let of = |values: &[f64]| Scale::of(values.iter().copied());
        assert!(!of(&[1.0, 30.0]).is_log() && of(&[1.0, 31.0]).is_log());
        assert!(!of(&[0.0, 31.0]).is_log() && !of(&[]).is_log());
        let log = of(&[0.5, 5_159.0]);
        assert_eq!(log, Scale::Log { low: -1, high: 4 });
        assert_eq!(log.ticks(), [0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
        assert_eq!((log.place(0.0), log.place(1e9)), (0.0, 1.0));
        assert!((log.place(10.0) - 0.4).abs() < 1e-9);
        let linear = of(&[100.0, 93.0]);
        assert_eq!((linear.place(0.0), linear.ticks().len()), (0.0, 7));
    }
}
