//! The public formats: a sample of each is read as what it is, compressed too, and broken ones are errors with a file and
//! a line.

use std::path::{Path, PathBuf};

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_trace::clean::{self, Clean};
use iofair_trace::formats::{self, TABLE};
use iofair_trace::input::Input;
use iofair_trace::{Options, Record, Source, open};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Every request of a trace, and the names of its streams.
fn all(names: &[&str]) -> (Vec<Record>, Vec<String>) {
    let options = Options {
        paths: names.iter().map(|name| data(name)).collect(),
        format: None,
        columns: None,
    };
    let mut source = open(&options).unwrap_or_else(|error| panic!("{error}"));
    let mut records = Vec::new();
    while let Some(record) = source.next_record().unwrap_or_else(|error| panic!("{error}")) {
        records.push(record);
    }
    (records, source.streams().iter().map(|stream| stream.name.clone()).collect())
}

fn from_text(text: &[u8], format: &str) -> Result<Vec<Record>, String> {
    let format = formats::find(format).expect("there is one");
    let input = Input::new(Box::new(std::io::Cursor::new(text.to_vec())), "broken");
    let input = input.map_err(|error| error.to_string())?;
    let mut source = format.open(vec![input]).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    while let Some(record) = source.next_record().map_err(|error| error.to_string())? {
        records.push(record);
    }
    Ok(records)
}

/// Goal: each sample is recognised, and read to its end. Method: number of requests, reads among them, bytes, and streams
/// by the lines of the samples, counted by other means (awk).
#[test]
fn every_sample_is_read() {
    for (name, requests, streams) in [
        ("msr.csv", 48, &["web.0", "prn.1"][..]),
        ("alibaba.csv", 40, &["419", "725"]),
        ("tencent.csv", 40, &["1283", "1284"]),
        ("fiu.txt", 40, &["httpd.4892", "kjournald.2522"]),
        ("spc.csv", 40, &["0", "1"]),
        ("systor.csv", 40, &["0", "1"]),
        ("iolog-v2.txt", 38, &["/data/a", "/data/b"]),
        ("iolog-v3.txt", 37, &["/data/a", "/data/b"]),
        ("disksim.txt", 40, &["0", "1"]),
        ("table.csv", 40, &["postgres.812", "backup.977"]),
    ] {
        let (records, mut names) = all(&[name]);
        let mut streams: Vec<_> = streams.iter().map(|name| name.to_string()).collect();
        streams.sort();
        names.sort();
        assert_eq!((records.len(), &names), (requests, &streams), "{name}");
        let reads = records.iter().filter(|record| record.operation == Operation::Read).count();
        assert!(reads > 10 && reads < 40, "{name}: {reads} reads");
        for record in &records {
            match record.operation {
                Operation::Write => assert_eq!(record.length, 65_536, "{name}"),
                Operation::Read => assert!([4096, 8192, 16_384].contains(&record.length), "{name}"),
                _ => {}
            }
        }
        let span = records[records.len() - 1].at.0 - records[0].at.0;
        let seconds = if name == "tencent.csv" { 3..9 } else { 0..1 };
        assert!(seconds.contains(&(span / 1_000_000_000)), "{name}: {span} ns");
    }
}

/// Goal: units are right. Method: first lines of the samples, by hand.
#[test]
fn units_are_those_of_the_descriptions() {
    let first = |text: &str, format: &str| from_text(text.as_bytes(), format).unwrap()[0];
    let msr = first("128166372003061629,hm,1,Read,383496192,32768,413\n", "msr");
    assert_eq!(msr.at, Instant(12_816_637_200_306_162_900));
    assert_eq!(msr.completion.unwrap().latency, Nanos(41_300));
    assert_eq!((msr.offset, msr.length), (383_496_192, 32_768));
    let alibaba = first("3,W,1024,512,1577808000000046\n", "alibaba");
    assert_eq!(alibaba.at, Instant(1_577_808_000_000_046_000));
    let tencent = first("1538323200,12910952,128,0,1063\n", "tencent");
    assert_eq!((tencent.offset, tencent.length), (12_910_952 * 512, 65_536));
    let fiu = first("89967404549 26 pdflush 7 8 W 6 0 93a1\n", "fiu");
    assert_eq!((fiu.at, fiu.offset, fiu.length), (Instant(89_967_404_549), 3584, 4096));
    let spc = first("0,20941264,8192,W,0.551706\n", "spc");
    assert_eq!((spc.at, spc.offset), (Instant(551_706_000), 20_941_264 * 512));
    let systor = first("1455592552.123456789,0.000750,R,3,4096,8192\n", "systor");
    assert_eq!(systor.at, Instant(1_455_592_552_123_456_789));
    assert_eq!(systor.completion.unwrap().latency, Nanos(750_000));
    let v3 = first("fio version 3 iolog\n1500 /dev/sdb read 4096 512\n", "iolog");
    assert_eq!((v3.at, v3.offset, v3.length), (Instant(1_500_000), 4096, 512));
    let v2 = first("fio version 2 iolog\n/f wait 200\n/f wait 50\n/f trim 0 4096\n", "iolog");
    assert_eq!((v2.at, v2.operation), (Instant(250_000), Operation::Discard));
}

/// Goal: quotes around fields do not count, with a header and without. Method: a line of a collection as spreadsheets write it.
#[test]
fn quoted_collections_are_read() {
    let line = "\"128166372003061629\",\"hm\",\"1\",\"Read\",\"4096\",\"512\",\"413\"\n";
    let names = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
    let header = format!("\"{}\"\n", names.replace(',', "\",\""));
    for text in [line.to_owned(), header + line] {
        let input = Input::new(Box::new(std::io::Cursor::new(text.clone())), "quoted").unwrap();
        assert_eq!(formats::recognise(&input).unwrap().name, "msr", "{text}");
        let records = from_text(text.as_bytes(), "msr").unwrap();
        assert_eq!((records[0].offset, records[0].length), (4096, 512));
    }
}

/// Goal: events become requests with their completions; binary and text agree. Method: both samples; the latency of a
/// request that completes in two commands ends with the second one; and one command that completes two requests.
#[test]
fn events_become_requests() {
    let (text, names) = all(&["blkparse.txt"]);
    assert_eq!(text.len(), 31);
    assert!(names.contains(&"fio.4321".into()) && names.contains(&"kworker/u8:1.4322".into()));
    assert!(text.iter().all(|record| record.completion.is_some()));
    let flush = text.iter().find(|record| record.length == 0).expect("there is one");
    assert_eq!(flush.completion.unwrap().latency, Nanos(900_000));
    assert_eq!(flush.operation, Operation::Flush);
    let (binary, _) = all(&["sdb.blktrace.0", "sdb.blktrace.1"]);
    let told = |record: &Record| (record.at, record.offset, record.length, record.completion);
    assert_eq!(
        text.iter().map(told).collect::<Vec<_>>(),
        binary.iter().map(told).collect::<Vec<_>>()
    );
    let is_write = |record: &&Record| record.operation == Operation::Write && record.length > 0;
    let write = text.iter().find(is_write).unwrap();
    assert!(write.flags.has(Flags::SYNC));
    let (half, _) = all(&["sdb.blktrace.0"]);
    assert!(half.iter().any(|one| one.completion.is_none()), "one file has half of the events");
    let merged = "8,0 0 1 0.000000000 7 Q W 0 + 8 [a]\n\
        8,0 0 2 0.000010000 7 Q W 8 + 8 [a]\n\
        8,0 0 3 0.000012000 7 M W 8 + 8 [a]\n\
        8,0 0 4 0.001000000 0 C W 0 + 16 [5]\n";
    let merged = from_text(merged.as_bytes(), "blkparse").unwrap();
    let latencies: Vec<_> = merged.iter().map(|one| one.completion.unwrap().latency.0).collect();
    assert_eq!(latencies, [1_000_000, 990_000]);
    assert!(merged.iter().all(|record| record.completion.unwrap().failed));
    let issued = "8,0 0 1 0.5 7 D R 64 + 8 [a]\n8,0 0 2 0.6 0 C R 64 + 8 [0]\n";
    let issued = from_text(issued.as_bytes(), "blkparse").unwrap();
    assert_eq!(issued[0].completion.unwrap().latency, Nanos(100_000_000));
}

/// Goal: files of one trace are merged by time, and their volumes stay apart. Method: two samples with times far apart, and
/// one twice.
#[test]
fn several_files_are_one_trace() {
    let (twice, names) = all(&["msr.csv", "msr.csv.gz"]);
    assert_eq!((twice.len(), names.len()), (96, 2), "the same volumes in both");
    assert!(twice.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let twice = Options { paths: vec!["-".into(); 2], ..Options::default() };
    let error = open(&twice).err().expect("it can be read once").to_string();
    assert!(error.contains("standard input can be read only once"), "{error}");
    let options =
        Options { paths: vec![data("msr.csv"), data("spc.csv")], format: None, columns: None };
    let error = open(&options).err().expect("not together").to_string();
    assert!(error.contains("msr files and spc files"), "{error}");
}

/// Goal: an error names the file, the line, and what was wrong. Method: broken lines of every text format.
#[test]
fn errors_have_lines() {
    for (format, text, wanted) in [
        ("msr", "1,h,0,Read,0,512,9\n2,h,0,Peek,0,512,9\n", "broken:2: type `Peek`: neither"),
        ("msr", "1,h,0,Read,0\n", "broken:1: the size is missing"),
        ("msr", "999999999999999999,h,0,Read,0,1,1\n", "broken:1: timestamp `9999999999"),
        ("alibaba", "1,R,0,512,7\n\n1,R,-5,512,7\n", "broken:3: offset `-5`: not a whole number"),
        ("alibaba", "1,R,0,512,7,8\n", "broken:1: `8` is one field too many"),
        ("tencent", "1,0,8,2,9\n", "broken:1: type `2`: 0 is a read and 1 a write"),
        ("tencent", "1,99999999999999999,8,1,9\n", "broken:1: offset 99999999999999999: too large"),
        ("fiu", "1 2 p 3 8 W 6\n", "broken:1: the minor number is missing"),
        ("spc", "0,1,512,r,1e5\n", "broken:1: timestamp `1e5`: not a number of seconds"),
        ("systor", "Timestamp,Response\n1.5,x,R,0,0,512\n", "broken:2: response `x`"),
        ("iolog", "fio version 4 iolog\n", "broken:1: the first line must be"),
        ("iolog", "fio version 3 iolog\n0 f wait 5\n", "broken:2: action `wait`: version 3"),
        ("iolog", "fio version 2 iolog\nf fly 5\n", "broken:2: action `fly`: allowed are"),
        ("blkparse", "8,0 0 1 0.1 7 Q R x + 8 [a]\n", "broken:1: sector `x`: not a whole number"),
        ("blkparse", "8,0 0 1 0.1 7 Q R 5 + [a]\n", "broken:1: the number of sectors is missing"),
        (
            "blkparse",
            "8,0 0 1 0.1 7 Q R 5 + 8\n",
            "broken:1: the process or error in [] is missing",
        ),
        ("blkparse", "8,0 0 1 0.1 7 Q R 5 8 [a]\n", "broken:1: `8` behind the sector: not `+`"),
        ("disksim", "1.5 0 8 8 write\n", "broken:1: flags `write`: allowed are hexadecimal"),
        ("mqsim", "15 0 8 8 2\n", "broken:1: flags `2`: allowed are 0 for a write, 1 for a read"),
        ("csv", "time_s,op,lba,len\n1,R,0\n", "broken:2: 3 fields; the header has 4"),
        ("csv", "time,op,lba,len\n1,R,0,8\n", "broken:2: time `1`: its unit is not known"),
        ("csv", "time_s,op,lba,len\n1,up,0,8\n", "broken:2: operation `up`: allowed are read"),
        ("csv", "time_s,op,lba,len\n1,R,x,8\n", "broken:2: offset `x`: not a number of bytes"),
        ("csv", "1,R,0,8\n", "broken:1: no column has the time; name it with --columns"),
        ("blktrace", "aaaa", "broken"),
    ] {
        match from_text(text.as_bytes(), format) {
            Err(error) => assert!(error.starts_with(wanted), "{format}: {error}"),
            Ok(records) => assert!(format == "blktrace" && records.is_empty(), "{format}: {text}"),
        }
    }
    let long = vec![b'1'; 1 << 20];
    let error = from_text(&long, "msr").unwrap_err();
    assert!(error.starts_with("broken:1: the line has more than 65536 bytes; the line is `111"));
    let error = from_text(b"1,\xff,0\n", "msr").unwrap_err();
    assert_eq!(error, "broken:1: the line is not UTF-8; the line is `1,\\xff,0`");
    let unknown = Input::new(Box::new(&b"hello\n"[..]), "greeting").unwrap();
    let error = formats::recognise(&unknown).unwrap_err().to_string();
    let wanted = "greeting:1: the format was not recognised; --format names it: iofair, msr";
    assert!(error.starts_with(wanted) && error.ends_with("; the line is `hello`"), "{error}");
}

/// Goal: a number that is too large is called so, and two columns of one name are refused. Method: tables and the formats with decimal
/// times; numbers beyond 64 bits.
#[test]
fn too_large_and_ambiguous_are_told() {
    for (format, text, wanted) in [
        (
            "csv",
            "time_ns,op,lba,len\n18446744073709551616,R,0,8\n",
            "broken:2: time `18446744073709551616`: too large",
        ),
        (
            "csv",
            "time_us,op,lba,len\n18446744073709551615,R,0,8\n",
            "broken:2: time `18446744073709551615`: too large",
        ),
        ("csv", "time_s,op,lba,len\n1e400,R,0,8\n", "broken:2: time `1e400`: too large"),
        (
            "csv",
            "time_s,op,lba,len\n1,R,99999999999999999999,8\n",
            "broken:2: offset `99999999999999999999`: too large",
        ),
        (
            "csv",
            "time_s,op,lba,len\n1,R,0xffffffffffffffff,8\n",
            "broken:2: offset `0xffffffffffffffff`: too large",
        ),
        ("csv", "time_s,op,lba,len\n1,R,0xg,8\n", "broken:2: offset `0xg`: not a number of bytes"),
        ("spc", "0,1,512,r,99999999999\n", "broken:1: timestamp `99999999999`: too large"),
        (
            "systor",
            "Timestamp,Response\n1.5,99999999999,R,0,0,512\n",
            "broken:2: response `99999999999`: too large",
        ),
        (
            "disksim",
            "99999999999999999 0 8 8 1\n",
            "broken:1: arrival time `99999999999999999`: too large",
        ),
        (
            "csv",
            "time_s,op,lba,size,Size\n1,R,0,8,9\n",
            "broken:2: 2 columns are called `size`: choose one by its number, as in --columns size=4",
        ),
        ("csv", "time_s,pid,op,lba,len,pid\n1,1,R,0,8,2\n", "broken:2: 2 columns are called `pid`"),
    ] {
        let error = from_text(text.as_bytes(), format).unwrap_err();
        assert!(error.starts_with(wanted), "{format}: {error}");
    }
}

/// Goal: no file crashes a reader. Method: every sample with random changes, read as every format.
#[test]
fn broken_samples_are_errors() {
    let names =
        ["msr.csv", "msr.csv.zst", "msr.csv.gz", "fiu.txt", "blkparse.txt", "sdb.blktrace.0"];
    let mut state = 7_u64;
    let mut chance = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut errors = 0;
    for name in names.iter().cycle().take(600) {
        let mut bytes = std::fs::read(data(name)).unwrap();
        for _ in 0..1 + chance(4) {
            let at = chance(bytes.len());
            bytes[at] = chance(256) as u8;
        }
        bytes.truncate(1 + chance(bytes.len()));
        let format = TABLE[chance(TABLE.len())].name;
        errors += u32::from(from_text(&bytes, format).is_err());
    }
    assert!(errors > 300, "{errors} of 600");
}

/// Goal: a hostile trace is played within bounds, and everything that is done to it is counted. Method: times that go
/// back, no bytes, 4 GiB, addresses beyond the drive, a time in another millennium.
#[test]
fn hostile_requests_are_repaired_or_skipped() {
    let text = "1,R,0,4096,100\n1,R,8192,4096,50\n1,W,0,0,200\n1,R,0,4294967296,300\n\
        1,W,1099511627776,4096,400\n2,R,0,4096,18446744073709551\n2,R,1000,1,500\n";
    let input = Input::new(Box::new(text.as_bytes()), "hostile").unwrap();
    let source = formats::find("alibaba").unwrap().open(vec![input]).unwrap();
    let capacity = Sectors(1 << 21);
    let mut clean = Clean::new(source, capacity);
    let mut played = Vec::new();
    while let Some(playable) = clean.next_request().unwrap() {
        assert!(playable.start.0 + playable.length.0 <= capacity.0);
        played.push((playable.record.at.0, playable.length.0));
    }
    assert_eq!(played[..3], [(0, 8), (0, 8), (300_000, 8)]);
    assert_eq!(played[3].1, 1, "one byte is in one sector");
    let notes = clean.notes();
    let counts = [clean::BACKWARDS, clean::EMPTY, clean::LONG, clean::BEYOND, clean::TOO_LATE];
    assert_eq!(counts.map(|note| notes.count_of(note)), [1, 1, 1, 1, 1]);
    assert_eq!(notes.count_of(clean::PARTIAL), 1);
}
