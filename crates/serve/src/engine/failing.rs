//! Drives and volumes that fail: those with a run of failed requests.

use std::collections::BTreeSet;
use std::io;

use iofair_core::time::Instant;
use slab::Slab;

use super::runs::{Failing, Runs};
use super::volume::Volume;
use crate::log;
use crate::request::op::Op;

/// Volumes that are told of.
const TOLD_MAX: usize = 16;

fn tell(source: &str, op: &Op, fails: bool) {
    let error = io::Error::from_raw_os_error(op.status);
    match fails {
        true => log::tell(source, &format!("every request of a kind fails now: {error}")),
        false => log::tell(source, "requests succeed again"),
    }
}

/// What fails of an engine.
#[derive(Default, Debug)]
pub(super) struct Failures {
    drive: Runs,
    /// Keys of volumes with a run, and of some that had one.
    volumes: BTreeSet<usize>,
}

/// What fails, for people.
#[derive(Clone, Default, Debug)]
pub struct FailureReport {
    /// The whole drive has failed.
    pub drive: Option<Failing>,
    /// Volumes, the first ones only.
    pub volumes: Vec<(String, Failing)>,
    /// How many volumes there are.
    pub volume_count: usize,
}

impl Failures {
    /// A request of the volume has ended.
    pub(super) fn ended(&mut self, now: Instant, op: &Op, volume: &mut Volume) {
        if op.status == 0 && self.volumes.is_empty() && self.drive.longest().is_none() {
            return;
        }
        if let Some(fails) = volume.runs.ended(now, op) {
            tell(&format!("volume \"{}\"", volume.plan.name), op, fails);
        }
        if let Some(fails) = self.drive.ended(now, op) {
            tell("drive", op, fails);
        }
        match volume.runs.longest() {
            Some(_) => self.volumes.insert(op.volume),
            None => self.volumes.remove(&op.volume),
        };
    }
    /// What fails now. `shared`: the volumes are on one drive. `lost`: it cannot work any more.
    pub(super) fn report(&self, volumes: &Slab<Volume>, shared: bool, lost: bool) -> FailureReport {
        let drive = self.drive.certain(lost).filter(|_| shared);
        let failing = |key: &usize| {
            let volume = volumes.get(*key).filter(|volume| !volume.is_drive)?;
            Some((volume, volume.runs.longest()?))
        };
        let all: Vec<_> = self.volumes.iter().filter_map(failing).collect();
        let told = all.iter().take(TOLD_MAX);
        let volumes = told.map(|(volume, run)| (volume.plan.name.clone(), *run)).collect();
        FailureReport { drive, volumes, volume_count: all.len() }
    }
}
