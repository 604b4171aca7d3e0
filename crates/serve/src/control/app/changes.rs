//! Changes of the contract file and the server, which happen together or not at all.

use std::time::Duration;

use iofair_config::ConfigError;
use iofair_config::contracts::Contracts;
use iofair_config::contracts::edit::{Edit, Kind};

use serde::Serialize;

use super::{ApiResponse, App, Arc, Call, Problem, Result, Served, Server, Shown, lock};
use crate::clock::moment;
use crate::confine;
use crate::consent::Consent;
use crate::control::file::revision;
use crate::control::gate::Gate;
use crate::control::turns::Turn;
use crate::control::{diff, limits, notes, resources};
use crate::error::ServeError;
use crate::log;
use crate::places::ctl;
use crate::pool::zeroing::Demand;
use crate::reactor::handle::Removal;
use crate::reserve::Room;

/// A change that needs more zeroes than are made in this time is refused, and may be tried again: callers wait a minute.
const ZEROING_MAX: Duration = Duration::from_secs(40);

/// What a change would do.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::control) struct DryRun {
    dry_run: bool,
    /// Of the file, which stays as it is.
    revision: String,
    /// Lines that would be removed from (`-`) and added to (`+`) the contract file.
    lines: Vec<String>,
    /// Groups whose contract in force would change.
    groups: Vec<resources::Changed>,
    /// What the change would take away.
    gives_up: Vec<resources::GivenUp>,
    /// What the operator should know; absent: nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// What came of a change.
enum Tried {
    /// It is in force, under this revision; clients of removed volumes may not be gone yet.
    Done(String, Option<Removal>),
    /// Nothing has changed: extents of a pool must be zeroed before. None: the file has changed since it was read.
    Lacks(Vec<Demand>),
}

impl App {
    /// Whether something is being changed.
    pub(in crate::control) fn is_changing(&self) -> bool {
        self.served.is_taken()
    }
    /// The server, to change it.
    fn turn(&self) -> Result<Turn<'_, Served>, ServeError> {
        self.served.take(limits::CHANGE_WAIT).ok_or(ServeError::Busy(limits::CHANGE_WAIT))
    }
    /// From now on all calls see the server as it is after a change, or after an error: some of the change may be in force.
    fn show_change(&self, served: &mut Served) -> Result<(), ServeError> {
        let contracts = served.server()?.contracts();
        for note in notes::notes(contracts, Some(self.view().server.contracts())) {
            log::tell("server", &note);
        }
        served.revision = revision(contracts.text());
        *lock(&self.view) = Arc::new(Shown::new(served.server()?, served.revision.clone()));
        Ok(())
    }
    /// Takes over the file as it is now.
    pub(in crate::control) fn reload(&self, consent: &Consent) -> Result<String, ServeError> {
        self.zeroing(|| self.try_reload(consent))
    }
    /// Tries a change until everything that it needs is zeroed. Others need not wait for that.
    fn zeroing<E: From<ServeError>>(
        &self,
        try_change: impl Fn() -> Result<Tried, E>,
    ) -> Result<String, E> {
        let until = moment() + ZEROING_MAX;
        loop {
            let demands = match try_change()? {
                Tried::Done(revision, removal) => {
                    removal.map_or(Ok(()), Removal::wait)?;
                    return Ok(revision);
                }
                Tried::Lacks(demands) => demands,
            };
            let zero = |demand: &Demand| demand.carry_out(&self.reactor, Some(until));
            demands.iter().try_for_each(zero)?;
        }
    }
    /// The file as it is now. It is read beside changes, and beside the end of the server: its file system may hang, and a long
    /// file takes a while.
    fn read_file(&self) -> Result<Contracts, ServeError> {
        let text = self.file.read().map_err(self.system())?;
        let view = self.view();
        let now = view.server.contracts();
        Ok(Contracts::parse_with(now.drive.stack.table(), now.path(), &text)?)
    }
    fn try_reload(&self, consent: &Consent) -> Result<Tried, ServeError> {
        let before = self.revision();
        let contracts = self.read_file()?;
        let gate = Gate::load(&contracts)?;
        let mut served = self.turn()?;
        if served.revision != before {
            return Ok(Tried::Lacks(Vec::new()));
        }
        check_needed(served.server()?, &contracts, consent)?;
        let demands = served.server()?.lacking(&contracts, consent);
        if !demands.is_empty() {
            return Ok(Tried::Lacks(demands));
        }
        let server = served.server.as_mut().ok_or(ServeError::Gone)?;
        let removal = server.reload_at_once(contracts, consent, || Ok::<_, ServeError>(()));
        self.show_change(&mut served)?;
        let removal = removal?;
        *lock(&self.gate) = Arc::new(gate);
        Ok(Tried::Done(served.revision.clone(), removal))
    }
    /// Makes a change in the file and in the server, or in neither.
    pub(super) fn change(&self, call: &Call, edit: &Edit) -> Result<String> {
        self.change_with(call, edit, &Consent::default())
    }
    /// [`Self::change`], with what the caller agrees to beyond it.
    pub(super) fn change_with(
        &self,
        call: &Call,
        edit: &Edit,
        consent: &Consent,
    ) -> Result<String> {
        self.zeroing(|| self.try_change(call, edit, consent))
    }
    /// [`Self::change_with`], unless extents of a pool must be zeroed before: other changes need not wait for that.
    fn try_change(&self, call: &Call, edit: &Edit, consent: &Consent) -> Result<Tried> {
        let mut served = self.turn()?;
        let before = self.current(&served, call)?;
        let after = edited(served.server()?, &before, edit, consent)?;
        if after.text() == before.text() && consent.delete.is_empty() {
            return Ok(Tried::Done(served.revision.clone(), None));
        }
        check_needed(served.server()?, &after, consent)?;
        let demands = served.server()?.lacking(&after, consent);
        if !demands.is_empty() {
            return Ok(Tried::Lacks(demands));
        }
        let amounts = |contracts: &Contracts| {
            let bytes = contracts.volumes.iter().map(|volume| volume.size_bytes).sum();
            [contracts.volumes.len() as u64, contracts.groups.len() as u64, bytes]
        };
        let room = Room::for_change(amounts(&after), amounts(&before));
        let pending = self.file.prepare(after.text(), room).map_err(self.system())?;
        let server = served.server.as_mut().ok_or(ServeError::Gone)?;
        let removal = server.reload_at_once(after, consent, || {
            let committed = pending.commit(before.text()).map_err(self.system())?;
            committed.ok_or_else(|| self.edited(&before))
        });
        self.show_change(&mut served)?;
        Ok(Tried::Done(served.revision.clone(), removal?))
    }
    /// Somebody has edited the file since the server read it.
    fn edited(&self, before: &Contracts) -> Problem {
        let (file, ctl) = (self.file.path().display(), ctl(before));
        Problem::conflict(format!("{file} was edited since the server read it"))
            .allowed(format!("apply the edit first: `{ctl} reload` (POST /v1/reload, or SIGHUP)"))
    }
    /// The contracts in force, if the caller knows them and the file has them.
    fn current(&self, served: &Served, call: &Call) -> Result<Contracts> {
        if let Some(wanted) = call.if_match.as_ref().filter(|wanted| **wanted != served.revision) {
            let now = &served.revision;
            let message = format!("the revision is {now} now, not {wanted}");
            return Err(Problem::new(412, "changed-meanwhile", message)
                .allowed("read the present state, and make the change again"));
        }
        let before = served.server()?.contracts().clone();
        if self.file.read().map_err(self.system())? != before.text() {
            return Err(self.edited(&before));
        }
        Ok(before)
    }
    /// What a change would do, or a reload without one: checked as it would be, and nothing is changed.
    pub(super) fn dry_run(
        &self,
        call: &Call,
        edit: Option<&Edit>,
        consent: &Consent,
    ) -> Result<ApiResponse> {
        let read = edit.is_none().then(|| self.read_file()).transpose()?;
        let served = self.turn()?;
        let server = served.server()?;
        let after = match (edit, read) {
            (Some(edit), _) => {
                let before = self.current(&served, call)?;
                edited(server, &before, edit, consent)?
            }
            (None, read) => {
                let after = read.expect("it was read, since there is no edit");
                Gate::load(&after)?;
                after
            }
        };
        check_needed(server, &after, consent)?;
        let (groups, needs, tried) = server.try_out(&after, consent)?;
        let given_up = server.given_up(&after, &groups)?.into_iter().map(Into::into);
        let before = server.admitted()?;
        let data = resources::GivenUp::data(server.contracts(), &after, &needs, &consent.delete);
        let gives_up = given_up.chain(data).collect();
        let view = self.view();
        let growth = tried.growth(&view.server);
        let free = self.files.look(&view).free.map(|free| free.least(growth));
        let mut notes = tried.notes_since(&view.server, free);
        notes.extend(notes::notes(&after, Some(server.contracts())));
        let effect = DryRun {
            dry_run: true,
            revision: served.revision.clone(),
            lines: diff::lines(server.contracts().text(), after.text()),
            groups: resources::changed(
                (&before, server.shares(server.contracts(), &before)?),
                (&groups, server.shares(&after, &groups)?),
            ),
            gives_up,
            notes,
        };
        Ok(ApiResponse::json(200, Some(effect.revision.clone()), &effect))
    }
}

/// The contracts after a change; the same if it only deletes the data of a volume that was removed before.
fn edited(
    server: &Server,
    before: &Contracts,
    edit: &Edit,
    consent: &Consent,
) -> Result<Contracts> {
    if let Edit::Remove { kind: Kind::Volume, name } = edit
        && consent.delete.contains(name)
        && server.keeps(name)
    {
        return Ok(before.clone());
    }
    let after = before.edited(edit)?;
    confine::check_change(before, &after)?;
    Ok(after)
}

/// Refuses consent that a change does not need: the caller expects something else.
fn check_needed(server: &Server, after: &Contracts, consent: &Consent) -> Result<(), ServeError> {
    match server.unneeded(after, consent).as_slice() {
        [] => Ok(()),
        all => Err(ConfigError::whole_file(after.path(), all.join("\n")).into()),
    }
}
