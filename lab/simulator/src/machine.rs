//! Machines: the files under `profiles/machines`, which are part of the program.
//!
//! A file has all that an experiment needs besides its workload: the drive, the kernel, the file system, what its kernel's
//! policies do otherwise than the latest, and the numbers of the host, each with its source. `base` names another machine
//! whose numbers it has where it has none; `NAME:VARIANT` replaces some.

use std::collections::BTreeMap;

use iofair_config::units::Scalar;
use iofair_config::{ConfigError, Source, Spanned};
use iofair_drive::fitted::{self, FittedOn};
use iofair_drive::profile::{self, ProfileError, Sourced};
use serde::Deserialize;
use toml::{Table, Value};

use crate::host_file::HostFile;

/// Policy, parameter, value.
pub type ParameterFile = BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, Spanned<Scalar>>>;

/// The machines there are. The first one with a drive is the one on which the drive is by default.
const EMBEDDED: [(&str, &str); 7] = [
    ("plextor-2018", include_str!("../machines/plextor-2018.toml")),
    ("plextor-2019", include_str!("../machines/plextor-2019.toml")),
    ("970-pro-2019", include_str!("../machines/970-pro-2019.toml")),
    ("hitachi-2019", include_str!("../machines/hitachi-2019.toml")),
    ("nvme-2015", include_str!("../machines/nvme-2015.toml")),
    ("nvme-2021", include_str!("../machines/nvme-2021.toml")),
    ("sata-2009", include_str!("../machines/sata-2009.toml")),
];
/// Most machines that are based on one another: a guard against a circle.
const BASES_MAX: usize = 4;

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name, variant included.
    pub name: String,
    /// One line.
    pub title: String,
    /// Where the source describes it.
    pub source: String,
    /// Its drive.
    pub drive: String,
    /// Its kernel.
    pub kernel: String,
    /// Its file system.
    pub file_system: String,
    /// Requests that scheduler and drive may have together.
    pub tags: Option<u32>,
    /// The numbers of the host with their sources, in the order of their keys.
    pub numbers: Vec<Sourced>,
    /// Rows that chose some of them: the lists of its own file and of those that it is based on, with the files' paths.
    pub fitted_on: Vec<(String, Vec<FittedOn>)>,
    /// The same as keys of an experiment.
    pub host: HostFile,
    /// What its policies do.
    pub policy: ParameterFile,
    /// Its file, for errors in the policies' parameters.
    pub file: Source,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    title: String,
    source: String,
    drive: String,
    kernel: String,
    file_system: String,
    tags: Option<u32>,
    #[serde(default)]
    policy: ParameterFile,
    host: Table,
}

/// What is read of each file by itself.
#[derive(Deserialize)]
struct Own {
    base: Option<String>,
    #[serde(default)]
    fitted_on: Vec<FittedOn>,
}

/// The name and title of each machine, followed by its variants.
pub fn list() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, _) in EMBEDDED {
        let table = table(name, BASES_MAX).expect("a test reads all of them");
        let text = |table: &Table, key: &str| {
            table.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        all.push((name.to_owned(), text(&table, "title")));
        for (variant, changes) in
            table.get("variant").and_then(Value::as_table).into_iter().flatten()
        {
            let about = changes.as_table().map(|table| text(table, "about")).unwrap_or_default();
            all.push((format!("{name}:{variant}"), about));
        }
    }
    all
}

/// The machine on which the published rows of a drive were measured; the first one for other drives.
pub fn of_drive_or_any(drive: &str) -> &'static str {
    of_drive(base(drive)).unwrap_or(EMBEDDED[0].0)
}

/// The machine on which a drive is by default.
fn of_drive(drive: &str) -> Option<&'static str> {
    let is_its = |name: &str| {
        let table = table(name, BASES_MAX).expect("a test reads all of them");
        table.get("drive").and_then(Value::as_str) == Some(drive)
    };
    EMBEDDED.iter().map(|(name, _)| *name).find(|name| is_its(name))
}

/// Says at this place what the error of a drive's profile says, with what is allowed and the nearest name.
#[must_use]
pub fn drive_error(mut at: ConfigError, error: &ProfileError) -> ConfigError {
    let (written, known) = match error {
        ProfileError::Unknown { name, available } => {
            at.message = format!("there is no drive profile \"{name}\"");
            at = at.allowed(format!("{}, or the path of a .toml file", available.join(", ")));
            (name, available)
        }
        ProfileError::UnknownVariant { profile, variant, available } => {
            at.message = format!("drive profile \"{profile}\" has no variant \"{variant}\"");
            at = at.allowed(available.join(", "));
            (variant, available)
        }
        _ => {
            at.message = error.to_string();
            return at;
        }
    };
    at.near(written, known.iter().map(String::as_str))
}

/// The name of a drive or machine without variant and changes.
pub fn base(name: &str) -> &str {
    name.split([':', '?']).next().unwrap_or(name)
}

fn table(name: &str, bases: usize) -> Option<Table> {
    let (_, text) = EMBEDDED.iter().find(|(known, _)| *known == name)?;
    let mut own: Table = text.parse().expect("a test reads all of them");
    own.remove("fitted_on");
    let Some(Value::String(base)) = own.remove("base") else { return Some(own) };
    assert!(bases > 0, "{name} is based on too many others");
    let mut merged = table(&base, bases - 1).expect("a test reads all of them");
    profile::overlay(&mut merged, own);
    Some(merged)
}

fn path_of(name: &str) -> String {
    format!("profiles/machines/{name}.toml")
}

/// The lists of a file and of those that it is based on.
fn lists(name: &str) -> Vec<(String, Vec<FittedOn>)> {
    let (mut lists, mut next) = (Vec::new(), Some(name.to_owned()));
    while let Some(name) = next {
        let (_, text) = EMBEDDED.iter().find(|(known, _)| *known == name).expect("`table` read it");
        let mut own: Own = toml::from_str(text).expect("a test reads all of them");
        fitted::lines(&mut own.fitted_on, text);
        lists.push((path_of(&name), own.fitted_on));
        next = own.base;
    }
    lists
}

/// The machine of this name; `None` if there is none.
pub fn load(name: &str) -> Option<Machine> {
    load_with(name, &|_| None)
}

/// The same with numbers changed: `other` may give another value for each.
pub fn load_with(name: &str, other: Other<'_>) -> Option<Machine> {
    let (base, variant) =
        name.split_once(':').map_or((name, None), |(base, variant)| (base, Some(variant)));
    let mut table = table(base, BASES_MAX)?;
    let variants = table.remove("variant");
    if let Some(variant) = variant {
        let mut changes = variants?.as_table()?.get(variant)?.as_table()?.clone();
        changes.remove("about");
        profile::overlay(&mut table, changes);
    }
    Some(read(name, &table, other).expect("a test reads all of them"))
}

/// Gives other values of numbers.
pub type Other<'a> = &'a dyn Fn(&Sourced) -> Option<String>;

fn read(name: &str, table: &Table, other: Other<'_>) -> Result<Machine, ConfigError> {
    let base = name.split(':').next().unwrap_or_default();
    let path = path_of(base);
    let whole = |message: String| ConfigError::whole_file(&path, message);
    let text = toml::to_string(table).map_err(|error| whole(error.to_string()))?;
    let source = Source::new(&path, &text);
    let file: File = source.parse()?;
    let mut numbers = Vec::new();
    profile::collect("", &file.host, &mut numbers);
    let mut keys = Table::new();
    for number in &numbers {
        let written = &file.host[&number.key]["value"];
        let value = match (other(number), written) {
            (None, written) => written.clone(),
            (Some(other), Value::Integer(_)) => {
                Value::Integer(other.parse().map_err(|_| whole(format!("{other} is no integer")))?)
            }
            (Some(other), _) => Value::String(other),
        };
        keys.insert(number.key.clone(), value);
    }
    let keys = toml::to_string(&keys).map_err(|error| whole(error.to_string()))?;
    let host = iofair_config::parse::<HostFile>(&path, &keys)?;
    let File { title, source: from, drive, kernel, file_system, tags, policy, .. } = file;
    let (fitted_on, name) = (lists(base), name.to_owned());
    Ok(Machine {
        name,
        fitted_on,
        title,
        source: from,
        drive,
        kernel,
        file_system,
        tags,
        numbers,
        host,
        policy,
        file: source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: everything listed can be read and has sources, its drive is there, and every file is listed. Method: both
    /// directions.
    #[test]
    fn every_machine_is_complete() {
        for (name, about) in list() {
            let machine = load(&name).unwrap_or_else(|| panic!("{name}"));
            assert!(!about.is_empty() && !machine.source.is_empty(), "{name}");
            assert!(machine.numbers.iter().all(|number| !number.source.is_empty()), "{name}");
            profile::read(&machine.drive).unwrap();
        }
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("machines");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if stem == "ranges" {
                continue; // what `iofair-lab fit` writes
            }
            assert!(EMBEDDED.iter().any(|(name, _)| *name == stem), "{stem} is not listed");
        }
        assert!(load("abacus").is_none() && load("sata-2009:hot").is_none());
        assert_eq!(of_drive("plextor-px256m5s"), Some("plextor-2018"));
    }

    /// Goal: a variant changes what it names, and a base gives the rest. Method: two of each.
    #[test]
    fn bases_and_variants_are_overlaid() {
        let changed = |one: &str, other: &str| {
            let (one, other) = (load(one).unwrap().numbers, load(other).unwrap().numbers);
            let keys = other.iter().filter(|number| !one.contains(number));
            keys.map(|number| number.key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(changed("sata-2009", "sata-2009:warm"), ["cold_percent"]);
        let nvme = ["memory", "produce_window", "consume_copy", "consume_window"];
        let own = changed("nvme-2015", "nvme-2021");
        assert!(
            own.len() == 4 && nvme.iter().all(|key| own.contains(&(*key).to_owned())),
            "{own:?}"
        );
        let [old, new] =
            ["plextor-2018", "plextor-2019:user-slice"].map(|name| load(name).unwrap());
        let paths = |machine: &Machine| {
            machine.fitted_on.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>()
        };
        let both = ["profiles/machines/plextor-2019.toml", "profiles/machines/plextor-2018.toml"];
        assert_eq!(
            (paths(&old), paths(&new)),
            (both.map(str::to_owned)[1..].to_vec(), both.map(str::to_owned).to_vec())
        );
        assert_eq!((old.policy.len(), new.policy.len(), &*new.kernel), (0, 2, "5.3-rc4"));
    }
}
