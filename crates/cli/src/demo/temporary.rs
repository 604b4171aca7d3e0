//! Directories of the demo that are gone when it is, also when it is interrupted.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use iofair_serve::{Signal, Signals, log};

/// The exit code after Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;
/// How often a directory is removed in which a file appeared meanwhile.
const TRIES: usize = 100;

/// All of them.
#[derive(Clone, Default)]
pub(crate) struct Temporaries {
    paths: Arc<Mutex<Vec<PathBuf>>>,
}

/// One of them, removed with this.
pub(crate) struct Temporary {
    pub(crate) path: PathBuf,
}

impl Temporaries {
    /// None yet. From now on a signal that ends the program removes what there is. Call it before any thread is started.
    pub(crate) fn start() -> Result<Self> {
        let signals = Signals::block().context("signals cannot be blocked")?;
        let all = Self::default();
        let known = all.clone();
        let thread = std::thread::Builder::new().name("signals".into());
        thread.spawn(move || known.wait(&signals)).context("no thread for signals")?;
        Ok(all)
    }
    fn wait(&self, signals: &Signals) {
        loop {
            match signals.wait() {
                Ok(Some(Signal::Stop | Signal::Reload)) => {
                    // Held to the end, so that no other directory is made.
                    let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
                    paths.iter().for_each(|path| remove(path));
                    log::flush();
                    std::process::exit(INTERRUPTED);
                }
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }
    /// Makes one in a directory.
    pub(crate) fn make(&self, at: &Path) -> Result<Temporary> {
        let path = at.join(format!("iofair-demo-{}", std::process::id()));
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        paths.push(path.clone());
        Ok(Temporary { path })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Nothing better can be done with a failure here than to leave it behind.
fn remove(path: &Path) {
    let mut tries = 0;
    while std::fs::remove_dir_all(path).is_err() && path.exists() && tries < TRIES {
        tries += 1;
    }
}
