//! Volumes that are not in the contracts any more, and whose data is kept.

use std::path::PathBuf;

use iofair_config::contracts::Contracts;
use iofair_config::shell;
use iofair_core::unit::Count;
use serde::Serialize;

use super::ctl;

/// Volumes that are told of one by one.
const TOLD_MAX: usize = 16;

/// A removed volume with its data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Kept {
    /// The name that it had.
    pub(crate) name: String,
    /// The group for which its data is kept; empty if an earlier version did not record it.
    pub(crate) group: String,
    pub(crate) size_bytes: u64,
    /// The file or device with its data; absent: memory, which ends with the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<PathBuf>,
    /// The pool from which it can be deleted.
    #[serde(skip)]
    pub(crate) pool: Option<PathBuf>,
    /// Whether the contracts had its path.
    #[serde(skip)]
    pub(crate) is_elsewhere: bool,
}

impl Kept {
    /// Where its data is, and the commands that use it again and delete it.
    fn text(&self, contracts: &Contracts) -> String {
        let Self { name, group, size_bytes, path, pool, is_elsewhere } = self;
        let place = path.as_ref().map(|path| format!("in {}", path.display()));
        let place = place.unwrap_or("in memory until the server ends".into());
        let (ctl, word) = (ctl(contracts), shell::word(name));
        let has_ctl = contracts.control.unix.is_some() || contracts.control.tcp.is_some();
        let path = path.as_ref().filter(|_| *is_elsewhere);
        let path = path.map(|path| format!(" path={}", shell::path(path))).unwrap_or_default();
        let again = match has_ctl {
            true => {
                format!("`{ctl} volume create {word} {} {size_bytes}{path}`", shell::word(group))
            }
            false => format!("put it back into {}", contracts.path()),
        };
        let delete = pool.as_ref().map(|pool| {
            let remove = format!("`{ctl} volume remove {word} --delete-data`, or ");
            let remove = if has_ctl { remove } else { String::new() };
            let pool = shell::path(pool);
            format!("; to delete it: {remove}`iofair pool delete {pool} {word}` without a server")
        });
        format!(
            "volume \"{name}\" is not in the contracts any more; its data ({}) is kept {place} for group \
             \"{group}\"; to use it again: {again}{}",
            Count(*size_bytes, "byte"),
            delete.unwrap_or_default()
        )
    }
}

/// What an operator should know of those that are kept now and were not `before`.
pub(crate) fn notes(now: Vec<Kept>, before: &[Kept], contracts: &Contracts) -> Vec<String> {
    let new: Vec<Kept> = now.into_iter().filter(|kept| !before.contains(kept)).collect();
    let mut notes: Vec<String> =
        new.iter().take(TOLD_MAX).map(|kept| kept.text(contracts)).collect();
    if new.len() > TOLD_MAX {
        let (ctl, more) = (ctl(contracts), new.len() - TOLD_MAX);
        notes.push(format!("{more} more are kept: `{ctl} volume list` shows them"));
    }
    notes
}
