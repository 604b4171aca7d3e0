//! Access to the machine's files. The kernel's files take one value per write; files of our own are replaced whole.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The files of a machine, by absolute paths.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    ///
    /// As the system reports.
    fn read(&self, path: &str) -> io::Result<String>;
    /// Writes a value to a file of the kernel's with one system call; never creates it.
    ///
    /// # Errors
    ///
    /// As the system reports.
    fn write(&self, path: &str, value: &str) -> io::Result<()>;
    /// Replaces a file by another one atomically and durably, and creates its directory if needed.
    ///
    /// # Errors
    ///
    /// As the system reports.
    fn replace(&self, path: &str, text: &str) -> io::Result<()>;
    /// Removes a file, and its directory if that is empty then. A file that does not exist is removed already.
    ///
    /// # Errors
    ///
    /// As the system reports.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Names in a directory, sorted; none if it cannot be read.
    fn list(&self, path: &str) -> Vec<String>;
    /// Whether there is a directory at this path.
    fn is_directory(&self, path: &str) -> bool;
    /// The path without symbolic links.
    ///
    /// # Errors
    ///
    /// As the system reports.
    fn canonical(&self, path: &str) -> io::Result<String>;
    /// `MAJOR:MINOR` of a block device, or of the device on which a file or directory is.
    ///
    /// # Errors
    ///
    /// As the system reports.
    fn device_number(&self, path: &str) -> io::Result<String>;
}

/// A machine below a directory: `/`, or the tree of a test.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The machine that this program runs on.
    pub fn local() -> Self {
        Self::below(Path::new("/"))
    }
    /// The machine whose files are below `root`.
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }
    /// Locks a file, so that only one command changes the machine; the lock ends with the value. `None`: another one
    /// has it.
    ///
    /// # Errors
    ///
    /// As the system reports.
    pub fn lock(&self, path: &str) -> io::Result<Option<File>> {
        use rustix::fs::{FlockOperation, flock};
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.path(path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
    /// Where a path is in reality.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// The two numbers of a device in the kernel's 64-bit form (makedev(3)).
fn number(device: u64) -> String {
    let major = ((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff);
    let minor = ((device >> 12) & 0xffff_ff00) | (device & 0xff);
    format!("{major}:{minor}")
}

impl Files for Machine {
    fn read(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(self.path(path))
    }
    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.path(path))?;
        // A short write would be a value cut in two; the kernel takes these values whole or not at all.
        match file.write(value.as_bytes())? {
            written if written == value.len() => Ok(()),
            written => Err(io::Error::other(format!("took {written} of {} bytes", value.len()))),
        }
    }
    fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.path(path);
        let directory =
            path.parent().ok_or_else(|| io::Error::other("a file without a directory"))?;
        fs::create_dir_all(directory)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = directory.join(format!(".{name}.new"));
        // Drop-ins and rules may be read by everybody and written by the owner only, whatever the umask.
        let mut file = File::create(&new)?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        let path = self.path(path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Fails if something else is in it, which is fine.
        if let Some(directory) = path.parent() {
            let _ = fs::remove_dir(directory);
        }
        Ok(())
    }
    fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
    fn is_directory(&self, path: &str) -> bool {
        self.path(path).is_dir()
    }
    fn canonical(&self, path: &str) -> io::Result<String> {
        let root = fs::canonicalize(&self.root)?;
        let real = fs::canonicalize(self.path(path))?;
        let below = real.strip_prefix(&root).map_err(io::Error::other)?;
        Ok(format!("/{}", below.display()))
    }
    fn device_number(&self, path: &str) -> io::Result<String> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let real = fs::metadata(self.path(path))?;
        Ok(number(if real.file_type().is_block_device() { real.rdev() } else { real.dev() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: device numbers are read as makedev(3) packs them. Method: small and large numbers.
    #[test]
    fn device_numbers_have_two_parts() {
        assert_eq!(number(0x0801), "8:1");
        assert_eq!(number((0x12 << 12) << 8 | 0x0300 | 0x45), "3:4677");
        assert_eq!(number(259 << 8), "259:0");
    }
}
