//! The contract file on disk: reading, comparing and atomic replacement.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::reserve::{Reserve, Room};

/// A contract file.
#[derive(Debug)]
pub(super) struct ContractFile {
    path: PathBuf,
    /// Room for new texts.
    reserve: Reserve,
}

/// A new text on disk that has not taken the file's place yet. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    file: &'a ContractFile,
    fresh: PathBuf,
}

impl ContractFile {
    /// A link is followed once, so that the file that it names is replaced and not the link.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        Ok(Self { reserve: Reserve::beside(&path), path })
    }
    /// Reserves room for the next text, which may come when the disk is full.
    pub(super) fn reserve(&self) {
        self.reserve.hold(fs::metadata(&self.path).map_or(0, |file| file.len()));
    }
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    pub(super) fn read(&self) -> io::Result<String> {
        fs::read_to_string(&self.path)
    }
    /// Writes a new text beside the file, durably, with the file's own mode.
    pub(super) fn prepare(&self, text: &str, room: Room) -> io::Result<Pending<'_>> {
        let mut name = self.path.as_os_str().to_os_string();
        name.push(".new");
        let pending = Pending { file: self, fresh: name.into() };
        let fresh = self.reserve.create(&pending.fresh, text.as_bytes(), room)?;
        fresh.set_permissions(fs::metadata(&self.path)?.permissions())?;
        fresh.sync_all()?;
        Ok(pending)
    }
}

impl Pending<'_> {
    /// Takes the file's place.
    pub(super) fn commit(self) -> io::Result<()> {
        fs::rename(&self.fresh, &self.file.path)?;
        self.file.reserve();
        let directory = self.file.path.parent().unwrap_or(Path::new("/"));
        // The new text is in force; whether the directory knows it after a power cut is the disk's word.
        File::open(directory).and_then(|directory| directory.sync_all())
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        // After the commit it is not there any more.
        let _ = fs::remove_file(&self.fresh);
    }
}

/// A text's revision: FNV-1a of 64 bits, so that equal texts have equal revisions after a restart, too.
pub(super) fn revision(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
