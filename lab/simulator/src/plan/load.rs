//! Loads of clients: those that a person expects, and those that every plan tries.
//!
//! All are written with the keys of a client in an experiment file, and read by the same code.

use std::collections::BTreeMap;

use iofair_config::{ConfigError, Source, Spanned};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use serde::{Deserialize, Serialize};

use crate::client_file::ClientFile;
use crate::processes::processes;
use crate::scenario::{ClientSpec, Manner, Mix, Pattern};

/// Keys of a client that a load cannot have, and where they belong instead.
const REFUSED: &str =
    "contracts belong into the contract file, and the other keys of a client have no meaning here";
const ALLOWED: &str = "group, count, job, block, buffered, depth, rate, fdatasync, on_off, think, size, program, pauses, \
                       sync_writes, metadata, interleaved, guest";
/// Load that admission assumes of a client of which nothing is known.
const SLOWEST: &str = "job = 'randread'";
/// Loads that a latency of reads, of writes, or of flushes is tested with.
pub(super) const PROBES: [&str; 3] =
    [SLOWEST, "job = 'randwrite'\nbuffered = false", "job = 'randwrite'\nfdatasync = 1"];

/// Load of a client's neighbours in one worst mix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Neighbours {
    /// A short name.
    pub name: &'static str,
    /// In words.
    pub about: &'static str,
    /// Keys of a client.
    pub keys: &'static str,
    /// Keys of every second of them, if these do something else.
    pub second: Option<&'static str>,
}

impl Neighbours {
    const fn new(name: &'static str, about: &'static str, keys: &'static str) -> Self {
        Self { name, about, keys, second: None }
    }
}

const READS: &str = "job = 'read'\nblock = '256KiB'\nbuffered = false\ndepth = 32";
const WRITES: &str = "job = 'write'\nblock = '256KiB'\nbuffered = false\ndepth = 32";

/// Neighbours that are tried: all clients of the other groups have this load at once, without a pause unless it has
/// one.
pub const NEIGHBOURS: &[Neighbours] = &[
    Neighbours::new("slow reads", "4 KiB random reads at depth 1", SLOWEST),
    Neighbours::new("reads", "sequential reads of 256 KiB at depth 32", READS),
    Neighbours::new(
        "buffered reads",
        "four buffered sequential readers",
        "job = 'read'\ncount = 4",
    ),
    Neighbours::new(
        "random reads",
        "4 KiB random reads at depth 32",
        "job = 'randread'\nbuffered = false\ndepth = 32",
    ),
    Neighbours::new("writes", "sequential writes of 256 KiB at depth 32", WRITES),
    Neighbours::new("buffered writes", "four buffered writers", "job = 'write'\ncount = 4"),
    Neighbours::new(
        "random writes",
        "4 KiB random writes at depth 32",
        "job = 'randwrite'\nbuffered = false\ndepth = 32",
    ),
    Neighbours::new(
        "fdatasync",
        "four writers that call fdatasync after every 4 KiB",
        "job = 'write'\nfdatasync = 1\ncount = 4",
    ),
    Neighbours::new(
        "bursts",
        "writes of 256 KiB at depth 32 for about 200 ms, then a rest of about 300 ms",
        "job = 'write'\nblock = '256KiB'\nbuffered = false\ndepth = 32\non_off = ['200ms', '300ms']",
    ),
    Neighbours {
        name: "reads and writes",
        about: "every second one reads, the others write: 256 KiB at depth 32",
        keys: READS,
        second: Some(WRITES),
    },
];

/// Loads of which the slowest that reaches `alone` of a contract stands for its group.
pub(super) const LADDER: &[&str] = &[
    SLOWEST,
    "job = 'randread'\nbuffered = false\ndepth = 4",
    "job = 'randread'\nbuffered = false\ndepth = 16",
    "job = 'randread'\nbuffered = false\ndepth = 64",
    "job = 'randread'\nblock = '64KiB'\nbuffered = false\ndepth = 4",
    READS,
];

/// Load of the clients of a group.
#[derive(Clone, Debug)]
pub struct Load {
    /// In words.
    pub text: String,
    /// Its processes, of no group yet.
    pub(super) specs: Vec<ClientSpec>,
    /// Whether the size of the files is given.
    sized: bool,
}

impl Load {
    /// From the keys of a client, which are good.
    pub(super) fn from_keys(keys: &str) -> Self {
        let source = Source::new("a load", keys);
        let read = || {
            let mut file: ClientFile = source.parse()?;
            file.name = Some(Spanned::new(0..0, "client".to_owned()));
            Self::read(&source, &file)
        };
        read().unwrap_or_else(|error| panic!("a test reads every one of them: {error}"))
    }
    fn read(source: &Source, keys: &ClientFile) -> Result<Self, ConfigError> {
        let specs = processes(source, keys, "")?;
        let text = specs.first().map_or("nothing".to_owned(), |spec| words(spec, specs.len()));
        Ok(Self { text, specs, sized: keys.size.is_some() })
    }
    fn and(&mut self, other: Self) {
        self.text = format!("{} and {}", self.text, other.text);
        self.specs.extend(other.specs);
        self.sized |= other.sized;
    }
    /// Do its clients pause, so that they may ask for less than they could get?
    pub(super) fn is_paced(&self) -> bool {
        let paced = |spec: &ClientSpec| {
            let job = &spec.job;
            job.rate.is_some() || job.on_off.is_some() || job.think.0 > 0
        };
        self.specs.iter().all(paced)
    }
    /// With a pause between calls.
    pub(super) fn set_think(&mut self, think: Nanos) {
        self.specs.iter_mut().for_each(|spec| spec.job.think = think);
        self.text =
            self.specs.first().map_or_else(String::new, |spec| words(spec, self.specs.len()));
    }
    /// Its processes in this group, whose volumes have `space_bytes`.
    pub(super) fn in_group(&self, group: &str, space_bytes: u64) -> Vec<ClientSpec> {
        let mut specs = self.specs.clone();
        let each = Sectors::from_kib(4 * (space_bytes / 4096 / specs.len().max(1) as u64));
        for spec in &mut specs {
            spec.group = group.to_owned();
            if !self.sized && !matches!(spec.manner, Manner::Startup(_)) {
                spec.file_size = each.max(spec.job.block);
            }
        }
        specs
    }
}

/// A job in words.
fn words(spec: &ClientSpec, processes: usize) -> String {
    let job = &spec.job;
    let pattern = match (job.calls.mix, job.pattern) {
        (Mix::ReadsAndWrites { .. }, Pattern::SequentialWrite) => "rw",
        (Mix::ReadsAndWrites { .. }, _) => "randrw",
        (Mix::Trims, Pattern::SequentialWrite) => "trim",
        (Mix::Trims, _) => "randtrim",
        (_, Pattern::SequentialRead) => "read",
        (_, Pattern::SequentialWrite) => "write",
        (_, Pattern::RandomRead) => "randread",
        (_, Pattern::RandomWrite) => "randwrite",
    };
    let mut text = match &spec.manner {
        Manner::Startup(_) => "startup".to_owned(),
        Manner::Copy => format!("copy {}", size(job.block.bytes())),
        Manner::Program(_) => "program".to_owned(),
        _ => format!("{pattern} {}", size(job.block.bytes())),
    };
    if job.depth > 1 {
        text += &format!(" depth {}", job.depth);
    }
    if job.buffered && job.pattern != Pattern::RandomRead {
        text += " buffered";
    }
    if let Some(rate) = job.rate {
        text += &format!(" at {} MB/s", rate as f64 / 1e6);
    }
    if job.think.0 > 0 {
        text += &format!(" think {}", job.think);
    }
    if job.on_off.is_some() {
        text += " in bursts";
    }
    if job.fdatasync_every > 0 {
        text += &format!(" fdatasync {}", job.fdatasync_every);
    }
    if processes > 1 { format!("{processes} x {text}") } else { text }
}

fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

/// Expected loads by group, with the place of the first table of each.
#[derive(Clone, Default, Debug)]
pub struct Loads {
    pub(super) of: BTreeMap<String, (Load, ConfigError)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadFile {
    #[serde(default)]
    load: Vec<Spanned<ClientFile>>,
}

impl Loads {
    /// Reads a load file and adds its loads. Several tables of one group act together.
    ///
    /// # Errors
    ///
    /// Tables without a group, keys that a load cannot have, and what an experiment file would refuse.
    pub fn add(&mut self, source: &Source) -> Result<(), ConfigError> {
        let file: LoadFile = source.parse()?;
        let mut found: BTreeMap<String, (Load, ConfigError)> = BTreeMap::new();
        for table in &file.load {
            let at = |message: String| source.error(table.span(), message);
            let mut keys = table.get_ref().clone();
            let Some(group) = keys.group.clone() else {
                return Err(at("a [[load]] without `group`".into())
                    .allowed("group = \"PATH\" of a group of the contract file"));
            };
            if let Some(key) = refused(&keys) {
                let message = format!("`{key}` is no key of a load: {REFUSED}");
                return Err(at(message).allowed(ALLOWED));
            }
            if keys.count == Some(0) {
                return Err(
                    at(format!("a load of group \"{group}\" has no process")).allowed("1 or more")
                );
            }
            keys.name = Some(Spanned::new(table.span(), group.clone()));
            let load = Load::read(source, &keys)?;
            match found.get_mut(&group) {
                Some((first, _)) => first.and(load),
                None => {
                    let unknown = at(format!("there is no group \"{group}\""));
                    found.insert(group, (load, unknown));
                }
            }
        }
        self.of.extend(found);
        Ok(())
    }
    /// Adds `GROUP=JOB` with further keys after commas, such as `vm=randread,block=8KiB,depth=4`.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub fn expect(&mut self, written: &str) -> Result<(), ConfigError> {
        let name = format!("--expect {written}");
        let wrong = |message: &str| {
            let example =
                "GROUP=JOB, with further keys after commas, as in vm=randread,block=8KiB,depth=4";
            ConfigError::whole_file(&name, message).allowed(example)
        };
        let Some((group, job)) = written.split_once('=') else {
            return Err(wrong("no `=` in it"));
        };
        let (job, keys) = job.split_once(',').unwrap_or((job, ""));
        let mut text = format!("[[load]]\ngroup = {group:?}\njob = {job:?}\n");
        for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(wrong(&format!("no `=` in `{pair}`")));
            };
            let plain = value.parse::<u32>().is_ok() || value.parse::<bool>().is_ok();
            text +=
                &if plain { format!("{key} = {value}\n") } else { format!("{key} = {value:?}\n") };
        }
        self.add(&Source::new(&name, &text))
    }
}

/// The first key that a load cannot have.
fn refused(keys: &ClientFile) -> Option<&'static str> {
    let any = [
        ("name", keys.name.is_some()),
        ("inactive", keys.inactive.is_some()),
        ("on_drive", keys.on_drive.is_some()),
        ("start", keys.start.is_some()),
        ("stop", keys.stop.is_some()),
        ("class", keys.class.is_some()),
        ("level", keys.level.is_some()),
    ];
    let own = any.into_iter().find(|(_, is_there)| *is_there).map(|(key, _)| key);
    own.or_else(|| keys.contract.tops().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every load that a plan tries by itself is good, and is told in words. Method: all of them.
    #[test]
    fn loads_of_a_plan_are_read() {
        for neighbours in NEIGHBOURS {
            for keys in [Some(neighbours.keys), neighbours.second].into_iter().flatten() {
                assert!(!Load::from_keys(keys).specs.is_empty(), "{}", neighbours.name);
            }
        }
        let told: Vec<String> = LADDER.iter().map(|keys| Load::from_keys(keys).text).collect();
        assert_eq!(told[..2], ["randread 4KiB", "randread 4KiB depth 4"]);
        assert_eq!(Load::from_keys(NEIGHBOURS[7].keys).text, "4 x write 4KiB buffered fdatasync 1");
        assert!(
            Load::from_keys(NEIGHBOURS[8].keys).is_paced() && !Load::from_keys(SLOWEST).is_paced()
        );
    }

    /// Goal: expected loads are read with the keys of an experiment, and mistakes name their place and what is allowed. Method:
    /// good texts, and one mistake of each kind.
    #[test]
    fn expected_loads_are_read() {
        let mut loads = Loads::default();
        let text = "[[load]]\ngroup = 'a'\njob = 'read'\n[[load]]\ngroup = 'a'\njob = 'write'\ncount = 2\n\
                    [[load]]\ngroup = 'b/c'\njob = 'randread'\nblock = '8KiB'\nbuffered = false\ndepth = 4\nrate = '5MB/s'\n";
        loads.add(&Source::new("loads.toml", text)).expect("good");
        assert_eq!(loads.of["a"].0.text, "read 4KiB buffered and 2 x write 4KiB buffered");
        assert_eq!(loads.of["a"].0.specs.len(), 3);
        assert_eq!(loads.of["b/c"].0.text, "randread 8KiB depth 4 at 5 MB/s");
        loads.expect("b/c=randwrite,block=16KiB,depth=2,buffered=false,think=1ms").expect("good");
        assert_eq!(loads.of["b/c"].0.text, "randwrite 16KiB depth 2 think 1ms");
        for (wrong, place, told) in [
            ("[[load]]\njob = 'read'\n", 1, "without `group`"),
            ("[[load]]\ngroup = 'a'\n", 1, "has no `job`"),
            (
                "\n[[load]]\ngroup = 'a'\njob = 'read'\nmin = '1MB/s'\n",
                2,
                "`min` is no key of a load",
            ),
            ("[[load]]\ngroup = 'a'\njob = 'read'\ncount = 0\n", 1, "no process"),
            ("[[load]]\ngroup = 'a'\njobs = 'read'\n", 3, "unknown key `jobs`"),
            ("[[load]]\ngroup = 'a'\njob = 'read'\ndepth = 4\n", 1, "needs `buffered = false`"),
        ] {
            let error = Loads::default().add(&Source::new("l.toml", wrong)).expect_err(wrong);
            assert_eq!(error.line(), place, "{error}");
            assert!(error.to_string().contains(told), "{error}");
        }
        for (wrong, told) in [
            ("a", "no `=` in it"),
            ("a=read,b", "no `=` in `b`"),
            ("a=reed", "did you mean `read`"),
        ] {
            let error = Loads::default().expect(wrong).expect_err(wrong).to_string();
            assert!(
                error.contains(told) && error.contains(&format!("--expect {wrong}")),
                "{error}"
            );
        }
    }
}
