//! Reports of experiments: tables for people, JSON and CSV for programs, one page with charts, and
//! the list of published numbers in `reproduction/reproduction.md`. All of them print one [`Summary`].
//! [`beside()`] puts the results of two worlds side by side.

mod beside;
mod clients;
mod compared;
mod csv;
mod curves;
mod figures;
mod fio;
mod html;
mod jobs;
mod json;
mod latencies;
mod markdown;
mod number;
mod requests;
pub mod robust;
mod saved;
mod shares;
mod summarize;
mod summary;
mod surface;
mod swept;
mod synopsis;
mod table;
mod tally;
mod tradeoff;

#[cfg(test)]
mod tests;

pub use beside::{Beside, beside, beside_markdown, beside_table};
pub use clients::ClientRow;
pub use compared::{compared_pages, scatter};
pub use csv::csv;
pub use fio::{fio_json, fio_logs};
pub use html::page;
pub use jobs::jobs_table;
pub use json::{json, json_of_one};
pub(crate) use latencies::{latencies, latency_legend};
pub use markdown::markdown;
pub use number::{band, number, short};
pub use saved::{Comparison, Mean, Row as SavedRow, Saved, compare};
pub use summarize::summarize;
pub use summary::{ClaimRow, Summary};
pub use table::table;
pub use tally::{Tally, headline};
