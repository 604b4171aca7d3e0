//! Volumes as files in a mounted directory, for hosts without a driver for block devices: `losetup --direct-io=on`
//! makes a block device of such a file.
//!
//! Several threads read the kernel's requests. They reply to requests that need no drive (names, sizes) directly.
//! Every open file is an endpoint of the reactor (`file.rs`): it gets the calls and replies to the kernel
//! directly. Nothing is cached: files are opened for direct I/O, and sizes are read each time. A file behaves like a
//! block device: `O_TRUNC` has no effect, another size is an error, and a write past its end fails with "no space".

mod file;
pub(crate) mod mount;
pub(crate) mod place;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use iofair_config::contracts::Volume;

use crate::clock::{WallTime, spent, wall};
use crate::descriptors;
use crate::reactor::Message;
use crate::reactor::handle::ReactorHandle;
use crate::reactor::refusals::Refusal;
use crate::request::buffer::Buffer;
use crate::wake;
use file::{Call, Sent};

/// Longest read or write that the kernel is to send. Its own limit is 1 MiB; what is read is copied to it by the thread that
/// serves everybody.
const TRANSFER_MAX: u32 = 256 << 10;
/// Requests that the kernel has on the way at once, of those that nobody waits for: as many as a loop device
/// or an asynchronous client wants.
const BACKGROUND_MAX: u16 = 256;
/// Nothing is remembered by the kernel.
const FRESH: Duration = Duration::ZERO;

/// A volume as a file.
#[derive(Clone, Debug)]
struct File {
    inode: u64,
    size: u64,
    read_only: bool,
    /// When it came, or got its size.
    changed: WallTime,
}

/// The files by name, shared with whoever changes the contracts.
#[derive(Clone, Debug)]
pub(crate) struct Files(Arc<Mutex<Table>>);

#[derive(Debug)]
struct Table {
    files: BTreeMap<String, File>,
    next_inode: u64,
    owner: (u32, u32),
}

impl Files {
    pub(crate) fn new(volumes: &[Volume]) -> Self {
        // SAFETY: two plain system calls without arguments, which cannot fail.
        let owner = unsafe { (libc::geteuid(), libc::getegid()) };
        let table = Table { files: BTreeMap::new(), next_inode: INodeNo::ROOT.0 + 1, owner };
        let this = Self(Arc::new(Mutex::new(table)));
        this.update(volumes);
        this
    }
    /// From now on there are these volumes.
    pub(crate) fn update(&self, volumes: &[Volume]) {
        let mut table = self.table();
        table.files.retain(|name, _| volumes.iter().any(|volume| volume.name == *name));
        for Volume { name, size_bytes, read_only, .. } in volumes {
            let (size, read_only, changed) = (*size_bytes, *read_only, wall());
            match table.files.get_mut(name) {
                Some(file) if file.size == size && file.read_only == read_only => {}
                Some(file) => *file = File { inode: file.inode, size, read_only, changed },
                None => {
                    let inode = table.next_inode;
                    table.next_inode += 1;
                    table.files.insert(name.clone(), File { inode, size, read_only, changed });
                }
            }
        }
    }
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl Table {
    fn find(&self, inode: INodeNo) -> Option<(&String, &File)> {
        self.files.iter().find(|(_, file)| file.inode == inode.0)
    }
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let is_root = inode == INodeNo::ROOT;
        let file = self.find(inode).map(|(_, file)| file);
        let (size, read_only, time) = match file {
            Some(file) => (file.size, file.read_only, file.changed),
            None if is_root => (0, true, WallTime::UNIX_EPOCH),
            None => return None,
        };
        let perm = match (is_root, read_only) {
            (true, _) => 0o500,
            (false, true) => 0o400,
            (false, false) => 0o600,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm,
            nlink: if is_root { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

/// How calls reach an open file.
#[derive(Debug)]
struct Handle {
    /// Until it is dropped.
    calls: Option<Sender<Sent>>,
    wake: OwnedFd,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Its endpoint finds that no call follows, so the sender goes first.
        self.calls = None;
        wake::signal(&self.wake);
    }
}

/// What the session's threads know.
#[derive(Debug)]
struct Volumes {
    files: Files,
    /// Where files are opened; a mount that is only tried has no reactor.
    line: Option<ReactorHandle>,
    handles: Mutex<BTreeMap<u64, Handle>>,
    /// Numbers of handles are never used again, so that a late call meets no other file.
    next_handle: AtomicU64,
    /// As long as the session does.
    lives: Arc<()>,
}

impl Volumes {
    fn new(files: Files, line: Option<ReactorHandle>) -> Self {
        let (handles, next_handle) = (Mutex::default(), AtomicU64::new(1));
        Self { files, line, handles, next_handle, lives: Arc::default() }
    }
    /// Sends a call to an open file. If its endpoint is gone, dropping the call sends an error.
    fn call(&self, handle: FileHandle, call: Call) {
        let handles = self.handles.lock().expect("nobody panics with it");
        if let Some(handle) = handles.get(&handle.0)
            && handle.calls.as_ref().is_some_and(|calls| calls.send((call, spent())).is_ok())
        {
            wake::signal(&handle.wake);
        }
    }
    fn reply_attributes(&self, inode: INodeNo, reply: ReplyAttr) {
        let attributes = self.files.table().attributes(inode);
        match attributes {
            Some(attributes) => reply.attr(&FRESH, &attributes),
            None => reply.error(Errno::ESTALE),
        }
    }
    /// A new handle for a file, and its door's end of it.
    fn handle(&self) -> io::Result<(FileHandle, Receiver<Sent>, OwnedFd)> {
        let wake = wake::new()?;
        let watched = descriptors::admit(wake.try_clone()?)?;
        let (calls, inbox) = mpsc::channel();
        let mut handles = self.handles.lock().expect("nobody panics with it");
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        handles.insert(number, Handle { calls: Some(calls), wake });
        Ok((FileHandle(number), inbox, watched))
    }
}

impl Filesystem for Volumes {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What this kernel does not know it does without. With `O_TRUNC` as a flag of `open`, a new size is always a
        // truncation that a program asks for.
        let wanted =
            [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_ASYNC_READ, InitFlags::FUSE_ATOMIC_O_TRUNC];
        for wanted in wanted {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(TRANSFER_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let table = self.files.table();
        let file = name.to_str().filter(|_| parent == INodeNo::ROOT);
        let file = file.and_then(|name| table.files.get(name));
        match file.and_then(|file| table.attributes(INodeNo(file.inode))) {
            Some(attributes) => reply.entry(&FRESH, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }
    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attributes(inode, reply);
    }
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<WallTime>,
        _: Option<FileHandle>,
        _: Option<WallTime>,
        _: Option<WallTime>,
        _: Option<WallTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        let has = self.files.table().attributes(inode).map(|attributes| attributes.size);
        if size.is_some() && has.is_some() && size != has {
            // As on a block device.
            return reply.error(Errno::EINVAL);
        }
        // Times are those of the server. To set them is no error, since programs that copy files do it last.
        self.reply_attributes(inode, reply);
    }
    // The files are those of the contracts.
    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }
    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }
    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }
    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }
    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let found = self.files.table().find(inode).map(|(name, file)| (name.clone(), file.clone()));
        let Some((volume, file)) = found else { return reply.error(Errno::ESTALE) };
        if file.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let Some(line) = &self.line else { return reply.error(Errno::ESTALE) };
        let Ok((handle, calls, wake)) = self.handle() else {
            drop(line.send(Message::Refused(Refusal::Descriptors)));
            return reply.error(Errno::ENFILE);
        };
        // If the reactor is gone, dropping the reply is an error for whoever opens.
        drop(line.open(&volume, move |export| {
            let Some(export) = export else {
                reply.error(Errno::ESTALE);
                return None;
            };
            let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
            reply.opened(handle, flags);
            Some((Box::new(file::File::new(export, calls, wake)) as _, Some(export.id)))
        }));
    }
    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.call(handle, Call::Close);
        self.handles.lock().expect("nobody panics with it").remove(&handle.0);
        reply.ok();
    }
    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (length, process) = (size.min(TRANSFER_MAX), request.pid());
        self.call(handle, Call::Read { offset, length, process, reply });
    }
    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = &data[..data.len().min(TRANSFER_MAX as usize)];
        let mut buffer = Buffer::with_capacity(data.len());
        buffer.fill(0, data);
        let durable = flags.0 & libc::O_DSYNC != 0;
        let length = data.len() as u32;
        self.call(handle, Call::Write { offset, buffer, length, durable, reply });
    }
    /// Somebody closed a descriptor; only `fsync` makes durable.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.call(handle, Call::Sync { reply });
    }
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let hole = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            libc::FALLOC_FL_PUNCH_HOLE => true,
            libc::FALLOC_FL_ZERO_RANGE => false,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        self.call(handle, Call::Zero { offset, length, hole, reply });
    }
    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let table = self.files.table();
        let dots = [(".", INodeNo::ROOT.0, 1), ("..", INodeNo::ROOT.0, 2)].into_iter();
        // Inodes only grow and are never used again: a place in the list by inode outlives changes.
        let mut files: Vec<(&str, u64, u64)> =
            table.files.iter().map(|(name, file)| (&**name, file.inode, file.inode + 1)).collect();
        files.sort_unstable_by_key(|(_, _, place)| *place);
        for (name, inode, place) in dots.chain(files).filter(|(_, _, place)| *place > offset) {
            let kind = match inode == INodeNo::ROOT.0 {
                true => FileType::Directory,
                false => FileType::RegularFile,
            };
            if reply.add(INodeNo(inode), place, kind, name) {
                break;
            }
        }
        reply.ok();
    }
    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let table = self.files.table();
        let blocks = table.files.values().map(|file| file.size / 512).sum();
        reply.statfs(blocks, 0, 0, table.files.len() as u64, 0, 512, 255, 512);
    }
}
