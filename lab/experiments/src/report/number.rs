//! How numbers are printed: three figures that matter, no exponent, the same bytes anywhere.

use crate::experiment::Statistics;

/// A number for a table cell.
pub fn number(value: f64) -> String {
    // Not "-0.000".
    let value = value + 0.0;
    let size = value.abs();
    let decimals = match size {
        _ if !value.is_finite() => return "n/a".to_owned(),
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.001 || size == 0.0 => 3,
        _ => 5,
    };
    format!("{value:.decimals$}")
}

/// A published number: as short as the source printed it.
pub(super) fn published(value: f64) -> String {
    let as_it_is = format!("{value}");
    if as_it_is.len() <= 7 { as_it_is } else { short(value) }
}

/// An end of a band, or a number in a sentence: without zeros at its end.
pub fn short(value: f64) -> String {
    let text = number(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A mean with half its confidence interval, when there is one that shows; the least and the most of the repeats when the
/// interval is wider than the value.
pub(super) fn measured(value: &Statistics) -> String {
    let half = value.confidence_95.unwrap_or(0.0);
    match () {
        () if differs_too_much(value) => {
            format!("{} to {}", number(value.min), number(value.max))
        }
        () if half.is_finite() && half > 0.0 && number(half) != number(0.0) => {
            format!("{} ± {}", number(value.mean), number(half))
        }
        () => number(value.mean),
    }
}

/// Whether the repeats differ so much that the confidence interval is wider than the value.
pub(super) fn differs_too_much(value: &Statistics) -> bool {
    let shows = number(value.min) != number(value.max);
    shows && value.confidence_95.is_some_and(|half| half * 2.0 > value.mean.abs())
}

/// A band in words.
pub fn band(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (None, None) => String::new(),
        (Some(low), None) => format!("≥ {}", short(low)),
        (None, Some(high)) => format!("≤ {}", short(high)),
        (Some(low), Some(high)) => format!("{} .. {}", short(low), short(high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an interval that is wider than its value is not printed as one. Method: repeats that are close, far apart, equal,
    /// and a single one.
    #[test]
    fn repeats_that_differ_too_much_are_a_range() {
        let text = |samples: &[f64]| measured(&Statistics::from_samples(samples));
        assert_eq!(text(&[10.0, 10.04]), "10.0 ± 0.254");
        assert_eq!(text(&[253.0, 470.0]), "253 to 470");
        assert_eq!((text(&[5.0, 5.0]), text(&[7.0])), ("5.00".into(), "7.00".into()));
        assert_eq!(text(&[0.0, 0.0]), "0.000");
    }

    /// Goal: three figures that matter. Method: one value a size.
    #[test]
    fn numbers_are_short() {
        let cases = [(1234.5, "1234"), (12.345, "12.3"), (1.234, "1.23"), (0.0261, "0.026")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(-0.0), "0.000");
        assert_eq!((number(f64::NAN), number(0.0)), ("n/a".into(), "0.000".into()));
        assert_eq!(band(Some(0.15), Some(0.33)), "0.15 .. 0.33");
        assert_eq!(band(Some(489.25), Some(10.0)), "489 .. 10");
        assert_eq!((published(506.0), published(6.224)), ("506".into(), "6.224".into()));
    }
}
