//! One value in one file: what it is now, and how it is set.

use serde::{Deserialize, Serialize};

use crate::{Files, HostError};

/// How a file holds a value.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Slot {
    /// The file is the value.
    Whole,
    /// The file lists words, the selected one in brackets (`none [bfq]`).
    Choice,
    /// A line for a key (a device), `KEY VALUE`; without a line, the value in `absent` holds.
    Keyed {
        /// `MAJOR:MINOR`.
        key: String,
        /// The value that removes the line.
        absent: String,
    },
    /// A word in a list, set by `+WORD` and removed by `-WORD` (`cgroup.subtree_control`).
    Word {
        /// The word.
        word: String,
    },
    /// A file of ours, replaced whole; without a value it does not exist.
    Document,
}

/// A value that is to be set.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Write {
    /// Absolute path.
    pub file: String,
    /// How the file holds it.
    pub slot: Slot,
    /// The value before; `None`: there was none.
    pub before: Option<String>,
    /// The value after.
    pub after: String,
    /// One sentence.
    pub why: String,
}

impl Write {
    /// A write whose `before` is what the file holds now.
    ///
    /// # Errors
    ///
    /// The file exists and cannot be read.
    pub fn new(
        files: &dyn Files,
        file: String,
        slot: Slot,
        after: impl Into<String>,
        why: impl Into<String>,
    ) -> Result<Self, HostError> {
        let before = current(files, &file, &slot)?;
        Ok(Self { file, slot, before, after: after.into(), why: why.into() })
    }
    /// Whether the file holds the value already.
    pub fn is_done(&self) -> bool {
        self.before.as_deref().is_some_and(|before| same(before, &self.after))
    }
    /// The file, with the device if it holds one line for each.
    pub fn place(&self) -> String {
        place(&self.file, &self.slot)
    }
}

/// A file, with the device if it holds one line for each.
pub(crate) fn place(file: &str, slot: &Slot) -> String {
    match slot {
        Slot::Keyed { key, .. } => format!("{file} [{key}]"),
        _ => file.to_owned(),
    }
}

/// The value that a file holds; `None`: no such file or no such line.
///
/// # Errors
///
/// The file exists and cannot be read.
pub(crate) fn current(
    files: &dyn Files,
    file: &str,
    slot: &Slot,
) -> Result<Option<String>, HostError> {
    let text = match files.read(file) {
        Ok(text) => text,
        Err(error) if vanished(&error) => return Ok(None),
        Err(error) => return Err(HostError::io("read", file, error)),
    };
    Ok(match slot {
        Slot::Document => Some(text),
        Slot::Whole => Some(text.trim().to_owned()),
        Slot::Choice => text.split(['[', ']']).nth(1).map(str::to_owned),
        Slot::Word { word } => {
            text.split_whitespace().find(|found| found == word).map(str::to_owned)
        }
        Slot::Keyed { key, .. } => {
            let mut lines = text.lines().filter_map(|line| line.trim().split_once(' '));
            let found = lines.rfind(|(name, _)| name == key);
            found.map(|(_, value)| value.trim().to_owned())
        }
    })
}

/// Whether a file or device is not there (any more).
pub(crate) fn vanished(error: &std::io::Error) -> bool {
    // ENODEV: what a file of a removed group reports.
    error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(19)
}

/// Sets a value; `None` removes it.
///
/// # Errors
///
/// What the system says about it.
pub(crate) fn set(
    files: &dyn Files,
    file: &str,
    slot: &Slot,
    value: Option<&str>,
) -> Result<(), HostError> {
    let text = match (slot, value) {
        (Slot::Document, Some(text)) => {
            return files.replace(file, text).map_err(|error| HostError::io("write", file, error));
        }
        (Slot::Document, None) => {
            return files.remove(file).map_err(|error| HostError::io("remove", file, error));
        }
        // A file that did not exist before holds nothing to restore.
        (Slot::Whole | Slot::Choice, None) => return Ok(()),
        (Slot::Whole | Slot::Choice, Some(value)) => value.to_owned(),
        (Slot::Keyed { key, absent }, value) => format!("{key} {}", value.unwrap_or(absent)),
        (Slot::Word { word }, Some(_)) => format!("+{word}"),
        (Slot::Word { word }, None) => format!("-{word}"),
    };
    let action = format!("write `{text}` to");
    files.write(file, &text).map_err(|error| HostError::io(&action, file, error))
}

/// Whether two values mean the same. Of `key=value` pairs, those in `wanted` have to be there; the kernel shows all of
/// them, numbers in its own style.
pub(crate) fn same(found: &str, wanted: &str) -> bool {
    let (found, wanted) = (found.trim(), wanted.trim());
    if found == wanted {
        return true;
    }
    if wanted.contains('\n') || !wanted.contains('=') {
        return false;
    }
    let equal = |a: &str, b: &str| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() < 1e-6,
        _ => a == b,
    };
    wanted.split_whitespace().all(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let found = found.split_whitespace().filter_map(|pair| pair.split_once('='));
        found.filter(|pair| pair.0 == key).any(|pair| equal(pair.1, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: values are compared as the kernel means them. Method: what it shows beside what was written.
    #[test]
    fn values_are_compared_by_meaning() {
        assert!(same("rbps=1000 wbps=max riops=max wiops=max", "rbps=1000 wbps=max"));
        assert!(!same("rbps=1001 wbps=max", "rbps=1000 wbps=max"));
        assert!(same("enable=1 ctrl=user rpct=95.00 rlat=2500", "enable=1 rpct=95 rlat=2500"));
        assert!(!same("enable=1", "enable=1 rpct=95"));
        assert!(same("300\n", "300") && !same("300", "30"));
        assert!(!same("[Slice]\nIOWeight=5\n", "[Slice]\nIOWeight=6\n"));
    }
}
