//! Why the engine refused what it was asked. Nothing has changed then.

use alloc::string::String;
use core::fmt;

use crate::contract::{WEIGHT_MAX, WEIGHT_MIN};
use crate::group::{ClientId, DEPTH_MAX, GroupId};
use crate::request::CommandId;
use crate::unit::Sectors;

/// Why the engine refused what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// No request slot is free for this group; try again after a completion.
    Full(GroupId),
    /// There is no such client, or not any more.
    NoClient(ClientId),
    /// There is no such group, or not any more.
    NoGroup(GroupId),
    /// A flush with a length, something else without, or past the end of the drive.
    BadRange {
        /// First sector asked.
        start: Sectors,
        /// Sectors asked.
        length: Sectors,
        /// Sectors there are.
        capacity: Sectors,
    },
    /// More data than one command of the drive takes; whoever submits cuts it. What carries no data may be longer.
    TooLong {
        /// Sectors asked.
        length: Sectors,
        /// [`DriveFacts::max_request`](crate::policy::DriveFacts::max_request).
        longest: Sectors,
    },
    /// The drive does not have this command: it never had it, or it was completed already.
    NotInDrive(CommandId),
    /// A weight outside [`WEIGHT_MIN`] to [`WEIGHT_MAX`].
    BadWeight(u32),
    /// A ceiling or a latency of zero, with which nothing would ever be served.
    Zero(&'static str),
    /// A group of this name is there already.
    Exists(String),
    /// It still holds something: groups, clients or requests.
    Busy(String),
    /// An empty path component.
    BadName(String),
    /// More than [`DEPTH_MAX`] path components.
    TooDeep(String),
    /// A scheduler and its drive need at least one tag.
    NoTags,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(id) => write!(f, "no request slot is free for group {}", id.0),
            Self::NoClient(id) => write!(f, "there is no client {}", id.0),
            Self::NoGroup(id) => write!(f, "there is no group {}", id.0),
            Self::BadRange { start, length, capacity } => {
                write!(f, "{} sectors from {} on a drive of {}", length.0, start.0, capacity.0)
            }
            Self::TooLong { length, longest } => {
                write!(f, "{} sectors in one request, at most {}", length.0, longest.0)
            }
            Self::NotInDrive(command) => write!(f, "the drive does not have {command}"),
            Self::BadWeight(weight) => {
                write!(f, "a weight of {weight}; from {WEIGHT_MIN} to {WEIGHT_MAX} are allowed")
            }
            Self::Zero(what) => write!(f, "{what} of zero: nothing would be served"),
            Self::Exists(name) => write!(f, "group \"{name}\" is there already"),
            Self::Busy(name) => write!(f, "\"{name}\" still holds groups, clients or requests"),
            Self::BadName(name) => {
                write!(f, "\"{name}\" is no group name: words separated by single slashes")
            }
            Self::TooDeep(name) => write!(f, "\"{name}\" is deeper than {DEPTH_MAX} groups"),
            Self::NoTags => write!(f, "a scheduler and its drive need at least one tag"),
        }
    }
}
impl core::error::Error for EngineError {}
