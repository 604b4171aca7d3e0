//! Calibration from what other people measured: the CSV files under `profiles/measured`, and files like them.

use std::path::Path;

use iofair_core::policy::DriveFacts;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::fit::{Scope, Survey, published};

use super::Calibration;

/// The rows of a drive in a file.
///
/// # Errors
///
/// Files that cannot be read or have other columns, and drives that are not there, in words that begin with the path.
pub fn read(path: &Path, drive: &str) -> Result<Calibration, String> {
    let bad = |what: &dyn core::fmt::Display| format!("{}: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| bad(&error))?;
    let found = published(&text, drive).map_err(|error| bad(&error))?;
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
    let title = format!("{drive}, from {} {}", path.display(), found.source).trim_end().to_owned();
    let number = "MAJOR:MINOR".to_owned();
    Ok(Calibration { title, number, scope, rows, records, survey, published: Some(found) })
}
