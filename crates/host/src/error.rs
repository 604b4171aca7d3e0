//! Why something cannot be done on this machine: one line each.

use std::io;

use iofair_config::ConfigError;

/// Why contracts cannot be given to the kernel, or taken back.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum HostError {
    /// A line of the contract file is wrong on this machine.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No hierarchy of cgroups controls I/O.
    #[error("neither `io` of cgroup v2 nor `blkio` of v1 is mounted")]
    NoController,
    /// A file cannot be read or written.
    #[error("cannot {action} {file}: {}", reason(.error))]
    Io {
        /// `read` or `write ...to`.
        action: String,
        /// Its path.
        file: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Somebody else has changed values since they were applied.
    #[error("changed by somebody else since they were applied:{}; --force overwrites them", list(.0))]
    Changed(Vec<String>),
    /// Another command is at work.
    #[error(
        "another `iofair host` command is running and holds {0}; stop it first (systemctl stop iofair-host-watch)"
    )]
    Busy(String),
    /// The journal cannot be understood.
    #[error("the journal {file} is damaged: {why}; nothing was changed")]
    Journal {
        /// Its path.
        file: String,
        /// The parser's answer.
        why: String,
    },
}

impl HostError {
    /// An error of the kernel about one file.
    pub fn io(action: &str, file: &str, error: io::Error) -> Self {
        Self::Io { action: action.to_owned(), file: file.to_owned(), error }
    }
}

/// The kernel's answer, and what to do about it where that is known.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{error}; it needs root"),
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("{error}; the tree is mounted read-only, as in a container: run it on the host")
        }
        _ => error.to_string(),
    }
}

fn list(changed: &[String]) -> String {
    changed.iter().map(|place| format!("\n  {place}")).collect()
}
