//! Drive profiles: TOML files that select a drive's model and give every parameter with its source.
//!
//! ```toml
//! title = "..."
//! capacity = { value = "256060514304B", source = "data sheet" }
//! [model.ssd]
//! units = { value = 64, source = "five readers, 110 MB/s (weak)" }
//! write-cache = { value = "1MB", source = "a guess", free = true }   # no measured row decides it
//! [volume]                                                           # only if limits and a path are before it, see `volume`
//! iops = { value = 3000, source = "..." }
//! [variant.b]                                                        # `NAME:b`
//! about = "..."
//! [variant.b.model.ssd]
//! large-setup = { value = "280us", source = "..." }
//! [[fitted_on]]                                                      # see `fitted`
//! experiment = "article-2018/figure-3"
//! chose = "units"
//! ```
//!
//! The profiles under `profiles/drives` are part of the program, and so are the drives of its table `library.csv`. [`load`] also
//! takes the path of a file, and `random-flash:SEED`, `random-disk:SEED` or `random-volume:SEED` for a random drive. A variant
//! replaces some parameters of its profile. A drive with flash translation has its states as variants, such as `NAME:overwritten`.
//! `NAME?KEY=VALUE&KEY=VALUE` changes single numbers, such as `plextor-px256m5s?model.ssd.write-cache=4MB`.
//! Unknown keys are errors.

use std::fmt;
use std::path::Path;

use iofair_core::time::Nanos;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::Drive;
use crate::fitted::{self, FittedOn};
use crate::hdd::{self, Hdd};
use crate::library;
use crate::number::{Common, Invalid, Number, Rate, Size, Time};
use crate::random::Random;
use crate::random_profile;
use crate::ssd::{self, Ssd};
use crate::volume::{self, Volume};

/// The profiles that are part of the program.
const EMBEDDED: &[(&str, &str)] = &[
    ("hitachi-hts727550a9e364", include_str!("../profiles/hitachi-hts727550a9e364.toml")),
    ("nvme-2015", include_str!("../profiles/nvme-2015.toml")),
    ("nvme-2021", include_str!("../profiles/nvme-2021.toml")),
    ("plextor-px256m5s", include_str!("../profiles/plextor-px256m5s.toml")),
    ("samsung-970-pro", include_str!("../profiles/samsung-970-pro.toml")),
    ("sata-7200-2009", include_str!("../profiles/sata-7200-2009.toml")),
];
/// The stream of random numbers for a volume's path; the drive draws from others.
const VOLUME_STREAM: u64 = 1 << 32;
/// Classes of drives, in the order of [`list`]. `class:NAME` stands for all drives of one, see [`expand`].
pub const CLASSES: [&str; 6] = ["consumer", "client", "sata", "datacentre", "disk", "volume"];
/// What is before the name of a class.
const CLASS: &str = "class:";
/// Longest profile file that is read; real ones are a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a drive could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No profile has this name.
    #[error("there is no drive profile \"{name}\"; there are {} (or give the path of a .toml file)", available.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// All names.
        available: Vec<String>,
    },
    /// The profile has no such variant.
    #[error("drive profile \"{profile}\" has no variant \"{variant}\"; it has {}", available.join(", "))]
    UnknownVariant {
        /// The profile.
        profile: String,
        /// The requested variant.
        variant: String,
        /// All variants.
        available: Vec<String>,
    },
    /// The file cannot be read.
    #[error("drive profile {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a valid profile.
    #[error("drive profile {name}: {source}")]
    Malformed {
        /// The profile or file.
        name: String,
        /// What is wrong and where.
        source: Box<toml::de::Error>,
    },
    /// A profile has no such number, or it cannot be changed so.
    #[error("drive profile \"{profile}\": {what}")]
    Change {
        /// The profile.
        profile: String,
        /// What is wrong.
        what: String,
    },
    /// A number is outside the range that the model supports.
    #[error("drive profile {name}: {} must be {}", invalid.key, invalid.allowed)]
    Invalid {
        /// The profile or file.
        name: String,
        /// The number.
        invalid: Invalid,
    },
}

/// The file's structure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    title: String,
    class: Option<String>,
    capacity: Number<Size>,
    max_request: Number<Size>,
    worst_case: Number<Rate>,
    host: HostTable,
    model: ModelTable,
    volume: Option<volume::Table>,
    #[serde(default)]
    variant: Table,
    #[serde(default, rename = "fitted_on")]
    fitted_on: Vec<FittedOn>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HostTable {
    turnaround: Number<Time>,
    consume_window: Number<Time>,
}

/// `[model.KIND]`: one row for each kind of drive.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModelTable {
    Hdd(Box<hdd::Table>),
    Ssd(Box<ssd::Table>),
}

/// A kind of drive with its parameters.
#[derive(Clone, Debug)]
pub enum Model {
    /// A hard disk.
    Hdd(hdd::Parameters),
    /// A solid-state drive.
    Ssd(ssd::Parameters),
}

/// Delays of the machine in which the drive was measured; defaults for hosts in the simulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostFacts {
    /// Time from a completion to the next direct or random request of the same process.
    pub turnaround: Nanos,
    /// Time that a reader spends on 256 KiB found in the page cache.
    pub consume_window: Nanos,
}

/// A valid profile, from which drives can be built.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name, including the variant.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The kind of drive, one of [`CLASSES`] unless its file says something else.
    pub class: String,
    /// The machine in which it was measured.
    pub host: HostFacts,
    /// The drive.
    pub model: Model,
    /// Limits and a path before it.
    pub volume: Option<volume::Parameters>,
    /// All parameters as text, in the order of their keys.
    pub numbers: Vec<Sourced>,
    /// The published rows that chose parameters; a variant has those of its profile.
    pub fitted_on: Vec<FittedOn>,
}

/// A parameter of a profile as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Sourced {
    /// Its key, including the tables around it.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Its source.
    pub source: String,
    /// Whether no measured row determines it.
    pub free: bool,
}

/// An entry of the list of profiles.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Listed {
    /// The name that [`load`] accepts.
    pub name: String,
    /// Its class; a variant has that of its profile.
    pub class: String,
    /// The profile's title; for a variant, how it differs.
    pub about: String,
    /// Whether it is a drive of the table `library.csv`.
    pub library: bool,
}

/// Builds a drive by its name: `profile`, `profile:variant`, or the same with the path of a file.
pub fn load(name: &str, seed: u64) -> Result<Box<dyn Drive + Send>, ProfileError> {
    read(name).map(|profile| profile.build(seed))
}

/// All profiles that are part of the program by class, each followed by its variants.
pub fn list() -> Vec<Listed> {
    let mut listed = Vec::new();
    for (name, text) in EMBEDDED {
        let file: File = toml::from_str(text).expect("a test loads every embedded profile");
        let class = parse(name, text, None).expect("a test loads every embedded profile").class;
        let of = |name: String, about: &str| {
            let (about, class) = (about.to_owned(), class.clone());
            Listed { name, class, about, library: false }
        };
        listed.push(of((*name).to_owned(), &file.title));
        for (variant, table) in &file.variant {
            let about = table.get("about").and_then(Value::as_str).unwrap_or_default();
            listed.push(of(format!("{name}:{variant}"), about));
        }
    }
    listed.extend(library::entries().map(|entry| Listed {
        name: entry.name.to_owned(),
        class: entry.class.to_owned(),
        about: entry.title.to_owned(),
        library: true,
    }));
    listed.sort_by_key(|listed| CLASSES.iter().position(|class| *class == listed.class));
    listed
}

/// The drives that a name stands for: `class:NAME` for those of a class, without variants, and any other name for itself.
///
/// # Errors
/// A class without drives.
pub fn expand(name: &str) -> Result<Vec<String>, ProfileError> {
    let Some(class) = name.strip_prefix(CLASS) else { return Ok(vec![name.to_owned()]) };
    let all = list().into_iter().filter(|drive| !drive.name.contains(':'));
    let of_class: Vec<_> =
        all.filter(|drive| drive.class == class).map(|drive| drive.name).collect();
    match of_class.is_empty() {
        false => Ok(of_class),
        true => {
            let available = CLASSES.map(|class| format!("{CLASS}{class}")).to_vec();
            Err(ProfileError::Unknown { name: name.to_owned(), available })
        }
    }
}

/// Reads a profile without building its drive.
pub fn read(name: &str) -> Result<Profile, ProfileError> {
    let (base, variant) = split(name.split('?').next().unwrap_or(name));
    if let Some((_, text)) = EMBEDDED.iter().find(|(embedded, _)| *embedded == base) {
        return parse(name, text, variant);
    }
    if let Some(text) = library::text(base) {
        return parse(name, &text, variant);
    }
    if let Some(seed) = variant.and_then(|seed| seed.parse().ok())
        && let Some(text) = random_profile::text(base, seed)
    {
        return parse(name, &text, None);
    }
    if Path::new(base).extension().is_none_or(|extension| extension != "toml") {
        let mut available: Vec<_> = list().into_iter().map(|listed| listed.name).collect();
        available.extend(random_profile::KINDS.map(|kind| format!("{kind}:SEED")));
        return Err(ProfileError::Unknown { name: name.to_owned(), available });
    }
    let unreadable = |source| ProfileError::Unreadable { path: base.to_owned(), source };
    let length = std::fs::metadata(base).map_err(unreadable)?.len();
    if length > FILE_BYTES_MAX {
        let source = std::io::Error::other(format!("{length} bytes is too long for a profile"));
        return Err(ProfileError::Unreadable { path: base.to_owned(), source });
    }
    parse(name, &std::fs::read_to_string(base).map_err(unreadable)?, variant)
}

/// A profile with what drives of a class have, but for these numbers.
pub(crate) fn of_class(class: &str, numbers: &[(&str, &str)]) -> Result<Profile, ProfileError> {
    let name = format!("{CLASS}{class}");
    match library::profile_text(class, class, "given", numbers) {
        Some(text) => parse(&name, &text, None),
        None => {
            let available = library::classes().iter().map(ToString::to_string).collect();
            Err(ProfileError::Unknown { name, available })
        }
    }
}

fn split(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((base, variant)) if !variant.contains('/') => (base, Some(variant)),
        _ => (name, None),
    }
}

fn parse(name: &str, text: &str, variant: Option<&str>) -> Result<Profile, ProfileError> {
    let malformed = |source: toml::de::Error| ProfileError::Malformed {
        name: name.to_owned(),
        source: Box::new(source),
    };
    // First without the variant, so that errors in the text carry their line.
    let file: File = toml::from_str(text).map_err(malformed)?;
    let mut table: Table = toml::from_str(text).map_err(malformed)?;
    table.remove("variant");
    match variant.map(|variant| (variant, file.variant.get(variant))) {
        None => {}
        Some((_, Some(Value::Table(changes)))) => {
            let mut changes = changes.clone();
            changes.remove("about");
            overlay(&mut table, changes);
        }
        Some((state, _)) if file.states().contains(&state) => {
            change(&mut table, &format!("model.ssd.ftl.state={state}")).expect("it has states");
        }
        Some((variant, _)) => {
            let states = file.states().iter().map(|state| (*state).to_owned());
            return Err(ProfileError::UnknownVariant {
                profile: split(name).0.to_owned(),
                variant: variant.to_owned(),
                available: file.variant.keys().cloned().chain(states).collect(),
            });
        }
    }
    if let Some((_, changes)) = name.split_once('?') {
        change(&mut table, changes)
            .map_err(|what| ProfileError::Change { profile: name.to_owned(), what })?;
    }
    // As a text again: to read tables too would take 300 KB of code. Nobody wrote this text, so no error shows it.
    let merged = toml::to_string(&table).expect("it was read from a text");
    let mut file: File = toml::from_str(&merged).map_err(|mut error| {
        error.set_input(None);
        malformed(error)
    })?;
    fitted::lines(&mut file.fitted_on, text);
    let mut numbers = Vec::new();
    collect("", &table, &mut numbers);
    file.profile(name, numbers)
        .map_err(|invalid| ProfileError::Invalid { name: name.to_owned(), invalid })
}

/// Sets single numbers, `KEY=VALUE&KEY=VALUE`.
fn change(table: &mut Table, changes: &str) -> Result<(), String> {
    for change in changes.split('&') {
        let Some((key, value)) = change.split_once('=') else {
            return Err(format!("`{change}` is not KEY=VALUE"));
        };
        let number = key
            .split('.')
            .try_fold(&mut *table, |table, key| table.get_mut(key).and_then(Value::as_table_mut));
        let Some(number) = number.filter(|number| number.contains_key("value")) else {
            return Err(format!("there is no number `{key}`"));
        };
        let value = match (value.parse::<i64>(), value.parse::<bool>()) {
            (Ok(number), _) => Value::Integer(number),
            (_, Ok(flag)) => Value::Boolean(flag),
            _ => Value::String(value.to_owned()),
        };
        number.insert("value".to_owned(), value);
    }
    Ok(())
}

/// Replaces parameters of `base` by those of `changes`; other tables are merged.
pub fn overlay(base: &mut Table, changes: Table) {
    for (key, change) in changes {
        match (base.get_mut(&key), change) {
            (Some(Value::Table(old)), Value::Table(new)) if !new.contains_key("value") => {
                overlay(old, new);
            }
            (_, change) => {
                base.insert(key, change);
            }
        }
    }
}

/// All numbers in a table, with the keys of the tables around them.
pub fn collect(prefix: &str, table: &Table, numbers: &mut Vec<Sourced>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let Value::Table(inner) = value else { continue };
        match inner.get("value") {
            None => collect(&key, inner, numbers),
            Some(value) => numbers.push(Sourced {
                key,
                value: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
                source: inner.get("source").and_then(Value::as_str).unwrap_or_default().to_owned(),
                free: inner.get("free").and_then(Value::as_bool).unwrap_or_default(),
            }),
        }
    }
}

/// The class of a profile that does not say one.
fn class_of(model: &Model, is_volume: bool) -> &'static str {
    match model {
        _ if is_volume => "volume",
        Model::Hdd(_) => "disk",
        Model::Ssd(ssd) if ssd.duplex == ssd::Duplex::Half => "sata",
        Model::Ssd(ssd) if ssd.protected => "datacentre",
        Model::Ssd(_) => "consumer",
    }
}

impl File {
    /// The states that the drive can be in, as variants.
    fn states(&self) -> &'static [&'static str] {
        match &self.model {
            ModelTable::Ssd(table) if table.ftl.is_some() => &ssd::State::NAMES,
            _ => &[],
        }
    }
    fn profile(self, name: &str, numbers: Vec<Sourced>) -> Result<Profile, Invalid> {
        let common = Common {
            capacity: self.capacity.value.0,
            max_request: self.max_request.value.0,
            worst_case: self.worst_case.value.0,
        };
        let model = match &self.model {
            ModelTable::Hdd(table) => Model::Hdd(table.parameters(&common)?),
            ModelTable::Ssd(table) => Model::Ssd(table.parameters(&common)?),
        };
        let host = HostFacts {
            turnaround: self.host.turnaround.value.0,
            consume_window: self.host.consume_window.value.0,
        };
        let volume = self.volume.as_ref().map(volume::Table::parameters).transpose()?;
        let class = self.class.unwrap_or_else(|| class_of(&model, volume.is_some()).to_owned());
        let (name, title, fitted_on) = (name.to_owned(), self.title, self.fitted_on);
        Ok(Profile { name, title, class, host, model, volume, numbers, fitted_on })
    }
}

impl Profile {
    /// Builds the drive; `seed` determines all its random numbers.
    pub fn build(&self, seed: u64) -> Box<dyn Drive + Send> {
        let drive: Box<dyn Drive + Send> = match &self.model {
            Model::Hdd(parameters) => Box::new(Hdd::new(parameters.clone())),
            Model::Ssd(parameters) => Box::new(Ssd::new(parameters.clone(), seed)),
        };
        match self.volume {
            Some(limits) => Box::new(Volume::new(drive, limits, Random::new(seed, VOLUME_STREAM))),
            None => drive,
        }
    }
}

impl fmt::Display for Sourced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = if self.free { " (free)" } else { "" };
        write!(f, "{} = {}{free}: {}", self.key, self.value, self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLEXTOR: &str = EMBEDDED[3].1;

    /// Goal: everything listed can be loaded, and every file is listed. Method: both directions.
    #[test]
    fn every_profile_loads() {
        for listed in list() {
            let profile = read(&listed.name).unwrap_or_else(|error| panic!("{error}"));
            assert!(!listed.about.is_empty(), "{}", listed.name);
            for number in &profile.numbers {
                assert!(!number.source.is_empty(), "{}: {number}", listed.name);
            }
            let drive = profile.build(1);
            assert!(drive.facts().depth >= 1 && drive.worst_case_rate() > 0);
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/drives");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "csv") {
                continue;
            }
            let stem = path.file_stem().unwrap().to_str().unwrap();
            assert!(
                EMBEDDED.iter().any(|(name, _)| *name == stem),
                "{} is not listed",
                path.display()
            );
            load(path.to_str().unwrap(), 1).unwrap();
        }
    }

    /// Goal: the library has drives of each class of flash, a class stands for its drives, and its drives have states. Method: names
    /// and numbers of it.
    #[test]
    fn the_library_is_listed_by_class() {
        let of_class = |class: &str| expand(class).unwrap_or_else(|error| panic!("{error}"));
        assert!(of_class("class:consumer").contains(&"samsung-970-pro-512gb".to_owned()));
        assert!(of_class("class:datacentre").len() > 5);
        assert_eq!(of_class("class:disk"), ["hitachi-hts727550a9e364", "sata-7200-2009"]);
        assert_eq!(of_class("nvme-2015"), ["nvme-2015"]);
        assert!(expand("class:tape").unwrap_err().to_string().contains("class:sata"));
        let library = list().into_iter().filter(|drive| drive.library);
        assert!(library.filter(|drive| drive.class != "datacentre").count() >= 23);
        let state = |name: &str| {
            let numbers = read(name).unwrap_or_else(|error| panic!("{error}")).numbers;
            numbers.into_iter().find(|number| number.key == "model.ssd.ftl.state").unwrap().value
        };
        assert_eq!(state("wd-960gb"), "overwritten");
        assert_eq!(state("wd-960gb:fresh"), "fresh");
        assert_eq!(state("wd-960gb?model.ssd.ftl.state=filled"), "filled");
    }

    /// Goal: a variant changes what it names and nothing else. Method: the numbers of both.
    #[test]
    fn variants_replace_numbers() {
        let base = read("plextor-px256m5s").unwrap();
        let variant = read("plextor-px256m5s:b").unwrap();
        let changed: Vec<&str> = base
            .numbers
            .iter()
            .zip(&variant.numbers)
            .filter(|(old, new)| old != new)
            .map(|(old, _)| old.key.as_str())
            .collect();
        assert_eq!(changed, ["host.consume-window", "model.ssd.large-setup"]);
    }

    /// Goal: the states of a drive with flash translation are variants of it, and of no other. Method: names.
    #[test]
    fn states_are_variants() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/steady.toml");
        let state = |name: &str| {
            let numbers = read(name).unwrap().numbers;
            numbers.into_iter().find(|number| number.key == "model.ssd.ftl.state").unwrap().value
        };
        assert_eq!(state(path), "overwritten");
        for name in ssd::State::NAMES {
            assert_eq!(state(&format!("{path}:{name}")), name);
        }
        assert_eq!(state(&format!("{path}?model.ssd.ftl.state=idle")), "idle");
        let message = |name: &str| read(name).unwrap_err().to_string();
        assert!(message(&format!("{path}:old")).contains("fresh, filled, overwritten, idle"));
        assert!(message("nvme-2021:fresh").contains("it has fragmented"));
        let little = message(&format!("{path}?model.ssd.ftl.over-provisioning=8MiB"));
        assert!(little.contains("2 to 100 %"), "{little}");
    }

    /// Goal: single numbers can be changed, of variants too. Method: two numbers, and mistakes.
    #[test]
    fn single_numbers_change() {
        let value = |name: &str, key: &str| {
            let profile = read(name).unwrap_or_else(|error| panic!("{error}"));
            profile.numbers.into_iter().find(|number| number.key == key).expect("it is there").value
        };
        let name = "plextor-px256m5s:b?model.ssd.write-cache=4MB&model.ssd.units=32";
        let keys = ["model.ssd.write-cache", "model.ssd.units", "model.ssd.large-setup"];
        let changed = keys.map(|key| value(name, key));
        assert_eq!(changed[..2], ["4MB", "32"]);
        assert_eq!(changed[2], value("plextor-px256m5s:b", keys[2]));
        let message = |name: &str| read(name).unwrap_err().to_string();
        assert!(message("plextor-px256m5s?units=32").contains("no number `units`"));
        assert!(message("plextor-px256m5s?model.ssd.units").contains("KEY=VALUE"));
        assert!(message("plextor-px256m5s?model.ssd.page=9KiB").contains("power of two"));
    }

    /// Goal: mistakes are refused with what, where and what is allowed. Method: one of each kind.
    #[test]
    fn mistakes_are_explained() {
        let message = |name: &str| read(name).unwrap_err().to_string();
        assert!(message("plextor").contains("samsung-970-pro"));
        assert!(message("plextor-px256m5s:c").contains("a-fifo, b"));
        assert!(message("/no/such/file.toml").contains("/no/such/file.toml"));

        let broken = |from: &str, to: &str| {
            assert!(PLEXTOR.contains(from), "{from}");
            parse("x", &PLEXTOR.replacen(from, to, 1), None).unwrap_err().to_string()
        };
        let unknown = broken("units =", "unit =");
        assert!(unknown.contains("line") && unknown.contains("units"), "{unknown}");
        let unit = broken("\"535MB/s\"", "\"535MB\"");
        assert!(unit.contains("535MB") && unit.contains("/s"), "{unit}");
        let size = broken("page = { value = \"8KiB\"", "page = { value = \"9KiB\"");
        assert!(size.contains("power of two"), "{size}");
    }
}
