//! Servers side by side: each a process of its own, measured in turn, again and again in alternation; medians
//! count, because machines are shared. The first server is ours, the second the peer that aims compare with
//! unless a bench says otherwise.
// Each bench uses its part of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use iofair_testkit::page;

/// One measurement.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// The server's processor time.
    pub(crate) cpu_us: f64,
}

/// A server under test; ends with its owner.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
}

impl Drop for Contender {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Contender {
    /// The server's processor time so far, in microseconds.
    pub(crate) fn processor_us(&self) -> f64 {
        page::processor_us(&self.child.id().to_string())
    }
}

/// This program again, as a server.
pub(crate) fn own(words: &[&str]) -> Vec<String> {
    let program = std::env::current_exe().expect("Linux tells").display().to_string();
    let words = words.iter().map(|word| String::from(*word));
    std::iter::once(program).chain(words).collect()
}

/// Starts servers, with a path for SOCKET, and waits until `answers` says that they are there. What is
/// not installed is left out, and named.
pub(crate) fn start(
    directory: &Path,
    commands: Vec<(&'static str, Vec<String>)>,
    answers: impl Fn(&Path) -> bool,
) -> Vec<Contender> {
    let mut started = Vec::new();
    for (name, command) in commands {
        let socket = directory.join(name.replace([' ', ',', '(', ')'], "-"));
        let place = socket.display().to_string();
        let words = command.iter().map(|word| word.replace("SOCKET", &place));
        let mut process = Command::new(&command[0]);
        let process = process.args(words.skip(1)).stdout(Stdio::null()).stderr(Stdio::null());
        match process.spawn() {
            Ok(child) => started.push(Contender { name, child, socket }),
            Err(error) => eprintln!("left out: {name} ({}: {error})", command[0]),
        }
    }
    for contender in &mut started {
        // A socket may be there before anybody listens.
        while !answers(&contender.socket) {
            let ended = contender.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "{} does not serve: {ended:?}", contender.name);
            std::thread::yield_now();
        }
    }
    started
}

/// Medians, by load and contender.
pub(crate) fn alternate(
    contenders: &[Contender],
    loads: &[&str],
    rounds: usize,
    sample: impl Fn(&Contender, usize) -> Sample,
) -> Vec<Vec<Sample>> {
    let by_load = loads.iter().enumerate().map(|(load, name)| {
        let mut samples = vec![Vec::new(); contenders.len()];
        for round in 0..rounds {
            for (of, contender) in contenders.iter().enumerate() {
                eprintln!("{name}, round {} of {rounds}: {}", round + 1, contender.name);
                samples[of].push(sample(contender, load));
            }
        }
        samples.iter().map(|samples| median(samples)).collect()
    });
    by_load.collect()
}

fn median(samples: &[Sample]) -> Sample {
    let of = |value: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Sample {
        iops: of(|s| s.iops),
        p50_us: of(|s| s.p50_us),
        p99_us: of(|s| s.p99_us),
        cpu_us: of(|s| s.cpu_us),
    }
}

/// What was measured, for programs.
pub(crate) fn rows_json(
    contenders: &[Contender],
    loads: &[&str],
    results: &[Vec<Sample>],
) -> Vec<Value> {
    let rows = loads.iter().zip(results).flat_map(|(load, samples)| {
        contenders.iter().zip(samples).map(move |(contender, sample)| {
            json!({
                "load": load, "server": contender.name, "iops": sample.iops.round(),
                "p50_us": sample.p50_us, "p99_us": sample.p99_us,
                "cpu_us_per_request": sample.cpu_us,
            })
        })
    });
    rows.collect()
}

/// What was measured, for people.
pub(crate) fn table(contenders: &[Contender], loads: &[&str], results: &[Vec<Sample>]) -> String {
    let mut rows = Vec::new();
    for (load, samples) in loads.iter().zip(results) {
        let ours = samples[0];
        for (contender, sample) in contenders.iter().zip(samples) {
            let Sample { iops, p50_us, p99_us, cpu_us } = sample;
            rows.push(vec![
                format!("{load}, {}", contender.name),
                format!("{iops:.0}"),
                format!("{:.2}", ours.iops / iops),
                format!("{p50_us:.0}"),
                format!("{p99_us:.0}"),
                format!("{cpu_us:.2}"),
                format!("{:.2}", ours.cpu_us / cpu_us),
            ]);
        }
    }
    let head = ["server", "IOPS", "ours is x", "p50 us", "p99 us", "CPU us", "ours is x"];
    page::table(&head, &rows)
}

/// Two aims: IOPS and processor time beside a peer.
pub(crate) fn aims(
    load: &str,
    ours: Sample,
    peer: Sample,
    [iops_aim, cpu_aim]: [f64; 2],
) -> Vec<Vec<String>> {
    let (iops, cpu) = (ours.iops / peer.iops, ours.cpu_us / peer.cpu_us);
    let what = format!("{load}: IOPS at least {iops_aim} of the best peer's");
    let cost = format!("{load}: the server's CPU a request at most {cpu_aim} of that peer's");
    vec![
        page::aim(what, format!("{iops:.2}"), iops >= iops_aim),
        page::aim(cost, format!("{cpu:.2}"), cpu <= cpu_aim),
    ]
}
