//! Planning: do the promises of a contract file fit a drive, which breaks first, and how many drives do the same clients need?
//!
//! Every answer comes from runs of the simulator. A promise is judged as the server judges it
//! ([`iofair_core::stats::minimum`]), in a finite set of mixes ([`load::NEIGHBOURS`]). The format of load files and the method
//! are described in `docs/plan.md`. Called by `iofair plan`.

mod alone;
mod answers;
mod bench;
mod drives;
mod edge;
mod fit;
pub mod load;
mod meter;
mod mix;
mod page;
mod picture;
mod question;
mod set;
mod text;

pub use answers::Plan;
pub use bench::{Runner, Sustained};
pub use drives::Approach;
pub use edge::Edge;
pub use fit::{Row, Verdict};
pub use load::{Load, Loads};
pub use mix::Breach;
pub use page::page;
pub use picture::picture;
pub use question::{PlanError, Question};
pub use set::Admission;
pub use text::text;

use alone::Alone;
use bench::Bench;
use set::Set;

/// Answers a question.
///
/// # Errors
///
/// Files that are wrong, drives that do not exist, runs that cannot be made, and an interruption.
pub fn plan(question: &Question<'_>, runner: &Runner<'_>) -> Result<Plan, PlanError> {
    let bench = Bench::new(question, runner)?;
    let alone = Alone::measure(&bench)?;
    let set = Set::new(question, &bench, &alone)?;
    let admission = set.admission.clone();
    let mixes = mix::mixes(&set, &alone);
    let fit = fit::fit(&set, &bench, &mixes)?;
    let edge = edge::edge(&set, &bench, &mixes)?;
    let approaches = match question.drives {
        true => drives::approaches(&set, &bench, &alone)?,
        false => Vec::new(),
    };
    Ok(Plan {
        drive: question.drive.clone(),
        stack: set.stack.name().to_owned(),
        ramp_ns: bench.ramp.0,
        time_ns: bench.time.0,
        seeds: bench.seeds().collect(),
        runs: bench.runs(),
        neighbours: question.neighbours.clone(),
        sustained: bench.sustained(),
        admission,
        rows: fit.rows,
        worst_mix: fit.worst,
        expected_mix: fit.expected,
        edge,
        approaches,
    })
}
