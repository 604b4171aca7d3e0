//! What each policy stack keeps on every drive of the library, fresh and in the steady state.
//!
//! ```text
//! minimum   a reader with a minimum has 0.97 of it
//! shares    clients of one kind have rates as their weights, and a reader has a quarter of its share at least
//! latency   one read in a hundred takes longer than what was promised, at most
//! total     all clients together have 0.95 of what no control gives them and the minimum leaves
//! ```
//!
//! Four loads ([`load`]) ask this. `make stacks` runs them and keeps what was measured as `reproduction/evidence/stacks.csv`; the
//! tables ([`table`]) and the picture ([`picture`]) of `reproduction/stacks.md` follow from that.

mod line;
mod load;
mod picture;
mod run;
mod table;

pub use line::STACKS;
pub use picture::stacks_picture;
pub use run::stacks_csv;
pub use table::{stacks_kept, stacks_tables};

#[cfg(test)]
mod tests;
