//! Our own format: what is written is read; a torn end loses the last block only; bytes in any order are an error or an
//! end, never a crash.

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_trace::block::PAYLOAD_MAX;
use iofair_trace::formats;
use iofair_trace::input::Input;
use iofair_trace::read::{DROPPED, Reader, TORN};
use iofair_trace::record::{Completion, Metadata, Record, Stream};
use iofair_trace::write::Writer;
use iofair_trace::{Source, TraceError};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

struct Chance(Xoshiro256PlusPlus);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }
    /// A number of any size, often at an edge.
    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => u64::MAX - self.below(3),
            2 => self.below(1 << 20) * 512,
            3 => self.below(1 << 20),
            _ => self.0.next_u64() >> self.below(64),
        }
    }
    fn record(&mut self, streams: u64) -> Record {
        use Operation::{Discard, Flush, Read, Write, WriteZeroes};
        let operation = [Read, Write, Flush, Discard, WriteZeroes][self.below(5) as usize];
        let mut flags = Flags::NONE;
        for flag in [Flags::FUA, Flags::SYNC, Flags::METADATA, Flags::READ_AHEAD] {
            flags = if self.below(2) == 0 { flags.with(flag) } else { flags };
        }
        let completion = Completion { latency: Nanos(self.number()), failed: self.below(9) == 0 };
        Record {
            at: Instant(self.number()),
            stream: self.below(streams) as u32,
            operation,
            flags,
            offset: self.number(),
            length: self.number(),
            completion: (self.below(3) > 0).then_some(completion),
        }
    }
}

fn stream(number: u32) -> Stream {
    Stream { name: format!("volume {number}"), group: "tenants/a".into(), volume: number % 3 }
}

fn metadata() -> Metadata {
    Metadata::default().with(Metadata::STACK, "promise").with(Metadata::CAPACITY, "1073741824")
}

fn written(records: &[Record], streams: u32) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), "test", &metadata()).unwrap();
    (0..streams).for_each(|number| assert_eq!(writer.add_stream(&stream(number)), Some(number)));
    records.iter().for_each(|record| writer.push(record).unwrap());
    writer.finish().unwrap()
}

/// All requests, and whether the end was there.
fn read(bytes: &[u8]) -> Result<(Vec<Record>, bool), TraceError> {
    let mut reader = Reader::new(bytes, "test")?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        assert!((record.stream as usize) < reader.streams().len());
        records.push(record);
    }
    assert!(reader.next_record()?.is_none(), "the end stays");
    let torn = reader.is_torn();
    assert_eq!(reader.notes().count_of(TORN), u64::from(torn));
    Ok((records, torn))
}

/// Goal: every request survives, whatever its numbers, in whatever order. Method: random requests of random numbers of
/// streams over 64 seeds; times go back as well.
#[test]
fn what_is_written_is_read() {
    for seed in 0..64 {
        let mut chance = Chance::new(seed);
        let streams = 1 + chance.below(300) as u32;
        let count = chance.below(6000);
        let records: Vec<_> = (0..count).map(|_| chance.record(u64::from(streams))).collect();
        let bytes = written(&records, streams);
        let (back, torn) = read(&bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(back == records && !torn, "seed {seed}");
        let reader = Reader::new(bytes.as_slice(), "test").unwrap();
        assert_eq!(reader.metadata(), metadata());
    }
}

/// Goal: a trace that was put behind another one is not lost in silence, and names are what may be printed. Method: two traces in
/// one file; a name with an escape.
#[test]
fn nothing_is_behind_the_end() {
    let one = written(&plausible(10), 4);
    let format = formats::find("iofair").unwrap();
    let open = |bytes: Vec<u8>| {
        let input = Input::new(Box::new(std::io::Cursor::new(bytes)), "test").unwrap();
        format.open(vec![input]).unwrap()
    };
    let mut twice = open([one.clone(), one].concat());
    let error = loop {
        match twice.next_record() {
            Ok(record) => assert!(record.is_some(), "the second one is not seen"),
            Err(error) => break error.to_string(),
        }
    };
    let wanted = ": bytes behind the end of the trace; several traces are several files";
    assert!(error.starts_with("test: byte ") && error.ends_with(wanted), "{error}");
    let mut writer = Writer::new(Vec::new(), "test", &metadata()).unwrap();
    let (name, group) = ("a\u{1b}[2J".to_owned(), "g\u{7}".to_owned());
    writer.add_stream(&Stream { name, group, volume: 0 }).unwrap();
    writer.push(&Record { stream: 0, ..plausible(1)[0] }).unwrap();
    let mut named = open(writer.finish().unwrap());
    named.next_record().unwrap().unwrap();
    assert_eq!(
        (&named.streams()[0].name[..], &named.streams()[0].group[..]),
        ("a\\u{1b}[2J", "g\\u{7}")
    );
}

/// A plausible load: random requests of 4 KiB, some microseconds apart, with completions.
fn plausible(count: u64) -> Vec<Record> {
    let mut chance = Chance::new(1);
    let mut at = 1_700_000_000_000_000_000;
    let mut record = || {
        at += chance.below(100_000);
        Record {
            at: Instant(at),
            stream: chance.below(4) as u32,
            operation: Operation::Read,
            flags: Flags::NONE,
            offset: chance.below(1 << 28) * 4096,
            length: 4096,
            completion: Some(Completion { latency: Nanos(chance.below(1 << 20)), failed: false }),
        }
    };
    (0..count).map(|_| record()).collect()
}

/// Goal: the format is compact. Method: bytes of a random request, which is the worst plausible one.
#[test]
fn a_random_request_takes_fourteen_bytes() {
    let bytes = written(&plausible(100_000), 4).len();
    assert!(bytes < 1_400_000, "{bytes} bytes for 100000 requests");
    assert!(bytes > 800_000, "{bytes} bytes: what was measured here?");
}

/// Goal: a torn end loses at most the last block, and is told. Method: every kind of cut of a trace of several blocks,
/// with and without zeroes behind it.
#[test]
fn a_torn_end_loses_the_last_block_only() {
    let records = plausible(10_000);
    let whole = written(&records, 4);
    let mut chance = Chance::new(3);
    let per_block = 32 << 10;
    let mut shortest = usize::MAX;
    for _ in 0..300 {
        let cut = 200 + chance.below(whole.len() as u64 - 200) as usize;
        let zeroes = chance.below(2) as usize * chance.below(9000) as usize;
        let mut bytes = whole[..cut].to_vec();
        bytes.resize(cut + zeroes, 0);
        let (back, torn) = match read(&bytes) {
            Ok(read) => read,
            // Zeroes complete the torn block, and more follow: its checksum tells, with the place.
            Err(error) => {
                assert!(zeroes > 0, "cut at {cut}: {error}");
                assert!(error.to_string().contains("test: byte "), "{error}");
                continue;
            }
        };
        assert!(torn, "cut at {cut} of {}", whole.len());
        assert_eq!(back, records[..back.len()]);
        // A request has at least 8 bytes here.
        assert!(back.len() + per_block / 8 >= cut / 15, "{} of {cut} bytes", back.len());
        shortest = shortest.min(back.len());
    }
    assert!(shortest < 5_000, "some cuts were early");
}

/// Goal: no bytes crash the reader, and errors have a place. Method: a good trace with random changes of bytes, and random
/// bytes behind a good header; canary: some changes must be detected, none may give other requests.
#[test]
fn broken_bytes_are_errors() {
    let records: Vec<_> = {
        let mut chance = Chance::new(5);
        (0..3000).map(|_| chance.record(7)).collect()
    };
    let whole = written(&records, 7);
    let (mut errors, mut ends) = (0, 0);
    for seed in 0..2000 {
        let mut chance = Chance::new(1000 + seed);
        let mut bytes = whole.clone();
        for _ in 0..1 + chance.below(3) {
            let at = chance.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 + chance.below(255) as u8;
        }
        match read(&bytes) {
            Ok((back, torn)) => {
                assert_eq!(back, records[..back.len()], "seed {seed}");
                ends += u32::from(torn);
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with("test: byte "), "seed {seed}: {text}");
                errors += 1;
            }
        }
    }
    assert!(errors > 1000 && ends > 0, "{errors} errors, {ends} torn");
    for seed in 0..2000 {
        let mut chance = Chance::new(5000 + seed);
        let mut bytes = whole[..16].to_vec();
        bytes.extend((0..chance.below(400)).map(|_| chance.below(256) as u8));
        let _ = read(&bytes);
    }
}

/// Goal: payloads that lie about themselves are errors though their checksum is right. Method: bytes in any order as the
/// payload of each kind of block.
#[test]
fn lying_payloads_are_errors() {
    let mut refused = 0;
    for seed in 0..4000 {
        let mut chance = Chance::new(seed);
        let mut bytes = written(&[], 0);
        bytes.truncate(bytes.len() - 18);
        let payload: Vec<u8> = (0..chance.below(60)).map(|_| chance.below(256) as u8).collect();
        let mut header = [0; 16];
        header[0] = b"MSRDE?"[chance.below(6) as usize];
        header[4] = payload.len() as u8;
        header[8] = chance.below(9) as u8;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &payload);
        header[12..].copy_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&payload);
        refused += u32::from(read(&bytes).is_err());
    }
    assert!(refused > 2000, "{refused} of 4000");
}

/// Goal: errors say what was wrong. Method: one file of each kind.
#[test]
fn errors_say_what_was_wrong() {
    let whole = written(&plausible(10), 4);
    let told = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(told(b"").contains("does not begin with IOFTRACE"));
    let mut later = whole.clone();
    later[8] = 9;
    assert_eq!(told(&later), "test: byte 0: the trace has version 9; this program reads 1");
    let mut huge = whole.clone();
    huge[16 + 7] = 255;
    assert!(told(&huge).contains(&format!("at most {PAYLOAD_MAX}")), "{}", told(&huge));
    let mut end = whole.clone();
    let last = end.len();
    end[last - 1] ^= 1;
    assert!(read(&end).unwrap().1, "a bad last block is a torn end");
    let mut twice = whole.clone();
    twice.extend_from_slice(&whole);
    assert_eq!(read(&twice).unwrap().0.len(), 10, "what follows the end is not read");
}

/// Goal: drops are told. Method: some between requests.
#[test]
fn dropped_requests_are_counted() {
    let mut writer = Writer::new(Vec::new(), "test", &metadata()).unwrap();
    writer.add_stream(&stream(0));
    let record = Record { stream: 0, ..plausible(1)[0] };
    writer.push(&record).unwrap();
    writer.drop_requests(3);
    writer.flush().unwrap();
    writer.drop_requests(4);
    writer.push(&record).unwrap();
    assert_eq!(writer.counts(), (2, 7));
    let bytes = writer.finish().unwrap();
    let mut reader = Reader::new(bytes.as_slice(), "test").unwrap();
    while reader.next_record().unwrap().is_some() {}
    assert_eq!(reader.notes().count_of(DROPPED), 7);
}
