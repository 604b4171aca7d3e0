//! The handshake: the options that a client may send before it chooses an export, and the replies.

use iofair_config::contracts::user;

use super::wire::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, PAYLOAD_MAX, STRING_MAX, info, option, option_reply,
    reply, transmission, u16_at, u32_at,
};
use crate::request::export::{Export, Exports, Offer, Peer};

/// Preferred block: a page.
const BLOCK_PREFERRED: u32 = 4096;
/// Exports that are listed at once: a few kilobytes, some microseconds.
const LIST_STEP: usize = 64;
/// Queries that one option may carry.
const QUERIES_MAX: u32 = 64;

/// Whether this client uses TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tls {
    /// TLS is not available.
    Absent,
    /// TLS is optional.
    Offered,
    /// TLS is mandatory.
    Required,
    /// TLS is active.
    Running,
}

/// Who asks, and what was agreed so far.
#[derive(Debug)]
pub(super) struct Handshake {
    pub(super) peer: Peer,
    pub(super) tls: Tls,
    /// Names that the client proved to have.
    pub(super) names: Vec<String>,
    pub(super) no_zeroes: bool,
    pub(super) structured: bool,
    /// The export for which `base:allocation` was chosen.
    pub(super) allocation_of: Option<String>,
    /// Why the last step let the client have no export.
    pub(super) refusal: Option<Refusal>,
}

/// Why a client gets no export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The export or its group has as many connections as it may have.
    Full,
    /// There is no such export, as far as the client may know.
    Unknown,
    /// The client must use TLS.
    Tls,
    /// It does not speak the protocol.
    Protocol,
}

impl Handshake {
    pub(super) fn new(peer: Peer, tls: Tls) -> Self {
        let names = match peer {
            Peer::Unix(id) => vec![user(id)],
            Peer::Tcp => Vec::new(),
        };
        let (allocation_of, refusal) = (None, None);
        Self { peer, tls, names, no_zeroes: false, structured: false, allocation_of, refusal }
    }
    /// Whether the client may know of an export.
    pub(super) fn may_see(&self, export: &Export) -> bool {
        let entry = &export.entry;
        let open = if self.peer == Peer::Tcp { entry.tcp } else { entry.unix };
        let named = |names: &Vec<String>| self.names.iter().any(|name| names.contains(name));
        open && entry.names.as_ref().is_none_or(named)
    }
    /// The export of this name; the empty name is the default export, the only one if there is just
    /// one. What a client may not see is not there.
    fn find<'a>(&self, exports: &'a Exports, name: &[u8]) -> Option<&'a Export> {
        if name.is_empty() {
            let mut seen = exports.starting_at(0).iter().filter(|export| self.may_see(export));
            return seen.next().filter(|_| seen.next().is_none());
        }
        let found = str::from_utf8(name).ok().and_then(|name| exports.find(name));
        found.filter(|export| self.may_see(export))
    }
    /// Says that an export is not there, as far as this client may know.
    fn unknown(&self, kind: u32, out: &mut Vec<u8>) {
        match self.tls {
            Tls::Offered => {
                let message = b"there is no export of this name without TLS";
                option_reply(out, kind, reply::ERR_TLS_REQD, message);
            }
            _ => option_reply(out, kind, reply::ERR_UNKNOWN, b"there is no export of this name"),
        }
    }
}

/// The transmission flags of an export.
fn transmission_flags(export: &Export, structured: bool) -> u16 {
    use transmission::{
        CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, ROTATIONAL, SEND_CACHE, SEND_DF, SEND_FAST_ZERO,
        SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES,
    };
    let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_CACHE;
    flags |= if export.entry.connections > 1 { CAN_MULTI_CONN } else { 0 };
    flags |=
        if export.read_only { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO };
    flags |= if structured { SEND_DF } else { 0 };
    flags | if export.rotational { ROTATIONAL } else { 0 }
}

/// What an option leads to.
pub(super) enum Outcome<'a> {
    Next,
    /// The exports, told by [`list`] a few at a time.
    List,
    Close,
    StartTls,
    Attach(&'a Export),
}

/// Replies to one option.
pub(super) fn reply<'a>(
    agreed: &mut Handshake,
    kind: u32,
    data: &[u8],
    offer: Offer<'a>,
    out: &mut Vec<u8>,
) -> Outcome<'a> {
    match kind {
        option::EXPORT_NAME if agreed.tls == Tls::Required => {
            agreed.refusal = Some(Refusal::Tls);
            return Outcome::Close;
        }
        option::EXPORT_NAME => return export_name(agreed, data, offer, out),
        option::ABORT => {
            option_reply(out, kind, reply::ACK, &[]);
            return Outcome::Close;
        }
        option::STARTTLS => return start_tls(agreed, data, out),
        _ if agreed.tls == Tls::Required => {
            // Clients ask for much before they begin TLS, but for a volume only once they want it so.
            agreed.refusal = (kind == option::GO).then_some(Refusal::Tls);
            option_reply(out, kind, reply::ERR_TLS_REQD, b"this server requires TLS");
        }
        option::LIST if data.is_empty() => return Outcome::List,
        option::INFO | option::GO => return describe(agreed, kind, data, offer, out),
        option::STRUCTURED_REPLY if data.is_empty() => {
            agreed.structured = true;
            option_reply(out, kind, reply::ACK, &[]);
        }
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            meta_context(agreed, kind, data, offer.exports, out);
        }
        option::LIST | option::STRUCTURED_REPLY => {
            option_reply(out, kind, reply::ERR_INVALID, b"this option takes no data");
        }
        _ => option_reply(out, kind, reply::ERR_UNSUP, b"this option is not known here"),
    }
    Outcome::Next
}

fn start_tls<'a>(agreed: &mut Handshake, data: &[u8], out: &mut Vec<u8>) -> Outcome<'a> {
    let mut refuse = |kind, message: &str| {
        option_reply(out, option::STARTTLS, kind, message.as_bytes());
        Outcome::Next
    };
    match agreed.tls {
        Tls::Absent => return refuse(reply::ERR_UNSUP, "this server has no TLS"),
        Tls::Running => return refuse(reply::ERR_INVALID, "TLS runs already"),
        _ if !data.is_empty() => {
            return refuse(reply::ERR_INVALID, "this option takes no data");
        }
        Tls::Offered | Tls::Required => {}
    }
    option_reply(out, option::STARTTLS, reply::ACK, &[]);
    // Whoever spoke before need not be who speaks from now on.
    (agreed.tls, agreed.structured, agreed.allocation_of) = (Tls::Running, false, None);
    Outcome::StartTls
}

fn export_name<'a>(
    agreed: &mut Handshake,
    data: &[u8],
    offer: Offer<'a>,
    out: &mut Vec<u8>,
) -> Outcome<'a> {
    // The old option has no way to say no.
    let found = agreed.find(offer.exports, data);
    let Some(export) = found.filter(|export| !offer.is_full(export)) else {
        agreed.refusal = Some(if found.is_some() { Refusal::Full } else { Refusal::Unknown });
        return Outcome::Close;
    };
    out.extend_from_slice(&export.size.to_be_bytes());
    out.extend_from_slice(&transmission_flags(export, agreed.structured).to_be_bytes());
    if !agreed.no_zeroes {
        out.resize(out.len() + 124, 0);
    }
    Outcome::Attach(export)
}

/// Tells of the exports from the id `next` on, a few of them; returns where to go on, if that was not all. Ids only
/// grow in the list, so one that comes or goes meanwhile moves no other.
pub(super) fn list(
    agreed: &Handshake,
    exports: &Exports,
    next: u32,
    out: &mut Vec<u8>,
) -> Option<u32> {
    let mut data = Vec::new();
    let rest = exports.starting_at(next);
    let (now, later) = rest.split_at(LIST_STEP.min(rest.len()));
    for export in now.iter().filter(|export| agreed.may_see(export)) {
        data.clear();
        data.extend_from_slice(&(export.name.len() as u32).to_be_bytes());
        data.extend_from_slice(export.name.as_bytes());
        option_reply(out, option::LIST, reply::SERVER, &data);
    }
    if later.is_empty() {
        option_reply(out, option::LIST, reply::ACK, &[]);
    }
    later.first().map(|export| export.id)
}

/// Splits a string with its length in front off `data`.
fn string<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_at_checked(4)?;
    let length = u32_at(length, 0) as usize;
    let (text, rest) = rest.split_at_checked(length)?;
    *data = rest;
    (length <= STRING_MAX).then_some(text)
}

/// The name and the wanted kinds of information of INFO and GO.
fn wanted(mut data: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = string(&mut data)?;
    let (count, kinds) = data.split_at_checked(2)?;
    (kinds.len() == 2 * usize::from(u16_at(count, 0))).then_some((name, kinds))
}

fn describe<'a>(
    agreed: &mut Handshake,
    kind: u32,
    data: &[u8],
    offer: Offer<'a>,
    out: &mut Vec<u8>,
) -> Outcome<'a> {
    let Some((name, kinds)) = wanted(data) else {
        option_reply(out, kind, reply::ERR_INVALID, b"malformed");
        return Outcome::Next;
    };
    let Some(export) = agreed.find(offer.exports, name) else {
        agreed.unknown(kind, out);
        agreed.refusal = (kind == option::GO).then_some(Refusal::Unknown);
        return Outcome::Next;
    };
    if kind == option::GO && offer.is_full(export) {
        agreed.refusal = Some(Refusal::Full);
        let message = b"this export or its group has as many connections as it may have";
        option_reply(out, kind, reply::ERR_POLICY, message);
        return Outcome::Next;
    }
    let mut tell = |parts: &[&[u8]]| option_reply(out, kind, reply::INFO, &parts.concat());
    let flags = transmission_flags(export, agreed.structured);
    tell(&[&info::EXPORT.to_be_bytes(), &export.size.to_be_bytes(), &flags.to_be_bytes()]);
    if kinds.chunks_exact(2).any(|asked| u16_at(asked, 0) == info::NAME) {
        tell(&[&info::NAME.to_be_bytes(), export.name.as_bytes()]);
    }
    let sizes = [1, BLOCK_PREFERRED, PAYLOAD_MAX].map(u32::to_be_bytes);
    tell(&[&info::BLOCK_SIZE.to_be_bytes(), &sizes[0], &sizes[1], &sizes[2]]);
    option_reply(out, kind, reply::ACK, &[]);
    if kind == option::GO { Outcome::Attach(export) } else { Outcome::Next }
}

/// What a list of queries says of `base:allocation`; `None` when malformed.
fn matches_allocation(set: bool, mut data: &[u8]) -> Option<bool> {
    let (count, rest) = data.split_at_checked(4)?;
    let count = u32_at(count, 0);
    data = rest;
    if count > QUERIES_MAX {
        return None;
    }
    let mut found = count == 0 && !set;
    for _ in 0..count {
        let query = string(&mut data)?;
        found |= query == BASE_ALLOCATION.as_bytes() || (!set && query == b"base:");
    }
    data.is_empty().then_some(found)
}

fn meta_context(
    agreed: &mut Handshake,
    kind: u32,
    mut data: &[u8],
    exports: &Exports,
    out: &mut Vec<u8>,
) {
    let set = kind == option::SET_META_CONTEXT;
    if set {
        // Each SET replaces what was chosen before, whatever becomes of it.
        agreed.allocation_of = None;
        if !agreed.structured {
            return option_reply(
                out,
                kind,
                reply::ERR_INVALID,
                b"negotiate structured replies first",
            );
        }
    }
    let parsed = string(&mut data).and_then(|name| Some((name, matches_allocation(set, data)?)));
    let Some((name, found)) = parsed else {
        return option_reply(out, kind, reply::ERR_INVALID, b"malformed");
    };
    let Some(export) = agreed.find(exports, name) else {
        return agreed.unknown(kind, out);
    };
    if found {
        let id = if set { BASE_ALLOCATION_ID } else { 0 };
        let data = [&id.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()].concat();
        option_reply(out, kind, reply::META_CONTEXT, &data);
        if set {
            agreed.allocation_of = Some(export.name.clone());
        }
    }
    option_reply(out, kind, reply::ACK, &[]);
}
