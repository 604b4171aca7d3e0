//! `reproduction/isolation.md`: every attack through every front end, measured and written down.

use std::env;
use std::fmt::Write;
use std::sync::Arc;

use crate::attack::Attack;
use crate::place::{Drive, Front, PROMISE};
use crate::rig::Directory;
use crate::victim::{Kind, Outcome};
use crate::{Run, fill};

/// Attackers at once.
pub(crate) const COUNTS: [usize; 3] = [1, 8, 64];
/// The aim: at least this part of the promise, and the 99th percentile at most this many times the honest one.
const SHARE: f64 = 0.95;
const SLOWER: f64 = 1.5;

/// A front end, a drive and a victim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set {
    pub(crate) front: Front,
    pub(crate) drive: Drive,
    pub(crate) kind: Kind,
}

impl Set {
    fn all() -> Vec<Self> {
        let emulated = |front| Self { front, drive: Drive::Emulated, kind: Kind::Reader };
        let mut all = [Front::Unix, Front::Tls, Front::Vhost, Front::Fuse].map(emulated).to_vec();
        all.push(Self { kind: Kind::Writer, ..emulated(Front::Unix) });
        all.push(Self { drive: Drive::Directory, ..emulated(Front::Unix) });
        all
    }
    /// Numbers of attackers: all of them for each front end, one for other victims and drives.
    fn counts(self) -> &'static [usize] {
        let other = self.kind == Kind::Writer || self.drive == Drive::Directory;
        if other { &COUNTS[1..2] } else { &COUNTS }
    }
    fn title(self) -> String {
        let front = match self.front {
            Front::Unix => "NBD over a Unix socket",
            Front::Tls => "NBD over TCP with TLS",
            Front::Vhost => "Virtual machine disks (vhost-user-blk)",
            Front::Fuse => "Mounted files (FUSE)",
        };
        let victim = match self.kind {
            Kind::Reader => "",
            Kind::Writer => ", a victim that writes and flushes",
        };
        let drive = match self.drive {
            Drive::Emulated => "",
            Drive::Directory => ", a directory on this machine's disk",
        };
        format!("{front}{victim}{drive}")
    }
}

fn number(name: &str, default: f64) -> f64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Each quantity's median.
fn median(outcomes: &[Outcome]) -> Outcome {
    let middle = |of: fn(&Outcome) -> f64| {
        let mut all: Vec<f64> = outcomes.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Outcome {
        requests: outcomes.iter().map(|outcome| outcome.requests).min().unwrap_or(0),
        bytes_per_s: middle(|outcome| outcome.bytes_per_s),
        p50_us: middle(|outcome| outcome.p50_us),
        p99_us: middle(|outcome| outcome.p99_us),
        failed: outcomes.iter().map(|outcome| outcome.failed).sum(),
    }
}

/// A set's rows: the attack, and its outcomes by the number of attackers.
struct Rows {
    alone: Vec<Outcome>,
    rows: Vec<(Attack, Vec<Vec<Outcome>>)>,
}

fn measure(set: Set, seconds: f64, repeats: usize, only: &[String]) -> Option<Rows> {
    let attacks: Vec<Attack> =
        [Attack::Honest].iter().chain(Attack::through(set.front)).copied().collect();
    let wanted = |attack: Attack, count: usize| {
        let name = format!("{set:?} {attack:?} {count}x");
        attack == Attack::Honest || only.iter().all(|word| name.contains(word))
    };
    let any = |attack: &Attack| set.counts().iter().any(|count| wanted(*attack, *count));
    if !attacks.iter().skip(1).any(any) {
        return None;
    }
    let directory = Arc::new(Directory::new());
    if set.drive == Drive::Directory {
        fill(&directory);
    }
    let none = vec![Vec::new(); set.counts().len()];
    let rows = attacks.iter().map(|attack| (*attack, none.clone())).collect();
    let mut all = Rows { alone: Vec::new(), rows };
    let run = |attack| Run { set, directory: Arc::clone(&directory), seconds, attack };
    for repeat in 1..=repeats {
        all.alone.push(run(None).go());
        println!("{repeat}/{repeats} {set:?} alone: {}", in_words(&all.alone[repeat - 1]));
        for (attack, outcomes) in &mut all.rows {
            for (place, count) in set.counts().iter().copied().enumerate() {
                if !wanted(*attack, count) {
                    continue;
                }
                let outcome = run(Some((*attack, count))).go();
                println!("{repeat}/{repeats} {set:?} {attack:?} {count}x: {}", in_words(&outcome));
                outcomes[place].push(outcome);
            }
        }
    }
    Some(all)
}

fn in_words(outcome: &Outcome) -> String {
    let Outcome { requests, bytes_per_s, p50_us, p99_us, failed } = outcome;
    let rate = bytes_per_s / 1e6;
    format!(
        "{rate:.2} MB/s, p50 {p50_us:.0} us, p99 {p99_us:.0} us ({requests} requests, {failed} failed)"
    )
}

fn milliseconds(us: f64) -> String {
    if us < 10_000.0 { format!("{:.2} ms", us / 1e3) } else { format!("{:.0} ms", us / 1e3) }
}

/// The table of a set; counts cells and those that miss the aim.
fn table(page: &mut String, set: Set, rows: &Rows, missed: &mut [usize; 2]) {
    let alone = median(&rows.alone);
    let rates: Vec<String> =
        rows.alone.iter().map(|outcome| format!("{:.1}", outcome.bytes_per_s / 1e6)).collect();
    let _ = writeln!(
        page,
        "## {}\n\nAlone: {:.2} MB/s, median {}, 99th percentile {} (runs: {} MB/s).\n",
        set.title(),
        alone.bytes_per_s / 1e6,
        milliseconds(alone.p50_us),
        milliseconds(alone.p99_us),
        rates.join(", ")
    );
    let counts: String = set.counts().iter().map(|count| format!(" {count} |")).collect();
    let _ =
        writeln!(page, "| Each neighbour |{counts}\n|---|{}", "---|".repeat(set.counts().len()));
    let promise = (PROMISE as f64).min(alone.bytes_per_s);
    let honest: Vec<Option<Outcome>> = rows.rows[0]
        .1
        .iter()
        .map(|outcomes| (!outcomes.is_empty()).then(|| median(outcomes)))
        .collect();
    for (attack, outcomes) in &rows.rows {
        let _ = write!(page, "| {} |", attack.describe(set.front));
        for (outcomes, honest) in outcomes.iter().zip(&honest) {
            if outcomes.is_empty() {
                page.push_str(" |");
                continue;
            }
            let outcome = median(outcomes);
            let slower = honest.map_or(1.0, |honest| outcome.p99_us / honest.p99_us.max(1.0));
            let (rate, p99) = (outcome.bytes_per_s / 1e6, milliseconds(outcome.p99_us));
            let is_honest = *attack == Attack::Honest;
            let misses =
                outcome.bytes_per_s < SHARE * promise || outcome.failed > 0 || slower > SLOWER;
            let times = if is_honest { String::new() } else { format!(" ({slower:.1} x)") };
            let text = format!("{rate:.1} MB/s, {p99}{times}");
            let _ = match misses && !is_honest {
                true => write!(page, " **missed:** {text} |"),
                false => write!(page, " {text} |"),
            };
            if !is_honest {
                missed[0] += 1;
                missed[1] += usize::from(misses);
            }
        }
        page.push('\n');
    }
    page.push('\n');
}

/// Measures everything, or what `IOFAIR_HOSTILE_ONLY` names, and writes the page.
pub(crate) fn write() {
    let (seconds, repeats) =
        (number("IOFAIR_HOSTILE_SECONDS", 0.6), number("IOFAIR_HOSTILE_REPEATS", 3.0));
    let only = env::var("IOFAIR_HOSTILE_ONLY").unwrap_or_default();
    let only: Vec<String> = only.split_whitespace().map(String::from).collect();
    let mut missed = [0; 2];
    let mut tables = String::new();
    for set in Set::all() {
        if let Some(rows) = measure(set, seconds, repeats as usize, &only) {
            table(&mut tables, set, &rows, &mut missed);
        }
    }
    let [cells, missed] = missed;
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let page = format!(
        "# Isolation\n\n\
         <!-- Written by `make hostile`; do not edit. -->\n\n\
         This page shows what a client with a contract gets beside hostile clients, for every front end. `make hostile` \
         measures it and writes the page.\n\n\
         The victim reads 4 KiB at random with queue depth 1. Its group has `min = \"{}MB/s\"` and `latency = \"2ms\"`; \
         all attackers are in one other group without a guarantee; each has its own volume. The stack is `promise`, the \
         default. The drive is the emulated SATA SSD `plextor-px256m5s` in real time, unless the heading says \
         otherwise.\n\n\
         Aim: at least {:.0} % of the promised rate (or of what the victim gets alone, if that is less), and a 99th \
         percentile of at most {SLOWER} times that beside as many *honest* neighbours under the same contract as the \
         attackers. The numbers in brackets compare with these neighbours. Of {cells} combinations **{missed}** miss \
         the aim; they are marked.\n\n\
         Method: a new `iofair serve` for each run of {seconds} s, {repeats} runs of each, and the median of each \
         quantity, on {processors} processors. The attackers are threads of another process at `nice 19`, and the \
         victim and the server's reactor thread have real-time priority, so that attackers cannot take the processor \
         from them; this measures the server and not the process scheduler. The server's other threads run at normal \
         priority. A request that never completed counts with its waiting time. The runs of the victim alone show how \
         noisy the machine was.\n\n\
         Block devices of the host (ublk) are missing, because the machine has no driver for them.\n\n{tables}",
        PROMISE / 1_000_000,
        SHARE * 100.0,
    );
    match env::var("IOFAIR_HOSTILE_PAGE") {
        Ok(path) if only.is_empty() => std::fs::write(path, page).expect("the page can be written"),
        _ => println!("{page}"),
    }
}
