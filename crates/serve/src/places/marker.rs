//! Notes which pool a server has used: `PATH.iofair` beside the pool, and `FILE.iofair` beside the contract file.
//!
//! A pool directory may be a mount point whose file system is not mounted, or be in one, and the file of a pool may have been
//! moved. A device may have another name than before. Without these notes, a start could not tell that from a first start, and
//! would serve empty volumes. There are no notes beside devices.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use iofair_config::contracts::Contracts;
use iofair_config::shell;
use uuid::Uuid;

use crate::back::uring::claim::is_below_dev;
use crate::error::ServeError;
use crate::layout::replace;
use crate::log;
use crate::trial::Mode;

/// The notes about a pool.
#[derive(Debug)]
pub(crate) struct Marker {
    pool: PathBuf,
    /// What may be noted where, and the pool that is.
    notes: Vec<(PathBuf, Option<Uuid>)>,
    /// The pool that the last server with this contract file used, if that is another place.
    other: Option<PathBuf>,
}

impl Marker {
    /// Reads the notes about the pool of some contracts.
    pub(crate) fn read(contracts: &Contracts, pool: &Path) -> Result<Self, ServeError> {
        let file = Path::new(contracts.path());
        // Contracts need not be in a file.
        let file = Some(file).filter(|file| file.is_file());
        let link = file.filter(|file| file.is_symlink());
        let target = link.and_then(|link| fs::canonicalize(link).ok());
        let (mut notes, mut other) = (Vec::new(), None);
        let pool_file = Some(pool).filter(|pool| !is_below_dev(pool));
        for path in [pool_file, file, target.as_deref()].into_iter().flatten().filter_map(beside) {
            let known = read(&path)?;
            let (about, elsewhere) = match known {
                Some((known, place)) => match is_about(&place, pool, &path) {
                    true => (Some(known), None),
                    false => (None, Some(place)),
                },
                None => (None, None),
            };
            notes.push((path, about));
            other = other.or(elsewhere);
        }
        Ok(Self { pool: pool.to_path_buf(), notes, other })
    }
    /// Without notes, for a program that only needs the pool.
    pub(super) fn without_notes(pool: &Path) -> Self {
        Self { pool: pool.to_path_buf(), notes: Vec::new(), other: None }
    }
    /// The pool that was there.
    fn known(&self) -> Option<Uuid> {
        self.notes.iter().find_map(|(_, known)| *known)
    }
    /// These files and the notes, for a command.
    pub(super) fn files(&self, more: &[&Path]) -> String {
        let notes = self.notes.iter().filter(|(_, known)| known.is_some());
        let all = more.iter().copied().chain(notes.map(|(path, _)| &**path));
        all.map(shell::path).collect::<Vec<_>>().join(" ")
    }
    fn refuse(&self, what: &str) -> ServeError {
        let command = format!("rm {}", self.files(&[]));
        let question = match is_below_dev(&self.pool) {
            true => "is it the right device?",
            false => "is the right file system mounted?",
        };
        let message = format!("{what}: {question} `{command}` accepts this");
        ServeError::Layout { path: self.pool.clone(), message }
    }
    /// Refuses a place without a pool, if there was one.
    pub(crate) fn check_absent(&self) -> Result<(), ServeError> {
        match self.known() {
            Some(known) => {
                Err(self.refuse(&format!("the pool {known} was here, and there is none now")))
            }
            None => Ok(()),
        }
    }
    /// There is no pool yet: tells if the contract file had another one before, since clients get empty volumes now.
    pub(crate) fn note_other(&self, mode: &Mode) {
        if let Some(other) = self.other.as_deref().filter(|other| other.exists()) {
            let (pool, other) = (whole(&self.pool), other.display());
            mode.note(format!(
                "{} is a new pool, whose volumes are empty: the last server with this contract file used {other}, and its data \
                 is still there",
                pool.display()
            ));
        }
    }
    /// Refuses another pool than the one that was there; returns the identity for one without, which an earlier version made.
    pub(crate) fn check(&self, pool: Option<Uuid>) -> Result<Uuid, ServeError> {
        let mut known = self.notes.iter().filter_map(|(_, known)| *known);
        if let Some(known) = known.find(|known| pool != Some(*known)) {
            let other = pool.map_or("one of an earlier version".into(), |pool| pool.to_string());
            let what = format!("the pool {known} was here, and there is another one, {other}");
            return Err(self.refuse(&what));
        }
        Ok(pool.unwrap_or_else(Uuid::new_v4))
    }
    /// Notes which pool is there.
    pub(crate) fn write(&mut self, pool: Uuid) {
        let text = format!("{pool} {}\n", whole(&self.pool).display());
        let mut failed = None;
        for (path, known) in self.notes.iter_mut().filter(|(_, known)| *known != Some(pool)) {
            match replace(path, text.as_bytes()) {
                Ok(()) => *known = Some(pool),
                Err(error) => failed = Some(format!("{}: {error}", path.display())),
            }
        }
        // The note beside the pool may be on the file system that is not mounted later.
        let beside_pool = beside(&self.pool);
        let mut elsewhere =
            self.notes.iter().filter(|(path, _)| Some(path) != beside_pool.as_ref());
        let is_noted = elsewhere.any(|(_, known)| known.is_some());
        if let Some(failed) = failed.filter(|_| !is_noted) {
            let message = format!(
                "{failed}; a later start cannot tell a pool that is not mounted from a new one"
            );
            log::tell("pool", &message);
        }
    }
}

/// The same place for every working directory: absolute, and without `.` and `..`.
fn whole(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    whole
}

/// The same place for every working directory and link that leads to it, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let path = whole(path);
    let found = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match found.and_then(|(above, real)| Some(real.join(path.strip_prefix(above).ok()?))) {
        Some(real) => real,
        None => path,
    }
}

/// The note beside a file or directory; none beside one without a name.
fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_os_string();
    name.push(".iofair");
    Some(path.with_file_name(name))
}

/// The pool that a note names, and where it is.
fn read(note: &Path) -> Result<Option<(Uuid, PathBuf)>, ServeError> {
    let text = match fs::read_to_string(note) {
        Ok(text) => text,
        // Whoever may not read it did not write it.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        Err(error) => return Err(ServeError::system(note.display().to_string())(error)),
    };
    // Names may end with blanks.
    let parts = text.strip_suffix('\n').unwrap_or(&text).split_once(' ');
    let parsed = parts.and_then(|(uuid, place)| Some((Uuid::parse_str(uuid).ok()?, place)));
    let Some((uuid, place)) = parsed else {
        let message = "it does not name a pool; delete it to accept what is there";
        return Err(ServeError::Layout { path: note.to_path_buf(), message: message.into() });
    };
    Ok(Some((uuid, PathBuf::from(place))))
}

/// Whether a note about a pool at a place is about this one.
fn is_about(place: &Path, pool: &Path, note: &Path) -> bool {
    // Beside a pool that was moved together with its note, the place is another one.
    let is_beside = beside(pool).is_some_and(|path| path == note);
    // A link to the pool leads nowhere while its file system is not mounted.
    whole(place) == whole(pool) || resolved(place) == resolved(pool) || is_beside
}
