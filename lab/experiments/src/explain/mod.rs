//! Why did this request wait? A run watched with its trace on, in two passes.
//!
//! [`Survey`] watches a whole run: waiting times by client and place, the rules that held requests, and the slowest
//! requests. [`Stories`] watches the same run again, which repeats to the nanosecond, and tells what happened to a few
//! requests, chosen by submission sequence. Neither stores more than it prints: each event is processed once and
//! dropped.
//!
//! Places where a request can be: each throttle, waiting for a tag, queued in the scheduler, a flush
//! waiting for its client's writes (or for the flush before it), and the drive.

mod names;
mod pool;
mod rule;
mod story;
mod survey;
#[cfg(test)]
mod tests;
mod text;

pub use story::{Line, Stories, Story};
pub use survey::{RuleCount, Slow, Summary, Survey, Wait};
pub use text::{stories as stories_text, summary as summary_text};
