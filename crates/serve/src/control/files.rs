//! The files that hold volumes, as an operator must see them: removed, moved and cut ones, and the room that is left.
//!
//! A thread looks at them every few seconds, and for each `ctl status`. It holds no lock meanwhile, since a file system may
//! hang.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;

use serde::Serialize;

use super::limits;
use super::shown::Shown;
use super::turns::lock;
use crate::log;

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Files {
    seen: Arc<Mutex<Look>>,
    /// The end of the present look, which may wait for a file system.
    present: Mutex<Option<Receiver<()>>>,
}

/// A file that somebody removed, moved or cut off while it was served.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Removed {
    path: PathBuf,
    /// The only volume in it; absent: all volumes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    /// What happened, and what saves the data.
    text: String,
}

/// What files look like at one moment.
#[derive(Clone, Default, Debug)]
pub(super) struct Look {
    /// Bytes that new volumes can have, if that is known.
    pub(super) free: Option<u64>,
    pub(super) removed: Vec<Removed>,
}

impl Look {
    /// Looks at what is served; the log has a line about each that is not among those of `before`.
    fn at(shown: &Shown, before: &[Removed]) -> Self {
        let removed = shown.server.damaged().into_iter().map(|removed| {
            let text = removed.message();
            if !before.iter().any(|before| before.path == removed.path) {
                log::tell("drive", &text);
            }
            Removed { path: removed.path, volume: removed.volume, text }
        });
        Self { removed: removed.collect(), free: shown.server.free_bytes().ok() }
    }
}

impl Files {
    /// Looks at the files of what is served. One thread at a time does. If it takes longer than [`limits::LOOK_MAX`], what
    /// was seen last is returned, without the free space.
    pub(super) fn look(&self, shown: &Arc<Shown>) -> Look {
        let mut look = self.seen();
        // Another caller waits for it already.
        let Ok(mut present) = self.present.try_lock() else {
            look.free = None;
            return look;
        };
        let ended = present.take().or_else(|| {
            let (end, ended) = mpsc::channel();
            let (seen, shown) = (self.seen.clone(), shown.clone());
            let look = move || {
                let before = lock(&seen).removed.clone();
                let look = Look::at(&shown, &before);
                *lock(&seen) = look;
                // Nobody may wait for it any more.
                let _ = end.send(());
            };
            thread::Builder::new().name("look".into()).spawn(look).ok()?;
            Some(ended)
        });
        let waited = ended.map(|ended| (ended.recv_timeout(limits::LOOK_MAX), ended));
        look = self.seen();
        if let Some((Err(RecvTimeoutError::Timeout), ended)) = waited {
            *present = Some(ended);
            look.free = None;
        }
        look
    }
    /// What was seen last.
    pub(super) fn seen(&self) -> Look {
        lock(&self.seen).clone()
    }
}
