//! The error type of the engine. A call that returns an error has changed nothing.

use alloc::string::String;
use core::fmt;

use crate::bounds::{DEPTH_MAX, LEVEL_MAX, WEIGHT_MAX, WEIGHT_MIN};
use crate::id::{ClientId, CommandId, GroupId};
use crate::unit::Sectors;

/// Why the engine refused a call.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// The group has no free request slot. Try again after a completion.
    Full(GroupId),
    /// The client holds [`Setup::client_limit`](crate::controller::Setup::client_limit) request slots. Try again after one
    /// of its requests completes.
    ClientFull {
        /// The client.
        client: ClientId,
        /// Its limit.
        limit: u32,
    },
    /// The client does not exist, or was removed.
    NoClient(ClientId),
    /// The group does not exist, or was removed.
    NoGroup(GroupId),
    /// The range is invalid: a flush with a length, another request without one, or a range beyond the end of the drive.
    BadRange {
        /// First sector of the request.
        start: Sectors,
        /// Length of the request.
        length: Sectors,
        /// Size of the drive.
        capacity: Sectors,
    },
    /// The request has more data than one command of the drive can carry, or is longer than
    /// [`DATALESS_MAX`](crate::controller::DATALESS_MAX); the caller must
    /// split it.
    TooLong {
        /// Length of the request.
        length: Sectors,
        /// [`DriveFacts::max_request`](crate::policy::DriveFacts::max_request), or
        /// [`DATALESS_MAX`](crate::controller::DATALESS_MAX).
        longest: Sectors,
    },
    /// The drive does not have this command: it was never dispatched, or it was completed already.
    NotInDrive(CommandId),
    /// A weight outside [`WEIGHT_MIN`] to [`WEIGHT_MAX`].
    BadWeight(u32),
    /// A ceiling or latency of zero, under which no request would ever be served.
    Zero(&'static str),
    /// A group of this name already exists.
    Exists(String),
    /// The group or client to be removed still holds groups, clients or requests.
    Busy(String),
    /// The name has an empty path component, or does not begin with the path of its parent.
    BadName(String),
    /// The name has more than [`DEPTH_MAX`] path components.
    TooDeep(String),
    /// The number of tags is zero.
    NoTags,
    /// A priority level above [`LEVEL_MAX`].
    BadLevel(u8),
    /// A field of [`Setup`](crate::controller::Setup) that no drive has; the text names it and the allowed values.
    BadSetup(&'static str),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(id) => write!(f, "no request slot is free for {id}"),
            Self::ClientFull { client, limit } => {
                write!(f, "{client} has {limit} requests in the engine, as many as it may")
            }
            Self::NoClient(id) => write!(f, "there is no {id}"),
            Self::NoGroup(id) => write!(f, "there is no {id}"),
            Self::BadRange { start, length, capacity } => {
                bad_range(f, start.0, length.0, capacity.0)
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
            Self::Busy(name) if name.is_empty() => f.write_str("the root group cannot be removed"),
            Self::Busy(name) => write!(f, "\"{name}\" still holds groups, clients or requests"),
            Self::BadName(name) => {
                write!(
                    f,
                    "\"{name}\" is not a valid group name: words separated by single slashes are allowed, \
                     those of the parent first"
                )
            }
            Self::TooDeep(name) => write!(f, "\"{name}\" is deeper than {DEPTH_MAX} groups"),
            Self::NoTags => write!(f, "a scheduler and its drive need at least one tag"),
            Self::BadLevel(level) => write!(f, "a level of {level}; 0 to {LEVEL_MAX} are allowed"),
            Self::BadSetup(allowed) => f.write_str(allowed),
        }
    }
}
impl core::error::Error for EngineError {}

/// What is wrong with a range, and what is allowed.
fn bad_range(f: &mut fmt::Formatter<'_>, start: u64, length: u64, capacity: u64) -> fmt::Result {
    if length == 0 {
        return f.write_str("a request of 0 sectors; only a flush has no length");
    }
    if start.checked_add(length).is_some_and(|end| end <= capacity) {
        return write!(f, "a flush of {length} sectors; its length must be 0");
    }
    write!(
        f,
        "{length} sectors from sector {start} end beyond the drive, which has {capacity} sectors"
    )
}
