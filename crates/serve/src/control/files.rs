//! The files that hold volumes, as an operator must see them: removed, moved and cut ones, and the room that is left.
//!
//! A thread looks at them every few seconds, and for each `ctl status`. It holds no lock meanwhile, since a file system may
//! hang.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use serde::Serialize;

use super::limits;
use super::shown::Shown;
use super::turns::lock;
use crate::log;
use crate::places::{Damaged, Free};

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Files {
    seen: Arc<Mutex<Look>>,
    /// The end of the present look, which may wait for a file system.
    present: Mutex<Option<Receiver<()>>>,
    /// What is logged.
    told: Mutex<Vec<Damaged>>,
}

/// A file that somebody removed, moved or cut off while it was served.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Removed {
    /// Where it was.
    path: PathBuf,
    /// The only volume in it; absent: all volumes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    /// What happened, with the command that saves the data.
    text: String,
}

/// What files look like at one moment.
#[derive(Clone, Default, Debug)]
pub(super) struct Look {
    /// The room for volumes, if it is known.
    pub(super) free: Option<Free>,
    pub(super) removed: Vec<Removed>,
    /// What is told of a mount that somebody else has unmounted.
    pub(super) unmounted: Option<String>,
    damaged: Vec<Damaged>,
    /// What was looked at.
    of: Weak<Shown>,
}

impl Look {
    /// Looks at what is served.
    fn at(shown: &Arc<Shown>) -> Self {
        let damaged = shown.server.damaged();
        let removed = damaged.iter().map(|removed| {
            let (path, volume) = (removed.path.clone(), removed.volume.clone());
            Removed { path, volume, text: removed.message() }
        });
        let (removed, of) = (removed.collect(), Arc::downgrade(shown));
        let (free, unmounted) = (shown.server.free().ok(), shown.server.unmounted());
        Self { removed, free, unmounted, damaged, of }
    }
}

impl Files {
    /// Looks at the files of what is served. One thread at a time does. If it takes longer than [`limits::LOOK_MAX`], what
    /// was seen last is returned, without the room.
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
                let look = Look::at(&shown);
                *lock(&seen) = look;
                // The receiver may be gone.
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
    /// What was seen last and the log does not tell of yet. `present`: what is served, unless it changes. During a change, and
    /// before it is shown, a file may only look damaged: nothing is told then, but after the next look.
    fn untold(&self, present: impl FnOnce() -> Option<Arc<Shown>>) -> Vec<String> {
        let look = self.seen();
        // In this order: a change that ends meanwhile has shown something else.
        if present().is_none_or(|shown| !Weak::ptr_eq(&look.of, &Arc::downgrade(&shown))) {
            return Vec::new();
        }
        let before = std::mem::replace(&mut *lock(&self.told), look.damaged.clone());
        let is_new = |seen: &&Damaged| !before.iter().any(|before| before.is_like(seen));
        look.damaged.iter().filter(is_new).map(Damaged::message).collect()
    }
    /// Tells the log.
    pub(super) fn tell(&self, present: impl FnOnce() -> Option<Arc<Shown>>) {
        self.untold(present).iter().for_each(|text| log::tell("drive", text));
    }
    /// What was seen last.
    pub(super) fn seen(&self) -> Look {
        lock(&self.seen).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use iofair_config::contracts::Contracts;

    use super::*;
    use crate::control::Control;

    /// Goal: the log tells of everything that happens to a file, once; and of nothing that was seen of a server that has changed.
    /// Method: the file of a volume that is moved and then removed; looks at the server before a reload and after it.
    #[test]
    fn the_log_tells_everything_once() {
        let directory = std::env::temp_dir().join(format!("iofair-told-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = |name: &str| directory.join(name);
        let text = format!(
            "[drive]\nback = 'directory:{}'\nstack = 'none-none'\n[listen]\nunix = '{}'\n\
             [[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n",
            path("pool").display(),
            path("socket").display(),
        );
        let file = path("contracts.toml");
        fs::write(&file, &text).unwrap();
        let control = Control::start(&file, Contracts::open(&file).unwrap()).unwrap();
        // The server's own is looked at by its own thread.
        let (app, files) = (&control.app, Files::default());
        let told = |shown: &Arc<Shown>| {
            files.look(shown);
            files.untold(|| Some(app.view()))
        };
        let before = app.view();
        app.reload(&crate::consent::Consent::default()).unwrap();
        assert!(told(&app.view()).is_empty());
        fs::rename(path("pool/v.img"), path("moved")).unwrap();
        assert!(told(&before).is_empty(), "it is another server now");
        let moved = told(&app.view());
        assert!(matches!(&moved[..], [moved] if moved.contains("moved")), "{moved:?}");
        assert!(told(&app.view()).is_empty());
        fs::remove_file(path("moved")).unwrap();
        let removed = told(&app.view());
        assert!(matches!(&removed[..], [removed] if removed.contains("cp -p")), "{removed:?}");
        assert!(told(&app.view()).is_empty());
        control.stop().unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }
}
