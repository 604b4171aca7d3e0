//! Messages of a program that runs for long, on standard error and standard output.
//!
//! Writing never blocks the caller and never fails, whatever the streams are connected to: each stream has a bounded
//! queue and a thread that writes. A line that finds the queue full, or that the stream does not take, is lost and
//! counted; the next line that the stream takes is preceded by the number of lost ones.
//!
//! Each source of the server's own messages (a volume, the server) may write [`LINES_PER_SECOND`], so a client that
//! provokes messages neither hides others nor fills the disk. The number of dropped lines is reported with the
//! source's next line, or after a second of silence.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Count;

use crate::clock::Clock;
use crate::signals::without_signals;

/// Lines that one source may write in a second; enough for everything that happens once.
const LINES_PER_SECOND: u32 = 10;
/// Sources that are remembered; those that come later share one place.
const SOURCES_MAX: usize = 1024;
/// Lines that wait for a thread.
const QUEUE_MAX: usize = 1024;
/// Bytes of one line of a source.
const LINE_MAX: usize = 4096;
/// Bytes of any other message, such as a record of the audit log.
const TEXT_MAX: usize = 128 << 10;
/// How long a program that ends waits for its last lines to be written.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How often it tries in that time to have them written, if the queue is full.
const FLUSH_TRIES: u32 = 100;
const SECOND: Nanos = Nanos::from_secs(1);

/// The streams belong to the whole process, and so do these.
static LOG: OnceLock<Log> = OnceLock::new();
static OUTPUT: OnceLock<Lane> = OnceLock::new();

struct Log {
    error: Lane,
    rates: Mutex<(Clock, Rates)>,
    /// Lines that were dropped because their source wrote too many.
    dropped: AtomicU64,
}

/// A stream's queue. Without a thread, every line is lost.
struct Lane {
    queue: Option<SyncSender<Item>>,
    lost: Arc<Lost>,
}

/// Lines that a stream did not get.
#[derive(Default)]
struct Lost {
    all: AtomicU64,
    /// Those that were not reported yet.
    untold: AtomicU64,
}

enum Item {
    Line(String),
    Flush(Sender<()>),
}

/// Writes a line to standard error soon.
pub fn line(text: &str) {
    log().error.line(cut(text, TEXT_MAX).to_string());
}

/// Writes a text to standard output soon. If it cannot be written, standard error says why.
pub fn print(text: &str) {
    let output = OUTPUT.get_or_init(|| Lane::start("output", io::stdout().as_fd(), write_output));
    output.line(text.strip_suffix('\n').unwrap_or(text).to_string());
}

/// Waits until what was written before has reached the streams, or for a second.
pub fn flush() {
    // Standard output first: its failure is a line of standard error.
    OUTPUT.get().into_iter().for_each(Lane::flush);
    LOG.get().into_iter().for_each(|log| log.error.flush());
}

/// Lines that were lost or dropped since the start.
pub(crate) fn lost() -> u64 {
    let of = |lane: &Lane| lane.lost.all.load(Relaxed);
    let error = LOG.get().map_or(0, |log| of(&log.error) + log.dropped.load(Relaxed));
    error + OUTPUT.get().map_or(0, of)
}

/// Writes a line to standard error soon: its source, and a message.
pub(crate) fn tell(source: &str, message: &str) {
    let log = log();
    let admitted = {
        let mut rates = log.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let now = rates.0.now();
        rates.1.admit(now, source)
    };
    let Some(dropped) = admitted else {
        log.dropped.fetch_add(1, Relaxed);
        return;
    };
    let mut line = cut(&format!("{source}: {message}"), LINE_MAX).to_string();
    if dropped > 0 {
        write!(line, " (dropped before this one: {})", Count(dropped, "line"))
            .expect("writing to a string");
    }
    log.error.line(line);
}

/// As much of a text as may be written.
fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn log() -> &'static Log {
    LOG.get_or_init(|| Log {
        error: Lane::start("log", io::stderr().as_fd(), write_errors),
        rates: Mutex::new((Clock::start(), Rates::default())),
        dropped: AtomicU64::new(0),
    })
}

impl Lane {
    /// Starts the thread of a stream.
    fn start(name: &str, stream: BorrowedFd<'_>, write: fn(Stream<File>, &Receiver<Item>)) -> Self {
        let lost = Arc::new(Lost::default());
        let (queue, lines) = mpsc::sync_channel(QUEUE_MAX);
        // A descriptor of its own, because the standard library buffers standard output.
        let started = stream.try_clone_to_owned().and_then(|file| {
            let stream = Stream::new(File::from(file), &lost);
            let thread = std::thread::Builder::new().name(name.into());
            without_signals(|| thread.spawn(move || write(stream, &lines)))
        });
        Self { queue: started.is_ok().then_some(queue), lost }
    }
    fn line(&self, text: String) {
        let queue = self.queue.as_ref();
        if queue.is_none_or(|queue| queue.try_send(Item::Line(text)).is_err()) {
            self.lost.add(1);
        }
    }
    fn flush(&self) {
        let Some(queue) = &self.queue else { return };
        let (done, written) = mpsc::channel();
        let mut item = Item::Flush(done);
        // An unread stream must not keep the program from ending.
        for _ in 0..FLUSH_TRIES {
            item = match queue.try_send(item) {
                Ok(()) => {
                    let _ = written.recv_timeout(FLUSH_MAX);
                    return;
                }
                Err(TrySendError::Full(item)) => item,
                Err(TrySendError::Disconnected(_)) => return,
            };
            // There is no event for room in the queue.
            let _ = written.recv_timeout(FLUSH_MAX / FLUSH_TRIES);
        }
    }
}

impl Lost {
    fn add(&self, lines: u64) {
        self.all.fetch_add(lines, Relaxed);
        self.untold.fetch_add(lines, Relaxed);
    }
}

/// A stream that may fail at any time, and work again later.
struct Stream<W> {
    to: W,
    lost: Arc<Lost>,
    /// The last failure, if it was not reported yet.
    failure: Option<io::Error>,
    /// Whether a failure has cut off a line.
    is_torn: bool,
}

impl<W: Write> Stream<W> {
    fn new(to: W, lost: &Arc<Lost>) -> Self {
        Self { to, lost: Arc::clone(lost), failure: None, is_torn: false }
    }
    /// Writes a line after the number of those that were lost before it.
    fn line(&mut self, line: &str) {
        if !self.report() || !self.put(line) {
            self.lost.add(1);
        }
    }
    /// Reports lost lines, if there are any.
    fn report(&mut self) -> bool {
        let untold = self.lost.untold.swap(0, Relaxed);
        if untold == 0 {
            return true;
        }
        let why = match &self.failure {
            Some(failure) => format!("failed: {failure}"),
            None => "was too slow".into(),
        };
        let told = self.put(&format!("{} lost: standard error {why}", Count(untold, "line")));
        match told {
            true => self.failure = None,
            false => {
                self.lost.untold.fetch_add(untold, Relaxed);
            }
        }
        told
    }
    fn put(&mut self, line: &str) -> bool {
        let text = format!("{}{line}\n", if self.is_torn { "\n" } else { "" });
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match self.to.write(rest) {
                Ok(0) => {
                    return self.fail(io::ErrorKind::WriteZero.into(), rest.len() < text.len());
                }
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.fail(error, rest.len() < text.len()),
            }
        }
        self.is_torn = false;
        true
    }
    fn fail(&mut self, error: io::Error, is_torn: bool) -> bool {
        self.failure = Some(error);
        self.is_torn |= is_torn;
        false
    }
}

/// The thread of standard error.
fn write_errors(mut stream: Stream<File>, lines: &Receiver<Item>) {
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(Item::Line(line)) => stream.line(&line),
            Ok(Item::Flush(done)) => {
                stream.report();
                // The sender may have stopped waiting.
                let _ = done.send(());
            }
            Err(RecvTimeoutError::Timeout) => drop(stream.report()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(log) = LOG.get() else { continue };
        let silent = {
            let mut rates = log.rates.lock().unwrap_or_else(PoisonError::into_inner);
            let now = rates.0.now();
            rates.1.take_dropped(now)
        };
        // This lock is not held while a line is written.
        for (source, dropped) in silent {
            stream.line(&format!("{source}: {} dropped", Count(dropped, "line")));
        }
    }
}

/// The thread of standard output. Its failures are reported on standard error, because programs read standard output.
fn write_output(mut stream: Stream<File>, lines: &Receiver<Item>) {
    for item in lines {
        match item {
            Item::Line(line) => {
                if !stream.put(&line) {
                    stream.lost.add(1);
                }
                if let Some(failure) = stream.failure.take() {
                    self::line(&format!("standard output: {failure}"));
                }
            }
            Item::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

/// What each source has written in its present second.
#[derive(Debug, Default)]
struct Rates(BTreeMap<String, Rate>);

#[derive(Debug)]
struct Rate {
    began: Instant,
    lines: u32,
    dropped: u64,
}

impl Rates {
    /// Whether a source may write a line now. If so: how many of its lines were dropped before.
    fn admit(&mut self, now: Instant, source: &str) -> Option<u64> {
        if !self.0.contains_key(source) && self.0.len() >= SOURCES_MAX {
            self.0.retain(|_, rate| now.since(rate.began) < SECOND || rate.dropped > 0);
        }
        let is_known = self.0.contains_key(source) || self.0.len() < SOURCES_MAX;
        let name = if is_known { source } else { "others" };
        let new = || Rate { began: now, lines: 0, dropped: 0 };
        let rate = match self.0.get_mut(name) {
            Some(rate) => rate,
            None => self.0.entry(name.to_string()).or_insert_with(new),
        };
        if now.since(rate.began) >= SECOND {
            (rate.began, rate.lines) = (now, 0);
        }
        if rate.lines >= LINES_PER_SECOND {
            rate.dropped += 1;
            return None;
        }
        rate.lines += 1;
        Some(std::mem::take(&mut rate.dropped))
    }
    /// Sources whose second has ended and whose dropped lines were not reported yet.
    fn take_dropped(&mut self, now: Instant) -> Vec<(String, u64)> {
        let over = self.0.iter_mut();
        let over = over.filter(|(_, r)| r.dropped > 0 && now.since(r.began) >= SECOND);
        over.map(|(source, rate)| (source.clone(), std::mem::take(&mut rate.dropped))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream with room for some bytes.
    #[derive(Default)]
    struct Narrow {
        text: Vec<u8>,
        room: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = bytes.len().min(self.room - self.text.len());
            self.text.extend(&bytes[..written]);
            match written {
                0 => Err(io::ErrorKind::StorageFull.into()),
                written => Ok(written),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Goal: a stream that fails loses lines, which are counted and reported once it works; a line that was cut off
    /// stays one line. Method: a stream that is full in the middle of a line, and has room later.
    #[test]
    fn lost_lines_are_counted_and_reported() {
        let lost = Arc::new(Lost::default());
        let mut stream = Stream::new(Narrow { room: 10, ..Narrow::default() }, &lost);
        ["first", "second", "third"].iter().for_each(|line| stream.line(line));
        assert_eq!(stream.to.text, b"first\nseco");
        assert_eq!(lost.all.load(Relaxed), 2);
        lost.add(1);
        stream.to.room = 1000;
        stream.line("fourth");
        stream.line("fifth");
        let text = String::from_utf8(stream.to.text).unwrap();
        let [first, torn, report, rest @ ..] = &text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        assert_eq!((*first, *torn, rest), ("first", "seco", &["fourth", "fifth"][..]));
        assert!(report.starts_with("3 lines lost: standard error failed: "), "{report}");
        assert_eq!((lost.all.load(Relaxed), lost.untold.load(Relaxed)), (3, 0));
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(millis)
    }

    /// Goal: a source that floods loses its own lines only, and they are counted. Method: one that writes too much
    /// beside one that does not, over some seconds.
    #[test]
    fn log_floods_are_limited() {
        let mut rates = Rates::default();
        let admitted = (0..1_000).filter(|_| rates.admit(at(0), "bad").is_some()).count();
        assert_eq!(admitted, LINES_PER_SECOND as usize);
        assert_eq!(rates.admit(at(1), "good"), Some(0));
        assert!(rates.take_dropped(at(999)).is_empty(), "the second is not over");
        assert_eq!(rates.admit(at(1_000), "bad"), Some(990));
        for _ in 0..20 {
            rates.admit(at(1_001), "bad");
        }
        assert_eq!(rates.take_dropped(at(2_001)), [("bad".to_string(), 11)]);
        assert!(rates.take_dropped(at(2_001)).is_empty());
    }

    /// Goal: sources have a bound, too. Method: far more of them than are remembered, in one second and later.
    #[test]
    fn sources_have_a_bound() {
        let mut rates = Rates::default();
        let flood = |rates: &mut Rates, now| {
            (0..5_000).filter(|n| rates.admit(now, &format!("volume {n}")).is_some()).count()
        };
        let most = SOURCES_MAX + 1;
        assert!(flood(&mut rates, at(0)) <= most + LINES_PER_SECOND as usize);
        assert!(rates.0.len() <= most);
        assert_eq!(rates.admit(at(1_500), "new"), Some(0), "the old ones are forgotten");
        assert!(rates.0.len() <= most);
    }
}
