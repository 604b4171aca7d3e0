//! The options: which there are, and what each sets.

use iofair_core::time::Nanos;

use super::names::{self, SUPPORTED, ignored};
use super::problems::Bad;
use super::values::{self, block, for_directions, number, range, signed, size, time};
use super::{Blocks, Direction, Exit, Service, Settings, engines};

/// Most clones of a job.
const NUMJOBS_MAX: u64 = 10_000;
/// Most calls of a job in flight.
pub(super) const DEPTH_MAX: u64 = 1 << 16;

/// One name for each option.
pub(super) fn canonical(name: &str) -> &str {
    match name {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "blocksize_unaligned" => "bs_unaligned",
        "wait_for_previous" => "stonewall",
        "io_limit" => "io_size",
        "allrandrepeat" => "randrepeat",
        "blockalign" => "ba",
        "fileoffset" => "offset",
        "fill_fs" => "fill_device",
        "nr_files" => "nrfiles",
        "iodepth_batch_submit" => "iodepth_batch",
        "iodepth_batch_complete" => "iodepth_batch_complete_min",
        "ratecycle" => "rate_cycle",
        "ratemin" => "rate_min",
        "timeout" => "runtime",
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

/// Nothing, which is yes, or a number that is not 0.
fn switch(text: &str) -> Result<bool, Bad> {
    Ok(text.is_empty() || signed(text, 1024)? != 0)
}

/// `1` or `0`.
fn flag(text: &str) -> Result<bool, Bad> {
    match text {
        "1" => Ok(true),
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

/// Options that are yes without a value.
const FLAGS: &[&str] = &[
    "bs_unaligned",
    "exitall",
    "group_reporting",
    "new_group",
    "norandommap",
    "stonewall",
    "time_based",
    "verify_only",
];

/// How fio checks what was written: values of `verify`.
const VERIFY: [&str; 20] = [
    "0",
    "crc16",
    "crc32",
    "crc32c",
    "crc32c-intel",
    "crc64",
    "crc7",
    "md5",
    "meta",
    "null",
    "pattern",
    "pattern_hdr",
    "sha1",
    "sha256",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "sha512",
    "xxhash",
];

/// Sets what an option says.
pub(super) fn apply(to: &mut Settings, name: &str, value: &str) -> Result<(), Bad> {
    let canonical = canonical(name);
    if value.is_empty() && SUPPORTED.contains(&name) && !FLAGS.contains(&canonical) {
        return Err(Bad::new("a value is missing").allowed(format!("{name}=VALUE")));
    }
    let known = calls(to, canonical, value)?
        || places(to, canonical, value)?
        || syncs(to, canonical, value)?
        || pages(to, canonical, value)?
        || checks(to, canonical, value)?
        || depths(to, canonical, value)?
        || amounts(to, canonical, value)?
        || rates(to, canonical, value)?
        || times(to, canonical, value)?
        || order(to, canonical, value)?
        || others(to, canonical, value)?;
    if known {
        return Ok(());
    }
    if let Some(values) = names::neutral(name) {
        let bad = Bad::unsupported(format!("`{value}` is not supported"));
        return Err(bad.allowed(format!("{values}, or the argument --ignore-unsupported")));
    }
    if name == "read_iolog" {
        let bad = Bad::unsupported("recorded calls are not read from job files");
        return Err(bad.allowed("`iofair-lab replay FILE`, or the argument --ignore-unsupported"));
    }
    let bad = Bad::unsupported(format!("unsupported option `{name}`"));
    let allowed = "the options in lab/docs/fio.md, or the argument --ignore-unsupported";
    let known = SUPPORTED.iter().copied().chain(ignored());
    Err(bad.about_name().allowed(allowed).near(name, known))
}

/// What calls do. `false`: another option.
fn calls(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let base = to.kb_base;
    match name {
        "rw" => {
            let (pattern, modifier) = match value.split_once(':') {
                Some((pattern, modifier)) => (pattern, Some(signed(modifier, base)?)),
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
            to.modifier = modifier.filter(|bytes| *bytes != 0);
            if to.modifier.is_some_and(|bytes| !to.random && bytes % 512 != 0) {
                let bad = Bad::new("a gap is a number of sectors of 512 bytes");
                return Err(bad.allowed("multiples of 512, such as rw=read:8k"));
            }
            if to.modifier.is_some_and(|bytes| to.random && bytes < 0) {
                let bad = Bad::new("random calls have no gaps to go backwards");
                return Err(bad.allowed("a number of calls, such as rw=randread:8"));
            }
        }
        "rw_sequencer" => {
            to.identical = word(value, &[("sequential", false), ("identical", true)])?
        }
        "bs" if value.contains('-') && !value.contains('(') => {
            if read_ranges(value, base, &mut to.spread.clone()).is_err() {
                let bad = Bad::new(format!("`{value}` is neither a size nor a range"));
                return Err(bad.allowed("a size, such as 4k, or bsrange=LOW-HIGH"));
            }
            let taken = "fio takes one size of it for reads, and one for writes";
            let bad = Bad::new(format!("`{value}` is a range; {taken}"));
            return Err(bad.allowed(format!("bsrange={value}")));
        }
        "bs" => {
            let read = |text: &str| values::any_block(text, base).map(Blocks::Fixed);
            for_directions(value, &mut to.blocks, read)?;
        }
        "bsrange" if !value.contains(['-', ':']) => {
            let bad = Bad::new(format!("`{value}` is no range"));
            return Err(bad.allowed("LOW-HIGH, such as 4k-16k; `bs` has one size"));
        }
        "bsrange" => read_ranges(value, base, &mut to.spread)?,
        "bssplit" => {
            let read = |text: &str| values::read_split(text, base).map(Some);
            for_directions(value, &mut to.spread, read)?;
        }
        "ba" => to.align = Some(block(value, base)?),
        "ioengine" => engines::set(to, value)?,
        "direct" => to.direct = flag(value)?,
        "buffered" => to.direct = !flag(value)?,
        "rwmixread" => to.reads = percent(value, base)?,
        "rwmixwrite" => to.reads = 100 - percent(value, base)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// `65` or `65%`.
fn percent(value: &str, base: u64) -> Result<u32, Bad> {
    let digits = value.strip_suffix('%').unwrap_or(value);
    Ok(within(number(digits, base)?, 0, 100)? as u32)
}

/// `bsrange`: a range for each direction.
fn read_ranges(value: &str, base: u64, to: &mut [Option<Blocks>; 3]) -> Result<(), Bad> {
    let before = to.clone();
    for_directions(value, to, |text| {
        let (low, high) = range(text, |end| block(end, base))?;
        Ok(Some(if low == high { Blocks::Fixed(low) } else { Blocks::Range(low, high) }))
    })?;
    to.iter_mut().zip(before).for_each(|(range, split)| bound(range, split));
    Ok(())
}

/// A range behind a split bounds its sizes, as in fio; one of a single size goes before it.
fn bound(range: &mut Option<Blocks>, split: Option<Blocks>) {
    if let (Some(Blocks::Range(low, high)), Some(Blocks::Split(sizes))) = (&range, split) {
        let sizes = sizes.into_iter().map(|(size, share)| (size.clamp(*low, *high), share));
        *range = Some(Blocks::Split(sizes.collect()));
    }
}

/// What of the page cache and of a drive's cache a job waits for.
fn syncs(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let base = to.kb_base;
    let every = || Ok(within(number(value, base)?, 0, u64::from(u32::MAX))? as u32);
    match name {
        "sync" => {
            let known =
                [("0", false), ("none", false), ("1", true), ("sync", true), ("dsync", true)];
            to.sync = word(value, &known)?;
        }
        "invalidate" => to.invalidate = flag(value)?,
        "end_fsync" => to.end_syncs[0] = flag(value)?,
        "fsync_on_close" => to.end_syncs[1] = flag(value)?,
        "fsync" => to.fsync = every()?,
        "fdatasync" => to.fdatasync = every()?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// How calls use the page cache and the threads of a job.
fn pages(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    match name {
        "atomic" => to.hints.atomic = flag(value)?,
        "bs_unaligned" => to.hints.unaligned = switch(value)?,
        "uncached" => to.hints.drop_behind = flag(value)?,
        "io_submit_mode" => {
            to.hints.offload = word(value, &[("inline", false), ("offload", true)])?
        }
        "fadvise_hint" => {
            let random = value == "random";
            let known = ["0", "none", "1", "sequential", "random", "noreuse"];
            to.hints.random = word(value, &known.map(|name| (name, random)))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// How what was written is checked.
fn checks(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    match name {
        "verify" => {
            // The place of the checksum in a block may stand behind a colon.
            let how = value.split(':').next().unwrap_or(value);
            to.verify.how = Some(word(how, &VERIFY.map(|name| (name, name)))?);
        }
        "verify_pattern" => {
            if !value.starts_with([
                '"', '\'', '%', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9',
            ]) {
                let bad = Bad::new(format!("`{value}` is no pattern"));
                return Err(bad.allowed("numbers, `%o`, text or the name of a file in quotes"));
            }
            to.verify.pattern = true;
        }
        "do_verify" => to.verify.at_end = flag(value)?,
        "verify_only" => to.verify.only = switch(value)?,
        "verify_backlog" => to.verify.between = number(value, to.kb_base)? > 0,
        _ => return Ok(false),
    }
    Ok(true)
}

/// How many calls at once, and of which priority.
fn depths(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let base = to.kb_base;
    let calls = |low| Ok(within(number(value, base)?, low, DEPTH_MAX)? as u32);
    let classes = |low, high, set: &mut dyn FnMut(usize, u64)| {
        let mut both = [None; 3];
        for_directions(value, &mut both, |text| Ok(Some(within(number(text, base)?, low, high)?)))?;
        let given = both.into_iter().take(2).enumerate();
        given.filter_map(|(at, found)| Some((at, found?))).for_each(|(at, number)| set(at, number));
        Ok(true)
    };
    match name {
        "iodepth" => to.depth = calls(1)?,
        // 0 is the whole depth, which a group never passes.
        "iodepth_batch" => {
            let count = calls(0)?;
            to.batches.submit = if count > 0 { count } else { DEPTH_MAX as u32 };
        }
        "iodepth_batch_complete_min" => to.batches.complete = calls(0)?.max(1),
        // How many completions are taken at most at a time has no effect where taking them takes no time.
        "iodepth_batch_complete_max" => {
            calls(0)?;
        }
        "iodepth_low" => to.batches.low = Some(calls(0)?).filter(|count| *count > 0),
        "prio" => to.prio = Some(within(number(value, base)?, 0, 7)? as u8),
        "prioclass" => {
            let class = within(number(value, base)?, 0, 3)? as u8;
            to.prio_class = Some(class).filter(|class| *class > 0);
        }
        "cmdprio_percentage" => {
            return classes(0, 100, &mut |at, percent| to.urgent[at].percent = percent as u32);
        }
        "cmdprio_class" => return classes(1, 3, &mut |at, is| to.urgent[at].class = is as u8),
        "cmdprio" => return classes(0, 7, &mut |at, level| to.urgent[at].level = level as u8),
        _ => return Ok(false),
    }
    Ok(true)
}

/// How fast.
fn rates(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let base = to.kb_base;
    let rates = match name {
        "rate" => &mut to.rate,
        "rate_iops" => &mut to.rate_iops,
        "rate_min" => &mut to.least_rate.bytes,
        "rate_iops_min" => &mut to.least_rate.calls,
        "rate_process" => {
            to.poisson = word(value, &[("linear", false), ("poisson", true)])?;
            return Ok(true);
        }
        "rate_cycle" => {
            to.least_rate.cycle = Nanos::from_millis(within(number(value, base)?, 1, 1 << 32)?);
            return Ok(true);
        }
        _ => return Ok(false),
    };
    let read = |text: &str| Ok(Some(number(text, base)?).filter(|size| *size > 0));
    for_directions(value, rates, read)?;
    Ok(true)
}

/// How much.
fn amounts(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let base = to.kb_base;
    match name {
        "numjobs" => to.clones = within(number(value, base)?, 1, NUMJOBS_MAX)? as u32,
        "size" => to.size = Some(size(value, base)?),
        "nrfiles" => to.nr_files = within(number(value, base)?, 1, u64::from(u32::MAX))?,
        "openfiles" => to.open_files = Some(number(value, base)?).filter(|count| *count > 0),
        "zonemode" => {
            if value == "zbd" {
                let bad = Bad::unsupported("`zbd` is not supported");
                return Err(bad.allowed("none, strided, or the argument --ignore-unsupported"));
            }
            to.zones.strided = word(value, &[("none", false), ("strided", true)])?;
        }
        "zonesize" => to.zones.size = number(value, base)?,
        "zonerange" => to.zones.range = number(value, base)?,
        "zoneskip" => to.zones.skip = number(value, base)?,
        "file_service_type" => {
            let (kind, calls) = value.split_once(':').unwrap_or((value, "1"));
            let known = [
                ("roundrobin", Service::RoundRobin(1)),
                ("sequential", Service::Sequential),
                ("random", Service::Random),
                ("zipf", Service::Skewed),
                ("pareto", Service::Skewed),
                ("normal", Service::Skewed),
                ("gauss", Service::Skewed),
            ];
            to.service = word(kind, &known)?;
            if to.service == Service::Skewed {
                values::read_distribution(&value.replace("gauss", "normal"))?;
            }
            if let Service::RoundRobin(turn) = &mut to.service {
                *turn = within(number(calls, base)?, 1, u64::from(u32::MAX))? as u32;
            }
        }
        "filesize" if value.contains(['-', ':']) => {
            let bad = Bad::unsupported("a range of sizes is not supported");
            return Err(bad.allowed("one size"));
        }
        "filesize" => to.file_size = Some(number(value, base)?).filter(|size| *size > 0),
        "fill_device" => to.fill_device = flag(value)?,
        "io_size" => to.io_size = Some(size(value, base)?),
        "number_ios" => to.number_ios = Some(number(value, base)?).filter(|count| *count > 0),
        "loops" => to.loops = within(number(value, base)?, 0, 1 << 32)?.max(1),
        "offset" => to.offset = size(value, base)?,
        "offset_increment" => to.offset_increment = size(value, base)?,
        "cgroup_weight" => {
            to.cgroup_weight = Some(within(number(value, base)?, 1, 1_000)? as u32);
        }
        "randseed" => to.seed = Some(number(value, base)?),
        // Runs always repeat.
        "randrepeat" => {
            flag(value)?;
        }
        "kb_base" => to.kb_base = word(value, &[("1000", 1000), ("1024", 1024)])?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Where random calls go.
fn places(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let base = to.kb_base;
    match name {
        "norandommap" => to.random_map = !switch(value)?,
        "random_distribution" => to.distribution = values::read_distribution(value)?,
        "percentage_random" => {
            for_directions(value, &mut to.random_percent, |text| percent(text, base))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// How long.
fn times(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    match name {
        "runtime" => to.runtime = Some(time(value, SECOND)?).filter(|time| time.0 > 0),
        "time_based" => to.time_based = switch(value)?,
        "ramp_time" => to.ramp = time(value, SECOND)?,
        "startdelay" => to.start_delay = range(value, |text| time(text, SECOND))?,
        "thinktime" => to.think = time(value, MICROSECOND)?,
        "thinktime_blocks" => {
            let blocks = within(number(value, to.kb_base)?, 0, u64::from(u32::MAX))?;
            to.think_blocks = blocks.max(1) as u32;
        }
        "latency_target" => {
            to.latency_target = Some(time(value, MICROSECOND)?).filter(|time| time.0 > 0);
        }
        "latency_window" => {
            to.latency_window = Some(time(value, MICROSECOND)?).filter(|time| time.0 > 0);
        }
        "latency_percentile" => {
            let percent = value.parse().ok().filter(|part: &f64| *part > 0.0 && *part <= 100.0);
            let bad = || Bad::new(format!("`{value}` is not a percentage"));
            let percent = percent.ok_or_else(|| bad().allowed("more than 0 and at most 100"))?;
            to.latency_per_million = (percent * 10_000.0).round() as u32;
        }
        "latency_run" => to.latency_run = flag(value)?,
        "log_avg_msec" => to.log_window = Some(time(value, MILLISECOND)?).filter(|time| time.0 > 0),
        _ => return Ok(false),
    }
    Ok(true)
}

/// When a job begins and ends beside others.
fn order(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    match name {
        "stonewall" => to.stonewall = switch(value)?,
        "wait_for" => to.wait_for = Some(value.to_owned()),
        "exitall" => to.exit_all = switch(value)?,
        "exit_what" => {
            let known =
                [("group", Exit::Group), ("stonewall", Exit::Stonewall), ("all", Exit::All)];
            to.exit_what = word(value, &known)?;
        }
        "new_group" => to.new_group = switch(value)?,
        "group_reporting" => to.group_reporting = switch(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn others(to: &mut Settings, name: &str, value: &str) -> Result<bool, Bad> {
    let text = || Some(value.to_owned());
    match name {
        "name" => to.name = text(),
        "description" => to.description = text(),
        "cgroup" => {
            let path = value.trim_matches('/');
            let good = path.split('/').all(|part| !part.is_empty() && part != "..");
            if !good || path.contains(char::is_whitespace) {
                let bad = Bad::new(format!("`{value}` is not the path of a group"));
                return Err(bad.allowed("names with `/` between them, without spaces and `..`"));
            }
            to.cgroup = Some(path.to_owned());
        }
        "filename" => to.file = text(),
        "filename_format" => to.file_format = text(),
        "directory" => to.directory = text(),
        _ => return Ok(false),
    }
    Ok(true)
}
