//! The audit log: every change with its author, source and result, as lines of JSON.
//!
//! A change is logged *before* it is made (`"event": "begin"`) and synced; if that fails, the change is refused. Its
//! end (`"event": "end"`, with the same `number`, both revisions and the result) is synced before the caller gets the
//! result. So a begin without an end is a change during which the server died, and there is no change without a
//! begin. Everything that callers send is a JSON string, in which a newline is `
//! `, so no name can forge a line.
//!
//! Lines, files (a full file becomes `PATH.1`, and so on) and the number of files are bounded. Without a file, lines
//! go to standard error like all other messages, which systemd sends to the journal: they may be lost, and no change
//! waits for them.

mod file;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value as Json;

use super::gate::Author;
use crate::trial::Mode;
use crate::{clock, log};
use file::LogFile;

/// Bytes of what a caller wrote that a line repeats.
const TEXT_MAX: usize = 4 << 10;
/// Bytes at the end of the file in which the last lines are looked for.
const TAIL_MAX: u64 = 1 << 20;

/// The log.
#[derive(Debug)]
pub(super) struct Audit(Mutex<Log>);

#[derive(Debug)]
struct Log {
    /// `None`: standard error.
    file: Option<LogFile>,
    number: u64,
}

/// What is asked for.
#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) query: String,
    /// The edit, or as much of it as fits.
    #[serde(skip_serializing_if = "Json::is_null")]
    pub(super) edit: Json,
}

/// One line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    number: u64,
    event: &'a str,
    #[serde(flatten)]
    author: &'a Author,
    #[serde(flatten)]
    asked: &'a Asked,
    /// Of the contract file before.
    revision: &'a str,
    /// Of the contract file after.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_revision: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a str>,
}

/// How a change ended.
pub(super) struct Outcome<'a> {
    pub(super) revision: &'a str,
    pub(super) status: Option<u16>,
    /// `done`, or why not.
    pub(super) result: &'a str,
}

/// A change that is written down and not made yet.
pub(super) struct Begun<'a> {
    number: u64,
    author: &'a Author,
    asked: Asked,
    revision: String,
}

impl Asked {
    /// What a call asks, cut where it is too long.
    pub(super) fn new(method: &str, path: &str, query: &str, body: Option<&[u8]>) -> Self {
        let edit = match body {
            None => Json::Null,
            Some(body) if body.len() > TEXT_MAX => {
                Json::String(format!("{}...", cut(&String::from_utf8_lossy(body))))
            }
            Some(body) => serde_json::from_slice(body)
                .unwrap_or_else(|_| Json::String(String::from_utf8_lossy(body).into_owned())),
        };
        let (path, query) = (cut(path).to_string(), cut(query).to_string());
        Self { method: method.to_string(), path, query, edit }
    }
}

/// As much of a text as a line repeats.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl Audit {
    /// Opens the log.
    pub(super) fn open(path: Option<&Path>, mode: &Mode) -> io::Result<Self> {
        let file = path.map(|path| LogFile::open(path, mode)).transpose()?;
        Ok(Self(Mutex::new(Log { file, number: 0 })))
    }
    /// Writes down that a change begins. On an error it must not be made.
    pub(super) fn begin<'a>(
        &self,
        author: &'a Author,
        asked: Asked,
        revision: String,
    ) -> io::Result<Begun<'a>> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.number += 1;
        let number = log.number;
        let begun = Begun { number, author, asked, revision };
        log.write(&begun.line("begin", None))?;
        Ok(begun)
    }
    /// Writes down how it ended.
    pub(super) fn end(&self, begun: &Begun<'_>, outcome: &Outcome<'_>) -> io::Result<()> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.write(&begun.line("end", Some(outcome)))
    }
    /// Writes down a change that was refused before it began.
    pub(super) fn refused(&self, author: &Author, asked: Asked, outcome: &Outcome<'_>) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.number += 1;
        let revision = outcome.revision.to_string();
        let begun = Begun { number: log.number, author, asked, revision };
        // Nothing was changed, so nothing depends on it.
        let _ = log.write(&begun.line("refused", Some(outcome)));
    }
    /// The last lines, oldest first; `None`: they went to standard error.
    pub(super) fn last(&self, lines: usize) -> io::Result<Option<Vec<Json>>> {
        let path = {
            let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(file) = &log.file else { return Ok(None) };
            file.path().to_path_buf()
        };
        let mut file = match File::open(path) {
            // It was moved away, and the next line makes a new one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
            opened => opened?,
        };
        let length = file.metadata()?.len();
        let skipped = length.saturating_sub(TAIL_MAX);
        file.seek(SeekFrom::Start(skipped))?;
        let mut text = Vec::new();
        file.take(TAIL_MAX).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        // The first may have lost its begin; what is no JSON is a line that a crash cut off.
        let whole = text.lines().skip(usize::from(skipped > 0));
        let read: Vec<Json> = whole.filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Some(read[read.len().saturating_sub(lines)..].to_vec()))
    }
}

impl Log {
    fn write(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut text = serde_json::to_string(line).map_err(io::Error::other)?;
        let Some(file) = &mut self.file else {
            log::line(&text);
            return Ok(());
        };
        text.push('\n');
        file.append(text.as_bytes()).map_err(|error| {
            let told = format!("{}: {error}", file.path().display());
            io::Error::new(error.kind(), told)
        })
    }
}

impl Begun<'_> {
    fn line<'b>(&'b self, event: &'b str, outcome: Option<&'b Outcome<'_>>) -> Line<'b> {
        Line {
            time: time_of_day(clock::unix_millis()),
            number: self.number,
            event,
            author: self.author,
            asked: &self.asked,
            revision: &self.revision,
            new_revision: outcome.map(|outcome| outcome.revision),
            status: outcome.and_then(|outcome| outcome.status),
            result: outcome.map(|outcome| cut(outcome.result)),
        }
    }
}

/// As `2026-01-31T23:59:59.123Z`.
fn time_of_day(millis: u64) -> String {
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970: counted in years that begin in March, so that a leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use file::FILE_MAX;

    /// Goal: dates are right, leap years too. Method: days whose dates are known.
    #[test]
    fn dates_are_right() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (19_782, (2024, 2, 29)),
            (20_453, (2025, 12, 31)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), expected, "{days}");
        }
        assert_eq!(time_of_day(86_399_007), "1970-01-01T23:59:59.007Z");
    }

    /// Goal: one line a change, whatever callers say; a file that is full makes room; a log that cannot be written
    /// refuses. Method: names with newlines, more lines than files hold, a file that is not writable.
    #[test]
    fn lines_cannot_be_forged() {
        let directory = std::env::temp_dir().join(format!("iofair-audit-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("audit");
        let audit = Audit::open(Some(&path), &Mode::Serve).unwrap();
        let author = Author::own("unix");
        let forged = "x\n{\"event\": \"end\", \"result\": \"done\"}\u{2028}";
        let body = serde_json::json!({ "class": forged }).to_string();
        let asked = || Asked::new("PATCH", forged, forged, Some(body.as_bytes()));
        let begun = audit.begin(&author, asked(), forged.into()).unwrap();
        let outcome = Outcome { revision: forged, status: Some(200), result: forged };
        audit.end(&begun, &outcome).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        let lines = audit.last(10).unwrap().unwrap();
        assert_eq!((&lines[0]["event"], &lines[1]["event"]), (&"begin".into(), &"end".into()));
        assert_eq!(lines[1]["edit"]["class"], forged);
        assert_eq!((lines[1]["number"].as_u64(), lines.len()), (Some(1), 2));

        let long = "a".repeat(1 << 20);
        let asked = Asked::new("PUT", &long, &long, Some(long.as_bytes()));

        File::options().append(true).open(&path).unwrap().set_len(FILE_MAX).unwrap();
        audit.refused(&author, asked, &Outcome { revision: "", status: Some(403), result: &long });
        assert_eq!(audit.last(9).unwrap().unwrap().len(), 1);
        assert!(fs::metadata(&path).unwrap().len() < 5 * TEXT_MAX as u64);
        let old = fs::read(directory.join("audit.1")).unwrap();
        assert!(old.starts_with(text.as_bytes()) && old.len() as u64 == FILE_MAX);
        fs::remove_dir_all(&directory).unwrap();
        let error = audit.begin(&author, Asked::default(), String::new()).err().unwrap();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert!(Audit::open(Some(Path::new("/dev/null")), &Mode::Serve).is_err());
    }
}
