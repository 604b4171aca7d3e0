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
use super::zeroing::{Demand, Room, Shared, Zeroing};
use crate::back::Back;
use crate::back::uring::claim::is_below_dev;
use crate::back::uring::{Storage, Uring};
use crate::back::volume::{Map, Run, VolumeId};
use crate::consent::Consent;
use crate::error::ServeError;
use crate::file_system::free_beyond;
use crate::log;
use crate::places::free;
use crate::places::kept::Kept;
use crate::places::life::{self, Location, VolumeStore};
use crate::places::marker::Marker;
use crate::places::revocable::Revocable;
use crate::places::{Damaged, Need, check};
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
struct Made {
    shared: Arc<Shared>,
    before: Option<Table>,
}

impl Revocable for Made {
    fn keep(mut self: Box<Self>) {
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
    /// Its length, as its superblock says.
    fn bytes(&self) -> u64 {
        self.shared.lock().pool.superblock().blocks * BLOCK
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
    /// Makes it durable, with volumes that are larger than before only if this is said.
    fn save(&self, larger: bool) -> Result<life::Made, ServeError> {
        let mut room = self.shared.lock();
        let before = room.pool.table().clone();
        let table =
            if larger { self.table.clone() } else { self.table.clone().not_larger(&before) };
        self.commit(&mut room, table)?;
        Ok(Box::new(Made { shared: Arc::clone(&self.shared), before: Some(before) }))
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
    fn record(&self, volume: &Volume) -> Option<&Record> {
        let index = self.index.find(volume.uuid, &volume.name)?;
        self.table.volumes.get(index)
    }
}

impl VolumeStore for Served {
    fn copy(&self) -> Box<dyn VolumeStore> {
        Box::new(self.clone())
    }
    fn open_back(&mut self, contracts: &Contracts) -> Result<Box<dyn Back>, ServeError> {
        Ok(Box::new(Uring::shared(&self.storage, contracts.drive.rotational)))
    }
    fn place(&mut self, contracts: &Contracts, consent: &Consent) -> Result<Vec<Need>, ServeError> {
        let room = self.shared.lock();
        let free = if self.is_running { room.free().clean() } else { room.free() };
        let (table, needs) = self.table_with(&room, free, contracts, consent)?;
        drop(room);
        self.index = Index::new(&table);
        self.table = table;
        Ok(needs)
    }
    fn try_out(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
        line: &ReactorHandle,
    ) -> Result<Vec<Need>, ServeError> {
        self.shared.release(line)?;
        // In any free room, and without what the change deletes.
        let room = self.shared.lock();
        let (table, needs) = self.table_with(&room, room.free(), contracts, consent)?;
        drop(room);
        self.table = table.cut(&consent.delete);
        Ok(needs)
    }
    fn lacking(
        &self,
        contracts: &Contracts,
        consent: &Consent,
        line: &ReactorHandle,
    ) -> Result<Vec<Demand>, ServeError> {
        self.shared.release(line)?;
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
    fn make(&mut self, _: &[Volume], _: &Consent) -> Result<life::Made, ServeError> {
        self.save(false)
    }
    fn enlarge(&mut self) -> Result<life::Made, ServeError> {
        self.save(true)
    }
    fn plan(&self, volume: &Volume) -> Location {
        let record = self.record(volume).expect("every volume was placed");
        let mut at = 0;
        let run = |extent: &Extent| {
            let length = extent.blocks * BLOCK;
            at += length;
            Run { volume: at - length, drive: extent.start * BLOCK, length }
        };
        let map = Map::new(record.extents.iter().map(run).collect());
        let map = Arc::new(map.expect("a table's volumes are whole"));
        Location { id: VolumeId(record.id.as_u128()), map, storage: None }
    }
    fn finish(&mut self, _: &[Volume], consent: &Consent) -> Result<(), ServeError> {
        let mut room = self.shared.lock();
        let before = room.pool.table().clone();
        let table = before.cut(&consent.delete);
        self.commit(&mut room, table)?;
        self.table = room.pool.table().clone();
        self.index = Index::new(&self.table);
        room.quarantine(&before);
        self.shared.changed(&room);
        Ok(())
    }
    fn run(&mut self, line: &ReactorHandle) -> Result<Option<Zeroing>, ServeError> {
        self.is_running = true;
        Zeroing::start(&self.shared, line.clone()).map(Some)
    }
    fn kept(&self) -> Vec<Kept> {
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
    fn free(&self) -> io::Result<free::Free> {
        let room = self.shared.lock();
        let mut new = room.free().blocks() * BLOCK;
        let promised = room.pool.superblock().blocks * BLOCK - new;
        drop(room);
        // A file grows as far as its file system has room for all that it promises.
        if !self.storage.is_device() {
            new = free_beyond(self.storage.file(), promised)?;
        }
        Ok(free::Free { new, here: None, elsewhere: Vec::new() })
    }
    fn is_sparse(&self) -> bool {
        !self.storage.is_device()
    }
    fn damaged(&self) -> Vec<Damaged> {
        let damage = self.storage.damage(self.bytes());
        let damaged = |damage| Damaged::new(None, &self.path, self.storage.file(), damage);
        damage.map(damaged).into_iter().collect()
    }
}
