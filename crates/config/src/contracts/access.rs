//! Who may connect to a Unix socket, as its file says: `mode` and `group`, in `[listen]` for the NBD socket, in
//! `[vhost]` for the disks of virtual machines, in `[control]` for the control socket.
//!
//! ```toml
//! [vhost]
//! group = "kvm"                       # a group of this host, or its number; the mode is 0660 then
//! mode = "0660"                       # 0600 unless written: the server's own user
//! ```
//!
//! Each has its own, because whoever reaches the disk of a virtual machine is asked nothing more, while NBD still has
//! the `clients` of groups. A socket that everybody on the host may use is refused. Sockets that a service manager
//! passes keep what it gave them.

use std::ops::Range;

use crate::{ConfigError, Source, Spanned};

/// The socket's owner, and the owner and its group.
const OWNER: u32 = 0o600;
const GROUP: u32 = 0o660;
/// Bits of a mode without which nobody of the group can connect.
const GROUP_CONNECTS: u32 = 0o020;

/// What is allowed as the group of a socket.
pub(super) const HOST_GROUPS: &str = "a group of this host, as in \"kvm\", or its number";

/// Who may connect to a Unix socket.
#[derive(Clone, Debug)]
pub struct Access {
    /// As a file's mode.
    pub mode: u32,
    /// The group of the file, a name or a number; `None`: the server's own.
    pub group: Option<String>,
    /// Where the group is written.
    pub(super) span: Range<usize>,
}

impl Default for Access {
    fn default() -> Self {
        Self { mode: OWNER, group: None, span: 0..0 }
    }
}

/// Wherever it is written.
impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        (self.mode, &self.group) == (other.mode, &other.group)
    }
}
impl Eq for Access {}

pub(super) fn check(
    source: &Source,
    mode: Option<&Spanned<String>>,
    group: Option<&Spanned<String>>,
) -> Result<Access, ConfigError> {
    let mut access = Access::default();
    if let Some(group) = group {
        let name = group.get_ref();
        let odd =
            |letter: char| letter.is_whitespace() || letter.is_control() || ":/,".contains(letter);
        if name.is_empty() || name.contains(odd) {
            let error = source.error(group.span(), format!("\"{name}\" is not a name of a group"));
            return Err(error.allowed(HOST_GROUPS));
        }
        access = Access { mode: GROUP, group: Some(name.clone()), span: group.span() };
    }
    let Some(written) = mode else { return Ok(access) };
    let refuse = |message: String| {
        let error = source.error(written.span(), message);
        Err(error.allowed("\"0600\" (its owner), \"0660\" (and the group)"))
    };
    let text = written.get_ref();
    access.mode = match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & 0o006 != 0 && mode & !0o777 == 0 => {
            return refuse(format!("with mode \"{text}\" every user of this host could connect"));
        }
        Ok(mode) if mode & !GROUP == 0 && mode & OWNER == OWNER => mode,
        _ => return refuse(format!("\"{text}\" is not a mode of a socket")),
    };
    if access.group.is_some() && access.mode & GROUP_CONNECTS == 0 {
        return refuse(format!("with mode \"{text}\" the group could not connect"));
    }
    Ok(access)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::Contracts;

    fn parse(table: &str, keys: &str) -> Result<Contracts, ConfigError> {
        let text =
            format!("[drive]\nback = 'memory:1GiB'\nstack = 'none-none'\n[{table}]\n{keys}\n");
        Contracts::parse("access.toml", &text)
    }

    /// Goal: each kind of socket has its own mode and group, and what is not written is tight. Method: keys in one
    /// table after the other.
    #[test]
    fn each_kind_has_its_own() {
        for table in ["listen", "vhost", "control"] {
            for (keys, mode, group) in [
                ("", 0o600, None),
                ("mode = '0660'", 0o660, None),
                ("mode = '620'", 0o620, None),
                ("group = 'kvm'", 0o660, Some("kvm")),
                ("group = '36'\nmode = '0620'", 0o620, Some("36")),
            ] {
                let found = parse(table, keys).expect("good");
                let all = [
                    ("listen", found.listen.access),
                    ("vhost", found.vhost),
                    ("control", found.control.access),
                ];
                for (name, access) in all {
                    let expected = if name == table { (mode, group) } else { (0o600, None) };
                    assert_eq!((access.mode, access.group.as_deref()), expected, "{table}: {keys}");
                }
            }
        }
    }

    /// Goal: what would let everybody in, or nobody, is refused in its place with what is allowed. Method: one a
    /// rule, in every table.
    #[test]
    fn wide_and_empty_modes_are_refused() {
        for table in ["listen", "vhost", "control"] {
            for (keys, line, message) in [
                ("mode = '0666'", 5, "every user of this host could connect"),
                ("mode = '0662'", 5, "every user of this host could connect"),
                ("mode = '0777'", 5, "every user"),
                ("mode = '0770'", 5, "not a mode of a socket"),
                ("mode = '0060'", 5, "not a mode of a socket"),
                ("mode = 'rw'", 5, "not a mode of a socket"),
                ("mode = '4660'", 5, "not a mode of a socket"),
                ("group = 'kvm'\nmode = '0600'", 6, "the group could not connect"),
                ("group = ''", 5, "not a name of a group"),
                ("group = 'a b'", 5, "not a name of a group"),
                ("group = 'kvm:users'", 5, "not a name of a group"),
            ] {
                let error = parse(table, keys).expect_err(keys);
                assert_eq!(error.line(), line, "{table}: {keys}\n{error}");
                assert!(error.to_string().contains(message), "{table}: {keys}\n{error}");
                let allowed = if keys.contains("mode") { "\"0660\"" } else { "\"kvm\"" };
                assert!(error.allowed.as_deref().unwrap_or_default().contains(allowed), "{error}");
            }
        }
    }
}
