//! fio's arguments for what calls do: directions, sizes, places, rates, and the end of a job.

use iofair_core::priority::Class;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_simulator::scenario::{
    Batches, Calls, Direction, Distribution, Gap, Job, Mix, Turn, Urgent,
};

/// The value of `rw`.
pub(super) fn access(job: &Job) -> String {
    let random = if job.pattern.is_sequential() { "" } else { "rand" };
    let what = match job.calls.mix {
        Mix::Pattern if job.pattern.writes() => "write",
        Mix::Pattern => "read",
        Mix::ReadsAndWrites { .. } => "rw",
        Mix::Trims => "trim",
        Mix::TrimsThenWrites => "trimwrite",
    };
    match job.calls.turn {
        Turn::Each | Turn::Gap(Gap { sectors: 0, .. }) => {
            format!("{random}{what}")
        }
        Turn::Run(calls) | Turn::Same(calls) => format!("{random}{what}:{calls}"),
        Turn::Gap(gap) => format!("{random}{what}:{}", gap.sectors * 512),
    }
}

/// Sizes of calls.
pub(super) fn sizes(job: &Job) -> String {
    if job.calls.sizes.iter().all(Vec::is_empty) {
        return format!("--bs={}", job.block.bytes());
    }
    let alone = [(job.block, 100)];
    let split = |direction: Direction| {
        let sizes = &job.calls.sizes[direction.index()];
        let sizes: &[(Sectors, u32)] = if sizes.is_empty() { &alone } else { sizes };
        let parts = sizes.iter().map(|(size, percent)| format!("{}/{percent}", size.bytes()));
        parts.collect::<Vec<_>>().join(":")
    };
    format!("--bssplit={}", Direction::ALL.map(split).join(","))
}

/// The rest.
pub(super) fn arguments(job: &Job) -> Vec<String> {
    let Calls { mix, rates, distribution, turn, bytes_max, calls_max, think_every, search, .. } =
        &job.calls;
    let mut all = Vec::new();
    let rate = |rate: &Option<u64>| rate.map(|rate| rate.to_string()).unwrap_or_default();
    if let Some(rate) = job.rate {
        all.push(format!("--rate={rate}"));
    } else if rates.iter().any(Option::is_some) {
        all.push(format!("--rate={}", rates.each_ref().map(rate).join(",")));
    }
    if let Mix::ReadsAndWrites { reads } = mix {
        all.push(format!("--rwmixread={reads}"));
    }
    if let Turn::Same(_) = turn {
        all.push("--rw_sequencer=identical".to_owned());
    }
    all.extend(
        match distribution {
            Distribution::Uniform | Distribution::Once => None,
            Distribution::Zipf { theta } => Some(format!("zipf:{theta}")),
            Distribution::Pareto { h } => Some(format!("pareto:{h}")),
            Distribution::Normal { deviation_percent } => {
                Some(format!("normal:{deviation_percent}"))
            }
            Distribution::Zoned(zones) => {
                let zones = zones.iter().map(|(calls, range)| format!("{calls}/{range}"));
                Some(format!("zoned:{}", zones.collect::<Vec<_>>().join(":")))
            }
        }
        .map(|text| format!("--random_distribution={text}")),
    );
    if let Turn::Gap(Gap { passes: Some(passes), start, room, .. }) = turn {
        // The end of a pass may end them before their bytes are done, unless it is one through a part of a file.
        let goes_on = passes.goes_on || (*start == 0 && passes.wanted < *room);
        all.push(format!("--loops={}", passes.number));
        all.extend(goes_on.then(|| format!("--io_size={}", passes.wanted)));
    } else {
        all.extend(bytes_max.map(|bytes| format!("--io_size={bytes}")));
    }
    all.extend(calls_max.map(|calls| format!("--number_ios={calls}")));
    all.extend(think_every.map(|calls| format!("--thinktime_blocks={calls}")));
    all.extend(orders(job));
    if let Some(search) = search {
        let micros = |time: Nanos| time.0 / 1_000;
        all.push(format!("--latency_target={}", micros(search.target)));
        all.push(format!("--latency_window={}", micros(search.window)));
        all.push(format!("--latency_percentile={}", f64::from(search.per_million) / 1e4));
        all.push(format!("--latency_run={}", u8::from(search.goes_on)));
    }
    all
}

/// How calls are made beside others: synchronous, in groups, of another priority, at times that are drawn.
fn orders(job: &Job) -> Vec<String> {
    let Calls { align, durable, end_sync, poisson, batches, least_rate, urgent, hits, .. } =
        &job.calls;
    let mut all = Vec::new();
    for (is_set, argument) in [
        (*durable, "--sync=1"),
        (*end_sync, "--end_fsync=1"),
        (*poisson, "--rate_process=poisson"),
        (hits.is_some_and(|hits| !hits.invalidate), "--invalidate=0"),
    ] {
        all.extend(is_set.then(|| argument.to_owned()));
    }
    for (name, every) in [("fdatasync", job.fdatasync_every), ("fsync", job.calls.sync_every)] {
        all.extend((every > 0).then(|| format!("--{name}={every}")));
    }
    all.extend(align.map(|align| format!("--blockalign={}", align.bytes())));
    if let Some(Batches { submit, complete }) = batches {
        all.push(format!("--iodepth_batch={submit}"));
        all.push(format!("--iodepth_batch_complete_min={complete}"));
    }
    if let Some(least) = least_rate {
        let list =
            |rates: &[Option<u64>; 3]| rates.map(|rate| rate.unwrap_or(0).to_string()).join(",");
        all.push(format!("--rate_min={}", list(&least.bytes)));
        all.push(format!("--rate_iops_min={}", list(&least.calls)));
        all.push(format!("--rate_cycle={}", least.cycle.0 / 1_000_000));
    }
    if let Some(Urgent { percent: [reads, writes], priority }) = urgent {
        let class = match priority.class {
            Class::RealTime => 1,
            Class::Idle => 3,
            _ => 2,
        };
        all.push(format!("--cmdprio_percentage={reads},{writes}"));
        all.push(format!("--cmdprio_class={class}"));
        all.push(format!("--cmdprio={}", priority.level));
    }
    all
}

#[cfg(test)]
mod tests {
    use iofair_experiments::experiment::Overrides;
    use iofair_experiments::jobs;

    use super::*;

    /// Goal: a job file becomes fio's arguments again. Method: one job for each group of options; the parts that must be there.
    #[test]
    fn jobs_become_arguments() {
        for (options, parts) in [
            (
                "rw=randrw / rwmixread=70 / rate=1m,500k",
                &["randrw", "--rwmixread=70", "--rate=1048576,512000,"][..],
            ),
            ("rw=read:4k", &["read:4096", "--bs=4096", "--loops=1"]),
            ("rw=write:8k / size=64k / filesize=128k", &["--loops=1", "--io_size=65536"]),
            ("rw=read", &["read", "--io_size=1048576"]),
            ("rw=randread:8 / rw_sequencer=identical", &["randread:8", "--rw_sequencer=identical"]),
            (
                "rw=randwrite / bssplit=4k/50:8k/50",
                &["--bssplit=4096/100,4096/50:8192/50,4096/100"],
            ),
            ("rw=randread / random_distribution=zipf:1.2", &["--random_distribution=zipf:1.2"]),
            ("rw=randread / random_distribution=zoned:60/10:40/90", &["=zoned:60/10:40/90"]),
            ("rw=randtrim / number_ios=7", &["randtrim", "--number_ios=7"]),
            ("thinktime=1ms / thinktime_blocks=4", &["--thinktime_blocks=4"]),
            ("rw=read:-8k", &["read:-8192"]),
            ("rw=write / sync=1 / end_fsync=1", &["--sync=1", "--end_fsync=1"]),
            ("rw=write / fsync=10 / fdatasync=4", &["--fsync=10", "--fdatasync=4"]),
            ("rate=1m / rate_process=poisson", &["--rate_process=poisson"]),
            ("buffered=1 / invalidate=0", &["--invalidate=0"]),
            ("rate_min=1m / rate_cycle=200", &["--rate_min=1048576,0,0", "--rate_cycle=200"]),
            (
                "ioengine=libaio / iodepth=8 / iodepth_batch=4 / iodepth_low=2",
                &["--iodepth_batch=4", "--iodepth_batch_complete_min=6"],
            ),
            (
                "ioengine=libaio / iodepth=8 / cmdprio_percentage=20",
                &["--cmdprio_percentage=20,20", "--cmdprio_class=1", "--cmdprio=0"],
            ),
        ] {
            let text = format!("[a]\nsize=1m\ndirect=1\n{}\n", options.replace(" / ", "\n"));
            let experiment = jobs::parse("a.fio", &text, &Overrides::default()).expect(&text);
            let job = &experiment.variants[0].clients[0].job;
            let told = [access(job), sizes(job), arguments(job).join(" ")].join(" ");
            assert!(parts.iter().all(|part| told.contains(part)), "{options}: {told}");
        }
    }
}
