//! A note beside a pool, `PATH.iofair`, which pool is there.
//!
//! A pool directory may be a mount point whose file system is not mounted, and the file of a pool may have been moved. Without the
//! note, a start could not tell that from a first start, and would serve empty volumes.

use std::fs;
use std::path::{Path, PathBuf};

use iofair_config::shell;
use uuid::Uuid;

use crate::error::ServeError;
use crate::layout::replace;
use crate::log;

/// The note beside a pool.
#[derive(Debug)]
pub(crate) struct Marker {
    /// What it is about.
    pool: PathBuf,
    /// `None`: the pool's path has no name.
    path: Option<PathBuf>,
    known: Option<Uuid>,
}

impl Marker {
    /// Reads the note beside a pool, if there is one.
    pub(crate) fn beside(pool: &Path) -> Result<Self, ServeError> {
        let path = pool.file_name().map(|name| {
            let mut name = name.to_os_string();
            name.push(".iofair");
            pool.with_file_name(name)
        });
        let known = path.as_deref().map(read).transpose()?.flatten();
        Ok(Self { pool: pool.to_path_buf(), path, known })
    }
    fn refuse(&self, what: &str) -> ServeError {
        let marker = shell::path(self.path.as_deref().unwrap_or(&self.pool));
        let message =
            format!("{what}: is the right file system mounted? `rm {marker}` accepts this");
        ServeError::Layout { path: self.pool.clone(), message }
    }
    /// Refuses a place without a pool, if there was one.
    pub(crate) fn check_absent(&self) -> Result<(), ServeError> {
        match self.known {
            Some(known) => {
                Err(self.refuse(&format!("the pool {known} was here, and there is none now")))
            }
            None => Ok(()),
        }
    }
    /// Refuses another pool than the one that was there; returns the identity for one without.
    pub(crate) fn check(&self, pool: Option<Uuid>) -> Result<Uuid, ServeError> {
        match (self.known, pool) {
            (Some(known), Some(pool)) if known != pool => Err(self.refuse(&format!(
                "the pool {known} was here, and there is another one now, {pool}"
            ))),
            (known, pool) => Ok(pool.or(known).unwrap_or_else(Uuid::new_v4)),
        }
    }
    /// Notes which pool is there.
    pub(crate) fn write(&mut self, pool: Uuid) {
        let Some(path) = self.path.as_ref().filter(|_| self.known != Some(pool)) else { return };
        self.known = Some(pool);
        if let Err(error) = replace(path, format!("{pool}\n").as_bytes()) {
            let message = format!(
                "{}: {error}; a later start cannot tell a pool that is not mounted from a new one",
                path.display()
            );
            log::tell("pool", &message);
        }
    }
}

fn read(path: &Path) -> Result<Option<Uuid>, ServeError> {
    match fs::read_to_string(path) {
        Ok(text) => Uuid::parse_str(text.trim()).map(Some).map_err(|_| {
            let message = "it does not have the UUID of a pool; delete it to accept what is there";
            ServeError::Layout { path: path.to_path_buf(), message: message.into() }
        }),
        // Whoever may not read it did not write it.
        Err(_) => Ok(None),
    }
}
