//! `/dev/ublkcN`: the path of one device's requests.
//!
//! The description of a request is in memory that the driver shares read-only. Its payload is copied by reading or
//! writing at a position of the channel that stands for the request. This never blocks, so a plain system call does
//! it: on a ring it would be passed to a worker thread, because the driver does not promise the ring that it never
//! blocks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};

use io_uring::{opcode, types};

use super::wire::{COMMIT_AND_FETCH, Descriptor, FETCH, Info, Move, descriptors_at, payload_at};
use crate::request::buffer::Buffer;
use crate::request::entry::Entry;
use crate::request::place::Place;

/// A queue's descriptors.
#[derive(Debug)]
struct Map {
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the map owns its pages alone, and reads of them are volatile.
unsafe impl Send for Map {}

impl Map {
    fn new(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        let (kind, place) = (libc::MAP_SHARED | libc::MAP_POPULATE, ptr::null_mut());
        // SAFETY: maps pages at a place that the kernel chooses.
        let pointer = unsafe {
            libc::mmap(place, bytes, libc::PROT_READ, kind, file.as_raw_fd(), offset as libc::off_t)
        };
        if pointer == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pointer = NonNull::new(pointer.cast()).expect("the kernel maps nothing at zero");
        Ok(Self { pointer, bytes })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nobody has a pointer into it any more.
        unsafe { libc::munmap(self.pointer.as_ptr().cast(), self.bytes) };
    }
}

/// A tag of a queue, as one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(pub(crate) u16);

/// The way of one device's requests.
#[derive(Debug)]
pub(crate) struct Channel {
    file: File,
    maps: Vec<Map>,
    depth: u16,
}

impl Channel {
    /// Opens a device that was checked. [`io::ErrorKind::WouldBlock`]: try again in a moment.
    pub(crate) fn open(info: &Info) -> io::Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).open(path(info));
        let file = opened.map_err(|error| match error.raw_os_error() {
            // Its node is made by another program, or the last server is not gone yet.
            Some(libc::ENOENT | libc::EBUSY | libc::EACCES) => io::ErrorKind::WouldBlock.into(),
            _ => error,
        })?;
        // SAFETY: asks for one number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let map = |queue| {
            let (offset, bytes) = descriptors_at(queue, info.depth, page);
            Map::new(&file, offset, bytes)
        };
        let maps = (0..info.queues).map(map).collect::<io::Result<_>>()?;
        Ok(Self { file, maps, depth: info.depth })
    }
    /// All tags of all queues.
    pub(crate) fn tags(&self) -> impl Iterator<Item = Tag> + use<> {
        let tags = self.maps.len() as u32 * u32::from(self.depth);
        (0..tags).map(|tag| Tag(tag as u16))
    }
    fn split(&self, tag: Tag) -> (u16, u16) {
        (tag.0 / self.depth, tag.0 % self.depth)
    }
    /// What a tag's request is, as the driver has it now.
    pub(crate) fn descriptor(&self, tag: Tag) -> Descriptor {
        let (queue, tag) = self.split(tag);
        let map = &self.maps[usize::from(queue)];
        let at = usize::from(tag) * Descriptor::BYTES;
        assert!(at + Descriptor::BYTES <= map.bytes, "a tag of the queue");
        // SAFETY: inside the mapping (just checked), of bytes, which are always valid; the driver could
        // write them, so they are copied once, and what was copied is used.
        let bytes =
            unsafe { map.pointer.add(at).cast::<[u8; Descriptor::BYTES]>().read_volatile() };
        Descriptor::decode(&bytes)
    }
    fn entry(&self, number: u32, tag: Tag, result: i32) -> Entry {
        let (queue, tag) = self.split(tag);
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(file, number).cmd(Move { queue, tag, result }.encode());
        // SAFETY: the descriptor is a ublk device, whose commands name no memory, since payloads are copied by reading and
        // writing the device.
        unsafe { Entry::new(entry.build()) }
    }
    /// Asks for the first request of a tag.
    pub(crate) fn fetch(&self, tag: Tag) -> Entry {
        self.entry(FETCH, tag, 0)
    }
    /// Completes a tag's request and fetches the next one.
    pub(crate) fn commit(&self, tag: Tag, result: i32) -> Entry {
        self.entry(COMMIT_AND_FETCH, tag, result)
    }
    /// Copies the payload of a write into a buffer.
    pub(crate) fn take(&self, tag: Tag, into: &mut Buffer, length: usize) -> io::Result<()> {
        let (at, into) = (self.payload(tag), &mut into.bytes_mut()[..length]);
        whole(length, |done| self.file.read_at(&mut into[done..], at + done as u64))
    }
    /// Copies the result of a read where the driver wants it.
    pub(crate) fn give(&self, tag: Tag, from: &Place<'_>) -> io::Result<()> {
        let at = self.payload(tag);
        whole(from.len(), |done| {
            let rest = from.len() - done;
            // SAFETY: reads the rest of a place, which is there as long as it is borrowed.
            let given = unsafe {
                let here = from.pointer().wrapping_add(done).cast();
                libc::pwrite(self.file.as_raw_fd(), here, rest, (at + done as u64) as libc::off_t)
            };
            usize::try_from(given).map_err(|_| io::Error::last_os_error())
        })
    }
    fn payload(&self, tag: Tag) -> u64 {
        let (queue, tag) = self.split(tag);
        payload_at(queue, tag)
    }
}

fn path(info: &Info) -> String {
    format!("/dev/ublkc{}", info.device)
}

/// Copies until all is done; `step` copies on from this many bytes and returns how many more there are then.
fn whole(length: usize, mut step: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        match step(done) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a payload is copied whole or not at all, however small the steps, and a driver that copies nothing ends
    /// it. Method: steps of one byte, of nothing, and an error.
    #[test]
    fn payloads_are_copied_whole() {
        let mut steps = Vec::new();
        let copied = whole(3, |done| {
            steps.push(done);
            Ok(1)
        });
        assert!(copied.is_ok() && steps == [0, 1, 2]);
        assert_eq!(whole(3, |_| Ok(0)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(whole(0, |_| panic!("nothing to copy")).is_ok());
    }
}
