//! Memory that others may read and write at any moment: a guest's memory, or the mapped file behind a drive.
//!
//! There is never a Rust reference to it, because a reference promises that no one writes. It is identified by
//! addresses ([`Span`]), through which safe code cannot read. `copy` reads and writes it, with relaxed atomic
//! accesses or with one machine instruction that the compiler cannot analyse. If a writer makes a copy inconsistent,
//! this affects only the writer's own data.

use std::any::Any;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes from here on one instruction is faster than a loop over words.
#[cfg(all(target_arch = "x86_64", not(any(miri, iofair_sanitize))))]
const INSTRUCTION_MIN: usize = 128;

/// Keeps memory mapped: while one of these exists, the memory stays at its address.
pub type Keeper = Arc<dyn Any + Send + Sync>;

/// An address and a length. Reading through it needs `unsafe`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pointer: *mut u8,
    length: usize,
}

// SAFETY: an address; whoever uses it upholds that it may be used there.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// The span of this many bytes at an address.
    pub const fn new(pointer: *mut u8, length: usize) -> Self {
        Self { pointer, length }
    }
    /// Its first byte.
    pub const fn pointer(&self) -> *mut u8 {
        self.pointer
    }
    /// Its length in bytes.
    pub const fn len(&self) -> usize {
        self.length
    }
    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
    /// Copies all of it out.
    ///
    /// # Safety
    /// It is mapped and may be read, and nobody has a mutable reference to it.
    pub unsafe fn read(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.length, "bytes of a span");
        let from = Side { pointer: self.pointer, shared: true };
        // SAFETY: the source by the caller's promise; the target is borrowed mutably and as long.
        unsafe { copy(from, Side { pointer: into.as_mut_ptr(), shared: false }, self.length) };
    }
    /// Fills all of it.
    ///
    /// # Safety
    /// It is mapped and may be written, and there is no reference to it that is used meanwhile.
    pub unsafe fn write(&self, from: &[u8]) {
        assert_eq!(from.len(), self.length, "bytes of a span");
        let from = Side { pointer: from.as_ptr().cast_mut(), shared: false };
        // SAFETY: the source is borrowed and as long; the target by the caller's promise.
        unsafe { copy(from, Side { pointer: self.pointer, shared: true }, self.length) };
    }
    /// `length` bytes of it, starting at `skip`.
    pub fn part(&self, skip: usize, length: usize) -> Self {
        let inside = skip.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(inside, "{length} bytes at {skip} of a span of {}", self.length);
        Self { pointer: self.pointer.wrapping_add(skip), length }
    }
}

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) pointer: *mut u8,
    /// Others may use it at the same time.
    pub(super) shared: bool,
}

/// Copies bytes. Where a shared side is written meanwhile, any bytes may come of it.
///
/// # Safety
/// `from` may be read and `to` written for `length` bytes, and the two overlap only if both are shared. A side that is
/// not shared is used by nobody else, and a shared one by others only as such: by atomic accesses, by other processes or
/// by the kernel.
pub(super) unsafe fn copy(from: Side, to: Side, length: usize) {
    if !from.shared && !to.shared {
        // SAFETY: the caller's promise.
        return unsafe { ptr::copy_nonoverlapping(from.pointer, to.pointer, length) };
    }
    #[cfg(all(target_arch = "x86_64", not(any(miri, iofair_sanitize))))]
    if length >= INSTRUCTION_MIN {
        // SAFETY: the caller's promise is what this instruction needs; the ABI keeps the direction flag clear. It
        // touches only these bytes and three registers, and goes on where it was after a fault.
        return unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") length => _,
                inout("rsi") from.pointer => _,
                inout("rdi") to.pointer => _,
                options(nostack, preserves_flags)
            );
        };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_words(from, to, length) }
}

/// [`copy`] by atomic accesses to the shared sides: words where these have them on borders, or else bytes.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_words(from: Side, to: Side, length: usize) {
    const WORD: usize = size_of::<u64>();
    let border = if from.shared { from.pointer } else { to.pointer } as usize;
    let distance = (from.pointer as usize).abs_diff(to.pointer as usize);
    let words = !(from.shared && to.shared) || distance.is_multiple_of(WORD);
    let mut at = 0;
    while at < length {
        let (source, target) = (from.pointer.wrapping_add(at), to.pointer.wrapping_add(at));
        let word = words && length - at >= WORD && (border + at).is_multiple_of(WORD);
        // SAFETY: inside the caller's ranges; shared words are aligned (just checked), and others need not be.
        unsafe {
            if word {
                let value = match from.shared {
                    true => AtomicU64::from_ptr(source.cast()).load(Ordering::Relaxed),
                    false => source.cast::<u64>().read_unaligned(),
                };
                match to.shared {
                    true => AtomicU64::from_ptr(target.cast()).store(value, Ordering::Relaxed),
                    false => target.cast::<u64>().write_unaligned(value),
                }
                at += WORD;
            } else {
                let value = match from.shared {
                    true => AtomicU8::from_ptr(source).load(Ordering::Relaxed),
                    false => source.read(),
                };
                match to.shared {
                    true => AtomicU8::from_ptr(target).store(value, Ordering::Relaxed),
                    false => target.write(value),
                }
                at += 1;
            }
        }
    }
}

/// Fills shared memory with zeroes.
///
/// # Safety
/// It is mapped and may be written, and there is no reference to it.
pub(crate) unsafe fn clear(span: Span) {
    static ZEROES: [u8; 4096] = [0; 4096];
    let from = Side { pointer: ZEROES.as_ptr().cast_mut(), shared: false };
    for at in (0..span.len()).step_by(ZEROES.len()) {
        let part = span.part(at, ZEROES.len().min(span.len() - at));
        // SAFETY: zeroes of ours, which are only read; the target by the caller's promise.
        unsafe { copy(from, Side { pointer: part.pointer(), shared: true }, part.len()) };
    }
}

/// Shared memory that stays mapped while this exists: the result of a read in the back end's memory.
#[derive(Clone)]
pub struct Stored {
    span: Span,
    keeper: Keeper,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stored").field(&self.span).finish()
    }
}

impl Stored {
    /// A part of what `keeper` keeps mapped.
    ///
    /// # Safety
    /// All of `span` is mapped and readable while the keeper exists. There is never a reference to any of it.
    pub unsafe fn new(span: Span, keeper: Keeper) -> Self {
        Self { span, keeper }
    }
    /// Its address and length.
    pub fn span(&self) -> Span {
        self.span
    }
    /// The object that keeps it mapped.
    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }
}
