//! Mean, extremes, spread and confidence over the repeats of one run.
//!
//! The interval is the usual *two-sided* one: with 95 % confidence the true mean lies in
//! `mean - half_width ..= mean + half_width`. The S suite, which most of our sources used, prints
//! intervals made from one-sided Student values (its row for two samples reads 6.314, not 12.706), so
//! its "95 %" covers 90 %; do not compare the two without a word. Floats are fine here: this is what
//! a report prints, and only correctly rounded operations are used, so the digits are the same anywhere.

use serde::Serialize;

/// Student's t for 95 % two-sided, by degrees of freedom 1 to 30.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same for more degrees of freedom: from this many on, at most this much.
const STUDENT_95_LARGE: [(usize, f64); 4] = [(120, 1.980), (60, 2.000), (40, 2.021), (30, 2.042)];

/// Student's t for a two-sided interval of 95 %, rounded up between table rows.
pub fn student_95(degrees_of_freedom: usize) -> f64 {
    match degrees_of_freedom {
        0 => f64::INFINITY,
        1..=30 => STUDENT_95[degrees_of_freedom - 1],
        large => {
            let row = STUDENT_95_LARGE.iter().find(|(from, _)| large >= *from);
            row.expect("the last row begins at 30").1
        }
    }
}

/// What the repeats of one run gave for one number.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Statistics {
    /// Repeats.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Sample standard deviation (n - 1); 0 with a single sample.
    pub standard_deviation: f64,
    /// Half the width of the two-sided 95 % confidence interval of the mean; absent with one sample.
    pub confidence_95: Option<f64>,
}

impl Statistics {
    /// Of these samples, at least one.
    pub fn from_samples(samples: &[f64]) -> Self {
        assert!(!samples.is_empty(), "statistics of no sample at all");
        let count = samples.len();
        let mean = samples.iter().sum::<f64>() / count as f64;
        let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let max = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if count == 1 {
            let standard_deviation = 0.0;
            return Self { count, mean, min, max, standard_deviation, confidence_95: None };
        }
        let squares: f64 = samples.iter().map(|x| (x - mean) * (x - mean)).sum();
        let standard_deviation = (squares / (count - 1) as f64).sqrt();
        let half = student_95(count - 1) * standard_deviation / (count as f64).sqrt();
        Self { count, mean, min, max, standard_deviation, confidence_95: Some(half) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the interval is the two-sided one of the textbooks. Method: printed values of Student's
    /// table, and the smallest sample by hand.
    #[test]
    fn student_values_are_two_sided() {
        for (n, t) in [(1, 12.706), (9, 2.262), (29, 2.045), (35, 2.042), (40, 2.021), (500, 1.98)]
        {
            assert_eq!(student_95(n), t, "{n} degrees of freedom");
        }
        let two = Statistics::from_samples(&[1.0, 3.0]);
        assert_eq!((two.mean, two.min, two.max), (2.0, 1.0, 3.0));
        assert!((two.standard_deviation - 2f64.sqrt()).abs() < 1e-12);
        let half = two.confidence_95.expect("two samples have an interval");
        assert!((half - 12.706).abs() < 1e-9, "{half}");
    }

    /// Goal: a known sample. Method: 2, 4, 4, 4, 5, 5, 7, 9 has mean 5 and squares 32.
    #[test]
    fn spread_of_a_known_sample() {
        let statistics = Statistics::from_samples(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(statistics.mean, 5.0);
        assert!((statistics.standard_deviation - (32f64 / 7.0).sqrt()).abs() < 1e-12);
        let half = statistics.confidence_95.expect("eight samples have an interval");
        assert!((half - 2.365 * (32f64 / 7.0).sqrt() / 8f64.sqrt()).abs() < 1e-12);
        assert_eq!(Statistics::from_samples(&[7.5]).confidence_95, None);
    }
}
