//! The least that a server of NBD over a socket can cost: it takes commands off the socket and answers
//! them, batched as they come, with bytes that are always the same. No engine, no volume, no second thread
//! a connection. What it costs is the kernel's copy in and out and the protocol itself.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use iofair_config::contracts::Entry;
use iofair_core::group::Groups;
use iofair_serve::front::nbd::session::{Action, Command, CommandType, Session, Tls};
use iofair_serve::front::nbd::wire::{read_header, simple_reply};
use iofair_serve::request::export::{Export, Exports, Offer, Peer};

/// Longest read that is answered.
const DATA: &[u8] = &[0; 1 << 20];
/// Bytes that are taken off a socket at once.
const TAKEN: usize = 256 << 10;

/// Serves until it is killed.
pub(crate) fn serve(socket: &Path, size: u64) {
    let listener = UnixListener::bind(socket).expect("nobody else is there");
    for stream in listener.incoming() {
        let stream = stream.expect("a socket that listens accepts");
        // A client that leaves in the middle is no trouble of ours.
        std::thread::spawn(move || converse(stream, size));
    }
}

fn export(size: u64) -> Export {
    Export {
        id: 0,
        name: "v".into(),
        size,
        read_only: false,
        rotational: false,
        entry: Entry::default(),
        connections: 0,
    }
}

fn converse(mut stream: UnixStream, size: u64) -> io::Result<()> {
    let (exports, groups) = (Exports::from(vec![export(size)]), Groups::new());
    let (mut out, mut input) = (Vec::new(), vec![0; TAKEN]);
    let mut session = Session::new(Peer::Unix(0), Tls::Absent, &mut out);
    stream.write_all(&out)?;
    out.clear();
    // Bytes that are there, payload that is still to be thrown away, and the write whose payload it is.
    let (mut filled, mut payload, mut write) = (0, 0, None);
    // Where the head of each answer ends in `out`, and how much data follows it.
    let mut answers: Vec<(usize, usize)> = Vec::new();
    loop {
        let mut at = 0;
        loop {
            let thrown = payload.min(filled - at);
            (at, payload) = (at + thrown, payload - thrown);
            if payload > 0 {
                break;
            }
            if let Some(cookie) = write.take() {
                simple_reply(&mut out, cookie, 0);
                answers.push((out.len(), 0));
            }
            let step = session.step(
                &input[at..filled],
                Offer { exports: &exports, groups: &groups },
                &mut out,
            );
            at += step.consumed;
            let data = match step.action {
                Action::Continue | Action::Refused | Action::Attach(_) => 0,
                Action::More(_) => break,
                Action::Command(Command {
                    command_type: CommandType::Write,
                    cookie,
                    length,
                    ..
                }) => {
                    (payload, write) = (length as usize, Some(cookie));
                    0
                }
                Action::Command(command) => answer(&session, &command, &mut out),
                Action::StartTls | Action::Close => return Ok(()),
            };
            answers.push((out.len(), data));
        }
        send(&mut stream, &out, &mut answers)?;
        out.clear();
        input.copy_within(at..filled, 0);
        filled -= at;
        let taken = stream.read(&mut input[filled..])?;
        if taken == 0 {
            return Ok(());
        }
        filled += taken;
    }
}

/// Writes an answer's head; returns the bytes of data that follow it.
fn answer(session: &Session, command: &Command, out: &mut Vec<u8>) -> usize {
    let Command { cookie, offset, length, .. } = *command;
    if command.command_type != CommandType::Read {
        simple_reply(out, cookie, 0);
        return 0;
    }
    read_header(out, session.structured(), cookie, offset, length);
    length as usize
}

fn send(stream: &mut UnixStream, out: &[u8], answers: &mut Vec<(usize, usize)>) -> io::Result<()> {
    let mut slices = Vec::with_capacity(2 * answers.len());
    let mut from = 0;
    for (to, data) in answers.drain(..) {
        slices.extend([IoSlice::new(&out[from..to]), IoSlice::new(&DATA[..data])]);
        from = to;
    }
    let mut slices = &mut slices[..];
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        // More pieces than a call takes are taken by the next one.
        let sent = stream.write_vectored(slices)?;
        IoSlice::advance_slices(&mut slices, sent);
    }
    Ok(())
}
