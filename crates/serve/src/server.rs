//! A server: checks contracts, sets up the back end and sockets, and runs a reactor.

mod admission;
mod facts;
mod launch;
mod room;
mod view;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use iofair_config::contracts::{Contracts, Control, Metrics};
use iofair_core::unit::Count;

use crate::back::Back;
use crate::back::emulated::Timing;
use crate::clock::Clock;
use crate::confine;
use crate::consent::Consent;
use crate::descriptors;
use crate::engine::stats::Snapshot;
use crate::engine::{Change, Engine, Plan};
use crate::error::ServeError;
use crate::front::FrontEnds;
use crate::front::life::Reload;
use crate::log;
use crate::places::life::Made;
use crate::places::revocable::Revocable;
use crate::places::{Places, kept};
use crate::pool::zeroing::Zeroing;
use crate::reactor::handle::{ReactorHandle, Removal};
use crate::reactor::{Message, Seen};
use crate::security::Security;
use crate::supervisor::Passed;
use crate::trial::{Mode, Trial};
use facts::{Facts, admit};
pub(crate) use launch::{Latch, Launch};
pub(crate) use view::View;

/// Steps of a change after which a failure must be undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Make,
    Prepare,
    Enlarge,
    Apply,
    Start,
    Started,
    Finish,
}

/// Contracts, and where their volumes are.
struct Placed {
    contracts: Contracts,
    places: Places,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    contracts: Contracts,
    /// The plan that the reactor applies.
    plan: Plan,
    places: Places,
    /// The properties of the drive that admission uses.
    facts: Arc<Facts>,
    description: String,
    line: ReactorHandle,
    reactor: Option<JoinHandle<io::Result<()>>>,
    ended: Arc<Latch>,
    front_ends: FrontEnds,
    /// Zeroes the space of deleted volumes of a pool.
    zeroing: Option<Zeroing>,
    /// The step that fails next, for tests.
    #[cfg(test)]
    fails_at: std::cell::Cell<Option<Step>>,
}

/// The result of the part of a start before the reactor runs.
struct Prepared {
    contracts: Contracts,
    /// The plan, for comparison with the next one.
    plan: Plan,
    places: Places,
    facts: Facts,
    description: String,
    /// What the back end has found out about the drive.
    found: Option<&'static str>,
    launch: Launch,
    /// Not started yet.
    front_ends: FrontEnds,
    /// The last step first.
    made: [Made; 2],
    /// What is told of volumes that the contracts do not have any more.
    kept: Vec<String>,
}

impl Prepared {
    fn new(
        contracts: Contracts,
        passed: Passed,
        consent: &Consent,
        around: impl FnOnce(Box<dyn Back>) -> Box<dyn Back>,
        mode: &Mode,
    ) -> Result<Self, ServeError> {
        descriptors::raise_limit();
        let security = Security::load(&contracts.listen, &contracts.groups)?;
        confine::check(&contracts, None)?;
        let mut places = Places::open(&contracts, mode)?;
        let before = places.kept();
        let needs = places.place(&contracts, consent)?;
        consent.unneeded(&needs).into_iter().for_each(|note| mode.note(note));
        let back = around(places.open_back(&contracts)?);
        let facts = Facts::new(back.worst_case_rate());
        let mut plan = admit(&contracts, &places, &facts, None)?;
        let made = places.make(&contracts.volumes, consent)?;
        let made = [places.enlarge()?, made];
        let kept = kept::notes(places.kept(), &before, &contracts);
        plan.volumes = places.plan(&contracts.volumes);
        let (description, found) = (back.describe(), back.found());
        let mut front_ends = FrontEnds::new(&contracts, passed.nbd, back.facts().rotational);
        let clock = Clock::start();
        let mut engine = Engine::new(back, plan.stack.clone());
        engine.apply(clock.now(), &plan);
        front_ends.prepare(&contracts, mode)?;
        let drain = plan.timeouts.drain;
        let watchdog = passed.watchdog;
        let launch = Launch { engine, clock, drain, security, watchdog };
        let plan = remembered(&plan);
        Ok(Self {
            contracts,
            plan,
            places,
            facts,
            description,
            found,
            launch,
            front_ends,
            made,
            kept,
        })
    }
}

impl Server {
    /// Opens the back end, admits the contracts and listens.
    pub fn start(contracts: Contracts) -> Result<Self, ServeError> {
        Self::start_with(contracts, Passed::default(), &Consent::default())
    }
    /// Checks whether a server would start with these contracts. Runs everything that a start runs before clients are served,
    /// and changes nothing on disk. Returns notes for the operator.
    pub fn check(contracts: &Contracts, consent: &Consent) -> Result<Vec<String>, ServeError> {
        let mode = Mode::Check(Arc::new(Trial::default()));
        let mut notes = Self::try_out_start(contracts.clone(), Passed::default(), consent, &mode)?;
        notes.extend(mode.notes());
        Ok(notes)
    }
    pub(crate) fn try_out_start(
        contracts: Contracts,
        passed: Passed,
        consent: &Consent,
        mode: &Mode,
    ) -> Result<Vec<String>, ServeError> {
        let prepared = Prepared::new(contracts, passed, consent, |back| back, mode)?;
        let Prepared { contracts, facts, launch, front_ends, made, mut kept, .. } = prepared;
        launch.check()?;
        made.into_iter().for_each(Revocable::keep);
        front_ends.0.iter().try_for_each(|front_end| front_end.check(&contracts, mode))?;
        kept.extend(facts.notes(&contracts)?);
        Ok(kept)
    }
    /// [`Self::start`] with sockets from a service manager, and with consent to changes that destroy or move data. Control sockets
    /// are ignored.
    pub fn start_with(
        contracts: Contracts,
        passed: Passed,
        consent: &Consent,
    ) -> Result<Self, ServeError> {
        Self::start_around(contracts, passed, consent, |back| back)
    }
    /// [`Self::start`] over an emulated drive with this timing, which may be changed at any time. The server is a drive for other
    /// software then: each request is a command of its own.
    pub fn start_timed(contracts: Contracts, timing: &Arc<Timing>) -> Result<Self, ServeError> {
        Self::start_around(contracts, Passed::default(), &Consent::default(), |mut back| {
            back.share_timing(timing);
            back
        })
    }
    /// [`Self::start_with`], with a wrapper around the back end.
    #[doc(hidden)]
    pub fn start_around(
        contracts: Contracts,
        passed: Passed,
        consent: &Consent,
        around: impl FnOnce(Box<dyn Back>) -> Box<dyn Back>,
    ) -> Result<Self, ServeError> {
        let prepared = Prepared::new(contracts, passed, consent, around, &Mode::Serve)?;
        let Prepared { contracts, plan, places, facts, description, found, .. } = prepared;
        let Prepared { launch, front_ends, made, kept, .. } = prepared;
        let (line, reactor, ended) = launch.reactor()?;
        let (reactor, facts) = (Some(reactor), Arc::new(facts));
        made.into_iter().for_each(Revocable::keep);
        let mut this = Self {
            contracts,
            plan,
            places,
            facts,
            description,
            line,
            reactor,
            ended,
            front_ends,
            zeroing: None,
            #[cfg(test)]
            fails_at: std::cell::Cell::new(None),
        };
        // If one of these fails, dropping the server ends the reactor.
        this.front_ends.start(&this.contracts, &this.line)?;
        this.places.finish(&this.contracts.volumes, consent)?;
        this.zeroing = this.places.run(&this.line)?;
        found.iter().for_each(|found| log::tell("drive", found));
        kept.iter().for_each(|note| log::tell("pool", note));
        this.tell_warnings(None);
        Ok(this)
    }
    /// The contracts in force.
    pub fn contracts(&self) -> &Contracts {
        &self.contracts
    }
    /// A description of the back end, for people.
    pub fn description(&self) -> &str {
        &self.description
    }
    /// The TCP address, with the assigned port if the contracts say port 0.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.front_ends.0.iter().find_map(|front_end| front_end.tcp())
    }
    /// Whether the reactor has ended by itself. [`Self::stop`] then returns the reason.
    pub fn is_over(&self) -> bool {
        self.reactor.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Applies new contracts: groups, volumes and the stack change under open connections. On an error nothing changes. A
    /// volume that is missing from the new contracts accepts no new clients; open connections and its data stay.
    pub fn reload(&mut self, contracts: Contracts) -> Result<(), ServeError> {
        self.reload_and_remove(contracts, &[])
    }
    /// [`Self::reload`] that deletes volumes of these names, which must be missing from the new contracts. Their data is deleted
    /// at once, while requests in flight complete; then the clients are disconnected. Room that they may touch is given to
    /// nobody until then. In a pool directory, only files `NAME.img` are removed.
    pub fn reload_and_remove(
        &mut self,
        contracts: Contracts,
        remove: &[String],
    ) -> Result<(), ServeError> {
        self.reload_with(contracts, &Consent { delete: remove.to_vec(), ..Consent::default() })
    }
    /// [`Self::reload`], with consent to changes that destroy or move data. After an error, [`Self::contracts`] shows whether
    /// the change was made; if so, at most data that should be deleted or cut off still exists.
    pub fn reload_with(
        &mut self,
        contracts: Contracts,
        consent: &Consent,
    ) -> Result<(), ServeError> {
        let reloaded = self.reload_at_once(contracts, consent, || Ok::<_, ServeError>(()));
        reloaded?.map_or(Ok(()), Removal::wait)
    }
    /// [`Self::reload_with`] without waiting for the end of the clients of removed volumes. `commit` puts the contracts into their
    /// file.
    ///
    /// The list of volumes never has one as larger than the contract file does, and data goes last: a server that starts after a
    /// crash, whatever step was the last, needs no consent and loses nothing.
    pub(crate) fn reload_at_once<'c, C: Revocable + 'c, E: From<ServeError>>(
        &mut self,
        contracts: Contracts,
        consent: &Consent,
        commit: impl FnOnce() -> Result<C, E>,
    ) -> Result<Option<Removal>, E> {
        let (kept, removed) = (self.places.kept(), consent.delete.as_slice());
        let (volumes, closed) = (self.places.plan(&self.contracts.volumes), Vec::new());
        let plan = Plan { volumes, closed, ..self.plan.clone() };
        let before = Placed { contracts: self.contracts.clone(), places: self.places.clone() };
        let change = self.change(contracts, consent, commit);
        let (after, made) = change.inspect_err(|_| self.front_ends.undo())?;
        if let Err(error) = self.serve(after, removed) {
            // The engine has the new contracts, and something cannot be served: back to the old ones.
            let old = before.contracts.text().to_string();
            let Err(second) = self.back_to(before, plan) else { return Err(error.into()) };
            if self.contracts.text() != old {
                made.into_iter().for_each(Revocable::keep);
            }
            let message = format!("{error}; and it could not be undone: {second}");
            return Err(ServeError::Unfinished(message).into());
        }
        made.into_iter().for_each(Revocable::keep);
        let removal = (!removed.is_empty()).then(|| self.line.removal(self.drain_timeout()));
        let finished = self.passes(Step::Finish);
        let finished = finished.and_then(|()| self.places.finish(&self.contracts.volumes, consent));
        finished.map_err(|error| {
            ServeError::Unfinished(format!(
                "the contracts were changed, but data that should go is still there: {error}"
            ))
        })?;
        let notes = kept::notes(self.places.kept(), &kept, &self.contracts);
        notes.iter().for_each(|note| log::tell("pool", note));
        Ok(removal)
    }
    /// Makes a change up to the point where the engine has it. After an error, nothing has changed; dropping what was made takes it
    /// back, the last step first.
    fn change<'c, C: Revocable + 'c, E: From<ServeError>>(
        &mut self,
        contracts: Contracts,
        consent: &Consent,
        commit: impl FnOnce() -> Result<C, E>,
    ) -> Result<(Placed, [Box<dyn Revocable + 'c>; 3]), E> {
        let remove = consent.delete.as_slice();
        self.check_change(&contracts, consent)?;
        confine::check(&contracts, Some(&self.contracts))?;
        let security = Security::load(&contracts.listen, &contracts.groups)?;
        self.places.check_removal(&self.contracts.volumes, &contracts.volumes, remove)?;
        self.places.check_files(&self.contracts.volumes, &contracts.volumes)?;
        self.zero_room(&contracts, consent)?;
        let mut places = self.places.clone();
        places.place(&contracts, consent)?;
        let mut plan = admit(&contracts, &places, &self.facts, Some(&self.contracts))?;
        self.passes(Step::Make)?;
        let descriptor = descriptors::lowest_free();
        let made = places.make(&contracts.volumes, consent)?;
        self.passes(Step::Prepare)?;
        self.front_ends.prepare(&contracts, &Mode::Serve)?;
        descriptors::check_change(descriptor).map_err(ServeError::Descriptors)?;
        let committed = Box::new(commit()?);
        self.passes(Step::Enlarge)?;
        let larger = places.enlarge()?;
        plan.volumes = places.plan(&contracts.volumes);
        plan.closed = remove.to_vec();
        self.passes(Step::Apply)?;
        self.apply(plan, security)?;
        Ok((Placed { contracts, places }, [larger, committed, made]))
    }
    /// The engine has these contracts: so have the front ends.
    fn serve(&mut self, placed: Placed, removed: &[String]) -> Result<(), ServeError> {
        let Placed { contracts, places } = placed;
        self.places = places;
        let before = std::mem::replace(&mut self.contracts, contracts);
        self.tell_warnings(Some(&before));
        let reload = Reload { before: &before, after: &self.contracts, removed };
        self.front_ends.0.iter_mut().for_each(|front_end| front_end.reconcile(&reload));
        self.passes(Step::Start).inspect_err(|_| self.front_ends.undo())?;
        self.front_ends.start(&self.contracts, &self.line)?;
        self.passes(Step::Started)
    }
    /// Goes back to what was in force before a change.
    fn back_to(&mut self, mut before: Placed, plan: Plan) -> Result<(), ServeError> {
        let security = Security::load(&before.contracts.listen, &before.contracts.groups)?;
        self.front_ends.prepare(&before.contracts, &Mode::Serve)?;
        self.apply(plan, security).inspect_err(|_| self.front_ends.undo())?;
        before.places.remember(&*self.places);
        self.serve(before, &[])
    }
    /// Makes a step fail, for tests.
    fn passes(&self, step: Step) -> Result<(), ServeError> {
        #[cfg(test)]
        if self.fails_at.get() == Some(step) {
            self.fails_at.set(None);
            return Err(ServeError::Fixed(format!("{step:?}")));
        }
        let _ = step;
        Ok(())
    }
    /// Checks that nothing changes that a running server cannot change.
    fn check_change(&self, contracts: &Contracts, consent: &Consent) -> Result<(), ServeError> {
        let same_back = contracts.drive.back == self.contracts.drive.back;
        if !same_back
            || contracts.drive.faulty != self.contracts.drive.faulty
            || contracts.drive.pool != self.contracts.drive.pool
            || contracts.drive.rotational != self.contracts.drive.rotational
        {
            return Err(ServeError::Fixed("the drive's back end".into()));
        }
        let place = |control: &Control| {
            let Control { unix, access, tcp, tls, audit, .. } = control;
            (unix.clone(), access.clone(), *tcp, tls.is_some(), audit.clone())
        };
        if place(&contracts.control) != place(&self.contracts.control) {
            return Err(ServeError::Fixed("where the server is controlled".into()));
        }
        let place = |metrics: &Metrics| (metrics.unix.clone(), metrics.access.clone(), metrics.tcp);
        if place(&contracts.metrics) != place(&self.contracts.metrics) {
            return Err(ServeError::Fixed("where metrics are read".into()));
        }
        let is_paused = self.line.look(|seen| seen.engine.is_paused())?;
        let (before, removed) = (&self.contracts, consent.delete.as_slice());
        let reload = Reload { before, after: contracts, removed };
        self.front_ends.0.iter().try_for_each(|front_end| front_end.validate(&reload, is_paused))
    }
    /// Makes the reactor apply the differences from the plan in force.
    fn apply(&mut self, plan: Plan, security: Security) -> Result<(), ServeError> {
        let (reply, replied) = mpsc::channel();
        let known = remembered(&plan);
        let change = Box::new(Change::between(&self.plan, plan));
        self.line.send(Message::Apply(change, security, reply))?;
        replied.recv().map_err(|_| ServeError::Gone)??;
        self.plan = known;
        Ok(())
    }
    /// Time limit for stopping.
    fn drain_timeout(&self) -> Duration {
        Duration::from_nanos(self.contracts.drive.drain.0)
    }
    /// The volumes that are block devices of this host, and their paths.
    pub fn blocks(&self) -> Vec<(String, PathBuf)> {
        self.front_ends.0.iter().flat_map(|front_end| front_end.blocks()).collect()
    }
    /// Statistics since the start, or since the last call with a reset.
    pub fn stats(&self, reset: bool) -> Result<Snapshot, ServeError> {
        ask(&self.line, reset)
    }
    /// How the server is now.
    pub(crate) fn view(&self) -> View {
        self.view_of(&self.contracts, self.places.clone())
    }
    /// How it would be with these contracts.
    fn view_of(&self, contracts: &Contracts, places: Places) -> View {
        View {
            contracts: contracts.clone(),
            facts: self.facts.clone(),
            places,
            blocks: self.blocks(),
            description: self.description.clone(),
            tcp: self.tcp(),
            mount: self.front_ends.0.iter().find_map(|front_end| front_end.mount()),
            sockets: self.front_ends.0.iter().flat_map(|front_end| front_end.sockets()).collect(),
        }
    }
    /// The end of the reactor, to be watched by others.
    pub(crate) fn end_of_reactor(&self) -> &Arc<Latch> {
        &self.ended
    }
    /// A handle of the reactor, for other threads.
    pub(crate) fn line(&self) -> &ReactorHandle {
        &self.line
    }
    /// Accepts no new clients, completes all requests in flight, makes everything durable, and removes the sockets.
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.end()
    }
    fn end(&mut self) -> Result<(), ServeError> {
        let Some(reactor) = self.reactor.take() else { return Ok(()) };
        self.zeroing.as_ref().inspect(|zeroing| zeroing.end());
        // A reactor that ended by itself sends no reply.
        let (limit, line) = (self.drain_timeout(), (!reactor.is_finished()).then_some(&self.line));
        tell_pending(&self.line, limit);
        self.front_ends.0.iter_mut().rev().for_each(|front_end| front_end.stop(line, limit));
        // If the reactor ended by itself, joining it says why.
        let _ = self.line.send(Message::Stop);
        let ended = reactor.join();
        self.zeroing.take().into_iter().for_each(Zeroing::join);
        // Only now: all calls have their replies.
        self.front_ends.0.clear();
        log::flush();
        ended.expect("a reactor that panics is a bug").map_err(ServeError::system("the reactor"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Who wants to know calls `stop`.
        let _ = self.end();
    }
}

/// Tells the log what a server that ends waits for. A reactor that has ended has nothing to wait for.
fn tell_pending(line: &ReactorHandle, limit: Duration) {
    let tell = move |seen: &Seen<'_>| {
        let pending = seen.engine.pending();
        if pending > 0 {
            let pending = Count(pending, "request");
            let message =
                format!("ending: {pending} in flight, for which {limit:?} are left (`drain`)");
            log::tell("server", &message);
        }
    };
    let _ = line.send(Message::Look(Box::new(tell)));
}

/// Gets the statistics of a reactor.
pub(crate) fn ask(line: &ReactorHandle, reset: bool) -> Result<Snapshot, ServeError> {
    let (reply, replied) = mpsc::channel();
    line.send(Message::Stats { reset, reply })?;
    replied.recv().map_err(|_| ServeError::Gone)
}

/// A copy of a plan for comparison with the next one. It keeps no files open, so that the file of a removed volume is freed.
fn remembered(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.volumes.iter_mut().for_each(|volume| volume.storage = None);
    plan
}

#[cfg(test)]
mod tests;
