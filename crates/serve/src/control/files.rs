//! The files that hold volumes, as an operator must see them: removed ones, and the room that is left.
//!
//! A thread looks at them every few seconds. It holds no lock meanwhile, since a file system may hang.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::app::{App, lock};
use crate::error::ServeError;
use crate::log;
use crate::server::Survey;

/// How often somebody looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Files {
    removed: Mutex<BTreeSet<PathBuf>>,
    free: Mutex<Option<u64>>,
}

/// A file that somebody removed while it was served.
#[derive(Serialize)]
pub(super) struct Removed {
    path: PathBuf,
    /// The only volume in it; absent: all volumes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    /// What happened, and what saves the data.
    text: String,
}

/// What files look like at one moment.
pub(super) struct Look {
    pub(super) free_bytes: Option<u64>,
    pub(super) removed: Vec<Removed>,
}

impl Files {
    /// Looks at the files of a server; the log has a line about each that was removed.
    pub(super) fn look(&self, survey: &Survey) -> Look {
        let free_bytes = survey.free_bytes().ok();
        let removed = survey.removed();
        let paths = removed.iter().map(|removed| removed.path.clone()).collect();
        let before = std::mem::replace(&mut *lock(&self.removed), paths);
        *lock(&self.free) = free_bytes;
        let tell = |removed: crate::places::Unlinked| {
            let text = removed.message();
            if !before.contains(&removed.path) {
                log::tell("drive", &text);
            }
            Removed { path: removed.path, volume: removed.volume, text }
        };
        Look { free_bytes, removed: removed.into_iter().map(tell).collect() }
    }
    /// How many were removed.
    pub(super) fn removed(&self) -> usize {
        lock(&self.removed).len()
    }
    /// Bytes that new volumes can have.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        *lock(&self.free)
    }
}

/// Looks at a server's files now and from time to time, until the result is dropped.
pub(super) fn watch(app: &Arc<App>) -> Result<Sender<()>, ServeError> {
    let look = |app: &App| {
        if let Some(survey) = app.survey() {
            app.files.look(&survey);
        }
    };
    look(app);
    let (stop, stopped) = mpsc::channel();
    let app = Arc::downgrade(app);
    let look = move || {
        while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let Some(app) = app.upgrade() else { return };
            look(&app);
        }
    };
    let thread = thread::Builder::new().name("files".into()).spawn(look);
    thread.map(|_| stop).map_err(ServeError::system("a thread"))
}
