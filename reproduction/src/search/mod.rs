//! The search: random drives and random workloads look for what breaks a scheduler.
//!
//! ```text
//! broken    a feasible minimum is not kept: 0.97 of it, and 0.90 in each second (second)
//! starved   a client has less than a quarter of its share of what minimums leave
//! beaten    a stack that keeps the same minimums and starves nobody has 1.08 of the total, in bytes and in what each has alone
//! sliced    all have less than 0.90 of (1 - sum of m / alone) none + sum of m, with minimums m; both in bytes and in what each has alone
//! ```
//!
//! `tests/search` runs the first cases and `make search` many; the example `evaluate` runs cases of its own. Cases that were looked into are
//! kept under `reproduction/experiments/search`.

mod draw;
mod finding;
mod judge;
mod keep;

use std::convert::Infallible;

use iofair_experiments::parallel;

pub use draw::{Case, VOLUMES};
pub use finding::{Finding, Kind};
pub use judge::{Question, Verdict, broken_by_latencies};

/// Judges these cases in their order; `begins` is told of each.
pub fn search(
    seeds: &[u64],
    question: &Question<'_>,
    begins: &(dyn Fn(u64) + Sync),
) -> Vec<Verdict> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let work = |seed: &u64| -> Result<Verdict, Infallible> {
        begins(*seed);
        let case = Case::draw(*seed);
        let case = if question.latencies { case.with_latencies() } else { case };
        Ok(judge::judge(&case, question))
    };
    parallel(jobs, seeds, &work).unwrap_or_else(|never| match never {})
}
