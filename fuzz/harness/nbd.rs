//! Any bytes from a client: the session never takes more than there is, never asks for what it has or for
//! more than its bound, says a bounded amount for what it was told, and lets nothing through that a
//! volume does not have.
#![allow(dead_code)]

use iofair_config::contracts::Entry;
use iofair_core::group::Groups;
use iofair_serve::front::nbd::session::{Action, Command, CommandType, INPUT_MAX, Session, Tls};
use iofair_serve::front::nbd::wire::PAYLOAD_MAX;
use iofair_serve::request::export::{Export, Exports, Offer, Peer};

/// What one option of 16 bytes may be answered with at most: a list of all volumes.
const ANSWER_MAX: usize = 4 << 10;

fn exports() -> Vec<Export> {
    let export = |id: u32, name: &str, names: Option<&[&str]>| Export {
        id,
        name: name.into(),
        size: 1 << 20,
        read_only: id == 1,
        rotational: false,
        entry: Entry {
            names: names.map(|names| names.iter().map(|name| (*name).to_string()).collect()),
            ..Entry::default()
        },
        connections: 0,
    };
    vec![export(0, "v", None), export(1, "frozen", None), export(2, "secret", Some(&["alice"]))]
}

/// A session, and what of its input was not used up.
struct Talk {
    session: Session,
    exports: Exports,
    groups: Groups,
    unread: Vec<u8>,
    out: Vec<u8>,
    /// Bytes of a write's payload that are still to come.
    owed: usize,
    steps: usize,
    over: bool,
}

impl Talk {
    fn new(peer: Peer, tls: Tls) -> Self {
        let mut out = Vec::new();
        let session = Session::new(peer, tls, &mut out);
        let (exports, groups, unread) = (Exports::from(exports()), Groups::new(), Vec::new());
        Self { session, exports, groups, unread, out, owed: 0, steps: 0, over: false }
    }
    fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        while !self.over {
            let payload = self.owed.min(self.unread.len());
            self.unread.drain(..payload);
            self.owed -= payload;
            if self.owed > 0 {
                return;
            }
            self.steps += 1;
            let goes_on = self.session.is_listing();
            let offer = Offer { exports: &self.exports, groups: &self.groups };
            let step = self.session.step(&self.unread, offer, &mut self.out);
            assert!(step.consumed <= self.unread.len());
            self.unread.drain(..step.consumed);
            match step.action {
                Action::Continue | Action::Refused => {
                    assert!(step.consumed > 0 || goes_on, "it turns on the spot")
                }
                Action::More(needed) => {
                    assert!(needed > self.unread.len() && needed <= INPUT_MAX);
                    return;
                }
                Action::StartTls => {
                    assert!(self.unread.is_empty(), "what came before TLS is not taken for after");
                    self.session.secured(vec!["bob".into()]);
                }
                Action::Attach(id) => assert!(id < 2, "the name that opens it was never shown"),
                Action::Command(command) => self.check(command),
                Action::Close => self.over = true,
            }
        }
    }
    fn check(&mut self, command: Command) {
        assert!(self.session.is_attached());
        let Command { command_type, offset, length, .. } = command;
        if command_type != CommandType::Flush {
            assert!(length > 0 && offset.checked_add(u64::from(length)).unwrap() <= 1 << 20);
        }
        if command_type == CommandType::Write {
            assert!(length <= PAYLOAD_MAX);
            self.owed = length as usize;
        }
    }
}

/// Feeds `data` in pieces whose lengths its first byte decides.
fn in_pieces(talk: &mut Talk, data: &[u8]) {
    let Some((seed, data)) = data.split_first() else { return };
    let piece = 1 + usize::from(*seed) * usize::from(*seed);
    for piece in data.chunks(piece) {
        talk.feed(piece);
    }
    // Each step answers one option at most.
    assert!(talk.out.len() <= 64 + talk.steps * ANSWER_MAX, "{} bytes said", talk.out.len());
}

/// From the greeting on; the second byte says how the client came and what TLS it is offered.
pub fn handshake(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let tls = [Tls::Absent, Tls::Offered, Tls::Required][usize::from(kind % 3)];
    let peer = if kind & 4 == 0 { Peer::Tcp } else { Peer::Unix(0) };
    in_pieces(&mut Talk::new(peer, tls), data);
}

/// From the first command on.
pub fn transmission(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let mut talk = Talk::new(Peer::Tcp, Tls::Absent);
    talk.feed(&3u32.to_be_bytes());
    if kind & 1 != 0 {
        talk.feed(b"IHAVEOPT\0\0\0\x08\0\0\0\0");
        talk.feed(b"IHAVEOPT\0\0\0\x0a\0\0\0\x1c\0\0\0\x01v\0\0\0\x01\0\0\0\x0fbase:allocation");
    }
    let name: &[u8] = if kind & 2 != 0 { b"\0\0\0\x06frozen\0\0" } else { b"\0\0\0\x01v\0\0" };
    talk.feed(b"IHAVEOPT\0\0\0\x07\0\0\0");
    talk.feed(&[name.len() as u8]);
    talk.feed(name);
    assert!(talk.session.is_attached());
    in_pieces(&mut talk, data);
}
