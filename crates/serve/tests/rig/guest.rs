//! A guest that writes its rings by hand, well or badly, with a monitor that keeps the in-flight region: the
//! `vhost` crate's front end. Requests are three descriptors: header, 4 KiB of data, status.
// Outside of test functions clippy does not know that these are tests; rings are all about raw memory.
#![allow(dead_code, unsafe_code, clippy::unwrap_used)]

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{FileOffset, MmapRegion};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::disk::{shared_memory, shared_memory_of};

/// Descriptors of a queue, and requests of three descriptors that fit.
pub(crate) const SIZE: u16 = 64;
pub(crate) const SLOTS: u16 = SIZE / 3;
pub(crate) const BLOCK: usize = 4096;
/// Where the guest has its memory.
pub(crate) const GUEST: u64 = 0x4000_0000;
/// A queue's part of the memory, and what lies where in it.
const PART: usize = 1 << 20;
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
const HEADERS: usize = 0x3000;
const STATUS: usize = 0x4000;
pub(crate) const DATA: usize = 0x8000;
/// Longest wait for an answer.
const WAIT_MS: i32 = 30_000;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// A descriptor of a chain.
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

/// One queue as the driver sees it.
pub(crate) struct Driver {
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    pub(crate) trouble: EventFd,
    available: u16,
    used: u16,
}

pub(crate) struct Guest {
    pub(crate) front: Option<Frontend>,
    pub(crate) queues: Vec<Driver>,
    file: File,
    pub(crate) memory: MmapRegion<()>,
    inflight: Option<(VhostUserInflight, File)>,
}

fn eventfd() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

impl Guest {
    pub(crate) fn new(queues: usize) -> Self {
        let (file, memory) = shared_memory(queues * PART);
        let driver = |_| {
            let (kick, call, trouble) = (eventfd(), eventfd(), eventfd());
            Driver { kick, call, trouble, available: 0, used: 0 }
        };
        let queues = (0..queues).map(driver).collect();
        Self { front: None, queues, file, memory, inflight: None }
    }
    /// Its memory lies in one page of 2 MiB.
    pub(crate) fn in_a_huge_page(mut self) -> Self {
        (self.file, self.memory) =
            shared_memory_of(2 << 20, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB);
        self
    }
    pub(crate) fn connected(path: &str, queues: usize) -> Self {
        let mut guest = Self::new(queues);
        guest.connect(path);
        guest.start();
        guest
    }
    /// Its memory is this file.
    pub(crate) fn in_file(mut self, file: File, bytes: usize) -> Self {
        let offset = FileOffset::new(file.try_clone().unwrap(), 0);
        (self.file, self.memory) = (file, MmapRegion::from_file(offset, bytes).unwrap());
        self
    }
    /// Connects as soon as there is somebody, and says everything but where the queues are.
    pub(crate) fn connect(&mut self, path: &str) {
        assert!(self.connect_unless(path, || false));
    }
    /// The same, or gives up.
    pub(crate) fn connect_unless(&mut self, path: &str, over: impl Fn() -> bool) -> bool {
        if !self.greet_unless(path, over) {
            return false;
        }
        self.share().unwrap();
        true
    }
    /// [`Self::connect`] without memory.
    pub(crate) fn greet(&mut self, path: &str) {
        assert!(self.greet_unless(path, || false));
    }
    fn greet_unless(&mut self, path: &str, over: impl Fn() -> bool) -> bool {
        let count = self.queues.len();
        let mut front = loop {
            match Frontend::connect(path, count as u64) {
                Ok(front) => break front,
                Err(_) if over() => return false,
                Err(_) => std::thread::yield_now(),
            }
        };
        front.set_owner().unwrap();
        let features = front.get_features().unwrap();
        front.set_features(features).unwrap();
        let protocol = front.get_protocol_features().unwrap();
        front.set_protocol_features(protocol).unwrap();
        assert!(protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD));
        front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let asked = VhostUserInflight::new(0, 0, count as u16, SIZE);
        let (inflight, file) =
            self.inflight.get_or_insert_with(|| front.get_inflight_fd(&asked).unwrap());
        front.set_inflight_fd(inflight, file.as_raw_fd()).unwrap();
        self.front = Some(front);
        true
    }
    /// Shares the memory.
    pub(crate) fn share(&mut self) -> vhost::Result<()> {
        let bytes = self.memory.size() as u64;
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST,
            memory_size: bytes,
            userspace_addr: self.memory.as_ptr() as u64,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        self.front.as_mut().unwrap().set_mem_table(&[region]).map(|_| ())
    }
    /// Its next connection brings an in-flight region that it made itself, which it may cut short.
    pub(crate) fn with_own_inflight(mut self) -> Self {
        let count = self.queues.len() as u16;
        let bytes = u64::from(count) * (16 + u64::from(SIZE) * 16).next_multiple_of(64);
        let (file, _) = shared_memory(bytes as usize);
        self.inflight = Some((VhostUserInflight::new(bytes, 0, count, SIZE), file));
        self
    }
    /// Shares its in-flight region once more.
    pub(crate) fn share_inflight(&mut self) -> vhost::Result<()> {
        let (inflight, file) = self.inflight.as_ref().unwrap();
        self.front.as_mut().unwrap().set_inflight_fd(inflight, file.as_raw_fd())
    }
    /// Cuts the memory short; what is gone must not be touched here, either.
    pub(crate) fn cut(&self, bytes: usize) {
        self.file.set_len(bytes as u64).unwrap();
    }
    /// Cuts the in-flight region short.
    pub(crate) fn cut_inflight(&self) {
        self.inflight.as_ref().unwrap().1.set_len(0).unwrap();
    }
    /// Waits until the device has hung up; `false` if it does not.
    pub(crate) fn was_sent_away(&self) -> bool {
        let fd = self.front.as_ref().unwrap().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one entry, a local.
        unsafe { libc::poll(&raw mut poll, 1, WAIT_MS) == 1 }
    }
    /// Sets every queue up where it was left.
    pub(crate) fn start(&mut self) {
        for index in 0..self.queues.len() {
            self.set_up(index, SIZE).unwrap();
        }
    }
    pub(crate) fn set_up(&mut self, index: usize, size: u16) -> vhost::Result<()> {
        let used = self.short(index, USED + 2).load(Ordering::Acquire);
        let base = self.memory.as_ptr() as u64 + (index * PART) as u64;
        let front = self.front.as_mut().unwrap();
        let driver = &self.queues[index];
        front.set_vring_num(index, size)?;
        front.set_vring_base(index, used)?;
        let config = VringConfigData {
            queue_max_size: 1024,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: base,
            used_ring_addr: base + USED as u64,
            avail_ring_addr: base + AVAILABLE as u64,
            log_addr: None,
        };
        front.set_vring_addr(index, &config)?;
        front.set_vring_err(index, &driver.trouble)?;
        front.set_vring_call(index, &driver.call)?;
        front.set_vring_kick(index, &driver.kick)?;
        front.set_vring_enable(index, true)
    }
    /// The channel by which the device tells of changes.
    pub(crate) fn channel(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let front = self.front.as_mut().unwrap();
        front.set_backend_request_fd(&OwnedFd::from(theirs)).unwrap();
        ours
    }
    pub(crate) fn capacity(&mut self) -> u64 {
        let front = self.front.as_mut().unwrap();
        let (_, bytes) = front.get_config(0, 8, VhostUserConfigFlags::empty(), &[0; 8]).unwrap();
        u64::from_le_bytes(bytes.try_into().unwrap())
    }

    fn pointer(&self, queue: usize, at: usize) -> *mut u8 {
        assert!(queue < self.queues.len() && at < PART);
        self.memory.as_ptr().wrapping_add(queue * PART + at)
    }
    fn short(&self, queue: usize, at: usize) -> &AtomicU16 {
        // SAFETY: inside the mapping (just checked) and on an even address; shared, hence atomic.
        unsafe { AtomicU16::from_ptr(self.pointer(queue, at).cast()) }
    }
    /// Guest address of a place in a queue's part.
    pub(crate) fn address(queue: usize, at: usize) -> u64 {
        GUEST + (queue * PART + at) as u64
    }
    fn put(&self, queue: usize, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= PART);
        // SAFETY: inside the mapping (just checked); the device does not use it now.
        unsafe { self.pointer(queue, at).copy_from(bytes.as_ptr(), bytes.len()) };
    }
    /// The data of a request.
    pub(crate) fn data(&self, queue: usize, slot: u16) -> Vec<u8> {
        let from = self.pointer(queue, DATA + usize::from(slot) * BLOCK);
        // SAFETY: inside the mapping; the request was answered.
        unsafe { std::slice::from_raw_parts(from, BLOCK) }.to_vec()
    }
    pub(crate) fn status(&self, queue: usize, slot: u16) -> u8 {
        let at = self.pointer(queue, STATUS + usize::from(slot));
        // SAFETY: inside the mapping; shared, hence atomic.
        unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Acquire)
    }
    pub(crate) fn descriptor(&self, queue: usize, index: u16, descriptor: Descriptor) {
        let Descriptor { address, length, flags, next } = descriptor;
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.put(queue, usize::from(index) * 16, &bytes);
    }
    /// Writes a request into a slot: a read, or a write of `data`. Returns its head.
    pub(crate) fn prepare(&self, queue: usize, slot: u16, block: u64, data: Option<&[u8]>) -> u16 {
        let (head, number) = (slot * 3, usize::from(slot));
        let mut header = u32::from(data.is_some()).to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend((block * BLOCK as u64 / 512).to_le_bytes());
        self.put(queue, HEADERS + number * 16, &header);
        self.put(queue, STATUS + number, &[77]);
        self.put(queue, DATA + number * BLOCK, data.unwrap_or(&[0; BLOCK]));
        let (address, next) = (Self::address(queue, HEADERS + number * 16), head + 1);
        self.descriptor(queue, head, Descriptor { address, length: 16, flags: NEXT, next });
        let flags = if data.is_some() { NEXT } else { NEXT | WRITE };
        let (address, length) = (Self::address(queue, DATA + number * BLOCK), BLOCK as u32);
        let next = head + 2;
        self.descriptor(queue, head + 1, Descriptor { address, length, flags, next });
        let address = Self::address(queue, STATUS + number);
        self.descriptor(queue, next, Descriptor { address, length: 1, flags: WRITE, next: 0 });
        head
    }
    /// Makes a head available without a kick.
    pub(crate) fn publish(&mut self, queue: usize, head: u16) {
        let driver = &mut self.queues[queue];
        let index = driver.available;
        driver.available = index.wrapping_add(1);
        self.short(queue, AVAILABLE + 4 + usize::from(index % SIZE) * 2)
            .store(head, Ordering::Relaxed);
        self.show(queue, index.wrapping_add(1));
    }
    /// Writes the index of the available ring.
    pub(crate) fn show(&self, queue: usize, index: u16) {
        self.short(queue, AVAILABLE + 2).store(index, Ordering::SeqCst);
    }
    pub(crate) fn kick(&self, queue: usize) {
        self.queues[queue].kick.write(1).unwrap();
    }
    /// The next answer that is there: head and bytes.
    pub(crate) fn take_used(&mut self, queue: usize) -> Option<(u16, u32)> {
        let used = self.queues[queue].used;
        if self.short(queue, USED + 2).load(Ordering::Acquire) == used {
            return None;
        }
        let at = USED + 4 + usize::from(used % SIZE) * 8;
        // SAFETY: inside the mapping; the device has written it and shown that.
        let [head, length] = unsafe { self.pointer(queue, at).cast::<[u32; 2]>().read_volatile() };
        self.queues[queue].used = used.wrapping_add(1);
        // Call when there is one more.
        self.short(queue, AVAILABLE + 4 + usize::from(SIZE) * 2)
            .store(used.wrapping_add(1), Ordering::SeqCst);
        Some((head as u16, length))
    }
    /// Waits for an answer.
    pub(crate) fn used(&mut self, queue: usize) -> (u16, u32) {
        loop {
            if let Some(found) = self.take_used(queue) {
                return found;
            }
            assert!(ready(&self.queues[queue].call), "no answer in {WAIT_MS} ms");
            // Nothing to read is as good.
            let _ = self.queues[queue].call.read();
        }
    }
    /// Reads or writes a block and waits for its status.
    pub(crate) fn do_one(&mut self, queue: usize, block: u64, data: Option<&[u8]>) -> u8 {
        let head = self.prepare(queue, 0, block, data);
        self.publish(queue, head);
        self.kick(queue);
        assert_eq!(self.used(queue).0, head);
        self.status(queue, 0)
    }
}

/// Waits until an eventfd was rung.
pub(crate) fn ready(file: &EventFd) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, a local.
    unsafe { libc::poll(&raw mut poll, 1, WAIT_MS) == 1 }
}
