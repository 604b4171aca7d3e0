//! Contracts for groups of this machine, which the Linux kernel's own controllers enforce (`iofair host`).
//!
//! ```toml
//! [drive]
//! back = "/dev/sda"                   # a disk, partition, device-mapper, md or loop device, or a file on one
//! scheduler = "bfq"                   # optional: none, mq-deadline, kyber, bfq; else what the contracts need
//! worst_case = "160MB/s"              # optional: what the drive keeps at its worst; turns minimums into weights
//! cost = { model = "rbps=500000000 ...", qos = "rpct=95.00 rlat=2500 ..." } # optional, cgroup v2: io.cost instead of bfq
//!
//! [[group]]
//! name = "postgresql.service"         # a systemd unit, or the path of a cgroup such as "system.slice/db.service"
//! min = "10MB/s"
//! weight = 300
//! max = { read = "50MB/s", write_iops = 500 }
//! latency = "10ms"
//! class = "best-effort"
//! ```
//!
//! Groups have the keys of the contract file of a server, without those that only a server can enforce.

use std::ops::Range;
use std::path::Path;

use iofair_core::contract::{Contract, Refusal};
use iofair_core::key::{Field, Key, inside, tops};
use serde::Deserialize;

use super::table::Table;
use super::{admission, check, enforced, raw};
use crate::name::{GROUP_NAMES, is_group_name};
use crate::units::Rate;
use crate::{ConfigError, Source, Spanned};

/// Schedulers of the kernel.
pub const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    drive: Table<RawDrive>,
    #[serde(default)]
    group: Vec<raw::Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDrive {
    back: Spanned<String>,
    scheduler: Option<Spanned<String>>,
    worst_case: Option<Spanned<Rate>>,
    cost: Option<Spanned<Table<RawCost>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCost {
    model: Option<Spanned<String>>,
    qos: Option<Spanned<String>>,
}

/// A contract file for the kernel that passed every check which needs no machine.
#[derive(Clone, Debug)]
pub struct HostContracts {
    /// Path of the device, or of a file on it.
    pub back: String,
    /// The scheduler that the file asks for.
    pub scheduler: Option<&'static str>,
    /// What the drive keeps at its worst, bytes a second.
    pub worst_case: Option<u64>,
    /// Parameters of `io.cost`, if weights are to be enforced by it.
    pub cost: Option<Cost>,
    /// Groups in the order of the file.
    pub groups: Vec<HostGroup>,
    source: Source,
    back_span: Range<usize>,
    scheduler_span: Range<usize>,
}

/// Parameters of `io.cost`, as `key=value` pairs separated by spaces.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    /// For `io.cost.model`; `None`: the kernel's own.
    pub model: Option<String>,
    /// For `io.cost.qos`; `None`: the kernel's own.
    pub qos: Option<String>,
}

/// One group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostGroup {
    /// A unit, or the path of a cgroup.
    pub name: String,
    /// Its contract, with the weight as written.
    pub contract: Contract,
    span: Range<usize>,
}

/// Keys of `io.cost.model` and `io.cost.qos` (`Documentation/admin-guide/cgroup-v2.rst`).
const MODEL: [&str; 8] =
    ["ctrl", "model", "rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"];
const QOS: [&str; 8] = ["enable", "ctrl", "rpct", "rlat", "wpct", "wlat", "min", "max"];

impl HostContracts {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// The place in the file, what is wrong and what is allowed.
    pub fn open(path: &Path) -> Result<Self, ConfigError> {
        Self::checked(Source::open_regular(path)?)
    }
    /// The same with text that is in memory; `path` names it in errors.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn parse(path: &str, text: &str) -> Result<Self, ConfigError> {
        Self::checked(Source::new(path, text))
    }
    /// An error about the device.
    pub fn back_error(&self, message: impl Into<String>) -> ConfigError {
        self.source.error(self.back_span.clone(), message)
    }
    /// An error about the scheduler, or about the device if the file names no scheduler.
    pub fn scheduler_error(&self, message: impl Into<String>) -> ConfigError {
        self.source.error(self.scheduler_span.clone(), message)
    }
    /// An error about a group's name.
    pub fn group_error(&self, group: &HostGroup, message: impl Into<String>) -> ConfigError {
        self.source.error(group.span.clone(), message)
    }
    /// The weights that keep the minimums of `groups` (paths and contracts of this file, ancestors included) in the drive's
    /// worst case. `None` if the file has no `worst_case`, unless each group with a minimum has `alone`: then only parts of
    /// the drive's time count.
    ///
    /// # Errors
    ///
    /// An error at the drive: the drive cannot keep the minimums together.
    pub fn admit<'a>(
        &self,
        groups: impl IntoIterator<Item = (&'a str, &'a Contract)>,
    ) -> Result<Option<admission::Admitted>, ConfigError> {
        let contracts = self.groups.iter().map(|group| &group.contract);
        let mut minimums = contracts.filter(|contract| contract.min.is_some()).peekable();
        let parts = minimums.peek().is_some() && minimums.all(|contract| contract.alone.is_some());
        let Some(worst_case) = self.worst_case.or(parts.then_some(admission::ANY)) else {
            return Ok(None);
        };
        let refuse = |refusal: Refusal| self.back_error(refusal.to_string());
        admission::admitted(groups, worst_case).map(Some).map_err(refuse)
    }

    fn checked(source: Source) -> Result<Self, ConfigError> {
        let file: File = source
            .parse()
            .map_err(|error| enforced::without_unenforced(error, &iofair_policies::TABLE))?;
        let drive = &file.drive;
        if !drive.back.get_ref().starts_with('/') {
            let message = format!("\"{}\" is not a path on this machine", drive.back.get_ref());
            let allowed = "\"/dev/...\", or the absolute path of a file or directory on the drive";
            return Err(source.error(drive.back.span(), message).allowed(allowed));
        }
        let scheduler = drive.scheduler.as_ref().map(|written| scheduler(&source, written));
        if let Some(rate) = drive.worst_case.as_ref().filter(|rate| rate.get_ref().0 == 0) {
            let error = source.error(rate.span(), "a worst case of nothing");
            return Err(error.allowed("more than 0B/s"));
        }
        let cost = drive.cost.as_ref().map(|written| cost(&source, written)).transpose()?;
        let scheduler = scheduler.transpose()?;
        if let (Some("bfq"), Some(written)) = (scheduler, &drive.cost) {
            let message = "bfq and io.cost both enforce weights; one of them is enough";
            let error = source.error(written.span(), message);
            return Err(error.allowed("another scheduler, or no `cost`"));
        }
        let groups = groups(&source, &file.group)?;
        let back_span = drive.back.span();
        let scheduler_span = drive.scheduler.as_ref().map_or(back_span.clone(), Spanned::span);
        Ok(Self {
            back: drive.back.get_ref().clone(),
            scheduler,
            worst_case: drive.worst_case.as_ref().map(|rate| rate.get_ref().0),
            cost,
            groups,
            source,
            back_span,
            scheduler_span,
        })
    }
}

fn scheduler(source: &Source, written: &Spanned<String>) -> Result<&'static str, ConfigError> {
    let text = written.get_ref();
    SCHEDULERS.into_iter().find(|name| name == text).ok_or_else(|| {
        let error = source.error(written.span(), format!("\"{text}\" is no scheduler of Linux"));
        error.allowed(SCHEDULERS.join(", ")).near(text, SCHEDULERS)
    })
}

fn cost(source: &Source, written: &Spanned<Table<RawCost>>) -> Result<Cost, ConfigError> {
    let pairs = |text: &Option<Spanned<String>>, known: [&'static str; 8]| {
        let Some(text) = text else { return Ok(None) };
        for pair in text.get_ref().split_whitespace() {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&key) {
                let message = format!("`{key}` is no parameter of io.cost");
                let error = source.error(text.span(), message).allowed(known.join(", "));
                return Err(error.near(key, known));
            }
            let word = matches!(key, "ctrl" | "model");
            if value.is_empty() || (!word && value.parse::<f64>().is_err()) {
                let error = source.error(text.span(), format!("{key}={value} has no number"));
                return Err(error.allowed("key=number pairs, separated by spaces"));
            }
        }
        Ok(Some(text.get_ref().clone()))
    };
    let RawCost { model, qos } = &**written.get_ref();
    Ok(Cost { model: pairs(model, MODEL)?, qos: pairs(qos, QOS)? })
}

fn groups(source: &Source, written: &[raw::Group]) -> Result<Vec<HostGroup>, ConfigError> {
    let mut groups: Vec<HostGroup> = Vec::new();
    for group in written {
        let name = group.name.get_ref();
        if !is_group_name(name) {
            let error =
                source.error(group.name.span(), format!("{name:?} is not a valid group name"));
            return Err(error.allowed(format!(
                "a systemd unit such as \"db.service\", \"machine:NAME\", \"container:ID\", or the path of a cgroup \
                 below the root, such as \"system.slice/db.service\"; {GROUP_NAMES}"
            )));
        }
        if let Some(first) = groups.iter().find(|group| group.name == *name) {
            let line = source.error(first.span.clone(), "").line();
            let message = format!("group \"{name}\" is there already, in line {line}");
            return Err(source.error(group.name.span(), message).allowed("one [[group]] a name"));
        }
        supported(source, group)?;
        let contract = check::contract(source, &group.keys)?;
        groups.push(HostGroup { name: name.clone(), contract, span: group.name.span() });
    }
    Ok(groups)
}

/// Refuses keys of a group that no controller of the kernel enforces.
fn supported(source: &Source, group: &raw::Group) -> Result<(), ConfigError> {
    let is_refused = |key: Key| matches!(key, Key::Low | Key::MinIops);
    let refuse = |span: Range<usize>, key: &str| {
        let who = if key == "low" { "the laboratory's policies" } else { "iofair's own server" };
        let message = format!("`{key}` is only enforced by {who}");
        let others = Key::ALL.into_iter().filter(|key| is_refused(*key)).map(Key::word);
        let others: Vec<&str> = others.collect();
        let known = tops().filter(|top| !others.contains(top));
        let allowed: Vec<&str> = ["name"].into_iter().chain(known).collect();
        Err(source.error(span, message).allowed(allowed.join(", ")))
    };
    if let Some(client) = group.clients.first() {
        return refuse(client.span(), "clients");
    }
    if let Some(count) = &group.connections {
        return refuse(count.span(), "connections");
    }
    for (field, _) in group.keys.written() {
        let span = || group.keys.span(field.top()).expect("it is written");
        match field.enforced_as {
            Some(key) if is_refused(key) => return refuse(span(), field.top()),
            Some(Key::MaxTotal | Key::MaxBurst) => {
                let message = "Linux limits reads and writes each, with a burst of its own";
                let allowed = inside("max").filter(|field| field.enforced_as == Some(Key::Max));
                let allowed: Vec<&str> = allowed.filter_map(Field::inner).collect();
                return Err(source.error(span(), message).allowed(allowed.join(", ")));
            }
            Some(Key::LatencyWrite | Key::LatencySync) => {
                let message = "Linux has one latency for all requests of a group";
                return Err(source
                    .error(span(), message)
                    .allowed("a time, as in \"10ms\", or read"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(text: &str) -> ConfigError {
        HostContracts::parse("host.toml", text).expect_err(text)
    }

    /// Goal: a whole file is read. Method: every key once.
    #[test]
    fn every_key_is_read() {
        let text = "[drive]\nback = '/dev/sda'\nscheduler = 'mq-deadline'\nworst_case = '100MB/s'\n\
                    cost = { model = 'ctrl=user model=linear rbps=1000', qos = 'rpct=95.00 rlat=2500' }\n\
                    [[group]]\nname = 'db.service'\nmin = '10MB/s'\nalone = '20MB/s'\nweight = 300\n\
                    max = { read = '50MB/s', write_iops = 500 }\nlatency = '10ms'\nclass = 'idle'\n";
        let read = HostContracts::parse("host.toml", text).expect("a good file");
        assert_eq!((read.scheduler, read.worst_case), (Some("mq-deadline"), Some(100_000_000)));
        assert_eq!(
            read.cost.clone().and_then(|cost| cost.qos).as_deref(),
            Some("rpct=95.00 rlat=2500")
        );
        assert_eq!(read.groups[0].contract.weight, 300);
        assert_eq!(read.back_error("").line(), 2);
        assert_eq!(read.scheduler_error("").line(), 3);
        assert_eq!(read.group_error(&read.groups[0], "").line(), 7);
    }

    /// Goal: a mistake is told with its line, what is allowed and the nearest word. Method: one of each.
    #[test]
    fn mistakes_are_told_with_their_place() {
        for (keys, line, message, allowed) in [
            ("back = 'sda'", 2, "is not a path", "/dev/"),
            ("back = '/dev/sda'\nscheduler = 'bfk'", 3, "no scheduler of Linux", "bfq"),
            ("back = '/dev/sda'\nstack = 'promise'", 3, "unknown key `stack`", "scheduler"),
            ("back = '/dev/sda'\nworst_case = '0B/s'", 3, "worst case of nothing", "more than"),
            ("back = '/dev/sda'\ncost = { qos = 'rlt=5' }", 3, "no parameter of io.cost", "rlat"),
            ("back = '/dev/sda'\ncost = { qos = 'rlat=x' }", 3, "has no number", "key=number"),
            ("back = '/dev/sda'\nscheduler = 'bfq'\ncost = {}", 4, "one of them", "no `cost`"),
        ] {
            let error = refuse(&format!("[drive]\n{keys}\n"));
            assert_eq!(error.line(), line, "{error}");
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.allowed.clone().unwrap_or_default().contains(allowed), "{error}");
        }
        for (keys, message) in [
            ("name = '../a'", "is not a valid group name"),
            ("name = '/a'", "is not a valid group name"),
            ("name = '-a'", "is not a valid group name"),
            ("name = 'a'\nclients = ['uid:0']", "`clients` is only"),
            ("name = 'a'\nmin_iops = 5", "`min_iops` is only"),
            ("name = 'a'\nlow = '1MB/s'", "`low` is only enforced by the laboratory"),
            ("name = 'a'\nwait = 1", "weight, max, latency"),
            ("name = 'a'\nlow = '1MB/s'", "allowed: name, min, alone, weight, max, latency, class"),
            ("name = 'a'\nmax = { total = '5MB/s' }", "reads and writes each"),
            ("name = 'a'\nweight = 0", "weight 0 is out of range"),
            ("name = 'a'\n[[group]]\nname = 'a'", "there already"),
        ] {
            let error = refuse(&format!("[drive]\nback = '/dev/sda'\n[[group]]\n{keys}\n"));
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.line() >= 4, "{error}");
        }
    }

    /// Goal: minimums become weights against the worst case, and too many are refused. Method: two groups of one level.
    #[test]
    fn minimums_become_weights() {
        let text = "[drive]\nback = '/dev/sda'\nworst_case = '100MB/s'\n\
                    [[group]]\nname = 'a'\nmin = '60MB/s'\n[[group]]\nname = 'b'\n";
        let of = |read: &HostContracts| {
            let pairs = read.groups.iter().map(|group| (group.name.as_str(), &group.contract));
            read.admit(pairs)
        };
        let read = HostContracts::parse("host.toml", text).expect("a good file");
        let admitted = of(&read).expect("fits").expect("a worst case");
        let weight = |name: &str| {
            let found = admitted.iter().find(|group| group.0 == name);
            found.expect("is there").1.weight
        };
        assert!(weight("a") * 10 >= (weight("a") + weight("b")) * 6);
        let read = HostContracts::parse("host.toml", &text.replace("'60MB/s'", "'160MB/s'"));
        let error = of(&read.expect("parses")).expect_err("too much");
        assert_eq!(error.line(), 2, "{error}");
    }
}
