//! Owner, mode, access control list, labels and other extended attributes of a file that is replaced by a new one.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

/// Attributes about the contents or kept by the kernel, which a new file has of its own.
const OF_CONTENTS: [&[u8]; 3] = [b"security.ima", b"security.evm", b"security.capability"];
/// Most bytes of all names, and of a value (XATTR_LIST_MAX, XATTR_SIZE_MAX).
const BYTES_MAX: usize = 64 << 10;

/// Gives a new file what an old one has, as far as the server may. Returns what it could not, in words.
pub(crate) fn copy(old: &File, new: &File) -> io::Result<Vec<String>> {
    let (wanted, before) = (old.metadata()?, new.metadata()?);
    if (wanted.uid(), wanted.gid()) != (before.uid(), before.gid()) {
        let _ = fchown(new, Some(wanted.uid()), Some(wanted.gid()))
            .or_else(|_| fchown(new, None, Some(wanted.gid())));
    }
    // Before lists of access, whose mask is a part of the mode.
    new.set_permissions(wanted.permissions())?;
    let old_names = names(old)?;
    for name in names(new)?.iter().filter(|name| !old_names.contains(name)) {
        // Of the directory: a default list of access would give the new file to others.
        // SAFETY: a plain system call on a descriptor that is open, with a string that outlives it.
        unsafe { libc::fremovexattr(new.as_raw_fd(), name.as_ptr()) };
    }
    for name in &old_names {
        let value = value(old, name)?;
        if self::value(new, name).is_ok_and(|has| has == value) {
            continue;
        }
        let (file, bytes) = (new.as_raw_fd(), value.as_ptr().cast());
        // SAFETY: as above; the value is as long as said.
        unsafe { libc::fsetxattr(file, name.as_ptr(), bytes, value.len(), 0) };
    }
    lost(old, new)
}

/// What the new file does not have as the old one, in words.
fn lost(old: &File, new: &File) -> io::Result<Vec<String>> {
    let (wanted, has) = (old.metadata()?, new.metadata()?);
    let mut lost = Vec::new();
    let mut compare = |what: &str, wanted: u32, has: u32| {
        lost.extend((wanted != has).then(|| format!("{what} {wanted}, which is {has} now")));
    };
    compare("owner", wanted.uid(), has.uid());
    compare("group", wanted.gid(), has.gid());
    if wanted.permissions().mode() != has.permissions().mode() {
        lost.push(format!("mode {:o}", wanted.permissions().mode() & 0o7777));
    }
    let (wanted, has) = (values(old)?, values(new)?);
    let differs = |name: &&CString| wanted.get(*name) != has.get(*name);
    let all = wanted.keys().chain(has.keys().filter(|name| !wanted.contains_key(*name)));
    lost.extend(all.filter(differs).map(|name| name.to_string_lossy().into_owned()));
    Ok(lost)
}

fn values(file: &File) -> io::Result<BTreeMap<CString, Vec<u8>>> {
    names(file)?.into_iter().map(|name| Ok((name.clone(), value(file, &name)?))).collect()
}

/// The names of its extended attributes; none if its file system has none.
fn names(file: &File) -> io::Result<Vec<CString>> {
    let mut names = vec![0_u8; BYTES_MAX];
    // SAFETY: a plain system call on a descriptor that is open, into room that is as long as said.
    let length =
        unsafe { libc::flistxattr(file.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    let Ok(length) = usize::try_from(length) else {
        let error = io::Error::last_os_error();
        let has_none = matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS));
        return if has_none { Ok(Vec::new()) } else { Err(error) };
    };
    let all = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let all = all.filter(|name| !OF_CONTENTS.contains(name));
    Ok(all.map(|name| CString::new(name).expect("it was split there")).collect())
}

fn value(file: &File, name: &CStr) -> io::Result<Vec<u8>> {
    let mut value = vec![0_u8; BYTES_MAX];
    let (bytes, room) = (value.as_mut_ptr().cast(), value.len());
    // SAFETY: as above.
    let length = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), bytes, room) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    value.truncate(length);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// An access control list that gives a file to another user: version 2, then tag, permissions and id of each entry.
    fn list() -> Vec<u8> {
        let all = u32::MAX;
        let entries = [(1, 6, all), (2, 4, 1234), (4, 4, all), (0x10, 4, all), (0x20, 0, all)];
        let entry = |(tag, may, id): (u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        [2_u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat()
    }
    fn set(file: &File, name: &CStr, value: &[u8]) {
        let bytes = value.as_ptr().cast();
        // SAFETY: as in `copy`.
        let set =
            unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), bytes, value.len(), 0) };
        assert_eq!(set, 0, "{name:?}: {}", io::Error::last_os_error());
    }

    /// Goal: a new file has mode, list of access and attributes of the old one, none that its directory gave it, and what it does not
    /// have is told. Method: files with one of each, before and after.
    #[test]
    fn a_new_file_has_what_the_old_one_has() {
        let name = format!("iofair-attributes-{}", std::process::id());
        let [old, new] =
            ["old", "new"].map(|end| std::env::temp_dir().join(format!("{name}-{end}")));
        let [from, to] = [&old, &new].map(|path| {
            File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
        });
        from.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        set(&from, c"system.posix_acl_access", &list());
        set(&from, c"user.owner", b"ops");
        set(&to, c"user.default", b"of the directory");
        let told = lost(&from, &to).unwrap();
        let wanted = ["mode 640", "system.posix_acl_access", "user.owner", "user.default"];
        assert_eq!(told, wanted);
        assert!(copy(&from, &to).unwrap().is_empty());
        let found = values(&to).unwrap();
        assert_eq!(found, values(&from).unwrap());
        assert_eq!(found[c"system.posix_acl_access"], list());
        [old, new].into_iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}
