//! Every measured row, run on our model of its drive.
//!
//! [`rows`] runs the workloads with the small hosts of [`host`] straight on the drive, without the
//! engine, and sets our number beside the measured one. What the rows are and what is known of them
//! is in `solid_state` and `rotating`; [`table`] prints them. The calibration test refuses a row that drifts away,
//! and `docs/drives.md` holds the table.

pub mod host;
mod rotating;
mod rotating_host;
mod row;
mod solid_state;

pub use self::row::{Measured, Row, parameters, table};

/// All rows, each run with `seed`.
pub fn rows(seed: u64) -> Vec<Row> {
    let mut rows = solid_state::rows(seed);
    rows.extend(rotating::rows(seed));
    rows
}
