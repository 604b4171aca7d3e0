//! Why a server did not start or did not apply new contracts.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use iofair_config::ConfigError;
use iofair_core::contract::Refusal;
use iofair_core::unit::Count;

use crate::consent::Unagreed;
use crate::descriptors;

/// Why a server did not start or did not apply new contracts.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The contract file is wrong, or does not fit the drive.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The drive cannot keep all minimums.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The drive cannot keep a minimum or a latency of a group.
    #[error("{0}")]
    Infeasible(ConfigError),
    /// There is no room for a volume.
    #[error("{0}")]
    Full(Box<Self>),
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// The attempted operation.
        what: String,
        /// The error.
        error: io::Error,
    },
    /// The process may open too few files.
    #[error("{0}")]
    Descriptors(String),
    /// New contracts change something that a running server cannot change.
    #[error("{0} cannot change while the server runs")]
    Fixed(String),
    /// A change is in force, but for a part of it.
    #[error("{0}")]
    Unfinished(String),
    /// The file beside a pool that records the position of its volumes is invalid.
    #[error("{}: {message}", path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A volume cannot be as the contracts say.
    #[error("volume \"{name}\": {message}")]
    Volume {
        /// The volume.
        name: String,
        /// The reason.
        message: String,
    },
    /// Volumes cannot be as the contracts say without consent.
    #[error("{}\n  to accept this: {}", .0.why, .0.commands)]
    Consent(Box<Unagreed>),
    /// A file with certificates or keys cannot be used.
    #[error("{}: {message}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A volume needs free extents with this many bytes that must be zeroed first.
    #[error(
        "{} of free space that held other data must be zeroed first, at the cost of its group; bytes already zeroed stay zeroed, so try again",
        counted(.0)
    )]
    Zeroing(u64),
    /// Another change has not ended in this time.
    #[error(
        "another change waits for storage or for clients, and has not ended in {0:?}; try again"
    )]
    Busy(Duration),
    /// The reactor has ended.
    #[error("the server has ended")]
    Gone,
}

fn counted(bytes: &u64) -> Count<'static, u64> {
    Count(*bytes, "byte")
}

impl ServeError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| match (error.raw_os_error(), descriptors::limit()) {
            (Some(libc::EMFILE), Some(limit)) => Self::Descriptors(format!(
                "{what}: {error}: this process may open {} (RLIMIT_NOFILE)",
                Count(limit, "file")
            )),
            _ => Self::System { what, error },
        }
    }
    pub(crate) fn volume(name: &str, message: impl Into<String>) -> Self {
        Self::Volume { name: name.to_string(), message: message.into() }
    }
}
