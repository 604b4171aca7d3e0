//! Signals as a queue: blocked in all threads, and taken one by one by the thread that waits.

use std::io;

/// A signal that a server handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGHUP: reload the contracts.
    Reload,
    /// SIGTERM or SIGINT: end.
    Stop,
}

/// Runs `start` with all signals blocked, so that threads that it starts are never chosen to receive one.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both calls fill or read local sets; a valid set is never refused.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started
    }
}

/// The signals of [`Signal`], blocked for this process.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks them in the calling thread and in threads that it starts; call it before starting any.
    pub fn block() -> io::Result<Self> {
        // SAFETY: all calls fill or read the local set, or name a constant.
        unsafe {
            // A file that would be longer than a limit allows (`ulimit -f`) is an error of the call that makes it so.
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGHUP, libc::SIGTERM, libc::SIGINT] {
                libc::sigaddset(&raw mut set, signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(Self { set }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
    /// The next signal; `None` if none came within a second.
    pub fn wait(&self) -> io::Result<Option<Signal>> {
        let second = libc::timespec { tv_sec: 1, tv_nsec: 0 };
        // SAFETY: reads the set and the local time; nothing is returned through the null pointer.
        let signal = unsafe {
            libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const second)
        };
        match signal {
            libc::SIGHUP => Ok(Some(Signal::Reload)),
            libc::SIGTERM | libc::SIGINT => Ok(Some(Signal::Stop)),
            _ => {
                let error = io::Error::last_os_error();
                let quiet = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR));
                if quiet { Ok(None) } else { Err(error) }
            }
        }
    }
}
