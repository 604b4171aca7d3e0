//! Memory for payloads: spans into memory that somebody else keeps, and page-aligned buffers that are
//! kept for reuse, so that the steady state allocates nothing.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

use crate::front::nbd::wire::PAYLOAD_MAX;

/// Direct I/O wants buffers on page borders.
pub const ALIGN: usize = 4096;
/// Classes of sizes: 4 KiB, 8 KiB, ... up to the largest payload and a page on either side.
const CLASSES: usize = 15;
/// Free buffers of all classes together keep at most so many bytes; enough for 128 requests of 64 KiB.
const KEPT_MAX: usize = 8 << 20;

/// Bytes that somebody else keeps: a part of a store or of a receive buffer.
///
/// Whoever makes one upholds that the bytes stay where they are for as long as it is used.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pointer: *const u8,
    length: usize,
}

// SAFETY: a span is only an address; those who read through it uphold its lifetime (see the type).
unsafe impl Send for Span {}

impl Span {
    /// Bytes in memory that outlives every use of the span.
    pub fn new(bytes: &[u8]) -> Self {
        Self { pointer: bytes.as_ptr(), length: bytes.len() }
    }
    pub(crate) const fn raw(pointer: *const u8, length: usize) -> Self {
        Self { pointer, length }
    }
    /// Its first byte.
    pub fn pointer(&self) -> *const u8 {
        self.pointer
    }
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }
    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// A page-aligned piece of memory; its bytes are undefined until written.
#[derive(Debug)]
pub struct Buffer {
    pointer: NonNull<u8>,
    class: usize,
}

// SAFETY: the buffer owns its memory alone.
unsafe impl Send for Buffer {}

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
        Self { pointer, class }
    }
    /// Bytes that it holds.
    pub fn capacity(&self) -> usize {
        ALIGN << self.class
    }
    /// Its first byte.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
    /// A part of it.
    pub fn span(&self, from: usize, length: usize) -> Span {
        assert!(from + length <= self.capacity(), "past the end of a buffer");
        Span::raw(self.pointer().wrapping_add(from), length)
    }
    /// Copies bytes in at an offset.
    pub fn fill(&mut self, at: usize, from: Span) {
        assert!(at + from.len() <= self.capacity(), "past the end of a buffer");
        // SAFETY: the target lies inside this buffer (just checked), the source is valid by the
        // contract of Span, and `copy` allows them to overlap.
        unsafe { ptr::copy(from.pointer(), self.pointer().add(at), from.len()) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and dropped once.
        unsafe { dealloc(self.pointer.as_ptr(), Self::layout(self.class)) };
    }
}

/// Free buffers by class.
#[derive(Debug, Default)]
pub struct Pool {
    free: [Vec<Buffer>; CLASSES],
    kept: usize,
}

impl Pool {
    /// A buffer of at least so many bytes, at most [`PAYLOAD_MAX`] and two pages.
    pub fn take(&mut self, bytes: usize) -> Buffer {
        assert!(bytes <= PAYLOAD_MAX as usize + 2 * ALIGN, "a payload of {bytes} bytes");
        let class = bytes.div_ceil(ALIGN).max(1).next_power_of_two().trailing_zeros() as usize;
        match self.free[class].pop() {
            Some(buffer) => {
                self.kept -= buffer.capacity();
                buffer
            }
            None => Buffer::new(class),
        }
    }
    /// Gives a buffer back.
    pub fn give(&mut self, buffer: Buffer) {
        if self.kept + buffer.capacity() <= KEPT_MAX {
            self.kept += buffer.capacity();
            self.free[buffer.class].push(buffer);
        }
    }
}

/// What a request carries.
#[derive(Debug, Default)]
pub enum Data {
    /// Nothing (yet).
    #[default]
    None,
    /// A write's payload in a receive buffer, only until the end of the turn.
    Lent(Span),
    /// A write's payload or a read's result.
    Owned(Buffer),
    /// A read's result where the back end keeps it.
    Stored(Span),
}

impl Data {
    /// Is it memory that lives as long as this server wants? Or else the client's own, or a part of the
    /// input that is used again with the next turn.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::None | Self::Owned(_) | Self::Stored(_))
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
