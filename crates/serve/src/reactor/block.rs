//! A block device of this host as an endpoint: requests from the driver become requests of the engine.
//!
//! Every tag of every queue has a ring entry, which completes when the tag has a request. The entry that commits the
//! result also fetches the next request. When the device is stopped, all entries complete for the last time, and the
//! endpoint ends.
//!
//! Bounded: the driver sends at most as many requests as there are tags. Of these, at most [`HELD_MAX`] bytes are in
//! flight (or a single longer request); the rest wait without using memory.

use std::collections::VecDeque;
use std::io;

use iofair_core::request::Operation;

use super::budget::Share;
use super::endpoint::{Endpoint, Life, Progress, ReactorContext};
use super::ring::{Event, Target};
use crate::front::ublk::channel::{Channel, Tag};
use crate::front::ublk::wire::{Command, Facts};
use crate::log;
use crate::request::data::Data;
use crate::request::export::Export;
use crate::request::op::{NewOp, Op, Ops};

/// Bytes of payload that one device may have inside.
const HELD_MAX: usize = 64 << 20;

/// `PR_SET_IO_FLUSHER` of `prctl(2)`.
const SET_IO_FLUSHER: libc::c_int = 57;

/// The slot of all entries; their part is the tag.
const TAGS: u8 = 0;

/// One device.
pub(super) struct Block {
    name: String,
    volume: usize,
    facts: Facts,
    channel: Channel,
    /// The ring waits for requests.
    started: bool,
    /// Tags with a request that was not looked at.
    ready: VecDeque<Tag>,
    /// A request that the engine had no room for.
    waiting: Option<NewOp>,
    /// Results to commit.
    results: Vec<(Tag, i32)>,
    inside: u32,
    held: usize,
    /// What the budget knows.
    share: Share,
    /// Entries on the ring.
    flying: u32,
    /// Nothing is carried out any more.
    closing: bool,
    /// Whether a refusal by the driver was logged.
    told: bool,
}

impl Block {
    /// The device of this volume.
    pub(super) fn new(export: &Export, channel: Channel) -> Self {
        let Export { size: bytes, read_only, rotational, .. } = *export;
        // The block layer must not wait for this thread when it needs memory for this thread.
        // SAFETY: sets one property of the calling thread; without the right to it, it stays as it is.
        unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
        Self {
            name: export.name.clone(),
            volume: export.id as usize,
            facts: Facts { bytes, read_only, rotational },
            channel,
            started: false,
            ready: VecDeque::new(),
            waiting: None,
            results: Vec::new(),
            inside: 0,
            held: 0,
            share: Share::default(),
            flying: 0,
            closing: false,
            told: false,
        }
    }
    /// Begins a tag's request; `Done` if there is room for it.
    fn begin(&mut self, tag: Tag, cx: &mut ReactorContext<'_>) -> Progress {
        let asked = self.channel.descriptor(tag).command(self.facts);
        let command = match asked {
            Ok(command) if !self.closing => command,
            Ok(_) => return self.result(tag, -libc::EIO),
            Err(error) => {
                cx.engine.refused(self.volume);
                return self.result(tag, -error);
            }
        };
        let bytes = command.carries() as usize;
        if self.held > 0 && self.held + bytes > HELD_MAX {
            return Progress::OwnLimit;
        }
        let volume = Some(self.volume);
        if bytes > 0 && !cx.has_memory(volume, &mut self.share, self.held, bytes) {
            return Progress::NoRoom;
        }
        let Command { operation, hints, offset, length } = command;
        let mut data = Data::None;
        if operation == Operation::Write {
            let mut buffer = cx.engine.ops().pool.take(bytes);
            let taken = self.channel.take(tag, &mut buffer, bytes);
            cx.quantum.spend(bytes);
            data = Data::Owned(buffer);
            if taken.is_err() {
                cx.engine.ops().release(data);
                return self.result(tag, -libc::EIO);
            }
        }
        let (owner, cookie, volume) = (cx.key as u64, u64::from(tag.0), self.volume);
        self.inside += 1;
        self.held += bytes;
        let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
        self.submit(new, cx)
    }
    fn submit(&mut self, new: NewOp, cx: &mut ReactorContext<'_>) -> Progress {
        self.waiting = cx.engine.submit(cx.now, new).err();
        if self.waiting.is_none() { Progress::Done } else { Progress::NoRoom }
    }
    fn result(&mut self, tag: Tag, result: i32) -> Progress {
        self.results.push((tag, result));
        Progress::Done
    }
    /// Copies what was read where the driver wants it, and says what it is told.
    fn give(&self, tag: Tag, op: &Op) -> i32 {
        let place = op.data.place(op.length as usize).expect("a read that went well has data");
        match self.channel.give(tag, &place) {
            // At most the longest request.
            Ok(()) => op.length as i32,
            Err(_) => -libc::EIO,
        }
    }
}

impl Endpoint for Block {
    fn on_ring(&mut self, _: u8, event: Event, _: &mut ReactorContext<'_>) -> io::Result<()> {
        let Target::Endpoint { part, .. } = event.target else {
            unreachable!("an entry of an endpoint")
        };
        self.flying -= 1;
        match event.result {
            0 => self.ready.push_back(Tag(part)),
            // The device is stopped.
            error if error == -libc::ENODEV || error == -libc::ECANCELED => {}
            error => {
                if !std::mem::replace(&mut self.told, true) {
                    let error = io::Error::from_raw_os_error(-error);
                    let source = format!("volume \"{}\"", self.name);
                    log::tell(
                        &source,
                        &format!("its block device does not accept completions: {error}"),
                    );
                }
            }
        }
        Ok(())
    }
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> Progress {
        if let Some(new) = self.waiting.take()
            && self.submit(new, cx) == Progress::NoRoom
        {
            return Progress::NoRoom;
        }
        while let Some(tag) = self.ready.pop_front() {
            let progress = match cx.quantum.spend(0) {
                true => self.begin(tag, cx),
                false => Progress::More,
            };
            if progress != Progress::Done {
                if self.waiting.is_none() {
                    self.ready.push_front(tag);
                }
                return progress;
            }
        }
        Progress::Done
    }
    fn deliver(&mut self, op: Op, ops: &mut Ops) {
        let tag = Tag(op.cookie as u16);
        self.inside -= 1;
        let carries = matches!(op.operation, Operation::Read | Operation::Write);
        if carries {
            self.held -= op.length as usize;
        }
        let result = match (op.status, op.operation) {
            (0, Operation::Read) => self.give(tag, &op),
            (0, Operation::Write) => op.length as i32,
            (0, _) => 0,
            (status, _) => -status,
        };
        self.results.push((tag, result));
        ops.release(op.data);
    }
    fn reply(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        for (tag, result) in self.results.drain(..) {
            self.flying += 1;
            cx.push_part(self.channel.commit(tag, result), TAGS, tag.0)?;
        }
        Ok(false)
    }
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life> {
        if !std::mem::replace(&mut self.started, true) {
            for tag in self.channel.tags() {
                self.flying += 1;
                cx.push_part(self.channel.fetch(tag), TAGS, tag.0)?;
            }
        }
        cx.charge(Some(self.volume), &mut self.share, self.held);
        let idle = self.inside == 0 && self.ready.is_empty() && self.results.is_empty();
        Ok(if self.flying == 0 && idle { Life::Closed } else { Life::Open })
    }
    fn close(&mut self) {
        self.closing = true;
    }
    fn volume(&self) -> Option<usize> {
        Some(self.volume)
    }
    fn resized(&mut self, size: u64) {
        self.facts.bytes = size;
    }
}
