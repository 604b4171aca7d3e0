//! A pool in service: which extents the volumes of the contracts have, before, during and after a change.
//!
//! A change has three steps. [`Served::place`] decides without touching anything. [`Served::make`] makes new volumes and
//! longer ones durable before the engine knows of them; dropped, its result takes that back. [`Served::finish`] cuts
//! and deletes, after no request can meet what goes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iofair_config::contracts::{Contracts, Volume};

use super::format::{BLOCK, Extent, Record, Table};
use super::medium::FileMedium;
use super::table::{Free, Index, Refused, Wanted, common, joined, without};
use super::{Pool, admin};
use crate::back::uring::Storage;
use crate::back::volume::{Map, Run, VolumeId};
use crate::error::ServeError;
use crate::log;
use crate::places::Consent;
use crate::supervisor;

/// The slowest drive zeroes a piece in this time.
const PIECE_MAX: Duration = Duration::from_secs(60);

/// Volumes on a pool.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pool: Arc<Mutex<Pool<FileMedium>>>,
    storage: Arc<Storage>,
    path: PathBuf,
    /// What the pool shall hold.
    table: Table,
    index: Index,
    /// What deleted and cut volumes left, until the engine has let go of them.
    quarantine: Vec<(VolumeId, Extent)>,
}

/// A change that is durable, and not in force yet. Dropping it takes it back.
#[derive(Debug)]
pub(crate) struct Made {
    pool: Arc<Mutex<Pool<FileMedium>>>,
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
        // If it cannot be taken back, the pool keeps what is new for nobody: that harms nobody.
        if let Err(error) = lock(&self.pool).commit(before, &mut |_, _| {}) {
            let message = format!("keeps volumes of contracts that were refused: {error:?}");
            log::tell("pool", &message);
        }
    }
}

fn lock(pool: &Mutex<Pool<FileMedium>>) -> MutexGuard<'_, Pool<FileMedium>> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
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

pub(super) fn refused(refused: Refused) -> ServeError {
    ServeError::volume(&refused.volume, refused.message)
}

/// Would a server start with these contracts, as far as can be seen without changing anything?
pub(crate) fn check(
    contracts: &Contracts,
    path: &Path,
    consent: &Consent,
) -> Result<(), ServeError> {
    admin::check_contracts(path, contracts, |table, free| {
        let placed = table.with(&wanted(&contracts.volumes, consent), free);
        placed.map(drop).map_err(refused)
    })
}

impl Served {
    /// Opens the pool of these contracts for this server alone, and makes it if they may.
    pub(crate) fn open(contracts: &Contracts, path: &Path) -> Result<Self, ServeError> {
        let (pool, storage) = admin::open_or_create(path, contracts.drive.may_create)?;
        admin::check_uuid(path, pool.superblock().pool, contracts.drive.pool)?;
        let table = pool.table().clone();
        let (pool, storage) = (Arc::new(Mutex::new(pool)), Arc::new(storage));
        let (path, index, quarantine) = (path.to_path_buf(), Index::of(&table), Vec::new());
        Ok(Self { pool, storage, path, table, index, quarantine })
    }
    /// What the back end uses.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }
    /// Finds room for every volume.
    pub(crate) fn place(
        &mut self,
        volumes: &[Volume],
        consent: &Consent,
    ) -> Result<(), ServeError> {
        let pool = lock(&self.pool);
        let quarantine: Vec<Extent> = self.quarantine.iter().map(|(_, extent)| *extent).collect();
        let free = Free::of(pool.table(), pool.superblock(), pool.grows(), &quarantine);
        let table = pool.table().with(&wanted(volumes, consent), free);
        self.table = table.map_err(refused)?;
        self.index = Index::of(&self.table);
        Ok(())
    }
    /// Makes it durable.
    pub(crate) fn make(&self) -> Result<Made, ServeError> {
        let mut pool = lock(&self.pool);
        let before = Some(pool.table().clone());
        self.commit(&mut pool, self.table.clone())?;
        Ok(Made { pool: Arc::clone(&self.pool), before })
    }
    fn commit(&self, pool: &mut Pool<FileMedium>, table: Table) -> Result<(), ServeError> {
        let mut told = 0;
        let mut progress = |done: u64, all: u64| {
            let percent = done * 100 / all.max(1);
            supervisor::extend(PIECE_MAX, "zeroing what volumes get");
            if all > super::medium::ZERO_PIECE && percent >= told + 5 {
                told = percent;
                let message = format!("zeroing what volumes get: {percent} % of {all} bytes");
                log::tell("pool", &message);
            }
        };
        let committed = pool.commit(table, &mut progress);
        committed.map_err(|error| admin::told(&self.path, error))
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
    pub(crate) fn finish(
        &mut self,
        volumes: &[Volume],
        consent: &Consent,
    ) -> Result<(), ServeError> {
        let mut pool = lock(&self.pool);
        let before = pool.table().clone();
        let table = before.cut(&wanted(volumes, consent), &consent.delete);
        self.commit(&mut pool, table)?;
        self.table = pool.table().clone();
        self.index = Index::of(&self.table);
        let left = without(&before.assigned(), &self.table.assigned());
        for volume in before.volumes.iter().filter(|_| !left.is_empty()) {
            let id = VolumeId(volume.id.as_u128());
            let left = common(&joined(volume.extents.clone()), &left);
            self.quarantine.extend(left.into_iter().map(|extent| (id, extent)));
        }
        Ok(())
    }
    /// What nobody can meet any more may be given out.
    pub(crate) fn release(&mut self, is_gone: impl Fn(VolumeId) -> bool) {
        self.quarantine.retain(|(id, _)| !is_gone(*id));
    }
    /// Volumes whose extents wait for the engine to let go of them.
    pub(crate) fn waiting(&self) -> Vec<VolumeId> {
        let mut ids: Vec<VolumeId> = self.quarantine.iter().map(|(id, _)| *id).collect();
        ids.dedup();
        ids
    }
}
