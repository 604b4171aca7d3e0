//! What an experiment means on Linux: scheduler and its settings, groups, fio's arguments. What the kernel has no
//! counterpart of is an error that names the key.

use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::contract::Limits;
use iofair_core::controller::{Stack, Stage};
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};
use iofair_simulator::outside::processes;
use iofair_simulator::scenario::{ClientSpec, Distribution, Exit, Manner, Scenario, Step, Turn};

use super::calls;

/// Schedulers of ours, and of Linux. Which version of BFQ runs is the kernel's choice.
const SCHEDULERS: &[(&str, &str)] = &[
    ("none", "none"),
    ("mq-deadline", "mq-deadline"),
    ("kyber", "kyber"),
    ("bfq", "bfq"),
    ("bfq-6.18", "bfq"),
];

/// Throttles of ours that Linux has.
const MAX: &str = "throttle-max";
const WBT: &str = "wbt";

/// How sysfs counts a parameter.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Millis,
    Micros,
    Nanos,
    Kib,
    Plain,
}

/// Our parameters, the kernel's files, and their units (`Documentation/block`).
const SETTINGS: &[(&str, &str, &str, Unit)] = &[
    ("bfq", "slice_idle", "slice_idle_us", Unit::Micros),
    ("bfq", "strict_guarantees", "strict_guarantees", Unit::Plain),
    ("bfq", "low_latency", "low_latency", Unit::Plain),
    ("bfq", "timeout_sync", "timeout_sync", Unit::Millis),
    ("bfq", "max_budget", "max_budget", Unit::Plain),
    ("bfq", "back_seek_max", "back_seek_max", Unit::Kib),
    ("bfq", "back_seek_penalty", "back_seek_penalty", Unit::Plain),
    ("bfq", "fifo_expire_sync", "fifo_expire_sync", Unit::Millis),
    ("bfq", "fifo_expire_async", "fifo_expire_async", Unit::Millis),
    ("mq-deadline", "read_expire", "read_expire", Unit::Millis),
    ("mq-deadline", "write_expire", "write_expire", Unit::Millis),
    ("mq-deadline", "fifo_batch", "fifo_batch", Unit::Plain),
    ("mq-deadline", "writes_starved", "writes_starved", Unit::Plain),
    ("mq-deadline", "front_merges", "front_merges", Unit::Plain),
    ("mq-deadline", "prio_aging_expire", "prio_aging_expire", Unit::Millis),
    ("mq-deadline", "async_depth", "async_depth", Unit::Plain),
    ("kyber", "read_lat", "read_lat_nsec", Unit::Nanos),
    ("kyber", "write_lat", "write_lat_nsec", Unit::Nanos),
    ("wbt", "min_lat", "wbt_lat_usec", Unit::Micros),
];

impl Unit {
    /// Rounded down.
    fn show(self, value: u64) -> String {
        let divisor = match self {
            Self::Millis => 1_000_000,
            Self::Micros => 1_000,
            Self::Kib => 1024,
            Self::Nanos | Self::Plain => 1,
        };
        (value / divisor).to_string()
    }
}

/// The device's queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Queue {
    pub(super) scheduler: &'static str,
    /// Files below `iosched` and their values.
    pub(super) settings: Vec<(&'static str, String)>,
    pub(super) requests: Option<u32>,
}

/// What the kernel does beside the scheduler if there are buffered clients, or if writeback is throttled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PageCache {
    /// `wbt_lat_usec` of writeback throttling: 0 is off, -1 the kernel's default.
    pub(super) writeback: String,
    /// `read_ahead_kb`. fio advises the kernel of sequential reads (POSIX_FADV_SEQUENTIAL), which doubles the window.
    pub(super) read_ahead_kib: u64,
    /// Dirty bytes above which the kernel writes them, and above which writers wait.
    pub(super) dirty: [u64; 2],
}

/// A group of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// Only where the scheduler shares by weight.
    pub(super) weight: Option<u32>,
    pub(super) max: Limits,
}

/// A process of fio.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) weight: u32,
    pub(super) start: Instant,
    /// What the process waits for before its first request, after fio has started it. fio's own `startdelay` is not used
    /// where all start together: fio 3.33 looks every 100 ms whether a job is due, so that 10 ms become 200 ms.
    pub(super) wait: Nanos,
    pub(super) writes: bool,
    /// The part of fio's log of all requests that counts; nothing of it for clients in steps, as of job files, and in
    /// runs of more than [`LOG_MAX`], where fio's own numbers count. fio's own `ramp_time` is not used: it ends when a request
    /// completes, so that clients whose requests wait for a second are measured after the others have ended; and
    /// together with `thinktime`, fio 3.33 counts the requests of the warm-up, too.
    pub(super) logged: Logged,
    pub(super) arguments: Vec<String>,
}

/// The part of a log of requests that counts, in milliseconds after the client's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Logged {
    pub(super) from: u64,
    pub(super) until: u64,
}

/// A run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) queue: Queue,
    pub(super) groups: Vec<Group>,
    pub(super) jobs: Vec<Job>,
    /// Bytes of the device that the files take.
    pub(super) bytes: u64,
}

/// The queue that this stack is on Linux.
fn queue(stack: &Stack, tags: Option<u32>) -> Result<Queue, String> {
    let name = stack.scheduler.row.name;
    let known = SCHEDULERS.iter().find(|scheduler| scheduler.0 == name);
    let (_, scheduler) = known.ok_or_else(|| {
        let all: Vec<_> = SCHEDULERS.iter().map(|scheduler| scheduler.0).collect();
        format!("`stacks`: Linux has no scheduler {name}; it has {}", all.join(", "))
    })?;
    for throttle in &stack.throttles {
        settings(throttle)?;
        match throttle.row.name {
            WBT if *scheduler == "bfq" => {
                return Err("`stacks`: BFQ switches writeback throttling (`wbt`) off".to_owned());
            }
            MAX | WBT => {}
            other => {
                return Err(format!(
                    "`stacks`: Linux has no throttle {other}; it has `max` (blk-throttle) and `wbt`"
                ));
            }
        }
    }
    let settings = settings(&stack.scheduler)?;
    Ok(Queue { scheduler, settings, requests: tags })
}

/// The settings of the page cache for a scenario; `None` if it uses none.
pub(super) fn page_cache(scenario: &Scenario) -> Result<Option<PageCache>, String> {
    let host = &scenario.host;
    let wbt = scenario.stack.throttles.iter().find(|throttle| throttle.row.name == WBT);
    if wbt.is_none() && !scenario.clients.iter().any(|client| client.job.buffered) {
        return Ok(None);
    }
    let target = wbt.map(settings).transpose()?.map(|files| files.into_iter().next());
    let writeback = match target {
        None => "0".to_owned(),
        Some(None) => "-1".to_owned(),
        Some(Some((_, target))) => target,
    };
    let percents = [host.dirty_background_percent, host.dirty_percent];
    let dirty = percents.map(|percent| host.memory / 100 * u64::from(percent));
    Ok(Some(PageCache { writeback, read_ahead_kib: host.read_ahead.bytes() / 2048, dirty }))
}

/// The parameters that are not at their defaults, as files.
fn settings(stage: &Stage) -> Result<Vec<(&'static str, String)>, String> {
    let row = stage.row.name;
    let policy = SCHEDULERS.iter().find(|known| known.0 == row).map_or(row, |known| known.1);
    let defaults = iofair_core::params::Values::new(stage.row.parameters, stage.row.overrides);
    let mut files = Vec::new();
    for (parameter, value) in stage.values.iter() {
        if defaults.iter().any(|(key, default)| key.name == parameter.name && default == value) {
            continue;
        }
        let known = SETTINGS.iter().find(|known| (known.0, known.1) == (policy, parameter.name));
        let Some((_, _, file, unit)) = known else {
            let name = parameter.name;
            return Err(format!("`policy.{policy}.{name}`: Linux has no such setting"));
        };
        files.push((*file, unit.show(value)));
    }
    Ok(files)
}

/// Everything about a run.
pub(super) fn plan(scenario: &Scenario) -> Result<Plan, String> {
    let refuse = |key: &str, why: &str| Err(format!("`{key}`: {why}"));
    if scenario.stripe.is_some() {
        return refuse("stripe", "a run on Linux has one drive");
    }
    if !scenario.changes.is_empty() {
        return refuse("change", "contracts and drive cannot change in a run on Linux");
    }
    if scenario.host.journal.is_some() {
        return refuse("host.journal", "there is no file system in a run on Linux");
    }
    let queue = queue(&scenario.stack, scenario.tags)?;
    let throttled = scenario.stack.throttles.iter().any(|throttle| throttle.row.name == MAX);
    let shares = scenario.stack.groups;
    if throttled && !shares && queue.scheduler == "bfq" {
        return refuse("stacks", "with groups bfq always shares between them; use max+prop-bfq");
    }
    let mut groups = Vec::new();
    let named = scenario.groups.iter().filter(|group| !group.name.is_empty());
    for group in named.filter(|_| throttled || shares) {
        let contract = &group.contract;
        if shares && contract.class != Class::BestEffort {
            return Err(format!("`class` of group {}: groups of Linux have no class", group.name));
        }
        if throttled && (contract.max.has_total() || contract.max.has_burst()) {
            let name = &group.name;
            return Err(format!(
                "`max` of group {name}: blk-throttle has neither `total` nor `burst`"
            ));
        }
        let max = if throttled { contract.max } else { Limits::NONE };
        let weight = shares.then_some(contract.weight);
        groups.push(Group { name: group.name.clone(), weight, max });
    }
    let mut jobs = Vec::new();
    let mut step = 0;
    let (places, mut bytes) = places(&scenario.clients);
    for (name, client, start) in processes(scenario) {
        let client = &scenario.clients[client];
        let mut job = job(scenario, client, &name, start)?;
        let place = client.place.map(|place| place.bytes());
        let cluster = places.iter().rev().find(|run| place.is_some_and(|place| run.0 <= place));
        let offset = match (place, cluster) {
            (Some(place), Some((first, at))) => place - first + at,
            _ => bytes,
        };
        job.arguments.push(format!("--offset={offset}"));
        job.arguments.extend(order(scenario, client)?);
        if let Some(number) = client.step.map(|step| step.number).filter(|number| *number > step) {
            step = number;
            job.arguments.push("--stonewall".to_owned());
        }
        let contract = scenario.groups.iter().find(|group| group.name == client.group);
        job.weight = contract.map_or(WEIGHT_DEFAULT, |group| group.contract.weight);
        if groups.is_empty() {
            job.group.clear();
        }
        bytes += if place.is_some() { 0 } else { client.file_size.bytes() };
        jobs.push(job);
    }
    Ok(Plan { queue, groups, jobs, bytes })
}

/// Arguments for a start after, and an end with, other clients.
fn order(scenario: &Scenario, client: &ClientSpec) -> Result<Vec<String>, String> {
    let Some(step) = client.step else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    if let Some((first, number)) = step.after {
        if number > 1 {
            let name = &client.name;
            return Err(format!("`wait_for` of {name}: a run on Linux waits for one clone only"));
        }
        all.push(format!("--wait_for={}", scenario.clients[first as usize].name));
    }
    if let Some(exit) = step.exit {
        let mut others = scenario.clients.iter().filter_map(|other| other.step);
        let is_apart = |other: Step| other.number == step.number && other.group != step.group;
        if exit == Exit::Group && others.any(is_apart) {
            return Err("`exit_what`: a run on Linux has no groups between stonewalls".to_owned());
        }
        let what = if exit == Exit::All { "all" } else { "stonewall" };
        all.extend(["--exitall=1".to_owned(), format!("--exit_what={what}")]);
    }
    Ok(all)
}

/// Places that clients share, put together without the gaps between them: where each run of them begins on the modelled drive
/// and on the device. Also the bytes that they take.
fn places(clients: &[ClientSpec]) -> (Vec<(u64, u64)>, u64) {
    let range = |client: &ClientSpec| {
        client.place.map(|place| (place.bytes(), place.bytes() + client.file_size.bytes()))
    };
    let mut ranges: Vec<(u64, u64)> = clients.iter().filter_map(range).collect();
    ranges.sort_unstable();
    let (mut places, mut at, mut end) = (Vec::new(), 0, None);
    for (first, last) in ranges {
        match &mut end {
            Some(end) if first <= *end => {
                at += last.saturating_sub(*end);
                *end = last.max(*end);
            }
            _ => {
                places.push((first, at));
                at += last - first;
                end = Some(last);
            }
        }
    }
    (places, at)
}

/// Refuses what fio cannot do of a client's job.
fn check(client: &ClientSpec) -> Result<(), String> {
    let job = &client.job;
    let has_zones = matches!(job.calls.turn, Turn::Gap(gap) if gap.zone > 0);
    let leaves = job.calls.files.is_some() || has_zones;
    let refused = [
        (leaves, "`nrfiles` or `zonemode`", "each client has a part of one device"),
        (client.name.contains('/'), "`name`", "fio's logs have no such names"),
        (client.manner != Manner::Plain, "`job` or `interleaved`", "fio has no such job"),
        (client.guest, "`guest`", "there are no guests in a run on Linux"),
        (client.on_drive.is_some(), "`on_drive`", "a run on Linux has one drive"),
        (job.on_off.is_some(), "`on_off`", "fio cannot draw times of work and rest"),
        (job.metadata, "`metadata`", "a process cannot mark its requests as metadata"),
        (
            job.pattern.writes() && !job.buffered && !job.sync_writes,
            "`sync_writes`",
            "direct writes are synchronous",
        ),
    ];
    if let Some((_, key, why)) = refused.iter().find(|job| job.0) {
        return Err(format!("{key} of client {}: {why}", client.name));
    }
    Ok(())
}

/// fio's arguments that are the same for all.
const FIXED: &[&str] = &["--time_based", "--norandommap", "--invalidate=1", "--fallocate=none"];
/// fio's arguments for clients whose requests are logged. A log that never has to grow delays no request.
const LOG: &[&str] =
    &["--per_job_logs=0", "--log_entries=1048576", "--disable_slat=1", "--disable_lat=1"];

/// Longest run in milliseconds whose requests are logged. A request takes 40 bytes of memory and 25 of a file; in longer runs, the
/// time by which fio's warm-up is late counts little.
const LOG_MAX: u64 = 60_000;

/// Milliseconds for which clients go on after the measured time: none is alone before it ends, when another one started late.
const GO_ON: u64 = 100;

/// fio's arguments for a process, without the place on the device.
fn job(
    scenario: &Scenario,
    client: &ClientSpec,
    name: &str,
    start: Instant,
) -> Result<Job, String> {
    check(client)?;
    let job = &client.job;
    let mut end = Instant::ZERO + scenario.ramp + scenario.time;
    let (mut start, mut ramp_end) = (start, Instant::ZERO + scenario.ramp);
    if let Some(step) = client.step {
        start = Instant::ZERO + step.delay;
        ramp_end = start + step.ramp;
        end = step.time.map_or(Instant::MAX, |time| ramp_end + time);
    }
    let stop = client.stop.map_or(end, |stop| (Instant::ZERO + stop).min(end));
    let ramp = ramp_end.min(stop).since(start);
    let measured = stop.since(start).saturating_sub(ramp);
    let millis = |time: Nanos| time.0.div_ceil(1_000_000);
    let engine = if job.depth > 1 || job.calls.urgent.is_some() { "libaio" } else { "psync" };
    let class = match client.priority.class {
        Class::RealTime => 1,
        Class::Idle => 3,
        _ => 2,
    };
    let (ramp, measured) = (millis(ramp), millis(measured).max(1));
    let logged = match client.step.is_some() || ramp + measured > LOG_MAX {
        true => Logged { from: 0, until: 0 },
        false => Logged { from: ramp, until: ramp + measured },
    };
    let mut arguments = vec![
        format!("--name={name}"),
        format!("--rw={}", calls::access(job)),
        calls::sizes(job),
        format!("--direct={}", u8::from(!job.buffered)),
        format!("--ioengine={engine}"),
        format!("--iodepth={}", job.depth),
        format!("--size={}", client.file_size.bytes()),
    ];
    if client.step.is_some() {
        arguments.push(format!("--startdelay={}ms", millis(start.since(Instant::ZERO))));
    }
    let go_on = if stop == end { GO_ON } else { 0 };
    let wait = client.step.map_or(start.since(Instant::ZERO), |_| Nanos::ZERO);
    arguments.extend(match logged.until > 0 {
        true => {
            vec![format!("--runtime={}ms", logged.until + go_on), format!("--write_lat_log={name}")]
        }
        false if end == Instant::MAX => vec![format!("--ramp_time={ramp}ms")],
        false => vec![format!("--ramp_time={ramp}ms"), format!("--runtime={measured}ms")],
    });
    arguments.extend([
        format!("--randseed={}", scenario.seed.wrapping_mul(1000) + jobs_seed(name)),
        format!("--prioclass={class}"),
        format!("--prio={}", client.priority.level),
    ]);
    let ends = job.calls.bytes_max.is_some() || end == Instant::MAX;
    let map = job.calls.distribution == Distribution::Once;
    let log: &[&str] = if logged.until == 0 { &[] } else { LOG };
    let fixed = FIXED.iter().filter(|option| match **option {
        "--time_based" => !ends,
        "--norandommap" => !map,
        _ => true,
    });
    arguments.extend(fixed.chain(log).map(|job| (*job).to_owned()));
    arguments.extend(calls::arguments(job));
    if job.think > Nanos::ZERO {
        arguments.push(format!("--thinktime={}", job.think.0 / 1000));
    }
    let (name, group) = (name.to_owned(), client.group.clone());
    let [_, writes, trims] = job.calls.directions(job.pattern.writes());
    let writes = writes || trims;
    Ok(Job { name, group, weight: WEIGHT_DEFAULT, start, wait, writes, logged, arguments })
}

/// Different for different names, and the same in every run.
fn jobs_seed(name: &str) -> u64 {
    name.bytes().fold(7, |sum, byte| (sum * 31 + u64::from(byte)) % 997)
}

#[cfg(test)]
mod tests {
    use iofair_experiments::experiment::{Overrides, parse};

    use super::*;

    const FILE: &str = r#"
title = "Two readers"
source = "none"
drive = "plextor-px256m5s"
time = "1s"
ramp = "500ms"
stacks = ["prop-bfq"]
[policy.bfq]
low_latency = false
slice_idle = "4ms"
[[client]]
name = "a"
job = "randread"
buffered = false
weight = 300
max = { read = "5MB/s" }
[[client]]
name = "b"
job = "read"
buffered = false
depth = 2
block = "256KiB"
"#;

    fn planned(text: &str, stack: &str) -> Result<Plan, String> {
        let overrides = Overrides { stacks: Some(vec![stack.to_owned()]), ..Overrides::default() };
        let experiment = parse("e.toml", text, &overrides).expect("a good file");
        plan(&experiment.scenario(0, 0, 0))
    }

    /// Goal: a stack becomes scheduler, settings and groups. Method: bfq with two parameters; weights are set, the
    /// ceiling is not, since nothing in this stack enforces it.
    #[test]
    fn a_stack_becomes_settings() {
        let plan = planned(FILE, "prop-bfq").expect("bfq is on Linux");
        let settings = [("slice_idle_us", "4000".to_owned()), ("low_latency", "0".to_owned())];
        assert_eq!(plan.queue.scheduler, "bfq");
        assert!(settings.iter().all(|setting| plan.queue.settings.contains(setting)), "{plan:?}");
        assert_eq!((plan.groups[0].weight, plan.groups[0].max), (Some(300), Limits::NONE));
        let arguments = plan.jobs[1].arguments.join(" ");
        assert!(arguments.contains("--ioengine=libaio --iodepth=2"), "{arguments}");
        assert!(arguments.contains("--offset=524288000"), "{arguments}");
    }

    /// Goal: ceilings become blk-throttle's, and without groups in the stack no client is put into one. Method: one stack
    /// with and one without.
    #[test]
    fn ceilings_become_limits() {
        let plan = planned(FILE, "max-none").expect("blk-throttle is on Linux");
        assert_eq!(
            (plan.groups[0].weight, plan.groups[0].max.bytes_per_s[0]),
            (None, Some(5_000_000))
        );
        let plan = planned(FILE, "none-kyber").expect("kyber is on Linux");
        assert!(plan.groups.is_empty() && plan.jobs.iter().all(|job| job.group.is_empty()));
    }

    /// Goal: writeback is throttled where the stack says so and not because the kernel does it by default; read-ahead and dirty limits
    /// are those of the file's host; without buffered clients the kernel's stay. Method: direct clients, a buffered one, wbt with its
    /// own target, and BFQ, which has no wbt.
    #[test]
    fn the_page_cache_is_that_of_the_file() {
        let host = "[host]\nread_ahead = \"1MiB\"\nmemory = \"1GB\"\n[policy.wbt]\nmin_lat = \"5ms\"\n[policy.bfq]";
        let file = FILE.replace("[policy.bfq]", host);
        let cache = |text: &str, stack: &str| {
            let overrides =
                Overrides { stacks: Some(vec![stack.to_owned()]), ..Overrides::default() };
            let experiment = parse("e.toml", text, &overrides).expect("a good file");
            page_cache(&experiment.scenario(0, 0, 0)).expect("Linux has it")
        };
        let of_file = |writeback: &str| {
            let dirty = [100_000_000, 200_000_000];
            Some(PageCache { writeback: writeback.to_owned(), read_ahead_kib: 512, dirty })
        };
        assert_eq!(cache(&file, "none-none"), None);
        assert_eq!(cache(&file, "wbt-none"), of_file("5000"));
        let default = file.replace("5ms", "0ns");
        assert_eq!(cache(&default, "wbt-none"), of_file("-1"));
        let buffered = file.replacen("buffered = false", "buffered = true", 1);
        assert_eq!(cache(&buffered, "prop-bfq"), of_file("0"));
        assert!(planned(&file, "wbt-none").expect("on Linux").groups.is_empty());
        assert!(planned(FILE, "wbt-bfq").expect_err("they exclude each other").contains("`wbt`"));
    }

    /// Goal: all clients are measured at the same time, whenever they start. Method: the second one starts between 3 and 4 ms later.
    #[test]
    fn the_warm_up_of_all_clients_ends_at_one_time() {
        let plan = planned(FILE, "none-none").expect("fio has it");
        let job = |job: usize| (plan.jobs[job].logged, plan.jobs[job].arguments.join(" "));
        let ((first, first_arguments), (second, second_arguments)) = (job(0), job(1));
        assert_eq!(first, Logged { from: 500, until: 1500 });
        assert_eq!(second, Logged { from: 497, until: 1497 });
        assert!(first_arguments.contains("--runtime=1600ms"), "{first_arguments}");
        assert!(second_arguments.contains("--runtime=1597ms"), "{second_arguments}");
        assert!((3..=4).contains(&(plan.jobs[1].wait.0 / 1_000_000)), "{}", plan.jobs[1].wait);
        assert!(!second_arguments.contains("startdelay"), "{second_arguments}");
        assert!(second_arguments.contains("--write_lat_log=b"), "{second_arguments}");
        assert!(!first_arguments.contains("ramp_time"), "{first_arguments}");
    }

    /// Goal: a long run logs no requests. Method: one of 60 s with its warm-up, and one of 1 ms more.
    #[test]
    fn long_runs_are_not_logged() {
        for (time, is_logged) in [("59500ms", true), ("59501ms", false)] {
            let text = FILE.replace("time = \"1s\"", &format!("time = \"{time}\""));
            let plan = planned(&text, "none-none").expect("fio has it");
            let arguments = plan.jobs[0].arguments.join(" ");
            assert_eq!(plan.jobs[0].logged.until > 0, is_logged, "{arguments}");
            assert_eq!(arguments.contains("--write_lat_log"), is_logged, "{arguments}");
            assert_eq!(arguments.contains("--ramp_time=500ms"), !is_logged, "{arguments}");
        }
    }

    /// Goal: what Linux does not have is refused with its key. Method: one of each kind.
    #[test]
    fn what_linux_lacks_is_refused() {
        let refused = |text: &str, stack: &str, key: &str| {
            let error = planned(text, stack).expect_err(key);
            assert!(error.contains(key), "{error}");
        };
        refused(FILE, "promise", "`stacks`");
        refused(FILE, "low-none", "`stacks`");
        refused(
            &FILE.replace("low_latency = false", "injection = false"),
            "prop-bfq",
            "`policy.bfq.injection`",
        );
        refused(&FILE.replace("depth = 2", "on_off = [\"1s\", \"1s\"]"), "none-none", "`on_off`");
    }
}
