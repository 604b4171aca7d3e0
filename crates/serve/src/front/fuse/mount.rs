//! The mount: created at the start, removed at the end.
//!
//! A killed server leaves a mount that returns "not connected"; the next server removes it. A mount that is still in
//! use at the end (a loop device, an open file) is disconnected from the server and removed from the tree, so no
//! process waits for a server that has ended. If somebody else has unmounted it, that is told, and the next change or reload
//! mounts it again.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, Session};
use iofair_config::contracts::{Contracts, Volume};

use super::place::{self, MountPlace};
use super::{Files, Volumes};
use crate::error::ServeError;
use crate::front::life::{FrontEnd, Reload};
use crate::log;
use crate::reactor::handle::ReactorHandle;
use crate::trial::Mode;

/// Threads that read the kernel's requests and copy what is written: one alone would let a client with long requests hold
/// up all others.
const THREADS: usize = 4;
/// Mode of the directory, if it is made.
const DIRECTORY_MODE: u32 = 0o700;

/// Volumes as files, mounted.
#[derive(Debug)]
struct Mounted {
    files: Files,
    path: PathBuf,
    /// What the mount table has of it; nothing if that is not known.
    place: Option<MountPlace>,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts a directory with these volumes; every file that somebody opens becomes an endpoint of the reactor.
    fn new(path: &Path, volumes: &[Volume], line: ReactorHandle) -> Result<Self, ServeError> {
        let what = || ServeError::system(format!("mounting {}", path.display()));
        clear(path).map_err(what())?;
        let files = Files::new(volumes);
        let volumes = Volumes::new(files.clone(), Some(line));
        let lives = Arc::downgrade(&volumes.lives);
        let session = Session::new(volumes, path, &config()).and_then(Session::spawn);
        let session = Some(session.map_err(what())?);
        let place = MountPlace::now(path, lives).ok();
        Ok(Self { files, path: path.to_path_buf(), place, session })
    }
    fn is_gone(&self) -> bool {
        self.place.as_ref().is_some_and(MountPlace::is_gone)
    }
}

/// Sessions of mounts that are gone. Each lives as long as a program has a file open, and what is mounted at its path is not its own.
#[derive(Debug, Default)]
struct Forgotten(Vec<BackgroundSession>);

impl Forgotten {
    /// Closes those that have ended.
    fn close_ended(&mut self) {
        self.0.extract_if(.., |session| session.guard.is_finished()).for_each(close);
    }
}

impl Drop for Forgotten {
    fn drop(&mut self) {
        self.close_ended();
        // Those that go on are not closed, for the same reason.
        self.0.drain(..).for_each(std::mem::forget);
    }
}

/// The mounted directory, if the contracts ask for one. It stays until it is dropped: calls get their replies.
#[derive(Debug, Default)]
pub(crate) struct Mount {
    mounted: Option<Mounted>,
    forgotten: Forgotten,
}

impl FrontEnd for Mount {
    fn validate(&self, reload: &Reload<'_>, _: bool) -> Result<(), ServeError> {
        match reload.before.mount == reload.after.mount {
            true => Ok(()),
            false => Err(ServeError::Fixed("where the server mounts its volumes".into())),
        }
    }
    fn check(&self, contracts: &Contracts, mode: &Mode) -> Result<(), ServeError> {
        let Some(path) = &contracts.mount else { return Ok(()) };
        try_mount(path, mode).map_err(ServeError::system(format!("mounting {}", path.display())))
    }
    fn start(&mut self, contracts: &Contracts, line: &ReactorHandle) -> Result<(), ServeError> {
        let Some(path) = &contracts.mount else { return Ok(()) };
        self.forgotten.close_ended();
        let is_gone = match &mut self.mounted {
            Some(mounted) if mounted.is_gone() => true,
            Some(_) => return Ok(()),
            None => false,
        };
        self.forgotten.0.extend(self.mounted.as_mut().and_then(|mounted| mounted.session.take()));
        match Mounted::new(path, &contracts.volumes, line.clone()) {
            Ok(mounted) => self.mounted = Some(mounted),
            // A change must not fail for what it does not change.
            Err(error) if is_gone => {
                log::tell("server", &format!("{error}; the next change or reload tries again"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
    fn mount(&self) -> Option<MountPlace> {
        self.mounted.as_ref().and_then(|mounted| mounted.place.clone())
    }
    fn reconcile(&mut self, reload: &Reload<'_>) {
        self.mounted.iter().for_each(|mounted| mounted.files.update(&reload.after.volumes));
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("iofair".into()),
        MountOption::Subtype("iofair".into()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
    ];
    (config.n_threads, config.clone_fd) = (Some(THREADS), true);
    config
}

/// Mounts where nobody else sees it: in a mount namespace of its own, which goes with its thread.
fn try_mount(path: &Path, mode: &Mode) -> io::Result<()> {
    let place = match fs::metadata(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let trial = mode.trial().expect("only a check tries");
            trial.make_directory(path, true)?;
            trial.directory(path)
        }
        Err(error) => return Err(error),
        Ok(_) if is_ours(path)? && mode.is_own(None) => return Ok(()),
        Ok(_) if is_ours(path)? => return Err(taken()),
        Ok(_) => path.to_path_buf(),
    };
    apart(move |is_apart| match is_apart {
        true => Session::new(Volumes::new(Files::new(&[]), None), &place, &config()).map(drop),
        // A helper with the right mounts, and says what is wrong when it does.
        false => OpenOptions::new().read(true).open("/dev/fuse").map(drop).or_else(helped),
    })?
}

/// Runs this in a mount namespace of its own, which goes with its thread; `false`: there is no right to one.
fn apart<T: Send + 'static>(run: impl FnOnce(bool) -> T + Send + 'static) -> io::Result<T> {
    let thread = std::thread::Builder::new().name("mounting".into()).spawn(|| {
        // SAFETY: plain system calls, which change what this thread alone sees, with strings that outlive them.
        run(unsafe {
            let private = libc::MS_REC | libc::MS_PRIVATE;
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), private, ptr::null()) == 0
        })
    })?;
    thread.join().map_err(|_| io::Error::other("it panicked"))
}

/// Who may not open the device has a helper that may.
fn helped(error: io::Error) -> io::Result<()> {
    let there = Command::new("fusermount3").arg("--version").output().is_ok();
    let may = error.kind() == io::ErrorKind::PermissionDenied && there;
    if may { Ok(()) } else { Err(error) }
}

fn taken() -> io::Error {
    let message = "another server has mounted its volumes there";
    io::Error::new(io::ErrorKind::AddrInUse, message)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_gone() {
            drop(Forgotten(self.session.take().into_iter().collect()));
            // A connection that was aborted leaves a dead mount.
            if is_dead(&self.path) {
                let _ = unmount_dead(&self.path);
            }
        }
        let Some(session) = self.session.take() else { return };
        if let Some(place) = self.place.as_ref().filter(|place| !place.is_on_top()) {
            // What is mounted over it is not ours.
            let _ = place.abort();
            drop(Forgotten(vec![session]));
            return;
        }
        let busy = match unmount(&self.path, 0) {
            Ok(()) => false,
            // Not ours to unmount by ourselves; the session knows a helper.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                let _ = session.umount_and_join();
                return;
            }
            Err(_) => true,
        };
        if busy {
            // It says that it is busy, but the connection is cut, and who uses it learns that.
            let _ = unmount(&self.path, libc::MNT_FORCE);
            let _ = unmount(&self.path, libc::MNT_DETACH);
        }
        close(session);
    }
}

/// Waits for the threads of a session without a connection. The library then unmounts what is at its path, whosever it is, so nobody may
/// see it; without the right to hide it, descriptors stay open.
fn close(session: BackgroundSession) {
    let session = ManuallyDrop::new(session);
    let _ = apart(move |is_apart| {
        if is_apart {
            let _ = ManuallyDrop::into_inner(session).join();
        }
    });
}

fn unmount(path: &Path, flags: i32) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a plain system call with a path that outlives it.
    match unsafe { libc::umount2(path.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether what is mounted there has no server.
fn is_dead(path: &Path) -> bool {
    fs::metadata(path).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}

fn unmount_dead(path: &Path) -> io::Result<()> {
    unmount(path, libc::MNT_DETACH).or_else(|error| {
        let helped = Command::new("fusermount3").args(["-u", "-z"]).arg(path).status();
        if helped.is_ok_and(|status| status.success()) { Ok(()) } else { Err(error) }
    })
}

/// Makes the directory, or clears away what a dead server left mounted there.
fn clear(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Err(_) if is_dead(path) => unmount_dead(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
        }
        Err(error) => Err(error),
        Ok(_) if is_ours(path)? => Err(taken()),
        Ok(_) => Ok(()),
    }
}

/// Whether a running server has mounted its volumes there. What is below another file system is nobody's.
fn is_ours(path: &Path) -> io::Result<bool> {
    place::on_top(path).map(|line| place::is_ours(&line))
}
