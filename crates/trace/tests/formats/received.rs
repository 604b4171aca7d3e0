//! Traces as people receive them: from other systems, put together, compressed, cut off, damaged, with characters that no
//! terminal should get. Each is read to its end, or refused with the line and its number.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_trace::clean::{self, Clean};
use iofair_trace::formats;
use iofair_trace::input::Input;
use iofair_trace::source::Notes;
use iofair_trace::write::Writer;
use iofair_trace::{Columns, Metadata, Options, Record, Source, Stream, Trace};

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// The text samples, with their number of requests.
const TEXTS: [(&str, usize); 11] = [
    ("msr.csv", 48),
    ("alibaba.csv", 40),
    ("tencent.csv", 40),
    ("fiu.txt", 40),
    ("spc.csv", 40),
    ("systor.csv", 40),
    ("iolog-v3.txt", 37),
    ("blkparse.txt", 31),
    ("blkparse-t.txt", 31),
    ("disksim.txt", 40),
    ("table.csv", 40),
];
const CUT: &str = "files whose last line has no line break: they may have been cut off there";

/// Every request of bytes whose format is recognised, and the notes.
fn read(bytes: &[u8]) -> Result<(Vec<Record>, Notes), String> {
    let input = || Input::new(Box::new(Cursor::new(bytes.to_vec())), "file");
    let format = formats::recognise(&input().map_err(|error| error.to_string())?);
    let mut source =
        format.and_then(|format| format.open(vec![input()?])).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    while let Some(record) = source.next_record().map_err(|error| error.to_string())? {
        records.push(record);
    }
    Ok((records, source.notes()))
}
fn requests(bytes: &[u8]) -> Vec<Record> {
    read(bytes).unwrap_or_else(|error| panic!("{error}")).0
}

/// Goal: line ends, marks, comments, headers and other lines around the requests change nothing. Method: every text sample
/// with each of them.
#[test]
fn what_is_around_the_requests_is_left_out() {
    for (name, count) in TEXTS {
        let plain = String::from_utf8(sample(name)).unwrap();
        let wanted = requests(plain.as_bytes());
        assert_eq!(wanted.len(), count, "{name}");
        let dressed = [
            ("line ends of Windows", plain.replace('\n', "\r\n")),
            ("a byte order mark", format!("\u{feff}{plain}")),
            ("empty lines", format!("\n \r\n{}\n\n", plain.replace('\n', "\n\n"))),
            ("comments", format!("# Trace 7 of 9\n# 1,2,3\n{plain}# end 1\n")),
        ];
        for (how, text) in dressed {
            assert_eq!(requests(text.as_bytes()), wanted, "{name} with {how}");
        }
        if !name.starts_with("iolog") {
            let text = format!("Input file sdb.blktrace.0 added\n{plain}");
            assert_eq!(requests(text.as_bytes()), wanted, "{name} with another program's words");
        }
        let (records, notes) = read(plain.trim_end().as_bytes()).unwrap();
        let is_event = !name.starts_with("blkparse-t");
        assert_eq!(
            (records.len(), notes.count_of(CUT)),
            (count, 1),
            "{name} without the last line break"
        );
        assert!(is_event || read(plain.as_bytes()).unwrap().1.count_of(CUT) == 0, "{name}");
    }
}

/// Goal: a collection's own header means its own units, another header its own. Method: the columns of Alibaba with both.
#[test]
fn headers_have_a_meaning() {
    let line = "3,W,1024,512,1577808000000046\n";
    let own = requests(format!("device_id,opcode,offset,length,timestamp\n{line}").as_bytes());
    assert_eq!(own, requests(line.as_bytes()));
    let other = requests(b"device,op,sector,sectors,time_ms\n3,W,2,1,1500\n");
    assert_eq!(
        (other[0].at, other[0].offset, other[0].length),
        (Instant(1_500_000_000), 1024, 512)
    );
    let spc = "0,303567,3584,w,0.000000\n";
    assert_eq!(requests(spc.as_bytes()).len(), 1);
    let contradicted = read(format!("disk,address,pages,mode,delay\n{spc}").as_bytes());
    assert!(contradicted.unwrap_err().contains("the format was not recognised"));
    let twice = "Timestamp,Offset,Size,IOType,VolumeID\n1538323200,8,8,1,7\n".repeat(2);
    assert_eq!(requests(twice.as_bytes()).len(), 2, "files that were put together");
}

/// Goal: what biosnoop prints is read, in the order of submissions. Method: its output with and without times in the queue, with
/// a process that has a space in its name, and requests without a disk or a sector.
#[test]
fn biosnoop_is_read() {
    let (records, notes) = read(
        b"TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n\
          0.000000    kworker/4:2    7497           R 18446744073709551615 8         0.53\n\
          0.000000    kworker/u4:4   2222   nvme0n1 W 989072     4096      0.61\n\
          0.010000    Web Content    912    nvme0n1 R 9206104    8192     40.00\n\
          0.020000    java           55             R 16         512       1.00\n",
    )
    .unwrap();
    let told = |one: &Record| (one.offset / 512, one.length, one.completion.unwrap().latency.0);
    let wanted = [(9_206_104, 8192, 40_000_000), (989_072, 4096, 610_000), (16, 512, 1_000_000)];
    assert_eq!(records.iter().map(told).collect::<Vec<_>>(), wanted);
    assert_eq!(records[1].at.0 - records[0].at.0, 30_000_000 - 610_000);
    assert_eq!(notes.count_of("requests of an unknown operation, which were skipped"), 1);
    let queued = requests(
        b"TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  QUE(ms) LAT(ms)\n\
          0.000000    dmcrypt_write/ 763    sda     W 445934576  12288     0.01    0.09\n",
    );
    assert_eq!(told(&queued[0]), (445_934_576, 12_288, 100_000));
    let words = "Tracing block device I/O... Hit Ctrl-C to end.\n";
    let header = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n";
    let below = requests(format!("{words}{header}0.0 a 7 sda W 445 512 0.5\n").as_bytes());
    assert_eq!(told(&below[0]), (445, 512, 500_000), "below the words of the program");
    let error = read(format!("{header}0.0 a 7 sda W 445\n").as_bytes()).unwrap_err();
    assert!(error.starts_with("file:2: number of bytes `W`: not a whole number"), "{error}");
}

/// Goal: the kernel's block tracepoints are read as blkparse's events. Method: lines of the kernel's own buffer, of trace-cmd and of
/// perf, old and new, among other tracepoints; processes with spaces, dashes and brackets in their names; a damaged line.
#[test]
fn tracepoints_are_read() {
    let kernel = "# tracer: nop\n#\n\
        fio-4321    [001] d..1. 100.000000: block_rq_issue: 8,0 R 4096 () 2048 + 8 [fio]\n\
        <idle>-0    [001] d.h2. 100.000500: block_rq_complete: 8,0 R () 2048 + 8 [0]\n\
        bash-7      [000] d..2. 100.000600: sched_switch: prev_comm=bash [x] + 1 ==> next_pid=4\n\
        k/u8:1-ev-12 ( 12) [002] ..... 100.001000: block_rq_issue: 8,0 WFS 0 () 4096 + 16 none,0,0 [k/u8:1-ev]\n\
        <idle>-0    [002] d.h2. 100.003000: block_rq_complete: 8,0 WFS () 4096 + 16 none,0,0 [-5]\n\
        fio-4321    [001] d..1. 100.004000: block_rq_issue: 8,0 FF 0 () 0 + 0 [fio]\n";
    let perf = "CPU 0/KVM  4321/4330 [003]   100.000000: block:block_rq_issue: 8,0 R 4096 () 2048 + 8 be,0,4 [CPU 0/KVM]\n\
        swapper     0 [003]   100.000500: block:block_rq_complete: 8,0 R () 2048 + 8 be,0,4 [0]\n";
    let (records, notes) = read(kernel.as_bytes()).unwrap();
    let told = |record: &Record| (record.operation, record.offset / 512, record.length);
    let told: Vec<_> = records.iter().map(told).collect();
    use Operation::{Flush, Read, Write};
    assert_eq!(told, [(Read, 2048, 4096), (Write, 4096, 8192), (Flush, 0, 0)]);
    let completions = records.iter().map(|record| record.completion);
    let done: Vec<_> =
        completions.map(|done| done.map(|end| (end.latency.0, end.failed))).collect();
    assert_eq!(done, [Some((500_000, false)), Some((2_000_000, true)), None]);
    assert_eq!(notes.iter().count(), 0, "{notes:?}");
    let (records, _) = read(perf.as_bytes()).unwrap();
    let latency = records[0].completion.map(|completion| completion.latency.0);
    assert_eq!((records.len(), records[0].at.0, latency), (1, 100_000_000_000, Some(500_000)));
    for (line, fault) in [
        (
            "fio-1 [001] d..1. 100.5: block_rq_issue: 8,0 R 4096 () 2048 + x [fio]\n",
            "number of sectors `x`",
        ),
        ("fio-1 [001] d..1. 100.5: block_rq_issue: sda R 4096 () 2048 + 8 [fio]\n", "device `sda`"),
        ("fio-1 [001] d..1. 100.5 block_rq_is\n", "not a tracepoint"),
    ] {
        let error = read(format!("{kernel}{line}").as_bytes()).unwrap_err();
        assert!(error.starts_with("file:9: ") && error.contains(fault), "{error}");
    }
}

/// Goal: a flush is read to its end, of drives whose kernel has no sector for it, with and without a request queue; lost events are
/// no events. Method: lines of the kernel and of blkparse with sector -1, and the same sector with a length.
#[test]
fn flushes_without_a_sector_are_read() {
    let kernel = "dd-7 [000] d..2. 1.000000: block_bio_queue: 254,0 FWS 0 + 0 [dd]\n\
        CPU:0 [LOST 12 EVENTS]\n\
        kworker/0:1-12 [000] ..s.. 1.002000: EVENT: 254,0 FF REST18446744073709551615 + 0 PRIORITY[0]\n";
    let kernel = |event: &str, rest: &str, priority: &str| {
        kernel.replace("EVENT", event).replace("REST", rest).replace("PRIORITY", priority)
    };
    let blkparse = "254,0 0 1 1.000000 7 Q FWS 0 + 0 [dd]\n\
        254,0 0 1 1.002000 12 C FF 18446744073709551615 + 0 [0]\n";
    for text in [
        kernel("block_rq_complete", "() ", "none,0,0 "),
        kernel("block_bio_complete", "", ""),
        blkparse.into(),
    ] {
        let (records, notes) = read(text.as_bytes()).unwrap();
        let told = records.iter().map(|r| (r.operation, r.offset, r.completion.unwrap().latency.0));
        assert_eq!(told.collect::<Vec<_>>(), [(Operation::Flush, 0, 2_000_000)], "{text}");
        assert_eq!(notes.iter().count(), 0, "{notes:?}");
    }
    for text in [blkparse.replace("615 + 0", "615 + 8"), blkparse.replace("615 + 0", "614 + 0")] {
        let error = read(text.as_bytes()).unwrap_err();
        assert!(
            error.contains("sector 1844674407370955161") && error.contains("too large"),
            "{error}"
        );
    }
}

/// Goal: tables of other programs are read by their headers. Method: semicolons and quotes, tabs with times of other units,
/// columns by their numbers.
#[test]
fn tables_are_read_by_their_headers() {
    let quoted = requests(
        b"\"Start Time [ms]\";\"Is Write\";\"Offset (bytes)\";\"Size\";\"Latency\"\n\
          \"12.5\";\"0\";\"4096\";\"512\";\"\"\n\"13\";\"1\";\"0x2000\";\"512\";\"0.25\"\n",
    );
    assert_eq!((quoted[0].at, quoted[0].completion), (Instant(12_500_000), None));
    assert_eq!((quoted[1].operation, quoted[1].offset), (Operation::Write, 8192));
    assert_eq!(quoted[1].completion.unwrap().latency, Nanos(250_000), "the unit of the times");
    let tabs = requests(
        b"ts\trwbs\tlba\tnr_sectors\n1700000000123456\tWFS\t8\t16\n1700000000123500\tD\t0\t8\n",
    );
    assert_eq!(
        (tabs[0].at, tabs[1].operation),
        (Instant(1_700_000_000_123_456_000), Operation::Discard)
    );
    let commas =
        requests(b"time_ms;op;offset;size;latency_ms\n0,5;R;4096;512;0,13\n1,25;W;0;512;2\n");
    let told = |record: &Record| (record.at.0, record.completion.unwrap().latency.0);
    assert_eq!([&commas[0], &commas[1]].map(told), [(500_000, 130_000), (1_250_000, 2_000_000)]);
    let latency = |line: &str| read(format!("time,op,offset,size,latency\n{line}\n").as_bytes());
    for line in ["1539000000.5,R,0,512,120", "1539000000123456,R,0,512,0.00012"] {
        let error = latency(line).unwrap_err();
        assert!(error.contains("--columns latency:us=COLUMN"), "{error}");
    }
    let known = latency("1539000000.5,R,0,512,0\n1539000001.5,R,0,512,0.5").unwrap().0;
    assert_eq!(known[1].completion.unwrap().latency, Nanos(500_000_000));
    let path = std::env::temp_dir().join(format!("iofair-table-{}.csv", std::process::id()));
    std::fs::write(&path, "vol1,1539000000.5,R,4096,512\nvol2,1539000001.5,W,0,512\n").unwrap();
    let columns = Columns::parse("volume=1,time=2,op=3,offset=4,size=5").unwrap();
    let options = Options { paths: vec![path.clone()], format: None, columns: Some(columns) };
    let trace = Trace::open(&options).unwrap();
    for _ in 0..2 {
        let mut source = trace.source().unwrap();
        let first = source.next_record().unwrap().unwrap();
        assert_eq!((first.at.0, first.offset), (1_539_000_000_500_000_000, 4096));
        source.next_record().unwrap().unwrap();
        assert_eq!(source.streams()[1].name, "vol2");
    }
    std::fs::remove_file(path).unwrap();
}

/// Goal: the four compressions are read, with as many members as there are; one that is cut off or damaged anywhere is an
/// error, or says so. Method: the same sample from gzip, zstd, xz and bzip2, put together; every length; a bit changed in every
/// byte.
#[test]
fn compressed_files_are_whole_or_refused() {
    let plain = requests(&sample("msr.csv"));
    for name in ["msr.csv.gz", "msr.csv.zst", "msr.csv.xz", "msr.csv.bz2"] {
        let one = sample(name);
        assert_eq!(requests(&one), plain, "{name}");
        let padded = [&one[..], &[0; 8], &one, &one, &[0; 4]].concat();
        assert_eq!(requests(&padded).len(), 3 * plain.len(), "{name}");
        for length in 0..one.len() {
            let found = read(&one[..length]);
            assert!(found.is_err(), "{name}: {length} of {} bytes", one.len());
        }
        for at in 0..one.len() {
            let mut damaged = one.clone();
            damaged[at] ^= 0x10;
            // The time and system in gzip's header mean nothing.
            let same = read(&damaged).map(|(records, _)| records);
            assert!(same.is_err() || same.as_ref() == Ok(&plain), "{name}: byte {at}");
        }
        let followed = read(&[&one[..], b"1,h,0,Read,0,512,9\n"].concat());
        assert!(followed.is_err(), "{name}: text behind it");
    }
    let mut skippable = vec![0x52, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    skippable.extend(sample("msr.csv.zst"));
    assert_eq!(requests(&skippable), plain, "a frame of zstd that decoders skip");
}

/// Goal: what is wrong with a compressed file is said, not what follows from it: damage although its text is read first, and what
/// is behind the data; zeroes are padding. Method: the same samples as files, with bits changed in the middle, and with
/// text, with a part of a header and with zeroes behind them.
#[test]
fn damage_and_junk_are_told_apart() {
    let path = std::env::temp_dir().join(format!("iofair-trace-junk-{}", std::process::id()));
    let read_file = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let trace = Trace::open(&Options { paths: vec![path.clone()], ..Options::default() })?;
        let mut source = trace.source()?;
        let mut count = 0;
        while source.next_record()?.is_some() {
            count += 1;
        }
        Ok::<u64, iofair_trace::TraceError>(count)
    };
    for (name, format) in [
        ("msr.csv.gz", "gzip"),
        ("msr.csv.zst", "zstd"),
        ("msr.csv.xz", "xz"),
        ("msr.csv.bz2", "bzip2"),
    ] {
        let whole = sample(name);
        let end = whole.len();
        assert_eq!(read_file(&[&whole[..], &[0; 1000]].concat()).unwrap(), 48, "{name}");
        for junk in [&b"x"[..], b"\n", b"1,h,0,Read,0,512,9\n", &[0, 0, 7]] {
            let told = read_file(&[&whole[..], junk].concat()).unwrap_err().to_string();
            let wanted = format!("the {format} data end at byte {end} of the file");
            assert!(told.contains(&wanted), "{name} {junk:?}: {told}");
        }
        let member = read_file(&[&whole[..], &whole[..whole.len() / 2]].concat()).unwrap_err();
        assert!(member.to_string().contains("the file was cut off: it ends at byte"), "{member}");
        for at in (20..end).step_by(11) {
            for bit in [0, 4, 7] {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let Err(told) = read_file(&damaged).map_err(|error| error.to_string()) else {
                    continue;
                };
                let is_true = told.contains(&format!("the {format} data are damaged, at byte"))
                    || told.contains("the file was cut off")
                    || told.contains(&format!("the {format} data end at byte"));
                assert!(is_true, "{name}: byte {at}, bit {bit}: {told}");
            }
        }
    }
    std::fs::remove_file(path).unwrap();
}

/// Goal: more collections are read as they are. Method: lines as their descriptions have them (K5 with and without a header, Thesios
/// of Google, a table with the names of vscsiStats); place, length, time and stream.
#[test]
fn collections_are_read_by_their_columns() {
    let k5 = "56,1531209600.125,R,4096,8192\n56,1531209600.250,W,8192,512\n";
    let thesios = "filename,file_offset,application,c_time,io_zone,redundancy_type,op_type,service_class,from_flash_cache,\
        cache_hit,request_io_size_bytes,disk_io_size_bytes,response_io_size_bytes,start_time,disk_time\n\
        a,4096,b,1.5,WARM,R,READ,X,0,-1,8192,8192,8192,1531209600.125,0.01\n";
    let vscsi = "serialNumber,length,op,lbn,ts\n1,8192,0x28,8,1531209600125000\n";
    for (text, count) in
        [(k5, 2), (&format!("ID,Timestamp,Type,Offset,Length\n{k5}"), 2), (thesios, 1), (vscsi, 1)]
    {
        let found = requests(text.as_bytes());
        let first = found[0];
        assert_eq!((found.len(), first.offset, first.length), (count, 4096, 8192), "{text}");
        assert_eq!(first.at.0, 1_531_209_600_125_000_000, "{text}");
        assert_eq!(first.operation, Operation::Read, "{text}");
    }
}

/// Goal: a file that ends before its first request says that it was cut off, where, and what is needed. Method: every kind of
/// file, cut in its first block, record or line.
#[test]
fn a_file_without_a_first_request_was_cut_off() {
    let error = |bytes: &[u8]| {
        let told = read(bytes).map(|(records, _)| records.len());
        told.expect_err("it was cut off")
    };
    for (name, format) in [
        ("msr.csv.gz", "gzip"),
        ("msr.csv.zst", "zstd"),
        ("msr.csv.xz", "xz"),
        ("msr.csv.bz2", "bzip2"),
    ] {
        let whole = sample(name);
        for length in [4, 5, 20, whole.len() / 2, whole.len() - 1] {
            let told = error(&whole[..length]);
            let wanted = format!(
                "the file was cut off: it ends at byte {length}, in the middle of its {format} data"
            );
            assert!(
                told.contains(&wanted) && told.ends_with("; it is needed whole"),
                "{name}: {told}"
            );
        }
    }
    let own = {
        let mut writer = Writer::new(Vec::new(), "own", &Metadata::default()).unwrap();
        writer.add_stream(&Stream { name: "a".into(), group: "a".into(), volume: 0 }).unwrap();
        requests(&sample("msr.csv")).iter().for_each(|record| {
            writer.push(&Record { stream: 0, ..*record }).unwrap();
        });
        writer.finish().unwrap()
    };
    let metadata = 16 + 16 + u64::from(own[20]) as usize;
    let streams = metadata + 16 + own[metadata + 4] as usize;
    for (length, place, part) in [
        (5, 0, "what begins here has 5 of 16 bytes"),
        (16, 16, "what begins here is missing"),
        (20, 16, "what begins here has 4 of at least 16 bytes"),
        (metadata, metadata, "what begins here is missing"),
        (streams + 40, streams, "what begins here has 40 of "),
    ] {
        let told = error(&own[..length]);
        let wanted = format!(
            "file: byte {place}: the file was cut off before its first request; it is needed whole: {part}"
        );
        assert!(told.starts_with(&wanted), "{length}: {told}");
    }
    let told = error(&sample("sdb.blktrace.0")[..40]);
    let wanted = "file: byte 0: the file was cut off in its first record; it is needed whole: a record has 48 bytes or more";
    assert_eq!(told, wanted);
    for (name, _) in TEXTS {
        let told = error(&sample(name)[..9]);
        assert!(
            told.ends_with("has no line break: the file may have been cut off"),
            "{name}: {told}"
        );
    }
}

/// Goal: what has to be unpacked by another program is refused with its name. Method: first bytes of each.
#[test]
fn containers_are_named() {
    let mut tar = vec![0; 512];
    (tar[..5]).copy_from_slice(b"a.csv");
    tar[257..262].copy_from_slice(b"ustar");
    tar.extend(b"1,h,0,Read,0,512,9\n".repeat(9));
    for (bytes, wanted) in [
        (&tar[..], "this is a tar archive; extract its files"),
        (b"PK\x03\x04aaaa", "this is a zip archive"),
        (b"\x04\x22\x4d\x18aaaa", "this is compressed with lz4"),
        (b"\xff\xfe1\0,\0", "this is text in UTF-16"),
        (b"", "the file is empty"),
        (b"\0\0\0\0", "the format was not recognised"),
    ] {
        let error = read(bytes).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
}

/// Goal: an error shows the line, without what a terminal obeys, and not all of a long one. Method: a trace with escapes in
/// the middle; a file that is none.
#[test]
fn errors_show_the_line() {
    let error = read(b"1,h,0,Read,0,512,9\n2,h,0,P\x1b[2Jk,0,512,9\n").unwrap_err();
    assert_eq!(
        error,
        "file:2: type `P\\u{1b}[2Jk`: neither a read nor a write; the line is `2,h,0,P\\u{1b}[2Jk,0,512,9`"
    );
    let error = read(b"Report\n17 \x07 apples\n").unwrap_err();
    let (format, line) = (
        "file:2: the format was not recognised; --format names it: ",
        "`17 \\u{7} apples`, below `Report`",
    );
    assert!(error.starts_with(format) && error.ends_with(line), "{error}");
    let error = read(format!("1,{}\n", "x".repeat(5000)).as_bytes()).unwrap_err();
    assert!(error.len() < 700 && error.ends_with("...`"), "{error}");
    let error = read(format!("1,h,0,Read,0,512,9\n2,h,0,{}\n", "x".repeat(5000)).as_bytes());
    let error = error.unwrap_err();
    assert!(error.len() < 500 && error.starts_with("file:2: type `xxx"), "{error}");
    let error = read(b"1,h,0,Read,0,512,9\n2,h\0,0,Read,0,512,9\n").unwrap_err();
    assert!(
        error.starts_with("file:2: the line has a zero byte, so the file was damaged"),
        "{error}"
    );
    let error = read(b"\0\0\0\0\n2,h,0,Read,0,512,9\n").unwrap_err();
    assert!(error.starts_with("file:1: the line has a zero byte"), "{error}");
    let error = read(b"1,h,0,Read,0,512,9\n2,h,0,Re").unwrap_err();
    assert!(
        error.ends_with("`2,h,0,Re`, which has no line break: the file may have been cut off"),
        "{error}"
    );
    let both = read(b"100 0 8 8 1\n").unwrap_err();
    assert!(both.contains("this may be disksim or mqsim; --format names it"), "{both}");
}

/// Goal: a wrong value in the first line, or in all of them, is named with its line and its column, although no line shows what the file
/// is. Method: lines of several formats with one field that is none; words that are no trace.
#[test]
fn a_wrong_value_is_named_in_the_first_line() {
    for (text, wanted) in [
        ("1,h,0,Read,x,512,9\n", "file:1: as msr, offset `x`: not a whole number; "),
        ("1,h,0,Read,0,512,-9\n2,h,0,Read,0,512,-1\n", "as msr, response time `-9`: not a "),
        ("# web\n1,h,0,Flush,0,512,9\n", "file:2: as msr, type `Flush`: neither a read nor a "),
        ("3,W,0x400,512,1577808000000046\n", "file:1: as alibaba, offset `0x400`: not a "),
        ("1538323200,8,-8,1,7\n", "as tencent, size `-8`: not a whole number; "),
        ("0.5,,R,0,x,4096\n", "file:1: as systor, offset `x`: not a whole number; "),
        ("56,1531209600.125,R,4096,8k\n", "as k5cloud, size `8k`: not a number of bytes "),
        ("0.5 1 64 8 z\n", "file:1: as disksim, flags `z`: allowed are hexadecimal numbers"),
        ("89 7 postgres 64 8 X 8 0 ab\n", "file:1: as fiu, direction `X`: neither a read "),
        ("8,0 0 1 0.x 7 Q R 64 + 8 [a]\n", "file:1: as blkparse, time `0.x`: not a number "),
    ] {
        let error = read(text.as_bytes()).unwrap_err();
        assert!(error.contains(wanted) && error.contains("; --format names it; the "), "{error}");
    }
    let table = read(b"time_s,op,offset,size\n-1,R,0,512\n").unwrap_err();
    assert!(table.starts_with("file:2: time `-1`: negative"), "{table}");
    for text in ["17 apples and 4 pears\n", "1,2,3,4,5\n", "a,b,c,d,e\n1,2,x,r,5\n"] {
        let error = read(text.as_bytes()).unwrap_err();
        assert!(error.contains("the format was not recognised"), "{text}: {error}");
    }
}

/// Goal: names are never what a terminal obeys. Method: a process with escapes and an override of the direction of text.
#[test]
fn names_are_escaped() {
    let text = "8,0 0 1 0.5 7 Q R 64 + 8 [\u{1b}]0;x\u{7}\u{202e}]\n";
    let input = Input::new(Box::new(Cursor::new(text.as_bytes())), "file").unwrap();
    let mut source = formats::recognise(&input).unwrap().open(vec![input]).unwrap();
    source.next_record().unwrap().unwrap();
    assert_eq!(source.streams()[0].name, "\\u{1b}]0;x\\u{7}\\u{202e}.7");
}

/// Goal: `blkparse -t` prints times between a request and its process; they are not its error. Method: real output of both.
#[test]
fn blkparse_with_times_is_the_same() {
    let (with, without) = (requests(&sample("blkparse-t.txt")), requests(&sample("blkparse.txt")));
    let told = |one: &Record| (one.offset, one.length, one.operation, one.completion);
    assert_eq!(
        with.iter().map(told).collect::<Vec<_>>(),
        without.iter().map(told).collect::<Vec<_>>()
    );
    assert!(with.iter().all(|record| !record.completion.unwrap().failed));
}

/// Goal: text of blkparse that was put together is read to its end, and summaries are left out, also those of processes.
/// Method: a sample twice; a line that is neither.
#[test]
fn summaries_are_left_out() {
    let text = sample("blkparse-t.txt");
    let names = b"fio (4321)\n Reads Queued:          21,      180KiB\n";
    assert_eq!(requests(&[&text[..], names, &text].concat()).len(), 62);
    let text = "8,0 0 1 0.5 7 Q R 64 + 8 [a]\n0 2 0.6 0 C R 64 + 8 [0]\n";
    let error = read(text.as_bytes()).unwrap_err();
    assert!(
        error.starts_with("file:2: neither an event, which begins with MAJOR,MINOR"),
        "{error}"
    );
}

/// Goal: trims are completed whatever their length, and by their own completions. Method: a trim of 4 GiB in two commands, and
/// a write at the same place; commands to zones, which are no reads.
#[test]
fn trims_of_any_length_are_complete() {
    let records = requests(
        b"8,0 0 1 0.000001 7 Q D 0 + 8388600 [a]\n\
          8,0 0 2 0.000002 7 Q W 0 + 8 [a]\n\
          8,0 0 3 0.000003 7 Q ZR 0 + 524288 [a]\n\
          8,0 0 4 0.000102 0 C W 0 + 8 [0]\n\
          8,0 0 5 0.000201 0 C D 0 + 4194304 [0]\n\
          8,0 0 6 0.000301 0 C D 4194304 + 4194296 [0]\n",
    );
    let latencies: Vec<_> = records.iter().map(|one| one.completion.unwrap().latency.0).collect();
    assert_eq!(latencies, [300_000, 100_000]);
}

/// Goal: a long trim is played, one that is longer than the drive as much as the drive has; writes of this length are not.
/// Method: both on a drive of 1 GiB.
#[test]
fn long_trims_are_kept() {
    let text =
        "time_s,op,offset,size\n0.0,D,0,3221225472\n0.1,W,0,3221225472\n0.2,D,0,1073741824\n";
    let input = Input::new(Box::new(Cursor::new(text.as_bytes())), "file").unwrap();
    let source = formats::recognise(&input).unwrap().open(vec![input]).unwrap();
    let mut clean = Clean::new(source, Sectors(1 << 21));
    let mut lengths = Vec::new();
    while let Some(request) = clean.next_request().unwrap() {
        lengths.push(request.length.0);
    }
    assert_eq!(lengths, [1 << 21, 1 << 21]);
    assert_eq!([clean::LONG, clean::SHORTENED].map(|note| clean.notes().count_of(note)), [1, 1]);
}

/// Goal: requests of which only the attempt was seen are counted, not an error. Method: SYSTOR '17, whose description has
/// them.
#[test]
fn requests_without_a_type_are_counted() {
    let (records, notes) =
        read(b"1.5,,,0,4096,4096\n1.6,0.001,R,0,4096,4096\n1.7,,W,0,0,512\n").unwrap();
    assert_eq!((records.len(), records[1].completion), (2, None));
    assert_eq!(notes.count_of("requests of an unknown operation, which were skipped"), 1);
}

/// Goal: a compressed file without requests ends, whatever it has. Method: more empty lines than are allowed.
#[test]
fn lines_without_content_are_bounded() {
    let input = Input::new(Box::new(std::io::repeat(b'\n')), "file").unwrap();
    let mut source = formats::find("msr").unwrap().open(vec![input]).unwrap();
    let error = source.next_record().unwrap_err().to_string();
    assert!(error.starts_with("file:1048576: more than 1048576 lines without content"), "{error}");
}

/// Goal: a directory, or a file that is not there, is an error with its name. Method: both.
#[test]
fn files_that_cannot_be_read_are_named() {
    let open = |path: &str| {
        let paths = vec![PathBuf::from(path)];
        Trace::open(&Options { paths, ..Options::default() }).unwrap_err().to_string()
    };
    assert!(open("/").starts_with("/: Is a directory"));
    assert!(open("/nowhere\n").starts_with("/nowhere\\n: No such file"));
}
