//! Step responses: from when on a rate is what it should be, for good.
//!
//! Both take the rates of equal intervals and give the index of the first interval from which on it holds; `None`: it
//! never does, or there are no intervals.

/// Each stretch of `width` intervals from there on has `least` on average. Stretches slide by one interval.
pub fn rises_at(rates: &[f64], width: usize, least: f64) -> Option<usize> {
    let stretches = rates.windows(width.max(1));
    let count = stretches.len();
    let is_low = |stretch: &[f64]| stretch.iter().sum::<f64>() < least * stretch.len() as f64;
    let low = stretches.map(is_low).collect::<Vec<_>>();
    let first = low.iter().rposition(|low| *low).map_or(0, |last| last + 1);
    (first < count).then_some(first)
}

/// Each interval from there on differs from the mean of all these by `part` of it at most.
pub fn settles_at(rates: &[f64], part: f64) -> Option<usize> {
    let is_steady = |from: &usize| {
        let rest = &rates[*from..];
        let mean = rest.iter().sum::<f64>() / rest.len() as f64;
        rest.iter().all(|rate| (rate - mean).abs() <= mean * part)
    };
    (0..rates.len()).find(is_steady)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the last stretch that is too low counts, whole stretches only. Method: by hand.
    #[test]
    fn rates_rise_for_good() {
        let rates = [9.0, 9.0, 0.0, 9.0, 9.0, 8.0, 9.0, 9.0];
        assert_eq!(rises_at(&rates, 1, 8.0), Some(3));
        assert_eq!(rises_at(&rates, 1, 8.5), Some(6));
        assert_eq!(rises_at(&rates, 2, 8.5), Some(3), "8 and 9 make up for each other");
        assert_eq!(rises_at(&rates, 2, 4.0), Some(0));
        assert_eq!(rises_at(&rates, 4, 8.5), Some(3));
        assert_eq!(rises_at(&rates, 1, 9.5), None);
        assert_eq!(rises_at(&rates, 9, 1.0), None);
        assert_eq!(rises_at(&[], 1, 1.0), None);
    }

    /// Goal: what comes before does not count, a single wild interval does. Method: by hand.
    #[test]
    fn rates_settle_for_good() {
        let rates = [50.0, 12.0, 10.0, 9.0, 11.0, 10.0];
        assert_eq!(settles_at(&rates, 0.1), Some(2));
        assert_eq!(settles_at(&rates, 0.2), Some(1));
        assert_eq!(settles_at(&rates, 0.05), Some(4));
        assert_eq!(settles_at(&rates, 0.04), Some(5));
        assert_eq!(settles_at(&rates, 5.0), Some(0));
        assert_eq!(settles_at(&[], 0.1), None);
    }
}
