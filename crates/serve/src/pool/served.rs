//! A pool in service: the extents of the volumes in the contracts, before, during and after a change.
//!
//! A change has these steps. [`Served::place`] decides without changing anything. [`Served::make`] makes new, then
//! larger volumes durable before the engine knows of them; dropping its result reverts that. [`Served::finish`]
//! truncates and deletes; what requests in flight may still touch is given to nobody until they are done.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use iofair_config::contracts::{Contracts, Volume};
use iofair_config::shell;

use super::admin;
use super::format::{BLOCK, Extent, Record, State, Table};
use super::table::{Free, Index, Refused, Wanted, Why, common, joined};
use super::zeroing::{Demand, Room, Shared};
use crate::back::uring::Storage;
use crate::back::uring::claim::is_below_dev;
use crate::back::volume::{Map, Run, VolumeId};
use crate::consent::Consent;
use crate::error::ServeError;
use crate::file_system::free_beyond;
use crate::log;
use crate::places::kept::Kept;
use crate::places::marker::Marker;
use crate::places::{Need, check};
use crate::reactor::handle::ReactorHandle;
use crate::supervisor;
use crate::trial::Mode;

/// The slowest drive zeroes a piece in this time.
const PIECE_MAX: Duration = Duration::from_secs(60);

/// Volumes on a pool.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    shared: Arc<Shared>,
    storage: Arc<Storage>,
    path: PathBuf,
    /// What the pool shall hold.
    table: Table,
    index: Index,
    /// A running server zeroes extents as requests of the engine, before a change takes them.
    is_running: bool,
    /// Nothing is written.
    checks: bool,
}

/// A change that is durable, and not in force yet. Dropping it takes it back.
#[derive(Debug)]
pub(crate) struct Made {
    shared: Arc<Shared>,
    before: Option<Table>,
}

impl Made {
    /// The contracts are in force.
    pub(crate) fn keep(mut self) {
        self.before = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else { return };
        // If it cannot be undone, the pool keeps the new volumes' space unused, which does no harm.
        let mut room = self.shared.lock();
        let made = room.pool.table().clone();
        match room.pool.commit(before, &mut |_, _| {}) {
            Ok(()) => room.quarantine(&made),
            Err(error) => {
                let message = format!("keeps volumes of contracts that were refused: {error:?}");
                log::tell("pool", &message);
            }
        }
        self.shared.changed(&room);
    }
}

/// What the contracts want.
fn wanted<'a>(volumes: &'a [Volume], consent: &'a Consent) -> Vec<Wanted<'a>> {
    let one = |volume: &'a Volume| Wanted {
        id: volume.uuid,
        name: &volume.name,
        group: &volume.group,
        size: volume.size_bytes,
        shrink: consent.shrink.contains(&volume.name),
        take_over: consent.take_over.contains(&volume.name),
    };
    volumes.iter().map(one).collect()
}

impl Served {
    /// Opens the pool of these contracts for this server alone, and makes it if they may.
    pub(crate) fn open(
        contracts: &Contracts,
        path: &Path,
        mode: &Mode,
    ) -> Result<Self, ServeError> {
        let may_create = contracts.drive.may_create;
        let mut marker = Marker::read(contracts, path)?;
        let there = fs::exists(path).map_err(ServeError::system(path.display().to_string()))?;
        match contracts.drive.pool {
            _ if there => {}
            None if may_create => {
                marker.check_absent()?;
                marker.note_other(mode);
            }
            Some(pool) if !is_below_dev(path) => {
                let message = format!("the pool {pool} is not there: is its file system mounted?");
                return Err(ServeError::Layout { path: path.to_path_buf(), message });
            }
            _ => {}
        }
        let (pool, storage) = admin::open_or_create(contracts, path, mode)?;
        admin::check_uuid(path, pool.superblock().pool, contracts.drive.pool)?;
        if contracts.drive.pool.is_none() {
            marker.check(Some(pool.superblock().pool))?;
            if !mode.is_check() {
                marker.write(pool.superblock().pool);
            }
        }
        let table = pool.table().clone();
        storage.need(pool.superblock().blocks * BLOCK);
        let shared = Arc::new(Shared::new(pool, path, storage.is_device()));
        let (storage, path, index) = (Arc::new(storage), path.to_path_buf(), Index::new(&table));
        let checks = mode.is_check();
        Ok(Self { shared, storage, path, table, index, is_running: false, checks })
    }
    /// From now on requests of clients are served beside changes.
    pub(crate) fn run(&mut self) {
        self.is_running = true;
    }
    /// The pool, for whoever zeroes its free space.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
    /// What the back end uses.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }
    /// Its length, as its superblock says.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.lock().pool.superblock().blocks * BLOCK
    }
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
    /// Finds room for every volume.
    pub(crate) fn place(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
    ) -> Result<Vec<Need>, ServeError> {
        let room = self.shared.lock();
        let free = if self.is_running { room.free().clean() } else { room.free() };
        let (table, needs) = self.table_with(&room, free, contracts, consent)?;
        drop(room);
        self.index = Index::new(&table);
        self.table = table;
        Ok(needs)
    }
    /// The same for a dry run: in any free room, and without what the change deletes.
    pub(crate) fn try_out(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
    ) -> Result<Vec<Need>, ServeError> {
        let room = self.shared.lock();
        let (table, needs) = self.table_with(&room, room.free(), contracts, consent)?;
        drop(room);
        self.table = table.cut(&consent.delete);
        Ok(needs)
    }
    /// The table with these contracts, and what of them needs consent, all of which was given.
    fn table_with(
        &self,
        room: &Room,
        free: Free,
        contracts: &Contracts,
        consent: &Consent,
    ) -> Result<(Table, Vec<Need>), ServeError> {
        let with =
            |consent, free| room.pool.table().with(&wanted(&contracts.volumes, consent), free);
        let tried = with(consent, free);
        let without = match &tried {
            Ok(_) if !consent.is_given() => Vec::new(),
            _ => with(&Consent::default(), room.free()).err().unwrap_or_default(),
        };
        let need = |Refused { volume, message: why, .. }, needs| Need { volume, needs, why };
        let needs = without.into_iter().filter_map(|refused| match refused.why {
            Why::Needs(needs) => Some(need(refused, needs)),
            Why::NoRoom | Why::Twin => None,
        });
        let needs = check(needs.collect(), contracts, consent, self.is_running)?;
        let table = tried.map_err(|mut all| {
            let Refused { volume, message, why } = all.remove(0);
            if why == Why::Twin {
                let path = shell::path(&self.path);
                let delete = format!("`iofair pool delete {path} {}`", shell::word(&volume));
                let message = format!("{message} while no server uses the pool: {delete}");
                return ServeError::volume(&volume, message);
            }
            ServeError::Full(Box::new(ServeError::volume(&volume, message)))
        })?;
        Ok((table, needs))
    }
    /// Bytes that new volumes can have. A file grows as far as its file system has room for all that it promises.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let room = self.shared.lock();
        let free = room.free().blocks() * BLOCK;
        if self.storage.is_device() {
            return Ok(free);
        }
        let promised = room.pool.superblock().blocks * BLOCK - free;
        drop(room);
        free_beyond(self.storage.file(), promised)
    }
    /// Removed volumes whose data is kept.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        let kept = self.table.volumes.iter().filter(|record| record.state == State::Kept);
        let kept = kept.map(|record| Kept {
            name: record.name.clone(),
            group: record.group.clone(),
            size_bytes: record.size,
            path: Some(self.path.clone()),
            pool: Some(self.path.clone()),
            is_elsewhere: false,
        });
        kept.collect()
    }
    /// Gives extents free that no command can reach any more.
    pub(crate) fn release(&self, line: &ReactorHandle) -> Result<(), ServeError> {
        self.shared.release(line)
    }
    /// What must be zeroed before [`Self::place`] finds room for every volume, and for which groups.
    pub(crate) fn lacking(
        &self,
        contracts: &Contracts,
        consent: &Consent,
    ) -> Result<Vec<Demand>, ServeError> {
        let room = self.shared.lock();
        let old = room.pool.table();
        let (table, _) = self.table_with(&room, room.free(), contracts, consent)?;
        let mut demands: Vec<Demand> = Vec::new();
        for volume in &table.volumes {
            // What it had is not dirty.
            let extents = common(&joined(volume.extents.clone()), &old.dirty);
            match demands.iter_mut().find(|demand| demand.group == volume.group) {
                _ if extents.is_empty() => {}
                Some(demand) => demand.add(extents),
                None => demands.push(Demand::new(&self.shared, &volume.group, extents)),
            }
        }
        Ok(demands)
    }
    /// Makes it durable, with volumes that are larger than before only if this is said.
    pub(crate) fn make(&self, larger: bool) -> Result<Made, ServeError> {
        let mut room = self.shared.lock();
        let before = room.pool.table().clone();
        let table =
            if larger { self.table.clone() } else { self.table.clone().not_larger(&before) };
        self.commit(&mut room, table)?;
        Ok(Made { shared: Arc::clone(&self.shared), before: Some(before) })
    }
    fn commit(&self, room: &mut Room, table: Table) -> Result<(), ServeError> {
        let mut told = 0;
        let mut progress = |done: u64, all: u64| {
            if self.checks {
                return;
            }
            let percent = done * 100 / all.max(1);
            supervisor::extend(PIECE_MAX, "zeroing what volumes get");
            if all > super::medium::ZERO_PIECE && percent >= told + 5 {
                told = percent;
                let message = format!("zeroing what volumes get: {percent} % of {all} bytes");
                log::tell("pool", &message);
            }
        };
        let committed = room.pool.commit(table, &mut progress);
        self.storage.need(room.pool.superblock().blocks * BLOCK);
        self.shared.changed(room);
        committed.map_err(|error| admin::pool_error(&self.path, error))
    }
    /// A volume's identity and place.
    pub(crate) fn plan(&self, volume: &Volume) -> (VolumeId, Arc<Map>) {
        let record = self.record(volume).expect("every volume was placed");
        let mut at = 0;
        let run = |extent: &Extent| {
            let length = extent.blocks * BLOCK;
            at += length;
            Run { volume: at - length, drive: extent.start * BLOCK, length }
        };
        let map = Map::new(record.extents.iter().map(run).collect());
        (VolumeId(record.id.as_u128()), Arc::new(map.expect("a table's volumes are whole")))
    }
    fn record(&self, volume: &Volume) -> Option<&Record> {
        let index = self.index.find(volume.uuid, &volume.name)?;
        self.table.volumes.get(index)
    }
    /// The engine has taken the contracts over: cuts volumes that shall be shorter, and forgets deleted ones.
    pub(crate) fn finish(&mut self, delete: &[String]) -> Result<(), ServeError> {
        let mut room = self.shared.lock();
        let before = room.pool.table().clone();
        let table = before.cut(delete);
        self.commit(&mut room, table)?;
        self.table = room.pool.table().clone();
        self.index = Index::new(&self.table);
        room.quarantine(&before);
        self.shared.changed(&room);
        Ok(())
    }
}
