//! What functions return: numbers for programs, and a message for people.
//!
//! The message of a thread's last failure lies in a buffer of fixed size that belongs to the thread, so that a refused request
//! (`IOFAIR_ERROR_FULL` is an everyday answer) allocates nothing.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::fmt::{self, Write};

use iofair_core::error::EngineError;

/// Done.
pub const IOFAIR_OK: i32 = 0;
/// Nothing to return: no command to dispatch, no completion left. Not an error.
pub const IOFAIR_NONE: i32 = 1;
/// A pointer is NULL or not aligned.
pub const IOFAIR_ERROR_POINTER: i32 = -1;
/// A value is not allowed: an unknown operation, flag or class, a reserved field that is not zero, text that is not UTF-8.
pub const IOFAIR_ERROR_ARGUMENT: i32 = -2;
/// There is no such stack, policy or parameter.
pub const IOFAIR_ERROR_STACK: i32 = -3;
/// A contract is refused: a weight out of range, a limit of zero, an error in a contract file, a minimum that the drive
/// cannot keep.
pub const IOFAIR_ERROR_CONTRACT: i32 = -4;
/// No request slot is free for the client's group. Try again after a completion.
pub const IOFAIR_ERROR_FULL: i32 = -5;
/// The client does not exist, or no longer.
pub const IOFAIR_ERROR_NO_CLIENT: i32 = -6;
/// The group does not exist, or no longer.
pub const IOFAIR_ERROR_NO_GROUP: i32 = -7;
/// Offset and length are not multiples of 512, do not fit the operation, or end past the drive.
pub const IOFAIR_ERROR_RANGE: i32 = -8;
/// More data than iofair_setup.max_request_bytes.
pub const IOFAIR_ERROR_TOO_LONG: i32 = -9;
/// The drive does not have this command: it never had it, or it is completed already.
pub const IOFAIR_ERROR_NOT_IN_DRIVE: i32 = -10;
/// There is a group of this name already.
pub const IOFAIR_ERROR_EXISTS: i32 = -11;
/// The group or client still holds groups, clients or requests.
pub const IOFAIR_ERROR_BUSY: i32 = -12;
/// The name of a group is not words separated by single slashes, or has more than 32 of them.
pub const IOFAIR_ERROR_NAME: i32 = -13;
/// Another thread is inside a call on this engine.
pub const IOFAIR_ERROR_IN_USE: i32 = -14;
/// An error inside the library. The engine refuses every further call except iofair_engine_free; the same is
/// returned by the call that met it. Please report it.
pub const IOFAIR_ERROR_POISONED: i32 = -15;
/// 65536 completions were not read; call iofair_next_completion first.
pub const IOFAIR_ERROR_UNREAD: i32 = -16;

/// Every code with its name.
const NAMES: [(i32, &CStr); 18] = [
    (IOFAIR_OK, c"IOFAIR_OK"),
    (IOFAIR_NONE, c"IOFAIR_NONE"),
    (IOFAIR_ERROR_POINTER, c"IOFAIR_ERROR_POINTER"),
    (IOFAIR_ERROR_ARGUMENT, c"IOFAIR_ERROR_ARGUMENT"),
    (IOFAIR_ERROR_STACK, c"IOFAIR_ERROR_STACK"),
    (IOFAIR_ERROR_CONTRACT, c"IOFAIR_ERROR_CONTRACT"),
    (IOFAIR_ERROR_FULL, c"IOFAIR_ERROR_FULL"),
    (IOFAIR_ERROR_NO_CLIENT, c"IOFAIR_ERROR_NO_CLIENT"),
    (IOFAIR_ERROR_NO_GROUP, c"IOFAIR_ERROR_NO_GROUP"),
    (IOFAIR_ERROR_RANGE, c"IOFAIR_ERROR_RANGE"),
    (IOFAIR_ERROR_TOO_LONG, c"IOFAIR_ERROR_TOO_LONG"),
    (IOFAIR_ERROR_NOT_IN_DRIVE, c"IOFAIR_ERROR_NOT_IN_DRIVE"),
    (IOFAIR_ERROR_EXISTS, c"IOFAIR_ERROR_EXISTS"),
    (IOFAIR_ERROR_BUSY, c"IOFAIR_ERROR_BUSY"),
    (IOFAIR_ERROR_NAME, c"IOFAIR_ERROR_NAME"),
    (IOFAIR_ERROR_IN_USE, c"IOFAIR_ERROR_IN_USE"),
    (IOFAIR_ERROR_POISONED, c"IOFAIR_ERROR_POISONED"),
    (IOFAIR_ERROR_UNREAD, c"IOFAIR_ERROR_UNREAD"),
];

/// A failure on its way to the caller; its message is in [`MESSAGE`] already.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) i32);

impl Failure {
    /// With a message for the thread.
    pub(crate) fn new(code: i32, message: impl fmt::Display) -> Self {
        MESSAGE.with_borrow_mut(|buffer| buffer.set(message));
        Self(code)
    }
    pub(crate) fn argument(message: impl fmt::Display) -> Self {
        Self::new(IOFAIR_ERROR_ARGUMENT, message)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let code = match &error {
            EngineError::Full(_) => IOFAIR_ERROR_FULL,
            EngineError::NoClient(_) => IOFAIR_ERROR_NO_CLIENT,
            EngineError::NoGroup(_) => IOFAIR_ERROR_NO_GROUP,
            EngineError::BadRange { .. } => IOFAIR_ERROR_RANGE,
            EngineError::TooLong { .. } => IOFAIR_ERROR_TOO_LONG,
            EngineError::NotInDrive(_) => IOFAIR_ERROR_NOT_IN_DRIVE,
            EngineError::BadWeight(_) | EngineError::Zero(_) => IOFAIR_ERROR_CONTRACT,
            EngineError::Exists(_) => IOFAIR_ERROR_EXISTS,
            EngineError::Busy(_) => IOFAIR_ERROR_BUSY,
            EngineError::BadName(_) | EngineError::TooDeep(_) => IOFAIR_ERROR_NAME,
            _ => IOFAIR_ERROR_ARGUMENT,
        };
        Self::new(code, error)
    }
}

/// Longest message, its final zero included; what is longer is cut.
const MESSAGE_BYTES_MAX: usize = 2048;

/// Text that ends with a zero.
struct Message {
    bytes: [u8; MESSAGE_BYTES_MAX],
    length: usize,
}

impl Message {
    fn set(&mut self, message: impl fmt::Display) {
        self.length = 0;
        // An error of `write` says that the rest did not fit.
        let _ = write!(self, "{message}");
        self.bytes[self.length] = 0;
    }
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let end = self.length + c.len_utf8();
            if end >= MESSAGE_BYTES_MAX {
                return Err(fmt::Error);
            }
            c.encode_utf8(&mut self.bytes[self.length..end]);
            // A zero in the middle would end the message.
            if c != '\0' {
                self.length = end;
            }
        }
        Ok(())
    }
}

thread_local! {
    static MESSAGE: RefCell<Message> =
        const { RefCell::new(Message { bytes: [0; MESSAGE_BYTES_MAX], length: 0 }) };
}

/// What went wrong in the last call of this thread that returned an error: one or more lines of UTF-8 without a newline at
/// the end, empty if there was none. The text is the library's; it is valid until the next call of this thread
/// that returns an error, and no longer than the thread.
#[unsafe(no_mangle)]
pub extern "C" fn iofair_last_error() -> *const c_char {
    MESSAGE.with(|buffer| buffer.as_ptr().cast::<c_char>().cast_const())
}

/// The name of a code, as "IOFAIR_ERROR_FULL"; "unknown" for other numbers. Never NULL, never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn iofair_code_name(code: i32) -> *const c_char {
    let found = NAMES.iter().find(|(number, _)| *number == code);
    found.map_or(c"unknown", |(_, name)| name).as_ptr()
}
