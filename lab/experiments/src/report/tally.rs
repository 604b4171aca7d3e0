//! How many claims hold, by where they come from and whether their runs chose a number.
//!
//! The headline of every report is the held-out published claims: what a source prints, of runs that nothing was fitted on.

use super::summary::Summary;
use crate::experiment::{Basis, Verdict};

/// Claims by their verdict.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Count {
    /// They hold.
    pub hold: usize,
    /// They do not.
    pub miss: usize,
    /// They have no band.
    #[serde(skip)]
    pub only: usize,
}

impl Count {
    fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Holds => self.hold += 1,
            Verdict::DoesNotHold => self.miss += 1,
            Verdict::Informative => self.only += 1,
        }
    }
    /// Those that can hold or miss.
    pub fn judged(&self) -> usize {
        self.hold + self.miss
    }
    /// These and others.
    pub fn plus(self, other: Self) -> Self {
        Self {
            hold: self.hold + other.hold,
            miss: self.miss + other.miss,
            only: self.only + other.only,
        }
    }
    /// "x of y", or nothing where nothing is judged.
    pub fn words(&self) -> String {
        match self.judged() {
            0 => String::new(),
            judged => format!("{} of {judged}", self.hold),
        }
    }
}

/// The claims of some experiments.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    held_out: [Count; Basis::ALL.len()],
    fitted: [Count; Basis::ALL.len()],
}

impl Tally {
    /// Counts the claims of these experiments.
    pub fn from_summaries<'a>(summaries: impl IntoIterator<Item = &'a Summary>) -> Self {
        let mut tally = Self::default();
        for claim in summaries.into_iter().flat_map(|summary| &summary.claims) {
            let counts = if claim.fitted { &mut tally.fitted } else { &mut tally.held_out };
            counts[claim.basis as usize].add(claim.verdict);
        }
        tally
    }
    /// The claims of one basis, held-out or fitted.
    pub fn count(&self, basis: Basis, fitted: bool) -> Count {
        if fitted { self.fitted[basis as usize] } else { self.held_out[basis as usize] }
    }
    /// Held-out published claims.
    pub fn headline(&self) -> Count {
        self.count(Basis::Published, false)
    }
    /// The rows of the table of all kinds: its basis, held-out and fitted claims, and those without a band.
    pub fn rows(&self) -> Vec<[String; 4]> {
        let row = |basis: Basis| {
            let (held_out, fitted) = (self.count(basis, false), self.count(basis, true));
            let only = held_out.only + fitted.only;
            let only = if only > 0 { only.to_string() } else { String::new() };
            [basis.word().to_owned(), held_out.words(), fitted.words(), only]
        };
        let any = |basis: &Basis| {
            let (a, b) = (self.count(*basis, false), self.count(*basis, true));
            a.judged() + a.only + b.judged() + b.only > 0
        };
        Basis::ALL.into_iter().filter(any).map(row).collect()
    }
}

/// Tallies by source: the directory of the experiments, in the order in which they come.
pub(super) fn by_source(summaries: &[Summary]) -> Vec<(&str, Tally)> {
    let mut sources: Vec<(&str, Vec<&Summary>)> = Vec::new();
    for summary in summaries.iter().filter(|summary| !summary.claims.is_empty()) {
        let source = summary.name.split('/').next().unwrap_or_default();
        match sources.iter_mut().find(|(known, _)| *known == source) {
            Some((_, all)) => all.push(summary),
            None => sources.push((source, vec![summary])),
        }
    }
    sources.into_iter().map(|(source, all)| (source, Tally::from_summaries(all))).collect()
}

/// The titles of [`Tally::rows`].
pub(super) const TITLES: [&str; 4] =
    ["Basis", "Held-out claims that hold", "Fitted claims that hold", "No band"];

/// The headline in a sentence: the held-out published claims, or the claims of other kinds where no source prints a number.
pub fn headline(tally: &Tally) -> String {
    let held = tally.headline();
    if held.judged() + tally.count(Basis::Published, true).judged() > 0 {
        return format!("{} of {} held-out published claims hold", held.hold, held.judged());
    }
    let kinds = Basis::ALL.into_iter().flat_map(|basis| [(basis, false), (basis, true)]);
    let all = kinds.map(|(basis, fitted)| tally.count(basis, fitted));
    let all = all.fold(Count::default(), Count::plus);
    format!("{} of {} claims hold, none of them published", all.hold, all.judged())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FittedOn;
    use crate::report::summarize;
    use crate::testing::{example, results};

    /// Goal: a claim on a fitted run is never in the headline, nor one of another basis. Method: one claim of each basis that
    /// holds; then the same with its run listed as fitted.
    #[test]
    fn the_headline_counts_held_out_published_claims() {
        let mut experiment = example();
        for basis in [Basis::Derived, Basis::Own, Basis::Implied] {
            let mut claim = experiment.claims[0].clone();
            claim.origin.basis = basis;
            experiment.claims.push(claim);
        }
        let tally = |experiment| Tally::from_summaries([&summarize(&results(experiment, 1))]);
        let held_out = tally(experiment.clone());
        assert_eq!(headline(&held_out), "1 of 1 held-out published claims hold");
        assert_eq!(held_out.rows().len(), 4);
        assert_eq!(held_out.rows()[1], ["derived", "1 of 1", "", ""]);
        let entry = FittedOn {
            experiment: experiment.name.clone(),
            variant: None,
            stack: None,
            chose: "link".into(),
            line: 1,
        };
        experiment.variants[0].fitted_on.push(entry);
        let fitted = tally(experiment);
        assert_eq!(headline(&fitted), "0 of 0 held-out published claims hold");
        assert_eq!(fitted.rows()[0], ["published", "", "1 of 1", ""]);
        let mut own = example();
        own.claims.iter_mut().for_each(|claim| claim.origin.basis = Basis::Own);
        assert_eq!(headline(&tally(own)), "1 of 1 claims hold, none of them published");
    }
}
