//! How much memory virtual machines may share with the server, in `[vhost]`.
//!
//! ```toml
//! [vhost]
//! memory = "1TiB"                     # that all machines together may share
//! memory_each = "256GiB"              # one of them
//! ```
//!
//! Sharing costs address space and page tables; but a page of such a file that is not there yet is made when the
//! server writes to it, and counts as the server's own memory then.

use crate::errors::Errors;
use crate::units::Bytes;
use crate::{ConfigError, Source, Spanned};

/// Enough for several large machines.
const MEMORY: u64 = 1 << 40;
const MEMORY_EACH: u64 = 256 << 30;
/// The least memory in which a machine has room for its queues.
const MEMORY_MIN: u64 = 1 << 20;

/// How much memory virtual machines may share with the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestMemory {
    /// All together, in bytes.
    pub all_bytes: u64,
    /// Each, in bytes.
    pub each_bytes: u64,
}

impl Default for GuestMemory {
    fn default() -> Self {
        Self { all_bytes: MEMORY, each_bytes: MEMORY_EACH }
    }
}

pub(super) fn check(
    source: &Source,
    all: Option<&Spanned<Bytes>>,
    each: Option<&Spanned<Bytes>>,
) -> Result<GuestMemory, ConfigError> {
    let mut memory = GuestMemory::default();
    let mut errors = Errors::default();
    for (written, bytes) in [(all, &mut memory.all_bytes), (each, &mut memory.each_bytes)] {
        let Some(written) = written else { continue };
        *bytes = written.get_ref().0;
        if *bytes < MEMORY_MIN {
            let error = source.error(written.span(), "too little for any virtual machine");
            errors.add(error.allowed("at least 1MiB"));
        }
    }
    errors.end().map(|()| memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::Contracts;

    fn parse(keys: &str) -> Result<GuestMemory, ConfigError> {
        let head = "[drive]\nback = 'memory:1GiB'\nstack = 'none-none'\n[vhost]\n";
        Contracts::parse("guests.toml", &format!("{head}{keys}\n")).map(|found| found.guests)
    }

    /// Goal: both limits are read, have defaults, and are refused where nothing would work. Method: each written, none,
    /// and too small.
    #[test]
    fn limits_are_read() {
        let of = |all_bytes, each_bytes| GuestMemory { all_bytes, each_bytes };
        assert_eq!(parse("").expect("good"), of(MEMORY, MEMORY_EACH));
        assert_eq!(parse("memory = '8GiB'").expect("good"), of(8 << 30, MEMORY_EACH));
        assert_eq!(parse("memory_each = '2GiB'").expect("good"), of(MEMORY, 2 << 30));
        for key in ["memory", "memory_each"] {
            let error = parse(&format!("{key} = '64KiB'")).expect_err("too small");
            assert_eq!(error.line(), 5, "{error}");
            assert!(error.to_string().contains("1MiB"), "{error}");
        }
    }
}
