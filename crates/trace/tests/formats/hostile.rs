//! Traces that somebody made to be read wrongly: one field at a time is something else. A reader refuses the line with its number, or
//! reads all other requests as they are.

use std::io::Cursor;
use std::path::Path;

use iofair_core::unit::Sectors;
use iofair_trace::clean::{self, Clean, Playable};
use iofair_trace::formats;
use iofair_trace::input::Input;
use iofair_trace::source::Notes;

/// The samples of formats with one request on a line, and their requests.
const SAMPLES: [(&str, usize); 9] = [
    ("msr.csv", 48),
    ("alibaba.csv", 40),
    ("tencent.csv", 40),
    ("fiu.txt", 40),
    ("spc.csv", 40),
    ("systor.csv", 40),
    ("iolog-v3.txt", 37),
    ("disksim.txt", 40),
    ("table.csv", 40),
];
/// What takes the place of a number.
const NUMBERS: [&str; 15] = [
    "",
    "-1",
    "+1",
    "0x1f",
    "1e3",
    "1e400",
    "1.5",
    "1_000",
    "nan",
    "inf",
    "18446744073709551615",
    "9223372036854775807",
    "99999999999999999999999999",
    "٣",
    "\u{1b}[2J",
];

fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Everything that is played of a text, and the notes.
fn played(text: &str) -> Result<(Vec<Playable>, Notes), String> {
    let input = || Input::new(Box::new(Cursor::new(text.as_bytes().to_vec())), "file");
    let format = formats::recognise(&input().map_err(|error| error.to_string())?);
    let source = format.and_then(|format| format.open(vec![input()?]));
    let mut clean =
        Clean::new(source.map_err(|error| error.to_string())?, Sectors::from_kib(1 << 30));
    let mut all = Vec::new();
    while let Some(request) = clean.next_request().map_err(|error| error.to_string())? {
        all.push(request);
    }
    Ok((all, clean.notes()))
}

/// Goal: a number that is none, or a wild one, is refused with its line, or changes nothing but its own request (a later time also moves
/// earlier ones behind it). Method: each field of a line in the middle of each sample, with each of a list of texts.
#[test]
fn a_wild_field_changes_its_own_request_alone() {
    for (name, count) in SAMPLES {
        let text = sample(name);
        let lines: Vec<&str> = text.lines().collect();
        let middle = lines.len() / 2;
        let separator = if lines[middle].contains(',') { ',' } else { ' ' };
        let line = lines[middle].replace('\t', " ");
        let fields: Vec<&str> = line.split(separator).collect();
        for (index, number) in (0..fields.len()).flat_map(|at| NUMBERS.map(|number| (at, number))) {
            let mut changed = fields.clone();
            changed[index] = number;
            let changed = changed.join(&separator.to_string());
            let mut all = lines.clone();
            all[middle] = &changed;
            match played(&(all.join("\n") + "\n")) {
                Ok((requests, notes)) => {
                    assert!(requests.len() + 1 >= count, "{name} `{changed}`: {}", requests.len());
                    let skipped = [clean::EMPTY, clean::LONG, clean::TOO_LATE];
                    let skipped =
                        skipped.iter().any(|what| notes.iter().any(|(of, _)| of == *what));
                    let unknown = notes.iter().any(|(of, _)| of.contains("unknown operation"));
                    assert_eq!(requests.len() == count, !skipped && !unknown, "{name} `{changed}`");
                }
                Err(error) => {
                    assert!(error.starts_with(&format!("file:{}: ", middle + 1)), "{error}");
                    assert!(!error.contains('\u{1b}'), "{error:?}");
                }
            }
        }
    }
}

/// Goal: a time that is wrong by a factor of a billion hides none of the requests behind it. Method: one in a table.
#[test]
fn a_wild_time_hides_no_others() {
    let text = "time_s,op,offset,size\n1,R,0,4096\n9000000000,R,0,4096\n2,R,0,4096\n3,R,0,4096\n";
    let (requests, notes) = played(text).unwrap();
    let times: Vec<u64> = requests.iter().map(|request| request.record.at.0).collect();
    assert_eq!(times, [0, 1_000_000_000, 2_000_000_000]);
    assert_eq!(notes.iter().collect::<Vec<_>>(), [(clean::TOO_LATE, 1)]);
}

/// Goal: a file with the line ends of old systems is not taken for one long line. Method: each sample.
#[test]
fn carriage_returns_alone_are_refused() {
    for (name, _) in SAMPLES {
        let error = played(&sample(name).replace('\n', "\r")).unwrap_err();
        let is_told = error.contains("carriage return") || error.contains("not recognised");
        assert!(is_told && error.starts_with("file:1: "), "{name}: {error}");
    }
}

/// Goal: what is no whole number of bytes is refused, and pandas' whole numbers with a point are read. Method: both.
#[test]
fn parts_of_bytes_are_refused() {
    for (unit, size, read) in [
        ("", "4096.0", true),
        ("", "4096.5", false),
        ("_kb", "0.5", true),
        ("_kb", "0.0001", false),
    ] {
        let text = format!("time_us,op,offset,size{unit}\n1,R,0,{size}\n2,R,4096.0,4\n");
        match played(&text) {
            Ok((requests, _)) => assert!(read && requests.len() == 2, "{size}"),
            Err(error) => {
                assert!(!read && error.contains("file:2: size"), "{error}");
                assert!(error.contains("not a whole number of bytes"), "{error}");
            }
        }
    }
}

/// Goal: numbers between white space are taken for a format only if they can be nothing else. Method: a trace of Tencent with tabs, and
/// flags that DiskSim does not have.
#[test]
fn numbers_alone_are_no_format() {
    let error = played(&sample("tencent.csv").replace(',', "\t")).unwrap_err();
    assert!(error.contains("not recognised"), "{error}");
    let error = played(&sample("disksim.txt").replacen("\t1\n", "\t+1\n", 1)).unwrap_err();
    assert!(error.contains("flags `+1`: allowed are hexadecimal numbers"), "{error}");
}
