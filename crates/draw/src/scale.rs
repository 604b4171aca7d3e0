//! Scales: where values lie on an axis, and which of them are written at it.

/// Values that differ by more than this factor get a logarithmic scale.
const LOG_FROM: f64 = 30.0;

/// The next of 1, 2, 5, 10, ... that is at least `value`.
fn round_number(value: f64) -> f64 {
    let mut step = 1e-6;
    for factor in [2.0, 2.5, 2.0].iter().cycle().take(60) {
        if step >= value * 0.999_999 {
            break;
        }
        step *= factor;
    }
    step
}

/// A value as it is written at an axis.
pub fn tick_label(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// From where to where a scale goes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    /// Between two values that are written; none on a logarithmic scale.
    step: Option<f64>,
}

impl Scale {
    /// The scale for these values: from zero, or logarithmic where they differ too much.
    pub fn fit(values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0);
        // Values at or below zero have no place on a logarithmic axis; they do not make one.
        for value in values.filter(|value| value.is_finite() && *value > 1e-6) {
            (least, most) = (value.min(least), value.max(most));
        }
        match () {
            // The least is above the border.
            () if most > least * LOG_FROM => Self::powers(least * 0.999, most),
            () if most > 0.0 => Self::with_room(most),
            // Nothing but zeros: any axis will do.
            () => Self::with_room(1.0),
        }
    }
    /// From zero to a round number that is at least `high`.
    pub(crate) fn from_zero(high: f64) -> Self {
        Self::in_steps(high.max(1e-6), 1.0)
    }
    /// From zero to a round number above `largest`.
    pub fn with_room(largest: f64) -> Self {
        Self::in_steps(largest, 1.06)
    }
    fn in_steps(largest: f64, room: f64) -> Self {
        let step = round_number(largest / 5.0);
        let high = (largest * room / step - 1e-9).ceil().max(1.0) * step;
        Self { low: 0.0, high, step: Some(step) }
    }
    /// From one value to another.
    pub fn between(low: f64, high: f64) -> Self {
        Self { low, high, step: Some(round_number(high / 5.0)) }
    }
    /// From one value to another, logarithmic where they differ too much.
    pub fn around(low: f64, high: f64) -> Self {
        let is_log = low > 0.0 && high > low * LOG_FROM;
        Self { step: (!is_log).then(|| round_number(high / 5.0)), ..Self::between(low, high) }
    }
    /// Whole powers of ten around two values.
    pub fn powers(low: f64, high: f64) -> Self {
        let low = (low.max(1e-9).log10() + 1e-9).floor() as i32;
        let high = ((high.max(1e-9).log10() - 1e-9).ceil() as i32).max(low + 1);
        Self { low: 10f64.powi(low), high: 10f64.powi(high), step: None }
    }
    /// Whether it is logarithmic.
    pub fn is_log(self) -> bool {
        self.step.is_none()
    }
    /// Where a value lies, from 0 to 1; what lies beyond is drawn at the border.
    pub fn place(self, value: f64) -> f64 {
        let Self { low, high, .. } = self;
        let value = value.clamp(low, high);
        match self.is_log() {
            true => (value / low).log10() / (high / low).log10(),
            false => (value - low) / (high - low),
        }
    }
    /// The values that are written at it.
    pub fn ticks(self) -> Vec<f64> {
        let Some(step) = self.step else {
            let powers = [self.low, self.high].map(|end| end.log10().round() as i32);
            return (powers[0]..=powers[1]).map(|power| 10f64.powi(power)).collect();
        };
        let (first, last) = ((self.low / step - 1e-9).ceil(), (self.high / step + 1e-9).floor());
        (first as i32..=last as i32).map(|part| f64::from(part) * step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an axis is logarithmic where values differ by more than a factor of 30, zeros aside. Method: values at both sides
    /// of the border.
    #[test]
    fn values_far_apart_get_a_logarithmic_scale() {
        let scale = |values: &[f64]| Scale::fit(values.iter().copied());
        assert!(!scale(&[1.0, 30.0]).is_log() && scale(&[1.0, 31.0]).is_log());
        assert!(!scale(&[0.0, 31.0]).is_log() && !scale(&[]).is_log());
        let log = scale(&[0.5, 5_159.0]);
        assert_eq!(log, Scale::powers(0.1, 10_000.0));
        assert_eq!(log.ticks(), [0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
        assert_eq!((log.place(0.0), log.place(1e9)), (0.0, 1.0));
        assert!((log.place(10.0) - 0.4).abs() < 1e-9);
        let linear = scale(&[100.0, 93.0]);
        assert_eq!((linear.place(0.0), linear.ticks().len()), (0.0, 7));
    }

    /// Goal: scales end at round numbers and place values where they belong. Method: by hand.
    #[test]
    fn scales_place_values() {
        let linear = Scale::from_zero(534.0);
        assert_eq!((linear.place(0.0), linear.place(600.0), linear.place(300.0)), (0.0, 1.0, 0.5));
        assert_eq!(linear.ticks(), [0.0, 200.0, 400.0, 600.0]);
        let log = Scale::powers(0.3, 27.0);
        assert_eq!(log.ticks(), [0.1, 1.0, 10.0, 100.0]);
        assert!((log.place(1.0) - 1.0 / 3.0).abs() < 1e-9 && log.place(0.01) == 0.0);
        assert_eq!(Scale::between(0.0, 8.0).place(4.0), 0.5);
        assert!(Scale::around(1.0, 100.0).is_log() && !Scale::around(0.0, 100.0).is_log());
        assert_eq!(
            ["0.3", "0.0005", "20"],
            [0.1 + 0.2, 5e-4, 20.0].map(tick_label).each_ref().map(String::as_str)
        );
    }
}
