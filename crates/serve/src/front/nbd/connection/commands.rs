//! Turns received bytes into requests of the engine, as far as there is room.

use iofair_core::request::Operation;

use super::super::input::INLINE_MAX;
use super::{Connection, Payload};
use crate::front::nbd::session::{self, Action, Command, CommandType};
use crate::reactor::endpoint::{Endpoint, HELD_MAX, Progress, ReactorContext};
use crate::reactor::refusals::Refusal;
use crate::request::data::Data;
use crate::request::op::{Hints, NewOp};

/// Unsent bytes from which on a client that has not chosen a volume is told nothing more before it has read.
const HANDSHAKE_UNSENT_MAX: usize = 64 << 10;
/// What one step of a handshake uses up of a visit's quantum: four of them are a visit, since one may look at many
/// volumes.
const HANDSHAKE_COST: usize = 64 << 10;

/// Extents in one reply to a block status request; a client asks again from the end of the last one.
const EXTENTS_MAX: u16 = 256;

/// How a command fared.
enum Begun {
    Yes,
    NeedsBytes,
    Stalled(Progress),
}

impl Connection {
    /// Turns what was received into requests, as far as it goes.
    pub(super) fn parse(&mut self, cx: &mut ReactorContext<'_>) -> Progress {
        while !self.closing && !self.broken {
            if let Some(payload) = self.payload.take_if(|p| p.got == p.command.length as usize) {
                if !self.submit_payload(payload, cx) {
                    return Progress::NoRoom;
                }
            } else if self.payload.is_some() {
                return Progress::Done;
            }
            if let Some(command) = self.waiting.take() {
                match self.begin(command, cx) {
                    Begun::Yes => continue,
                    Begun::NeedsBytes => {
                        self.waiting = Some(command);
                        return Progress::Done;
                    }
                    Begun::Stalled(progress) => {
                        self.waiting = Some(command);
                        return progress;
                    }
                }
            }
            let (most, cost) = match self.session.is_attached() {
                true => (HELD_MAX, 0),
                false => (HANDSHAKE_UNSENT_MAX, HANDSHAKE_COST),
            };
            if cx.client.held + self.holds() > most {
                return Progress::OwnLimit;
            }
            if self.input.unread().is_empty() && !self.session.is_listing() {
                return Progress::Done;
            }
            if !cx.quantum.spend(cost) {
                return Progress::More;
            }
            let step = self.session.step(self.input.unread(), cx.port.offer(), self.out.text());
            self.input.consume(step.consumed);
            if let Some(refusal) = self.session.take_refusal() {
                cx.refusals.count(match refusal {
                    session::Refusal::Full => Refusal::Group,
                    session::Refusal::Unknown => Refusal::Unknown,
                    session::Refusal::Tls => Refusal::Tls,
                    session::Refusal::Protocol => Refusal::Protocol,
                });
            }
            match step.action {
                Action::Continue => {}
                Action::Refused => cx.port.count_refused(cx.client),
                Action::More(_) => return Progress::Done,
                Action::StartTls => self.start_tls(),
                Action::Attach(id) => {
                    let volume = id as usize;
                    cx.port.attach(cx.client, volume);
                    cx.port.enter(volume);
                }
                Action::Command(command) => self.waiting = Some(command),
                Action::Close => self.closing = true,
            }
        }
        Progress::Done
    }
    /// Submits a long write whose payload is complete; `false` when the engine is full.
    fn submit_payload(&mut self, payload: Payload, cx: &mut ReactorContext<'_>) -> bool {
        let Payload { command, buffer, got } = payload;
        let refused = self.submit(command, Data::Owned(buffer), cx).err();
        let Some(Data::Owned(buffer)) = refused.map(|new| new.data) else { return true };
        self.payload = Some(Payload { command, buffer, got });
        false
    }
    fn begin(&mut self, command: Command, cx: &mut ReactorContext<'_>) -> Begun {
        let length = command.length as usize;
        let carries = matches!(
            command.command_type,
            CommandType::Read | CommandType::Write | CommandType::Cache
        );
        let payload = if carries { length } else { 0 };
        match cx.room(self.in_flight_max, self.holds(), payload) {
            Progress::Done => {}
            stalled => return Begun::Stalled(stalled),
        }
        let mut data = Data::None;
        if command.command_type == CommandType::Write {
            let unread = self.input.unread();
            match self.input.lend(length) {
                Some(payload) => data = Data::Lent(payload),
                None if length <= INLINE_MAX => return Begun::NeedsBytes,
                None => {
                    let got = unread.len();
                    let mut buffer = cx.port.buffers().take(length);
                    buffer.fill(0, unread);
                    self.input.consume(got);
                    self.payload = Some(Payload { command, buffer, got });
                    return Begun::Yes;
                }
            }
        }
        match self.submit(command, data, cx) {
            Err(_) => Begun::Stalled(Progress::NoRoom),
            Ok(()) => {
                if command.command_type == CommandType::Write {
                    self.input.consume(length);
                    // It is copied if the drive does not have it in the same turn.
                    cx.quantum.spend(length);
                }
                Begun::Yes
            }
        }
    }
    // The engine's refusal carries the request itself.
    #[allow(clippy::result_large_err)]
    fn submit(
        &mut self,
        command: Command,
        data: Data,
        cx: &mut ReactorContext<'_>,
    ) -> Result<(), NewOp> {
        let Command { cookie, command_type, offset, length, fua } = command;
        let mut hints = Hints { fua, ..Hints::default() };
        let operation = match command_type {
            CommandType::Read => Operation::Read,
            CommandType::Cache => {
                hints.prefetch = true;
                Operation::Read
            }
            CommandType::BlockStatus { one } => {
                hints.extents = if one { 1 } else { EXTENTS_MAX };
                Operation::Read
            }
            CommandType::Write => Operation::Write,
            CommandType::Flush => Operation::Flush,
            CommandType::Trim => Operation::Discard,
            CommandType::WriteZeroes { hole, fast } => {
                (hints.hole, hints.fast) = (hole, fast);
                Operation::WriteZeroes
            }
        };
        let (offset, length) =
            if command_type == CommandType::Flush { (0, 0) } else { (offset, length) };
        cx.submit(NewOp { hints, offset, length, data, ..cx.request(cookie, operation) })
    }
}
