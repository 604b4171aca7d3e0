//! Why a scenario cannot be run.

use iofair_core::attainable::Unattainable;
use iofair_core::contract::Refusal;
use iofair_core::error::EngineError;
use iofair_core::unit::Sectors;
use iofair_drive::profile::ProfileError;

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No such drive, or its profile is wrong.
    #[error(transparent)]
    Drive(#[from] ProfileError),
    /// The groups do not make a tree.
    #[error(transparent)]
    Group(#[from] EngineError),
    /// The drive cannot keep the minimums.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No scheduler could keep the minimums on this drive.
    #[error("{0}; allowed is {fitting}", fitting = .0.fitting())]
    Unattainable(#[from] Unattainable),
    /// A client names a group that is not there.
    #[error("there is no group \"{0}\"")]
    NoGroup(String),
    /// A client's job cannot be done.
    #[error("client \"{client}\": {what}")]
    Job {
        /// The client.
        client: String,
        /// What is allowed.
        what: &'static str,
    },
    /// The host cannot be.
    #[error("host: {0}")]
    Host(&'static str),
    /// Elsewhere something went wrong, or cannot be.
    #[error("{0}")]
    Outside(String),
    /// No client, or too many.
    #[error("{given} processes: a run has at least 1 and at most {most}")]
    Processes {
        /// Processes asked for.
        given: u64,
        /// Most allowed.
        most: u64,
    },
    /// The files are larger than the drive.
    #[error("the clients' files do not fit on a drive of {} MiB", capacity.bytes() >> 20)]
    NoRoom {
        /// The drive.
        capacity: Sectors,
    },
}
