//! Results of functions: codes, and a message for the last error of a thread.
//!
//! The message is in a thread-local buffer of fixed size, so that a refused request (`IOFAIR_ERROR_FULL` is common) allocates
//! nothing.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::fmt::{self, Write};

use iofair_core::error::EngineError;

/// Success.
pub const IOFAIR_OK: i32 = 0;
/// No command to dispatch, or no completion to read. Not an error.
pub const IOFAIR_NONE: i32 = 1;
/// A pointer is NULL or not aligned.
pub const IOFAIR_ERROR_POINTER: i32 = -1;
/// An invalid value: an unknown operation, flag or class, a reserved field that is not zero, a string that is not UTF-8.
pub const IOFAIR_ERROR_ARGUMENT: i32 = -2;
/// Unknown stack, policy or parameter.
pub const IOFAIR_ERROR_STACK: i32 = -3;
/// An invalid contract: a weight out of range, an error in a contract file, a minimum that the drive cannot keep.
pub const IOFAIR_ERROR_CONTRACT: i32 = -4;
/// The client's group has no free request slot, or the client has iofair_setup.client_limit pending requests. Submit the
/// request again after a completion.
pub const IOFAIR_ERROR_FULL: i32 = -5;
/// The client does not exist or has been removed.
pub const IOFAIR_ERROR_NO_CLIENT: i32 = -6;
/// The group does not exist or has been removed.
pub const IOFAIR_ERROR_NO_GROUP: i32 = -7;
/// Offset or length is not a multiple of 512, does not fit the operation, or is past the end of the drive.
pub const IOFAIR_ERROR_RANGE: i32 = -8;
/// The read or write is longer than iofair_setup.max_request_bytes.
pub const IOFAIR_ERROR_TOO_LONG: i32 = -9;
/// The command is not in flight: it does not exist, or it was completed before.
pub const IOFAIR_ERROR_NOT_IN_DRIVE: i32 = -10;
/// A group with this path exists.
pub const IOFAIR_ERROR_EXISTS: i32 = -11;
/// The group or client still has groups, clients or requests.
pub const IOFAIR_ERROR_BUSY: i32 = -12;
/// The path of a group has an empty component, or more than 32 components.
pub const IOFAIR_ERROR_NAME: i32 = -13;
/// Another thread is inside a call on this engine.
pub const IOFAIR_ERROR_IN_USE: i32 = -14;
/// Internal error of the library; please report it. The engine refuses all further calls except iofair_engine_free.
pub const IOFAIR_ERROR_POISONED: i32 = -15;
/// There are 65536 unread completions; call iofair_next_completion first.
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
            EngineError::Full(_) | EngineError::ClientFull { .. } => IOFAIR_ERROR_FULL,
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

/// Returns the message of the last error in this thread: one or more lines of UTF-8 without a newline at the end, or an empty
/// string if there was none. Do not free it. It is valid until the next error in this thread or the end of the thread.
#[unsafe(no_mangle)]
pub extern "C" fn iofair_last_error() -> *const c_char {
    MESSAGE.with(|buffer| buffer.as_ptr().cast::<c_char>().cast_const())
}

/// Returns the name of a code, such as "IOFAIR_ERROR_FULL", or "unknown". Never NULL; do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn iofair_code_name(code: i32) -> *const c_char {
    let found = NAMES.iter().find(|(number, _)| *number == code);
    found.map_or(c"unknown", |(_, name)| name).as_ptr()
}
