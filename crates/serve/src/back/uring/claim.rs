//! Exclusive use of files, directories and block devices, and who uses them otherwise.
//!
//! Everything that a server stores data in is locked before anything of it is read. The lock (flock) belongs to the inode,
//! whatever path led to it.
//!
//! `O_EXCL` on a block device is the kernel's exclusive claim. Mounts, swap areas, RAID, device mapper and other
//! exclusive openers have one each, and a claim on a partition also excludes others from the whole device.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::trial::Mode;

/// A killed server's claim goes with its descriptors: moments to wait for that.
const MOMENTS_MAX: u32 = 40;
const MOMENT: Duration = Duration::from_millis(50);

/// How many moments a server waits for a lock, and how many for that of a process that has ended: the kernel completes what
/// it had in flight first, which takes long on a busy drive.
const LOCK_MOMENTS: u32 = 40;
const LOCK_ENDED_MOMENTS: u32 = 600;

/// Locks a file or directory for this process alone, until it is closed. What a killed server had in flight holds on to its
/// locks until the drive has completed it: so nothing of it can come after what clients write from now on. `false`: the
/// server that a check is about has it.
pub(crate) fn lock(file: &File, mode: &Mode) -> io::Result<bool> {
    if !lock_as(file, libc::LOCK_EX, mode)? {
        return Ok(false);
    }
    lock_bytes(file, mode).map(|()| true)
}

/// Locks all bytes of a file for this process alone, as long as the descriptor is open: QEMU locks some of a disk image, and finds this.
/// Not on network file systems, where it may be the same lock as the other. A check, whose file is open for reading, looks whether it
/// could.
fn lock_bytes(file: &File, mode: &Mode) -> io::Result<()> {
    const SHARED: [u32; 4] = [0x6969, 0xFF53_4D42, 0xFE53_4D42, 0x0102_1997];
    // SAFETY: both structures are plain numbers; the calls fill one and read the other.
    let (done, lock) = unsafe {
        let (mut system, mut lock): (libc::statfs, libc::flock) = mem::zeroed();
        let is_known = libc::fstatfs(file.as_raw_fd(), &raw mut system) == 0;
        // NFS, two of SMB, 9P.
        if !is_known || SHARED.contains(&(system.f_type as u32)) {
            return Ok(());
        }
        lock.l_type = libc::F_WRLCK as libc::c_short;
        let command = if mode.is_check() { libc::F_OFD_GETLK } else { libc::F_OFD_SETLK };
        (libc::fcntl(file.as_raw_fd(), command, &raw mut lock), lock)
    };
    let is_locked = match io::Error::last_os_error().raw_os_error() {
        _ if done == 0 => mode.is_check() && lock.l_type != libc::F_UNLCK as libc::c_short,
        // Directories, files that may only be read, and file systems without locks have none.
        error => matches!(error, Some(libc::EAGAIN | libc::EACCES)),
    };
    match is_locked {
        true => Err(busy("another program has locked it, as QEMU does with disk images")),
        false => Ok(()),
    }
}

/// Locks the directory around a file for servers on files, until the result is dropped: no other server has it as its pool, in
/// which every file is that server's. `None` for devices, which are nobody's.
pub(crate) fn lock_around(path: &Path, mode: &Mode) -> io::Result<Option<File>> {
    let Some(directory) = directory_around(path) else { return Ok(None) };
    lock_as(&directory, libc::LOCK_SH, mode)?;
    Ok(Some(directory))
}

fn directory_around(path: &Path) -> Option<File> {
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if fs::metadata(&whole).is_ok_and(|file| file.file_type().is_block_device()) {
        return None;
    }
    let parent = whole.parent().filter(|parent| !parent.as_os_str().is_empty());
    // One that it may not read is not the pool of a server of this user.
    File::open(parent.unwrap_or(Path::new("."))).ok()
}

/// Locks on the directories around many files: one for each directory, as long as one of its files is open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around(BTreeMap<(u64, u64), Weak<File>>);

impl Around {
    /// [`lock_around`].
    pub(crate) fn lock(&mut self, path: &Path, mode: &Mode) -> io::Result<Option<Arc<File>>> {
        let Some(directory) = directory_around(path) else { return Ok(None) };
        let found = directory.metadata()?;
        let identity = (found.dev(), found.ino());
        if let Some(locked) = self.0.get(&identity).and_then(Weak::upgrade) {
            return Ok(Some(locked));
        }
        lock_as(&directory, libc::LOCK_SH, mode)?;
        let directory = Arc::new(directory);
        self.0.retain(|_, locked| locked.strong_count() > 0);
        self.0.insert(identity, Arc::downgrade(&directory));
        Ok(Some(directory))
    }
}

/// Locks the file of a whole loop device like any file with data. One that begins later in its file, and a partition, may share the
/// file with others.
pub(crate) fn lock_below(device: &File, mode: &Mode) -> io::Result<Option<File>> {
    let path = backing_file(&system_path(device.metadata()?.rdev()));
    // In another container, its path leads to nothing here.
    let Some(Ok(file)) = path.filter(|(_, is_whole)| *is_whole).map(|(path, _)| File::open(path))
    else {
        return Ok(None);
    };
    lock(&file, mode)?;
    Ok(Some(file))
}

/// What the kernel tells of a block device.
fn system_path(number: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", libc::major(number), libc::minor(number)).into()
}

/// The file of a loop device, and whether the device begins where the file does.
fn backing_file(system: &Path) -> Option<(PathBuf, bool)> {
    let told = |name: &str| fs::read_to_string(system.join("loop").join(name)).ok();
    let path = told("backing_file")?;
    let is_whole = told("offset").is_some_and(|offset| offset.trim() == "0");
    Some((path.trim_end_matches('\n').into(), is_whole))
}

/// A file or device that data is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    pub(crate) identity: (u64, u64),
    /// Of a file.
    pub(crate) birth: Option<Birth>,
}

/// Which file it is, whatever its name, also after a restart of the machine. A copy is another file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Birth {
    inode: u64,
    /// When it was made, in nanoseconds since 1970.
    created: u64,
}

impl Birth {
    /// `None`: its file system does not tell, or it is no file.
    fn from_metadata(metadata: &fs::Metadata) -> Option<Self> {
        let created = metadata.created().ok().filter(|_| metadata.is_file())?;
        let created = created.duration_since(UNIX_EPOCH).ok()?.as_nanos().try_into().ok()?;
        Some(Self { inode: metadata.ino(), created })
    }
}

/// What a path leads to, and what is below that: the file of a loop device, the device of a partition, those that a device is
/// mapped to. A loop device that begins where its file does is the file.
pub(crate) fn layers(path: &Path) -> Vec<Layer> {
    fs::metadata(path).map_or_else(|_| Vec::new(), |found| layers_of(&found))
}

/// The same of what is open.
pub(crate) fn layers_of(found: &fs::Metadata) -> Vec<Layer> {
    let mut layers =
        vec![Layer { identity: identity_of(found), birth: Birth::from_metadata(found) }];
    if found.file_type().is_block_device() {
        add_below(found.rdev(), &mut layers);
    }
    layers
}

fn add_below(number: u64, layers: &mut Vec<Layer>) {
    let system = system_path(number);
    if let Some((path, is_whole)) = backing_file(&system)
        && let below = self::layers(&path)
        && !below.is_empty()
    {
        if is_whole {
            layers.pop();
        }
        return layers.extend(below);
    }
    let whole = system.join("partition").exists().then(|| system.join(".."));
    let mapped = fs::read_dir(system.join("slaves")).into_iter().flatten().flatten();
    for below in whole.into_iter().chain(mapped.map(|entry| entry.path())) {
        let number = fs::read_to_string(below.join("dev")).unwrap_or_default();
        let Some((Ok(major), Ok(minor))) =
            number.trim().split_once(':').map(|(major, minor)| (major.parse(), minor.parse()))
        else {
            continue;
        };
        let number = libc::makedev(major, minor);
        layers.push(Layer { identity: (number, 0), birth: None });
        add_below(number, layers);
    }
}

/// What a file or device is: two that are the same are equal here, whatever their paths.
pub(crate) fn identity_of(metadata: &fs::Metadata) -> (u64, u64) {
    match metadata.file_type().is_block_device() {
        true => (metadata.rdev(), 0),
        false => (metadata.dev(), metadata.ino()),
    }
}

/// Refuses a file or device of this identity below a loop device that somebody uses, a file system for example, under any name.
pub(crate) fn refuse_looped(identity: (u64, u64), mode: &Mode) -> io::Result<()> {
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        // In another container, its path leads to nothing here.
        let below = fs::read_to_string(entry.path().join("loop/backing_file"))
            .and_then(|path| fs::metadata(path.trim_end_matches('\n')));
        if !below.is_ok_and(|below| identity_of(&below) == identity) {
            continue;
        }
        let device = Path::new("/dev").join(entry.file_name());
        let claimed = match why_busy(&device) {
            Some(why) => Err(busy(&why)),
            None => claim(&device, mode).map(drop),
        };
        if let Err(error) = claimed
            && error.kind() == io::ErrorKind::ResourceBusy
        {
            let message = format!("{} is a part or all of it: {error}", device.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
    }
    Ok(())
}

fn lock_as(file: &File, how: i32, mode: &Mode) -> io::Result<bool> {
    let locked = match flock(file, how | libc::LOCK_NB) {
        // NFS lets who only reads have no other.
        Err(error) if mode.is_check() && error.raw_os_error() == Some(libc::EBADF) => share(file),
        locked => locked,
    };
    let Err(error) = locked else { return Ok(true) };
    if error.raw_os_error() != Some(libc::EWOULDBLOCK) {
        // Its file system knows no locks.
        return Ok(true);
    }
    if mode.is_own(Holder::find(file).map(|holder| holder.process)) {
        return Ok(false);
    }
    // Only a blocking call would wake at the end of the lock, and it could not be cancelled.
    let (_nobody, never) = mpsc::channel::<()>();
    for moment in 0..LOCK_ENDED_MOMENTS {
        if moment == LOCK_MOMENTS && !Holder::find(file).is_some_and(|holder| holder.has_ended) {
            break;
        }
        let _ = never.recv_timeout(MOMENT);
        match flock(file, how | libc::LOCK_NB) {
            Err(error) if error.raw_os_error() == Some(libc::EWOULDBLOCK) => {}
            locked => return locked.map(|()| true),
        }
    }
    let why = Holder::find(file).map_or_else(|| "another server uses it".into(), Holder::why);
    Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
}

/// Lets other descriptors of this process have the lock, too.
pub(super) fn share(file: &File) -> io::Result<()> {
    flock(file, libc::LOCK_SH | libc::LOCK_NB)
}

fn flock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: a plain system call on a descriptor that is open.
    match unsafe { libc::flock(file.as_raw_fd(), how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Claims a block device, which is free again when the result is dropped.
pub(super) fn claim(path: &Path, mode: &Mode) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_EXCL);
    let open = || mode.open(path, &options);
    let is_busy = |result: &io::Result<File>| {
        result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
    };
    let (_nobody, never) = mpsc::channel::<()>();
    let mut claimed = open();
    for _ in 0..MOMENTS_MAX {
        // Who has mounted it does not leave by waiting.
        if !is_busy(&claimed) || why_busy(path).is_some() {
            break;
        }
        // There is no event for the moment in which the kernel releases it.
        let _ = never.recv_timeout(MOMENT);
        claimed = open();
    }
    match is_busy(&claimed) {
        true => Err(busy(&why_busy(path).unwrap_or_else(|| "another program uses it".into()))),
        false => claimed,
    }
}

fn busy(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("in use: {why}"))
}

/// The process that has locked a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holder {
    process: u32,
    /// Locks outlive a process whose requests the kernel has not completed yet.
    has_ended: bool,
}

impl Holder {
    /// Who it is, where the kernel says so: not on a file system with devices of its own, nor of a process in another
    /// container.
    fn find(file: &File) -> Option<Self> {
        let found = file.metadata().ok()?;
        let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
        let which = format!("{major:02x}:{minor:02x}:{}", found.ino());
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let process = holder_in(&locks, &which)?;
        let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        Some(Self { process, has_ended: has_ended(&state) })
    }
    /// Why somebody else cannot have the file.
    fn why(self) -> String {
        let Self { process, has_ended } = self;
        match has_ended {
            false if process == std::process::id() => {
                "another server uses it, or this one does already".into()
            }
            false => format!("another server uses it: process {process}"),
            true => format!(
                "another server uses it: process {process} has ended, and the kernel has not completed its requests yet"
            ),
        }
    }
}

/// The process with a lock on this file, `major:minor:inode`, in a text such as /proc/locks; lines with an arrow wait.
fn holder_in(locks: &str, which: &str) -> Option<u32> {
    let words = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = words.filter_map(|words| match words[..] {
        [_, "FLOCK", _, _, process, file, ..] if file == which => process.parse().ok(),
        _ => None,
    });
    found.find(|process| *process > 0)
}

/// Whether this text of /proc/PID/stat (empty if there is none) belongs to a process that has ended.
fn has_ended(stat: &str) -> bool {
    // The name before the state may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

/// Whether this is below /dev, where no file is ever made. Shared memory there is an ordinary file system.
pub(crate) fn is_below_dev(path: &Path) -> bool {
    let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
    let path = parent.as_deref().unwrap_or(path);
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// What has a device, or a partition of it.
fn why_busy(path: &Path) -> Option<String> {
    let number = fs::metadata(path).ok()?.rdev();
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    let system = format!("/sys/dev/block/{number}");
    let mut numbers = vec![number];
    for entry in fs::read_dir(&system).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            let number = fs::read_to_string(entry.path().join("dev")).unwrap_or_default();
            numbers.push(number.trim().to_string());
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let [_, _, number, _, place, ..] = words[..]
            && numbers.iter().any(|known| known == number)
        {
            return Some(format!("it, or a partition of it, is mounted at {place}"));
        }
    }
    let holders = numbers.iter().map(|number| format!("/sys/dev/block/{number}/holders"));
    let holders = holders.flat_map(|holders| fs::read_dir(holders).into_iter().flatten().flatten());
    let names: Vec<String> =
        holders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if !names.is_empty() {
        return Some(format!("{} is on top of it", names.join(", ")));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let whole = fs::canonicalize(path).ok()?;
    let swap = swaps.lines().any(|line| line.split(' ').next() == whole.to_str());
    swap.then(|| "it is a swap area".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the process that has a file is named, and one that has ended is told from one that runs. Method: a file that this
    /// process locks, and texts as the kernel writes them. A lock that is refused leaves nothing behind.
    #[test]
    fn holders_are_found() {
        let path = std::env::temp_dir().join(format!("iofair-holder-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        assert_eq!(Holder::find(&file), None);
        file.lock().unwrap();
        let own = Holder { process: std::process::id(), has_ended: false };
        assert_eq!(Holder::find(&file), Some(own));
        drop(file);
        fs::remove_file(&path).unwrap();

        let file = File::create(&path).unwrap();
        file.lock().unwrap();
        let other = File::open(&path).unwrap();
        let error = lock(&other, &Mode::Serve).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == path));
        assert_eq!(open.count(), 2, "nobody waits on");
        drop((file, other));
        fs::remove_file(&path).unwrap();

        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:12 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 fe:00:123 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 9 fe:00:12 0 EOF\n3: FLOCK  ADVISORY  READ 10 fe:00:12 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:00:12"), Some(10));
        assert_eq!(holder_in(locks, "fe:00:1"), None);
        for (stat, ended) in
            [("10 (a) b) S 1 2", false), ("10 (x) Z 1", true), ("10 (x) D 1", false), ("", true)]
        {
            assert_eq!(has_ended(stat), ended, "{stat}");
        }
    }
}
