//! An emulated drive: a drive model in real time in front of a store. The simulator runs the same model in virtual
//! time.
//!
//! Data moves when a command starts; its completion waits for the model. Completions are never early, unless the path
//! between the drive and its users takes time that [`Timing`] compensates. How late they
//! are depends on the reactor, which polls for the last microseconds before [`Back::next_event`]. Over a file,
//! commands that must be durable (a flush, a write with FUA) also wait for `fdatasync`, because the host's drive may
//! be slower than the model. A write that finds no space in the file fails. If a part of the file becomes unavailable (the file
//! was truncated), every request fails from then on.

mod timing;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use iofair_core::controller::Dispatch;
use iofair_core::id::RequestId;
use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_drive::{Command, Done, Drive};

use super::store::Store;
use super::{Back, Completed, Job, Loss, memory};
use crate::request::entry::Entry;
use crate::request::op::Ops;

pub use self::timing::{Lateness, Timing};

/// A model over a store.
pub struct Emulated {
    drive: Box<dyn Drive + Send>,
    store: Store,
    name: String,
    /// The operator knows that the store is lost.
    told: bool,
    done: Vec<Done>,
    /// Commands in the model that are not completed before the file is durable.
    durable: Vec<RequestId>,
    entries: Vec<Entry>,
    losses: Vec<Loss>,
    timing: Arc<Timing>,
    /// Whether others have a timing in common with it: it is a drive for their software then, and no part of a server.
    is_drive: bool,
    /// Commands in the model.
    inside: Vec<Inside>,
    /// How far the model has been advanced.
    model_time: Instant,
    /// Completed in the model, not yet due.
    due: BinaryHeap<Reverse<Due>>,
    completed: u64,
}

/// A command in the model.
#[derive(Clone, Copy, Debug)]
struct Inside {
    id: u32,
    since: Instant,
    /// How much earlier than in the model it completes.
    lead: Nanos,
}

/// A command that the model has completed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Due {
    at: Instant,
    order: u64,
    id: u32,
    status: i32,
    took: Nanos,
}

impl Emulated {
    /// Puts a model in front of a store of at least the drive's size; `name` is for messages.
    pub fn new(name: &str, drive: Box<dyn Drive + Send>, store: Store) -> Self {
        assert!(store.bytes() >= drive.facts().capacity.bytes(), "a store smaller than its drive");
        let name = name.to_string();
        let (done, durable, entries) = (Vec::new(), Vec::new(), Vec::new());
        let (timing, inside, model_time) = (Arc::default(), Vec::new(), Instant::ZERO);
        let (due, completed) = (BinaryHeap::new(), 0);
        let told = false;
        Self {
            drive,
            store,
            name,
            told,
            done,
            durable,
            entries,
            losses: Vec::new(),
            timing,
            is_drive: false,
            inside,
            model_time,
            due,
            completed,
        }
    }
    /// The longest lead of a command in the model.
    fn longest_lead(&self) -> Nanos {
        self.inside.iter().map(|command| command.lead).max().unwrap_or(Nanos::ZERO)
    }
    /// Advances the model, event by event, as far as commands in it complete early. It is not advanced further than to
    /// its last event, so that it knows the next command at its arrival, if that comes later.
    fn look_ahead(&mut self, now: Instant) {
        while let Some(at) = self.drive.next_event().filter(|at| *at <= now + self.longest_lead()) {
            self.drive.advance(at, &mut self.done);
            self.model_time = self.model_time.max(at);
            for done in self.done.drain(..) {
                let place = self.inside.iter().position(|command| command.id == done.id);
                let place = place.expect("the model completes what was submitted to it");
                let Inside { id, since, lead } = self.inside.swap_remove(place);
                let at = since.max(Instant(done.at.0.saturating_sub(lead.0)));
                self.completed += 1;
                let (order, took) = (self.completed, done.at.since(since));
                self.due.push(Reverse(Due { at, order, id, status: done.status, took }));
            }
        }
    }
    /// What a command comes to.
    fn status(&mut self, status: i32) -> i32 {
        if !self.store.is_lost() {
            return status;
        }
        if !std::mem::replace(&mut self.told, true) {
            crate::log::tell(
                &self.describe(),
                "a part of its file cannot be read or written: it was truncated, or its disk has failed; start again",
            );
        }
        libc::EIO
    }
    /// The model is done with a command: it is completed, or waits for the file.
    fn finish(&mut self, done: Done, completed: &mut Vec<Completed>) {
        let (id, status) = (RequestId(done.id), self.status(done.status));
        let durable = self.durable.iter().position(|other| *other == id);
        let file = durable.and_then(|place| {
            self.durable.swap_remove(place);
            self.store.backing()
        });
        match file {
            Some(file) if status == 0 => {
                let sync = Entry::sync_data(file.as_raw_fd());
                self.entries.push(sync.user_data(u64::from(id.0)));
            }
            _ => completed.push(Completed { id, status }),
        }
    }
}

impl Back for Emulated {
    fn facts(&self) -> DriveFacts {
        self.drive.facts()
    }
    fn worst_case_rate(&self) -> Option<u64> {
        Some(self.drive.worst_case_rate())
    }
    fn start(&mut self, job: &Job<'_>, ops: &mut Ops, _: &mut Vec<Completed>) {
        memory::apply(&mut self.store, job, ops);
        let Dispatch { id, operation, flags, start, length, .. } = job.dispatch;
        let fua = job.parts.iter().any(|part| ops[ops.piece(part).op].hints.fua);
        if self.store.backing().is_some() && (fua || operation == Operation::Flush) {
            self.durable.push(id);
        }
        let lead = self.timing.lead(length);
        self.inside.push(Inside { id: id.0, since: job.now, lead });
        let now = job.now.max(self.model_time);
        self.drive.submit(now, Command { id: id.0, operation, flags, start, length });
    }
    fn next_event(&self) -> Option<Instant> {
        let due = self.due.peek().map(|Reverse(due)| due.at);
        let lead = self.longest_lead();
        let model = self.drive.next_completion().map(|at| Instant(at.0.saturating_sub(lead.0)));
        due.into_iter().chain(model).min()
    }
    fn advance(&mut self, now: Instant, _: &mut Ops, completed: &mut Vec<Completed>) {
        self.look_ahead(now);
        while let Some(Reverse(command)) = self.due.peek().copied().filter(|due| due.0.at <= now) {
            self.due.pop();
            self.timing.record(command.took, now.since(command.at));
            self.finish(Done { id: command.id, at: command.at, status: command.status }, completed);
        }
    }
    fn share_timing(&mut self, timing: &Arc<Timing>) {
        (self.timing, self.is_drive) = (Arc::clone(timing), true);
        if timing.forgets()
            && self.store.backing().is_none()
            && let Ok(store) = Store::forgetful(self.store.bytes())
        {
            self.store = store;
        }
    }
    fn is_lost(&self) -> bool {
        self.store.is_lost()
    }
    fn merges(&self) -> bool {
        !self.is_drive
    }
    fn polls(&self) -> bool {
        self.timing.polls()
    }
    fn take_entries(&mut self) -> Option<&mut Vec<Entry>> {
        Some(&mut self.entries)
    }
    fn take_losses(&mut self) -> Option<&mut Vec<Loss>> {
        Some(&mut self.losses)
    }
    fn on_ring(
        &mut self,
        user_data: u32,
        result: i32,
        _: &mut Ops,
        completed: &mut Vec<Completed>,
    ) {
        if result < 0 {
            self.losses.push(Loss { range: 0..u64::MAX, status: -result });
        }
        let status = self.status(-result.min(0));
        completed.push(Completed { id: RequestId(user_data), status });
    }
    fn busy(&self) -> Option<Nanos> {
        Some(self.drive.busy())
    }
    fn close(&mut self) -> io::Result<()> {
        self.store.sync()
    }
    fn describe(&self) -> String {
        format!("an emulated {}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Mutex;

    use iofair_core::controller::Dispatch;
    use iofair_core::time::Nanos;

    use super::*;
    use crate::back::testing::{Call, Scene};
    use crate::request::op::Hints;

    /// An emulated drive over a new file, which has no name any more, and that file.
    fn over_a_file(name: &str) -> (Scene, File) {
        let path = std::env::temp_dir().join(format!("iofair-{name}-{}", std::process::id()));
        let drive = iofair_drive::profile::load("samsung-970-pro", 1).unwrap();
        let bytes = drive.facts().capacity.bytes();
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let store = Store::file(&file, bytes).unwrap();
        (Scene::new(Emulated::new("drive", drive, store), bytes), file)
    }

    /// Goal: over a file, flushes and writes with FUA are completed after the model and after `fdatasync`,
    /// and other writes after the model alone. Method: the kernel is played by the test.
    #[test]
    fn durable_is_completed_after_the_file() {
        let (mut scene, _file) = over_a_file("durable");
        for (durable, result) in [(false, 0), (true, 0), (true, -libc::EIO)] {
            for flush in [false, true] {
                if flush && !durable {
                    continue;
                }
                let cookie = if flush { scene.flush() } else { scene.write(0, 4096, durable) };
                assert!(scene.turn().is_empty() && scene.finished().is_empty(), "the model first");
                scene.pass(Nanos::from_secs(1));
                let asked = scene.turn();
                if durable {
                    assert_eq!((asked.len(), scene.finished().len()), (1, 0), "then the file");
                    assert_eq!(asked[0].call, Call::DataSync);
                    scene.complete(asked[0], result);
                    scene.turn();
                }
                assert_eq!(scene.finished(), [(cookie, -result)]);
            }
        }
    }

    /// Goal: a pause of the server is not the drive's time. Method: one of twice the timeout after the file was asked, and one
    /// before; the completion is there after it, and counts. One that never comes is late in the end.
    #[test]
    fn a_pause_makes_no_command_late() {
        let (mut scene, _file) = over_a_file("paused");
        let pause = Nanos::from_secs(60);
        for completes in [true, false] {
            let cookie = scene.write(0, 4096, true);
            assert!(scene.turn().is_empty());
            scene.pause(pause);
            let asked = scene.turn();
            assert_eq!((asked.len(), scene.finished().len()), (1, 0), "the model is done with it");
            scene.pause(pause);
            scene.turn();
            assert_eq!(scene.finished(), [], "it may be there, and was not taken yet");
            if completes {
                scene.complete(asked[0], 0);
                scene.turn();
                assert_eq!(scene.finished(), [(cookie, 0)]);
                continue;
            }
            scene.pass(Nanos::from_secs(30));
            scene.turn();
            assert_eq!(scene.finished(), [(cookie, libc::EIO)]);
        }
    }

    /// Goal: a drive for other software gets each request as it was sent, as a real drive would; a server's own drive gets requests that
    /// follow each other as one command. Method: two neighbours in one turn, for both.
    #[test]
    fn a_drive_merges_nothing() {
        let (mut scene, _file) = over_a_file("whole");
        let lengths = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lengths);
        let note = move |_, command: &Dispatch| seen.lock().unwrap().push(command.length.0);
        scene.engine().observe_dispatches(Box::new(note));
        for expected in [vec![16], vec![8, 8]] {
            for offset in [0, 4096] {
                scene.submit(Operation::Read, offset, 4096, Hints::default());
            }
            scene.turn();
            scene.pass(Nanos::from_secs(1));
            scene.turn();
            assert_eq!(std::mem::take(&mut *lengths.lock().unwrap()), expected);
            scene.engine().share_timing(&Arc::default());
        }
    }

    /// Goal: with a lead a command completes that much earlier than in the model, the next one meets the same drive, and
    /// no command completes before it has arrived. Method: lone reads with and without a lead, at any time; a lead
    /// that is longer than a read takes.
    #[test]
    fn a_lead_completes_commands_early() {
        let took = |lead: u64| {
            let (mut scene, _file) = over_a_file("lead");
            let shared = Arc::new(Timing::default());
            shared.set_lead(Nanos(lead), Nanos::ZERO);
            scene.engine().share_timing(&shared);
            let mut times = Vec::new();
            for number in 0..20 {
                scene.pass(Nanos::from_millis(1));
                scene.submit(Operation::Read, number * 4096, 4096, Hints::default());
                scene.turn();
                let mut waited = 0u64;
                while scene.finished().is_empty() {
                    scene.pass(Nanos(100));
                    waited += 100;
                    scene.turn();
                    assert!(waited < 10_000_000, "it completes");
                }
                times.push(waited);
            }
            let late = shared.take_lateness();
            assert_eq!((late.completed, late.late), (20, 0));
            scene.submit(Operation::Read, 0, 4096, Hints::default());
            scene.turn();
            scene.pass(Nanos::from_millis(9));
            scene.turn();
            let late = shared.take_lateness();
            assert_eq!((late.completed, late.late), (1, 1));
            assert!(late.max > Nanos::from_millis(8), "{late:?}");
            times
        };
        let (plain, early) = (took(0), took(20_000));
        assert!(plain.iter().all(|time| *time > 40_000), "{plain:?}");
        for (plain, early) in plain.iter().zip(&early) {
            assert!((plain - early).abs_diff(20_000) <= 100, "{plain} and {early}");
        }
        assert!(took(1_000_000).iter().all(|time| *time == 100), "at once, and not before");
    }

    /// Goal: a file that another program cuts short, or a full disk behind a hole, ends no server: every request is an error
    /// from the moment in which it is met, reads and writes. Method: the file is emptied under a model.
    #[test]
    fn a_file_that_is_cut_short_is_an_error() {
        for first in [Operation::Read, Operation::Write] {
            let (mut scene, file) = over_a_file("cut");
            for (cut, operation) in
                [(false, Operation::Write), (true, first), (true, Operation::Read)]
            {
                if cut {
                    file.set_len(0).unwrap();
                }
                let cookie = scene.submit(operation, 0, 8192, Hints::default());
                scene.turn();
                scene.pass(Nanos::from_secs(1));
                scene.turn();
                let status = if cut { libc::EIO } else { 0 };
                assert_eq!(scene.finished(), [(cookie, status)], "{operation:?} first: {first:?}");
            }
        }
    }
}
