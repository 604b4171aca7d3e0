//! From the name in a contract to a cgroup: units of systemd, machines, containers, and paths.

use crate::{Files, Hierarchy};

/// Directories that are looked at.
const SEEN_MAX: usize = 20_000;
/// Shortest identifier of a container.
const CONTAINER_MIN: usize = 6;

/// Where a group is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Path below the root of the hierarchy.
    pub path: String,
    /// Whether it exists now; a unit that does not run has no cgroup.
    pub exists: bool,
}

/// Why a name is no group: one sentence, and what there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// What is wrong.
    pub message: String,
    /// Names of groups, for a suggestion.
    pub known: Vec<String>,
}

/// The unit of systemd whose cgroup has this path.
pub fn unit(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let kind = name.rsplit_once('.')?.1;
    ["slice", "service", "scope"].contains(&kind).then_some(name)
}

/// The path of a slice: `a-b.slice` is in `a.slice` (systemd.slice(5)).
fn slice(name: &str) -> String {
    let parts: Vec<&str> = name.trim_end_matches(".slice").split('-').collect();
    let levels = (1..=parts.len()).map(|level| format!("{}.slice", parts[..level].join("-")));
    levels.collect::<Vec<_>>().join("/")
}

/// All groups, parents first.
fn all(files: &dyn Files, hierarchy: &Hierarchy) -> Vec<String> {
    let mut found: Vec<String> = vec![String::new()];
    let mut at = 0;
    while at < found.len() && found.len() < SEEN_MAX {
        let here = found[at].clone();
        let directory = hierarchy.path(&here);
        for name in files.list(&directory) {
            if files.is_directory(&format!("{directory}/{name}")) {
                found.push(if here.is_empty() { name } else { format!("{here}/{name}") });
            }
        }
        at += 1;
    }
    found.split_off(1)
}

/// Finds the group of a name.
///
/// # Errors
///
/// [`Unknown`]: there is none, or more than one.
pub fn find(
    files: &dyn Files,
    hierarchy: &Hierarchy,
    name: &str,
    systemd: bool,
) -> Result<Place, Unknown> {
    let exists = |path: String| Place { exists: files.is_directory(&hierarchy.path(&path)), path };
    let direct = match name.ends_with(".slice") && !name.contains('/') {
        true => exists(slice(name)),
        false => exists(name.to_owned()),
    };
    if direct.exists {
        return Ok(direct);
    }
    let groups = all(files, hierarchy);
    let matches: Vec<&String> = match name.split_once(':') {
        Some(("container", id)) if id.len() < CONTAINER_MIN => {
            let message =
                format!("the identifier of a container has {CONTAINER_MIN} characters or more");
            return Err(Unknown { message, known: Vec::new() });
        }
        Some(("container", id)) => outermost(&groups, |name| is_container(name, id)),
        Some(("machine", machine)) => outermost(&groups, |name| is_machine(name, machine)),
        _ if name.contains('/') => Vec::new(),
        _ => groups.iter().filter(|path| last(path) == name.replace("\\x2d", "-")).collect(),
    };
    match matches.as_slice() {
        [path] => Ok(exists((*path).clone())),
        [] => absent(name, systemd, direct, groups),
        several => {
            let paths = several.iter().map(|path| path.as_str()).collect::<Vec<_>>().join(", ");
            let message = format!("\"{name}\" names several groups: {paths}");
            Err(Unknown { message, known: Vec::new() })
        }
    }
}

fn last(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().replace("\\x2d", "-")
}

/// The path that a slice or service gets when it starts; an error if the name is neither.
fn absent(name: &str, systemd: bool, direct: Place, groups: Vec<String>) -> Result<Place, Unknown> {
    if systemd && name.ends_with(".slice") {
        return Ok(direct);
    }
    if systemd && name.ends_with(".service") {
        let path = match name.contains('/') {
            true => name.to_owned(),
            false => format!("system.slice/{name}"),
        };
        return Ok(Place { path, exists: false });
    }
    let message = format!("there is no group \"{name}\" on this machine");
    let names = groups.iter().filter_map(|path| path.rsplit('/').next());
    let mut known: Vec<String> = groups.to_vec();
    known.extend(names.map(str::to_owned));
    Err(Unknown { message, known })
}

/// The groups whose last part matches, without those inside another one.
fn outermost(groups: &[String], matches: impl Fn(&str) -> bool) -> Vec<&String> {
    let all: Vec<&String> = groups.iter().filter(|path| matches(&last(path))).collect();
    let inside = |path: &str| all.iter().any(|other| path.starts_with(&format!("{other}/")));
    all.iter().filter(|path| !inside(path)).copied().collect()
}

/// `docker-ID.scope`, `libpod-ID.scope`, `crio-ID.scope`, `cri-containerd-ID.scope`, or the identifier itself.
fn is_container(name: &str, id: &str) -> bool {
    let bare = name.trim_end_matches(".scope");
    let tail = bare.rsplit_once('-').map_or(bare, |parts| parts.1);
    let hex = tail.len() >= 32 && tail.chars().all(|digit| digit.is_ascii_hexdigit());
    hex && tail.starts_with(id) && !bare.contains("conmon")
}

/// `machine-qemu-N-NAME.scope` of libvirt, `systemd-nspawn@NAME.service`, `machine-NAME.scope`.
fn is_machine(name: &str, machine: &str) -> bool {
    let scope = name.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope"));
    let qemu = scope.and_then(|scope| scope.strip_prefix("qemu-")?.split_once('-'));
    scope == Some(machine)
        || qemu.is_some_and(|(number, name)| number.parse::<u32>().is_ok() && name == machine)
        || name == format!("systemd-nspawn@{machine}.service")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    const ID: &str = "3f4e9d5c0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5";

    /// Goal: every way to name a group finds it. Method: a tree with one of each.
    #[test]
    fn every_kind_of_name_is_found() {
        let tree = Tree::v2();
        for group in [
            "tenants.slice/tenants-alice.slice",
            "machine.slice/machine-qemu\\x2d3\\x2dweb.scope/libvirt",
            &format!("system.slice/docker-{ID}.scope"),
            &format!("user.slice/libpod-conmon-{ID}.scope"),
        ] {
            tree.group(group);
        }
        let kernel = tree.kernel();
        let hierarchy = Hierarchy::find(&kernel).unwrap();
        let pair = |place: Place| (place.path, place.exists);
        let found = |name: &str| find(&kernel, &hierarchy, name, true).map(pair);
        let yes = |path: &str| Ok((path.to_owned(), true));
        assert_eq!(found("db.service"), yes("system.slice/db.service"));
        assert_eq!(found("system.slice/db.service"), yes("system.slice/db.service"));
        assert_eq!(found("tenants-alice.slice"), yes("tenants.slice/tenants-alice.slice"));
        assert_eq!(found("machine:web"), yes("machine.slice/machine-qemu\\x2d3\\x2dweb.scope"));
        assert_eq!(
            found(&format!("container:{}", &ID[..12])),
            yes(&format!("system.slice/docker-{ID}.scope"))
        );
        assert_eq!(found("later.service"), Ok(("system.slice/later.service".into(), false)));
        assert_eq!(found("a-b.slice"), Ok(("a.slice/a-b.slice".into(), false)));
    }

    /// Goal: unknown and ambiguous names are refused. Method: a misspelt unit, a name at two places, a short identifier.
    #[test]
    fn unknown_names_are_refused() {
        let tree = Tree::v2();
        tree.group("a/twice");
        tree.group("b/twice");
        let kernel = tree.kernel();
        let hierarchy = Hierarchy::find(&kernel).unwrap();
        let refused = |name: &str| find(&kernel, &hierarchy, name, false).unwrap_err();
        assert!(refused("db.servise").known.contains(&"db.service".to_owned()));
        assert!(refused("twice").message.contains("a/twice, b/twice"));
        assert!(refused("container:3f").message.contains("6 characters"));
        assert!(refused("later.service").message.contains("no group"));
    }
}
