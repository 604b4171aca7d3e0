//! Real-time priority for threads that keep a drive's time.

use std::io;

/// Priority of such threads, as `make demo` asks for.
const PRIORITY: i32 = 20;

fn set(policy: i32, priority: i32) -> io::Result<()> {
    // SAFETY: all zeroes is a value of this plain structure.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: a plain system call for the calling thread that reads a local.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Calls `start` with real-time priority, which the threads that it starts inherit and keep. Without the permission it is called
/// all the same. Returns also whether there was the permission.
pub fn in_real_time<T>(start: impl FnOnce() -> T) -> (T, bool) {
    let granted = set(libc::SCHED_FIFO, PRIORITY).is_ok();
    let result = start();
    if granted {
        set(libc::SCHED_OTHER, 0).expect("a lower priority needs no permission");
    }
    (result, granted)
}
