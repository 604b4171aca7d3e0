//! Directories below which things must lie that callers of the control API may name: volumes with a `path`, sockets of
//! virtual machines' disks.
//!
//! ```toml
//! [drive]
//! paths = ["/srv/volumes", "/dev/disk/by-id"]   # every `path` of a [[volume]] lies below one of them
//! [vhost]
//! paths = ["/run/machines"]                     # where calls may make sockets, beside the server's own directories
//! ```
//!
//! Here they are judged as they are written; where links lead is for whoever opens them.

use std::path::{Component, Path, PathBuf};

use crate::errors::all;
use crate::{ConfigError, Source, Spanned};

/// Directories that may be listed.
const LISTED_MAX: usize = 64;

/// The directories of a list.
pub(super) fn listed(
    source: &Source,
    written: &[Spanned<String>],
) -> Result<Vec<PathBuf>, ConfigError> {
    let check = |(index, directory): (usize, &Spanned<String>)| {
        let refuse = |message: String| {
            let error = source.error(directory.span(), message);
            Err(error.allowed("an absolute path of a directory, without `..`"))
        };
        let text = directory.get_ref();
        if !is_plain(Path::new(text)) || text == "/" {
            return refuse(format!("\"{text}\" is no directory below which things may lie"));
        }
        if index >= LISTED_MAX {
            return refuse(format!("more than {LISTED_MAX} directories"));
        }
        Ok(PathBuf::from(text))
    };
    all(written.iter().enumerate().take(LISTED_MAX + 1).map(check))
}

/// A volume's path lies below one of the listed directories, as it is written.
pub(super) fn check(
    source: &Source,
    path: &Spanned<String>,
    listed: &[PathBuf],
) -> Result<(), ConfigError> {
    let text = path.get_ref();
    let below = |directory: &PathBuf| {
        let rest = Path::new(text).strip_prefix(directory);
        rest.is_ok_and(|rest| !rest.as_os_str().is_empty())
    };
    if is_plain(Path::new(text)) && listed.iter().any(below) {
        return Ok(());
    }
    let message = format!("\"{text}\" is below no directory in `paths` of [drive]");
    let names: Vec<String> = listed.iter().map(|path| path.display().to_string()).collect();
    let allowed = match names.is_empty() {
        true => "paths = [\"DIRECTORY\"] in [drive], and an absolute path below it".to_string(),
        false => format!("an absolute path below {}, without `..`", names.join(", ")),
    };
    Err(source.error(path.span(), message).allowed(allowed))
}

fn is_plain(path: &Path) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(plain)
}
