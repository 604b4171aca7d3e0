//! Claims about real time, on machines that others use as well.
//!
//! A claim that holds is believed at once. One that fails is measured again while processors were missing, and in the
//! end neither holds nor fails: it is *not judged*.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

/// Part of all processors' time that others may have had for a failed measurement to count: with a tenth, a test of two busy
/// threads on two processors still has what it needs.
const OTHERS_MAX: f64 = 0.1;
/// Measurements of one claim.
const TRIES: u32 = 4;
/// Wait for others to end before another measurement; they are looked at each time.
const CALM: (u32, Duration) = (30, Duration::from_secs(2));
/// Ticks a second of `/proc`, on every platform of Linux (`proc_stat(5)`, USER_HZ).
const TICKS: f64 = 100.0;

/// A process, of `/proc/PID/stat`.
struct Process {
    id: u32,
    parent: u32,
    /// User and system time, its own and its ended children's.
    ticks: f64,
}

impl Process {
    fn parse(text: &str) -> Option<Self> {
        let id = text.split_once(' ')?.0.parse().ok()?;
        // The name is in parentheses and may contain anything.
        let fields: Vec<i64> =
            text.rsplit_once(')')?.1.split_whitespace().skip(1).flat_map(str::parse).collect();
        let ticks = fields.get(10..14)?.iter().sum::<i64>() as f64;
        Some(Self { id, parent: *fields.first()? as u32, ticks })
    }
}

/// Time of the processes that are neither `own` nor its descendants, whatever their nice values: a client that waits for each
/// reply also waits for those that run at the lowest priority. Kernel threads, children of 2, work for somebody else.
fn taken(processes: &[Process], own: u32) -> f64 {
    let mut known = vec![own, 2];
    while let Some(child) = processes
        .iter()
        .find(|process| known.contains(&process.parent) && !known.contains(&process.id))
    {
        known.push(child.id);
    }
    let foreign = processes.iter().filter(|process| !known.contains(&process.id));
    foreign.map(|process| process.ticks).sum()
}

/// Ticks that others had until now, other guests of the machine's host included.
fn others() -> f64 {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let texts = entries.flat_map(|entry| fs::read_to_string(entry.path().join("stat")));
    let processes: Vec<Process> = texts.filter_map(|text| Process::parse(&text)).collect();
    let total = fs::read_to_string("/proc/stat").unwrap();
    let stolen = total.split_whitespace().nth(8).and_then(|text| text.parse::<f64>().ok());
    taken(&processes, std::process::id()) + stolen.unwrap_or(0.0)
}

/// What it returns, and the part of all processors' time that others had meanwhile, 0 to 1.
fn beside_others<T>(run: impl FnOnce() -> T) -> (T, f64) {
    let (before, since) = (others(), Instant::now());
    let result = run();
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let all = since.elapsed().as_secs_f64() * TICKS * processors;
    (result, (others() - before).max(0.0) / all)
}

/// Measures until the claim holds, or fails on a quiet machine. `measure` says what it found if the claim does not hold.
///
/// A claim that could not be judged is also told in the file that `IOFAIR_NOT_JUDGED` names, for `scripts/test`.
pub fn judged(claim: &str, mut measure: impl FnMut() -> Result<(), String>) {
    let calm = || {
        let pause = || std::thread::park_timeout(CALM.1);
        (0..CALM.0).find(|_| beside_others(pause).1 < OTHERS_MAX);
    };
    let Err(told) = judge(claim, || beside_others(&mut measure), calm) else { return };
    eprintln!("{told}");
    if let Some(file) = std::env::var_os("IOFAIR_NOT_JUDGED") {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "{told}").unwrap();
    }
}

/// The same with what others had in each measurement, and a wait until they have ended.
fn judge(
    claim: &str,
    mut measure: impl FnMut() -> (Result<(), String>, f64),
    mut calm: impl FnMut(),
) -> Result<(), String> {
    for attempt in 1.. {
        let (found, others) = measure();
        let Err(found) = found else { break };
        assert!(others > OTHERS_MAX, "{claim}: {found}");
        if attempt == TRIES {
            let percent = others * 100.0;
            return Err(format!(
                "not judged: the machine is busy (others had {percent:.0} % of its processors): {claim}: {found}"
            ));
        }
        calm();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only others count. Method: by hand; the third is a child of the second.
    #[test]
    fn others_are_told_from_the_own() {
        let line = |id: u32, name: &str, parent: u32, ticks: [i64; 4]| {
            let [user, system, ended_user, ended_system] = ticks;
            let text = format!(
                "{id} ({name}) S {parent} 1 1 0 -1 4194304 9 9 0 0 {user} {system} {ended_user} {ended_system} 20 0 1 0"
            );
            Process::parse(&text).unwrap()
        };
        let mut all = vec![
            line(1, "init", 0, [1, 0, 2, 0]),
            line(2, "kthreadd", 0, [100, 0, 0, 0]),
            line(30, "a) R 30 (b", 31, [100; 4]),
            line(31, "test", 1, [100; 4]),
            line(32, "kworker", 2, [100; 4]),
        ];
        assert!((taken(&all, 31) - 3.0).abs() < 1e-9);
        all.push(line(33, "cc", 1, [30, 10, 5, 5]));
        assert!((taken(&all, 31) - 53.0).abs() < 1e-9);
        assert!(Process::parse("33 (cut").is_none() && others() > 0.0);
    }

    /// Goal: a claim that holds is believed, one that fails beside others is measured again and at last not judged. Method:
    /// measurements by hand.
    #[test]
    fn claims_are_measured_again_beside_others() {
        let tell = |measurements: &[(Result<(), String>, f64)]| {
            let (mut next, mut waits) = (measurements.iter().cloned(), 0);
            let told = judge("fair", || next.next().unwrap(), || waits += 1);
            (told, waits)
        };
        let (holds, fails) = (Ok(()), Err("1 of 2".to_owned()));
        assert_eq!(tell(&[(holds.clone(), 0.9)]), (Ok(()), 0));
        assert_eq!(tell(&[(fails.clone(), 0.5), (holds, 0.0)]), (Ok(()), 1));
        let (told, waits) = tell(&vec![(fails, 0.5); TRIES as usize]);
        let text =
            "not judged: the machine is busy (others had 50 % of its processors): fair: 1 of 2";
        assert_eq!((told, waits), (Err(text.to_owned()), TRIES - 1));
    }

    /// Goal: a claim that fails on a quiet machine fails. Method: once.
    #[test]
    #[should_panic(expected = "fair: 1 of 2")]
    fn claims_fail_on_quiet_machines() {
        let _ = judge("fair", || (Err("1 of 2".into()), 0.05), || ());
    }
}
