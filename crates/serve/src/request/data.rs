//! The forms of a request's data.

use std::fmt;

use super::buffer::{Buffer, Lent, Pool};
use super::extent::Extent;
use super::place::{Place, Places, PlacesMut};
use super::shared::{Keeper, Span, Stored};

/// The data of a request.
#[derive(Debug, Default)]
pub enum Data {
    /// No data (yet).
    #[default]
    None,
    /// A write's payload in a receive buffer, valid until the end of the turn.
    Lent(Lent),
    /// A write's payload or a read's result.
    Owned(Buffer),
    /// A read's result in the back end's memory.
    Stored(Stored),
    /// A write's payload or a read's result in the client's memory.
    Scattered(Scattered),
    /// The result of a block status.
    Extents(Vec<Extent>),
}

impl Data {
    /// Whether it is memory that the server can keep, and not the client's memory or a part of an input buffer that
    /// is reused in the next turn.
    pub fn is_ours(&self) -> bool {
        !matches!(self, Self::Lent(_) | Self::Scattered(_))
    }
    /// A part of it, for reading. It must exist.
    pub fn places(&self, from: usize, length: usize) -> Places<'_> {
        match self {
            Self::Scattered(scattered) => scattered.places(from, length),
            _ => Places::part_of(self.only().expect("a request with room for data"), from, length),
        }
    }
    /// A part of it, for writing. It must exist and be writable.
    pub(crate) fn places_mut(&mut self, from: usize, length: usize) -> PlacesMut<'_> {
        match self {
            Self::Owned(buffer) => PlacesMut::of_buffer(buffer, from, length),
            Self::Scattered(scattered) => scattered.places_mut(from, length),
            _ => panic!("data that cannot be written"),
        }
    }
    /// The first bytes, if they are contiguous.
    pub fn place(&self, length: usize) -> Option<Place<'_>> {
        Places::part_of(self.only()?, 0, length).next()
    }
    fn only(&self) -> Option<Place<'_>> {
        match self {
            Self::Lent(lent) => Some(Place::of_lent(lent)),
            Self::Owned(buffer) => Some(Place::of_buffer(buffer)),
            Self::Stored(stored) => Some(Place::of_stored(stored)),
            Self::None | Self::Scattered(_) | Self::Extents(_) => None,
        }
    }
    /// The first bytes, if others cannot write them; data in shared memory must be copied out of its places.
    pub fn bytes(&self, length: usize) -> Option<&[u8]> {
        match self {
            Self::Lent(lent) => Some(&lent.bytes()[..length]),
            Self::Owned(buffer) => Some(&buffer.bytes()[..length]),
            _ => None,
        }
    }
}

impl Pool {
    /// Takes the buffer of a request's data back.
    pub fn release(&mut self, data: Data) {
        let buffer = match data {
            Data::Owned(buffer) => Some(buffer),
            Data::Scattered(scattered) => scattered.into_parts().1,
            _ => None,
        };
        if let Some(buffer) = buffer {
            self.give(buffer);
        }
    }
    /// The first bytes of a read's result, to be looked at: out of shared memory they are copied into a buffer.
    pub(crate) fn own(&mut self, data: Data, length: usize) -> Data {
        let Data::Stored(stored) = &data else { return data };
        let mut buffer = self.take(length);
        Place::of_stored(stored).part(0, length).read(&mut buffer.bytes_mut()[..length]);
        Data::Owned(buffer)
    }
}

/// Bytes in several places of shared memory: the buffers of a guest's request. Reads write to them.
#[derive(Default)]
pub struct Scattered {
    spans: Vec<Span>,
    /// What keeps the places mapped; there is one where there are places.
    keeper: Option<Keeper>,
    /// A copy in one piece, for a back end that cannot use the places; a read lands there first.
    bounce: Option<Buffer>,
}

impl fmt::Debug for Scattered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scattered").field(&self.spans).field(&self.bounce).finish()
    }
}

impl Scattered {
    /// Bytes in these places, in order.
    ///
    /// # Safety
    /// All places are mapped, readable and writable while the keeper exists. There is never a reference to any of
    /// them.
    pub unsafe fn new(spans: Vec<Span>, keeper: Keeper) -> Self {
        Self { spans, keeper: Some(keeper), bounce: None }
    }
    /// The places.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
    /// The object that keeps the places mapped.
    pub fn keeper(&self) -> Option<&Keeper> {
        self.keeper.as_ref()
    }
    /// Total length in bytes.
    pub fn len(&self) -> usize {
        self.spans.iter().map(Span::len).sum()
    }
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether every place is aligned to `block` bytes.
    pub fn is_aligned(&self, block: usize) -> bool {
        self.spans.iter().all(|span| {
            (span.pointer() as usize).is_multiple_of(block) && span.len().is_multiple_of(block)
        })
    }
    /// The bytes where the client has them.
    fn outside(&self, from: usize, length: usize) -> PlacesMut<'_> {
        // SAFETY: mapped and writable as long as the keeper lives, by the promise of `new`, and it is kept here.
        unsafe { PlacesMut::shared(&self.spans, from, length) }
    }
    /// The current places of a part of it, for reading.
    pub fn places(&self, from: usize, length: usize) -> Places<'_> {
        match &self.bounce {
            Some(buffer) => Places::part_of(Place::of_buffer(buffer), from, length),
            // SAFETY: as in `outside`.
            None => unsafe { Places::shared(&self.spans, from, length) },
        }
    }
    /// The current places of a part of it, for writing.
    pub(crate) fn places_mut(&mut self, from: usize, length: usize) -> PlacesMut<'_> {
        match self.bounce {
            Some(ref mut buffer) => PlacesMut::of_buffer(buffer, from, length),
            None => self.outside(from, length),
        }
    }
    /// Uses a copy in this buffer from now on; `filled` with the present bytes, for a write.
    pub(crate) fn bounce(&mut self, mut buffer: Buffer, filled: bool) {
        self.bounce = None;
        let mut rest = buffer.bytes_mut();
        for place in self.places(0, self.len()).filter(|_| filled) {
            let (here, after) = rest.split_at_mut(place.len());
            place.read(here);
            rest = after;
        }
        self.bounce = Some(buffer);
    }
    /// Whether there is a copy.
    pub(crate) fn is_bounced(&self) -> bool {
        self.bounce.is_some()
    }
    /// Copies data that was read into the copy to the places.
    pub fn spread(&self) {
        if let Some(buffer) = &self.bounce {
            self.fill(&buffer.bytes()[..self.len()]);
        }
    }
    /// Writes bytes into the places, from the first one on.
    pub fn fill(&self, mut from: &[u8]) {
        for mut place in self.outside(0, from.len()) {
            let (here, after) = from.split_at(place.len());
            place.write(here);
            from = after;
        }
    }
    /// The list of places, for reuse of its memory, and the copy if there is one.
    pub(crate) fn into_parts(mut self) -> (Vec<Span>, Option<Buffer>) {
        self.spans.clear();
        (self.spans, self.bounce)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;
    use crate::request::buffer::ALIGN;

    fn bytes(places: Places<'_>) -> Vec<u8> {
        let read = |place: Place<'_>| {
            let mut bytes = vec![0; place.len()];
            place.read(&mut bytes);
            bytes
        };
        places.flat_map(read).collect()
    }

    /// Goal: any part of scattered bytes is found where it lies, before and after a copy in one piece took
    /// their place, and what is read into the copy comes back. Method: every part of three spans.
    #[test]
    fn scattered_bytes_are_found() {
        let memory: Arc<[AtomicU8; 8]> = Arc::new([0, 1, 9, 2, 3, 4, 9, 5].map(AtomicU8::new));
        let span = |at: usize, length| Span::new(memory[at..].as_ptr().cast_mut().cast(), length);
        let spans = vec![span(0, 2), span(3, 3), span(7, 1)];
        // SAFETY: the array keeps its elements, which are atomic.
        let mut scattered = unsafe { Scattered::new(spans, memory.clone()) };
        for copied in [false, true] {
            if copied {
                scattered.bounce(Buffer::with_capacity(0), true);
            }
            for from in 0..=6 {
                for to in from..=6 {
                    let found = bytes(scattered.places(from, to - from));
                    assert_eq!(found, (from as u8..to as u8).collect::<Vec<_>>());
                }
            }
        }
        assert_eq!((scattered.len(), scattered.is_aligned(1)), (6, true));
        scattered.bounce(Buffer::with_capacity(0), false);
        for (from, part) in [(2, &[77u8][..]), (0, &[0, 1]), (3, &[3, 4, 5])] {
            scattered.places_mut(from, part.len()).for_each(|mut place| place.write(part));
        }
        let now = || memory.each_ref().map(|byte| byte.load(Ordering::Relaxed));
        assert_eq!(now(), [0, 1, 9, 2, 3, 4, 9, 5], "not yet");
        scattered.spread();
        assert_eq!(now(), [0, 1, 9, 77, 3, 4, 9, 5]);
        scattered.fill(&[8, 7]);
        assert_eq!(now(), [8, 7, 9, 77, 3, 4, 9, 5]);
    }

    /// Goal: a payload that was lent keeps its bytes, and its owner can tell that it may not write. Method: a buffer
    /// with and without a payload in it.
    #[test]
    fn lent_bytes_are_not_written() {
        let mut buffer = Arc::new(vec![1, 2, 3, 4]);
        let lent = Lent::new(&buffer, 1..3);
        assert!(Arc::get_mut(&mut buffer).is_none());
        let data = Data::Lent(lent);
        assert_eq!(bytes(data.places(1, 1)), [3]);
        drop(data);
        assert!(Arc::get_mut(&mut buffer).is_some());
    }

    /// Goal: no place reaches beyond its data. Method: ranges that end after it, and that overflow.
    #[test]
    fn places_stay_within_their_data() {
        let data = Data::Owned(Buffer::with_capacity(0));
        for (from, length) in [(0, ALIGN + 1), (ALIGN, 1), (usize::MAX, 2), (1, usize::MAX)] {
            let places = std::panic::AssertUnwindSafe(|| data.places(from, length).count());
            assert!(std::panic::catch_unwind(places).is_err(), "{length} bytes at {from}");
        }
    }
}
