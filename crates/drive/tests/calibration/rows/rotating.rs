//! The measured rows of the hard disks.
//!
//! Drive 2009: files of 2 GiB side by side, 4 KiB direct, 30 s; sources: the tables of "IO scheduler
//! based IO controller V10". Several random readers show the order that the disk itself chooses (CFQ does
//! not idle on seeky queues that the drive can order); sequential ones are served in slices of 100 ms.
//! Indirect blocks are cold unless an earlier row of the same table has read their file: fio begins each run
//! with the same seed (`randrepeat`, on by default), so that a row reads what the rows before have read.
//! Hitachi: files of 500 MiB side by side, the target's last; a buffered reader is two 128 KiB reads in
//! flight and 45 us between them; sources: mails on the block list of August and September 2019 and the
//! comparison of that year.

use std::ops::Range;

use iofair_core::time::{Instant, Nanos};

use super::rotating_host::{Act, Client, Host, client};
use super::row::{Measured, Row};
use iofair_drive::profile;

const OLD: &str = "sata-7200-2009";
const HITACHI: &str = "hitachi-hts727550a9e364";
const STREAMS_FIRST: &str = "hitachi-hts727550a9e364:streams-first";
const SECOND: u64 = 1_000_000_000;
const KIB: f64 = 1024.0;
const NOTHING: &str = "";
/// Indirect blocks of a file of 2 GiB.
const PIECES: usize = 513;

/// Rows of all disks.
pub(super) fn rows(seed: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    random_readers(seed, &mut rows);
    sequential(seed, &mut rows);
    hitachi_readers(seed, &mut rows);
    hitachi_others(seed, &mut rows);
    rows
}

fn run(
    drive: &str,
    seed: u64,
    clients: Vec<Client>,
    slice: Option<u64>,
    window: Range<u64>,
) -> Host {
    let disk = profile::load(drive, seed).expect("an embedded profile");
    let mut host = Host::new(disk, clients, slice.map(Nanos::from_millis), seed);
    host.run(Instant(window.start * SECOND), Instant(window.end * SECOND));
    host
}

fn file_2009(act: Act, index: u64) -> Client {
    client(act, 200 + index * 201, 2048)
}

/// A row's name and unit, the measured number, the hand fit's error, and a note.
type Facts = (&'static str, &'static str, f64, f64, &'static str);

fn row(drive: &'static str, facts: Facts, ours: f64) -> Row {
    let (name, unit, measured, reference, note) = facts;
    Row { drive, name, unit, measured: Measured::Value(measured), ours, reference, note }
}

fn random_readers(seed: u64, rows: &mut Vec<Row>) {
    let table: [(u64, Facts); 5] = [
        (
            1,
            (
                "1 random reader",
                "KiB/s",
                484.0,
                -1.0,
                "seek over 0.67 GB, all indirect blocks cold",
            ),
        ),
        (2, ("2 random readers", "KiB/s", 425.0, 1.0, "seek over 2 GB, half cold")),
        (4, ("4 random readers", "KiB/s", 405.0, 0.0, "nearest first with ageing, half cold")),
        (8, ("8 random readers", "KiB/s", 399.0, -2.0, "the same")),
        (16, ("16 random readers", "KiB/s", 328.0, 11.0, "the same")),
    ];
    for (n, facts) in table {
        let readers = (0..n).map(|index| {
            let mut reader = file_2009(Act::RandomRead, index);
            reader.cold = (index >= n / 2).then(|| vec![true; PIECES]);
            reader
        });
        let host = run(OLD, seed, readers.collect(), None, 0..30);
        rows.push(row(OLD, facts, host.rate(0..n as usize, 30) / KIB));
    }
}

fn sequential(seed: u64, rows: &mut Vec<Row>) {
    let lost = "a lost revolution at each return to a stream";
    let table: [(u64, Act, Facts); 8] = [
        (
            1,
            Act::SequentialRead,
            ("1 sequential reader", "KiB/s", 35_499.0, -1.0, "host, electronics, bus"),
        ),
        (2, Act::SequentialRead, ("2 sequential readers in slices", "KiB/s", 30_690.0, -1.0, lost)),
        (4, Act::SequentialRead, ("4 sequential readers in slices", "KiB/s", 29_411.0, 3.0, lost)),
        (8, Act::SequentialRead, ("8 sequential readers in slices", "KiB/s", 29_312.0, 3.0, lost)),
        (
            16,
            Act::SequentialRead,
            ("16 sequential readers in slices", "KiB/s", 28_921.0, 4.0, lost),
        ),
        (
            1,
            Act::SequentialWrite,
            ("1 sequential writer", "KiB/s", 22_669.0, 0.0, "host, electronics, bus"),
        ),
        (
            4,
            Act::SequentialWrite,
            ("4 sequential writers in slices", "KiB/s", 23_174.0, -2.0, NOTHING),
        ),
        (
            16,
            Act::SequentialWrite,
            ("16 sequential writers in slices", "KiB/s", 20_601.0, 10.0, NOTHING),
        ),
    ];
    for (n, act, facts) in table {
        let clients = (0..n).map(|index| {
            let mut client = file_2009(act, index);
            if act == Act::SequentialWrite {
                client.turnaround = Nanos::from_micros(36);
            }
            client
        });
        let slice = (n > 1).then_some(100);
        let host = run(OLD, seed, clients.collect(), slice, 0..30);
        rows.push(row(OLD, facts, host.rate(0..n as usize, 30) / KIB));
    }
}

/// Where the first file of the Hitachi lies, in hundredths of a GiB.
const BASE: u64 = 930;

fn file_hitachi(act: Act, index: u64) -> Client {
    client(act, BASE + index * 50, 500)
}

/// `n` buffered sequential readers and the random target.
fn beside_buffered(n: u64) -> Vec<Client> {
    let buffered = (0..n).map(|index| {
        let mut reader = file_hitachi(Act::SequentialRead, index);
        (reader.block, reader.depth, reader.turnaround) = (256, 2, Nanos::from_micros(45));
        reader
    });
    buffered.chain([file_hitachi(Act::RandomRead, n)]).collect()
}

fn hitachi_readers(seed: u64, rows: &mut Vec<Row>) {
    let mib = |host: &Host| host.rate(0..8, 60) / KIB / KIB;
    let host = run(HITACHI, seed, beside_buffered(7), None, 5..65);
    let facts = ("N=7: total", "MiB/s", 11.53, 8.0, "in order of arrival, 10.1 ms a command");
    rows.push(row(HITACHI, facts, mib(&host)));
    let facts = ("N=7: target's latency", "ms", 154.0, -8.0, "15 commands");
    rows.push(row(HITACHI, facts, host.mean_ms(7)));
    let host = run(HITACHI, seed, beside_buffered(7), Some(125), 5..65);
    let facts = ("slices, N=7: total", "MiB/s", 76.64, -7.0, "measured under BFQ");
    rows.push(row(HITACHI, facts, mib(&host)));
    let facts = ("slices, N=7: target", "MB/s", 0.067, -10.0, "measured under BFQ");
    rows.push(row(HITACHI, facts, host.rate(7..8, 60) / KIB / 1000.0));
}

fn hitachi_others(seed: u64, rows: &mut Vec<Row>) {
    let others = |act: Act| (0..15).map(move |index| file_hitachi(act, index));
    let target = || [file_hitachi(Act::RandomRead, 15)];
    let direct = others(Act::SequentialRead).chain(target()).collect();
    let host = run(HITACHI, seed, direct, None, 0..10);
    let note = "measured under io.latency, not without control";
    let facts = ("15 direct readers: target's latency", "ms", 118.0, 37.0, note);
    rows.push(row(HITACHI, facts, host.mean_ms(15)));
    let writers = others(Act::WriteAndFlush).chain(target()).collect();
    let host = run(HITACHI, seed, writers, None, 0..10);
    let note = "a flush writes 15 scattered blocks in the order of seek and rotation";
    let facts = ("15 fdatasync writers: target's latency", "ms", 56.0, 91.0, note);
    rows.push(row(HITACHI, facts, host.mean_ms(15)));
    let in_order = "nothing in order of arrival waits longer than 31 commands";
    let streams =
        "streams first in a deep queue until a command is 4.5 s old: this row alone fixes the age";
    for (drive, note) in [(HITACHI, in_order), (STREAMS_FIRST, streams)] {
        let host = run(drive, seed, beside_buffered(15), None, 0..10);
        let facts = ("N=15: target's latency", "ms", 4_500.0, -94.0, note);
        rows.push(row(drive, facts, host.mean_ms(15)));
    }
}
