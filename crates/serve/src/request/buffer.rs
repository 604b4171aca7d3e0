//! Memory for payloads: spans into memory that somebody else keeps, and page-aligned buffers that are
//! kept for reuse, so that the steady state allocates nothing.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

/// Longest payload of one request of any client: what NBD clients are told.
pub const PAYLOAD_MAX: u32 = 32 << 20;
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

/// The places of a range of bytes, in order.
#[derive(Clone, Debug)]
pub struct Places<'a> {
    /// The only span, or the first of several.
    first: Option<Span>,
    rest: std::slice::Iter<'a, Span>,
    /// Bytes before the range, and bytes of it that are left.
    skip: usize,
    left: usize,
}

impl<'a> Places<'a> {
    /// A part of one span.
    pub(crate) fn one(span: Span, from: usize, length: usize) -> Self {
        assert!(from + length <= span.len(), "past the end of a payload");
        Self { first: Some(span), rest: [].iter(), skip: from, left: length }
    }
    /// A part of several spans that follow each other.
    fn many(spans: &'a [Span], from: usize, length: usize) -> Self {
        Self { first: None, rest: spans.iter(), skip: from, left: length }
    }
}

impl Iterator for Places<'_> {
    type Item = Span;
    fn next(&mut self) -> Option<Span> {
        while self.left > 0 {
            let span = self.first.take().or_else(|| self.rest.next().copied())?;
            if self.skip >= span.len() {
                self.skip -= span.len();
                continue;
            }
            let length = self.left.min(span.len() - self.skip);
            let place = Span::raw(span.pointer.wrapping_add(self.skip), length);
            (self.skip, self.left) = (0, self.left - length);
            return Some(place);
        }
        None
    }
}

/// Bytes that lie in several places: the buffers of a guest's request. Reads write into them.
#[derive(Debug, Default)]
pub struct Scattered {
    spans: Vec<Span>,
    /// A copy in one piece, for a back end that cannot use the places; a read lands there first.
    bounce: Option<Buffer>,
}

impl Scattered {
    /// Bytes in these places, in order.
    pub fn new(spans: Vec<Span>) -> Self {
        Self { spans, bounce: None }
    }
    /// Bytes in all places together.
    pub fn len(&self) -> usize {
        self.spans.iter().map(Span::len).sum()
    }
    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Does every place begin and end on borders of `block` bytes?
    pub fn is_aligned(&self, block: usize) -> bool {
        self.spans.iter().all(|span| {
            (span.pointer as usize).is_multiple_of(block) && span.len().is_multiple_of(block)
        })
    }
    /// Where a part of it is read or written now.
    pub fn places(&self, from: usize, length: usize) -> Places<'_> {
        match &self.bounce {
            Some(buffer) => Places::one(buffer.span(0, buffer.capacity()), from, length),
            None => Places::many(&self.spans, from, length),
        }
    }
    /// From now on a copy in this buffer is used; `filled` with the present bytes, for a write.
    pub fn bounce(&mut self, mut buffer: Buffer, filled: bool) {
        let mut at = 0;
        for span in self.spans.iter().filter(|_| filled) {
            buffer.fill(at, *span);
            at += span.len();
        }
        self.bounce = Some(buffer);
    }
    /// Is there a copy?
    pub fn is_bounced(&self) -> bool {
        self.bounce.is_some()
    }
    /// What was read into a copy goes where it belongs.
    pub fn spread(&self) {
        if let Some(buffer) = &self.bounce {
            self.fill(buffer.span(0, self.len()));
        }
    }
    /// Writes bytes into the places, from the first one on.
    pub fn fill(&self, from: Span) {
        let mut at = 0;
        for place in Places::many(&self.spans, 0, from.len()) {
            let part = from.pointer.wrapping_add(at);
            // SAFETY: the places follow each other and are not longer than the source together, which
            // is valid by the contract of Span; whoever made places to read into upholds that they may
            // be written, and `copy` allows them to overlap.
            unsafe { ptr::copy(part, place.pointer.cast_mut(), place.len()) };
            at += place.len();
        }
    }
    /// The list of places, and the copy if there was one.
    pub fn into_parts(self) -> (Vec<Span>, Option<Buffer>) {
        (self.spans, self.bounce)
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
    /// One of at least so many bytes, at most [`PAYLOAD_MAX`] and two pages, from no pool.
    pub(crate) fn of(bytes: usize) -> Self {
        Self::new(class(bytes))
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

/// The class of buffers that hold so many bytes.
fn class(bytes: usize) -> usize {
    assert!(bytes <= PAYLOAD_MAX as usize + 2 * ALIGN, "a payload of {bytes} bytes");
    bytes.div_ceil(ALIGN).max(1).next_power_of_two().trailing_zeros() as usize
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
        let class = class(bytes);
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
    /// A write's payload or a read's result where the client wants it.
    Scattered(Scattered),
}

impl Data {
    /// Is it memory that lives as long as this server wants? Or else the client's own, or a part of the
    /// input that is used again with the next turn.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::None | Self::Owned(_) | Self::Stored(_))
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

    fn bytes(places: Places<'_>) -> Vec<u8> {
        // SAFETY: the tests' spans point into arrays that are there and that nobody writes now.
        places
            .flat_map(|s| unsafe { std::slice::from_raw_parts(s.pointer(), s.len()) })
            .copied()
            .collect()
    }

    /// Goal: any part of scattered bytes is found where it lies, before and after a copy in one piece took
    /// their place, and what is read into the copy comes back. Method: every part of three spans.
    #[test]
    fn scattered_bytes_are_found() {
        let (mut one, mut two, mut three) = ([0u8, 1], [2u8, 3, 4], [5u8]);
        let raw = |bytes: &mut [u8]| Span::raw(bytes.as_mut_ptr(), bytes.len());
        let spans = vec![raw(&mut one), raw(&mut two), raw(&mut three)];
        let mut scattered = Scattered::new(spans);
        for copied in [false, true] {
            if copied {
                scattered.bounce(Buffer::new(0), true);
            }
            for from in 0..=6 {
                for to in from..=6 {
                    let found = bytes(scattered.places(from, to - from));
                    assert_eq!(found, (from as u8..to as u8).collect::<Vec<_>>());
                }
            }
        }
        assert_eq!((scattered.len(), scattered.is_aligned(1)), (6, true));
        scattered.bounce(Buffer::new(0), false);
        let place = scattered.places(2, 1).next().unwrap();
        // SAFETY: the place lies in the copy, which is there.
        unsafe { place.pointer().cast_mut().write(77) };
        assert_eq!(two[0], 2);
        scattered.bounce.as_mut().unwrap().fill(0, Span::new(&[0, 1]));
        scattered.bounce.as_mut().unwrap().fill(3, Span::new(&[3, 4, 5]));
        scattered.spread();
        assert_eq!((one, two, three), ([0, 1], [77, 3, 4], [5]));
    }
}
