//! Mapped memory that keeps volumes: anonymous, or a sparse file.
//!
//! Which chunks were ever written is remembered in a bitmap, so that a client that copies a volume can
//! leave out what was never there.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use super::Extent;
use crate::guard::Watch;
use crate::request::buffer::Span;

/// Granularity of the bitmap of written chunks.
const CHUNK: u64 = 32 << 10;
/// Freed memory is given back in whole pages.
const PAGE: u64 = 4096;
/// Memory of a store that forgets: it stays in the processor's caches.
const FOLD: u64 = 1 << 20;
/// And the longest span of it besides: longer than any request.
const SPAN_MAX: u64 = 64 << 20;

/// A mapping, private to this process or shared with a file.
#[derive(Debug)]
pub struct Store {
    base: *mut u8,
    bytes: u64,
    /// Bytes that are mapped.
    mapped: usize,
    /// All addresses are taken modulo this.
    fold: u64,
    written: Vec<u64>,
    /// What it is a mapping of.
    file: Option<File>,
    /// Somebody may cut that file short, or its disk may be full.
    watch: Option<Watch>,
}

// SAFETY: the store owns its mapping alone.
unsafe impl Send for Store {}

impl Store {
    /// Zeroes that take memory only where they are written.
    pub fn anonymous(bytes: u64) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::map(bytes, flags, -1)
    }
    /// So many bytes that forget what is written and read as anything: for clients that only look at the time. They
    /// take no memory, and writes no time.
    pub fn forgetful(bytes: u64) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mut store = Self::map(FOLD + SPAN_MAX, flags, -1)?;
        (store.bytes, store.fold, store.written) = (bytes, FOLD, Vec::new());
        Ok(store)
    }
    /// The contents of a file, which is made at least so long. All of it counts as written.
    pub fn file(file: &File, bytes: u64) -> io::Result<Self> {
        let bytes = bytes.max(file.metadata()?.len());
        file.set_len(bytes)?;
        let mut store = Self::map(bytes, libc::MAP_SHARED, file.as_raw_fd())?;
        store.written.fill(u64::MAX);
        store.file = Some(file.try_clone()?);
        // SAFETY: the mapping is this store's until it is dropped, after the watch. Once it is lost nothing of it is
        // believed any more.
        store.watch = Some(unsafe { Watch::over(store.base, store.mapped) }?);
        Ok(store)
    }
    fn map(bytes: u64, flags: i32, file: i32) -> io::Result<Self> {
        let length = usize::try_from(bytes).expect("64-bit machines only").max(PAGE as usize);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = bytes.div_ceil(CHUNK).div_ceil(64) as usize;
        let (base, mapped, fold, written) = (base.cast(), length, u64::MAX, vec![0; words]);
        Ok(Self { base, bytes, mapped, fold, written, file: None, watch: None })
    }
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Was a part of the file not there when it was used? Then what was read or written since is worth nothing.
    pub(super) fn is_lost(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_lost)
    }
    /// The file behind it, if there is one.
    pub(super) fn backing(&self) -> Option<&File> {
        self.file.as_ref()
    }
    fn check(&self, offset: u64, length: u64) {
        assert!(offset + length <= self.bytes, "{length} bytes at {offset} of {}", self.bytes);
        assert!(!self.forgets() || length <= SPAN_MAX, "{length} bytes at once");
    }
    fn at(&self, offset: u64) -> *mut u8 {
        self.base.wrapping_add((offset % self.fold) as usize)
    }
    fn forgets(&self) -> bool {
        self.fold == FOLD
    }
    /// A part of it; valid as long as the store.
    pub fn span(&self, offset: u64, length: u64) -> Span {
        self.check(offset, length);
        Span::raw(self.at(offset), length as usize)
    }
    /// Reads bytes into a place that may be written; returns where they end.
    pub fn read(&self, offset: u64, into: Span) -> u64 {
        let from = self.span(offset, into.len() as u64);
        // SAFETY: the source lies inside the mapping (just checked), the target may be written and is
        // valid by the contract of Span, and `copy` allows them to overlap.
        unsafe { ptr::copy(from.pointer(), into.pointer().cast_mut(), into.len()) };
        offset + into.len() as u64
    }
    /// Writes bytes; returns where they end.
    pub fn write(&mut self, offset: u64, from: Span) -> u64 {
        let length = from.len() as u64;
        self.check(offset, length);
        if self.forgets() {
            return offset + length;
        }
        // SAFETY: the target lies inside the mapping (just checked), the source is valid by the
        // contract of Span, and `copy` allows them to overlap.
        unsafe { ptr::copy(from.pointer(), self.at(offset), from.len()) };
        for chunk in offset / CHUNK..(offset + length).div_ceil(CHUNK) {
            self.written[chunk as usize / 64] |= 1 << (chunk % 64);
        }
        offset + length
    }
    /// Makes a range zero, giving its memory back where whole pages are covered.
    pub fn zero(&mut self, offset: u64, length: u64) {
        if self.forgets() {
            return;
        }
        self.check(offset, length);
        let end = offset + length;
        let (first, last) = (offset.next_multiple_of(PAGE), end / PAGE * PAGE);
        if first >= last {
            return self.fill_zero(offset, length);
        }
        self.fill_zero(offset, first - offset);
        self.fill_zero(last, end - last);
        let advice = if self.file.is_some() { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        // SAFETY: whole pages inside the mapping; both kinds of advice leave zeroes behind.
        let gone = unsafe { libc::madvise(self.at(first).cast(), (last - first) as usize, advice) };
        if gone != 0 {
            self.fill_zero(first, last - first);
        }
        for chunk in offset.div_ceil(CHUNK)..end / CHUNK {
            self.written[chunk as usize / 64] &= !(1 << (chunk % 64));
        }
    }
    fn fill_zero(&mut self, offset: u64, length: u64) {
        // SAFETY: callers checked that the range lies inside the mapping.
        unsafe { ptr::write_bytes(self.at(offset), 0, length as usize) };
    }
    /// What of a range was written, at most `limit` pieces.
    pub fn extents(&self, offset: u64, length: u64, limit: usize) -> Vec<Extent> {
        if self.forgets() {
            return vec![Extent { length, hole: false }];
        }
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let chunk = at / CHUNK;
            let hole = self.written[chunk as usize / 64] >> (chunk % 64) & 1 == 0;
            let next = ((chunk + 1) * CHUNK).min(end);
            let full = extents.len() == limit;
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.length += next - at,
                _ if full => break,
                _ => extents.push(Extent { length: next - at, hole }),
            }
            at = next;
        }
        extents
    }
    /// Makes writes durable where there is a file.
    pub fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.watch = None;
        // SAFETY: mapped in `map` with this length; nobody uses spans of it after the reactor is gone.
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(store: &Store, offset: u64, length: u64) -> Vec<u8> {
        let span = store.span(offset, length);
        // SAFETY: the store outlives the span and nobody writes now.
        unsafe { std::slice::from_raw_parts(span.pointer(), span.len()) }.to_vec()
    }

    /// Goal: writes, zeroes and extents agree at odd borders. Method: write across chunks, zero a
    /// part with whole pages in it, look at both sides.
    #[test]
    fn writes_zeroes_and_extents() {
        let mut store = Store::anonymous(1 << 20).unwrap();
        store.write(CHUNK - 1, Span::new(&[7; 3]));
        let found = store.extents(0, 1 << 20, 10);
        let expected = [(2 * CHUNK, false), ((1 << 20) - 2 * CHUNK, true)];
        assert_eq!(found.iter().map(|e| (e.length, e.hole)).collect::<Vec<_>>(), expected);
        store.write(0, Span::new(&vec![9; 100_000]));
        store.zero(10, 99_000);
        assert_eq!(bytes(&store, 8, 4), [9, 9, 0, 0]);
        assert_eq!(bytes(&store, 99_008, 4), [0, 0, 9, 9]);
        assert!(bytes(&store, 10, 99_000).iter().all(|b| *b == 0));
        assert_eq!(store.extents(0, 1 << 20, 1), [Extent { length: CHUNK, hole: false }]);
    }

    /// Goal: a store that forgets has any size and every span that fits into a request, and is full of data. Method:
    /// spans at both ends of a large one.
    #[test]
    fn a_store_may_forget() {
        let mut store = Store::forgetful(1 << 40).unwrap();
        let length = 4 << 20;
        for offset in [0, FOLD - 1, (1 << 40) - length] {
            let end = store.write(offset, Span::new(&vec![7; length as usize]));
            assert_eq!(end, offset + length);
            assert_eq!(bytes(&store, offset, length).len() as u64, length);
        }
        store.zero(0, 1 << 30);
        assert_eq!(store.extents(5, 10, 1), [Extent { length: 10, hole: false }]);
    }
}
