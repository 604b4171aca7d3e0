//! Memory of writer and readers does not grow with the trace. The only test of its program, because it counts all
//! allocations.
#![allow(clippy::unwrap_used)]

use std::alloc::System;
use std::io::{BufReader, Read};

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_trace::input::Input;
use iofair_trace::record::{Completion, Metadata, Record, Stream};
use iofair_trace::write::Writer;
use iofair_trace::{Source, formats};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that are allocated at the end, beside those at the beginning.
fn kept(region: &Region<'_, System>) -> i64 {
    let change = region.change();
    change.bytes_allocated as i64 - change.bytes_deallocated as i64
}

/// Bytes that a writer has after this many requests, and those of the file.
fn written(requests: u64) -> (i64, u64) {
    let region = Region::new(ALLOCATOR);
    let mut writer = Writer::new(std::io::sink(), "test", &Metadata::default()).unwrap();
    writer.add_stream(&Stream::default());
    for number in 0..requests {
        let completion = Some(Completion { latency: Nanos(number % 9999), failed: false });
        let (operation, flags) = (Operation::Read, Flags::NONE);
        let offset = number.wrapping_mul(0x9e37_79b9) % (1 << 30) * 512;
        let (at, stream, length) = (Instant(number * 1000), 0, 4096);
        let record = Record { at, stream, operation, flags, offset, length, completion };
        writer.push(&record).unwrap();
    }
    (kept(&region), writer.bytes())
}

/// Lines of a format without end; the reader takes as many as it wants.
struct Endless {
    line: &'static [u8],
    at: usize,
}

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        for byte in into.iter_mut() {
            *byte = self.line[self.at];
            self.at = (self.at + 1) % self.line.len();
        }
        Ok(into.len())
    }
}

/// Bytes that a reader of a format has after this many requests.
fn read(format: &str, line: &'static [u8], requests: u64) -> i64 {
    let region = Region::new(ALLOCATOR);
    let endless = BufReader::new(Endless { line, at: 0 });
    let input = Input::new(Box::new(endless), "endless").unwrap();
    let mut source = formats::find(format).expect("there is one").open(vec![input]).unwrap();
    (0..requests).for_each(|_| assert!(source.next_record().unwrap().is_some()));
    kept(&region)
}

/// Goal: see above. Method: what is allocated after few and after many requests; blkparse with requests that are never
/// completed, the worst case of its window.
#[test]
fn memory_does_not_grow_with_the_trace() {
    let ((few, _), (many, bytes)) = (written(10_000), written(1_000_000));
    assert!(bytes > 8_000_000, "{bytes} bytes went through");
    assert!(many < few + (64 << 10), "{few} and {many} bytes");
    for (format, line) in [
        ("alibaba", &b"3,R,4096,4096,1577808000000046\n"[..]),
        ("msr", b"128166372003061629,hm,1,Read,383496192,32768,413\n"),
        ("blkparse", b"8,0 0 1 0.5 7 Q R 64 + 8 [a]\n"),
    ] {
        let (few, many) = (read(format, line, 100_000), read(format, line, 400_000));
        assert!(many < few + (4 << 20), "{format}: {few} and {many} bytes");
    }
}
