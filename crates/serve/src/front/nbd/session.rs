//! The state of one connection: parses its next bytes and decides the next action.
//!
//! The owner of the socket calls [`Session::step`] with all unread bytes until it asks for more, sends what was
//! appended to `out`, and executes commands. The payload of a write follows its command; the owner takes it from the
//! input.

use super::options::{self, Handshake};
pub use super::options::{Refusal, Tls};
use super::wire::{
    GREETING_MAGIC, OPTION_DATA_MAX, OPTION_HEADER, OPTION_MAGIC, PAYLOAD_MAX, REQUEST_HEADER,
    REQUEST_MAGIC, command, errno, error_chunk, flag, handshake, option, option_reply, reply,
    simple_reply, u16_at, u32_at, u64_at,
};
use crate::request::export::{Export, Offer, Peer};

/// How often a client may ask for the list of exports, which costs the most; clients ask once.
const LISTS_MAX: u32 = 16;
/// Largest number of bytes that a session needs at once.
pub const INPUT_MAX: usize = OPTION_HEADER + OPTION_DATA_MAX;

/// The operation of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandType {
    /// Read.
    Read,
    /// Write; `length` bytes of payload follow.
    Write,
    /// Make completed writes durable.
    Flush,
    /// The range is not needed any more.
    Trim,
    /// The range will be read soon.
    Cache,
    /// Make the range zero.
    WriteZeroes {
        /// Whether the space may be freed.
        hole: bool,
        /// Refuse instead of writing zeroes slowly.
        fast: bool,
    },
    /// Report which parts hold data.
    BlockStatus {
        /// One extent suffices.
        one: bool,
    },
}

/// A command that passed all checks of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// The client's cookie.
    pub cookie: u64,
    /// The operation.
    pub command_type: CommandType,
    /// First byte in the volume.
    pub offset: u64,
    /// Length in bytes; inside the volume.
    pub length: u32,
    /// Durable before its completion.
    pub fua: bool,
}

/// The next action of the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Call again with the rest.
    Continue,
    /// The same, after a command that was refused with an error reply.
    Refused,
    /// Call again when at least this many bytes are there.
    More(usize),
    /// Send the output; all further bytes in both directions are TLS. Call [`Session::secured`] after its handshake.
    StartTls,
    /// The client chose the export with this id.
    Attach(u32),
    /// Execute this and reply. A write's payload comes next.
    Command(Command),
    /// Send the output and close the connection.
    Close,
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Bytes consumed.
    pub consumed: usize,
    /// The next action.
    pub action: Action,
}

#[derive(Debug)]
enum State {
    ClientFlags,
    Options,
    Transmission(Attached),
    Closed,
}

/// The export in use.
#[derive(Clone, Copy, Debug)]
struct Attached {
    size: u64,
    read_only: bool,
    block_status: bool,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    state: State,
    /// Bytes still to be thrown away: a refused write's payload or an option that was too long.
    skip: u64,
    /// The client is told which exports there are: the id of the next one.
    listing: Option<u32>,
    options: u32,
    /// How often it was told.
    lists: u32,
    handshake: Handshake,
}

impl Session {
    /// A new connection: writes the greeting.
    pub fn new(peer: Peer, tls: Tls, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        out.extend_from_slice(&flags.to_be_bytes());
        let handshake = Handshake::new(peer, tls);
        let (state, listing) = (State::ClientFlags, None);
        Self { state, skip: 0, listing, options: 0, lists: 0, handshake }
    }
    /// TLS is active, and the client's certificate has these names (none without a certificate).
    pub fn secured(&mut self, names: Vec<String>) {
        self.handshake.names.extend(names);
    }
    /// Whether the client has chosen an export.
    pub fn is_attached(&self) -> bool {
        matches!(self.state, State::Transmission(_))
    }
    /// Options that the client has sent. Their number has no limit, since programs that list volumes send a few for each; the
    /// owner limits their time.
    pub fn options(&self) -> u32 {
        self.options
    }
    /// Why the last step let the client have no export, if it did not; told once.
    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        self.handshake.refusal.take()
    }
    /// How the client is connected.
    pub fn peer(&self) -> Peer {
        self.handshake.peer
    }
    /// The state of TLS.
    pub fn tls(&self) -> Tls {
        self.handshake.tls
    }
    /// Whether the client may open this export.
    pub(crate) fn may_use(&self, export: &Export) -> bool {
        self.handshake.may_see(export)
    }

    /// Whether more output is available without new input. [`Self::step`] then continues it.
    pub fn is_listing(&self) -> bool {
        self.listing.is_some()
    }
    /// Whether structured replies were negotiated.
    pub fn structured(&self) -> bool {
        self.handshake.structured
    }

    /// Processes the unread bytes. Never consumes more than there are, and never panics on their contents.
    pub fn step(&mut self, input: &[u8], offer: Offer<'_>, out: &mut Vec<u8>) -> Step {
        if self.skip > 0 {
            let consumed = usize::try_from(self.skip).unwrap_or(usize::MAX).min(input.len());
            self.skip -= consumed as u64;
            let action = if self.skip > 0 { Action::More(1) } else { Action::Continue };
            return Step { consumed, action };
        }
        if let Some(next) = self.listing {
            self.listing = options::list(&self.handshake, offer.exports, next, out);
            return Step { consumed: 0, action: Action::Continue };
        }
        match self.state {
            State::ClientFlags => self.client_flags(input),
            State::Options => self.option(input, offer, out),
            State::Transmission(attached) => self.command(input, attached, out),
            State::Closed => Step { consumed: input.len(), action: Action::Close },
        }
    }

    /// The volume has a new size. The protocol cannot tell the client; one that knows it otherwise may use it.
    pub fn resized(&mut self, size: u64) {
        if let State::Transmission(attached) = &mut self.state {
            attached.size = size;
        }
    }

    fn close(&mut self, consumed: usize) -> Step {
        self.state = State::Closed;
        Step { consumed, action: Action::Close }
    }

    /// Closes, since the client does not speak the protocol.
    fn break_off(&mut self, consumed: usize) -> Step {
        self.handshake.refusal = Some(Refusal::Protocol);
        self.close(consumed)
    }

    fn client_flags(&mut self, input: &[u8]) -> Step {
        const NO_ZEROES: u32 = handshake::NO_ZEROES as u32;
        const KNOWN: u32 = handshake::FIXED_NEWSTYLE as u32 | NO_ZEROES;
        if input.len() < 4 {
            return Step { consumed: 0, action: Action::More(4) };
        }
        let flags = u32_at(input, 0);
        if flags & !KNOWN != 0 {
            return self.break_off(4);
        }
        self.handshake.no_zeroes = flags & NO_ZEROES != 0;
        self.state = State::Options;
        Step { consumed: 4, action: Action::Continue }
    }

    fn option(&mut self, input: &[u8], offer: Offer<'_>, out: &mut Vec<u8>) -> Step {
        if input.len() < OPTION_HEADER {
            return Step { consumed: 0, action: Action::More(OPTION_HEADER) };
        }
        let (kind, length) = (u32_at(input, 8), u32_at(input, 12));
        if u64_at(input, 0) != OPTION_MAGIC {
            return self.break_off(OPTION_HEADER);
        }
        if length as usize > OPTION_DATA_MAX {
            if kind == option::EXPORT_NAME {
                return self.break_off(OPTION_HEADER);
            }
            option_reply(out, kind, reply::ERR_TOO_BIG, b"this option is too long");
            self.skip = u64::from(length);
            self.options = self.options.saturating_add(1);
            return Step { consumed: OPTION_HEADER, action: Action::Continue };
        }
        let consumed = OPTION_HEADER + length as usize;
        let Some(data) = input.get(OPTION_HEADER..consumed) else {
            return Step { consumed: 0, action: Action::More(consumed) };
        };
        self.options = self.options.saturating_add(1);
        match options::reply(&mut self.handshake, kind, data, offer, out) {
            options::Outcome::Next => Step { consumed, action: Action::Continue },
            options::Outcome::List if self.lists >= LISTS_MAX => self.break_off(consumed),
            options::Outcome::List => {
                self.lists += 1;
                self.listing = Some(0);
                Step { consumed, action: Action::Continue }
            }
            options::Outcome::Close => self.close(consumed),
            // A client waits for the reply; data sent before it is not authenticated.
            options::Outcome::StartTls if input.len() > consumed => self.break_off(consumed),
            options::Outcome::StartTls => Step { consumed, action: Action::StartTls },
            options::Outcome::Attach(export) => {
                let (size, read_only) = (export.size, export.read_only);
                let block_status = self.handshake.allocation_of.as_ref() == Some(&export.name);
                self.state = State::Transmission(Attached { size, read_only, block_status });
                Step { consumed, action: Action::Attach(export.id) }
            }
        }
    }

    fn command(&mut self, input: &[u8], attached: Attached, out: &mut Vec<u8>) -> Step {
        if input.len() < REQUEST_HEADER {
            return Step { consumed: 0, action: Action::More(REQUEST_HEADER) };
        }
        if u32_at(input, 0) != REQUEST_MAGIC {
            return self.break_off(REQUEST_HEADER);
        }
        let header = Header {
            flags: u16_at(input, 4),
            kind: u16_at(input, 6),
            offset: u64_at(input, 16),
            length: u32_at(input, 24),
        };
        let cookie = u64_at(input, 8);
        if header.kind == command::DISC {
            return self.close(REQUEST_HEADER);
        }
        let action = match header.check(attached, self.handshake.structured) {
            Ok(command_type) => {
                let Header { offset, length, flags, .. } = header;
                let fua = flags & flag::FUA != 0;
                Action::Command(Command { cookie, command_type, offset, length, fua })
            }
            Err(error) => {
                if header.kind == command::WRITE {
                    self.skip = u64::from(header.length);
                }
                self.refuse(header.kind, cookie, error, out);
                Action::Refused
            }
        };
        Step { consumed: REQUEST_HEADER, action }
    }

    fn refuse(&self, kind: u16, cookie: u64, error: u32, out: &mut Vec<u8>) {
        if self.handshake.structured && matches!(kind, command::READ | command::BLOCK_STATUS) {
            error_chunk(out, cookie, error);
        } else {
            simple_reply(out, cookie, error);
        }
    }

    /// Writes an error reply to a command.
    pub fn fail(&self, command_type: CommandType, cookie: u64, error: u32, out: &mut Vec<u8>) {
        let kind = match command_type {
            CommandType::Read => command::READ,
            CommandType::BlockStatus { .. } => command::BLOCK_STATUS,
            _ => command::WRITE,
        };
        self.refuse(kind, cookie, error, out);
    }
}

struct Header {
    flags: u16,
    kind: u16,
    offset: u64,
    length: u32,
}

impl Header {
    /// What the command asks, or the error that the protocol has for it.
    fn check(&self, attached: Attached, structured: bool) -> Result<CommandType, u32> {
        let flags = self.flags;
        // Servers take FUA on every command and ignore it where it says nothing.
        let (command_type, allowed) = match self.kind {
            command::READ => (CommandType::Read, if structured { flag::DF } else { 0 }),
            command::WRITE => (CommandType::Write, 0),
            command::FLUSH => (CommandType::Flush, 0),
            command::TRIM => (CommandType::Trim, 0),
            command::CACHE => (CommandType::Cache, 0),
            command::WRITE_ZEROES => {
                let hole = flags & flag::NO_HOLE == 0;
                let fast = flags & flag::FAST_ZERO != 0;
                (CommandType::WriteZeroes { hole, fast }, flag::NO_HOLE | flag::FAST_ZERO)
            }
            command::BLOCK_STATUS if attached.block_status => {
                (CommandType::BlockStatus { one: flags & flag::REQ_ONE != 0 }, flag::REQ_ONE)
            }
            _ => return Err(errno::EINVAL),
        };
        if flags & !(allowed | flag::FUA) != 0 {
            return Err(errno::EINVAL);
        }
        if command_type == CommandType::Flush {
            return Ok(command_type);
        }
        let changes = matches!(
            command_type,
            CommandType::Write | CommandType::Trim | CommandType::WriteZeroes { .. }
        );
        if changes && attached.read_only {
            return Err(errno::EPERM);
        }
        if self.length == 0 {
            return Err(errno::EINVAL);
        }
        let end = self.offset.checked_add(u64::from(self.length));
        if end.is_none_or(|end| end > attached.size) {
            let grows =
                matches!(command_type, CommandType::Write | CommandType::WriteZeroes { .. });
            return Err(if grows { errno::ENOSPC } else { errno::EINVAL });
        }
        let carries =
            matches!(command_type, CommandType::Read | CommandType::Write | CommandType::Cache);
        if carries && self.length > PAYLOAD_MAX {
            return Err(if command_type == CommandType::Read {
                errno::EOVERFLOW
            } else {
                errno::EINVAL
            });
        }
        Ok(command_type)
    }
}
