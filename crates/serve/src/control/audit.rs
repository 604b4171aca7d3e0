//! The audit log: every change with its author, source and result, as lines of JSON.
//!
//! A change is logged *before* it is made (`"event": "begin"`) and synced; if that fails, the change is refused. Its
//! end (`"event": "end"`, with the same `number`, both revisions and the result) is synced before the caller gets the
//! result. So a begin without an end is a change during which the server died, and there is no change without a
//! begin. A file system that does not respond makes a change wait for a while and refuses it then; it keeps nobody from
//! looking. Everything that callers send is a JSON string, in which a newline is `
//! `, so no name can forge a line.
//!
//! Lines, files (a full file becomes `PATH.1`, and so on) and the number of files are bounded. Without a file, lines
//! go to standard error like all other messages, which systemd sends to the journal: they may be lost, and no change
//! waits for them.

mod file;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value as Json;

use super::gate::Author;
use super::limits;
use crate::trial::Mode;
use crate::{clock, log};
use file::LogFile;

/// Bytes of what a caller wrote that a line repeats.
const TEXT_MAX: usize = 4 << 10;
/// Bytes at the end of the file in which the last lines are looked for.
const TAIL_MAX: u64 = 1 << 20;
/// Lines and questions that wait for the file: more than callers and their changes may have at once.
const WAITING_MAX: usize = 256;

/// The log.
#[derive(Debug)]
pub(super) struct Audit {
    /// `None`: standard error.
    writer: Option<Writer>,
    /// Of the last change.
    number: AtomicU64,
}

/// What is asked for.
#[derive(Clone, Default, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Asked {
    /// Part of the call.
    pub(super) method: String,
    /// Part of the call.
    pub(super) path: String,
    /// Part of the call.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) query: String,
    /// The call's body, or the beginning of a long one.
    #[serde(skip_serializing_if = "Json::is_null")]
    pub(super) edit: Json,
}

/// One line.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AuditLine"))]
pub(super) struct Line<'a> {
    /// UTC.
    time: String,
    /// The same for the begin and the end of a change; counted from 1 since the server's start.
    number: u64,
    #[cfg_attr(test, schemars(extend("enum" = ["begin", "end", "refused"])))]
    event: &'a str,
    #[serde(flatten)]
    author: &'a Author,
    #[serde(flatten)]
    asked: &'a Asked,
    /// Revision of the contract file before the change.
    revision: &'a str,
    /// Revision of the contract file after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_revision: Option<&'a str>,
    /// HTTP status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// `done`, or the error.
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
        let writer = path.map(|path| LogFile::open(path, mode).and_then(Writer::start));
        Ok(Self { writer: writer.transpose()?, number: AtomicU64::new(0) })
    }
    /// Writes down that a change begins. On an error it must not be made.
    pub(super) fn begin<'a>(
        &self,
        author: &'a Author,
        asked: Asked,
        revision: String,
    ) -> io::Result<Begun<'a>> {
        let begun = Begun { number: self.next_number(), author, asked, revision };
        let begins = self.write(&begun.line("begin", None), Some(limits::CHANGE_WAIT));
        if let Err(error) = &begins
            && error.kind() == io::ErrorKind::TimedOut
        {
            // It is written later, and has its end then.
            let result = error.to_string();
            let outcome = Outcome { revision: &begun.revision, status: Some(503), result: &result };
            let _ = self.write(&begun.line("end", Some(&outcome)), None);
        }
        begins.map(|()| begun)
    }
    /// Writes down how it ended.
    pub(super) fn end(&self, begun: &Begun<'_>, outcome: &Outcome<'_>) -> io::Result<()> {
        self.write(&begun.line("end", Some(outcome)), Some(limits::CHANGE_WAIT))
    }
    /// Writes down a change that was refused before it began, some time soon: nothing was changed, so nobody waits for it.
    pub(super) fn refused(&self, author: &Author, asked: Asked, outcome: &Outcome<'_>) {
        let revision = outcome.revision.to_string();
        let begun = Begun { number: self.next_number(), author, asked, revision };
        let _ = self.write(&begun.line("refused", Some(outcome)), None);
    }
    /// The last lines, oldest first; `None`: they went to standard error.
    pub(super) fn last(&self, lines: usize) -> io::Result<Option<Vec<Json>>> {
        let Some(writer) = &self.writer else { return Ok(None) };
        let read = writer.ask(|reply| Task::Read(lines, reply), limits::AUDIT_WAIT)?;
        read.map(Some)
    }
    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed) + 1
    }
    /// Writes a line, and waits until it is durable, for a limited time.
    fn write(&self, line: &Line<'_>, wait: Option<Duration>) -> io::Result<()> {
        let mut text = serde_json::to_string(line).map_err(io::Error::other)?;
        let Some(writer) = &self.writer else {
            log::line(&text);
            return Ok(());
        };
        text.push('\n');
        match wait {
            Some(wait) => writer.ask(|reply| Task::Line(text, Some(reply)), wait)?,
            None => writer.send(Task::Line(text, None)),
        }
    }
}

/// The thread that has the file, since a file system may make it wait for ever.
#[derive(Debug)]
struct Writer {
    path: PathBuf,
    tasks: Sender<Task>,
    /// Tasks that were sent and are not done.
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Task {
    Line(String, Option<Sender<io::Result<()>>>),
    /// The last lines.
    Read(usize, Sender<io::Result<Vec<Json>>>),
}

impl Writer {
    fn start(file: LogFile) -> io::Result<Self> {
        let (tasks, inbox) = mpsc::channel();
        let (path, waiting) = (file.path().to_path_buf(), Arc::new(AtomicUsize::new(0)));
        let done = waiting.clone();
        let work = move || carry_out(file, &inbox, &done);
        std::thread::Builder::new().name("audit".into()).spawn(work)?;
        Ok(Self { path, tasks, waiting })
    }
    fn send(&self, task: Task) -> io::Result<()> {
        let more = |waiting| (waiting < WAITING_MAX).then_some(waiting + 1);
        let room = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let sent = room.is_ok() && self.tasks.send(task).is_ok();
        if sent { Ok(()) } else { Err(self.late(Duration::ZERO)) }
    }
    /// Waits for the result of a task.
    fn ask<T>(&self, task: impl FnOnce(Sender<T>) -> Task, wait: Duration) -> io::Result<T> {
        let (reply, replied) = mpsc::channel();
        self.send(task(reply))?;
        replied.recv_timeout(wait).map_err(|_| self.late(wait))
    }
    fn late(&self, wait: Duration) -> io::Error {
        let path = self.path.display();
        match wait {
            // It was not begun.
            Duration::ZERO => io::Error::other(format!("{path}: too many lines wait for it")),
            _ => {
                let message = format!("{path}: its file system has not responded for {wait:?}");
                io::Error::new(io::ErrorKind::TimedOut, message)
            }
        }
    }
}

impl Drop for Writer {
    /// Lines for which nobody waited are written at an orderly end, unless the file system does not respond.
    fn drop(&mut self) {
        let _ = self.ask(|reply| Task::Read(0, reply), limits::AUDIT_WAIT);
    }
}

/// Does what the others ask for, until they are gone.
fn carry_out(mut file: LogFile, tasks: &Receiver<Task>, waiting: &AtomicUsize) {
    for task in tasks {
        // Those who asked may not wait any more.
        match task {
            Task::Line(text, reply) => {
                let written = file.append(text.as_bytes()).map_err(|error| {
                    let told = format!("{}: {error}", file.path().display());
                    io::Error::new(error.kind(), told)
                });
                drop(reply.map(|reply| reply.send(written)));
            }
            Task::Read(lines, reply) => drop(reply.send(last(file.path(), lines))),
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The last lines of a file.
fn last(path: &Path, lines: usize) -> io::Result<Vec<Json>> {
    let mut file = match File::open(path) {
        // It was moved away, and the next line makes a new one.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
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
    Ok(read[read.len().saturating_sub(lines)..].to_vec())
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
pub(super) fn time_of_day(millis: u64) -> String {
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
    use std::os::unix::fs::PermissionsExt;

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

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        File::options().append(true).open(&path).unwrap().set_len(FILE_MAX).unwrap();
        audit.refused(&author, asked, &Outcome { revision: "", status: Some(403), result: &long });
        assert_eq!(audit.last(9).unwrap().unwrap().len(), 1);
        assert!(fs::metadata(&path).unwrap().len() < 5 * TEXT_MAX as u64);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let old = fs::read(directory.join("audit.1")).unwrap();
        assert!(old.starts_with(text.as_bytes()) && old.len() as u64 == FILE_MAX);
        fs::remove_dir_all(&directory).unwrap();
        let error = audit.begin(&author, Asked::default(), String::new()).err().unwrap();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert!(Audit::open(Some(Path::new("/dev/null")), &Mode::Serve).is_err());
    }
}
