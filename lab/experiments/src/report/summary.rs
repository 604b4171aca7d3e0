//! What every report prints: the numbers of each variant on each stack, and the verdict on each claim.

use crate::distinct;
use iofair_simulator::outcome::Timeline;
use serde::Serialize;

use super::clients::ClientRow;
use super::robust::{self, Draws};
use crate::experiment::{Basis, Quantity, Statistics, Subject, Verdict};

/// Columns of the rows of a job, after its name.
pub(super) const JOB_TITLES: [&str; 9] =
    ["calls", "MB/s", "IOPS", "mean ms", "p50", "p99", "max", "MB", "s"];

/// An experiment's numbers and verdicts.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The experiment's name.
    pub name: String,
    /// One line.
    pub title: String,
    /// The result in a sentence or two.
    pub synopsis: String,
    /// What makes the numbers mislead.
    pub warnings: Vec<String>,
    /// Where the published numbers come from.
    pub source: String,
    /// What a reader should know besides.
    pub note: String,
    /// Where, how long, how often.
    pub conditions: String,
    /// The client that the experiment is about.
    pub focus: String,
    /// What rates are counted in, as the source calls it.
    pub rate_unit: &'static str,
    /// One row a variant and stack, in order.
    pub rows: Vec<Row>,
    /// One row a claim, in order.
    pub claims: Vec<ClaimRow>,
    /// Claims not judged because their stacks were not run.
    pub claims_left_out: usize,
    /// How many clients a drive of their own may carry, in a sentence for each stack.
    pub sizings: Vec<String>,
    /// Seconds of an interval of [`ClientRow::series`].
    pub interval: Option<f64>,
}

/// The numbers of one variant on one stack.
#[derive(Clone, Debug)]
pub struct Row {
    /// The variant's name, empty when there is only one.
    pub variant: String,
    /// The variant of the file that sweeps made it of.
    pub base: String,
    /// Keys that sweeps set, with their values.
    pub swept: Vec<(String, String)>,
    /// The stack.
    pub stack: String,
    /// The clients that do I/O, in the file's order.
    pub clients: Vec<ClientRow>,
    /// Of a job file: each job in each direction, as cells.
    pub jobs: Vec<Vec<String>>,
    /// Single requests of the first repeat, if they were kept.
    pub requests: Vec<Timeline>,
    /// Rate of the drive.
    pub total: Statistics,
    /// Percent of the time in which the drive had work.
    pub busy: Statistics,
}

/// A claim with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimRow {
    /// The claim in words.
    pub text: String,
    /// The variant, empty when there is only one.
    pub variant: String,
    /// The stack of its first place.
    pub stack: String,
    /// Kind of claim.
    pub kind: crate::experiment::Kind,
    /// Unit of the numbers.
    pub unit: &'static str,
    /// What the source prints.
    pub published: Option<f64>,
    /// What we get; for an order the smallest quotient of neighbours.
    pub got: f64,
    /// Lower end of the band.
    pub low: Option<f64>,
    /// Upper end of the band.
    pub high: Option<f64>,
    /// `null` when there is no band to hold.
    pub holds: Option<bool>,
    /// The same in words.
    pub verdict: Verdict,
    /// Must hold for the experiment to count as reproduced.
    pub hard: bool,
    /// Where it comes from.
    pub basis: Basis,
    /// Whether all of its runs chose a number of the drive or the machine.
    pub fitted: bool,
    /// The sentence or row of the source; empty when none is quoted.
    pub quote: String,
    /// The claim that an implied one follows from.
    pub follows: String,
    /// Line of the source.
    pub reference: String,
    /// Mechanism of a miss.
    pub why: String,
    /// What many draws gave, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draws: Option<Draws>,
    /// What is read, if it is read at one place.
    #[serde(skip)]
    pub(super) quantity: Option<Quantity>,
    /// The same over the repeats: the smallest and the largest.
    #[serde(skip)]
    pub(super) spread: Option<(f64, f64)>,
    /// Subject of the first place.
    #[serde(skip)]
    pub(super) subject: Subject,
    /// Whether the number is a rate at one place.
    #[serde(skip)]
    pub(super) is_rate: bool,
}

impl Summary {
    /// Puts the draws of `rows` beside the claims. A claim with another band than in the row has none. One that holds in too
    /// few draws does not hold.
    pub fn judge_by(&mut self, rows: &[robust::Row]) {
        let end = |end: Option<f64>| end.map(|end| end.to_string()).unwrap_or_default();
        for claim in &mut self.claims {
            let about = [
                self.name.clone(),
                claim.variant.clone(),
                claim.text.clone(),
                end(claim.low),
                end(claim.high),
            ];
            let Some(row) = rows.iter().find(|row| row.claim == about) else { continue };
            claim.draws = Some(row.draws);
            if claim.verdict == Verdict::Holds && !row.draws.holds() {
                (claim.verdict, claim.holds) = (Verdict::DoesNotHold, Some(false));
                let text = row.draws.text();
                claim.why = match claim.why.is_empty() {
                    true => format!("Depends on chance or on what no row decides: {text}."),
                    false => format!("{} It {text}.", claim.why.trim()),
                };
            }
        }
    }
    /// The names of all clients that do I/O: the focus, then the others in the file's order.
    pub fn clients(&self) -> Vec<&str> {
        let clients = self.rows.iter().flat_map(|row| &row.clients);
        let names = clients.map(|client| client.name.as_str());
        let mut names = distinct([self.focus.as_str()].into_iter().chain(names));
        names.retain(|name| !name.is_empty());
        names
    }
    /// The names of all stacks, in the file's order.
    pub fn stacks(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.stack.as_str()))
    }
    /// Whether a client has at most one process everywhere.
    pub(super) fn is_one_process(&self, name: &str) -> bool {
        self.rows.iter().filter_map(|row| row.client(name)).all(|client| client.processes < 2)
    }
    /// Claims with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.claims.iter().filter(|claim| claim.verdict == verdict).count()
    }
    /// Whether the variants have names.
    pub fn has_variants(&self) -> bool {
        self.rows.iter().any(|row| !row.variant.is_empty())
    }
}

impl Row {
    /// A client of this name, if it does I/O here.
    pub fn client(&self, name: &str) -> Option<&ClientRow> {
        self.clients.iter().find(|client| client.name == name)
    }
}

impl ClaimRow {
    /// Its basis, and whether it is fitted, for a column.
    pub fn basis_words(&self) -> String {
        let fitted = if self.fitted { ", fitted" } else { "" };
        format!("{}{fitted}", self.basis.word())
    }
    /// Its reference, with what is quoted or what it follows from.
    pub fn reference_words(&self) -> String {
        let mut words = self.reference.clone();
        let mut add = |more: String| {
            words += if words.is_empty() { "" } else { "; " };
            words += &more;
        };
        if !self.quote.is_empty() {
            add(format!("\"{}\"", self.quote));
        }
        if !self.follows.is_empty() {
            add(format!("follows from: {}", self.follows));
        }
        words
    }
}
