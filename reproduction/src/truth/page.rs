//! The page: a summary, the deviations with their causes, and a table for each experiment.

use std::fmt::Write;

use iofair_experiments::distinct;
use iofair_experiments::report::number;
use iofair_simulator::calibration::Disturbed;

use super::causes::Causes;
use super::evidence::{Evidence, Part};
use super::path::{PathTimes, Shared};
use super::picture;
use super::score::{Kind, Mix, Of, Pair, count, ends, median, mixes};

/// The introduction, above the results.
const HEAD: &str = include_str!("head.md");

/// Characters of a line of prose.
const WIDTH: usize = 118;

/// The median; with least and most where runs differ by more than 5 %.
fn spread(of: &[f64]) -> String {
    if of.is_empty() {
        return "-".into();
    }
    let ([least, most], middle) = (ends(of), median(of));
    match most <= least * 1.05 {
        true => number(middle),
        false => format!("{} ({} to {})", number(middle), number(least), number(most)),
    }
}

fn near_of((near, all): (usize, usize)) -> String {
    format!("{near} of {all} ({} %)", near * 100 / all.max(1))
}

/// One line of a table of scores.
fn scores(name: &str, mixes: &[Mix<'_>], ours: Of) -> String {
    let pairs: Vec<Pair> = mixes.iter().flat_map(|mix| mix.pairs(ours)).collect();
    let rows = mixes.iter().map(|mix| mix.near_rows(ours));
    let rows = rows.fold((0, 0), |sum, mix| (sum.0 + mix.0, sum.1 + mix.1));
    let [shares, totals, means] = Kind::ALL.map(|kind| near_of(count(&pairs, kind)));
    format!("| {name} | {shares} | {totals} | {means} | {} |\n", near_of(rows))
}

const SCORES: &str = "| | shares within 10 % | totals within 15 % | mean latencies within 25 % | rows with all three |\n\
                      |---|---|---|---|---|\n";

/// The page.
pub fn page(evidence: &Evidence, causes: &Causes) -> String {
    let all = mixes(evidence);
    let mut text = causes.head.as_deref().unwrap_or(HEAD).trim_end().to_owned();
    text.push_str("\n\n## Summary\n\n");
    places(&mut text, evidence);
    if !evidence.missing.is_empty() {
        let _ = writeln!(text, "Not measured yet: {}.\n", evidence.missing.join(", "));
    }
    text.push_str(
        "A row is a client in a mix on a stack. Medians over the runs of a mix are compared, ours with the kernel's.\n\n",
    );
    text.push_str(SCORES);
    text.push_str(&scores("simulator", &all, |row| &row.lab));
    if all.iter().any(|mix| !mix.pairs(|row| &row.live).is_empty()) {
        text.push_str(&scores("live server", &all, |row| &row.live));
    } else {
        text.push_str("\nThe live server is not measured yet.\n");
    }
    text.push_str("\nThe simulator beside the kernel, by stack:\n\n");
    text.push_str(SCORES);
    for stack in distinct(all.iter().map(Mix::stack)) {
        let own: Vec<_> = all.iter().filter(|mix| mix.stack() == stack).copied().collect();
        text.push_str(&scores(stack, &own, |row| &row.lab));
    }
    let _ = writeln!(
        text,
        "\n![Ratio of the simulator's numbers to the kernel's, by stack](images/{})",
        picture::ratios_name(evidence)
    );
    deviations(&mut text, evidence, causes);
    for part in &evidence.experiments {
        section(&mut text, part);
    }
    text.lines().map(wrapped).collect()
}

/// A line and its end, broken where it is long prose.
fn wrapped(line: &str) -> String {
    let rows = ["|", "#", "!"];
    if line.chars().count() <= WIDTH || rows.iter().any(|start| line.starts_with(start)) {
        return format!("{line}\n");
    }
    let indent = if line.starts_with("- ") { "  " } else { "" };
    let (mut text, mut column) = (String::new(), 0);
    for word in line.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(indent);
            column = indent.len();
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text + "\n"
}

/// Where it was measured, and the path.
fn places(text: &mut String, evidence: &Evidence) {
    let places = distinct(evidence.experiments.iter().map(|part| part.place.as_str()));
    let us = |of: &dyn Fn(&PathTimes) -> u64| micros(evidence, of);
    let _ = writeln!(
        text,
        "On {}. Before each experiment, the path was measured; the simulator has the median of each number: above the scheduler, {} pass from a completion to the next \
         request of a process (of which fio counts {} as latency, until the process runs again); below it, a request takes {} longer than in the drive model (of which {} on average are random), and {} in addition for each MiB; \
         of this, {} are in a stage that passes one request at a time.\n",
        places.join("; "),
        us(&|path| path.turnaround_ns + path.woken_ns),
        us(&|path| path.woken_ns),
        us(&|path| path.path_ns[0] + path.path_ns[1] + path.jitter_ns),
        us(&|path| path.jitter_ns),
        us(&|path| path.path_ns[2]),
        us(&|path| path.path_ns[1]),
    );
    for (world, name) in ["Kernel", "Live server"].iter().enumerate() {
        let mut disturbed = Disturbed::default();
        evidence.experiments.iter().for_each(|part| disturbed.add(&part.disturbed[world]));
        let said = disturbed.text();
        if !said.is_empty() {
            let _ = writeln!(text, "**{name}.** {said}\n");
        }
    }
    processors(text, evidence);
}

/// A time of all paths, in microseconds.
fn micros(evidence: &Evidence, of: &dyn Fn(&PathTimes) -> u64) -> String {
    let all: Vec<f64> = evidence.paths().map(|path| of(path) as f64 / 1e3).collect();
    let [least, most] = ends(&all);
    match most - least < 1.0 {
        true => format!("{:.0} us", median(&all)),
        false => format!("{least:.0} to {most:.0} us"),
    }
}

/// The processors of the simulator's path.
fn processors(text: &mut String, evidence: &Evidence) {
    let shared: Vec<_> = evidence.paths().filter_map(|path| path.processors.as_ref()).collect();
    let Some(first) = shared.first() else { return };
    let times = |kind: fn(&Shared) -> [u64; 3]| {
        let time = |n: usize| {
            micros(evidence, &move |path| {
                path.processors.as_ref().map_or(0, |shared| kind(shared)[n])
            })
        };
        format!("{} a turn, {} a request and {} a MiB", time(0), time(1), time(2))
    };
    let overlap = micros(evidence, &|path| {
        path.processors.as_ref().map_or(0, |shared| shared.overlap(path.path_ns[2]))
    });
    let deep: Vec<f64> = evidence.paths().map(|path| path.deep_iops[0] / 1e3).collect();
    let deep = format!("{:.1} thousand a second", median(&deep));
    let mut notes: Vec<&str> = shared.iter().map(|shared| shared.note.as_str()).collect();
    notes.dedup();
    let _ = writeln!(
        text,
        "In the simulator, clients and path share {} processors. A thread does in one turn all work that has come when the turn \
         begins. Measured processor time: a process of fio, {}; what passes requests to the server (the loop device's worker, \
         the threads that read FUSE's requests, ksoftirqd), {}; the server, {}, two turns for a lone request. The time of a request is measured with 32 of them in flight, where a turn serves several, so it contains \
         a part of a turn; the simulator has the part with which such a client gets as many requests through as on the kernel (median {deep}). \
         While a request is in \
         the drive, half of the server's work for it passes, and {overlap} of its work for a MiB: what is left then is as long as a \
         lone large request is late. {}\n",
        first.count,
        times(|shared| shared.client_ns),
        times(|shared| shared.worker_ns),
        times(|shared| shared.server_ns),
        notes.join(" ")
    );
    copies(text, evidence);
}

/// What the page cache takes.
fn copies(text: &mut String, evidence: &Evidence) {
    let range = |n: usize| {
        let times = evidence.paths().filter_map(|path| path.copies_ns);
        let all: Vec<u64> = times.map(|times| times[n] / 1000).collect();
        let (least, most) = (all.iter().min()?, all.iter().max()?);
        Some(if least == most { format!("{least} us") } else { format!("{least} to {most} us") })
    };
    let [Some(reader), Some(writer), Some(flusher), Some(server)] = [0, 2, 3, 4].map(range) else {
        return;
    };
    let _ = writeln!(
        text,
        "Where clients use the page cache, 256 KiB of it took {reader} of a reader's processor time, {writer} of a writer's, and {flusher} of the \
         flusher's. The server took {server} in addition to what a direct read takes, since the pages are new: a virtual machine's host \
         may have to find memory for them. In the simulator, copies share the processors with everything else.\n"
    );
}
fn deviations(text: &mut String, evidence: &Evidence, causes: &Causes) {
    text.push_str("\n## Deviations and their causes\n\n");
    text.push_str(
        "All mixes in which a share, a total or a mean latency of the simulator is outside of these bounds: simulator / kernel. \
         *Within its spread*: the simulator's median lies between the kernel's least and most.\n",
    );
    for (why, mixes) in causes.explain(evidence) {
        let why = why.unwrap_or("Cause not found.").replace('\n', " ");
        let _ = write!(text, "\n{why}\n\n");
        for mix in mixes {
            let row = &mix.rows[0];
            let far = mix.pairs(|row| &row.lab);
            let far: Vec<String> = far
                .iter()
                .filter(|pair| !pair.is_near())
                .map(|pair| {
                    let client = match pair.kind {
                        Kind::Total => String::new(),
                        _ => format!(" of {}", mix.rows[pair.row].client),
                    };
                    let inside = if pair.inside { " (within its spread)" } else { "" };
                    let (ours, kernel) = (number(pair.ours), number(pair.kernel));
                    format!("{}{client} {ours} / {kernel}{inside}", pair.kind.name())
                })
                .collect();
            let (experiment, variant, stack) = (mix.short(), &row.variant, &row.stack);
            let _ = writeln!(text, "- {experiment} [{variant}] {stack}: {}", far.join(", "));
        }
    }
}

fn section(text: &mut String, part: &Part) {
    let evidence = Evidence { experiments: vec![part.clone()], missing: Vec::new() };
    let all = mixes(&evidence);
    let short = all.first().map_or("", Mix::short);
    let _ = write!(
        text,
        "\n## {short}\n\n![Shares, totals and latencies in simulator, live server and kernel, each run a \
         dot](images/{})\n\n\
         Medians, with least and most where runs differ by more than 5 %. Bold: outside of the bounds.\n\n\
         | variant, stack | client | share %: simulator | live | kernel | mean ms: simulator | live | kernel | p99 ms: simulator | \
         live | kernel |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
        picture::name(&part.experiment)
    );
    for mix in &all {
        let pairs = mix.pairs(|row| &row.lab);
        let marked = |kind: Kind, row: usize, values: &[f64]| {
            let mut own = pairs.iter().filter(|pair| pair.kind == kind && pair.row == row);
            match own.all(Pair::is_near) {
                true => spread(values),
                false => format!("**{}**", spread(values)),
            }
        };
        for (n, row) in mix.rows.iter().enumerate() {
            let (lab, live, kernel) = (&row.lab, &row.live, &row.kernel);
            let cells = [
                row.place(),
                row.client.clone(),
                marked(Kind::Share, n, &lab.share_percent),
                spread(&live.share_percent),
                spread(&kernel.share_percent),
                marked(Kind::Mean, n, &lab.mean_ms),
                spread(&live.mean_ms),
                spread(&kernel.mean_ms),
                spread(&lab.p99_ms),
                spread(&live.p99_ms),
                spread(&kernel.p99_ms),
            ];
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        let total = |of: Of| spread(&mix.totals(of));
        let _ = writeln!(
            text,
            "| | total, MB/s | {} | {} | {} | | | | | | |",
            marked(Kind::Total, 0, &mix.totals(|row| &row.lab)),
            total(|row| &row.live),
            total(|row| &row.kernel)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::evidence::{Numbers, Row};
    use super::*;

    fn numbers(rate: f64, share: f64, mean: f64) -> Numbers {
        let (rate, mean_ms) = (vec![rate, rate * 1.01], vec![mean; 2]);
        Numbers { rate, share_percent: vec![share; 2], p99_ms: mean_ms.clone(), mean_ms }
    }
    fn row(client: &str, kernel: Numbers, lab: Numbers) -> Row {
        let [variant, stack] = ["v", "none-none"].map(str::to_owned);
        Row { variant, stack, client: client.into(), kernel, live: lab.clone(), lab }
    }

    /// Goal: the simulator has the median path of its machine, and no other's. Method: three parts of one machine, one of another.
    #[test]
    fn the_path_is_the_median_of_a_machine() {
        let part = |experiment: &str, place: &str, time: u64| Part {
            experiment: experiment.into(),
            fingerprint: String::new(),
            place: place.into(),
            paths: vec![PathTimes {
                turnaround_ns: time,
                woken_ns: 10 * time,
                path_ns: [time; 3],
                jitter_ns: time,
                ..PathTimes::default()
            }],
            disturbed: Default::default(),
            rows: Vec::new(),
        };
        let one = [part("a", "one", 1), part("b", "one", 9), part("c", "one", 2)];
        let experiments = one.into_iter().chain([part("d", "two", 100)]).collect();
        let evidence = Evidence { experiments, missing: Vec::new() };
        let with = |index: usize| evidence.path(&evidence.experiments[index]);
        assert_eq!((with(0).turnaround_ns, with(1).woken_ns, with(2).path_ns), (2, 20, [2; 3]));
        assert_eq!((with(3).jitter_ns, with(1).copies_ns), (100, None));
    }

    /// Goal: the page counts what is near the kernel's numbers, marks what is not, and lists it with its cause. Method:
    /// two clients, one share and one latency off; a cause that matches, and one that names nothing; another beginning.
    #[test]
    fn deviations_are_marked() {
        let rows = vec![
            row("a", numbers(10.0, 25.0, 1.0), numbers(10.0, 30.0, 1.0)),
            row("b", numbers(30.0, 75.0, 1.0), numbers(30.0, 70.0, 2.0)),
        ];
        let part = Part {
            experiment: "truth/e".into(),
            fingerprint: String::new(),
            place: "a machine".into(),
            paths: vec![PathTimes::default()],
            disturbed: [(41, 2), (18, 0)].map(|(runs, again)| Disturbed {
                runs,
                again,
                ..Disturbed::default()
            }),
            rows,
        };
        let evidence = Evidence { experiments: vec![part], missing: vec!["truth/f".into()] };
        let text = page(&evidence, &Causes::default());
        let line = "repeated: 2 times, for 41 runs.";
        assert!(text.replace('\n', " ").contains(line), "{text}");
        let line = "| simulator | 1 of 2 (50 %) | 1 of 1 (100 %) | 1 of 2 (50 %) | 0 of 2 (0 %) |";
        assert!(text.contains(line), "{text}");
        let alone = Row { variant: String::new(), ..evidence.experiments[0].rows[0].clone() };
        assert_eq!(
            [&evidence.experiments[0].rows[0], &alone].map(Row::place),
            ["v, none-none", "none-none"]
        );
        assert!(text.contains("**30.0**") && text.contains("**2.00**"), "{text}");
        let told = "Cause not found.\n\n- e [v] none-none: share of a 30.0 / 25.0, mean latency of b 2.00 / 1.00\n";
        assert!(text.contains(told), "{text}");
        assert!(text.contains("Not measured yet: truth/f."), "{text}");
        let directory = std::env::temp_dir().join(format!("iofair-causes-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let causes = |mix: &str| {
            let text = format!(
                "head = '# Other mixes'\n[[cause]]\nmixes = [\"{mix}\"]\nwhy = \"The moon.\"\n"
            );
            std::fs::write(directory.join("truth.causes.toml"), text).expect("written");
            Causes::read(&directory.join("truth.json"), &evidence)
        };
        let found = causes("e [*] none-none").expect("it deviates");
        let explained = page(&evidence, &found);
        assert!(explained.contains("\nThe moon.\n\n- e [v] none-none"), "{explained}");
        let heads = ["# Other mixes\n\n## Summary", "# The kernel beside the simulator\n"];
        assert!(explained.starts_with(heads[0]) && text.starts_with(heads[1]), "{explained}");
        for picture in ["(images/truth-e.svg)", "(images/truth-ratios.svg)"] {
            assert!(text.contains(picture), "{text}");
        }
        assert!(causes("e [*] none-bfq").is_err() && causes("e").is_err());
        std::fs::remove_dir_all(directory).expect("removed");
        let pictures = super::super::pictures(&evidence);
        assert_eq!(pictures[0].0, "truth-e.svg");
        assert!(pictures.iter().all(|picture| picture.1.starts_with("<svg")));
    }
}
