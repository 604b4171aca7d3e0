//! Commands from the client's thread, executed between turns.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::{Device, Queue, ReactorContext, call};
use crate::front::vhost::command::{Command, Envelope, Reply};
use crate::front::vhost::config::{Facts, feature};
use crate::front::vhost::inflight::{InFlight, Region};
use crate::front::vhost::ring::{Ring, Setup};
use crate::port::Cancel;
use crate::reactor::refusals::Refusal;

impl Device {
    /// Carries a command out, at once or as soon as it may be.
    pub(super) fn receive(
        &mut self,
        envelope: Envelope,
        cx: &mut ReactorContext<'_>,
    ) -> io::Result<()> {
        if Self::is_free(&self.queues, cx.client.in_flight, &envelope) {
            return self.carry_out(envelope, cx);
        }
        if matches!(envelope.command, Command::Gone) {
            cx.cancel_requests(Cancel::Reads);
        }
        // The client's thread waits for a reply before it sends more, so there is only one.
        self.pending = Some(envelope);
        Ok(())
    }
    /// Whether this command may be executed now.
    pub(super) fn is_free(queues: &[Queue], in_flight: u32, envelope: &Envelope) -> bool {
        match needs(&envelope.command) {
            Needs::Nothing => true,
            Needs::EmptyQueue(index) => {
                queues[index].ring.as_ref().is_none_or(|ring| ring.inside() == 0)
            }
            Needs::EmptyDevice => in_flight == 0,
        }
    }
    pub(super) fn carry_out(
        &mut self,
        envelope: Envelope,
        cx: &mut ReactorContext<'_>,
    ) -> io::Result<()> {
        // Nothing was taken in while it waited.
        self.kicked = self.running();
        (self.again, self.rewire) = (true, true);
        let Envelope { command, reply, .. } = envelope;
        let result = match command {
            Command::Spent => Reply::Done,
            Command::Refused => {
                cx.refusals.count(Refusal::Vhost);
                Reply::Done
            }
            Command::Hello(client) => self.hello(client, cx),
            Command::Look => Reply::Facts(self.facts),
            Command::Features(features) => {
                self.features = features;
                Reply::Done
            }
            Command::Memory(memory) => {
                self.memory = Arc::new(memory);
                Reply::Done
            }
            Command::InFlight(region) => self.note_in_flight(region),
            Command::Start { index, setup, kick } => self.start(index, &setup, kick),
            Command::Call { index, file } => self.set_call(index, file, cx),
            Command::Trouble { index, file } => {
                self.queues[index].trouble = file;
                Reply::Done
            }
            Command::Enable { index, enabled } => {
                self.queues[index].enabled = enabled;
                Reply::Done
            }
            Command::Stop { index } => {
                let queue = &mut self.queues[index];
                queue.kick.set(None);
                let ring = queue.ring.take();
                ring.map_or(Reply::Done, |ring| Reply::Position(ring.position()))
            }
            Command::Channel(channel) => {
                self.channel = Some(channel);
                Reply::Done
            }
            Command::Gone => {
                self.forget(cx);
                Reply::Done
            }
            Command::End => {
                self.over = true;
                Reply::Done
            }
        };
        // The thread that asked may have ended; then the reply is not needed.
        let _ = reply.send(result);
        Ok(())
    }

    fn hello(&mut self, client: UnixStream, cx: &mut ReactorContext<'_>) -> Reply {
        let found = cx.port.exports.find(&self.name);
        let Some(export) = found.filter(|_| !self.closing) else {
            return Reply::Refused("there is no such volume any more".into());
        };
        let facts = Facts { bytes: export.size, read_only: export.read_only };
        let volume = export.id as usize;
        if !cx.port.attach_machine(cx.client, volume) {
            return Reply::Waits(client);
        }
        (self.facts, self.client) = (facts, Some(client));
        Reply::Done
    }
    /// How to call the driver about a queue from now on.
    fn set_call(
        &mut self,
        index: usize,
        file: Option<OwnedFd>,
        cx: &mut ReactorContext<'_>,
    ) -> Reply {
        if let Err(error) = cx.bells.prepare() {
            return Reply::Refused(format!(
                "cannot create a Linux AIO context for virtual machine disks (fs.aio-max-nr): {error}"
            ));
        }
        self.queues[index].call = file;
        // Requests that were completed before the driver set an eventfd.
        call(cx, self.queues[index].call.as_ref());
        Reply::Done
    }
    /// Where queues that begin from now on note what is inside. While one runs, nothing takes the place of its region:
    /// the old one would be unmapped when the queue ends, by this thread.
    fn note_in_flight(&mut self, region: Region) -> Reply {
        if self.running() != 0 {
            return Reply::Refused("a region for what is in flight while queues run".into());
        }
        self.region = Some(region);
        Reply::Done
    }
    /// A queue begins; if it runs already, it only gets another kick.
    fn start(&mut self, index: usize, setup: &Setup, kick: OwnedFd) -> Reply {
        let queue = &mut self.queues[index];
        if queue.ring.is_none() {
            let part = |region| InFlight::new(region, index as u16, setup.size);
            let tracker = self.region.as_ref().map(part).transpose();
            match tracker.and_then(|tracker| Ring::new(setup, &self.memory, tracker)) {
                Ok(ring) => (queue.ring, queue.dead) = (Some(ring), false),
                Err(vring_error) => return Reply::Refused(format!("queue {index}: {vring_error}")),
            }
            // Without protocol features a client cannot enable queues.
            queue.enabled |= self.features & feature::PROTOCOL == 0;
        }
        queue.kick.set(Some(kick));
        Reply::Done
    }
    /// The client has gone, and nothing is inside.
    fn forget(&mut self, cx: &mut ReactorContext<'_>) {
        for queue in &mut self.queues {
            (queue.ring, queue.enabled, queue.dead) = (None, false, false);
            queue.kick.set(None);
            (queue.call, queue.trouble) = (None, None);
        }
        (self.memory, self.region, self.channel) = (Arc::default(), None, None);
        (self.features, self.kicked, self.completed, self.broken) = (0, 0, 0, 0);
        (self.client, self.lost) = (None, false);
        self.mute.forget();
        cx.port.detach(cx.client);
    }
}

/// What must be empty before a command is carried out.
enum Needs {
    Nothing,
    EmptyQueue(usize),
    EmptyDevice,
}

fn needs(command: &Command) -> Needs {
    match command {
        Command::Memory(_) | Command::Gone | Command::End => Needs::EmptyDevice,
        Command::Stop { index } => Needs::EmptyQueue(*index),
        _ => Needs::Nothing,
    }
}
