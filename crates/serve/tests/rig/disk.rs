//! A virtual machine's driver without the machine: the `virtio-driver` crate over a vhost-user socket.

// Outside of test functions clippy does not know that these are tests; drivers are all about raw memory.
#![allow(dead_code, unsafe_code, clippy::unwrap_used)]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use virtio_driver::{
    VhostUser, VirtioBlkConfig, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkReqBuf,
    VirtioBlkTransport, VirtioFeatureFlags, iovec,
};
use vm_memory::{FileOffset, MmapRegion};

/// Every feature that the driver knows of a split queue.
pub(crate) fn all_features() -> u64 {
    let ring = VirtioFeatureFlags::VERSION_1 | VirtioFeatureFlags::RING_EVENT_IDX;
    ring.bits() | VirtioBlkFeatureFlags::all().bits()
}

/// A memory of this many bytes that can be shared.
pub(crate) fn shared_memory(bytes: usize) -> (File, MmapRegion<()>) {
    shared_memory_of(bytes, 0)
}
/// The same of a kind of `memfd_create`.
pub(crate) fn shared_memory_of(bytes: usize, kind: u32) -> (File, MmapRegion<()>) {
    // SAFETY: the name is a constant string; makes a descriptor and touches no memory.
    let file = unsafe { libc::memfd_create(c"guest".as_ptr(), kind) };
    assert!(file >= 0);
    // SAFETY: the kernel just made this descriptor for us.
    let file = unsafe { File::from_raw_fd(file) };
    file.set_len(bytes as u64).unwrap();
    let map = MmapRegion::from_file(FileOffset::new(file.try_clone().unwrap(), 0), bytes).unwrap();
    (file, map)
}

/// A disk as a driver has it, with memory for payloads.
pub(crate) struct Disk {
    pub(crate) transport: Box<VirtioBlkTransport>,
    pub(crate) queues: Vec<VirtioBlkQueue<'static, u64>>,
    memory: MmapRegion<()>,
}

impl Disk {
    pub(crate) fn connect(path: &str, queues: usize, size: u16) -> Self {
        Self::with(path, queues, size, all_features())
    }
    pub(crate) fn with(path: &str, queues: usize, size: u16, features: u64) -> Self {
        let transport = VhostUser::<VirtioBlkConfig, VirtioBlkReqBuf>::new(path, features).unwrap();
        let mut transport = Box::new(transport) as Box<VirtioBlkTransport>;
        let mut queues = VirtioBlkQueue::setup_queues(&mut *transport, queues, size).unwrap();
        queues.iter_mut().for_each(|queue| queue.set_used_notif_enabled(true));
        let bytes = 16 << 20;
        let (file, memory) = shared_memory(bytes);
        transport.map_mem_region(memory.as_ptr() as usize, bytes, file.as_raw_fd(), 0).unwrap();
        Self { transport, queues, memory }
    }
    pub(crate) fn config(&self) -> VirtioBlkConfig {
        self.transport.get_config().unwrap()
    }
    /// A part of the memory for payloads.
    pub(crate) fn bytes(&self, at: usize, length: usize) -> &'static mut [u8] {
        assert!(at + length <= self.memory.size());
        // SAFETY: tests use no part of it twice at a time, and the disk outlives every use.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(at), length) }
    }
    /// The same as a list of pieces of this many bytes.
    pub(crate) fn pieces(&self, at: usize, lengths: &[usize]) -> Vec<iovec> {
        let mut at = at;
        let mut piece = |length: &usize| {
            let iov_base = self.bytes(at, *length).as_mut_ptr().cast();
            at += length;
            iovec { iov_base, iov_len: *length }
        };
        lengths.iter().map(&mut piece).collect()
    }
    /// Kicks a queue if the device wants it.
    pub(crate) fn kick(&mut self, queue: usize) {
        if self.queues[queue].avail_notif_needed() {
            self.transport.get_submission_notifier(queue).notify().unwrap();
        }
    }
    /// Answers of a queue, at least one: names of requests and results.
    pub(crate) fn answers(&mut self, queue: usize) -> Vec<(u64, i32)> {
        loop {
            let answers = self.queues[queue].completions();
            let answers: Vec<_> = answers.map(|done| (done.context, done.ret)).collect();
            if !answers.is_empty() {
                return answers;
            }
            self.transport.get_completion_fd(queue).read().unwrap();
        }
    }
    /// Kicks the first queue and waits for its only answer.
    pub(crate) fn answer(&mut self) -> i32 {
        self.kick(0);
        let answers = self.answers(0);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers[0].1
    }
    pub(crate) fn read(&mut self, at: u64, length: usize) -> Result<Vec<u8>, i32> {
        let bytes = self.bytes(0, length);
        self.queues[0].read(at, bytes, 0).unwrap();
        match self.answer() {
            0 => Ok(bytes.to_vec()),
            error => Err(error),
        }
    }
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) -> i32 {
        let bytes = self.bytes(0, data.len());
        bytes.copy_from_slice(data);
        self.queues[0].write(at, bytes, 0).unwrap();
        self.answer()
    }
}
