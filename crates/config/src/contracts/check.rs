//! From what was written to what is meant: every rule that the file's grammar cannot express.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use iofair_core::contract::{Burst, Contract, Rate};
use iofair_core::controller::{Stack, StackError};
use iofair_core::key::{Field, Key, Unit, inside};
use iofair_core::params::ParameterError;
use iofair_core::policy::Table;
use iofair_core::time::Nanos;
use iofair_core::unit::{Count, SECTOR_BYTES, parse_bytes};
use iofair_policies::DEFAULT_STACK;
use uuid::Uuid;

use crate::stack::{stack_error, words};

use super::enforced::{self, Unenforced, unenforced};
use super::faults;
use super::keys::Keys;
use super::{
    Back, Contracts, Drive, Group, Listen, Reaches, Ublk, Volume, access, control, guests, listen,
    paths, raw, reaches,
};
use crate::errors::{Errors, all};
use crate::name::{GROUP_NAMES, VOLUME_NAMES, ancestors, is_group_name, is_volume_name, listed};
use crate::units::Time;
use crate::{ConfigError, Source, Spanned};

/// How long a command may take, and the end of a server, unless the file says otherwise.
const PATIENCE: Nanos = Nanos::from_secs(30);
/// Longest name of a volume that is a file `NAME.img`: file systems end at 255 bytes.
const FILE_NAME_BYTES_MAX: usize = 251;

/// Block devices that the kernel's driver can number.
const UBLK_DEVICES_MAX: u32 = 1 << 20;

/// The contracts, and the keys in them that their stack does not enforce.
pub(super) fn contracts(
    source: Source,
    policies: &'static Table,
) -> Result<(Contracts, Vec<Unenforced>), ConfigError> {
    let file: raw::File =
        source.parse().map_err(|error| enforced::without_unenforced(error, policies))?;
    let mut errors = Errors::default();
    let drive = errors.ok(drive(&source, &file, policies));
    let listen = errors.ok(listen::check(&source, &file.listen));
    let control = errors.or_default(control::control(&source, &file.control));
    let metrics = errors.or_default(control::metrics(&source, &file.metrics));
    let (mode, group) = (file.vhost.mode.as_ref(), file.vhost.group.as_ref());
    let vhost = errors.or_default(access::check(&source, mode, group));
    let (all, each) = (file.vhost.memory.as_ref(), file.vhost.memory_each.as_ref());
    let guests = errors.or_default(guests::check(&source, all, each));
    let vhost_paths = errors.or_default(paths::listed(&source, &file.vhost.paths));
    let mount = file.fuse.mount.as_ref().map(|path| listen::path(&source, path, "a directory"));
    let mount = errors.or_default(mount.transpose());
    let groups = errors.or_default(groups(&source, &file.group, listen.as_ref()));
    let volumes = errors.or_default(volumes(&source, &file.volume, &file.group));
    let vhost_sockets = file.volume.iter().flat_map(|volume| &volume.vhost);
    let sockets = file.listen.unix.iter().chain(&file.control.unix).chain(&file.metrics.unix);
    errors.or_default(listen::sockets_differ(&source, sockets.chain(vhost_sockets)));
    errors.end()?;
    let drive = drive.expect("nothing is wrong");
    let listen = listen.expect("nothing is wrong");
    let unenforced = unenforced(&file.group, &drive.stack);
    let mut contracts = Contracts {
        drive,
        listen,
        control,
        metrics,
        vhost,
        guests,
        vhost_paths,
        mount,
        groups,
        volumes,
        source,
    };
    contracts.set_entries();
    contracts.check_capacity(match contracts.drive.back {
        Back::Memory(bytes) => bytes,
        _ => super::contents::DRIVE_BYTES_MAX,
    })?;
    Ok((contracts, unenforced))
}

/// What is set for a server unless its file says otherwise: policy, parameter, value. The lab leaves the policies
/// as they were published.
const SERVED: [(&str, &str, &str); 6] = [
    ("bfq", "inject_by_weight", "true"),
    // It multiplies the weight of clients that it takes for interactive by up to thirty, whatever their contracts say.
    ("bfq", "low_latency", "false"),
    ("bfq-6.18", "low_latency", "false"),
    ("bfq-5.3", "low_latency", "false"),
    ("bfq-4.20", "low_latency", "false"),
    ("bfq-4.18", "low_latency", "false"),
];

fn stack(
    source: &Source,
    written: &raw::Drive,
    policies: &'static Table,
) -> Result<Stack, ConfigError> {
    let (name, span) = match &written.stack {
        Some(stack) => (stack.get_ref().as_str(), stack.span()),
        None => (DEFAULT_STACK, written.back.span()),
    };
    let mut stack =
        policies.stack(name).map_err(|error| stack_error(source.error(span, ""), &error))?;
    for (policy, parameter, value) in SERVED {
        if stages(&stack).contains(&policy) {
            stack.set(policy, parameter, value).expect("in the policy's table");
        }
    }
    let mut errors = Errors::default();
    for (policy, parameters) in &written.policy {
        if stages(&stack).iter().all(|name| *name != policy.get_ref()) {
            errors.add(no_stage(source, policy, &stack));
            continue;
        }
        let set = parameters.iter().map(|(parameter, value)| {
            let set = stack.set(policy.get_ref(), parameter.get_ref(), &value.get_ref().0);
            set.map_err(|error| match &error {
                StackError::Parameter { error: ParameterError::Unknown { .. }, .. } => {
                    stack_error(source.error(parameter.span(), ""), &error)
                }
                _ => stack_error(source.error(value.span(), ""), &error),
            })
        });
        errors.or_default(all(set));
    }
    errors.end().map(|()| stack)
}

fn drive(
    source: &Source,
    file: &raw::File,
    policies: &'static Table,
) -> Result<Drive, ConfigError> {
    let (written, volumes) = (&file.drive, &file.volume);
    let mut errors = Errors::default();
    let stack = errors.ok(stack(source, written, policies));
    if let Some(rate) = written.worst_case.as_ref().filter(|rate| rate.get_ref().0 == 0) {
        let error = source.error(rate.span(), "a worst case of nothing");
        errors.add(error.allowed("more than 0B/s"));
    }
    let [timeout, drain] = [&written.timeout, &written.drain]
        .map(|time| errors.or_default(patience(source, time.as_ref())));
    let faulty = written.back.get_ref().starts_with(FAULTY);
    let pool = errors.or_default(uuid(source, written.pool.as_ref()));
    let paths = errors.ok(paths::listed(source, &written.paths));
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name.get_ref().as_str()).collect();
    let faults = errors.or_default(faults::faults(source, written.faults.as_ref(), faulty, &names));
    let mut reaches = Reaches::default();
    let back = errors.ok(back(source, &written.back));
    if let Some(back) = &back {
        let is_emulated = back.profile().is_some();
        reaches = errors.or_default(reaches::check(source, written.reaches.as_ref(), is_emulated));
        errors.or_default(rotational(source, written, back));
        errors.or_default(uuids(source, volumes, written, back));
        if let Some(listed) = &paths {
            errors.or_default(own_paths(source, volumes, back, listed));
        }
    }
    errors.end()?;
    Ok(Drive {
        reaches,
        back: back.expect("nothing is wrong"),
        may_create: plain(&written.back).starts_with("file:") && written.pool.is_none(),
        pool,
        rotational: written.rotational.as_ref().map(|told| *told.get_ref()),
        timeout,
        drain,
        faulty,
        faults,
        stack: stack.expect("nothing is wrong"),
        worst_case: written.worst_case.as_ref().map(|rate| rate.get_ref().0),
        paths: paths.expect("nothing is wrong"),
        back_span: written.back.span(),
    })
}

fn patience(source: &Source, time: Option<&Spanned<Time>>) -> Result<Nanos, ConfigError> {
    let Some(written) = time else { return Ok(PATIENCE) };
    match written.get_ref().nanos() {
        Nanos::ZERO => Err(source.error(written.span(), "no time at all").allowed("more than 0ms")),
        time => Ok(time),
    }
}

fn rotational(source: &Source, written: &raw::Drive, back: &Back) -> Result<(), ConfigError> {
    let Some(told) = &written.rotational else { return Ok(()) };
    if matches!(back, Back::File(_) | Back::Directory(_)) {
        return Ok(());
    }
    let error = source.error(told.span(), "what the drive is, is known");
    Err(error.allowed("`rotational` for files and devices"))
}

fn stages(stack: &Stack) -> Vec<&'static str> {
    let rows = stack.throttles.iter().chain([&stack.scheduler]).map(|stage| stage.row);
    rows.flat_map(|row| [row.name, row.short]).collect()
}

fn no_stage(source: &Source, policy: &Spanned<String>, stack: &Stack) -> ConfigError {
    let written = policy.get_ref();
    let known = stages(stack);
    let message = format!("the stack \"{}\" has no policy `{written}`", stack.name());
    source.error(policy.span(), message).allowed(words(&known)).near(written, known)
}

/// Before a back end that fails on purpose.
const FAULTY: &str = "faulty:";

/// What is written as the back end, without faults.
fn plain(written: &Spanned<String>) -> &str {
    let text = written.get_ref();
    text.strip_prefix(FAULTY).unwrap_or(text)
}

fn uuid(source: &Source, written: Option<&Spanned<String>>) -> Result<Option<Uuid>, ConfigError> {
    let Some(written) = written else { return Ok(None) };
    let parsed = Uuid::try_parse(written.get_ref());
    parsed.map(Some).map_err(|_| {
        let message = format!("\"{}\" is no UUID", written.get_ref());
        source.error(written.span(), message).allowed("as `iofair pool show` prints it")
    })
}

/// A UUID names one volume of a pool.
fn uuids(
    source: &Source,
    written: &[raw::Volume],
    drive: &raw::Drive,
    back: &Back,
) -> Result<(), ConfigError> {
    let of_volumes = || written.iter().flat_map(|volume| &volume.uuid);
    if !matches!(back, Back::File(_)) {
        let message = "only a pool on a device or in one file has UUIDs";
        let refuse = |written: &Spanned<String>| {
            Err(source.error(written.span(), message).allowed("none here"))
        };
        return all(drive.pool.iter().chain(of_volumes()).map(refuse)).map(drop::<Vec<()>>);
    }
    let mut seen = HashSet::new();
    // What is no UUID is told elsewhere.
    let parsed =
        of_volumes().filter_map(|uuid| Some((uuid, Uuid::try_parse(uuid.get_ref()).ok()?)));
    all(parsed.map(|(uuid, parsed)| match seen.insert(parsed) {
        true => Ok(()),
        false => {
            let message = "another volume has this UUID";
            Err(source.error(uuid.span(), message).allowed("one volume a UUID"))
        }
    }))
    .map(drop)
}

fn back(source: &Source, written: &Spanned<String>) -> Result<Back, ConfigError> {
    const ALLOWED: &str = "\"emulated:PROFILE\", \"emulated:PROFILE@FILE\" with its data in a file, \"file:PATH\", \"/dev/...\" or another absolute path, \"directory:PATH\", \"memory:SIZE\", or \"faulty:\" and one of these";
    let text = plain(written);
    let refuse = |message: String| Err(source.error(written.span(), message).allowed(ALLOWED));
    if text.starts_with('/') {
        return Ok(Back::File(PathBuf::from(text)));
    }
    match text.split_once(':') {
        Some(("file" | "emulated" | "directory", "")) => {
            refuse(format!("\"{text}\" names nothing"))
        }
        Some(("file", path)) => Ok(Back::File(source.beside(path))),
        Some(("directory", path)) => Ok(Back::Directory(source.beside(path))),
        Some(("emulated", text)) => {
            let (profile, file) =
                text.split_once('@').map_or((text, None), |(profile, file)| (profile, Some(file)));
            let (profile, file) = (source.profile(profile), file.map(|file| source.beside(file)));
            Ok(Back::Emulated { profile, file })
        }
        Some(("memory", size)) => match parse_bytes(size) {
            Ok(bytes) if bytes >= SECTOR_BYTES => Ok(Back::Memory(bytes)),
            Ok(_) => refuse(format!("\"{text}\" is less than a sector")),
            Err(error) => Err(source
                .error(written.span(), format!("\"{size}\" is not a size"))
                .allowed(error.allowed)),
        },
        _ => refuse(format!("\"{text}\" is no back end")),
    }
}

fn groups<'a>(
    source: &Source,
    written: &'a [raw::Group],
    listen: Option<&Listen>,
) -> Result<Vec<Group>, ConfigError> {
    let mut lines: HashMap<&str, Range<usize>> = HashMap::new();
    let group = |group: &'a raw::Group| -> Result<Group, ConfigError> {
        let (name, mut errors) = (group.name.get_ref(), Errors::default());
        let refuse = |message: String| source.error(group.name.span(), message);
        if !is_group_name(name) {
            let message = format!("{name:?} is not a valid group name");
            errors.add(refuse(message).allowed(GROUP_NAMES));
        } else if let Some(first) = lines.insert(name, group.name.span()) {
            let line = source.error(first, "").line();
            let message = format!("group \"{name}\" exists already, in line {line}");
            errors.add(refuse(message).allowed("one [[group]] a name"));
        }
        let contract = errors.or_default(contract(source, &group.keys));
        let clients = errors.or_default(listen::clients(source, &group.clients, listen));
        let connections = listen::group_connections(source, group.connections.as_ref());
        let connections = errors.or_default(connections);
        errors.end()?;
        let (name, span, keys) = (name.clone(), group.name.span(), group.keys.clone());
        Ok(Group { name, contract, clients, connections, span, keys })
    };
    all(written.iter().map(group))
}

/// The contract that these keys say.
pub(super) fn contract(source: &Source, keys: &Keys) -> Result<Contract, ConfigError> {
    let contract = keys.contract();
    let refuse = |top: &str, Refused { message, allowed }| {
        let span = keys.span(top).expect("only what is written is refused");
        source.error(span, message).allowed(allowed)
    };
    let mut errors = Errors::default();
    for (field, value) in keys.written() {
        if !field.unit.range().contains(&value) {
            errors.add(refuse(field.top(), nothing(field)));
        }
    }
    errors.end()?;
    let mut errors = Errors::default();
    let checks: [(&str, Check); 5] = [
        ("alone", check_alone),
        ("max", check_max),
        ("max", check_max_requests),
        ("low", check_low),
        ("latency", check_latency),
    ];
    for (top, check) in checks.into_iter().filter(|(top, _)| keys.span(top).is_some()) {
        errors.or_default(check(&contract).map_err(|refused| refuse(top, refused)));
    }
    errors.end().map(|()| contract)
}

/// What is wrong with a key, and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// What is wrong.
    pub message: String,
    /// What is allowed.
    pub allowed: String,
}

impl Refused {
    fn new(message: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { message: message.into(), allowed: allowed.into() }
    }
}

/// A rule about a key and others of the same contract.
type Check = fn(&Contract) -> Result<(), Refused>;

/// A value of zero.
fn nothing(field: &Field) -> Refused {
    let (message, allowed) = match (field.enforced_as, field.unit) {
        (Some(Key::Min), _) => ("a guarantee of nothing", "more than 0B/s, or no min at all"),
        (Some(Key::MinIops), _) => ("a guarantee of 0 I/Os a second", "1 or more"),
        (Some(Key::Max | Key::MaxTotal), _) => {
            ("a ceiling of 0 would stop the group", "more than 0")
        }
        (Some(Key::MaxBurst), _) => ("a burst of nothing", "1 or more; 1 spaces requests evenly"),
        (Some(Key::Low), Unit::Time) => ("a threshold of nothing", "more than 0us"),
        (Some(Key::Low), _) => ("a guarantee of nothing", "more than 0"),
        (Some(Key::Latency | Key::LatencyWrite | Key::LatencySync), _) => {
            ("a latency of nothing", "more than 0ms")
        }
        _ => ("a rate of nothing", "more than 0B/s"),
    };
    Refused::new(message, allowed)
}

/// Checks what a group reaches alone.
pub fn check_alone(contract: &Contract) -> Result<(), Refused> {
    match (contract.alone, contract.min) {
        (None, _) => Ok(()),
        (Some(0), _) => Err(Refused::new("a rate of nothing", "more than 0B/s")),
        (Some(_), None) => {
            let message = "it says how much of the drive a min takes, and there is none";
            Err(Refused::new(message, "a min beside it, or no alone"))
        }
        (Some(alone), Some(min)) if alone < min => {
            let message = format!("min {} is more than it reaches alone", Rate(min));
            Err(Refused::new(message, format!("at least {}", Rate(min))))
        }
        _ => Ok(()),
    }
}

/// Checks that there is a latency in the table.
fn check_latency(contract: &Contract) -> Result<(), Refused> {
    let keys: Vec<&str> = inside("latency").filter_map(Field::inner).collect();
    match contract.latency.is_some() {
        true => Ok(()),
        false => Err(Refused::new("no latency in it", keys.join(", "))),
    }
}

/// The limits that a table may have.
fn limits(table: &str) -> String {
    let limits = inside(table).filter(|field| field.is_limit()).filter_map(Field::inner);
    limits.collect::<Vec<_>>().join(", ")
}

/// Checks ceilings.
fn check_max(contract: &Contract) -> Result<(), Refused> {
    check_burst(contract)?;
    let max = &contract.max;
    if max.byte_rates().chain(max.request_rates()).next().is_none() {
        return Err(Refused::new("no limit in it", limits("max")));
    }
    match (max.byte_rates().min(), contract.min) {
        (Some(ceiling), Some(min)) if ceiling < min => {
            let message = format!("max {} is below min {}", Rate(ceiling), Rate(min));
            Err(Refused::new(message, format!("at least {}", Rate(min))))
        }
        _ => Ok(()),
    }
}

/// Checks ceilings of requests beside minimums of requests.
fn check_max_requests(contract: &Contract) -> Result<(), Refused> {
    match (contract.max.request_rates().min(), contract.min_iops) {
        (Some(ceiling), Some(min)) if ceiling < min => {
            let message =
                format!("max {} a second is below min_iops {min}", Count(ceiling, "request"));
            Err(Refused::new(message, format!("at least {min}")))
        }
        _ => Ok(()),
    }
}

/// Checks the bursts of ceilings.
pub fn check_burst(contract: &Contract) -> Result<(), Refused> {
    let Burst { bytes, requests } = contract.max.burst;
    if bytes == Some(0) || requests == Some(0) {
        return Err(Refused::new("a burst of nothing", "1 or more; 1 spaces requests evenly"));
    }
    if bytes.is_some() && contract.max.byte_rates().next().is_none() {
        let message = "burst is for ceilings in bytes a second, and there is none";
        return Err(Refused::new(message, "read, write or total beside it, or no burst"));
    }
    if requests.is_some() && contract.max.request_rates().next().is_none() {
        let message = "burst_requests is for ceilings in requests a second, and there is none";
        let allowed = "read_iops, write_iops or total_iops beside it, or no burst_requests";
        return Err(Refused::new(message, allowed));
    }
    Ok(())
}

/// Checks low limits.
fn check_low(contract: &Contract) -> Result<(), Refused> {
    let is_set = |field: &Field| field.is_limit() && field.get(contract).is_some();
    if contract.min.is_none() && !inside("low").any(is_set) {
        let allowed = format!("{}, or a min beside it", limits("low"));
        return Err(Refused::new("no limit in it", allowed));
    }
    Ok(())
}

fn volumes<'a>(
    source: &Source,
    written: &'a [raw::Volume],
    groups: &[raw::Group],
) -> Result<Vec<Volume>, ConfigError> {
    let mut lines: HashMap<&str, Range<usize>> = HashMap::new();
    let mut devices: HashMap<u32, &str> = HashMap::new();
    let names = groups.iter().map(|group| group.name.get_ref().as_str());
    let known: Vec<&str> = names.clone().filter(|name| is_group_name(name)).collect();
    // Groups that exist only as part of a path, too; and those whose names are wrong, which is told there.
    let parents = known.iter().flat_map(|name| ancestors(name));
    let paths: HashSet<&str> = names.chain(parents).collect();
    let volume = |volume: &'a raw::Volume| -> Result<Volume, ConfigError> {
        let (name, mut errors) = (volume.name.get_ref(), Errors::default());
        let refuse = |message: String| source.error(volume.name.span(), message);
        if !is_volume_name(name) {
            let message = format!("{name:?} is not a valid volume name");
            errors.add(refuse(message).allowed(VOLUME_NAMES));
        } else if let Some(first) = lines.insert(name, volume.name.span()) {
            let line = source.error(first, "").line();
            let message = format!("volume \"{name}\" exists already, in line {line}");
            errors.add(refuse(message).allowed("one [[volume]] a name"));
        }
        let group = volume.group.get_ref();
        if !paths.contains(group.as_str()) {
            let allowed = if known.is_empty() { "add a [[group]]".into() } else { listed(&known) };
            let message = format!("there is no group \"{group}\"");
            let error = source.error(volume.group.span(), message);
            errors.add(error.allowed(allowed).near(group, known.iter().copied()));
        }
        let size_bytes = volume.size.get_ref().0;
        if size_bytes == 0 || !size_bytes.is_multiple_of(SECTOR_BYTES) {
            let message = format!("{size_bytes} bytes are not whole sectors");
            let allowed = format!("a multiple of {SECTOR_BYTES} bytes, at least one");
            errors.add(source.error(volume.size.span(), message).allowed(allowed));
        }
        let uuid = errors.or_default(uuid(source, volume.uuid.as_ref()));
        let entry = listen::entry(source, volume.listen, volume.connections.as_ref());
        let entry = errors.or_default(entry);
        let vhost = errors.or_default(listen::socket(source, volume.vhost.as_ref()));
        let ublk = errors.or_default(ublk(source, volume, &mut devices));
        errors.end()?;
        let path = volume.path.as_ref().map(|path| PathBuf::from(path.get_ref()));
        let (name, group, span) = (name.clone(), group.clone(), volume.name.span());
        let read_only = volume.read_only;
        Ok(Volume { name, group, size_bytes, read_only, uuid, path, entry, vhost, ublk, span })
    };
    all(written.iter().map(volume))
}

/// The block device of a volume, of which there is one a number.
fn ublk<'a>(
    source: &Source,
    volume: &'a raw::Volume,
    before: &mut HashMap<u32, &'a str>,
) -> Result<Option<Ublk>, ConfigError> {
    let Some(written) = &volume.ublk else { return Ok(None) };
    let span = written.span();
    let number = match *written.get_ref() {
        raw::RawUblk::Any(true) => None,
        raw::RawUblk::Any(false) => return Ok(None),
        raw::RawUblk::Number(number) => {
            let known = u32::try_from(number).ok().filter(|number| *number < UBLK_DEVICES_MAX);
            let Some(number) = known else {
                let message = format!("there is no /dev/ublkb{number}");
                let allowed = format!("true for any number, or 0 to {}", UBLK_DEVICES_MAX - 1);
                return Err(source.error(span, message).allowed(allowed));
            };
            Some(number)
        }
    };
    if let Some(twin) = number.and_then(|number| before.insert(number, volume.name.get_ref())) {
        let message = format!("volume \"{twin}\" is this block device already");
        return Err(source.error(span, message).allowed("one volume a number"));
    }
    Ok(Some(Ublk { number, span }))
}

/// A volume is a file `NAME.img` of the directory, or has a path of its own that nobody else has.
fn own_paths(
    source: &Source,
    written: &[raw::Volume],
    back: &Back,
    listed: &[PathBuf],
) -> Result<(), ConfigError> {
    let in_directory = back.directory().is_some();
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let check = |volume: &raw::Volume| {
        let Some(path) = &volume.path else {
            let name = volume.name.get_ref();
            if in_directory && name.len() > FILE_NAME_BYTES_MAX {
                let message = format!("volume name of {} bytes as a file name", name.len());
                let allowed = format!("at most {FILE_NAME_BYTES_MAX} bytes, or a path");
                return Err(source.error(volume.name.span(), message).allowed(allowed));
            }
            return Ok(());
        };
        let refuse = |message: &str, allowed: &str| {
            Err(source.error(path.span(), message).allowed(allowed.to_string()))
        };
        if !in_directory {
            let message = "a path of its own for a volume of a drive that volumes share";
            return refuse(message, "path with back = \"directory:...\" only");
        }
        if path.get_ref().is_empty() {
            return refuse("an empty path", "a file or a block device");
        }
        if path.get_ref().ends_with('/') {
            return refuse("the path of a directory", "a file or a block device");
        }
        paths::check(source, path, listed)?;
        // `//` and `/./` are `/`.
        if !seen.insert(Path::new(path.get_ref()).components().collect()) {
            return refuse("another volume has this path", "one volume a path");
        }
        Ok(())
    };
    all(written.iter().map(check)).map(drop)
}
