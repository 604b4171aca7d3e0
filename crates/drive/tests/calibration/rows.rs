//! Runs every measured row on our model of its drive.
//!
//! [`rows`] runs the workloads with the minimal hosts of [`host`] directly on the drive, without the engine, and
//! compares the result with the measured number. `solid_state` and `rotating` describe the rows and their sources;
//! [`table`] prints them. The calibration test fails if a row becomes worse, and `lab/docs/drives.md` contains the table.

mod host;
mod rotating;
mod rotating_host;
mod row;
mod solid_state;

pub(crate) use self::row::{Measured, Row, parameters, table};

/// All rows, each run with `seed`.
pub(crate) fn rows(seed: u64) -> Vec<Row> {
    let mut rows = solid_state::rows(seed);
    rows.extend(rotating::rows(seed));
    rows
}
