//! Calibration with fio: a job file for the machine that has the drive, and the results that come back.
//!
//! The rows are those of any calibration, without the few that fio cannot run. Their names are the names of the jobs, with the
//! number of the stream; what is known of the drive is in the job's description.

use std::fmt::Write as _;

use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::fit::{Measured, Quantity, Record, Row, Scope, Survey};
use iofair_drive::measure::{Order, Stream};
use serde_json::Value;

use super::Calibration;

/// Time of each row, and of the warm-up before it: of most rows, and of rows with a full cache.
const RUN: &str = "3s";
const WARM_UP: (&str, &str) = ("500ms", "15s");
/// What the rows with a full cache write first, in the model; on the drive the warm-up does.
const FILL: u64 = 1 << 30;
/// Light writes are a part of this rate.
const WRITE_RATE: u64 = 100_000_000;
/// Longest time of a row in the model.
const HOUR: Nanos = Nanos::from_secs(3600);

/// What the description of a job says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Drive {
    depth: u32,
    capacity: u64,
    is_disk: bool,
    writes: bool,
}

impl Drive {
    fn description(self) -> String {
        let Self { depth, capacity, is_disk, writes } = self;
        format!("iofair depth={depth} capacity={capacity} disk={is_disk} writes={writes}")
    }
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix("iofair ")?.split(' ');
        let mut value = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=');
        let (depth, capacity) = (value("depth")?.parse().ok()?, value("capacity")?.parse().ok()?);
        let (is_disk, writes) = (value("disk")?.parse().ok()?, value("writes")?.parse().ok()?);
        Some(Self { depth, capacity, is_disk, writes }).filter(|found| found.depth > 0)
    }
    fn scope(self) -> Scope {
        let Self { depth, capacity, is_disk, writes } = self;
        let area = capacity >> 20 << 20;
        let facts = DriveFacts {
            rotational: is_disk,
            depth,
            max_request: Sectors::from_bytes_ceil(1 << 20),
            capacity: Sectors::from_bytes_ceil(area),
        };
        let fill = (FILL, HOUR);
        Scope { facts, area, writes, row_time: HOUR, fill, is_simulated: false }
    }
    /// All rows that fio can run.
    fn rows(self) -> Vec<Row> {
        let scope = self.scope();
        let survey = Survey {
            is_disk: self.is_disk,
            lone_read: (1.0, 0.0),
            read_rate: 1.0,
            flush: 0.0,
            regimes: Vec::new(),
            write_rate: WRITE_RATE,
            fill_bytes: FILL,
            limits: None,
        };
        let all = scope.survey().into_iter().chain(scope.rows(&survey));
        all.filter(|row| row.load.window == 0 && row.load.streams.iter().all(has_job)).collect()
    }
}

/// Whether fio has options for it.
fn has_job(stream: &Stream) -> bool {
    matches!(stream.order, Order::Random | Order::Sequential)
        && stream.operation != Operation::Flush
        && (stream.pause == Nanos::ZERO || stream.pause_every == 1)
}

/// The job file for a drive that accepts `depth` commands at once and has `capacity` bytes.
///
/// # Errors
///
/// Drives without commands, or too small.
pub fn job(depth: u32, capacity: u64, is_disk: bool, writes: bool) -> Result<String, String> {
    let drive = Drive { depth, capacity, is_disk, writes };
    if depth == 0 || capacity < 64 << 20 {
        return Err("--depth must be above 0, and --capacity at least 64MiB".into());
    }
    let warning = match writes {
        true => "; THIS OVERWRITES the device\n",
        false => "; this only reads\n",
    };
    let mut text = format!(
        "; fio --output-format=json --output=results.json --filename=/dev/NAME THIS_FILE\n{warning}\
         ; then: iofair calibrate --from results.json --out PROFILE.toml\n\
         [global]\ndescription={}\nioengine=libaio\ndirect=1\nrandrepeat=1\nnorandommap\ntime_based\n\
         runtime={RUN}\n",
        drive.description()
    );
    for row in drive.rows() {
        for (index, stream) in row.load.streams.iter().enumerate() {
            let _ = writeln!(text, "\n[{}|{index}]", row.name);
            if index == 0 {
                text += "stonewall\n";
            }
            let fills = row.load.warm_up.requests > 64;
            text += &options(stream, if fills { WARM_UP.1 } else { WARM_UP.0 });
        }
    }
    Ok(text)
}

fn options(stream: &Stream, ramp: &str) -> String {
    let pattern = match (stream.operation, stream.order) {
        (Operation::Read, Order::Random) => "randread",
        (Operation::Read, _) => "read",
        (_, Order::Random) => "randwrite",
        _ => "write",
    };
    let (offset, size) = stream.area;
    let mut text = format!(
        "rw={pattern}\nbs={}\niodepth={}\noffset={offset}\nsize={size}\nramp_time={ramp}\n",
        stream.block, stream.depth
    );
    if stream.flush_every > 0 {
        text += &format!("fdatasync={}\n", stream.flush_every);
    }
    if stream.durable {
        text += "sync=dsync\n";
    }
    if stream.pause > Nanos::ZERO {
        text += &format!("thinktime={}\n", stream.pause.as_micros());
    }
    text
}

/// A calibration from what fio reported of such a job; `None` if it is another job. `place` is where it comes from.
///
/// # Errors
///
/// Results that lack numbers, in words.
pub(super) fn read(report: &Value, place: &str) -> Option<Result<Calibration, String>> {
    let description = report["global options"]["description"].as_str().unwrap_or_default();
    Drive::parse(description).map(|drive| calibration(report, drive, place))
}

fn calibration(report: &Value, drive: Drive, place: &str) -> Result<Calibration, String> {
    let jobs = report["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    let (mut rows, mut records) = (Vec::new(), Vec::new());
    for row in drive.rows() {
        let left_out =
            |why| Record { row: row.name.clone(), left_out: Some(why), ..Record::default() };
        if let Some(record) = record(&row, jobs).unwrap_or_else(|why| Some(left_out(why))) {
            records.push(record);
            rows.push(row);
        }
    }
    let missing = || {
        let mut text =
            "numbers of the jobs of lone random reads and sequential reads are missing".to_owned();
        records.iter().filter_map(|record| record.left_out.as_ref()).for_each(|why| {
            text += &format!("\n  {why}");
        });
        text
    };
    let survey = Survey::new(&records).ok_or_else(missing)?;
    let survey = Survey { is_disk: drive.is_disk, ..survey };
    let title = format!("calibrated from fio's results in {place}");
    let number = "MAJOR:MINOR".to_owned();
    Ok(Calibration { title, number, scope: drive.scope(), rows, records, survey, published: None })
}

/// The numbers of a row, if fio ran it.
fn record(row: &Row, jobs: &[Value]) -> Result<Option<Record>, String> {
    let job = |stream: usize| {
        let name = format!("{}|{stream}", row.name);
        jobs.iter().find(|job| job["jobname"] == name.as_str())
    };
    if (0..row.load.streams.len()).any(|stream| job(stream).is_none()) {
        return Ok(None);
    }
    let mut numbers = Vec::new();
    for quantity in &row.quantities {
        let stream = quantity.stream();
        let job = job(stream).ok_or("a job is missing")?;
        if let Some(error) = job["error"].as_u64().filter(|code| *code != 0) {
            return Err(format!("fio's job \"{}|{stream}\" ended with error {error}", row.name));
        }
        let reads = row.load.streams[stream].operation == Operation::Read;
        let side = &job[if reads { "read" } else { "write" }];
        let value = match quantity {
            Quantity::Latency(_) => &side["clat_ns"]["mean"],
            Quantity::Deviation(_) => &side["clat_ns"]["stddev"],
            Quantity::Longest(_) => &side["clat_ns"]["max"],
            Quantity::Flush(_) => &job["sync"]["lat_ns"]["mean"],
            Quantity::Rate(_) => &side["bw_bytes"],
            Quantity::Percentile(_, part) => {
                let percent = format!("{:.6}", f64::from(*part) / 1e4);
                &side["clat_ns"]["percentile"][percent.as_str()]
            }
        };
        let value = value.as_f64().ok_or_else(|| {
            format!("fio's job \"{}|{stream}\" has no {}", row.name, quantity.name())
        })?;
        let (row, quantity) = (row.name.clone(), quantity.name());
        numbers.push(Measured { row, quantity, value });
    }
    Ok(Some(Record { row: row.name.clone(), numbers, ..Record::default() }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Goal: what a job says about its drive comes back, and results of other jobs are refused. Method: round trips.
    #[test]
    fn jobs_say_what_they_are() {
        let drive = Drive { depth: 32, capacity: 1 << 38, is_disk: false, writes: true };
        assert_eq!(Drive::parse(&drive.description()), Some(drive));
        let text = job(32, 1 << 38, false, true).unwrap();
        assert!(text.contains("[4 KiB random reads, QD1|0]") && text.contains("OVERWRITES"));
        assert!(!job(32, 1 << 38, false, false).unwrap().contains("rw=randwrite"));
        assert!(read(&Value::Null, "x").is_none());
    }

    const DRIVE: Drive = Drive { depth: 4, capacity: 1 << 30, is_disk: false, writes: false };

    fn report(rows: &[&str]) -> String {
        let side = r#""error": 0, "read": {"bw_bytes": 5e8, "clat_ns": {"mean": 1e5, "stddev": 9e3, "max": 2e5}}"#;
        let jobs = rows.iter().map(|name| format!("{{\"jobname\": \"{name}|0\", {side}}}"));
        let (jobs, description) = (jobs.collect::<Vec<_>>().join(","), DRIVE.description());
        format!(
            "{{\"global options\": {{\"description\": \"{description}\"}}, \"jobs\": [{jobs}]}}"
        )
    }

    const BOTH: [&str; 2] = ["4 KiB random reads, QD1", "256 KiB sequential reads, QD8"];

    /// The smallest calibration.
    pub(in crate::calibration) fn calibration() -> Calibration {
        parse(&BOTH).unwrap()
    }
    fn parse(rows: &[&str]) -> Result<Calibration, String> {
        read(&serde_json::from_str(&report(rows)).unwrap(), "x").unwrap()
    }

    /// Goal: fio's numbers are found. Method: the part of a report that is read, of the two rows that must be there.
    #[test]
    fn a_report_is_read() {
        let found = calibration();
        assert_eq!((found.records.len(), found.survey.lone_read), (2, (1e5, 9e3)));
        assert!(parse(&BOTH[..1]).is_err());
    }

    /// Goal: jobs that failed or lack numbers are left out with the reason, and those without which there is no fit are all told. Method: the
    /// rows of reads, with an error in one, a number missing in another one; then in the first one.
    #[test]
    fn odd_jobs_are_left_out() {
        let rows = DRIVE.rows();
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let name = |text: &str| names.iter().find(|name| name.starts_with(text)).expect("a row");
        let [deep, large] = [name("4 KiB random reads, QD4"), name("16 KiB")];
        let all = report(&[BOTH[0], BOTH[1], deep, large]);
        let broken = |name: &str, from: &str, to: &str, text: &str| {
            let at = text.find(&format!("\"{name}|0\"")).expect("the job");
            text[..at].to_owned() + &text[at..].replacen(from, to, 1)
        };
        let read = |text: &str| read(&serde_json::from_str(text).unwrap(), "x").unwrap();
        let odd = broken(deep, "\"error\": 0", "\"error\": 5", &all);
        let odd = broken(large, "mean", "no", &odd);
        let found = read(&odd).unwrap();
        found.check().unwrap();
        let told: Vec<&str> =
            found.records.iter().filter_map(|record| record.left_out.as_deref()).collect();
        assert!(told.iter().any(|why| why.contains("ended with error 5")), "{told:?}");
        assert!(told.len() == 2 && told.iter().any(|why| why.contains("has no latency")));
        let text = read(&broken(BOTH[0], "mean", "no", &odd)).err().unwrap();
        assert!(text.contains("are missing") && text.matches("fio's job").count() == 3, "{text}");
    }
}
