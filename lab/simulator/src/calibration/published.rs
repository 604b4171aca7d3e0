//! Calibration from what other people measured: the CSV files under `profiles/measured`, files like them, and results that become
//! such tables ([`super::results`]).

use iofair_core::policy::DriveFacts;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::fit::{Scope, Survey, published};

use super::Calibration;

/// The rows of a drive in a table; `place` is where it comes from.
///
/// # Errors
///
/// Tables with other columns, and drives that are not there, in words.
pub(super) fn read(place: &str, table: &str, drive: &str) -> Result<Calibration, String> {
    let found = published(table, drive)?;
    let (capacity, max_request) = (Sectors::from_bytes_ceil(found.capacity), Sectors(1024));
    let facts = DriveFacts { rotational: false, depth: 1023, max_request, capacity };
    let (area, fill) = (found.capacity, (0, Nanos::ZERO));
    let row_time = Nanos::ZERO;
    let scope = Scope { facts, area, writes: true, row_time, fill, is_simulated: true };
    // Nothing was surveyed; these numbers contradict nothing.
    let survey = Survey {
        is_disk: false,
        lone_read: (1e5, 0.0),
        read_rate: 1e9,
        flush: 0.0,
        regimes: Vec::new(),
        write_rate: 1,
        fill_bytes: 0,
        limits: None,
    };
    let (rows, records) = (found.rows.clone(), found.records.clone());
    let title = format!("{drive}, from {place} {}", found.source);
    let title = title.trim_start_matches(", ").trim_end().to_owned();
    let number = "MAJOR:MINOR".to_owned();
    Ok(Calibration { title, number, scope, rows, records, survey, published: Some(found) })
}
