//! Guards mapped memory that others can take away: a virtual machine's memory, which its monitor may truncate at any
//! moment, or a file of an emulated drive on a full disk.
//!
//! The kernel raises SIGBUS at an access to a missing page, which ends the process and with it all volumes.
//! Therefore a single handler covers all such mappings: if the address is in a watched mapping, the whole mapping
//! becomes private zeroes, which can be read and written, and the mapping is *lost*. Users of a mapping check
//! [`Watch::is_lost`] before they trust data from it or report a write to it as done. Any other fault goes to the
//! previous handler, so it still ends the process with a core dump. System calls on such memory (and io_uring) get no
//! signal but `EFAULT`, which fails only that request.
//!
//! A signal handler must not block or allocate. This one reads a list that only grows, of ranges with a version each.
//! A writer makes the version odd while it changes a range, and the range in which a thread faults never changes
//! meanwhile, because that thread holds the watch. An entry is reused when its watch is dropped, so the list is as
//! long as the largest number of watches at once; 512 regions and an in-flight region per socket are allowed.

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

// A signal handler can only access statics.
static FIRST: AtomicPtr<Range> = AtomicPtr::new(ptr::null_mut());
static LOSSES: AtomicU64 = AtomicU64::new(0);
static FREE: Mutex<Vec<&'static Range>> = Mutex::new(Vec::new());
/// The previous handler of the signal.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// An entry of the list; never freed.
#[derive(Debug, Default)]
struct Range {
    /// Set before the entry is in the list.
    next: AtomicPtr<Self>,
    /// Odd while the rest changes.
    version: AtomicUsize,
    start: AtomicUsize,
    /// If not above `start`, nothing is watched.
    end: AtomicUsize,
    lost: AtomicBool,
}

impl Range {
    /// A free entry.
    fn take(free: &mut Vec<&'static Self>) -> &'static Self {
        if let Some(range) = free.pop() {
            return range;
        }
        let range: &'static Self = Box::leak(Box::default());
        // `free` is locked, so no other thread adds an entry meanwhile.
        range.next.store(FIRST.load(Ordering::Relaxed), Ordering::Relaxed);
        FIRST.store(ptr::from_ref(range).cast_mut(), Ordering::Release);
        range
    }
    fn set(&self, start: usize, end: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.lost.store(false, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
    /// The range, if it contains this address.
    fn with(&self, address: usize) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let (start, end) = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let stable = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (stable && (start..end).contains(&address)).then_some((start, end))
    }
}

/// A watched mapping, which may lose pages without ending the process. Drop it before the mapping is unmapped.
#[derive(Debug)]
pub(crate) struct Watch(&'static Range);

impl Watch {
    /// Watches a mapping.
    ///
    /// # Safety
    /// `length` bytes from `start` are one mapping of the caller, which lives as long as the watch and may be replaced by
    /// zeroes at any moment.
    pub(crate) unsafe fn over(start: *const u8, length: usize) -> io::Result<Self> {
        install()?;
        let range = Range::take(&mut FREE.lock().unwrap_or_else(PoisonError::into_inner));
        range.set(start as usize, (start as usize).saturating_add(length));
        Ok(Self(range))
    }
    /// Whether a part of it was lost. Its contents are then arbitrary, and writes to it were lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.set(0, 0);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// Number of mappings lost in this process so far. While it does not change, nothing was lost.
pub(crate) fn losses() -> u64 {
    LOSSES.load(Ordering::Acquire)
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Miri has no signal handlers.
    if *done || cfg!(miri) {
        return Ok(());
    }
    // SAFETY: all zeroes is a valid action: the default one, with nothing blocked.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { mem::zeroed() };
    ours.sa_sigaction = on_fault as *const () as libc::sighandler_t;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: fills a local.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Before the handler is installed, since it reads this.
    BEFORE.get_or_init(|| before);
    // SAFETY: reads a local; the handler has the type that `SA_SIGINFO` requires, and is async-signal-safe.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *done = true;
    Ok(())
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the address of this thread's own error number, which the interrupted code may be about to read.
    let error = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel hands every handler of this kind a filled description of the signal.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // The machine has found a bad page that no thread has touched yet; a thread that touches it gets the other code.
    if code == libc::BUS_MCEERR_AO {
        return;
    }
    // A signal sent by a process has no address.
    let replaced = code > 0 && replace(address);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    if !replaced {
        pass_on(signal, info, context, code);
    }
}

/// Replaces the watched mapping that contains this address by zeroes.
fn replace(address: usize) -> bool {
    let mut next = FIRST.load(Ordering::Acquire);
    // SAFETY: entries are never freed, and are complete before a pointer to them is stored.
    while let Some(range) = unsafe { next.as_ref() } {
        next = range.next.load(Ordering::Relaxed);
        let Some((start, end)) = range.with(address) else { continue };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let place = ptr::with_exposed_provenance_mut(start);
        // SAFETY: the owner of the mapping allows this (see `Watch::over`), and the mapping exists, since the faulting
        // thread uses it.
        let mapped = unsafe { libc::mmap(place, end - start, protection, kind, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        range.lost.store(true, Ordering::Release);
        LOSSES.fetch_add(1, Ordering::Release);
        return true;
    }
    false
}

/// A fault outside watched mappings: calls the previous handler, or ends the process.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void, code: i32) {
    let before = BEFORE.get();
    let known =
        |before: &&libc::sigaction| !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    if let Some(before) = before.filter(known) {
        let handler = ptr::with_exposed_provenance::<()>(before.sa_sigaction);
        // SAFETY: this was the handler of this signal, and its flags say which of two types it has.
        unsafe {
            if before.sa_flags & libc::SA_SIGINFO == 0 {
                let handler: extern "C" fn(i32) = mem::transmute(handler);
                return handler(signal);
            }
            type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
            let handler: Handler = mem::transmute(handler);
            return handler(signal, info, context);
        }
    }
    // SAFETY: async-signal-safe system calls. A fault occurs again after the return, and then ends the process; a signal
    // that was sent must be sent again.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};

    use super::*;

    const PAGE: usize = 4096;

    /// A file of four pages and a mapping of it.
    fn mapped() -> (File, *mut u8) {
        // SAFETY: makes a descriptor from a constant name.
        let file = unsafe { libc::memfd_create(c"guarded".as_ptr(), 0) };
        assert!(file >= 0);
        // SAFETY: just made, and nobody else's.
        let file = unsafe { File::from_raw_fd(file) };
        file.set_len(4 * PAGE as u64).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), 4 * PAGE, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        (file, start.cast())
    }

    fn unmap(start: *mut u8) {
        // SAFETY: mapped by `mapped`, and not used any more.
        unsafe { libc::munmap(start.cast(), 4 * PAGE) };
    }

    /// Goal: a truncated mapping becomes zeroes and is reported as lost, after reads and after writes; others do not
    /// change; entries are reused. Method: two watched files, one of which is truncated while several threads use it.
    #[test]
    fn what_is_taken_away_reads_as_zeroes() {
        for round in 0..3 {
            let ((file, start), (_other, untouched)) = (mapped(), mapped());
            // SAFETY: both are mapped until the watches are dropped, and may become zeroes.
            let watches =
                [start, untouched].map(|at| unsafe { Watch::over(at, 4 * PAGE) }.unwrap());
            let before = losses();
            // SAFETY: inside the mappings.
            unsafe {
                start.write(7);
                untouched.write(8);
            }
            file.set_len(0).unwrap();
            assert!(!watches[0].is_lost() && losses() == before, "nobody has looked");
            let place = start as usize;
            std::thread::scope(|scope| {
                for thread in 0..4usize {
                    scope.spawn(move || {
                        let at = ptr::with_exposed_provenance_mut::<u8>(place + thread * PAGE);
                        // SAFETY: inside the mapping; each thread has a page of its own.
                        unsafe {
                            assert_eq!(at.read_volatile(), 0, "round {round}");
                            at.write_volatile(3);
                        }
                    });
                }
            });
            assert!(watches[0].is_lost() && !watches[1].is_lost() && losses() > before);
            // SAFETY: inside the mapping.
            assert_eq!(unsafe { untouched.read_volatile() }, 8);
            drop(watches);
            [start, untouched].into_iter().for_each(unmap);
        }
    }

    /// Runs `act` in a child process and returns how the child ends. It must not allocate.
    fn ends(child: &dyn Fn()) -> i32 {
        // SAFETY: the child makes system calls and touches memory, and then ends; it allocates nothing.
        unsafe {
            let id = libc::fork();
            if id == 0 {
                libc::prctl(libc::PR_SET_DUMPABLE, 0);
                child();
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(id, &raw mut status, 0), id);
            status
        }
    }

    /// Goal: the report of a bad page that no thread has touched does not lose the mapping. Method: a child that sends
    /// itself the signal as the kernel would, about a watched mapping.
    #[test]
    fn a_report_of_an_untouched_bad_page_keeps_the_mapping() {
        let watched = mapped();
        // SAFETY: mapped until the end of this test.
        let (watch, place) = unsafe {
            watched.1.write(7);
            (Watch::over(watched.1, 4 * PAGE).unwrap(), watched.1)
        };
        // SAFETY: a description of plain numbers, with the address where 64-bit machines have it; the place is mapped.
        let told = || unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            info.si_code = libc::BUS_MCEERR_AO;
            (&raw mut info).cast::<usize>().add(2).write(place as usize);
            let (sender, signal) = (libc::getpid(), libc::SIGBUS);
            let failed = libc::syscall(libc::SYS_rt_sigqueueinfo, sender, signal, &raw mut info);
            if failed != 0 || place.read_volatile() != 7 {
                libc::_exit(1);
            }
        };
        assert_eq!(ends(&told), 0);
        assert!(!watch.is_lost());
        drop(watch);
        unmap(watched.1);
    }

    /// Goal: any other fault still ends the process by its signal, and so does the signal when it is sent.
    /// Method: children that touch a mapping that was never watched, or no longer is, or that send the signal.
    #[test]
    fn other_faults_end_the_process() {
        let (watched, elsewhere) = (mapped(), mapped());
        // SAFETY: mapped until the end of this test.
        let watch = unsafe { Watch::over(watched.1, 4 * PAGE) }.unwrap();
        elsewhere.0.set_len(0).unwrap();
        watched.0.set_len(0).unwrap();
        // SAFETY: inside a mapping; a fault only ends the child.
        let touch = |at: *mut u8| move || _ = unsafe { at.read_volatile() };
        assert_eq!(ends(&touch(watched.1)), 0, "a watched one goes on");
        assert_eq!(libc::WTERMSIG(ends(&touch(elsewhere.1))), libc::SIGBUS);
        drop(watch);
        assert_eq!(libc::WTERMSIG(ends(&touch(watched.1))), libc::SIGBUS);
        // SAFETY: sends a signal to this process.
        let send = || unsafe {
            // A previous handler may treat the first signal as a fault that will occur again.
            libc::raise(libc::SIGBUS);
            libc::raise(libc::SIGBUS);
        };
        assert_eq!(libc::WTERMSIG(ends(&send)), libc::SIGBUS);
        [watched.1, elsewhere.1].into_iter().for_each(unmap);
    }
}
