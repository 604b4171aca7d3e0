//! The file of the audit log: whole lines, each durable before the call returns.
//!
//! A file that was renamed or removed, as `logrotate` does, is replaced by a new one at the next line. A line that was
//! cut off, by a full disk for example, is removed; one that a crash has cut off is ended before the next line.
//!
//! On a full disk, lines go into room that was reserved behind the end of the file. A new file has none, so a spare file with
//! room takes its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::attributes;
use crate::log;
use crate::reserve::{Reserve, hold_behind, is_full};
use crate::trial::Mode;

/// Bytes of a file before the next one begins.
pub(super) const FILE_MAX: u64 = 16 << 20;
/// Bytes reserved for lines on a full file system: those of the changes that make room.
const ROOM: u64 = 64 << 10;
/// Files beside the present one: 80 MiB in all.
const OLD_FILES: u32 = 4;

#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    pub(super) fn open(path: &Path, mode: &Mode) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), file: open_or_spare(path, mode)? })
    }
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    /// Appends a line, which includes its end. On an error the file does not have it.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.follow()?;
        let mut length = self.file.metadata()?.len();
        if length + line.len() as u64 > FILE_MAX {
            self.turn_over()?;
            let next = open_or_spare(&self.path, &Mode::Serve)?;
            // Readers of the old one read the next one, too.
            let lost = attributes::copy(&self.file, &next);
            let lost = lost.unwrap_or_else(|error| vec![format!("owner or mode: {error}")]);
            if !lost.is_empty() {
                let (path, lost) = (self.path.display(), lost.join(", "));
                log::tell("audit", &format!("{path} begins anew without its {lost}"));
            }
            self.file = next;
            length = self.file.metadata()?.len();
        }
        let end: &[u8] = if self.is_whole(length)? { b"" } else { b"\n" };
        let text = [end, line].concat();
        let mut written = self.write(&text);
        if written.is_err() {
            self.cut_off(length, &text);
        }
        if length == 0 && written.as_ref().is_err_and(is_full) && use_spare(&self.path).is_ok() {
            self.file = open(&self.path, &Mode::Serve)?;
            written = self.write(&text);
        }
        if written.is_ok() {
            hold(&self.path, &self.file);
        }
        written
    }
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text).and_then(|()| self.file.sync_data())
    }
    /// Opens the file anew if another one, or none, is at its path.
    fn follow(&mut self) -> io::Result<()> {
        let ours = self.file.metadata()?;
        let is_ours = match fs::symlink_metadata(&self.path) {
            Ok(there) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        if is_ours {
            return Ok(());
        }
        match open_or_spare(&self.path, &Mode::Serve) {
            Ok(file) => self.file = file,
            // The renamed file still has a name, under which the line is found.
            Err(error) if ours.nlink() > 0 => {
                log::tell(
                    "audit",
                    &format!("{}: {error}; lines go to the renamed file", self.path.display()),
                );
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
    /// `PATH.1` becomes `PATH.2`, and so on; the oldest goes.
    fn turn_over(&self) -> io::Result<()> {
        let there = fs::symlink_metadata(&self.path);
        if there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            // It was renamed before, and the next file could not be made.
            return Ok(());
        }
        let old = |number: u32| {
            let mut name = self.path.as_os_str().to_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        let shift = |from: &Path, to: &Path| {
            fs::rename(from, to).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                kind => {
                    let told = format!("renaming it to {}: {error}", to.display());
                    Err(io::Error::new(kind, told))
                }
            })
        };
        (1..OLD_FILES).rev().try_for_each(|number| shift(&old(number), &old(number + 1)))?;
        shift(&self.path, &old(1))
    }
    /// Whether the last line has its end.
    fn is_whole(&self, length: u64) -> io::Result<bool> {
        let mut last = [b'\n'];
        if length > 0 {
            self.file.read_exact_at(&mut last, length - 1)?;
        }
        Ok(last == [b'\n'])
    }
    /// Removes what was written of a text at the end of the file. If that fails, the next line ends it.
    fn cut_off(&self, length: u64, text: &[u8]) {
        let mut written = vec![0; text.len() + 1];
        // Nothing else is cut off: another server may have appended to the same file.
        if self
            .file
            .read_at(&mut written, length)
            .is_ok_and(|bytes| bytes > 0 && text.starts_with(&written[..bytes]))
        {
            let _ = self.file.set_len(length);
        }
    }
}

fn open(path: &Path, mode: &Mode) -> io::Result<File> {
    if let Some(trial) = mode.trial().filter(|_| fs::symlink_metadata(path).is_err()) {
        return trial.stand_in(path);
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = mode.open(path, &options)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        File::open(directory)?.sync_all()?;
    }
    Ok(file)
}

/// The file; on a full disk, what was reserved for it.
fn open_or_spare(path: &Path, mode: &Mode) -> io::Result<File> {
    let file = match open(path, mode) {
        Err(error) if is_full(&error) && !mode.is_check() => {
            use_spare(path).and_then(|()| open(path, mode)).map_err(|_| error)?
        }
        opened => opened?,
    };
    if !mode.is_check() {
        hold(path, &file);
    }
    Ok(file)
}

fn spare(path: &Path) -> PathBuf {
    let [spare, _] = Reserve::beside(path).files();
    spare
}

/// Puts the spare file in the place of one without lines.
fn use_spare(path: &Path) -> io::Result<()> {
    fs::rename(spare(path), path)
}

/// Reserves room for the next lines in the file, and in a spare one.
fn hold(path: &Path, file: &File) {
    hold_behind(file, ROOM);
    if let Ok(spare) = crate::reserve::open(&spare(path), true) {
        hold_behind(&spare, ROOM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line that was cut off spoils no other; a file that was renamed or removed is replaced, with the mode of
    /// the first; what cannot be written is refused only as long as it cannot. Method: a half line at the start, a
    /// rename as `logrotate` does it, a removal, a directory that is gone and comes back.
    #[test]
    fn lines_survive_torn_and_replaced_files() {
        let directory =
            std::env::temp_dir().join(format!("iofair-audit-file-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (path, old) = (directory.join("audit"), directory.join("audit.old"));
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        fs::write(&path, "whole\nha").unwrap();
        let mut file = LogFile::open(&path, &Mode::Serve).unwrap();
        file.append(b"a\n").unwrap();
        assert_eq!(text(&path), "whole\nha\na\n");
        // As a disk leaves it that is full in the middle of a line.
        fs::write(&path, "a\nb").unwrap();
        file.cut_off(2, b"bcd\n");
        assert_eq!(text(&path), "a\n");
        fs::write(&path, "a\nbx").unwrap();
        file.cut_off(2, b"bcd\n");
        assert_eq!(text(&path), "a\nbx", "somebody else's line");
        fs::rename(&path, &old).unwrap();
        file.append(b"c\n").unwrap();
        fs::remove_file(&path).unwrap();
        file.append(b"d\n").unwrap();
        assert_eq!((text(&old).as_str(), text(&path).as_str()), ("a\nbx", "d\n"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(file.append(b"e\n").unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir_all(&directory).unwrap();
        file.append(b"f\n").unwrap();
        assert_eq!(text(&path), "f\n");
        fs::remove_dir_all(&directory).unwrap();
    }
}
