//! Clients: processes of fio, and what they report.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Nanos;
use iofair_simulator::outcome::DirectionOutcome;
use serde_json::Value;

use super::plan::{Job, Logged};

/// fio with all clients: one program, so that they start and end at their times to the millisecond.
pub(super) struct FioProcess {
    child: Child,
    jobs: Vec<Job>,
}

/// What one client got.
pub(super) struct Got {
    pub(super) bytes: u64,
    pub(super) latency: Histogram,
    pub(super) sync: Histogram,
    /// Mean time from one call to the next, in nanoseconds.
    pub(super) period_ns: f64,
    /// Reads, writes and trims apart.
    pub(super) directions: [DirectionOutcome; 3],
    /// Measured time.
    pub(super) time: Nanos,
    /// Calls in flight that a search found.
    pub(super) depth: Option<u32>,
    /// Whether it ended because it was slower than its least rate.
    pub(super) too_slow: bool,
}

/// The error of a job that was slower than its least rate (EIO), which is no failure.
const TOO_SLOW: u64 = 5;

/// fio's version, or why it cannot be used.
pub(super) fn version() -> Result<String> {
    let told = Command::new("fio").arg("--version").output();
    let told = told.context("fio cannot be started; install it (apt-get install fio)")?;
    Ok(String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

impl FioProcess {
    /// Starts it on `device`, each client in the group whose `cgroup.procs` `procs` gives. Its output goes to files in
    /// `directory`.
    pub(super) fn start(
        jobs: &[Job],
        device: &Path,
        procs: impl Fn(&str) -> Option<PathBuf>,
        directory: &Path,
    ) -> Result<Self> {
        let mut command = Command::new("fio");
        command.arg("--output-format=json+");
        for job in jobs {
            command.args(&job.arguments).arg(format!("--filename={}", device.display()));
            if let Some(before) = prerun(procs(&job.group).as_deref(), job.wait) {
                command.arg(format!("--exec_prerun={before}"));
            }
        }
        let file = |end: &str| File::create(directory.join(end));
        command.stdin(Stdio::null()).stdout(file("fio.json")?).stderr(file("fio.errors")?);
        // Ctrl-C is for us: we end it.
        command.process_group(0).current_dir(directory);
        let child = command.spawn().context("fio cannot be started")?;
        Ok(Self { child, jobs: jobs.to_vec() })
    }
    /// Whether it has ended.
    pub(super) fn is_done(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
    /// What it reported; it has ended.
    pub(super) fn got(mut self, directory: &Path) -> Result<Vec<Got>> {
        let status = self.child.wait()?;
        let read = |end: &str| std::fs::read_to_string(directory.join(end));
        let (text, errors) = (read("fio.json")?, read("fio.errors")?);
        if !status.success() && !self.jobs.iter().any(may_be_slow) {
            bail!("fio failed ({status}): {}{errors}", first_lines(&text));
        }
        let mut all = parse(&text, &self.jobs).context("what fio reported")?;
        let logs = self.jobs.iter().zip(&mut all).filter(|(job, _)| job.logged.until > 0);
        for (job, got) in logs {
            let log = directory.join(format!("{}_clat.log", job.name));
            let log = File::open(&log).with_context(|| log.display().to_string())?;
            logged(BufReader::new(log), job.logged, got)?;
        }
        Ok(all)
    }
}

impl Drop for FioProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The whole process group: each client is a process.
            let group = format!("-{}", self.child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = self.child.wait();
        }
    }
}

/// What a shell does before the first request of a client, whose process is the shell's parent: the process joins the group
/// whose `cgroup.procs` is given, and waits. fio itself redirects the output.
fn prerun(procs: Option<&Path>, wait: Nanos) -> Option<String> {
    let join = procs.map(|file| format!("echo $PPID | tee {}", file.display()));
    let wait = (wait > Nanos::ZERO).then(|| format!("sleep {:.6}", wait.0 as f64 / 1e9));
    let all: Vec<String> = join.into_iter().chain(wait).collect();
    (!all.is_empty()).then(|| format!("{{ {}; }}", all.join("; ")))
}

/// Whether a least rate may end a job.
fn may_be_slow(job: &Job) -> bool {
    job.arguments.iter().any(|argument| argument.starts_with("--rate_min="))
}

fn first_lines(text: &str) -> String {
    text.lines().take(5).map(|line| format!("{line}\n")).collect()
}

/// A histogram from fio's `bins`.
fn histogram(of: &Value) -> Histogram {
    let mut histogram = Histogram::new();
    if let Some(bins) = of["bins"].as_object() {
        for (nanos, count) in bins {
            if let (Ok(nanos), Some(count)) = (nanos.parse(), count.as_u64()) {
                histogram.record_many(nanos, count);
            }
        }
    }
    histogram
}

/// What fio itself counted: flushes, those of the warm-up included.
fn parse(text: &str, jobs: &[Job]) -> Result<Vec<Got>> {
    // Warnings may precede the object.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let told: Value = serde_json::from_str(json).context("fio printed no JSON")?;
    let parsed = |job: &Job| -> Result<Got> {
        let list = told["jobs"].as_array().map_or(&[][..], Vec::as_slice);
        let told = list.iter().find(|entry| entry["jobname"] == job.name.as_str());
        let told = told.ok_or_else(|| anyhow!("fio reported nothing of client {}", job.name))?;
        let too_slow = may_be_slow(job) && told["error"].as_u64() == Some(TOO_SLOW);
        if !too_slow && told["error"].as_u64().unwrap_or(0) != 0 {
            bail!("client {} ended with error {}", job.name, told["error"]);
        }
        Ok(Got { too_slow, ..got(told, job.logged.until > 0) })
    };
    jobs.iter().map(parsed).collect()
}

/// Adds what a client got in a part of its log: lines of milliseconds, nanoseconds, direction, bytes, and more.
fn logged(log: impl BufRead, part: Logged, got: &mut Got) -> Result<()> {
    for line in log.lines() {
        let line = line?;
        let mut fields = line.split(',').map_while(|field| field.trim().parse::<u64>().ok());
        let mut next = || fields.next();
        let (Some(at), Some(nanos), Some(direction @ 0..3), Some(length)) =
            (next(), next(), next(), next())
        else {
            continue;
        };
        if (part.from..part.until).contains(&at) {
            let side = &mut got.directions[direction as usize];
            side.latency.record(nanos);
            side.calls += 1;
            side.bytes += length;
        }
    }
    got.time = Nanos::from_millis(part.until - part.from);
    got.sum();
    Ok(())
}

/// What fio counted: flushes, and all else unless the log has it.
fn got(told: &Value, is_logged: bool) -> Got {
    let (mut directions, mut millis): ([DirectionOutcome; 3], _) = (Default::default(), 0);
    for (side, name) in directions.iter_mut().zip(["read", "write", "trim"]) {
        if !is_logged {
            let told = &told[name];
            side.latency = histogram(&told["clat_ns"]);
            side.calls = told["total_ios"].as_u64().unwrap_or(0);
            side.bytes = told["io_bytes"].as_u64().unwrap_or(0);
            millis = told["runtime"].as_u64().unwrap_or(0).max(millis);
        }
    }
    let searched = told["latency_target"].as_u64().unwrap_or(0) > 0;
    let depth = told["latency_depth"].as_u64().filter(|_| searched);
    let depth = depth.and_then(|depth| u32::try_from(depth).ok());
    let (sync, time) = (histogram(&told["sync"]["lat_ns"]), Nanos::from_millis(millis));
    let (bytes, latency, period_ns) = (0, Histogram::new(), 0.0);
    let too_slow = false;
    let mut got = Got { bytes, latency, sync, period_ns, directions, time, depth, too_slow };
    got.sum();
    got
}

impl Got {
    /// Adds up the directions.
    fn sum(&mut self) {
        self.latency = Histogram::new();
        self.directions.iter().for_each(|side| self.latency.merge(&side.latency));
        self.bytes = self.directions.iter().map(|side| side.bytes).sum();
        self.period_ns = self.time.0 as f64 / self.latency.count().max(1) as f64;
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::time::Instant;

    use super::*;

    /// Goal: fio's report becomes latencies of flushes. Method: the part of a report that is read, behind a warning.
    #[test]
    fn a_report_is_read() {
        let text = r#"fio: a warning
{"jobs": [{"jobname": "a", "error": 0, "sync": {"lat_ns": {"bins": {"100000": 1, "300000": 1}}}}]}"#;
        let (group, start) = (String::new(), Instant::ZERO);
        let arguments = Vec::new();
        let (name, logged) = ("a".into(), Logged { from: 0, until: 1 });
        let wait = Nanos::ZERO;
        let job = Job { name, group, weight: 100, start, wait, writes: true, logged, arguments };
        let got = parse(text, std::slice::from_ref(&job)).expect("a good report").remove(0);
        assert_eq!(got.sync.count(), 2);
        assert!(got.sync.mean().abs_diff(200_000) < 4_000, "{}", got.sync.mean());
        let missing = Job { name: "b".into(), ..job };
        assert!(parse(text, &[missing]).is_err() && parse("nothing", &[]).is_err());
    }

    /// Goal: a process joins its group and starts when it is due. Method: what the shell is told, and what it then does.
    #[test]
    fn a_process_joins_its_group_and_waits() {
        assert_eq!(prerun(None, Nanos::ZERO), None);
        let directory = std::env::temp_dir().join(format!("iofair-prerun-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("procs");
        let told = prerun(Some(&file), Nanos::from_millis(3)).expect("both");
        assert!(told.contains("sleep 0.003000"), "{told}");
        // As fio does it.
        let output = directory.join("output");
        let told = format!("{told} > {} 2>&1", output.display());
        let status = Command::new("sh").args(["-c", &told]).status().expect("a shell");
        let written = std::fs::read_to_string(&file).expect("the group's file");
        std::fs::remove_dir_all(&directory).expect("ours");
        assert!(status.success() && written.trim() == std::process::id().to_string(), "{written}");
    }

    /// Goal: of a log only the asked part counts. Method: a request before, two in and one after it, and a line that is none.
    #[test]
    fn a_part_of_a_log_is_read() {
        let log = "499, 14131, 0, 4096, 0\n500, 200000, 0, 4096, 0\n1499, 100000, 0, 8192, 0\n\
            broken\n1500, 7, 0, 4096, 0\n";
        let mut got = got(&Value::Null, true);
        logged(log.as_bytes(), Logged { from: 500, until: 1500 }, &mut got).expect("a log");
        assert_eq!((got.bytes, got.latency.count()), (12288, 2));
        assert!(got.latency.mean().abs_diff(150_000) < 3_000, "{}", got.latency.mean());
        assert!((got.period_ns - 5e8).abs() < 1.0);
    }
}
