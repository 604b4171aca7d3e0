//! The contract file on disk: reading, comparing and atomic replacement.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::attributes;
use crate::layout::{read_text, sync_parent};
use crate::log;
use crate::places::revocable::Revocable;
use crate::reserve::{Reserve, Room};

/// A contract file.
#[derive(Debug)]
pub(super) struct ContractFile {
    /// As it was given, from the root: a link in it may lead to another file later.
    path: PathBuf,
}

/// A new text on disk, beside the file or in its place; what it has replaced is beside it then. Dropping it takes it back.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    file: &'a ContractFile,
    target: PathBuf,
    fresh: PathBuf,
    text: String,
    is_in_place: bool,
}

impl ContractFile {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let this = Self { path: std::path::absolute(path)? };
        match iofair_config::is_regular(path)? {
            true => this.target().map(|_| this),
            false => {
                Err(io::Error::other("not a regular file, which can be read again and changed"))
            }
        }
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
    /// Writes a new text beside the file, durably, with the file's own owner, mode and attributes as far as the server may.
    pub(super) fn prepare(&self, text: &str, room: Room) -> io::Result<Pending<'_>> {
        let target = self.target()?;
        let mut name = target.as_os_str().to_os_string();
        name.push(".new");
        let (fresh, text, is_in_place) = (name.into(), text.to_string(), false);
        let pending = Pending { file: self, target, fresh, text, is_in_place };
        let reserve = Reserve::beside(&pending.target);
        let fresh = reserve.create(&pending.fresh, pending.text.as_bytes(), room)?;
        let lost = attributes::copy(&fs::File::open(&pending.target)?, &fresh)?;
        fresh.sync_all()?;
        if !lost.is_empty() {
            let (target, lost) = (pending.target.display(), lost.join(", "));
            let message = format!("a change replaces {target}, which does not keep its {lost}");
            log::tell("control", &message);
        }
        Ok(pending)
    }
}

impl Pending<'_> {
    /// Takes the file's place. `None`: the file was not `before` any more, and stays what somebody has made it meanwhile.
    pub(super) fn commit(mut self, before: &str) -> io::Result<Option<Self>> {
        exchange(&self.fresh, &self.target)?;
        self.is_in_place = true;
        // Or a link leads to another file now.
        if read_text(&self.fresh)? != before || self.file.target()? != self.target {
            return Ok(None);
        }
        self.sync();
        Ok(Some(self))
    }
    /// The new text is in force; whether the directory knows it after a power cut is the disk's word.
    fn sync(&self) {
        let _ = sync_parent(&self.target);
    }
    /// Puts back what it has replaced, unless somebody has saved an edit since.
    fn take_back(&self) -> io::Result<()> {
        exchange(&self.fresh, &self.target)?;
        if read_text(&self.fresh).ok().as_ref() != Some(&self.text) {
            exchange(&self.fresh, &self.target)?;
        }
        self.sync();
        Ok(())
    }
}

impl Revocable for Pending<'_> {
    fn keep(mut self: Box<Self>) {
        self.is_in_place = false;
        let file = self.file;
        drop(self);
        file.reserve();
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.is_in_place
            && let Err(error) = self.take_back()
        {
            let (target, fresh) = (self.target.display(), self.fresh.display());
            log::tell("control", &format!("{target} could not be put back from {fresh}: {error}"));
            return;
        }
        let _ = fs::remove_file(&self.fresh);
    }
}

/// Gives two files each other's names, so that nothing which is saved under one of them meanwhile is lost.
fn exchange(fresh: &Path, target: &Path) -> io::Result<()> {
    let path = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (from, to) = (path(fresh)?, path(target)?);
    let (here, flags) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    // SAFETY: a plain system call with paths that outlive it.
    if unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Its file system cannot do that at once (NFS).
        error if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
            exchange_by_links(fresh, target)
        }
        error => Err(error),
    }
}

/// The same in three steps, none of which leaves `target` without a file.
fn exchange_by_links(fresh: &Path, target: &Path) -> io::Result<()> {
    let mut old = fresh.as_os_str().to_os_string();
    old.push(".old");
    let _ = fs::remove_file(&old);
    fs::hard_link(target, &old).or_else(|_| fs::copy(target, &old).map(drop))?;
    fs::rename(fresh, target).and_then(|()| fs::rename(&old, fresh))
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
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn keep(committed: io::Result<Option<Pending<'_>>>) {
        Box::new(committed.unwrap().unwrap()).keep();
    }

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
        keep(file.prepare("three", Room::Free).unwrap().commit("two"));
        let found = ["one", "two"].map(|name| fs::read_to_string(at(name).join("c.toml")).unwrap());
        assert_eq!((found, at("current").is_symlink()), (["one".into(), "three".into()], true));
        fs::remove_dir_all(directory).unwrap();
    }

    /// Goal: an edit that somebody saves while a change is made is never overwritten. Method: saved before the new text takes the
    /// file's place, and before it is taken back, over the file and into it; no edit; a file
    /// system that cannot exchange files.
    #[test]
    fn edits_that_are_saved_meanwhile_stay() {
        let directory = std::env::temp_dir().join(format!("iofair-edited-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("c.toml");
        let save = |text: &str, over: bool| {
            let to = if over { directory.join("saved") } else { path.clone() };
            fs::write(&to, text).unwrap();
            fs::rename(&to, &path).unwrap();
        };
        save("before", true);
        let file = ContractFile::new(&path).unwrap();
        let read = || fs::read_to_string(&path).unwrap();
        for over in [false, true] {
            save("before", over);
            let pending = file.prepare("after", Room::Free).unwrap();
            save("edited", over);
            assert!(pending.commit("before").unwrap().is_none());
            assert_eq!(read(), "edited");
            let pending = file.prepare("after", Room::Free).unwrap();
            let pending = pending.commit("edited").unwrap().unwrap();
            assert_eq!(read(), "after");
            save("again", over);
            drop(pending);
            assert_eq!(read(), "again");
            drop(file.prepare("after", Room::Free).unwrap().commit("again").unwrap().unwrap());
            assert_eq!(read(), "again");
            keep(file.prepare("after", Room::Free).unwrap().commit("again"));
            assert_eq!((read().as_str(), directory.join("c.toml.new").exists()), ("after", false));
        }
        let fresh = directory.join("fresh");
        fs::write(&fresh, "fresh").unwrap();
        exchange_by_links(&fresh, &path).unwrap();
        assert_eq!(
            (read().as_str(), fs::read_to_string(&fresh).unwrap().as_str()),
            ("fresh", "after")
        );
        fs::remove_dir_all(directory).unwrap();
    }

    /// Goal: a change leaves who may read the file and what others have noted at it as they are. Method: an attribute, by paths.
    #[test]
    fn a_change_keeps_attributes() {
        let path = std::env::temp_dir().join(format!("iofair-noted-{}", std::process::id()));
        fs::write(&path, "before").unwrap();
        let (name, at) = (c"user.owner", CString::new(path.as_os_str().as_bytes()).unwrap());
        // SAFETY: a plain system call with strings that outlive it.
        let set =
            unsafe { libc::setxattr(at.as_ptr(), name.as_ptr(), c"ops".as_ptr().cast(), 3, 0) };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        let file = ContractFile::new(&path).unwrap();
        keep(file.prepare("after", Room::Free).unwrap().commit("before"));
        let mut value = [0_u8; 8];
        let room = value.as_mut_ptr().cast();
        // SAFETY: as above, into room that is as long as said.
        let length = unsafe { libc::getxattr(at.as_ptr(), name.as_ptr(), room, value.len()) };
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), length), ("after", 3));
        assert_eq!(&value[..3], b"ops");
        fs::remove_file(path).unwrap();
    }

    /// Goal: a change leaves the file to its owner. Method: a server of another user, who may give files away.
    #[test]
    #[ignore = "needs root: chown"]
    fn needs_root_a_change_keeps_owner_and_mode() {
        let directory = std::env::temp_dir().join(format!("iofair-owner-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("c.toml");
        fs::write(&path, "before").unwrap();
        std::os::unix::fs::chown(&path, Some(1000), Some(1001)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let file = ContractFile::new(&path).unwrap();
        keep(file.prepare("after", Room::Free).unwrap().commit("before"));
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (1000, 1001, 0o640));
        fs::remove_dir_all(directory).unwrap();
    }
}
