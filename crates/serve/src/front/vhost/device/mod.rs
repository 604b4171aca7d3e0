//! A virtual machine disk as an endpoint: queues in guest memory become requests of the engine, and completions are
//! written back.
//!
//! At a kick, the queue is emptied at once, and all completions of a turn are signalled with one call, if the driver
//! wants one. Payloads are never copied here; they move between guest memory and the back end. The device lives as
//! long as its volume has a socket. Clients connect one at a time; a separate thread (`front/vhost/control.rs`) talks
//! to them, and its [`Command`]s are executed between turns. A command that unmaps memory or stops a queue waits
//! until nothing there is in flight, and meanwhile no new requests are taken. A client that kicks without requests is
//! ignored for a while ([`Mute`]).
//!
//! Bounded: a device has at most [`INSIDE_MAX`] requests and 64 MiB in flight (or a single longer
//! request), a queue has at most one request per descriptor, and a visit takes at most a quantum, from its queues in
//! turn.

mod commands;
mod eventfd;

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use iofair_core::request::Operation;

use crate::front::vhost::Memory;
use crate::front::vhost::chain::{self, Action, Command, ID_BYTES, VringError, status};
use crate::front::vhost::command::Envelope;
use crate::front::vhost::config::{Facts, QUEUES_MAX, feature};
use crate::front::vhost::control::{tell, tell_of_change};
use crate::front::vhost::inflight::Region;
use crate::front::vhost::ring::{Ring, Slot, Taken, write_status};
use crate::guard;
use crate::reactor::endpoint::{Endpoint, Life, Progress, ReactorContext, RingEvent};
use crate::request::buffer::Pool;
use crate::request::data::{Data, Scattered};
use crate::request::entry::Entry;
use crate::request::op::{Hints, NewOp, Op};
use crate::request::shared::Span;
use crate::wake;
use eventfd::{AGAIN, CANCEL, COMMANDS, KICK, Kick, MUTE_TIME, MUTED, Mute};
use vm_memory::{GuestAddress, GuestMemoryBackend};

/// Requests that one device may have in flight.
const INSIDE_MAX: u32 = 1024;

/// Capacity up to which the place list of a request is reused; drivers are told to use at most half of it.
const SPARE_MAX: usize = 256;

/// Cost of a descriptor, or of a piece of memory in it, in a quantum, so that few long chains are read in one visit.
const STEP_BYTES: usize = 64;

const _: () = assert!(3 * QUEUES_MAX <= COMMANDS as usize && QUEUES_MAX <= u64::BITS as usize);

/// One virtqueue and the eventfd that notifies its driver.
#[derive(Default)]
struct Queue {
    ring: Option<Ring>,
    enabled: bool,
    /// It is broken until the client sets it up again.
    dead: bool,
    kick: Kick,
    call: Option<OwnedFd>,
    trouble: Option<OwnedFd>,
}

/// A request that was just read from a queue.
struct Found {
    index: usize,
    taken: Taken,
    command: Command,
    status: GuestAddress,
    data: Scattered,
}

/// One disk.
pub(super) struct Device {
    /// The volume.
    name: String,
    facts: Facts,
    features: u64,
    memory: Arc<Memory>,
    region: Option<Region>,
    queues: Vec<Queue>,
    mute: Mute,
    /// Queues to read, and queues with completions to signal, a bit each.
    kicked: u64,
    completed: u64,
    /// The queue that the next visit begins with, so that queues take turns.
    first: usize,
    /// Queues that just broke.
    broken: u64,
    commands: Receiver<Envelope>,
    /// The eventfd that is written after every command.
    wake: OwnedFd,
    watching: bool,
    /// Whether there are commands to receive.
    is_asked: bool,
    /// A command that waits until no request is in flight.
    pending: Option<Envelope>,
    channel: Option<OwnedFd>,
    /// The client's socket, for disconnecting it.
    client: Option<UnixStream>,
    /// The client truncated its memory. It is being disconnected, and its queues are no longer read.
    lost: bool,
    /// The value of [`guard::losses`] at the last check of the memory.
    losses: u64,
    /// Whether to read the queues again in the next turn.
    again: bool,
    /// Whether the set of watched eventfds changed.
    rewire: bool,
    /// Place lists for reuse.
    spare: Vec<Vec<Span>>,
    closing: bool,
    over: bool,
}

/// Writes to an eventfd, if the client gave one. A failure only affects the client that gave it, and is ignored.
fn call(cx: &mut ReactorContext<'_>, eventfd: Option<&OwnedFd>) {
    if let Some(eventfd) = eventfd {
        let _ = cx.bells.ring(eventfd);
    }
}

fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (index < 64).then_some(index)
    })
}

impl Device {
    /// The disk of this volume.
    pub(super) fn new(name: String, commands: Receiver<Envelope>, wake: OwnedFd) -> Self {
        let mut queues = Vec::new();
        queues.resize_with(QUEUES_MAX, Queue::default);
        Self {
            name,
            facts: Facts::default(),
            features: 0,
            memory: Arc::default(),
            region: None,
            queues,
            mute: Mute::default(),
            kicked: 0,
            completed: 0,
            first: 0,
            broken: 0,
            commands,
            wake,
            watching: false,
            is_asked: false,
            pending: None,
            channel: None,
            client: None,
            lost: false,
            losses: 0,
            again: false,
            rewire: true,
            spare: Vec::new(),
            closing: false,
            over: false,
        }
    }

    /// Turns the available descriptors of a queue into requests. `Done` if none are left; a kick announces more.
    fn empty(&mut self, index: usize, cx: &mut ReactorContext<'_>) -> Result<Progress, VringError> {
        for count in 0.. {
            let Queue { ring: Some(ring), enabled: true, dead: false, .. } =
                &mut self.queues[index]
            else {
                return Ok(Progress::Done);
            };
            if count == 0 {
                ring.disable_notifications(&self.memory)?;
            }
            if !cx.quantum.spend(0) {
                break;
            }
            let Some(taken) = ring.take(&self.memory)? else {
                if ring.enable_notifications(&self.memory)? {
                    continue;
                }
                return Ok(Progress::Done);
            };
            self.mute.found();
            let spans = self.spare.pop().unwrap_or_default();
            let (table, head) = (ring.table(), taken.head);
            let chain::Request { action, status, data, work } =
                chain::parse(&self.memory, table, head, self.facts, spans)?;
            cx.quantum.charge(work as usize * STEP_BYTES);
            if self.notice_loss() {
                // Some of the data read may be zeroes in place of memory that was truncated.
                return Ok(Progress::Done);
            }
            let (value, written) = match action {
                Action::Engine(command) => {
                    match self.enter(Found { index, taken, command, status, data }, cx) {
                        Progress::Done => continue,
                        stalled => return Ok(stalled),
                    }
                }
                Action::Name => (status::OK, self.write_name(&data)),
                Action::Refuse(value) => {
                    cx.port.count_refused(cx.client);
                    (value, 0)
                }
            };
            self.keep(data.into_parts().0);
            write_status(&self.memory, status, value);
            self.show(index, head, written + 1)?;
        }
        Ok(Progress::More)
    }
    /// Submits a request to the engine. Any result but `Done` means that there is no room, and that the request stays in its
    /// queue.
    fn enter(&mut self, found: Found, cx: &mut ReactorContext<'_>) -> Progress {
        let Found { index, taken, command, status, data: places } = found;
        let Command { operation, offset, length, hole } = command;
        let carries = command.carries();
        let bytes = if carries { length as usize } else { 0 };
        let mut refused = None;
        let room = cx.room(INSIDE_MAX, 0, bytes);
        if room != Progress::Done {
            refused = Some((places, room));
        } else {
            // A driver that cannot flush expects every write to be durable.
            let modifies = matches!(operation, Operation::Write | Operation::WriteZeroes);
            let fua = modifies && self.features & feature::FLUSH == 0;
            let hints = Hints { hole, fua, ..Hints::default() };
            let data = if carries { Data::Scattered(places) } else { Data::None };
            let cookie = (index as u64) << 16 | u64::from(taken.head);
            let new = NewOp { hints, offset, length, data, ..cx.request(cookie, operation) };
            if let Err(new) = cx.submit(new) {
                let places = match new.data {
                    Data::Scattered(places) => places,
                    _ => Scattered::default(),
                };
                refused = Some((places, Progress::NoRoom));
            }
        }
        let ring = self.queues[index].ring.as_mut().expect("the request came from it");
        if let Some((places, progress)) = refused {
            ring.put_back(taken);
            self.keep(places.into_parts().0);
            return progress;
        }
        let written = if operation == Operation::Read { length } else { 0 };
        ring.begin(taken, Slot { status, written });
        Progress::Done
    }
    /// The volume's name for the driver; returns its bytes.
    fn write_name(&self, into: &Scattered) -> u32 {
        let mut name = [0; ID_BYTES];
        let known = self.name.len().min(ID_BYTES);
        name[..known].copy_from_slice(&self.name.as_bytes()[..known]);
        let room = into.len().min(ID_BYTES);
        into.fill(&name[..room]);
        room as u32
    }
    /// Keeps a place list for reuse.
    fn keep(&mut self, spans: Vec<Span>) {
        // Long lists are not kept: otherwise a driver could make each of them long.
        if spans.capacity() <= SPARE_MAX {
            self.spare.push(spans);
        }
    }
    /// Writes a completion to the used ring; the driver is notified at the end of the turn.
    fn show(&mut self, index: usize, head: u16, written: u32) -> Result<(), VringError> {
        self.completed |= 1 << index;
        let ring = self.queues[index].ring.as_mut().expect("queues with something inside stay");
        ring.complete(&self.memory, head, written)
    }
    /// Marks a queue as broken: it is not read until the client sets it up again.
    fn stop(&mut self, index: usize, vring_error: VringError) {
        if self.notice_loss() {
            return;
        }
        tell(&self.name, &format!("queue {index} stops: {vring_error}"));
        self.queues[index].dead = true;
        self.broken |= 1 << index;
    }
    /// Checks whether the client truncated its memory. If so, it is disconnected.
    fn notice_loss(&mut self) -> bool {
        let losses = guard::losses();
        if self.lost || self.losses == losses {
            return self.lost;
        }
        self.losses = losses;
        let region = self.region.as_ref().is_some_and(|region| region.map.is_lost());
        let mut rings = self.queues.iter().filter_map(|queue| queue.ring.as_ref());
        self.lost =
            region || rings.any(Ring::is_lost) || self.memory.iter().any(|piece| piece.is_lost());
        if self.lost {
            tell(&self.name, "the client was disconnected: memory that it shared was truncated");
            let client = self.client.as_ref();
            // A failure means that it has already disconnected.
            let _ = client.map(|client| client.shutdown(Shutdown::Both));
        }
        self.lost
    }
    /// Whether no queue can have requests in flight.
    fn running(&self) -> u64 {
        let queues = self.queues.iter().enumerate();
        queues.filter(|(_, queue)| queue.ring.is_some()).map(|(index, _)| 1 << index).sum()
    }
    /// Starts and stops watching eventfds as needed.
    fn settle_entries(&mut self, ending: bool, cx: &mut ReactorContext<'_>) -> io::Result<()> {
        if !ending && self.mute.begins() {
            cx.push(Entry::timeout(&MUTE_TIME), MUTED)?;
        }
        if self.watching == ending {
            self.watching = !ending;
            match ending {
                true => cx.cancel(COMMANDS, CANCEL)?,
                false => cx.push(Entry::watch(self.wake.as_raw_fd()), COMMANDS)?,
            }
        }
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if ending {
                queue.kick.set(None);
            }
            queue.kick.settle(KICK + index as u8, self.mute.is_muted(), cx)?;
        }
        Ok(())
    }
    /// Notifies drivers of completions.
    fn call(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<()> {
        for index in bits(std::mem::take(&mut self.completed)) {
            let queue = &mut self.queues[index];
            let Some(ring) = &mut queue.ring else { continue };
            match ring.wants_call(&self.memory) {
                Ok(false) => {}
                Ok(true) => call(cx, queue.call.as_ref()),
                Err(vring_error) => self.stop(index, vring_error),
            }
        }
        for index in bits(std::mem::take(&mut self.broken)) {
            call(cx, self.queues[index].trouble.as_ref());
        }
        Ok(())
    }
}

impl Endpoint for Device {
    fn on_ring(&mut self, event: RingEvent, _: &mut ReactorContext<'_>) -> io::Result<()> {
        let slot = event.slot;
        let index = usize::from(slot) % QUEUES_MAX;
        match slot {
            COMMANDS => {
                self.watching &= event.more;
                self.rewire = true;
                wake::take(&self.wake);
                self.is_asked = true;
            }
            MUTED => {
                self.mute.end();
                self.kicked = self.running();
                self.rewire = true;
            }
            AGAIN | CANCEL => {}
            _ => {
                self.kicked |= 1 << index;
                self.mute.kicked();
                if !event.more {
                    self.queues[index].kick.on_end();
                    self.rewire = true;
                }
            }
        }
        Ok(())
    }
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> Progress {
        if self.pending.is_some() || self.closing || self.lost {
            return Progress::Done;
        }
        let (kicked, later) = (self.kicked, u64::MAX << self.first);
        for index in bits(kicked & later).chain(bits(kicked & !later)) {
            match self.empty(index, cx) {
                Ok(Progress::Done) => {}
                Ok(progress) => {
                    self.first = (index + 1) % QUEUES_MAX;
                    return progress;
                }
                Err(vring_error) => {
                    cx.port.count_refused(cx.client);
                    self.stop(index, vring_error);
                }
            }
            self.kicked &= !(1 << index);
        }
        Progress::Done
    }
    fn deliver(&mut self, mut op: Op, buffers: &mut Pool) {
        let (index, head) = ((op.cookie >> 16) as usize, op.cookie as u16);
        if let Data::Scattered(scattered) = std::mem::take(&mut op.data) {
            if op.operation == Operation::Read && op.status == 0 {
                scattered.spread();
            }
            let (spans, bounce) = scattered.into_parts();
            if let Some(buffer) = bounce {
                buffers.give(buffer);
            }
            self.keep(spans);
        }
        let ring = self.queues[index].ring.as_mut().expect("queues with something inside stay");
        let slot = ring.end(head);
        if op.cancelled && op.status == libc::ECANCELED {
            // Not completed: a client that connects again finds it in the region of requests in flight.
            return;
        }
        // A write may have read zeroes in place of its data; the data of a read may be lost.
        let lost = self.notice_loss();
        let (value, written) = match op.status {
            _ if lost => (status::IO_ERROR, 1),
            0 => (status::OK, slot.written + 1),
            libc::EOPNOTSUPP => (status::UNSUPPORTED, 1),
            _ => (status::IO_ERROR, 1),
        };
        write_status(&self.memory, slot.status, value);
        if let Err(vring_error) = self.show(index, head, written) {
            self.stop(index, vring_error);
        }
    }
    /// Signals completions and executes commands of the client's thread, both in fair order with other endpoints.
    fn reply(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        if std::mem::take(&mut self.is_asked) {
            while let Ok(envelope) = self.commands.try_recv() {
                cx.spent += envelope.spent;
                self.receive(envelope, cx)?;
            }
        }
        self.call(cx)?;
        let carried = match self
            .pending
            .take_if(|envelope| Self::is_free(&self.queues, cx.client.in_flight, envelope))
        {
            Some(envelope) => self.carry_out(envelope, cx),
            None => Ok(()),
        };
        self.notice_loss();
        carried.map(|()| false)
    }
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life> {
        let ending = self.over || (self.closing && cx.client.in_flight == 0);
        self.rewire |= self.mute.is_due();
        if ending || std::mem::take(&mut self.rewire) {
            self.settle_entries(ending, cx)?;
        }
        if let Some(client) = self.client.take_if(|_| ending) {
            // A failure means that it has already disconnected.
            let _ = client.shutdown(Shutdown::Both);
        }
        if std::mem::take(&mut self.again) && !ending {
            cx.push(Entry::nop(), AGAIN)?;
        }
        Ok(if ending { Life::Closed } else { Life::Open })
    }
    fn close(&mut self) {
        self.closing = true;
    }
    fn resized(&mut self, size: u64) {
        self.facts.bytes = size;
        if let Some(channel) = &self.channel {
            tell_of_change(channel);
        }
    }
}
