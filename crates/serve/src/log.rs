//! Messages for the operator, on standard error, written by a separate thread.
//!
//! Logging never blocks, whatever standard error is connected to: lines go into a bounded queue, and lines that find
//! it full are dropped and counted. Each source (a volume, the server) may write [`LINES_PER_SECOND`], so a client
//! that provokes messages neither hides others nor fills the disk. The number of dropped lines is reported with the
//! source's next line, or after a second of silence.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use iofair_core::time::{Instant, Nanos};

use crate::clock::Clock;

/// Lines that one source may write in a second; enough for everything that happens once.
const LINES_PER_SECOND: u32 = 10;
/// Sources that are remembered; those that come later share one place.
const SOURCES_MAX: usize = 1024;
/// Lines that wait for the thread.
const QUEUE_MAX: usize = 1024;
/// Bytes of one line.
const LINE_MAX: usize = 4096;
/// How long a server that ends waits for its last lines to be written.
const FLUSH_MAX: Duration = Duration::from_secs(1);
const SECOND: Nanos = Nanos::from_secs(1);

/// Standard error is one for the whole process, and so is this.
static LOG: OnceLock<Option<Log>> = OnceLock::new();

struct Log {
    queue: SyncSender<Item>,
    state: Mutex<State>,
}

struct State {
    clock: Clock,
    rates: Rates,
    /// Lines that found the queue full.
    lost: u64,
}

enum Item {
    Line(String),
    Flush(Sender<()>),
}

/// Writes a line soon: who says it, and what.
pub(crate) fn tell(source: &str, message: &str) {
    let Some(log) = LOG.get_or_init(start) else { return };
    let Ok(mut state) = log.state.lock() else { return };
    let now = state.clock.now();
    let Some(dropped) = state.rates.admit(now, source) else { return };
    let mut line = format!("{source}: {message}");
    let end = (0..=LINE_MAX.min(line.len())).rev().find(|end| line.is_char_boundary(*end));
    line.truncate(end.unwrap_or(0));
    if dropped > 0 {
        write!(line, " ({dropped} lines before this one were dropped)")
            .expect("writing to a string");
    }
    if log.queue.try_send(Item::Line(line)).is_err() {
        state.lost += 1;
    }
}

/// Waits until what was told is written, but not for long.
pub(crate) fn flush() {
    let Some(Some(log)) = LOG.get() else { return };
    let (done, written) = mpsc::channel();
    if log.queue.try_send(Item::Flush(done)).is_ok() {
        // Whoever does not read standard error keeps nobody from ending.
        let _ = written.recv_timeout(FLUSH_MAX);
    }
}

fn start() -> Option<Log> {
    let (queue, lines) = mpsc::sync_channel(QUEUE_MAX);
    let thread = std::thread::Builder::new().name("log".into()).spawn(move || write(&lines));
    // Without a thread nothing can be said without waiting, so nothing is said.
    thread.ok()?;
    let state = State { clock: Clock::start(), rates: Rates::default(), lost: 0 };
    Some(Log { queue, state: Mutex::new(state) })
}

fn write(lines: &Receiver<Item>) {
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(Item::Line(line)) => eprintln!("{line}"),
            // Whoever asked may have stopped waiting.
            Ok(Item::Flush(done)) => drop(done.send(())),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(Some(log)) = LOG.get() else { continue };
        let Ok(mut state) = log.state.lock() else { return };
        let now = state.clock.now();
        let (silent, lost) = (state.rates.take_dropped(now), std::mem::take(&mut state.lost));
        // Nobody waits for this lock while a line is being written.
        drop(state);
        for (source, dropped) in silent {
            eprintln!("{source}: {dropped} lines were dropped");
        }
        if lost > 0 {
            eprintln!("{lost} lines were dropped: standard error was too slow");
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
    /// Sources whose second is over and whose dropped lines were not told yet.
    fn take_dropped(&mut self, now: Instant) -> Vec<(String, u64)> {
        let over = self.0.iter_mut();
        let over = over.filter(|(_, r)| r.dropped > 0 && now.since(r.began) >= SECOND);
        over.map(|(source, rate)| (source.clone(), std::mem::take(&mut rate.dropped))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
