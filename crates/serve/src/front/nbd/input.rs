//! Received bytes of a connection that have not been processed yet.

use std::sync::Arc;

use crate::request::buffer::Lent;

/// Room that a connection begins with: handshakes and single requests.
const BYTES_MIN: usize = 4 << 10;
/// Most bytes that one receive may bring: 32 writes of 4 KiB.
const BYTES_MAX: usize = 160 << 10;
/// Payloads up to this length wait in the input until they are complete; longer ones get a buffer of
/// their own that the socket fills directly.
pub(super) const INLINE_MAX: usize = 32 << 10;

// What a session may ask for at once, and an inline payload, fit.
const _: () = assert!(crate::front::nbd::session::INPUT_MAX <= BYTES_MAX / 2);
const _: () = assert!(INLINE_MAX <= BYTES_MAX / 2);

/// Received bytes. Its room doubles when a receive fills it, and whoever notices that nothing comes any
/// more gives it back with [`Input::shrink`].
pub(super) struct Input {
    /// Shared with payloads that lie in it, until the end of a turn; see [`own`].
    bytes: Arc<Vec<u8>>,
    start: usize,
    end: usize,
    /// The last receive left no room.
    full: bool,
}

impl Input {
    pub(super) fn new() -> Self {
        Self { bytes: Arc::default(), start: 0, end: 0, full: true }
    }
    /// Whether it has more room than a quiet connection needs.
    pub(super) fn is_large(&self) -> bool {
        self.bytes.len() > BYTES_MIN
    }
    /// Keeps what is unread and little more. The ring must not be at it.
    pub(super) fn shrink(&mut self) {
        let bytes = own(&mut self.bytes);
        bytes.drain(..self.start);
        (self.start, self.end) = (0, self.end - self.start);
        bytes.truncate(self.end);
        bytes.shrink_to_fit();
        self.full = true;
    }
    /// What was not consumed yet.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
    /// The first `count` unread bytes, where they are. To be let go before the next bytes come: else those go elsewhere.
    pub(super) fn lend(&self, count: usize) -> Option<Lent> {
        let fits = count <= self.end - self.start;
        fits.then(|| Lent::new(&self.bytes, self.start..self.start + count))
    }
    /// The first `count` unread bytes were used.
    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "more was consumed than there is");
        self.start += count;
    }
    /// Where the next bytes go. Moves the unread bytes, so no pointer to them may be kept.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let unread = self.end - self.start;
        let bytes = own(&mut self.bytes);
        if self.full {
            self.full = false;
            let size = (2 * bytes.len()).clamp(BYTES_MIN, BYTES_MAX);
            // What is unread has room for as much again, or it could never become complete.
            bytes.resize(size.max(2 * unread), 0);
        }
        if unread == 0 {
            (self.start, self.end) = (0, 0);
        } else if bytes.len() - self.end < bytes.len() / 2 {
            bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, unread);
        }
        &mut bytes[self.end..]
    }
    /// Appends bytes that were received elsewhere. Moves the unread bytes, so no pointer to them may be kept.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let all = own(&mut self.bytes);
        if all.len() - self.end < bytes.len() {
            all.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let needed = self.end + bytes.len();
            all.resize(all.len().max(needed), 0);
        }
        all[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }
    /// This many bytes came.
    pub(super) fn received(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end, "more came than there was room for");
        self.end += count;
        self.full = self.end == self.bytes.len();
    }
}

/// The bytes, to be written. The engine lets go of payloads at the end of each turn (`keep_lent`), so they are not
/// shared any more; if they are, those who have them keep the old ones.
fn own(bytes: &mut Arc<Vec<u8>>) -> &mut Vec<u8> {
    Arc::make_mut(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use iofair_drive::random::Random;

    use super::*;

    /// Goal: bytes come out as they came in, in order, however they come and whatever is done between; what was lent
    /// stays as it was, also when its owner goes on. Method: random steps beside a queue of bytes.
    #[test]
    fn bytes_keep_their_order_and_values() {
        let (seeds, steps, most) = if cfg!(miri) { (1, 30, 100) } else { (50, 400, 6000) };
        for seed in 0..seeds {
            let mut random = Random::new(seed, 0);
            let (mut input, mut model) = (Input::new(), VecDeque::new());
            let mut lent: Vec<(Lent, Vec<u8>)> = Vec::new();
            let mut next = (0..=250u8).cycle();
            for _ in 0..steps {
                match random.below(6) {
                    0 | 1 => {
                        let room = input.room();
                        let count = room.len().min(random.below(most) as usize);
                        room[..count].fill_with(|| next.next().unwrap());
                        model.extend(&room[..count]);
                        input.received(count);
                    }
                    2 => {
                        let bytes: Vec<u8> =
                            next.by_ref().take(random.below(most / 2) as usize).collect();
                        model.extend(&bytes);
                        input.append(&bytes);
                    }
                    3 => {
                        let count = random.below(model.len() as u64 + 1) as usize;
                        let bytes: Vec<u8> = model.drain(..count).collect();
                        lent.push((input.lend(count).unwrap(), bytes));
                        input.consume(count);
                        assert!(input.lend(model.len() + 1).is_none());
                    }
                    4 => input.shrink(),
                    _ => lent.clear(),
                }
                assert!(input.unread().iter().eq(&model), "seed {seed}");
                assert!(lent.iter().all(|(lent, bytes)| lent.bytes() == bytes), "seed {seed}");
            }
        }
    }

    /// Goal: the room grows while receives fill it, up to its bound, and a quiet client's is given back. Method: receives
    /// that are taken out at once, and one of the longest payloads that wait here, which is not.
    #[test]
    fn room_is_bounded_and_given_back() {
        let mut input = Input::new();
        for _ in 0..10 {
            let count = input.room().len();
            assert!(count <= BYTES_MAX);
            input.received(count);
            input.consume(count);
        }
        assert_eq!(input.room().len(), BYTES_MAX);
        input.received(INLINE_MAX);
        assert!(input.room().len() >= INLINE_MAX && input.is_large());
        input.consume(INLINE_MAX - 1);
        input.shrink();
        assert_eq!((input.unread().len(), input.is_large()), (1, false));
    }
}
