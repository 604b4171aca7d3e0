//! The protocol, message by message and byte by byte. What whole clients make of it is in
//! `tests/server/clients.rs`.

use iofair_config::contracts::Entry;
use iofair_core::group::Groups;

use super::session::{Action, Command, CommandType, INPUT_MAX, Session, Tls};
use super::wire::{self, command, errno, flag, option, reply, transmission};
use crate::request::export::{Export, Exports, Offer, Peer};

fn exports() -> Vec<Export> {
    let export = |id, name: &str, size, read_only| Export {
        id,
        name: name.into(),
        size,
        read_only,
        rotational: false,
        entry: Entry::default(),
        connections: 0,
    };
    vec![export(3, "disk", 1 << 30, false), export(7, "frozen", 4096, true)]
}

fn option_bytes(kind: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    [&wire::OPTION_MAGIC.to_be_bytes()[..], &kind.to_be_bytes(), &length, data].concat()
}

fn go(name: &str) -> Vec<u8> {
    let length = (name.len() as u32).to_be_bytes();
    option_bytes(option::GO, &[&length[..], name.as_bytes(), &0u16.to_be_bytes()].concat())
}

fn meta(kind: u32, name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut text = |text: &str| {
        data.extend_from_slice(&(text.len() as u32).to_be_bytes());
        data.extend_from_slice(text.as_bytes());
    };
    text(name);
    let mut tail = (queries.len() as u32).to_be_bytes().to_vec();
    for query in queries {
        tail.extend_from_slice(&(query.len() as u32).to_be_bytes());
        tail.extend_from_slice(query.as_bytes());
    }
    data.extend_from_slice(&tail);
    option_bytes(kind, &data)
}

fn request(kind: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    let words = [&flags.to_be_bytes()[..], &kind.to_be_bytes(), &77u64.to_be_bytes()].concat();
    let magic = wire::REQUEST_MAGIC.to_be_bytes();
    [&magic[..], &words, &offset.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// A session that eats everything: what it did and what it said.
struct Talk {
    session: Session,
    out: Vec<u8>,
    actions: Vec<Action>,
    left: Vec<u8>,
    /// Bytes of a write's payload that are still to come.
    owed: usize,
}

impl Talk {
    fn new() -> Self {
        let mut out = Vec::new();
        let session = Session::new(Peer::Tcp, Tls::Absent, &mut out);
        assert_eq!(out.len(), 18, "the greeting");
        out.clear();
        Self { session, out, actions: Vec::new(), left: Vec::new(), owed: 0 }
    }
    /// Feeds bytes; payloads of writes are taken off as an owner would.
    fn feed(&mut self, bytes: &[u8]) -> &mut Self {
        let (exports, groups) = (Exports::from(exports()), Groups::new());
        self.left.extend_from_slice(bytes);
        loop {
            let payload = self.owed.min(self.left.len());
            self.left.drain(..payload);
            self.owed -= payload;
            if self.owed > 0 || self.actions.last() == Some(&Action::Close) {
                return self;
            }
            let offer = Offer { exports: &exports, groups: &groups };
            let step = self.session.step(&self.left, offer, &mut self.out);
            assert!(step.consumed <= self.left.len());
            self.left.drain(..step.consumed);
            match step.action {
                Action::Continue | Action::Refused => continue,
                Action::More(needed) => {
                    assert!(needed <= INPUT_MAX, "{needed} bytes at once");
                    assert!(needed > self.left.len(), "asks for what it has");
                    return self;
                }
                Action::Close => {
                    self.actions.push(step.action);
                    return self;
                }
                action => self.actions.push(action),
            }
            if let Action::Command(Command { command_type: CommandType::Write, length, .. }) =
                step.action
            {
                self.owed = length as usize;
            }
        }
    }
    fn chosen(structured: bool) -> Self {
        let mut this = Self::new();
        this.feed(&3u32.to_be_bytes());
        if structured {
            this.feed(&option_bytes(option::STRUCTURED_REPLY, &[]));
            this.feed(&meta(option::SET_META_CONTEXT, "disk", &["base:allocation"]));
        }
        this.feed(&go("disk"));
        assert_eq!(this.actions, [Action::Attach(3)]);
        (this.actions, this.out) = (Vec::new(), Vec::new());
        this
    }
    /// Kinds of the replies to options.
    fn replies(&self) -> Vec<u32> {
        let (mut kinds, mut at) = (Vec::new(), 0);
        while at < self.out.len() {
            assert_eq!(wire::u64_at(&self.out, at), wire::OPTION_REPLY_MAGIC);
            kinds.push(wire::u32_at(&self.out, at + 12));
            at += 20 + wire::u32_at(&self.out, at + 16) as usize;
        }
        kinds
    }
}

/// Goal: every option gets the reply that the protocol requires. Method: one of each, good and bad.
#[test]
fn options_get_replies() {
    let mut talk = Talk::new();
    talk.feed(&3u32.to_be_bytes());
    let cases: &[(Vec<u8>, &[u32])] = &[
        (option_bytes(option::LIST, &[]), &[reply::SERVER, reply::SERVER, reply::ACK]),
        (option_bytes(option::LIST, &[1]), &[reply::ERR_INVALID]),
        (option_bytes(option::STARTTLS, &[]), &[reply::ERR_UNSUP]),
        (option_bytes(99, &[0; 100]), &[reply::ERR_UNSUP]),
        (option_bytes(99, &[0; 100_000]), &[reply::ERR_TOO_BIG]),
        (go("nobody"), &[reply::ERR_UNKNOWN]),
        (option_bytes(option::GO, &[0, 0]), &[reply::ERR_INVALID]),
        (meta(option::SET_META_CONTEXT, "disk", &["base:allocation"]), &[reply::ERR_INVALID]),
        (option_bytes(option::STRUCTURED_REPLY, &[]), &[reply::ACK]),
        (meta(option::LIST_META_CONTEXT, "disk", &[]), &[reply::META_CONTEXT, reply::ACK]),
        (meta(option::LIST_META_CONTEXT, "disk", &["qemu:"]), &[reply::ACK]),
        (meta(option::SET_META_CONTEXT, "disk", &["base:"]), &[reply::ACK]),
        (
            meta(option::SET_META_CONTEXT, "disk", &["x:y", "base:allocation"]),
            &[reply::META_CONTEXT, reply::ACK],
        ),
        (go("disk"), &[reply::INFO, reply::INFO, reply::ACK]),
    ];
    for (bytes, expected) in cases {
        talk.out.clear();
        talk.feed(bytes);
        assert_eq!(talk.replies(), *expected, "{bytes:?}");
    }
    assert_eq!(talk.actions, [Action::Attach(3)]);
    let mut talk = Talk::new();
    talk.feed(&3u32.to_be_bytes()).feed(&option_bytes(option::ABORT, &[]));
    assert_eq!((talk.replies(), &talk.actions[..]), (vec![reply::ACK], &[Action::Close][..]));
}

/// Goal: the old option works with and without its padding. Method: both client flags.
#[test]
fn export_name_pads_when_asked() {
    for (flags, length) in [(1u32, 10 + 124), (3, 10)] {
        let mut talk = Talk::new();
        talk.feed(&flags.to_be_bytes()).feed(&option_bytes(option::EXPORT_NAME, b"frozen"));
        assert_eq!(talk.actions, [Action::Attach(7)]);
        assert_eq!(talk.out.len(), length);
        let told = wire::u16_at(&talk.out, 8);
        assert!(told & transmission::READ_ONLY != 0 && told & transmission::SEND_TRIM == 0);
    }
    let mut talk = Talk::new();
    talk.feed(&1u32.to_be_bytes()).feed(&option_bytes(option::EXPORT_NAME, b"nobody"));
    assert_eq!(talk.actions, [Action::Close]);
}

/// Goal: a connection that is open serves all of a volume that has grown.
#[test]
fn a_grown_volume_is_served_whole() {
    let mut talk = Talk::chosen(false);
    talk.feed(&request(command::READ, 0, 1 << 30, 4096));
    let is_command = |action: &Action| matches!(action, Action::Command(_));
    assert!(!talk.actions.iter().any(is_command), "it is too far");
    talk.session.resized((1 << 30) + 4096);
    talk.feed(&request(command::READ, 0, 1 << 30, 4096));
    assert!(matches!(talk.actions.last(), Some(Action::Command(_))), "{:?}", talk.actions);
}

/// Goal: bad commands get the protocol's error and cost nothing else; the payload of a refused write
/// is not taken for commands. Method: a table, each followed by a good flush.
#[test]
fn bad_commands_are_refused() {
    const END: u64 = 1 << 30;
    const BIG: u32 = wire::PAYLOAD_MAX + 1;
    let cases = [
        (command::READ, 0, END - 4096, 4097, errno::EINVAL),
        (command::READ, 0, u64::MAX, 2, errno::EINVAL),
        (command::READ, 0, 0, 0, errno::EINVAL),
        (command::READ, 0, 0, BIG, errno::EOVERFLOW),
        (command::READ, flag::NO_HOLE, 0, 512, errno::EINVAL),
        (command::WRITE, 0, END, 4096, errno::ENOSPC),
        (command::WRITE, 1 << 9, 0, 4096, errno::EINVAL),
        (command::TRIM, 0, END - 1, 2, errno::EINVAL),
        (command::WRITE_ZEROES, 0, END - 1, 2, errno::ENOSPC),
        (command::CACHE, 0, 0, BIG, errno::EINVAL),
        (99, 0, 0, 512, errno::EINVAL),
    ];
    for structured in [false, true] {
        for (kind, flags, offset, length, error) in cases {
            let mut talk = Talk::chosen(structured);
            talk.feed(&request(kind, flags, offset, length));
            if kind == command::WRITE {
                talk.feed(
                    &request(command::READ, 0, 0, 512).repeat(length as usize / 28 + 1)
                        [..length as usize],
                );
            }
            talk.feed(&request(command::FLUSH, 0, 0, 0));
            let asks: Vec<CommandType> = talk
                .actions
                .iter()
                .filter_map(
                    |a| if let Action::Command(c) = a { Some(c.command_type) } else { None },
                )
                .collect();
            assert_eq!(asks, [CommandType::Flush], "{kind} {offset} {length}");
            let told = match structured && kind == command::READ {
                true => wire::u32_at(&talk.out, 20),
                false => wire::u32_at(&talk.out, 4),
            };
            assert_eq!(told, error, "{kind} {offset} {length} structured {structured}");
        }
    }
    let mut talk = Talk::new();
    talk.feed(&3u32.to_be_bytes()).feed(&go("frozen"));
    talk.out.clear();
    talk.feed(&request(command::WRITE, 0, 0, 5)).feed(&[0; 5]);
    assert_eq!(wire::u32_at(&talk.out, 4), errno::EPERM);
}

/// Goal: good commands come out as they were meant. Method: one of each.
#[test]
fn good_commands_come_through() {
    let mut talk = Talk::chosen(true);
    let cases = [
        (command::READ, flag::DF, CommandType::Read, false),
        (command::WRITE, flag::FUA, CommandType::Write, true),
        (command::TRIM, 0, CommandType::Trim, false),
        (command::CACHE, 0, CommandType::Cache, false),
        (
            command::WRITE_ZEROES,
            flag::NO_HOLE,
            CommandType::WriteZeroes { hole: false, fast: false },
            false,
        ),
        (
            command::WRITE_ZEROES,
            flag::FAST_ZERO | flag::FUA,
            CommandType::WriteZeroes { hole: true, fast: true },
            true,
        ),
        (command::BLOCK_STATUS, flag::REQ_ONE, CommandType::BlockStatus { one: true }, false),
    ];
    for (kind, flags, command_type, fua) in cases {
        talk.actions.clear();
        talk.feed(&request(kind, flags, 513, 3));
        if command_type == CommandType::Write {
            talk.feed(&[1, 2, 3]);
        }
        let expected = Command { cookie: 77, command_type, offset: 513, length: 3, fua };
        assert_eq!(talk.actions, [Action::Command(expected)]);
    }
    talk.feed(&request(command::DISC, 0, 0, 0));
    assert_eq!(talk.actions.last(), Some(&Action::Close));
}

/// A small generator of our own: the test needs no quality, only the same bytes for a seed.
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0 >> 33
    }
    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }
}

/// A conversation that is mostly right, with bytes broken here and there.
fn conversation(bytes: &mut Bytes) -> Vec<u8> {
    let mut talk = 3u32.to_be_bytes().to_vec();
    let [option_max, data_max] = if cfg!(miri) { [400, 50] } else { [40_000, 5000] };
    for _ in 0..bytes.below(6) {
        let names = ["disk", "frozen", "", "nobody"];
        let name = names[bytes.below(names.len())];
        talk.extend(match bytes.below(6) {
            0 => option_bytes(option::STRUCTURED_REPLY, &[]),
            1 => meta(option::SET_META_CONTEXT, name, &["base:allocation"]),
            2 => meta(option::LIST_META_CONTEXT, name, &[]),
            3 => option_bytes(bytes.below(20) as u32, &vec![0; bytes.below(option_max)]),
            4 => option_bytes(option::LIST, &[]),
            _ => go(name),
        });
    }
    talk.extend(go("disk"));
    for _ in 0..bytes.below(20) {
        let length = bytes.below(data_max) as u32;
        let offset = bytes.next() << bytes.below(20);
        let kind = bytes.below(9) as u16;
        talk.extend(request(kind, bytes.below(32) as u16, offset, length));
        if kind == command::WRITE {
            talk.extend(vec![0; length as usize]);
        }
    }
    for _ in 0..bytes.below(4) {
        let at = bytes.below(talk.len());
        talk[at] ^= 1 << bytes.below(8);
    }
    talk
}

/// Goal: whatever the bytes and however they are cut, nothing panics, nothing is asked for beyond the
/// bound, what is said does not grow beyond a small multiple of what was heard, and the cut makes no
/// difference. Method: random conversations with broken bits, fed whole and in random pieces.
#[test]
fn any_bytes_in_any_pieces() {
    for seed in 0..if cfg!(miri) { 2 } else { 2000 } {
        let mut bytes = Bytes(seed);
        let talk = conversation(&mut bytes);
        let mut whole = Talk::new();
        whole.feed(&talk);
        let mut pieces = Talk::new();
        let mut rest = &talk[..];
        while !rest.is_empty() {
            let cut = 1 + bytes.below(rest.len().min(64));
            let (piece, after) = rest.split_at(cut);
            pieces.feed(piece);
            rest = after;
        }
        assert_eq!(whole.actions, pieces.actions, "seed {seed}");
        assert_eq!(whole.out, pieces.out, "seed {seed}");
        assert!(whole.out.len() <= 64 * talk.len() + 4096, "seed {seed}: {}", whole.out.len());
    }
}

/// Goal: a list of any length is told a little at a time, whole and in order. Method: a thousand exports, of which
/// some are gone by the time that they would be told.
#[test]
fn lists_come_in_small_pieces() {
    let template = exports()[0].clone();
    let export = |id| Export { id, name: format!("volume-{id}"), ..template.clone() };
    let mut exports: Vec<Export> = (0..1_000).map(export).collect();
    let mut talk = Talk::new();
    talk.feed(&3u32.to_be_bytes());
    let list = option_bytes(option::LIST, &[]);
    let groups = Groups::new();
    let mut all = Exports::from(exports.clone());
    let offer = Offer { exports: &all, groups: &groups };
    let step = talk.session.step(&list, offer, &mut talk.out);
    assert_eq!((step.consumed, step.action), (list.len(), Action::Continue));
    let (mut steps, mut told) = (0, Vec::new());
    while talk.session.is_listing() {
        talk.out.clear();
        let offer = Offer { exports: &all, groups: &groups };
        assert_eq!(talk.session.step(&[], offer, &mut talk.out).consumed, 0);
        assert!(talk.out.len() < 8 << 10, "{} bytes at once", talk.out.len());
        told.extend_from_slice(&talk.out);
        steps += 1;
        if steps == 5 {
            exports.retain(|export| !(300..400).contains(&export.id));
            all = Exports::from(exports.clone());
        }
    }
    let mut names = Vec::new();
    let mut rest = &told[..];
    while !rest.is_empty() {
        let (kind, length) = (wire::u32_at(rest, 12), wire::u32_at(rest, 16) as usize);
        let data = &rest[20..20 + length];
        rest = &rest[20 + length..];
        match kind {
            reply::SERVER => names.push(String::from_utf8(data[4..].to_vec()).unwrap()),
            kind => assert!(kind == reply::ACK && rest.is_empty(), "the last one ends it"),
        }
    }
    let expected = (0..1_000).filter(|id| *id < 320 || *id >= 400);
    assert_eq!(names, expected.map(|id| format!("volume-{id}")).collect::<Vec<_>>());
}
