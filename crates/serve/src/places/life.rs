//! The life cycle of the storage of a back end, the same for every kind. The server drives it.
//!
//! [`Places::open`](super::Places::open) has a row for each kind. [`VolumeStore::place`] decides where volumes are, without
//! changing anything; at the start, [`VolumeStore::open_back`] then opens what the engine sends commands to. Every change
//! of the contracts goes the same way: *place*; *make*, which creates and extends files before the engine knows of them;
//! *enlarge*, which lists volumes as larger once the contract file has the new sizes; *plan*, for the engine; and once the
//! engine has applied it, *finish*, which truncates and removes. Requests for what is removed may still be in flight then: a
//! file keeps its data while it is open, and a pool gives room away only when no request can touch it. All of this happens on
//! the thread that changes the contracts, never on the reactor's. At the end, the engine closes the back end.

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use iofair_config::contracts::{Contracts, Volume};

use super::consent::Need;
use super::damaged::Damaged;
use super::free::Free;
use super::kept::Kept;
use super::revocable::Revocable;
use crate::back::Back;
use crate::back::uring::Storage;
use crate::back::volume::{Map, VolumeId};
use crate::consent::Consent;
use crate::error::ServeError;
use crate::pool::zeroing::{Demand, Zeroing};
use crate::reactor::handle::ReactorHandle;

/// What a step has made.
pub(crate) type Made = Box<dyn Revocable>;

/// Where the engine finds a volume.
pub(crate) struct Location {
    pub(crate) id: VolumeId,
    pub(crate) map: Arc<Map>,
    /// Its file, if it has one of its own.
    pub(crate) storage: Option<Arc<Storage>>,
}

impl Location {
    /// A range of the back end. No two volumes that are there together begin at the same byte.
    pub(super) fn linear(base: u64, bytes: u64) -> Self {
        let (id, map) = (VolumeId(base.into()), Arc::new(Map::linear(base, bytes)));
        Self { id, map, storage: None }
    }
}

/// Where the volumes of a back end are stored.
pub(crate) trait VolumeStore: Any + Debug + Send + Sync {
    /// A copy, in which a change is prepared.
    fn copy(&self) -> Box<dyn VolumeStore>;
    /// Opens what executes commands, once, after the first [`Self::place`].
    fn open_back(&mut self, contracts: &Contracts) -> Result<Box<dyn Back>, ServeError>;
    /// Finds every volume's place. Returns what needs consent, all of which was given.
    fn place(&mut self, contracts: &Contracts, consent: &Consent) -> Result<Vec<Need>, ServeError>;
    /// [`Self::place`] of a running server for a dry run, after which [`Self::kept`] is as the change would make it. Room that
    /// must be zeroed before counts as room.
    fn try_out(
        &mut self,
        contracts: &Contracts,
        consent: &Consent,
        _: &ReactorHandle,
    ) -> Result<Vec<Need>, ServeError> {
        self.place(contracts, consent)
    }
    /// Whether all volumes fit.
    fn check_room(&self, _: &Contracts) -> Result<(), ServeError> {
        Ok(())
    }
    /// Whether the data of a volume that has no path of its own may be deleted.
    fn check_delete(&self, _name: &str) -> Result<(), ServeError> {
        Ok(())
    }
    /// What must be zeroed on a running server before every volume has a place.
    fn lacking(
        &self,
        _: &Contracts,
        _: &Consent,
        _: &ReactorHandle,
    ) -> Result<Vec<Demand>, ServeError> {
        Ok(Vec::new())
    }
    /// Makes volumes and lengthens them, durably. None is listed as larger than before.
    fn make(&mut self, volumes: &[Volume], consent: &Consent) -> Result<Made, ServeError>;
    /// The contract file has the sizes for which [`Self::make`] was called: so does the list.
    fn enlarge(&mut self) -> Result<Made, ServeError>;
    /// Where the engine finds a volume that was placed.
    fn plan(&self, volume: &Volume) -> Location;
    /// The engine has taken the contracts over: cuts volumes that shall be shorter, and removes the data of deleted ones.
    fn finish(&mut self, _new: &[Volume], _: &Consent) -> Result<(), ServeError> {
        Ok(())
    }
    /// From now on requests of clients are served beside changes. Returns what zeroes free room meanwhile.
    fn run(&mut self, line: &ReactorHandle) -> Result<Option<Zeroing>, ServeError>;
    /// It is in force again after `other`, a copy of it, was, whose requests may be in flight.
    fn remember(&mut self, _other: &dyn VolumeStore) {}
    /// Removed volumes whose data is kept, once [`Self::make`] has made those of the contracts.
    fn kept(&self) -> Vec<Kept>;
    /// The room for volumes.
    fn free(&self) -> io::Result<Free>;
    /// Whether volumes may together be larger than the room for them, since files are sparse.
    fn is_sparse(&self) -> bool {
        false
    }
    /// Files that are not as they should be.
    fn damaged(&self) -> Vec<Damaged> {
        Vec::new()
    }
}
