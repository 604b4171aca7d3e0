//! What a connection has received and nobody has looked at yet.

/// Bytes that one receive may bring: 32 writes of 4 KiB.
const BYTES: usize = 160 << 10;
/// A receive should find room for so much, or what is unread moves to the front first.
const ROOM_MIN: usize = 96 << 10;
/// Payloads up to this length wait in the input until they are complete; longer ones get a buffer of
/// their own that the socket fills directly.
pub(super) const INLINE_MAX: usize = 32 << 10;

// What a session may ask for at once, and an inline payload, fit.
const _: () = assert!(crate::front::nbd::session::INPUT_MAX <= BYTES - ROOM_MIN);
const _: () = assert!(INLINE_MAX <= BYTES - ROOM_MIN);

/// Received bytes.
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; BYTES], start: 0, end: 0 }
    }
    /// What was not consumed yet.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
    /// The first `count` unread bytes were used.
    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "more was consumed than there is");
        self.start += count;
    }
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }
    /// Where the next bytes go. Moves what is unread, so nobody may hold on to it.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.clear();
        } else if self.bytes.len() - self.end < ROOM_MIN {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }
    /// Appends bytes that came by another way. Moves what is unread, so nobody may hold on to it.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        if self.bytes.len() - self.end < bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let needed = self.end + bytes.len();
            self.bytes.resize(self.bytes.len().max(needed), 0);
        }
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }
    /// So many bytes came.
    pub(super) fn received(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end, "more came than there was room for");
        self.end += count;
    }
}
