//! What can be wrong with a trace, and where.

use std::fmt;
use std::io;

use crate::printable::printable;

/// A place in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// A byte, counted from 0.
    Byte(u64),
}

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file has something that its format does not allow.
    #[error("{}{place}: {}", printable(file), printable(what))]
    Content {
        /// The file.
        file: String,
        /// Where in it.
        place: Place,
        /// What was wrong, and what is allowed.
        what: String,
    },
    /// Reading or writing failed.
    #[error("{}: {}", printable(file), printable(&error.to_string()))]
    Io {
        /// The file.
        file: String,
        /// The cause.
        error: io::Error,
    },
}

impl TraceError {
    /// An error about a place in a file.
    pub fn content(file: &str, place: Place, what: impl Into<String>) -> Self {
        Self::Content { file: file.to_owned(), place, what: what.into() }
    }
    /// A failed system call on a file.
    pub fn io(file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |error| Self::Io { file, error }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Line(line) => write!(f, ":{line}"),
            Self::Byte(byte) => write!(f, ": byte {byte}"),
        }
    }
}

/// The result of everything here.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;
