//! Confines calls of the control API: they can only make the server open or create files below directories that the
//! contract file lists, and no call can change these lists: `paths` in `[drive]` for volumes with a `path`; `paths`
//! in `[vhost]` and the directories of the server's own sockets for the sockets of virtual machine disks.
//!
//! What counts is the location to which a path resolves: links are followed, and `..` has been refused by the check
//! of the file. A link out of a listed directory counts as its target, except that a listed directory of device names
//! (`/dev/disk/by-id`, which only root can write) may lead to block devices. The server's own files are never
//! volumes, whatever their names: nor are those that it makes beside them, and files of the pool directory. Only root
//! and the server may be able to write to listed directories: anyone else who can create links there can bypass the
//! check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use iofair_config::ConfigError;
use iofair_config::contracts::{Contracts, Volume};

use crate::back::uring::claim::{identity_of, layers};
use crate::error::ServeError;
use crate::layout::sidecar;
use crate::reserve::Reserve;
use crate::socket::LINK;

const DEVICES: &str = "/dev";

/// Whether every volume may have the path that it names; those that these contracts have already may.
pub(crate) fn check(contracts: &Contracts, before: Option<&Contracts>) -> Result<(), ServeError> {
    let before = before.filter(|before| before.drive.paths == contracts.drive.paths);
    let before = before.into_iter().flat_map(|before| &before.volumes);
    let known: BTreeSet<_> = before.map(|old| (&old.name, old.path.as_ref())).collect();
    let is_new =
        |new: &&Volume| new.path.is_some() && !known.contains(&(&new.name, new.path.as_ref()));
    let mut new = contracts.volumes.iter().filter(is_new).peekable();
    if new.peek().is_none() {
        return Ok(());
    }
    let own = OwnFiles::find(contracts);
    for volume in new {
        let Some(path) = &volume.path else { continue };
        let refuse = |message: String| {
            let message = format!("{}: {message}", path.display());
            ServeError::from(contracts.path_error(volume, message))
        };
        let real = resolved(path).map_err(|error| refuse(error.to_string()))?;
        if !contracts.drive.paths.iter().any(|listed| is_below(path, &real, listed)) {
            let real = real.display();
            let message = format!("it leads to {real}, outside the directories in `paths`");
            return Err(refuse(message));
        }
        if let Some(own) = own.same(&real) {
            return Err(refuse(format!("it is the server's own: {}", own.display())));
        }
        if own.has_in_pool(contracts, &real) {
            let message =
                "it is a file of the pool directory, which may belong to a removed volume";
            return Err(refuse(message.into()));
        }
    }
    Ok(())
}

/// Refuses an audit log in the place of data or of another file of the server's, which its lines would destroy, and a mount over them.
pub(crate) fn check_own(contracts: &Contracts) -> Result<(), ServeError> {
    let mut others = contracts.clone();
    let audit = others.control.audit.take();
    let own = OwnFiles::find(&others);
    let refuse = |path: &Path, why: &str, other: &Path| {
        let message = format!("{} {why} {}", path.display(), other.display());
        Err(ServeError::from(ConfigError::whole_file(contracts.path(), message)))
    };
    if let (Some(mount), Some(real)) = (&contracts.mount, &own.mount)
        && let Some((_, hidden)) = own.paths.iter().find(|(path, _)| path.starts_with(real))
    {
        return refuse(mount, "cannot be the mount of volumes: it would hide", hidden);
    }
    let Some(audit) = audit else { return Ok(()) };
    for file in with_notes(&audit) {
        let Ok(real) = resolved(&file) else { continue };
        let volume = || {
            let mut paths = contracts.volumes.iter().filter_map(|volume| volume.path.as_deref());
            paths.find(|path| identity(path).is_some_and(|data| Some(data) == identity(&real)))
        };
        if let Some(other) = own.same(&real).or_else(volume) {
            return refuse(&audit, "cannot be the audit log, whose files would replace", other);
        }
        if own.has_in_pool(contracts, &real) {
            return refuse(
                &audit,
                "cannot be the audit log, which would be in the pool directory:",
                &file,
            );
        }
    }
    Ok(())
}

/// Whether a change that a caller asks for may create its sockets.
pub(crate) fn check_change(before: &Contracts, after: &Contracts) -> Result<(), ServeError> {
    let known = |new: &&Volume| {
        before.volumes.iter().any(|old| old.name == new.name && old.vhost == new.vhost)
    };
    for volume in after.volumes.iter().filter(|volume| !known(volume)) {
        let Some(path) = &volume.vhost else { continue };
        let real = resolved(path).map_err(ServeError::system(path.display().to_string()))?;
        let is = |own: &PathBuf| fs::canonicalize(own).is_ok_and(|own| real.parent() == Some(&own));
        let below = |listed: &PathBuf| fs::canonicalize(listed).is_ok_and(|l| real.starts_with(l));
        let plain = !path.components().any(|part| part == Component::ParentDir);
        let inside =
            socket_directories(after).iter().any(is) || after.vhost_paths.iter().any(below);
        if !plain || !inside || in_pool(after, &real) {
            let message = format!(
                "the socket {} is outside the server's directories; allowed: those of its other sockets, \
                 and `paths` in [vhost]",
                path.display()
            );
            return Err(ServeError::volume(&volume.name, message));
        }
    }
    Ok(())
}

/// Whether it is in the pool directory, where every name may be a volume's.
fn in_pool(contracts: &Contracts, real: &Path) -> bool {
    let pool = contracts.drive.back.directory().and_then(|pool| fs::canonicalize(pool).ok());
    pool.is_some_and(|pool| real.starts_with(pool))
}

/// Where callers may have sockets made, not counting what lies deeper.
fn socket_directories(contracts: &Contracts) -> Vec<PathBuf> {
    let own = contracts.listen.unix.iter().chain(&contracts.control.unix);
    let directory = |path: &PathBuf| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let runtime = std::env::var("RUNTIME_DIRECTORY").unwrap_or_default();
    let runtime = runtime.split(':').filter(|path| !path.is_empty()).map(PathBuf::from);
    own.map(directory).chain(runtime).collect()
}

/// What a path leads to; its last part may be missing still.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    if fs::symlink_metadata(path).is_ok() {
        return Err(io::Error::other("a link to nothing"));
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("no name of a file"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    Ok(fs::canonicalize(parent)?.join(name))
}

fn is_below(path: &Path, real: &Path, listed: &Path) -> bool {
    let Ok(listed) = fs::canonicalize(listed) else { return false };
    if real.starts_with(&listed) {
        return true;
    }
    let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
    let is_device = || fs::metadata(real).is_ok_and(|file| file.file_type().is_block_device());
    listed.starts_with(DEVICES)
        && real.starts_with(DEVICES)
        && parent.is_some_and(|parent| parent.starts_with(&listed))
        && is_device()
}

/// Files that the server reads or writes for itself, also under other names.
struct OwnFiles {
    /// By where they are.
    paths: BTreeMap<PathBuf, PathBuf>,
    /// By what they are.
    identities: BTreeMap<Identity, PathBuf>,
    /// Files in the pool directory.
    pool: BTreeSet<Identity>,
    /// Where the server mounts its volumes, and the device that is mounted there.
    mount: Option<PathBuf>,
    mounted: Option<u64>,
}

type Identity = (u64, u64);

impl OwnFiles {
    fn find(contracts: &Contracts) -> Self {
        let Contracts { listen, control, metrics, volumes, .. } = contracts;
        let tls = listen.tls.iter().chain(control.tls.iter().map(|control| &control.files));
        let tls = tls.flat_map(|tls| [&tls.certificate, &tls.key].into_iter().chain(&tls.clients));
        let sockets = listen.unix.iter().chain(&control.unix).chain(&metrics.unix);
        let sockets = sockets.chain(volumes.iter().filter_map(|volume| volume.vhost.as_ref()));
        let contract_file = PathBuf::from(contracts.path());
        // Its notes may be beside a link to it, too.
        let target = fs::canonicalize(&contract_file).ok();
        let back = &contracts.drive.back;
        let (data, pool) = (back.path().map(Path::to_path_buf), back.directory());
        let places = data.as_ref().filter(|_| pool.is_none()).map(|data| sidecar(data));
        let files = tls.chain(sockets).chain(&control.audit).chain(&target);
        let files = files.chain(&data).chain(&places);
        let files = files.chain([&contract_file]).flat_map(|file| with_notes(file));
        let entries = pool.and_then(|pool| fs::read_dir(pool).ok()).into_iter().flatten().flatten();
        let mut this = Self {
            paths: BTreeMap::new(),
            identities: BTreeMap::new(),
            pool: entries.filter_map(|file| identity(&file.path())).collect(),
            mount: contracts.mount.as_ref().and_then(|mount| resolved(mount).ok()),
            mounted: None,
        };
        this.mounted = this.mount.as_deref().and_then(mounted);
        for file in files {
            let Ok(real) = resolved(&file) else { continue };
            if let Some(identity) = identity(&real) {
                this.identities.insert(identity, file.clone());
            }
            this.paths.insert(real, file);
        }
        this
    }
    /// Whether it is a file of the pool directory, or in it.
    fn has_in_pool(&self, contracts: &Contracts, real: &Path) -> bool {
        in_pool(contracts, real)
            || layers(real).iter().any(|layer| self.pool.contains(&layer.identity))
    }
    /// The one that it is.
    fn same(&self, real: &Path) -> Option<&Path> {
        let layers = layers(real);
        let by_layer = || layers.iter().find_map(|layer| self.identities.get(&layer.identity));
        let found = self.paths.get(real).or_else(by_layer);
        let is_volume = |mount: &&PathBuf| {
            let mut layers = layers.iter();
            real.starts_with(mount) || layers.any(|layer| Some(layer.identity.0) == self.mounted)
        };
        found.or(self.mount.as_ref().filter(is_volume)).map(|own| &**own)
    }
}

/// The device that is mounted at a path, if one is.
fn mounted(mount: &Path) -> Option<u64> {
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    let above = mount.parent().and_then(device);
    device(mount).filter(|device| Some(*device) != above)
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|file| identity_of(&file))
}

/// A file, and those that the server makes beside it: notes, locks, new versions, earlier ones, room for them.
fn with_notes(file: &Path) -> Vec<PathBuf> {
    const ENDS: [&str; 10] =
        ["", ".iofair", ".iofair.new", ".new", ".lock", LINK, ".1", ".2", ".3", ".4"];
    let with = |end: &&str| {
        let mut name = file.file_name().unwrap_or_default().to_os_string();
        name.push(end);
        file.with_file_name(name)
    };
    ENDS.iter().map(with).chain(Reserve::beside(file).files()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Scene(PathBuf);

    impl Scene {
        fn new(test: &str) -> Self {
            let name = format!("iofair-confine-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            for name in ["listed/mnt", "other", "pool", "run"] {
                fs::create_dir_all(path.join(name)).unwrap();
            }
            Self(fs::canonicalize(path).unwrap())
        }
        fn contracts(&self, path: &str, vhost: &str) -> Contracts {
            let here = self.0.display();
            let text = format!(
                "[drive]\nback = 'directory:{here}/pool'\nstack = 'none-none'\n\
                 paths = ['{here}/listed', '/dev/disk', '{here}/missing', '{here}/pool']\n\
                 [control]\nunix = '{here}/run/control.sock'\naudit = '{here}/listed/audit'\n\
                 [fuse]\nmount = '{here}/listed/mnt'\n\
                 [[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n\
                 path = '{here}/{path}'\nvhost = '{here}/{vhost}'\n"
            );
            Contracts::parse(&format!("{here}/listed/contracts.toml"), &text).unwrap()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// Goal: a volume's path leads nowhere but below the listed directories, and never to a file of the server's own.
    /// Method: files that are there and that are not, links in and out, directories that are links, hard links, each kind of note.
    #[test]
    fn paths_lead_below_listed_directories() {
        let scene = Scene::new("paths");
        let at = |name: &str| scene.0.join(name);
        for name in ["listed/file", "other/secret", "listed/audit", "listed/contracts.toml"] {
            fs::write(at(name), "").unwrap();
        }
        symlink(at("other/secret"), at("listed/out")).unwrap();
        symlink(at("listed/file"), at("listed/in")).unwrap();
        symlink(at("other"), at("listed/directory")).unwrap();
        symlink(at("other/nothing"), at("listed/dangling")).unwrap();
        fs::hard_link(at("listed/audit"), at("listed/log")).unwrap();
        for name in ["pool/kept.img", "pool.iofair", "listed/contracts.toml.iofair"] {
            fs::write(at(name), "").unwrap();
        }
        fs::hard_link(at("pool/kept.img"), at("listed/twin")).unwrap();
        fs::hard_link(at("pool.iofair"), at("listed/note")).unwrap();
        let check = |path: &str| check(&scene.contracts(path, "listed/v.sock"), None);
        for good in ["listed/file", "listed/new", "listed/in"] {
            check(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        for (bad, told) in [
            ("listed/out", "outside the directories"),
            ("listed/directory/secret", "outside the directories"),
            ("listed/directory/new", "outside the directories"),
            ("listed/dangling", "a link to nothing"),
            ("listed/audit", "the server's own"),
            ("listed/log", "the server's own"),
            ("listed/contracts.toml", "the server's own"),
            ("listed/contracts.toml.iofair", "the server's own"),
            ("listed/contracts.toml.new", "the server's own"),
            ("listed/.contracts.toml.room1", "the server's own"),
            ("listed/audit.1", "the server's own"),
            ("listed/.audit.room1", "the server's own"),
            ("listed/note", "the server's own"),
            ("listed/v.sock.lock", "the server's own"),
            ("listed/v.sock.link", "the server's own"),
            ("listed/mnt/v", "the server's own"),
            ("listed/twin", "the pool directory"),
            ("pool/w.img", "the pool directory"),
            ("pool/.iofair.json", "the pool directory"),
        ] {
            let error = check(bad).expect_err(bad).to_string();
            assert!(error.contains(told), "{bad}: {error}");
        }
    }

    /// Goal: the audit log is no other file of the server's and no data, and nothing is mounted over them, whatever their names.
    /// Method: one of each, links, hard links, files that its rotation makes.
    #[test]
    fn own_files_have_one_use() {
        let scene = Scene::new("own");
        let here = scene.0.display();
        for name in ["pool/v.img", "contracts.toml", "key", "old.1", "image", "listed/data"] {
            fs::write(scene.0.join(name), "").unwrap();
        }
        fs::hard_link(scene.0.join("pool/v.img"), scene.0.join("twin")).unwrap();
        fs::hard_link(scene.0.join("contracts.toml"), scene.0.join("same")).unwrap();
        symlink(scene.0.join("pool"), scene.0.join("linked")).unwrap();
        let check = |back: &str, audit: &str, mount: &str| {
            let text = format!(
                "[drive]\nback = '{back}'\nstack = 'none-none'\npaths = ['{here}/listed']\n\
                 [control]\nunix = '{here}/run/control.sock'\naudit = '{here}/{audit}'\n[fuse]\nmount = '{here}/{mount}'\n\
                 [[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n"
            );
            let more = format!("path = '{here}/listed/data'\n");
            let text = if back.starts_with("directory") { text + &more } else { text };
            check_own(&Contracts::parse(&format!("{here}/contracts.toml"), &text).unwrap())
        };
        let directory = format!("directory:{here}/pool");
        check(&directory, "audit", "listed/mnt").unwrap();
        for audit in [
            "pool/v.img",
            "pool/new",
            "linked/v.img",
            "twin",
            "contracts.toml",
            "same",
            "listed/data",
            "run/control.sock",
        ] {
            let error = check(&directory, audit, "listed/mnt").expect_err(audit).to_string();
            assert!(error.contains("cannot be the audit log"), "{audit}: {error}");
        }
        for mount in ["pool", "linked", "run", ""] {
            let error = check(&directory, "audit", mount).expect_err(mount).to_string();
            assert!(error.contains("cannot be the mount"), "{mount}: {error}");
        }
        let (file, drive) =
            (format!("file:{here}/image"), format!("emulated:nvme-2021@{here}/image"));
        for back in [&file, &drive] {
            check(back, "audit", "listed/mnt").unwrap();
            assert!(
                check(back, "image", "listed/mnt").is_err()
                    && check(back, "image.volumes", "listed/mnt").is_err()
            );
        }
        let turned = format!("file:{here}/old.1");
        assert!(check(&turned, "old", "listed/mnt").is_err(), "the log is renamed to this");
    }

    /// Goal: callers have sockets made in the server's own directories only; what the file had before stays. Method: one
    /// of each, and a link out.
    #[test]
    fn sockets_are_made_in_the_servers_directories() {
        let scene = Scene::new("sockets");
        symlink(scene.0.join("other"), scene.0.join("run/out")).unwrap();
        let before = scene.contracts("listed/new", "other/old.sock");
        let change = |vhost: &str| check_change(&before, &scene.contracts("listed/new", vhost));
        change("run/v.sock").unwrap();
        change("other/old.sock").unwrap();
        for bad in ["other/new.sock", "run/out/v.sock", "listed/contracts.toml.new"] {
            let error = change(bad).expect_err(bad).to_string();
            assert!(error.contains("outside the server's directories"), "{error}");
        }
    }
}
