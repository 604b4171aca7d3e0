//! Mapped memory of a client: the guest's memory and the in-flight region. It is guarded ([`crate::guard`]), because
//! its owner may truncate the file at any moment.

use std::fs::{self, File};
use std::io;
use std::mem;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use virtio_queue::desc::split::Descriptor;
use vm_memory::bitmap::BS;
use vm_memory::guest_memory::Result as Guest;
use vm_memory::mmap::MmapRegionError;
use vm_memory::{
    ByteValued, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryRegion,
    GuestMemoryRegionBytes, GuestRegionCollection, GuestRegionMmap, GuestUsize,
    MemoryRegionAddress, MmapRegion, VolatileSlice,
};

use crate::guard::Watch;
use crate::request::shared::Span;

/// The guest's memory, as far as it is shared with the server.
pub(crate) type Memory = GuestRegionCollection<Piece>;

/// File systems whose files are only memory. A page of another file may have to be read, perhaps from a volume of this
/// server, and the reactor thread that touches it would then wait for itself.
const FILE_SYSTEMS: [libc::c_long; 3] = [
    // A memfd is one of these two.
    libc::TMPFS_MAGIC,
    libc::HUGETLBFS_MAGIC,
    // ramfs
    0x8584_58f6,
];

/// A part of a client's file.
#[derive(Debug)]
pub(crate) struct Shared {
    // Drop order: the watch before the mapping.
    watch: Watch,
    map: Arc<MmapRegion<()>>,
}

impl Shared {
    /// Maps a part of a file. An error says why the part is refused.
    pub(crate) fn map(file: File, offset: u64, bytes: u64) -> Result<Self, String> {
        check(&file, offset, bytes)?;
        let told =
            |error: &dyn std::fmt::Display| format!("mapping {bytes} bytes at {offset}: {error}");
        let length = usize::try_from(bytes).map_err(|error| told(&error))?;
        let map = MmapRegion::from_file(FileOffset::new(file, offset), length);
        Self::watch(map.map_err(|error| told(&error))?).map_err(|error| told(&error))
    }
    fn watch(map: MmapRegion<()>) -> io::Result<Self> {
        // SAFETY: the mapping belongs to `map`, which is dropped after the watch. Its contents are not trusted, so they may
        // become zeroes.
        let watch = unsafe { Watch::over(map.as_ptr(), map.size()) }?;
        Ok(Self { watch, map: Arc::new(map) })
    }
    /// Memory that no other process shares, for tests.
    pub(crate) fn alone(bytes: usize) -> io::Result<Self> {
        Self::watch(mapping_of(bytes).map_err(io::Error::other)?)
    }
    /// Whether its owner truncated the file.
    pub(crate) fn is_lost(&self) -> bool {
        self.watch.is_lost()
    }
}

#[cfg(not(miri))]
fn mapping_of(bytes: usize) -> Result<MmapRegion<()>, MmapRegionError> {
    MmapRegion::new(bytes)
}

/// Miri has no such mappings: zeroed memory replaces them.
#[cfg(miri)]
fn mapping_of(bytes: usize) -> Result<MmapRegion<()>, MmapRegionError> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the length is not zero, and the memory lives until `Shared` is dropped, which owns it.
    unsafe { MmapRegion::build_raw(std::alloc::alloc_zeroed(layout(bytes)), bytes, access, 0) }
}
#[cfg(miri)]
fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes, 1 << 12).expect("a few pages")
}
#[cfg(miri)]
impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: allocated in `mapping_of`, and no longer used.
        unsafe { std::alloc::dealloc(self.map.as_ptr(), layout(self.map.size())) };
    }
}

impl Deref for Shared {
    type Target = MmapRegion<()>;
    fn deref(&self) -> &MmapRegion<()> {
        &self.map
    }
}

fn file_system(file: &File) -> io::Result<libc::statfs> {
    // SAFETY: all zeroes is a valid value, and the call fills it.
    let (failed, found) = unsafe {
        let mut found: libc::statfs = mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &raw mut found), found)
    };
    if failed == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

fn is_memory(file: &File) -> bool {
    file_system(file).is_ok_and(|found| FILE_SYSTEMS.contains(&found.f_type))
}

/// Whether this part of a file may be mapped. Seals are not required: `F_SEAL_SHRINK` would guarantee the file's length, but
/// virtual machine monitors do not set it by default, and the mapping is watched in any case.
fn check(file: &File, offset: u64, bytes: u64) -> Result<(), String> {
    let metadata = file.metadata().ok().filter(fs::Metadata::is_file);
    let (Some(metadata), Ok(found), true) = (metadata, file_system(file), is_memory(file)) else {
        let allowed = "a memfd, or a regular file of tmpfs or hugetlbfs";
        return Err(format!("shared memory must be {allowed}"));
    };
    if offset.checked_add(bytes).is_none_or(|end| end > metadata.len()) {
        return Err(format!("{bytes} bytes at {offset} of a file of {}", metadata.len()));
    }
    // Otherwise it could not be unmapped.
    let page = found.f_bsize.max(1) as u64;
    if found.f_type == libc::HUGETLBFS_MAGIC && !bytes.is_multiple_of(page) {
        return Err(format!("{bytes} bytes are not a multiple of the page size of {page} bytes"));
    }
    Ok(())
}

/// A piece of guest memory.
#[derive(Debug)]
pub(crate) struct Piece {
    // Drop order: `shared` owns the mapping and comes last.
    guest: GuestRegionMmap<()>,
    shared: Shared,
}

impl Piece {
    /// Memory at a guest address; `None` if it would go beyond the largest address.
    pub(crate) fn new(shared: Shared, at: GuestAddress) -> Option<Self> {
        let guest = GuestRegionMmap::with_arc(shared.map.clone(), at)?;
        Some(Self { guest, shared })
    }
    /// Whether its owner truncated the file.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.is_lost()
    }
}

impl Deref for Piece {
    type Target = MmapRegion<()>;
    fn deref(&self) -> &MmapRegion<()> {
        &self.guest
    }
}

impl GuestMemoryRegion for Piece {
    type B = ();
    fn len(&self) -> GuestUsize {
        self.guest.len()
    }
    fn start_addr(&self) -> GuestAddress {
        self.guest.start_addr()
    }
    fn bitmap(&self) -> BS<'_, ()> {
        self.guest.bitmap()
    }
    fn get_host_address(&self, at: MemoryRegionAddress) -> Guest<*mut u8> {
        self.guest.get_host_address(at)
    }
    fn get_slice(
        &self,
        at: MemoryRegionAddress,
        count: usize,
    ) -> Guest<VolatileSlice<'_, BS<'_, ()>>> {
        self.guest.get_slice(at, count)
    }
}

impl GuestMemoryRegionBytes for Piece {}

/// Contiguous bytes of guest memory.
pub(super) type Bytes<'a> = VolatileSlice<'a, BS<'a, ()>>;

/// Copies the first bytes; each byte is read once.
pub(super) fn read(from: &Bytes<'_>, into: &mut [u8]) {
    let span = Span::new(from.ptr_guard().as_ptr().cast_mut(), from.len());
    // SAFETY: the slice is mapped as long as it borrows its memory, to which there are no references.
    unsafe { span.part(0, into.len()).read(into) };
}

/// Reads a descriptor once; `None` if it is outside of the guest's memory.
pub(super) fn descriptor(memory: &Memory, at: GuestAddress) -> Option<Descriptor> {
    // Copied into a descriptor: the source need not be aligned for one.
    let mut found = Descriptor::default();
    let mut rest = found.as_mut_slice();
    for slice in GuestMemoryBackend::get_slices(memory, at, rest.len()) {
        let slice = slice.ok()?;
        let (here, after) = rest.split_at_mut(slice.len());
        read(&slice, here);
        rest = after;
    }
    Some(found)
}

/// Guest memory for tests that no other process shares: start and length of each region, in order.
pub(crate) fn alone(pieces: &[(GuestAddress, usize)]) -> io::Result<Memory> {
    let piece = |(at, bytes): &(GuestAddress, usize)| {
        Piece::new(Shared::alone(*bytes)?, *at).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    };
    let pieces = pieces.iter().map(piece).collect::<io::Result<Vec<_>>>()?;
    Memory::from_regions(pieces).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: files that could block the server, or that could not be unmapped, are refused. Method: a file in /proc, a
    /// directory, a device, a file on a disk (if there is one), a file that is too short.
    #[test]
    fn only_memory_is_mapped() {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        for path in ["/proc/version", "/tmp", "/dev/null", here] {
            let file = File::open(path).unwrap();
            if path == here && is_memory(&file) {
                continue;
            }
            let refused = Shared::map(file, 0, 4096).unwrap_err();
            assert!(refused.contains("regular file of tmpfs"), "{path}: {refused}");
        }
        // SAFETY: makes a descriptor from a constant name.
        let file = unsafe { libc::memfd_create(c"short".as_ptr(), 0) };
        // SAFETY: just made, and nobody else's.
        let file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(file) };
        file.set_len(4096).unwrap();
        let short = Shared::map(file.try_clone().unwrap(), 0, 8192).unwrap_err();
        assert!(short.contains("8192 bytes at 0 of a file of 4096"), "{short}");
        assert!(!Shared::map(file, 0, 4096).unwrap().is_lost());
    }
}
