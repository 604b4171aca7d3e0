//! Why a server did not start or did not apply new contracts.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use iofair_config::ConfigError;
use iofair_core::contract::Refusal;

use crate::consent::Unagreed;

/// Why a server did not start or did not apply new contracts.
#[derive(Debug)]
pub enum ServeError {
    /// The contract file is wrong, or does not fit the drive.
    Config(ConfigError),
    /// The drive cannot keep all minimums.
    Refused(Refusal),
    /// The drive cannot keep a minimum or a latency of a group.
    Infeasible(ConfigError),
    /// There is no room for a volume.
    Full(Box<Self>),
    /// A system call failed.
    System {
        /// The attempted operation.
        what: String,
        /// The error.
        error: io::Error,
    },
    /// New contracts change something that a running server cannot change.
    Fixed(String),
    /// The file beside a pool that records the position of its volumes is invalid.
    Layout {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A volume cannot be as the contracts say.
    Volume {
        /// The volume.
        name: String,
        /// The reason.
        message: String,
    },
    /// Volumes cannot be as the contracts say without consent.
    Consent(Box<Unagreed>),
    /// A file with certificates or keys cannot be used.
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A volume needs free extents with this many bytes that must be zeroed first.
    Zeroing(u64),
    /// Another change has not ended in this time.
    Busy(Duration),
    /// The reactor has ended.
    Gone,
}

impl ServeError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::System { what, error }
    }
    pub(crate) fn volume(name: &str, message: impl Into<String>) -> Self {
        Self::Volume { name: name.to_string(), message: message.into() }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) | Self::Infeasible(error) => error.fmt(f),
            Self::Full(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::System { what, error } => write!(f, "{what}: {error}"),
            Self::Fixed(what) => write!(f, "{what} cannot change while the server runs"),
            Self::Layout { path, message } | Self::Tls { path, message } => {
                write!(f, "{}: {message}", path.display())
            }
            Self::Consent(unagreed) => {
                write!(f, "{}\n  to accept this: {}", unagreed.why, unagreed.commands)
            }
            Self::Volume { name, message } => write!(f, "volume \"{name}\": {message}"),
            Self::Zeroing(bytes) => write!(
                f,
                "{bytes} bytes of free space that held other data must be zeroed first, at the cost of its group; bytes already zeroed stay zeroed, so try again"
            ),
            Self::Busy(time) => write!(
                f,
                "another change waits for storage or for clients, and has not ended in {time:?}; try again"
            ),
            Self::Gone => f.write_str("the server has ended"),
        }
    }
}
impl std::error::Error for ServeError {}

impl From<ConfigError> for ServeError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}
impl From<Refusal> for ServeError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
