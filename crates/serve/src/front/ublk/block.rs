//! A block device of this host as an endpoint: requests from the driver become requests of the engine.
//!
//! Every tag of every queue has a ring entry, which completes when the tag has a request. The entry that commits the
//! result also fetches the next request. When the device is stopped, all entries complete for the last time, and the
//! endpoint ends.
//!
//! Bounded: the driver sends at most as many requests as there are tags. Of these, at most 64 MiB are in
//! flight (or a single longer request); the rest wait without using memory.

use std::collections::VecDeque;
use std::io;

use iofair_core::request::Operation;

use crate::front::ublk::channel::{Channel, Tag};
use crate::front::ublk::wire::{Command, Facts};
use crate::log;
use crate::reactor::endpoint::{Endpoint, Life, Progress, ReactorContext, RingEvent};
use crate::request::buffer::Pool;
use crate::request::data::Data;
use crate::request::export::Export;
use crate::request::op::{NewOp, Op};

/// `PR_SET_IO_FLUSHER` of `prctl(2)`.
const SET_IO_FLUSHER: libc::c_int = 57;

/// The slot of all entries; their part is the tag.
const TAGS: u8 = 0;

/// One device.
pub(super) struct Block {
    name: String,
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
            facts: Facts { bytes, read_only, rotational },
            channel,
            started: false,
            ready: VecDeque::new(),
            waiting: None,
            results: Vec::new(),
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
                cx.port.count_refused(cx.client);
                return self.result(tag, -error);
            }
        };
        let bytes = command.carries() as usize;
        match cx.room(u32::MAX, 0, bytes) {
            Progress::Done => {}
            stalled => return stalled,
        }
        let Command { operation, hints, offset, length } = command;
        let mut data = Data::None;
        if operation == Operation::Write {
            let mut buffer = cx.port.buffers().take(bytes);
            let taken = self.channel.take(tag, &mut buffer, bytes);
            cx.quantum.spend(bytes);
            data = Data::Owned(buffer);
            if taken.is_err() {
                cx.port.buffers().release(data);
                return self.result(tag, -libc::EIO);
            }
        }
        let request = cx.request(u64::from(tag.0), operation);
        self.submit(NewOp { hints, offset, length, data, ..request }, cx)
    }
    fn submit(&mut self, new: NewOp, cx: &mut ReactorContext<'_>) -> Progress {
        self.waiting = cx.submit(new).err();
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
    fn on_ring(&mut self, event: RingEvent, _: &mut ReactorContext<'_>) -> io::Result<()> {
        match event.result {
            0 => self.ready.push_back(Tag(event.part)),
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
    fn deliver(&mut self, op: Op, buffers: &mut Pool) {
        let tag = Tag(op.cookie as u16);
        let result = match (op.status, op.operation) {
            (0, Operation::Read) => self.give(tag, &op),
            (0, Operation::Write) => op.length as i32,
            (0, _) => 0,
            (status, _) => -status,
        };
        self.results.push((tag, result));
        buffers.release(op.data);
    }
    fn reply(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        for (tag, result) in self.results.drain(..) {
            cx.push_part(self.channel.commit(tag, result), TAGS, tag.0)?;
        }
        Ok(false)
    }
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life> {
        if !std::mem::replace(&mut self.started, true) {
            for tag in self.channel.tags() {
                cx.push_part(self.channel.fetch(tag), TAGS, tag.0)?;
            }
        }
        let waits = self.waiting.is_some() || !self.ready.is_empty() || !self.results.is_empty();
        Ok(if cx.client.is_idle() && !waits { Life::Closed } else { Life::Open })
    }
    fn close(&mut self) {
        self.closing = true;
    }
    fn holds(&self) -> usize {
        self.waiting.as_ref().map_or(0, NewOp::payload)
    }
    fn resized(&mut self, size: u64) {
        self.facts.bytes = size;
    }
}
