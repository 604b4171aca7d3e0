//! The options: which there are, and what each sets.

use iofair_core::time::Nanos;

use super::values::{self, block, for_directions, number, range, size, time};
use super::{Blocks, DEPTH_MAX, Direction, Engine, NUMJOBS_MAX, Settings, Written};
use crate::error::ConfigError;
use crate::source::Source;

/// Options with a meaning here.
pub const SUPPORTED: &[&str] = &[
    "blocksize",
    "blocksize_range",
    "bs",
    "bsrange",
    "bssplit",
    "buffered",
    "cgroup",
    "cgroup_weight",
    "description",
    "direct",
    "directory",
    "fdatasync",
    "filename",
    "filename_format",
    "fsync",
    "group_reporting",
    "io_limit",
    "io_size",
    "iodepth",
    "ioengine",
    "kb_base",
    "latency_percentile",
    "latency_run",
    "latency_target",
    "latency_window",
    "log_avg_msec",
    "loops",
    "name",
    "new_group",
    "norandommap",
    "number_ios",
    "numjobs",
    "offset",
    "offset_increment",
    "prio",
    "prioclass",
    "ramp_time",
    "random_distribution",
    "randrepeat",
    "randseed",
    "rate",
    "rate_iops",
    "readwrite",
    "runtime",
    "rw",
    "rw_sequencer",
    "rwmixread",
    "rwmixwrite",
    "size",
    "startdelay",
    "stonewall",
    "thinktime",
    "thinktime_blocks",
    "time_based",
    "wait_for_previous",
];

/// Options that change nothing that is modelled: how fio makes files and data, keeps time, starts its workers and prints.
pub const IGNORED: &[&str] = &[
    "allow_file_create",
    "allrandrepeat",
    "buffer_compress_percentage",
    "buffer_pattern",
    "cgroup_nodelete",
    "clat_percentiles",
    "clocksource",
    "create_fsync",
    "create_on_open",
    "create_serialize",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "fallocate",
    "gtod_reduce",
    "invalidate",
    "lat_percentiles",
    "overwrite",
    "per_job_logs",
    "percentile_list",
    "random_generator",
    "refill_buffers",
    "scramble_buffers",
    "slat_percentiles",
    "softrandommap",
    "thread",
    "unit_base",
    "unlink",
    "uri",
    "write_bw_log",
    "write_iops_log",
    "write_lat_log",
    "zero_buffers",
];

/// Engines of one call at a time, and of several.
const SYNCHRONOUS: &[&str] = &["sync", "psync", "vsync", "pvsync", "pvsync2"];
const ASYNCHRONOUS: &[&str] = &["libaio", "io_uring", "posixaio", "nbd"];

/// Why a value was refused.
pub(super) struct Bad {
    message: String,
    allowed: Option<String>,
    near: Option<(String, Vec<&'static str>)>,
    /// About the option's name, not its value.
    about_name: bool,
}

impl Bad {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), allowed: None, near: None, about_name: false }
    }
    pub(super) fn allowed(mut self, what: impl Into<String>) -> Self {
        self.allowed = Some(what.into());
        self
    }
    fn near(mut self, written: &str, candidates: impl IntoIterator<Item = &'static str>) -> Self {
        self.near = Some((written.to_owned(), candidates.into_iter().collect()));
        self
    }
    /// Without a place.
    pub(super) fn into_message(self) -> String {
        match self.allowed {
            Some(allowed) => format!("{}; allowed: {allowed}", self.message),
            None => self.message,
        }
    }
    pub(super) fn at(self, source: &Source, written: &Written) -> ConfigError {
        let span = if self.about_name { written.key.clone() } else { written.place.clone() };
        let message = match self.about_name {
            true => self.message,
            false => format!("option `{}`: {}", written.name, self.message),
        };
        let mut error = source.error(span, message);
        if let Some(allowed) = self.allowed {
            error = error.allowed(allowed);
        }
        match self.near {
            Some((word, candidates)) => error.near(&word, candidates),
            None => error,
        }
    }
}

/// One name for each option.
pub(super) fn canonical(name: &str) -> &str {
    match name {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "wait_for_previous" => "stonewall",
        "io_limit" => "io_size",
        "allrandrepeat" => "randrepeat",
        other => other,
    }
}

/// A word among several.
fn word<T: Copy>(text: &str, known: &[(&'static str, T)]) -> Result<T, Bad> {
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&'static str> = known.iter().map(|(name, _)| *name).collect();
        Bad::new(format!("`{text}` is not one of its values"))
            .allowed(names.join(", "))
            .near(text, names)
    })
}

/// `1`, `0`, or nothing, which is 1.
fn flag(text: &str) -> Result<bool, Bad> {
    match text {
        "" | "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(Bad::new(format!("`{text}` is neither yes nor no")).allowed("1 or 0")),
    }
}

fn within(value: u64, low: u64, high: u64) -> Result<u64, Bad> {
    match (low..=high).contains(&value) {
        true => Ok(value),
        false => {
            Err(Bad::new(format!("{value} is out of range")).allowed(format!("{low} to {high}")))
        }
    }
}

const SECOND: Nanos = Nanos::from_secs(1);
const MICROSECOND: Nanos = Nanos::from_micros(1);
const MILLISECOND: Nanos = Nanos::from_millis(1);

/// Sets what an option says.
pub(super) fn apply(to: &mut Settings, name: &str, value: &str) -> Result<(), Bad> {
    if IGNORED.contains(&name) && name != "allrandrepeat" {
        return Ok(());
    }
    let flags = [
        "time_based",
        "stonewall",
        "new_group",
        "group_reporting",
        "buffered",
        "direct",
        "norandommap",
        "latency_run",
        "randrepeat",
    ];
    let canonical = canonical(name);
    if value.is_empty() && SUPPORTED.contains(&name) && !flags.contains(&canonical) {
        return Err(Bad::new("a value is missing"));
    }
    let known = calls(to, canonical, value)?
        || amounts(to, canonical, value)?
        || times(to, canonical, value)?
        || others(to, canonical, value)?;
    match known {
        true => Ok(()),
        false => Err(Bad { about_name: true, ..Bad::new(format!("unsupported option `{name}`")) }
            .allowed(SUPPORTED.join(", "))
            .near(name, SUPPORTED.iter().chain(IGNORED).copied())),
    }
}

/// What calls do. `false`: another option.
fn calls(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let base = to.kb_base;
    match name {
        "rw" => {
            let (pattern, modifier) = match value.split_once(':') {
                Some((pattern, modifier)) => (pattern, Some(number(modifier, base)?)),
                None => (value, None),
            };
            use Direction::{Mixed, Read, Trim, TrimWrite, Write};
            (to.direction, to.random) = word(
                pattern,
                &[
                    ("read", (Read, false)),
                    ("write", (Write, false)),
                    ("trim", (Trim, false)),
                    ("randread", (Read, true)),
                    ("randwrite", (Write, true)),
                    ("randtrim", (Trim, true)),
                    ("rw", (Mixed, false)),
                    ("readwrite", (Mixed, false)),
                    ("randrw", (Mixed, true)),
                    ("trimwrite", (TrimWrite, false)),
                    ("randtrimwrite", (TrimWrite, true)),
                ],
            )?;
            to.modifier = modifier.filter(|it| *it > 0);
            if to.modifier.is_some_and(|it| !to.random && it % 512 != 0) {
                return Err(Bad::new("a gap is a number of sectors of 512 bytes"));
            }
        }
        "rw_sequencer" => {
            to.identical = word(value, &[("sequential", false), ("identical", true)])?
        }
        "bs" => {
            for_directions(value, &mut to.blocks, |text| block(text, base).map(Blocks::Fixed))?;
        }
        "bsrange" => for_directions(value, &mut to.blocks, |text| {
            let (low, high) = range(text, |end| block(end, base))?;
            Ok(if low == high { Blocks::Fixed(low) } else { Blocks::Range(low, high) })
        })?,
        "bssplit" => {
            for_directions(value, &mut to.blocks, |text| values::read_split(text, base))?;
        }
        "iodepth" => to.depth = within(number(value, base)?, 1, DEPTH_MAX)? as u32,
        "ioengine" => {
            let known = SYNCHRONOUS.iter().map(|it| (*it, Engine::Synchronous));
            let known = known.chain(ASYNCHRONOUS.iter().map(|it| (*it, Engine::Asynchronous)));
            to.engine = word(value, &known.collect::<Vec<_>>())?;
        }
        "direct" => to.direct = flag(value)?,
        "buffered" => to.direct = !flag(value)?,
        "norandommap" => to.random_map = !flag(value)?,
        "rwmixread" => to.reads = within(number(value, base)?, 0, 100)? as u32,
        "rwmixwrite" => to.reads = 100 - within(number(value, base)?, 0, 100)? as u32,
        "random_distribution" => to.distribution = values::read_distribution(value)?,
        "fsync" => to.fsync = within(number(value, base)?, 0, u64::from(u32::MAX))? as u32,
        "fdatasync" => to.fdatasync = within(number(value, base)?, 0, u64::from(u32::MAX))? as u32,
        _ => return Ok(false),
    }
    Ok(true)
}

/// How much.
fn amounts(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let base = to.kb_base;
    match name {
        "numjobs" => to.clones = within(number(value, base)?, 1, NUMJOBS_MAX)? as u32,
        "size" => to.size = Some(size(value, base)?),
        "io_size" => to.io_size = Some(size(value, base)?),
        "number_ios" => to.number_ios = Some(within(number(value, base)?, 1, u64::MAX)?),
        "loops" => to.loops = within(number(value, base)?, 1, 1 << 32)?,
        "offset" => to.offset = size(value, base)?,
        "offset_increment" => to.offset_increment = size(value, base)?,
        "rate" | "rate_iops" => {
            let rates = if name == "rate" { &mut to.rate } else { &mut to.rate_iops };
            for_directions(
                value,
                rates,
                |text| Ok(Some(number(text, base)?).filter(|it| *it > 0)),
            )?;
        }
        "prio" => to.prio = Some(within(number(value, base)?, 0, 7)? as u8),
        "prioclass" => to.prio_class = Some(within(number(value, base)?, 1, 3)? as u8),
        "cgroup_weight" => {
            to.cgroup_weight = Some(within(number(value, base)?, 1, 1_000)? as u32);
        }
        "randseed" => to.seed = Some(number(value, base)?),
        "randrepeat" => to.repeat_seed = flag(value)?,
        "kb_base" => to.kb_base = word(value, &[("1000", 1000), ("1024", 1024)])?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// How long.
fn times(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    match name {
        "runtime" => to.runtime = Some(time(value, SECOND)?).filter(|it| it.0 > 0),
        "time_based" => to.time_based = flag(value)?,
        "ramp_time" => to.ramp = time(value, SECOND)?,
        "startdelay" => to.start_delay = range(value, |text| time(text, SECOND))?,
        "thinktime" => to.think = time(value, MICROSECOND)?,
        "thinktime_blocks" => {
            to.think_blocks = within(number(value, to.kb_base)?, 1, u64::from(u32::MAX))? as u32;
        }
        "latency_target" => {
            to.latency_target = Some(time(value, MICROSECOND)?).filter(|it| it.0 > 0);
        }
        "latency_window" => {
            to.latency_window = Some(time(value, MICROSECOND)?).filter(|it| it.0 > 0);
        }
        "latency_percentile" => {
            let percent = value.parse::<f64>().ok().filter(|it| *it > 0.0 && *it <= 100.0);
            let bad = || Bad::new(format!("`{value}` is not a percentage"));
            let percent = percent.ok_or_else(|| bad().allowed("more than 0 and at most 100"))?;
            to.latency_per_million = (percent * 10_000.0).round() as u32;
        }
        "latency_run" => to.latency_run = flag(value)?,
        "log_avg_msec" => to.log_window = Some(time(value, MILLISECOND)?).filter(|it| it.0 > 0),
        _ => return Ok(false),
    }
    Ok(true)
}

fn others(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let text = || Some(value.to_owned());
    match name {
        "name" => to.name = text(),
        "description" => to.description = text(),
        "stonewall" => to.stonewall = flag(value)?,
        "new_group" => to.new_group = flag(value)?,
        "group_reporting" => to.group_reporting = flag(value)?,
        "cgroup" => {
            let path = value.trim_matches('/');
            let good = !path.is_empty() && path.split('/').all(|it| !it.is_empty() && it != "..");
            if !good || path.contains(char::is_whitespace) {
                return Err(Bad::new(format!("`{value}` is not the path of a group")));
            }
            to.cgroup = Some(path.to_owned());
        }
        "filename" | "filename_format" => {
            if value.replace("\\:", "").contains(':') {
                let bad = Bad::new("several files of a job are not modelled");
                return Err(bad.allowed("one file or device"));
            }
            to.file = text();
        }
        "directory" => to.directory = text(),
        _ => return Ok(false),
    }
    Ok(true)
}
