//! The contract file on disk: reading, comparing and atomic replacement.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::layout::read_text;
use crate::reserve::{Reserve, Room};

/// A contract file.
#[derive(Debug)]
pub(super) struct ContractFile {
    /// As it was given, from the root: a link in it may lead to another file later.
    path: PathBuf,
}

/// A new text on disk that has not taken the file's place yet. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    file: &'a ContractFile,
    target: PathBuf,
    fresh: PathBuf,
}

impl ContractFile {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let this = Self { path: std::path::absolute(path)? };
        this.target().map(|_| this)
    }
    /// The file that is replaced, not a link to it.
    fn target(&self) -> io::Result<PathBuf> {
        fs::canonicalize(&self.path)
    }
    /// Reserves room for the next text, which may come when the disk is full.
    pub(super) fn reserve(&self) {
        if let Ok(target) = self.target() {
            Reserve::beside(&target).hold(fs::metadata(&target).map_or(0, |file| file.len()));
        }
    }
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    pub(super) fn read(&self) -> io::Result<String> {
        read_text(&self.path)
    }
    /// Writes a new text beside the file, durably, with the file's own mode.
    pub(super) fn prepare(&self, text: &str, room: Room) -> io::Result<Pending<'_>> {
        let target = self.target()?;
        let mut name = target.as_os_str().to_os_string();
        name.push(".new");
        let pending = Pending { file: self, target, fresh: name.into() };
        let reserve = Reserve::beside(&pending.target);
        let fresh = reserve.create(&pending.fresh, text.as_bytes(), room)?;
        fresh.set_permissions(fs::metadata(&pending.target)?.permissions())?;
        fresh.sync_all()?;
        Ok(pending)
    }
}

impl Pending<'_> {
    /// Takes the file's place.
    pub(super) fn commit(self) -> io::Result<()> {
        fs::rename(&self.fresh, &self.target)?;
        self.file.reserve();
        let directory = self.target.parent().unwrap_or(Path::new("/"));
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Goal: the file is the one that its path leads to now, and a change replaces that one and no link. Method: a link to a directory,
    /// which is exchanged for another one as programs that deploy files do.
    #[test]
    fn links_may_lead_elsewhere_later() {
        let directory = std::env::temp_dir().join(format!("iofair-linked-{}", std::process::id()));
        let at = |name: &str| directory.join(name);
        for name in ["one", "two"] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("c.toml"), name).unwrap();
        }
        symlink("one", at("current")).unwrap();
        let file = ContractFile::new(&at("current/c.toml")).unwrap();
        assert_eq!(file.read().unwrap(), "one");
        symlink("two", at("next")).unwrap();
        fs::rename(at("next"), at("current")).unwrap();
        assert_eq!(file.read().unwrap(), "two");
        file.prepare("three", Room::Free).unwrap().commit().unwrap();
        let found = ["one", "two"].map(|name| fs::read_to_string(at(name).join("c.toml")).unwrap());
        assert_eq!((found, at("current").is_symlink()), (["one".into(), "three".into()], true));
        fs::remove_dir_all(directory).unwrap();
    }
}
