//! Mapped memory that stores volumes: anonymous, or a sparse file.
//!
//! A bitmap records which chunks were ever written, so that a client that copies a volume can skip the others.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
#[cfg(not(miri))]
use std::ptr;
use std::ptr::NonNull;
use std::sync::Arc;

use super::uring::set_length;
use crate::guard::Watch;
use crate::request::extent::Extent;
use crate::request::place::{Place, PlaceMut};
use crate::request::shared::{self, Span, Stored};

/// Granularity of the bitmap of written chunks.
const CHUNK: u64 = 32 << 10;
/// Memory is freed in whole pages.
const PAGE: u64 = 4096;
/// Memory of a store that discards data; small, so that it stays in the processor's caches.
const FOLD: u64 = 1 << 20;
/// Its longest span: longer than any request.
const SPAN_MAX: u64 = 64 << 20;

/// Mapped pages. They are used by address, never by reference: data read from them may still be on its way to clients
/// while they are written again, and other users of a file may write at any time.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Detects a loss: another process may truncate the file, or its disk may be full.
    watch: Option<Watch>,
}

// SAFETY: the mapping belongs to no thread, and only its address is shared.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Miri has no mappings: zeroed memory replaces anonymous ones.
#[cfg(miri)]
impl Mapping {
    fn layout(bytes: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(bytes, PAGE as usize).expect("it was mapped")
    }
    fn new(bytes: usize, _: i32, file: i32) -> io::Result<Self> {
        assert_eq!(file, -1, "Miri maps no files");
        // SAFETY: the size is not zero, since no store is empty.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(bytes)) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes, watch: None })
    }
    fn unmap(&mut self) {
        // SAFETY: as where memory is mapped.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.bytes)) };
    }
    /// Frees no pages; the caller clears them instead.
    fn discard(_: Span, _: i32) -> bool {
        false
    }
}

#[cfg(not(miri))]
impl Mapping {
    fn new(bytes: usize, flags: i32, file: i32) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at zero");
        Ok(Self { base, bytes, watch: None })
    }
    fn unmap(&mut self) {
        // SAFETY: mapped in `new` with this length, and called when it is dropped. Users of an address in it hold a
        // keeper, so there are none left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
    /// Frees whole pages with an madvise(2) advice that leaves zeroes; `false` if that is not possible.
    fn discard(span: Span, advice: i32) -> bool {
        // SAFETY: the span lies inside a mapping (`Store::span` checks it), to which there are no references.
        unsafe { libc::madvise(span.pointer().cast(), span.len(), advice) == 0 }
    }
}

impl Mapping {
    /// Starts to detect a loss of pages.
    fn watch(&mut self) -> io::Result<()> {
        // SAFETY: the mapping lives until this is dropped, after the watch. Once it is lost, its data counts as invalid.
        self.watch = Some(unsafe { Watch::over(self.base.as_ptr(), self.bytes) }?);
        Ok(())
    }
}

/// The end of the run of equal bits that begins at `from`, at most `end`. It reads each word of 64 bits once, so the
/// longest request takes a few thousand steps.
fn run_end(mut word: impl FnMut(u64) -> u64, from: u64, end: u64) -> u64 {
    let first = word(from / 64);
    let flip = if first >> (from % 64) & 1 == 1 { u64::MAX } else { 0 };
    let mut others = (first ^ flip) & u64::MAX << (from % 64);
    let mut at = from / 64;
    while others == 0 {
        at += 1;
        if at * 64 >= end {
            return end;
        }
        others = word(at) ^ flip;
    }
    (at * 64 + u64::from(others.trailing_zeros())).min(end)
}

/// Gives a range of a file its space. The file keeps its length: one that somebody has cut stays as it is.
fn allocate(file: &File, start: u64, end: u64) -> io::Result<()> {
    let (descriptor, flags) = (file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE);
    loop {
        // SAFETY: a plain system call on a descriptor of ours.
        if unsafe { libc::fallocate(descriptor, flags, start as i64, (end - start) as i64) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watch = None;
        self.unmap();
    }
}

/// A mapping, private to this process or shared with a file.
#[derive(Debug)]
pub struct Store {
    mapping: Arc<Mapping>,
    bytes: u64,
    /// Offsets are taken modulo this.
    fold: u64,
    written: Vec<u64>,
    /// The file that is mapped, if any.
    file: Option<File>,
    /// Its chunks that have their space. Empty if its file system does not tell.
    reserved: Vec<u64>,
}

impl Store {
    /// A store of zeroes. Memory is used only for parts that are written.
    pub fn anonymous(bytes: u64) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::map(bytes, flags, -1)
    }
    /// A store that discards writes and returns arbitrary data, for clients that only measure time. It uses no
    /// memory, and writes cost nothing.
    pub fn forgetful(bytes: u64) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mut store = Self::map(FOLD + SPAN_MAX, flags, -1)?;
        (store.bytes, store.fold, store.written) = (bytes, FOLD, Vec::new());
        Ok(store)
    }
    /// The contents of a file, which is extended to at least this length. All of it counts as written.
    pub fn file(file: &File, bytes: u64) -> io::Result<Self> {
        let bytes = bytes.max(file.metadata()?.len());
        set_length(file, bytes)?;
        let mut store = Self::map(bytes, libc::MAP_SHARED, file.as_raw_fd())?;
        store.written.fill(u64::MAX);
        store.file = Some(file.try_clone()?);
        store.reserved = vec![0; store.written.len()];
        Arc::get_mut(&mut store.mapping).expect("it is new").watch()?;
        Ok(store)
    }
    fn map(bytes: u64, flags: i32, file: i32) -> io::Result<Self> {
        let length = usize::try_from(bytes).expect("64-bit machines only").max(PAGE as usize);
        let mapping = Arc::new(Mapping::new(length, flags, file)?);
        let words = bytes.div_ceil(CHUNK).div_ceil(64) as usize;
        let (written, file, reserved) = (vec![0; words], None, Vec::new());
        Ok(Self { mapping, bytes, fold: u64::MAX, written, file, reserved })
    }
    /// Makes sure that a range of the file has its space: a write to a mapped hole of a full file system would lose the mapping.
    fn reserve(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| length > 0) else { return Ok(()) };
        let end = offset + length;
        let chunks = offset / CHUNK..end.div_ceil(CHUNK);
        let has = |chunk: u64| {
            self.reserved.get(chunk as usize / 64).is_none_or(|word| word >> (chunk % 64) & 1 == 1)
        };
        if chunks.clone().all(has) {
            return Ok(());
        }
        match allocate(file, chunks.start * CHUNK, (chunks.end * CHUNK).min(self.bytes)) {
            Ok(()) => {
                chunks.for_each(|chunk| self.reserved[chunk as usize / 64] |= 1 << (chunk % 64))
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => self.reserved.clear(),
            // What is written may have its space though the rest of the chunks has not.
            Err(_) => return allocate(file, offset / PAGE * PAGE, end.next_multiple_of(PAGE)),
        }
        Ok(())
    }
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Whether a part of the file was missing when it was used. Everything read or written since is then invalid.
    pub(super) fn is_lost(&self) -> bool {
        self.mapping.watch.as_ref().is_some_and(Watch::is_lost)
    }
    /// The file behind it, if there is one.
    pub(super) fn backing(&self) -> Option<&File> {
        self.file.as_ref()
    }
    fn forgets(&self) -> bool {
        self.fold == FOLD
    }
    /// A part of the mapping, valid while the store, or another keeper of the mapping, lives.
    fn span(&self, offset: u64, length: u64) -> Span {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{length} bytes at {offset} of {}", self.bytes);
        assert!(!self.forgets() || length <= SPAN_MAX, "{length} bytes at once");
        let at = (offset % self.fold) as usize;
        Span::new(self.mapping.base.as_ptr().wrapping_add(at), length as usize)
    }
    /// A part of it, without copying. Later writes may be visible in it.
    pub fn stored(&self, offset: u64, length: u64) -> Stored {
        let span = self.span(offset, length);
        // SAFETY: inside the mapping (`span` checks it), which is its own keeper, and to which there are no references.
        unsafe { Stored::new(span, self.mapping.clone()) }
    }
    /// Reads into a place; returns the end of the range.
    pub fn read(&self, offset: u64, into: &mut PlaceMut<'_>) -> u64 {
        let length = into.len() as u64;
        // SAFETY: inside the mapping (`span` checks it), which lives as long as this store, and to which there are no
        // references.
        unsafe { into.write_from_shared(self.span(offset, length)) };
        offset + length
    }
    /// [`Self::write`] of all of these places, or none.
    pub(super) fn write_all<'a>(
        &mut self,
        offset: u64,
        length: u64,
        from: impl Iterator<Item = Place<'a>>,
    ) -> io::Result<()> {
        self.reserve(offset, length)?;
        from.fold(offset, |at, place| self.write(at, &place));
        Ok(())
    }
    /// Writes from a place; returns the end of the range.
    pub fn write(&mut self, offset: u64, from: &Place<'_>) -> u64 {
        let length = from.len() as u64;
        let span = self.span(offset, length);
        if self.forgets() {
            return offset + length;
        }
        // SAFETY: as in `read`; the mapping is writable.
        unsafe { from.read_into_shared(span) };
        for chunk in offset / CHUNK..(offset + length).div_ceil(CHUNK) {
            self.written[chunk as usize / 64] |= 1 << (chunk % 64);
        }
        offset + length
    }
    /// Zeroes a range, and frees the memory of whole pages.
    pub fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        if self.forgets() {
            return Ok(());
        }
        let all = self.span(offset, length);
        let end = offset + length;
        let (first, last) = (offset.next_multiple_of(PAGE), end / PAGE * PAGE);
        if first >= last {
            self.reserve(offset, length)?;
            // SAFETY: inside the mapping (`span` checks it), which is writable.
            unsafe { shared::clear(all) };
            return Ok(());
        }
        self.reserve(offset, first - offset)?;
        self.reserve(last, end - last)?;
        let whole = self.span(first, last - first);
        let edges = [self.span(offset, first - offset), self.span(last, end - last)];
        // SAFETY: as above.
        edges.into_iter().for_each(|edge| unsafe { shared::clear(edge) });
        let advice = if self.file.is_some() { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        if Mapping::discard(whole, advice) {
            for chunk in first / CHUNK..last.div_ceil(CHUNK) {
                let word = self.reserved.get_mut(chunk as usize / 64);
                word.into_iter().for_each(|word| *word &= !(1 << (chunk % 64)));
            }
        } else {
            self.reserve(first, last - first)?;
            // SAFETY: as above.
            unsafe { shared::clear(whole) };
        }
        let (mut chunk, end) = (offset.div_ceil(CHUNK), end / CHUNK);
        while chunk < end {
            // A whole word at once, or its first or last bits.
            let next = (chunk / 64 * 64 + 64).min(end);
            let rest = u64::MAX >> (64 - (next - chunk));
            self.written[chunk as usize / 64] &= !(rest << (chunk % 64));
            chunk = next;
        }
        Ok(())
    }
    /// The written parts of a range, at most `limit` extents.
    pub fn extents(&self, offset: u64, length: u64, limit: usize) -> Vec<Extent> {
        if self.forgets() {
            return vec![Extent { length, hole: false }];
        }
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + length);
        while at < end && extents.len() < limit {
            let chunk = at / CHUNK;
            let hole = !self.is_written(chunk);
            let run = run_end(|word| self.written[word as usize], chunk, end.div_ceil(CHUNK));
            let next = (run * CHUNK).min(end);
            extents.push(Extent { length: next - at, hole });
            at = next;
        }
        extents
    }
    fn is_written(&self, chunk: u64) -> bool {
        self.written[chunk as usize / 64] >> (chunk % 64) & 1 == 1
    }
    /// Makes writes durable, if there is a file.
    pub fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::buffer::{Buffer, Lent};
    use crate::request::data::Data;

    fn bytes(store: &Store, offset: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        let stored = Data::Stored(store.stored(offset, length));
        stored.places(0, length as usize).for_each(|place| place.read(&mut bytes));
        bytes
    }
    fn write(store: &mut Store, offset: u64, bytes: &[u8]) -> u64 {
        let data = Data::Lent(Lent::new(&Arc::new(bytes.to_vec()), 0..bytes.len()));
        data.places(0, bytes.len()).fold(offset, |at, place| store.write(at, &place))
    }

    /// Goal: writes, zeroes and extents agree at unaligned borders. Method: write across chunks, zero a part that contains
    /// whole pages, and check both sides.
    #[test]
    fn writes_zeroes_and_extents() {
        let mut store = Store::anonymous(1 << 20).unwrap();
        write(&mut store, CHUNK - 1, &[7; 3]);
        let found = store.extents(0, 1 << 20, 10);
        let expected = [(2 * CHUNK, false), ((1 << 20) - 2 * CHUNK, true)];
        assert_eq!(found.iter().map(|e| (e.length, e.hole)).collect::<Vec<_>>(), expected);
        write(&mut store, 0, &vec![9; 100_000]);
        store.zero(10, 99_000).unwrap();
        assert_eq!(bytes(&store, 8, 4), [9, 9, 0, 0]);
        assert_eq!(bytes(&store, 99_008, 4), [0, 0, 9, 9]);
        assert!(bytes(&store, 10, 99_000).iter().all(|b| *b == 0));
        assert_eq!(store.extents(0, 1 << 20, 1), [Extent { length: CHUNK, hole: false }]);
    }

    /// Goal: extents agree with a list of written chunks, also after zeroes.
    /// Method: random writes and zeroes beside a list of chunks.
    #[test]
    fn extents_are_those_of_each_chunk() {
        let chunks = 64 * 5 + 7;
        let mut store = Store::anonymous(chunks * CHUNK).unwrap();
        let mut model = vec![false; chunks as usize];
        let mut random = iofair_drive::random::Random::new(1, 2);
        for round in 0..300 {
            let from = random.below(chunks);
            let to =
                from + 1 + random.below((chunks - from).min(if round % 3 == 0 { 300 } else { 3 }));
            let is_written = round % 2 == 0;
            if is_written {
                for chunk in from..to {
                    write(&mut store, chunk * CHUNK, &[1]);
                }
            } else {
                store.zero(from * CHUNK, (to - from) * CHUNK).unwrap();
            }
            model[from as usize..to as usize].fill(is_written);
            let (first, last) = (random.below(chunks), random.below(chunks));
            let range = first.min(last)..first.max(last) + 1;
            let limit = if round % 5 == 0 { 3 } else { usize::MAX };
            let (at, length) = (range.start * CHUNK + 5, (range.end - range.start) * CHUNK - 9);
            let found = store.extents(at, length, limit);
            let told: u64 = found.iter().map(|extent| extent.length).sum();
            assert!(told == length || found.len() == limit, "{found:?}");
            let mut place = at;
            for (extent, next) in found.iter().zip(found.iter().skip(1).map(Some).chain([None])) {
                let chunks = place / CHUNK..(place + extent.length).div_ceil(CHUNK);
                for chunk in chunks {
                    assert_eq!(extent.hole, !model[chunk as usize], "chunk {chunk}: {found:?}");
                }
                assert!(next.is_none_or(|next| next.hole != extent.hole));
                place += extent.length;
            }
        }
    }
    /// Goal: finding an extent takes one step per 64 chunks. Method: a run over the longest request, and a run that ends
    /// in the last word.
    #[test]
    fn runs_are_found_by_words() {
        let chunks = (4 << 30) / CHUNK;
        for bits in [0, u64::MAX] {
            let mut looks = 0;
            let mut count = |word| {
                looks += 1;
                if word == chunks / 64 - 1 { bits ^ 1 << 63 } else { bits }
            };
            assert_eq!(run_end(&mut count, 3, chunks), chunks - 1);
            assert_eq!(looks, chunks / 64);
        }
        assert_eq!(run_end(|_| 0, 3, 60), 60);
        assert_eq!(run_end(|_| 0b1100, 2, 64), 4);
        assert_eq!(run_end(|word| if word == 0 { u64::MAX } else { 1 }, 63, 128), 65);
    }

    /// Goal: a store that discards data can have any size, has every span that fits into a request, and is full of data.
    /// Method: spans at both ends of a large one.
    #[test]
    fn a_discarding_store_is_full_of_data() {
        let mut store = Store::forgetful(1 << 40).unwrap();
        let length = 4 << 20;
        for offset in [0, FOLD - 1, (1 << 40) - length] {
            let end = write(&mut store, offset, &vec![7; length as usize]);
            assert_eq!(end, offset + length);
            assert_eq!(bytes(&store, offset, length).len() as u64, length);
        }
        store.zero(0, 1 << 30).unwrap();
        assert_eq!(store.extents(5, 10, 1), [Extent { length: 10, hole: false }]);
    }
    /// Goal: data read from a store may be sent after the store is dropped. Method: a store is dropped and another one is
    /// mapped before the data is checked.
    #[test]
    fn what_was_read_outlives_its_store() {
        let mut store = Store::anonymous(1 << 20).unwrap();
        write(&mut store, 8192, &[5; 100]);
        let stored = Data::Stored(store.stored(8192, 100));
        drop(store);
        let _other = Store::anonymous(1 << 20).unwrap();
        let mut bytes = [0; 100];
        stored.places(0, 100).for_each(|place| place.read(&mut bytes));
        assert_eq!(bytes, [5; 100]);
    }

    /// Goal: ranges beyond the end of a store are refused, also if their end overflows. Method: reads, writes and zeroes.
    #[test]
    fn ranges_stay_within_their_store() {
        let reaches = |offset: u64, length: usize| {
            let mut store = Store::anonymous(1 << 20).unwrap();
            let mut data = Data::Owned(Buffer::with_capacity(length));
            let all = std::panic::AssertUnwindSafe(|| {
                for mut place in data.places_mut(0, length) {
                    store.read(offset, &mut place);
                }
                for place in data.places(0, length) {
                    store.write(offset, &place);
                }
                store.zero(offset, length as u64).unwrap();
            });
            std::panic::catch_unwind(all).is_ok()
        };
        assert!(reaches((1 << 20) - 4096, 4096));
        for (offset, length) in
            [(1 << 20, 1), ((1 << 20) - 1, 2), (u64::MAX, 1), (u64::MAX - 4095, 4096)]
        {
            assert!(!reaches(offset, length), "{length} bytes at {offset}");
        }
    }
}
