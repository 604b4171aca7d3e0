//! Memory for payloads: page-aligned buffers that are reused, so that nothing is allocated in the steady state.
//!
//! While the kernel fills a buffer, the request that owns it is in the engine's table, which gives its data only to
//! the back end, and returns it when the last command with it has completed.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::shared::Span;

/// Longest payload of a request, which NBD clients are told.
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// Alignment of buffers for direct I/O.
pub const ALIGN: usize = 4096;
/// Classes of sizes: 4 KiB, 8 KiB, ... up to the largest payload and a page on either side.
const CLASSES: usize = 15;
/// Free buffers of all classes together keep at most this many bytes; enough for 128 requests of 64 KiB.
const KEPT_MAX: usize = 8 << 20;

/// Bytes of a receive buffer. While one of these exists, the buffer's owner does not write to it: it cannot, because
/// it does not own the buffer alone.
#[derive(Clone, Debug)]
pub struct Lent {
    bytes: Arc<Vec<u8>>,
    from: usize,
    length: usize,
}

impl Lent {
    /// A part of a receive buffer.
    pub fn new(bytes: &Arc<Vec<u8>>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= bytes.len(), "past the end of a buffer");
        Self { bytes: bytes.clone(), from: range.start, length: range.end - range.start }
    }
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.length]
    }
    pub(super) fn span(&self) -> Span {
        Span::new(self.bytes.as_ptr().wrapping_add(self.from).cast_mut(), self.length)
    }
}

/// A page-aligned buffer; its bytes are arbitrary until they are written.
#[derive(Debug)]
pub struct Buffer {
    pointer: NonNull<u8>,
    class: usize,
}

// SAFETY: the buffer owns its memory alone.
unsafe impl Send for Buffer {}
// SAFETY: what is shared is only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    const fn layout(class: usize) -> Layout {
        match Layout::from_size_align(ALIGN << class, ALIGN) {
            Ok(layout) => layout,
            Err(_) => unreachable!(),
        }
    }
    fn new(class: usize) -> Self {
        let layout = Self::layout(class);
        // SAFETY: the layout is never of size zero.
        let pointer = unsafe { alloc(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        settle(pointer, layout.size());
        Self { pointer, class }
    }
    /// One of at least this many bytes, at most [`PAYLOAD_MAX`] and two pages, from no pool.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self::new(class(bytes))
    }
    /// Its capacity in bytes.
    pub fn capacity(&self) -> usize {
        ALIGN << self.class
    }
    /// Its first byte.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
    /// All its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: allocated in `new` with this capacity, settled there, and this buffer's alone.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.capacity()) }
    }
    /// All its bytes, writable.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.capacity()) }
    }
    /// Copies bytes to an offset.
    pub fn fill(&mut self, at: usize, from: &[u8]) {
        self.bytes_mut()[at..][..from.len()].copy_from_slice(from);
    }
}

/// Fresh memory has any values from here on. To the compiler it had none, and reading it would be undefined; clearing
/// it would cost more than most requests. An empty piece of assembly is given it, which for all that the
/// compiler knows writes to it.
fn settle(pointer: NonNull<u8>, bytes: usize) {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let _ = bytes;
        // SAFETY: there are no instructions.
        unsafe {
            std::arch::asm!("/* {0} */", in(reg) pointer.as_ptr(), options(nostack, preserves_flags));
        }
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    // SAFETY: the caller allocated this many bytes, and nobody else has them.
    unsafe {
        pointer.as_ptr().write_bytes(0, bytes);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and dropped once.
        unsafe { dealloc(self.pointer.as_ptr(), Self::layout(self.class)) };
    }
}

/// The class of buffers that hold this many bytes.
fn class(bytes: usize) -> usize {
    assert!(bytes <= PAYLOAD_MAX as usize + 2 * ALIGN, "a payload of {bytes} bytes");
    bytes.div_ceil(ALIGN).max(1).next_power_of_two().trailing_zeros() as usize
}

/// Free buffers by size class.
#[derive(Debug, Default)]
pub struct Pool {
    free: [Vec<Buffer>; CLASSES],
    kept: usize,
}

impl Pool {
    /// A buffer of at least this many bytes, at most [`PAYLOAD_MAX`] and two pages.
    pub fn take(&mut self, bytes: usize) -> Buffer {
        let class = class(bytes);
        match self.free[class].pop() {
            Some(buffer) => {
                self.kept -= buffer.capacity();
                buffer
            }
            None => Buffer::new(class),
        }
    }
    /// Returns a buffer.
    pub fn give(&mut self, buffer: Buffer) {
        if self.kept + buffer.capacity() <= KEPT_MAX {
            self.kept += buffer.capacity();
            self.free[buffer.class].push(buffer);
        }
    }
}

/// Gives memory that was freed back to the system, where the allocator keeps it otherwise.
pub(crate) fn give_back() {
    // SAFETY: only what nobody uses is given back.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every size has a class, buffers are aligned and reused, and what is kept is bounded.
    /// Method: sizes around every power of two.
    #[test]
    fn buffers_fit_and_come_back() {
        let mut pool = Pool::default();
        for shift in 0..26 {
            for bytes in [(1usize << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let buffer = pool.take(bytes.min(PAYLOAD_MAX as usize));
                assert!(buffer.capacity() >= bytes.min(PAYLOAD_MAX as usize));
                assert_eq!(buffer.pointer() as usize % ALIGN, 0);
                pool.give(buffer);
                assert!(pool.kept <= KEPT_MAX);
            }
        }
        let first = pool.take(100);
        let pointer = first.pointer();
        pool.give(first);
        assert_eq!(pool.take(4096).pointer(), pointer, "reused");
    }
}
