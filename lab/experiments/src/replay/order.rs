//! When each request of a trace is sent.
//!
//! - *Open*: at its recorded time. Clients do not wait for anything, so a drive that is too slow builds up a queue.
//! - *Think*: when what it waited for is complete, and after the same pause. A request waited for the completion of its
//!   stream that came last before it; the pause is the time between that completion and the request. A request before the
//!   stream's first completion follows the stream's request before it, at the recorded distance.
//! - *Closed*: the same without pauses.
//!
//! Where a trace has no completions, a request waits for the stream's request before it to be complete; in *think* it is
//! also sent no earlier after that one than recorded.
//!
//! In the last two modes the next [`AHEAD`] requests of the trace are in memory. A stream that could go on beyond them
//! waits for the others, so memory is bounded whatever the trace.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iofair_core::time::{Instant, Nanos};
use iofair_trace::clean::{Clean, Playable};
use iofair_trace::{Source, TraceError};

/// Requests that are in memory before they are sent.
pub const AHEAD: usize = 1 << 16;
/// Requests of a stream that are remembered because later ones may wait for them.
const OPEN_MAX: usize = 1 << 12;

/// When requests are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// At their recorded times.
    Open,
    /// When what they waited for is complete.
    Closed,
    /// The same after the recorded pause.
    Think,
}

impl Mode {
    /// The mode of this name.
    pub fn find(name: &str) -> Option<Self> {
        [Self::Open, Self::Closed, Self::Think].into_iter().find(|mode| mode.word() == name)
    }
    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Think => "think",
        }
    }
}

/// A request that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: u64,
    /// When it should be sent.
    pub(super) at: Instant,
    pub(super) request: Playable,
}

/// What a request follows.
#[derive(Clone, Copy, Debug)]
enum After {
    /// The beginning of the replay.
    Start,
    /// The sending of another one.
    Sent(u64),
    /// The completion of another one.
    Completed(u64),
    /// The same, and the pause counts from its sending.
    Paced(u64),
}

/// How far a request is that others may follow.
#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    sent: Option<Instant>,
    completed: Option<Instant>,
    /// Places of its stream's history that it has.
    places: u8,
}

/// What is remembered of a stream.
#[derive(Debug, Default)]
struct History {
    /// Requests by their recorded completions, as far as these lie ahead.
    open: VecDeque<(Instant, u64)>,
    /// The one that was completed last, by the recording.
    done: Option<(Instant, u64)>,
    /// The last request.
    last: Option<(Instant, u64)>,
}

/// The requests of a trace in the order in which they are sent.
pub(super) struct Order<S> {
    trace: Clean<S>,
    mode: Mode,
    speed: u64,
    duration: Option<Nanos>,
    /// Number of the next request that is read.
    next: u64,
    /// Read, and not sent.
    held: BTreeMap<u64, (Playable, Nanos)>,
    due: BTreeSet<(Instant, u64)>,
    followers: BTreeMap<u64, Vec<(u64, After)>>,
    progress: BTreeMap<u64, Progress>,
    histories: BTreeMap<u32, History>,
    over: bool,
}

impl<S: Source> Order<S> {
    pub(super) fn new(trace: Clean<S>, mode: Mode, speed: u64, duration: Option<Nanos>) -> Self {
        Self {
            trace,
            mode,
            speed: speed.max(1),
            duration,
            next: 0,
            held: BTreeMap::new(),
            due: BTreeSet::new(),
            followers: BTreeMap::new(),
            progress: BTreeMap::new(),
            histories: BTreeMap::new(),
            over: false,
        }
    }
    pub(super) fn trace(&self) -> &Clean<S> {
        &self.trace
    }
    /// A recorded time as one of the replay, rounded down.
    fn scaled(&self, time: Nanos) -> Nanos {
        let scaled = u128::from(time.0) * 1000 / u128::from(self.speed);
        Nanos(u64::try_from(scaled).unwrap_or(u64::MAX / 2))
    }
    /// Reads ahead as far as memory allows.
    pub(super) fn fill(&mut self) -> Result<(), TraceError> {
        let ahead = if self.mode == Mode::Open { 1 } else { AHEAD };
        while !self.over && self.held.len() < ahead {
            let Some(request) = self.trace.next_request()? else {
                self.over = true;
                break;
            };
            let at = self.scaled(Nanos(request.record.at.0));
            if self.mode != Mode::Closed && self.duration.is_some_and(|end| at >= end) {
                self.over = true;
                break;
            }
            self.take(request);
        }
        Ok(())
    }
    fn take(&mut self, request: Playable) {
        let number = self.next;
        self.next += 1;
        let (after, pause) = match self.mode {
            Mode::Open => (After::Start, Nanos(request.record.at.0)),
            _ => self.remember(&request),
        };
        let pause = if self.mode == Mode::Closed { Nanos::ZERO } else { self.scaled(pause) };
        self.held.insert(number, (request, pause));
        match after {
            After::Start => self.set_due(number, Instant::ZERO + pause),
            After::Sent(anchor) | After::Completed(anchor) | After::Paced(anchor) => {
                let progress = self.progress[&anchor];
                match after.from(&progress, pause) {
                    Some(at) => self.set_due(number, at),
                    None => self.followers.entry(anchor).or_default().push((number, after)),
                }
            }
        }
        if self.mode != Mode::Open {
            self.enter_history(&request, number);
        }
    }
    /// Finds out what a request follows, from the recorded times of its stream.
    fn remember(&mut self, request: &Playable) -> (After, Nanos) {
        let at = request.record.at;
        let history = self.histories.entry(request.record.stream).or_default();
        // What was completed by now; the last of it counts.
        let mut replaced = Vec::new();
        let mut index = 0;
        while index < history.open.len() {
            let (completed, other) = history.open[index];
            if completed > at {
                index += 1;
                continue;
            }
            history.open.remove(index);
            let is_last = history.done.is_none_or(|(known, _)| completed >= known);
            let out = match is_last {
                true => history.done.replace((completed, other)).map(|(_, number)| number),
                false => Some(other),
            };
            replaced.extend(out);
        }
        let known = request.record.completion.is_some();
        let found = match (history.done, history.last) {
            (Some((completed, anchor)), _) if known => {
                (After::Completed(anchor), at.since(completed))
            }
            (_, Some((sent, anchor))) if known => (After::Sent(anchor), at.since(sent)),
            (_, Some((sent, anchor))) => (After::Paced(anchor), at.since(sent)),
            (_, None) => (After::Start, Nanos(at.0)),
        };
        replaced.into_iter().for_each(|number| self.leave_history(number));
        found
    }
    /// Later requests of the stream may follow this one.
    fn enter_history(&mut self, request: &Playable, number: u64) {
        let history = self.histories.entry(request.record.stream).or_default();
        let mut progress = Progress { places: 1, ..Progress::default() };
        let last = history.last.replace((request.record.at, number));
        let mut oldest = None;
        if let Some(completed) = request.record.completed() {
            progress.places += 1;
            history.open.push_back((completed, number));
            if history.open.len() > OPEN_MAX {
                oldest = history.open.pop_front();
            }
        }
        self.progress.insert(number, progress);
        last.into_iter().chain(oldest).for_each(|(_, number)| self.leave_history(number));
    }
    fn leave_history(&mut self, number: u64) {
        let progress = self.progress.get_mut(&number).expect("what is in a history is known");
        progress.places -= 1;
        self.drop_unneeded(number);
    }
    /// Forgets a request that no other one follows or may follow.
    fn drop_unneeded(&mut self, number: u64) {
        let has_places = self.progress.get(&number).is_some_and(|progress| progress.places > 0);
        if !has_places && !self.followers.contains_key(&number) {
            self.progress.remove(&number);
        }
    }
    fn set_due(&mut self, number: u64, at: Instant) {
        self.due.insert((at, number));
    }
    /// When the next request is due; `None` if all wait for completions, or there is none.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let at = self.due.first().map(|(at, _)| *at)?;
        let is_over = self.duration.is_some_and(|end| at >= Instant::ZERO + end);
        (!is_over).then_some(at)
    }
    /// Takes the next request that is due by now, and sends it.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Due> {
        self.next_due().filter(|at| *at <= now)?;
        let (at, number) = self.due.pop_first()?;
        let (request, _) = self.held.remove(&number).expect("what is due is held");
        if let Some(progress) = self.progress.get_mut(&number) {
            progress.sent = Some(now);
        }
        self.wake(number);
        Some(Due { number, at, request })
    }
    /// A request is complete.
    pub(super) fn on_completed(&mut self, number: u64, now: Instant) {
        if let Some(progress) = self.progress.get_mut(&number) {
            progress.completed = Some(now);
        }
        self.wake(number);
    }
    /// Sets those due that follow a request and know when.
    fn wake(&mut self, number: u64) {
        let followers = self.followers.remove(&number).unwrap_or_default();
        let mut waiting = Vec::new();
        for (follower, after) in followers {
            let pause = self.held[&follower].1;
            match after.from(&self.progress[&number], pause) {
                Some(at) => self.set_due(follower, at),
                None => waiting.push((follower, after)),
            }
        }
        if !waiting.is_empty() {
            self.followers.insert(number, waiting);
        }
        self.drop_unneeded(number);
    }
}

impl After {
    /// When a request is due that follows one which is so far; `None`: not known yet.
    fn from(self, progress: &Progress, pause: Nanos) -> Option<Instant> {
        let Progress { sent, completed, .. } = *progress;
        match self {
            Self::Start => Some(Instant::ZERO + pause),
            Self::Sent(_) => Some(sent? + pause),
            Self::Completed(_) => Some(completed? + pause),
            Self::Paced(_) => Some((sent? + pause).max(completed?)),
        }
    }
}

#[cfg(test)]
mod tests;
