//! Commands from the thread that talks to a client to the device in the reactor.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use iofair_core::time::Nanos;

use super::Memory;
use super::allowance::Allowance;
use super::config::Facts;
use super::inflight::Region;
use super::ring::Setup;
use crate::clock::spent;
use crate::wake;

/// A command. The reply to each one arrives before the next is sent.
#[derive(Debug)]
pub(crate) enum Command {
    /// A client is connected; this is its socket, to disconnect it.
    Hello(UnixStream),
    /// A client was refused or disconnected.
    Refused,
    /// A message was handled: its processor time is charged before the next one is handled.
    Spent,
    /// The volume as it is now.
    Look,
    /// The features that the driver took.
    Features(u64),
    /// The guest's memory from now on. Waits until nothing is inside.
    Memory(Memory),
    /// Where to note what is inside.
    InFlight(Region),
    /// A queue begins, or gets another kick.
    Start { index: usize, setup: Setup, kick: OwnedFd },
    /// How to call the driver.
    Call { index: usize, file: Option<OwnedFd> },
    /// How to tell the client that a queue is broken.
    Trouble { index: usize, file: Option<OwnedFd> },
    /// A queue may be looked at, or not.
    Enable { index: usize, enabled: bool },
    /// A queue ends. Waits until nothing of it is inside.
    Stop { index: usize },
    /// Where to tell the client that the configuration has changed.
    Channel(OwnedFd),
    /// The client has gone. Waits until nothing is inside.
    Gone,
    /// No client will come any more: the device ends.
    End,
}

/// The reply to a command.
#[derive(Debug)]
pub(crate) enum Reply {
    /// It is done.
    Done,
    /// The volume.
    Facts(Facts),
    /// The queue's next head.
    Position(u16),
    /// It cannot be done.
    Refused(String),
    /// Another client has the volume; this is the socket again.
    Waits(UnixStream),
}

/// A command, and the channel for its reply.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) command: Command,
    /// Processor time that the client's messages have cost since the last command.
    pub(crate) spent: Nanos,
    pub(crate) reply: Sender<Reply>,
}

/// A handle to the device in the reactor.
#[derive(Debug)]
pub(crate) struct DeviceHandle {
    /// The volume's name, for messages.
    pub(crate) volume: String,
    pub(crate) commands: Sender<Envelope>,
    /// The eventfd that the device watches.
    pub(crate) wake: OwnedFd,
    /// The limits on the memory that clients may share.
    pub(crate) allowance: Arc<Allowance>,
}

impl DeviceHandle {
    /// Sends a command and waits for the reply. `None`: the device has been removed.
    pub(super) fn ask(&self, command: Command) -> Option<Reply> {
        let (reply, replied) = mpsc::channel();
        let spent = spent();
        self.commands.send(Envelope { command, spent, reply }).ok()?;
        wake::signal(&self.wake);
        replied.recv().ok()
    }
}
