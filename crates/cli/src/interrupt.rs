//! Ctrl-C and SIGTERM as a flag that long work looks at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result};
use iofair_serve::Signals;

/// The exit code after Ctrl-C, as shells have it.
pub const EXIT_CODE: u8 = 130;

/// Set by a signal; once nobody has the flag any more, a signal ends the program. Signals are blocked from now on in the
/// caller and in threads that it starts, so no other thread may run yet.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (signals, flag) =
        (Signals::block().context("signals cannot be blocked")?, Arc::downgrade(&interrupted));
    let wait = move || {
        while let Ok(signal) = signals.wait() {
            match flag.upgrade() {
                Some(flag) => drop(flag.fetch_or(signal.is_some(), Relaxed)),
                // The work is done, and the program may wait for the reader of its output.
                None if signal.is_some() => std::process::exit(EXIT_CODE.into()),
                None => {}
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(wait);
    thread.context("a thread for signals cannot be started")?;
    Ok(interrupted)
}
