//! How near the simulator (or the live server) is to the kernel, by the medians of all runs.

use super::evidence::{Evidence, Numbers, Row};

/// Allowed deviations, as parts of the kernel's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Share,
    Total,
    Mean,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Share, Self::Total, Self::Mean];

    pub(crate) fn aim(self) -> f64 {
        match self {
            Self::Share => 0.10,
            Self::Total => 0.15,
            Self::Mean => 0.25,
        }
    }
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Total => "total",
            Self::Mean => "mean latency",
        }
    }
}

/// Numbers of one world.
pub(crate) type Of = fn(&Row) -> &Numbers;

impl Row {
    /// Its variant, if the file has several, and its stack.
    pub(crate) fn place(&self) -> String {
        match self.variant.as_str() {
            "" => self.stack.clone(),
            variant => format!("{variant}, {}", self.stack),
        }
    }
}

/// All clients in one variant on one stack.
#[derive(Clone, Copy)]
pub(crate) struct Mix<'a> {
    pub(crate) experiment: &'a str,
    pub(crate) rows: &'a [Row],
}

/// A number of the kernel's and ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) kind: Kind,
    /// Place of the client among the rows; of totals, 0.
    pub(crate) row: usize,
    pub(crate) kernel: f64,
    pub(crate) ours: f64,
    /// Ours lies between the kernel's least and most.
    pub(crate) inside: bool,
}

impl Pair {
    fn new(kind: Kind, row: usize, kernel: &[f64], ours: &[f64]) -> Self {
        let ([least, most], middle) = (ends(kernel), median(ours));
        let inside = least <= middle && middle <= most;
        Self { kind, row, kernel: median(kernel), ours: middle, inside }
    }
    pub(crate) fn ratio(&self) -> f64 {
        if self.ours == self.kernel { 1.0 } else { self.ours / self.kernel }
    }
    pub(crate) fn is_near(&self) -> bool {
        (self.ratio() - 1.0).abs() <= self.kind.aim()
    }
}

/// The middle one, of an even number the mean of the two in the middle.
pub(crate) fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |n: usize| sorted.get(n).copied().unwrap_or(0.0);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { at(half) } else { (at(half.saturating_sub(1)) + at(half)) / 2.0 }
}

/// Least and most.
pub(crate) fn ends(of: &[f64]) -> [f64; 2] {
    let least = of.iter().copied().fold(f64::INFINITY, f64::min);
    [least, of.iter().copied().fold(0.0, f64::max)]
}

/// All mixes in their order.
pub(crate) fn mixes(evidence: &Evidence) -> Vec<Mix<'_>> {
    let same = |a: &Row, b: &Row| (&a.variant, &a.stack) == (&b.variant, &b.stack);
    let parts = evidence.experiments.iter();
    parts
        .flat_map(|part| {
            let experiment = part.experiment.as_str();
            part.rows.chunk_by(same).map(move |rows| Mix { experiment, rows })
        })
        .collect()
}

impl<'a> Mix<'a> {
    pub(crate) fn stack(&self) -> &'a str {
        &self.rows[0].stack
    }
    /// Without its directory.
    pub(crate) fn short(&self) -> &str {
        self.experiment.rsplit('/').next().unwrap_or(self.experiment)
    }
    /// Total rate of the clients, run by run.
    pub(crate) fn totals(&self, of: Of) -> Vec<f64> {
        let count = self.rows.iter().map(|row| of(row).rate.len()).min().unwrap_or(0);
        (0..count).map(|n| self.rows.iter().map(|row| of(row).rate[n]).sum()).collect()
    }
    /// All pairs; a lone client has no share.
    pub(crate) fn pairs(&self, ours: Of) -> Vec<Pair> {
        let kernel: Of = |row| &row.kernel;
        if self.rows.iter().any(|row| ours(row).is_empty() || row.kernel.is_empty()) {
            return Vec::new();
        }
        let mut pairs = vec![Pair::new(Kind::Total, 0, &self.totals(kernel), &self.totals(ours))];
        for (n, row) in self.rows.iter().enumerate() {
            let (kernel, ours) = (&row.kernel, ours(row));
            if self.rows.len() > 1 {
                let share = Pair::new(Kind::Share, n, &kernel.share_percent, &ours.share_percent);
                pairs.push(share);
            }
            pairs.push(Pair::new(Kind::Mean, n, &kernel.mean_ms, &ours.mean_ms));
        }
        pairs
    }
    /// Number of its clients with share, mean and total within the aims, and number of all.
    pub(crate) fn near_rows(&self, ours: Of) -> (usize, usize) {
        let pairs = self.pairs(ours);
        if pairs.is_empty() {
            return (0, 0);
        }
        let near = |n: usize| {
            let mut own = pairs.iter().filter(|pair| pair.row == n || pair.kind == Kind::Total);
            own.all(Pair::is_near)
        };
        ((0..self.rows.len()).filter(|n| near(*n)).count(), self.rows.len())
    }
}

/// Number of near pairs of this kind, and of all.
pub(crate) fn count(pairs: &[Pair], kind: Kind) -> (usize, usize) {
    let own = || pairs.iter().filter(|pair| pair.kind == kind);
    (own().filter(|pair| pair.is_near()).count(), own().count())
}
