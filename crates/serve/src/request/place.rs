//! The places of a request's bytes. They borrow the request's data, so they cannot outlive it.

use std::marker::PhantomData;
use std::slice;

use super::buffer::{Buffer, Lent};
use super::shared::{self, Side, Span, Stored};

/// Readable bytes.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    // Allocated, and readable as what `shared` says, for as long as `'a`: by the constructors.
    span: Span,
    shared: bool,
    owner: PhantomData<&'a ()>,
}

impl<'a> Place<'a> {
    pub(super) fn of_buffer(buffer: &'a Buffer) -> Self {
        let span = Span::new(buffer.pointer(), buffer.capacity());
        Self { span, shared: false, owner: PhantomData }
    }
    pub(super) fn of_lent(lent: &'a Lent) -> Self {
        Self { span: lent.span(), shared: false, owner: PhantomData }
    }
    pub(super) fn of_stored(stored: &'a Stored) -> Self {
        Self { span: stored.span(), shared: true, owner: PhantomData }
    }
    pub(super) fn part(self, skip: usize, length: usize) -> Self {
        Self { span: self.span.part(skip, length), ..self }
    }
    /// Its first byte, for the kernel.
    pub fn pointer(&self) -> *mut u8 {
        self.span.pointer()
    }
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.span.len()
    }
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn side(&self) -> Side {
        Side { pointer: self.pointer(), shared: self.shared }
    }
    /// Copies all bytes out.
    pub fn read(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len(), "bytes of a place");
        let into = Side { pointer: into.as_mut_ptr(), shared: false };
        // SAFETY: this place may be read as long as it lives (see its fields), the target is borrowed mutably and so
        // does not overlap with memory of ours, and their lengths are equal.
        unsafe { shared::copy(self.side(), into, self.len()) };
    }
    /// Copies all bytes to shared memory.
    ///
    /// # Safety
    /// The target is mapped and writable, and there is no reference to it.
    pub(crate) unsafe fn read_into_shared(&self, into: Span) {
        assert_eq!(into.len(), self.len(), "bytes of a place");
        let into = Side { pointer: into.pointer(), shared: true };
        // SAFETY: this place may be read as long as it lives (see its fields), the target by the caller's promise.
        unsafe { shared::copy(self.side(), into, self.len()) };
    }
}

/// Writable bytes.
#[derive(Debug)]
pub struct PlaceMut<'a>(Place<'a>, PhantomData<&'a mut ()>);

impl PlaceMut<'_> {
    /// Its first byte, for the kernel.
    pub fn pointer(&self) -> *mut u8 {
        self.0.pointer()
    }
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Fills all of it.
    pub fn write(&mut self, from: &[u8]) {
        assert_eq!(from.len(), self.len(), "bytes of a place");
        let from = Side { pointer: from.as_ptr().cast_mut(), shared: false };
        // SAFETY: this place may be written as long as it lives (see `PlacesMut`), the source is borrowed and only
        // read, and their lengths are equal. The place is shared memory, to which there are no references, or
        // borrowed mutably: so they do not overlap.
        unsafe { shared::copy(from, self.0.side(), self.len()) };
    }
    /// Fills all of it from shared memory.
    ///
    /// # Safety
    /// The source is mapped and readable, and there is no mutable reference to it.
    pub(crate) unsafe fn write_from_shared(&mut self, from: Span) {
        assert_eq!(from.len(), self.len(), "bytes of a place");
        let from = Side { pointer: from.pointer(), shared: true };
        // SAFETY: this place may be written as long as it lives (see `PlacesMut`), the source read by the caller's
        // promise.
        unsafe { shared::copy(from, self.0.side(), self.len()) };
    }
}

/// The places of a range of bytes, in order, for reading.
#[derive(Clone, Debug)]
pub struct Places<'a> {
    /// The only place, or the first of several.
    first: Option<Place<'a>>,
    /// Shared memory that its owner keeps for as long as `'a`.
    rest: slice::Iter<'a, Span>,
    /// Bytes before the range, and bytes of it that are left.
    skip: usize,
    left: usize,
}

impl<'a> Places<'a> {
    /// A part of one place.
    pub(super) fn part_of(place: Place<'a>, from: usize, length: usize) -> Self {
        Self { first: Some(place.part(from, length)), rest: [].iter(), skip: 0, left: length }
    }
    /// A part of bytes that lie in several places of shared memory.
    ///
    /// # Safety
    /// All of them are mapped for as long as `'a`, and there are no references to them.
    pub(super) unsafe fn shared(spans: &'a [Span], from: usize, length: usize) -> Self {
        Self { first: None, rest: spans.iter(), skip: from, left: length }
    }
}

impl<'a> Iterator for Places<'a> {
    type Item = Place<'a>;
    fn next(&mut self) -> Option<Place<'a>> {
        while self.left > 0 {
            let shared = |span: &Span| Place { span: *span, shared: true, owner: PhantomData };
            let place = self.first.take().or_else(|| self.rest.next().map(shared))?;
            if self.skip >= place.len() {
                self.skip -= place.len();
                continue;
            }
            let length = self.left.min(place.len() - self.skip);
            let place = place.part(self.skip, length);
            (self.skip, self.left) = (0, self.left - length);
            return Some(place);
        }
        None
    }
}

/// The places of a range of bytes, in order, for writing: parts of a mutably borrowed buffer, which do not overlap,
/// or shared memory, where overlaps do not matter.
#[derive(Debug)]
pub struct PlacesMut<'a>(Places<'a>, PhantomData<&'a mut ()>);

impl<'a> PlacesMut<'a> {
    /// A part of a buffer.
    pub(super) fn of_buffer(buffer: &'a mut Buffer, from: usize, length: usize) -> Self {
        Self(Places::part_of(Place::of_buffer(buffer), from, length), PhantomData)
    }
    /// A part of bytes that lie in several places of shared memory.
    ///
    /// # Safety
    /// All of them are mapped for as long as `'a`, and may be written, and there are no references to them.
    pub(super) unsafe fn shared(spans: &'a [Span], from: usize, length: usize) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Places::shared(spans, from, length) }, PhantomData)
    }
}

impl<'a> Iterator for PlacesMut<'a> {
    type Item = PlaceMut<'a>;
    fn next(&mut self) -> Option<PlaceMut<'a>> {
        self.0.next().map(|place| PlaceMut(place, PhantomData))
    }
}
