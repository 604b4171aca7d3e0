//! `iofair-lab replay` with traces as people have them: from pipes, cut off, damaged, with trims, without latencies, with characters
//! that a terminal obeys. Method: the program itself, in a shell.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use iofair_testkit::directory::Directory;
use serde_json::Value as Json;

/// A directory of a test.
struct Folder(Directory);

impl Folder {
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), content).unwrap();
    }
    /// Runs a script in which `replay` is `iofair-lab replay` on a drive.
    fn run(&self, script: &str) -> Output {
        let program = env!("CARGO_BIN_EXE_iofair-lab");
        let script =
            format!("replay() {{ '{program}' replay --drive plextor-px256m5s \"$@\"; }}\n{script}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(&self.0).output().unwrap()
    }
    /// The results as JSON.
    fn json(&self, script: &str) -> Json {
        let output = self.run(script);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {told}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
    /// The error of a script that must fail.
    fn error(&self, script: &str) -> String {
        let output = self.run(script);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{script}: {told}");
        assert!(output.stdout.is_empty(), "{script}");
        told
    }
}

/// Requests of Alibaba, 100 us apart.
fn trace(requests: u64) -> String {
    let mut text = String::new();
    for number in 0..requests {
        let (offset, time) = (number * 7919 % 100_000 * 4096, 1_577_808_000_000_000 + number * 100);
        writeln!(text, "{},R,{offset},4096,{time}", number % 3).unwrap();
    }
    text
}

fn requests(result: &Json) -> Vec<u64> {
    let results = result["results"].as_array().unwrap().iter();
    results.map(|result| result["all"]["requests"].as_u64().unwrap()).collect()
}

/// Goal: a trace from a pipe gives what it gives as a file, under each of several stacks. Method: standard input by its names,
/// a descriptor as process substitution has it, a FIFO, and a file as standard input, also one of which the first line was read.
#[test]
fn a_pipe_is_read_whole() {
    let folder = Folder(Directory::new());
    folder.write("t", trace(3000));
    let wanted = folder.json("replay --json t");
    assert_eq!(requests(&wanted), [3000, 3000]);
    for script in [
        "cat t | replay --json -",
        "cat t | replay --json /dev/stdin",
        "cat t | replay --json /dev/fd/3 3<&0",
        "mkfifo p; cat t > p & replay --json p",
        "replay --json - < t",
        "gzip -c t | replay --json -",
    ] {
        assert_eq!(folder.json(script)["results"], wanted["results"], "{script}");
    }
    assert_eq!(requests(&folder.json("{ read -r line; replay --json -; } < t")), [2999, 2999]);
    let left: Vec<_> =
        fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// Goal: what cannot be kept is an error that says where; what is no trace is refused before it fills a disk. Method: a limit
/// on the length of files, a directory that is not there, endless input.
#[test]
fn a_pipe_that_cannot_be_kept_is_refused() {
    let folder = Folder(Directory::new());
    folder.write("t", trace(100_000));
    let told = folder.error("trap '' XFSZ; ulimit -f 64; cat t | TMPDIR=$PWD replay -");
    let place = folder.0.display().to_string();
    assert!(
        told.starts_with("error: standard input: cannot keep what comes from here in "),
        "{told}"
    );
    assert!(told.contains(&place) && told.contains("TMPDIR names another directory"), "{told}");
    let told = folder.error("cat t | TMPDIR=$PWD/nowhere replay -");
    assert!(told.contains("nowhere: No such file or directory"), "{told}");
    let told = folder.error("yes | TMPDIR=$PWD/nowhere replay -");
    assert!(told.starts_with("error: standard input:1: the format was not recognised"), "{told}");
    assert!(told.ends_with("the line is `y`\n"), "{told}");
}

/// Goal: a trace that was cut off or damaged is an error, or the result says so. Method: every compression, half of it; a
/// recording put behind another one; text that ends within a line.
#[test]
fn damaged_traces_are_never_silent() {
    let folder = Folder(Directory::new());
    for name in ["msr.csv.gz", "msr.csv.zst", "msr.csv.xz", "msr.csv.bz2"] {
        let bytes = fs::read(PathBuf::from("../../crates/trace/tests/data").join(name)).unwrap();
        folder.write(name, &bytes[..bytes.len() - 20]);
        let told = folder.error(&format!("replay {name}"));
        assert!(told.starts_with(&format!("error: {name}: ")), "{told}");
        let piped = folder.error(&format!("cat {name} | replay -"));
        assert!(piped.starts_with("error: standard input: "), "{piped}");
    }
    folder.write("own", b"IOFTRACE\x01\0\0\0\0\0\0\0M\0\0\0");
    let told = folder.error("replay own");
    assert!(
        told.starts_with("error: own: byte 16: the file was cut off before its first"),
        "{told}"
    );
    folder.write("head", b"time_us,op,offset,size");
    let told = folder.error("replay head");
    let wanted =
        "error: head: the trace has no request that can be replayed; 1: files whose last line";
    assert!(told.starts_with(wanted), "{told}");
    let text = trace(10);
    folder.write("cut", &text[..text.len() - 3]);
    let output = folder.run("replay cut");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(told.contains("note: 1: files whose last line has no line break"), "{told}");
    folder.write("half", &text[..text.len() - 20]);
    let told = folder.error("replay half");
    assert!(
        told.starts_with("error: half:10: the timestamp is missing; the line is `0,R,"),
        "{told}"
    );
}

/// Goal: trims have counts of their own in every output, and long ones are played. Method: a trim of 3 GiB, a write.
#[test]
fn trims_are_counted_apart() {
    let folder = Folder(Directory::new());
    folder.write(
        "t.csv",
        "time_s,op,offset,size\n0.0,D,0,3221225472\n0.001,W,0,1048576\n1.0,R,0,4096\n",
    );
    let result = folder.json("replay --json t.csv --html page.html");
    for played in result["results"].as_array().unwrap() {
        let all = &played["all"];
        let number = |key: &str| all[key].as_u64().unwrap();
        assert_eq!(
            (number("requests"), number("trims"), number("trimmed_bytes")),
            (3, 1, 3 << 30),
            "{played}"
        );
        assert_eq!((number("written_bytes"), number("read_bytes")), (1 << 20, 4096));
        assert!(all["bytes_per_second"].as_f64().unwrap() < 1.1e6, "{played}");
    }
    let text = folder.run("replay t.csv").stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("trims") && text.contains("1, 3 GiB"), "{text}");
    let page = fs::read_to_string(folder.0.join("page.html")).unwrap();
    assert!(page.contains(">trims<") && page.contains(">1, 3 GiB<"), "the page has them");
}

/// Goal: requests without a latency count for the rates of the recording, and a note says how many. Method: a trace of which
/// every other request has one.
#[test]
fn requests_without_a_latency_are_in_the_rates() {
    let folder = Folder(Directory::new());
    let mut text = String::from("time_s,op,offset,size,latency_s\n");
    for number in 0..100 {
        let latency = if number % 2 == 0 { "0.001" } else { "" };
        writeln!(text, "{},R,{},4096,{latency}", f64::from(number) / 100.0, number * 8192).unwrap();
    }
    folder.write("t.csv", text);
    let result = folder.json("replay --json t.csv --stack none-none");
    assert_eq!(requests(&result), [100, 100]);
    let recording = &result["results"][0];
    assert_eq!(
        (&recording["stack"], &recording["all"]["read_bytes"]),
        (&"recording".into(), &409_600.into())
    );
    assert_eq!(recording["all"]["latency"]["mean"], 1_000_000);
    let notes = result["notes"].as_array().unwrap();
    let about =
        "requests without a recorded latency, which count for the rates of the recording only";
    assert!(notes.iter().any(|note| note["what"] == about && note["count"] == 50), "{notes:?}");
}

/// Goal: nothing of a trace or its name is a command to a terminal. Method: escapes in the names of file, process and device,
/// and in a broken line; every output.
#[test]
fn no_output_has_control_characters() {
    let folder = Folder(Directory::new());
    let name = "a\u{1b}[31m.txt";
    folder.write(name, "8,0 0 1 0.5 7 Q R 64 + 8 [x\u{1b}]0;title\u{7}\u{9b}]\n");
    folder.write("bad", "1,R,0,512,7\n1,\u{1b}[2J,0,512,9\n");
    let check = |what: &str, bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let found = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(found, None, "{what}: {text:?}");
        text
    };
    let text = check("table", &folder.run("replay a*").stdout);
    assert!(text.contains("recording") || text.contains("none-none"), "{text}");
    check("json", &folder.run("replay a* --json --html page.html").stdout);
    check("page", &fs::read(folder.0.join("page.html")).unwrap());
    let told = check("error", &folder.run("replay bad").stderr);
    assert!(told.contains("opcode `\\u{1b}[2J`"), "{told}");
    check("error", &folder.run("replay \"$(printf 'no\\033[2J')\"").stderr);
    check("error", &folder.run("replay bad --format \"$(printf 'no\\033[2J')\"").stderr);
}

/// Goal: what fio writes today is read to its end. Method: a job with reads, writes and trims, whose log and counts fio writes.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_an_iolog_of_fio_is_read_whole() {
    let folder = Folder(Directory::new());
    let job = "--name=j --filename=data --size=4m --bs=4k --rw=randrw --rwmixread=60 --number_ios=500 --fsync=50 \
               --write_iolog=log --thread --output-format=json --output=result";
    let output = folder.run(&format!("fio {job} >&2"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Json = serde_json::from_slice(&fs::read(folder.0.join("result")).unwrap()).unwrap();
    let ios = |kind: &str| result["jobs"][0][kind]["total_ios"].as_u64().unwrap();
    let played = folder.json("replay --json log --stack none-none");
    let all = &played["results"][0]["all"];
    assert_eq!(all["read_bytes"], ios("read") * 4096, "{all}");
    assert_eq!(all["written_bytes"], ios("write") * 4096, "{all}");
    assert!(all["requests"].as_u64().unwrap() >= ios("read") + ios("write") + ios("sync"), "{all}");
}
