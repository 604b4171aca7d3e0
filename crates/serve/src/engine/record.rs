//! Recording of the requests of clients, for `iofair record`.
//!
//! A recorder notes each request when it comes in, and writes it when it and all before it are complete, so a trace is in
//! the order of submissions. Its memory is bounded: a fixed number of requests in flight, and a few megabytes of blocks that
//! wait to be taken. While those are full, requests are counted as dropped instead. A recorder that nobody takes anything
//! from ends by itself, so a caller that has died costs nothing.
//!
//! Without a recorder, a request costs one branch when it comes in and one when it is complete.

use iofair_core::group::Groups;
use iofair_core::id::GroupId;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_trace::record::{Metadata, Record, Stream};
use iofair_trace::window::Window;
use iofair_trace::write::Encoder;

use crate::back::volume::VolumeId;
use crate::request::op::Op;

/// Requests that wait for the completion of older ones. A request that takes longer than this many others is written without
/// its completion.
const WINDOW: usize = 1 << 15;
/// Bytes of blocks that wait to be taken: a quarter of a second at half a million requests a second.
pub(super) const READY_MAX: usize = 4 << 20;
/// Bytes that are taken at a time. They are copied on the reactor's thread.
pub(super) const TAKE_MAX: usize = 256 << 10;
/// A recorder ends if nothing was taken for so long.
const IDLE: Nanos = Nanos::from_secs(60);
/// A ticket in an [`Op`] has the number of its recording above these bits, or else the ticket of an earlier recording
/// would complete a request of this one.
const TICKET_BITS: u32 = 48;

/// Why a recording cannot begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRecording {
    /// There is one.
    Busy,
    /// The contracts are too long.
    Long,
}

/// What a recording has, from a place on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Bytes of the trace.
    pub bytes: Vec<u8>,
    /// Requests that were dropped so far.
    pub dropped: u64,
}

/// A stream of the trace: a volume in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    volume: VolumeId,
    group: GroupId,
    stream: u32,
}

/// A recording.
#[derive(Debug)]
pub(crate) struct Recorder {
    number: u64,
    window: Window,
    encoder: Encoder,
    /// By the key of the volume.
    streams: Vec<Option<Known>>,
    /// Bytes of the trace that were taken and are gone.
    taken: u64,
    pub(super) last_taken: Instant,
    /// Bytes of blocks that may wait to be taken.
    limit: usize,
}

/// Who sent a request.
pub(super) struct Sender<'a> {
    pub(super) id: VolumeId,
    pub(super) name: &'a str,
    pub(super) groups: &'a Groups,
    /// First byte on the drive.
    pub(super) drive: u64,
}

impl Recorder {
    pub(super) fn new(
        number: u64,
        now: Instant,
        metadata: &Metadata,
        limit: usize,
    ) -> Result<Self, NoRecording> {
        Ok(Self {
            number,
            window: Window::new(WINDOW),
            encoder: Encoder::new(metadata).map_err(|_| NoRecording::Long)?,
            streams: Vec::new(),
            taken: 0,
            last_taken: now,
            limit,
        })
    }
    /// A request came in. Returns its ticket for [`Op::recorded`].
    pub(super) fn submitted(&mut self, op: &Op, sender: &Sender<'_>) -> u64 {
        let at = op.submitted;
        if self.encoder.ready.len() >= self.limit || op.asks_status() {
            self.encoder.drop_requests(u64::from(!op.asks_status()));
            return 0;
        }
        let Some(stream) = self.stream(op, sender) else {
            self.encoder.drop_requests(1);
            return 0;
        };
        let is_flush = op.operation == Operation::Flush;
        let (offset, length) = if is_flush { (0, 0) } else { (sender.drive, u64::from(op.length)) };
        let (operation, flags, completion) = (op.operation, op.flags, None);
        let record = Record { at, stream, operation, flags, offset, length, completion };
        let ticket = self.window.push(record);
        self.write();
        self.number << TICKET_BITS | (ticket + 1)
    }
    /// A request with a ticket is complete.
    pub(super) fn finished(&mut self, now: Instant, op: &Op) {
        let (number, ticket) = (op.recorded >> TICKET_BITS, op.recorded & ((1 << TICKET_BITS) - 1));
        if number == self.number {
            self.window.complete(ticket - 1, now, op.status != 0);
            self.write();
        }
    }
    fn write(&mut self) {
        while let Some(record) = self.window.pop() {
            self.encoder.push(&record);
        }
    }
    fn stream(&mut self, op: &Op, sender: &Sender<'_>) -> Option<u32> {
        if op.volume >= self.streams.len() {
            self.streams.resize(op.volume + 1, None);
        }
        let known = &mut self.streams[op.volume];
        if let Some(known) = known
            && (known.volume, known.group) == (sender.id, op.group)
        {
            return Some(known.stream);
        }
        let group = sender.groups.group(op.group).name.clone();
        let stream = Stream { name: sender.name.to_owned(), group, volume: 0 };
        let stream = self.encoder.add_stream(&stream)?;
        *known = Some(Known { volume: sender.id, group: op.group, stream });
        Some(stream)
    }
    /// The blocks from a place on; those before it are gone. `None` if they are gone already.
    pub(super) fn take(&mut self, from: u64, most: usize) -> Option<Taken> {
        let gone = usize::try_from(from.checked_sub(self.taken)?).ok()?;
        if gone > self.encoder.ready.len() {
            return None;
        }
        self.encoder.ready.drain(..gone);
        self.taken = from;
        if self.encoder.ready.is_empty() {
            self.encoder.end_block();
        }
        let ready = &self.encoder.ready;
        let (_, dropped) = self.encoder.counts();
        Some(Taken { bytes: ready[..ready.len().min(most)].to_vec(), dropped })
    }
    /// Ends the trace, with requests in flight, and returns the rest of it.
    pub(super) fn end(mut self, from: u64) -> Option<Taken> {
        while let Some(record) = self.window.pop_anyway() {
            self.encoder.push(&record);
        }
        self.encoder.end();
        self.take(from, usize::MAX)
    }
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        now.since(self.last_taken) > IDLE
    }
}

#[cfg(test)]
mod tests {
    use iofair_trace::Source;
    use iofair_trace::read::{DROPPED, Reader};

    use super::*;
    use crate::request::data::Data;
    use crate::request::op::{Hints, NewOp};

    fn op(at: u64, offset: u64) -> Op {
        let (operation, hints, data) = (Operation::Read, Hints::default(), Data::None);
        let (owner, cookie, volume, length) = (0, 0, 3, 4096);
        let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
        Op::new(Instant(at), new, GroupId::ROOT, iofair_core::request::Flags::NONE)
    }

    fn recorder(number: u64, limit: usize) -> Recorder {
        Recorder::new(number, Instant::ZERO, &Metadata::default(), limit).unwrap()
    }

    /// Submits and completes a request.
    fn pass(recorder: &mut Recorder, groups: &Groups, at: u64) {
        let sender = Sender { id: VolumeId(7), name: "v", groups, drive: at * 4096 };
        let mut op = op(at * 1000, 0);
        op.recorded = recorder.submitted(&op, &sender);
        if op.recorded != 0 {
            recorder.finished(Instant(at * 1000 + 500), &op);
        }
    }

    /// Requests and dropped ones of a trace.
    fn counts(bytes: &[u8]) -> (u64, u64) {
        let mut reader = Reader::new(bytes, "a recording").unwrap();
        let mut requests = 0;
        while reader.next_record().unwrap().is_some() {
            requests += 1;
        }
        assert!(!reader.is_torn());
        (requests, reader.notes().count_of(DROPPED))
    }

    /// Goal: a recording that nobody takes is bounded: what does not fit is counted, and the rest is whole; after it was
    /// taken it goes on. Method: more requests than have room.
    #[test]
    fn a_full_recording_counts_what_it_drops() {
        let groups = Groups::new();
        let mut recorder = recorder(1, 100_000);
        for at in 0..50_000 {
            pass(&mut recorder, &groups, at);
        }
        assert!(recorder.encoder.ready.len() < 100_000 + (64 << 10));
        let mut trace = Vec::new();
        loop {
            let Taken { bytes, dropped } = recorder.take(trace.len() as u64, 10_000).unwrap();
            assert!(dropped > 10_000);
            if bytes.is_empty() {
                break;
            }
            trace.extend(bytes);
        }
        pass(&mut recorder, &groups, 50_000);
        assert!(recorder.take(3, 10).is_none(), "what was taken is gone");
        trace.extend(recorder.end(trace.len() as u64).unwrap().bytes);
        let (requests, dropped) = counts(&trace);
        assert_eq!(requests + dropped, 50_001);
        assert!(requests > 5_000 && dropped > 10_000, "{requests} and {dropped}");
    }

    /// Goal: a request of an earlier recording completes nothing in this one. Method: the same ticket of two recordings.
    #[test]
    fn tickets_of_other_recordings_do_nothing() {
        let groups = Groups::new();
        let (mut first, mut second) = (recorder(1, 1 << 20), recorder(2, 1 << 20));
        let sender = Sender { id: VolumeId(7), name: "v", groups: &groups, drive: 0 };
        let mut old = op(5, 0);
        old.recorded = first.submitted(&old, &sender);
        second.submitted(&op(6, 0), &sender);
        second.finished(Instant(9), &old);
        assert_eq!(second.window.len(), 1);
        first.finished(Instant(9), &old);
        assert!(first.window.is_empty());
    }

    /// Goal: a recording ends if its caller is gone. Method: its time.
    #[test]
    fn a_forgotten_recording_ends() {
        let recorder = recorder(1, 1 << 20);
        assert!(!recorder.is_forgotten(Instant::ZERO + IDLE));
        assert!(recorder.is_forgotten(Instant::ZERO + IDLE + Nanos(1)));
    }
}
