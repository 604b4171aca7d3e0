//! Ctrl-C and SIGTERM as a flag that long work looks at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result};
use iofair_serve::Signals;

/// The exit code after Ctrl-C, as shells have it.
pub(crate) const EXIT_CODE: u8 = 130;

/// Set by a signal. Signals are blocked from now on in the caller and in threads that it starts, so no other thread may
/// run yet.
pub(crate) fn flag() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (signals, flag) =
        (Signals::block().context("signals cannot be blocked")?, Arc::downgrade(&interrupted));
    let wait = move || {
        // Until nobody looks at the flag any more.
        while let (Some(flag), Ok(signal)) = (flag.upgrade(), signals.wait()) {
            flag.fetch_or(signal.is_some(), Relaxed);
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(wait);
    thread.context("a thread for signals cannot be started")?;
    Ok(interrupted)
}
