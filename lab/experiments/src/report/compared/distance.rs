//! Claims with a published number, and how far ours is from it.

use crate::report::number::number;
use crate::report::summary::{ClaimRow, Summary};

/// How far our number is from the published one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Distance {
    /// Within 5 %.
    Near,
    /// Within 15 %.
    Close,
    /// Within 40 %.
    Off,
    /// Further, or one of them is zero.
    Far,
}

impl Distance {
    pub(super) const ALL: [Self; 4] = [Self::Near, Self::Close, Self::Off, Self::Far];

    /// By the larger of both divided by the smaller one.
    pub(super) fn between(published: f64, got: f64) -> Self {
        let factor = (got / published).max(published / got);
        match () {
            () if factor <= 1.05 => Self::Near,
            () if factor <= 1.15 => Self::Close,
            () if factor <= 1.4 => Self::Off,
            // Also what is no number: 0 / 0.
            () => Self::Far,
        }
    }
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Near => "within 5 %",
            Self::Close => "within 15 %",
            Self::Off => "within 40 %",
            Self::Far => "further",
        }
    }
    /// Of marks.
    pub(super) const fn colour(self) -> &'static str {
        match self {
            Self::Near => "#237804",
            Self::Close => "#7cb305",
            Self::Off => "#d48806",
            Self::Far => "#cf1322",
        }
    }
    /// Of the background of a cell, under dark text.
    pub(super) const fn shade(self) -> &'static str {
        match self {
            Self::Near => "#b7eb8f",
            Self::Close => "#eaff8f",
            Self::Off => "#ffe58f",
            Self::Far => "#ffb8b3",
        }
    }
}

/// A claim with a published number.
pub(super) struct Compared<'a> {
    pub(super) claim: &'a ClaimRow,
    pub(super) published: f64,
}

impl Compared<'_> {
    pub(super) fn distance(&self) -> Distance {
        Distance::between(self.published, self.claim.got)
    }
    /// The smallest and largest of the repeats, if they differ.
    pub(super) fn spread(&self) -> Option<(f64, f64)> {
        self.claim.spread.filter(|(least, most)| least < most)
    }
    /// Ours relative to the published number, such as "+12 %".
    pub(super) fn difference(&self) -> String {
        let part = self.claim.got / self.published;
        match () {
            () if !part.is_finite() => "n/a".to_owned(),
            () if part >= 2.5 => format!("{} times", number(part)),
            () if part > 0.0 && part <= 0.4 => format!("1/{}", number(1.0 / part)),
            () if (part - 1.0).abs() < 0.005 => "0 %".to_owned(),
            () => format!("{:+.0} %", (part - 1.0) * 100.0),
        }
    }
    /// What is compared, without the variant.
    pub(super) fn label(&self) -> String {
        match &self.claim.quantity {
            Some(quantity) => format!("{}, {quantity}", self.claim.stack),
            None => self.claim.text.clone(),
        }
    }
}

/// The claims of an experiment that have a published number.
pub(super) fn compared(summary: &Summary) -> Vec<Compared<'_>> {
    let all = summary.claims.iter();
    all.filter_map(|claim| Some(Compared { claim, published: claim.published? })).collect()
}

/// The name of an experiment's page and of its pictures.
pub(crate) fn slug(name: &str) -> String {
    name.replace('/', "-")
}

/// Whether an experiment has a page.
pub(crate) fn has_page(summary: &Summary) -> bool {
    summary.claims.iter().any(|claim| claim.published.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: distances are by factor, and what is no number is far. Method: by hand.
    #[test]
    fn distances_are_factors() {
        let cases = [(100.0, 104.0), (100.0, 90.0), (100.0, 75.0), (100.0, 60.0)];
        assert_eq!(cases.map(|(a, b)| Distance::between(a, b)), Distance::ALL);
        assert_eq!(
            (Distance::between(0.0, 0.0), Distance::between(1.0, 0.0)),
            (Distance::Far, Distance::Far)
        );
    }
}
