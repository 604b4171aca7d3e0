//! Drives and volumes that fail, as an operator sees them.

use std::io;

use iofair_core::time::Instant;
use serde::Serialize;

use super::audit::time_of_day;
use crate::clock::unix_millis;
use crate::engine::failing::FailureReport;
use crate::engine::runs::Failing;

/// Something that fails: the last requests of a kind have all failed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Failure {
    /// The volume; absent: the whole drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    /// The kind of requests.
    #[cfg_attr(test, schemars(extend("enum" = ["read", "write", "flush"])))]
    requests: &'static str,
    /// When the first one failed: time of day, UTC.
    since: String,
    /// How many have failed since.
    count: u64,
    /// The last error.
    error: String,
    /// The same in words.
    text: String,
}

/// All that fails; at the instant `now` of the engine.
pub(super) fn failures(now: Instant, report: FailureReport) -> Vec<Failure> {
    let one = |volume: Option<String>, run: Failing| {
        let since = time_of_day(unix_millis().saturating_sub(now.since(run.since).0 / 1_000_000));
        let what = volume.as_ref().map_or("the drive".into(), |name| format!("volume \"{name}\""));
        let text = format!("{what}: {}", run.text(&since));
        let Failing { requests, count, status, .. } = run;
        let error = io::Error::from_raw_os_error(status).to_string();
        Failure { volume, requests, since, count, error, text }
    };
    let drive = report.drive.map(|run| one(None, run));
    let volumes = report.volumes.into_iter().map(|(name, run)| one(Some(name), run));
    drive.into_iter().chain(volumes).collect()
}
