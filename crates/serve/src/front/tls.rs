//! TLS for any protocol: converts between ciphertext and plaintext, without a socket.
//!
//! The owner puts received bytes into [`Channel::room`], calls [`Channel::open`] to get the plaintext in them, and
//! [`Channel::seal`] to encrypt. Both append the bytes that must be sent to a buffer of the owner; `open` also
//! produces handshake messages and alerts.
//!
//! Memory is bounded: a channel keeps at most [`CIPHER_MAX`] received bytes and returns them as plaintext at once;
//! its own messages go to the owner's buffer at once.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConfig, ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use webpki::EndEntityCert;

use iofair_config::contracts::is_reserved;

/// Limit on kept ciphertext: some records, or one handshake message of up to 64 KiB.
pub(crate) const CIPHER_MAX: usize = 128 << 10;
/// Room for most handshakes; it doubles when a receive fills it.
const CIPHER_MIN: usize = 4 << 10;
/// Plaintext of one record.
pub(crate) const RECORD_MAX: usize = 16 << 10;
/// More than a record adds to its plaintext, with a change of keys before it.
const RECORD_OVERHEAD: usize = 512;
/// Longest record with an alert; see [`ends_with_close_notify`].
pub(crate) const CLOSE_NOTIFY_MAX: usize = ALERTS[2].1;
/// Type and length of an encrypted record with an alert, which has two bytes. In TLS 1.3 (RFC 8446, section 5.2) it looks like
/// data, has a byte for its type and a tag of 16 bytes; in TLS 1.2 the same tag, and for AES-GCM a nonce of 8 bytes.
const ALERTS: [(u8, usize); 3] = [(23, 5 + 2 + 1 + 16), (21, 5 + 2 + 16), (21, 5 + 8 + 2 + 16)];
/// A certificate's names that are looked at.
const NAMES_MAX: usize = 64;

/// One connection's TLS.
pub struct Channel {
    connection: UnbufferedServerConnection,
    cipher: Vec<u8>,
    /// Bytes of `cipher` that came and are not used up.
    filled: usize,
    /// The last receive left no room.
    full: bool,
    established: bool,
    failed: Option<rustls::Error>,
}

/// The state of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The handshake is in progress.
    Handshake,
    /// Both sides may send data.
    Open,
    /// The client sends nothing more.
    Closed,
}

impl Channel {
    /// A channel that waits for the client.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(Self {
            connection,
            cipher: Vec::new(),
            filled: 0,
            full: false,
            established: false,
            failed: None,
        })
    }
    /// Space for the next received bytes; empty only if the client sends something that is not TLS.
    pub fn room(&mut self) -> &mut [u8] {
        if self.full || self.filled == self.cipher.len() {
            self.full = false;
            let size = (2 * self.cipher.len()).clamp(CIPHER_MIN, CIPHER_MAX);
            self.cipher.resize(size, 0);
        }
        &mut self.cipher[self.filled..]
    }
    /// Whether it has more space than an idle client needs.
    pub fn is_large(&self) -> bool {
        self.cipher.len() > CIPHER_MIN
    }
    /// Frees space, unless it contains a part of a record.
    pub fn shrink(&mut self) {
        if self.filled == 0 {
            self.cipher = Vec::new();
        }
    }
    /// Adds received bytes.
    pub fn received(&mut self, count: usize) {
        assert!(count <= self.cipher.len() - self.filled, "more came than there was room for");
        self.filled += count;
        self.full = self.filled == self.cipher.len();
    }
    /// Decrypts all complete records and passes their plaintext to `plain`; TLS's own messages are appended to `out`,
    /// also on failure.
    pub fn open(
        &mut self,
        mut plain: impl FnMut(&[u8]),
        out: &mut Vec<u8>,
    ) -> Result<Stage, rustls::Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        loop {
            let Self { connection, cipher, filled, .. } = self;
            let UnbufferedStatus { mut discard, state } =
                connection.process_tls_records(&mut cipher[..*filled]);
            let (mut stage, mut failed) = (None, None);
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                plain(record.payload);
                            }
                            // What was decrypted before it stays decrypted, so nothing can be read after it.
                            Err(error) => {
                                failed = Some(error);
                                break;
                            }
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::BlockedHandshake) => stage = Some(Stage::Handshake),
                Ok(ConnectionState::WriteTraffic(_)) => stage = Some(Stage::Open),
                // Early data is never offered.
                Ok(_) => stage = Some(Stage::Closed),
                Err(error) => failed = Some(error),
            }
            let used = self.use_up(discard);
            if let Some(error) = failed.or(used.err()) {
                self.failed = Some(error.clone());
                self.tell(out);
                return Err(error);
            }
            if let Some(stage) = stage {
                self.established |= stage == Stage::Open;
                return Ok(stage);
            }
        }
    }
    /// The first bytes that came were processed. That they came at all is the library's word, and a mistake there must
    /// end this connection alone.
    fn use_up(&mut self, count: usize) -> Result<(), rustls::Error> {
        let Some(rest) = self.filled.checked_sub(count) else {
            let message = format!("{count} bytes were processed of {}", self.filled);
            return Err(rustls::Error::General(message));
        };
        self.cipher.copy_within(count..self.filled, 0);
        self.filled = rest;
        Ok(())
    }
    /// The alert with which it failed, if there is one.
    fn tell(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // With something to say nothing is read, so what was wrong is not met again.
            let status = self.connection.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(data)) = status.state else { return };
            encode(data, out);
        }
    }
    /// Encrypts and appends to `out`. All received bytes must have been processed by `open` before.
    pub(crate) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), rustls::Error> {
        self.speak(out, |traffic, room| traffic.encrypt(plain, room), plain.len())
    }
    /// Appends the message that ends the connection.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), rustls::Error> {
        self.speak(out, |traffic, room| traffic.queue_close_notify(room), 0)
    }
    fn speak(
        &mut self,
        out: &mut Vec<u8>,
        mut say: impl FnMut(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
        expected: usize,
    ) -> Result<(), rustls::Error> {
        // A change of keys must be told before what is encrypted with the new ones.
        let stage = self.open(|_| unreachable!("opened before"), out)?;
        let Self { connection, cipher, filled, .. } = self;
        let status = connection.process_tls_records(&mut cipher[..*filled]);
        let discard = status.discard;
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state else {
            return Err(rustls::Error::General(format!("nothing can be said now: {stage:?}")));
        };
        let records = expected.div_ceil(RECORD_MAX).max(1);
        let expected = expected + records * RECORD_OVERHEAD;
        let mut exhausted = false;
        append(out, expected, |room| match say(&mut traffic, room) {
            Err(EncryptError::InsufficientSize(size)) => Err(size.required_size),
            result => {
                exhausted = result.is_err();
                Ok(result.unwrap_or(0))
            }
        });
        self.use_up(discard)?;
        if exhausted { Err(rustls::Error::EncryptError) } else { Ok(()) }
    }
    /// Received bytes that were not decrypted yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.cipher[..self.filled]
    }
    /// Whether the handshake is complete.
    pub(crate) fn is_established(&self) -> bool {
        self.established
    }
    /// The names in the client's certificate, if it presented one.
    pub fn names(&self) -> Vec<String> {
        let certificates = self.connection.peer_certificates().unwrap_or_default();
        certificates.first().map_or_else(Vec::new, names)
    }
}

/// Whether the last of these encrypted bytes are a record with an alert, as far as can be said without the keys: after it, a
/// client sends nothing more.
pub(crate) fn ends_with_close_notify(bytes: &[u8]) -> bool {
    const VERSION: [u8; 2] = [3, 3];
    ALERTS.iter().any(|(kind, length)| {
        let start = bytes.len().checked_sub(*length);
        let record = start.map_or(&[][..], |start| &bytes[start..]);
        let body = (length - 5) as u8;
        record.starts_with(&[*kind, VERSION[0], VERSION[1], 0, body])
    })
}

type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

fn encode(mut data: EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
    append(out, 0, |room| match data.encode(room) {
        Err(EncodeError::InsufficientSize(size)) => Err(size.required_size),
        result => Ok(result.unwrap_or(0)),
    });
}

/// Lets `write` write at the end of `out`, where it finds the room that is expected to do; it says how
/// much it wrote or how much room it needs.
fn append(
    out: &mut Vec<u8>,
    expected: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, usize>,
) {
    let end = out.len();
    out.resize(end + expected, 0);
    let written = match write(&mut out[end..]) {
        Ok(written) => written,
        Err(needed) => {
            out.resize(end + needed, 0);
            write(&mut out[end..]).expect("it has the room that it asked for")
        }
    };
    out.truncate(end + written);
}

/// The common names, DNS names and URIs of a certificate that was verified. A name that says it is
/// something else (a user id) is left out.
pub(crate) fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    let alternative = certificate.valid_dns_names().chain(certificate.valid_uri_names());
    let mut names: Vec<String> = alternative.map(String::from).collect();
    names.extend(common_names(certificate.subject()));
    names.retain(|name| !is_reserved(name));
    names.truncate(NAMES_MAX);
    names
}

/// From when until when a certificate is valid, in seconds since 1970.
pub(crate) fn validity(certificate: &CertificateDer<'_>) -> Option<[u64; 2]> {
    const VERSION: u8 = 0xa0;
    let mut all = certificate.as_ref();
    let (_, mut signed) = element(&mut all)?;
    let (_, mut fields) = element(&mut signed)?;
    let (first, _) = element(&mut fields)?;
    // After a version the serial number; then how it is signed, and by whom.
    for _ in 0..if first == VERSION { 3 } else { 2 } {
        element(&mut fields)?;
    }
    let (_, mut dates) = element(&mut fields)?;
    let [from, until] = [element(&mut dates)?, element(&mut dates)?];
    Some([seconds(from)?, seconds(until)?])
}

/// A time of a certificate: `yymmddhhmmssZ` of this century and the last, or with four digits of the year.
fn seconds((kind, text): (u8, &[u8])) -> Option<u64> {
    const SHORT: u8 = 0x17;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let year = match kind {
        SHORT if text.get(..2)?.parse::<u64>().ok()? >= 50 => "19",
        SHORT => "20",
        _ => "",
    };
    let text = format!("{year}{text}");
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let [hours, minutes, seconds] = [number(8, 10)?, number(10, 12)?, number(12, 14)?];
    let days = days(year, month, day)?;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

/// Days from 1970 to a date.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // Years that begin in March have their odd day at the end.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let leap = year / 4 - year / 100 + year / 400;
    (year * 365 + leap + (153 * month + 2) / 5 + day).checked_sub(719_469)
}

/// The date of a day, counted from 1970: `2030-12-31`.
pub(crate) fn date(day: u64) -> String {
    let first = |year: u64| days(year, 1, 1).unwrap_or(0);
    let year = (1970 + day / 366..).take_while(|year| first(*year) <= day).last().unwrap_or(1970);
    let began = |month: &u64| days(year, *month, 1).is_some_and(|first| first <= day);
    let month = (1..=12).rev().find(began).unwrap_or(1);
    let day = day + 1 - days(year, month, 1).unwrap_or(day);
    format!("{year}-{month:02}-{day:02}")
}

/// The common names of a subject: a list of sets of pairs (kind, text), in DER.
fn common_names(mut subject: &[u8]) -> Vec<String> {
    /// The object identifier 2.5.4.3.
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    const IDENTIFIER: u8 = 0x06;
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    /// UTF-8, printable, and the international alphabet: all of them are UTF-8 too.
    const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
    let mut names = Vec::new();
    while let Some((SET, mut set)) = element(&mut subject) {
        while let Some((SEQUENCE, mut pair)) = element(&mut set) {
            let (kind, value) = (element(&mut pair), element(&mut pair));
            let (Some((IDENTIFIER, COMMON_NAME)), Some((tag, text))) = (kind, value) else {
                continue;
            };
            let text = std::str::from_utf8(text).ok().filter(|_| TEXTS.contains(&tag));
            names.extend(text.map(String::from));
        }
    }
    names
}

/// Splits one element of DER off: its tag and its contents.
fn element<'a>(data: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, length], rest) = data.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    *data = rest;
    Some((tag, contents))
}
