//! The server as it is between two changes, for those who only look at it: they never wait for a change.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iofair_config::contracts::Contracts;
use iofair_config::contracts::admission::{Admitted, Floors};
use iofair_config::shell;
use iofair_core::attainable::Attainable;

use super::facts::Facts;
use crate::error::ServeError;
use crate::front::fuse::place::MountPlace;
use crate::places::kept::{self, Kept};
use crate::places::{Damaged, Free, Places, ctl};
use crate::socket::SocketPlace;

/// What a server is under the contracts in force.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) contracts: Contracts,
    pub(super) facts: Arc<Facts>,
    pub(super) places: Places,
    pub(super) blocks: Vec<(String, PathBuf)>,
    pub(super) description: String,
    pub(super) tcp: Option<SocketAddr>,
    pub(super) sockets: Vec<SocketPlace>,
    pub(super) mount: Option<MountPlace>,
}

impl View {
    pub(crate) fn contracts(&self) -> &Contracts {
        &self.contracts
    }
    /// The rate that admission uses under stacks that translate minimums into weights.
    pub(crate) fn worst_case(&self) -> Option<u64> {
        self.facts.worst_case(&self.contracts)
    }
    /// The rates of the drive, if minimums are checked against them.
    pub(crate) fn reaches(&self) -> Option<Attainable> {
        self.facts.reaches(&self.contracts)
    }
    /// The groups with the weights in force.
    pub(crate) fn admitted(&self) -> Result<Admitted, ServeError> {
        self.facts.admit(&self.contracts, None)
    }
    /// The parts of the drive that minimums are.
    pub(crate) fn floors(&self) -> Floors {
        let known = self.facts.known(&self.contracts).unwrap_or_default();
        self.contracts.floors(&known)
    }
    /// The volumes that are block devices of this host, and their paths.
    pub(crate) fn blocks(&self) -> &[(String, PathBuf)] {
        &self.blocks
    }
    pub(crate) fn description(&self) -> &str {
        &self.description
    }
    pub(crate) fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }
    /// The Unix sockets of front ends.
    pub(crate) fn sockets(&self) -> &[SocketPlace] {
        &self.sockets
    }
    /// What is told if somebody has unmounted the volumes, or mounted something else over them.
    pub(crate) fn unmounted(&self) -> Option<String> {
        let mount = self.mount.as_ref()?;
        let path = mount.path().display();
        if mount.is_covered() {
            return Some(format!(
                "{path} is under another mount, and programs find no volumes there; to see them again: `umount {}`",
                shell::path(mount.path())
            ));
        }
        if !mount.is_gone() {
            return None;
        }
        let control = &self.contracts.control;
        let has_ctl = control.unix.is_some() || control.tcp.is_some();
        let again = match has_ctl {
            true => format!("`{} reload`", ctl(&self.contracts)),
            false => "SIGHUP".into(),
        };
        Some(format!(
            "{path} was unmounted by somebody else, and programs find no volumes there; to mount it again: {again}"
        ))
    }
    /// The room for volumes. It may wait for a file system.
    pub(crate) fn free(&self) -> io::Result<Free> {
        self.places.free()
    }
    /// Bytes of all volumes.
    pub(crate) fn volume_bytes(&self) -> u64 {
        self.contracts.volumes.iter().map(|volume| volume.size_bytes).sum()
    }
    /// By how many bytes volumes grow from `before` to this, with the path that each has of its own.
    pub(crate) fn growth<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (Option<&'a Path>, i128)> {
        let bytes = |view: &'a Self, sign: i128| {
            let all = view.contracts.volumes.iter();
            all.map(move |volume| (volume.path.as_deref(), sign * i128::from(volume.size_bytes)))
        };
        bytes(self, 1).chain(bytes(before, -1))
    }
    /// What the operator should know of the change from `before` to this, with this much room left.
    pub(crate) fn notes_since(&self, before: &Self, free: Option<u64>) -> Vec<String> {
        let mut notes = kept::notes(self.places.kept(), &before.places.kept(), &self.contracts);
        notes.extend(self.facts.warnings(&self.contracts));
        notes.extend(self.room_note(free).filter(|_| self.volume_bytes() > before.volume_bytes()));
        notes
    }
    /// A note for the operator if files with this much room left may need more than there is.
    fn room_note(&self, free: Option<u64>) -> Option<String> {
        (self.places.is_sparse() && free == Some(0)).then(|| {
            "the volumes are larger than the room for them: once the file system is full, writes fail with \"no space\""
                .to_string()
        })
    }
    /// Removed volumes whose data is kept.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        self.places.kept()
    }
    /// Files of volumes that somebody has removed, moved or cut off. It may wait for a file system.
    pub(crate) fn damaged(&self) -> Vec<Damaged> {
        self.places.damaged()
    }
}
