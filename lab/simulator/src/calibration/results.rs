//! What was measured on other machines: fio's results, of a job of ours or of any other one, those of resctl-bench, and tables
//! of measurements. Results of others become such a table.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Calibration, fio, published};

/// Columns of the table of fio's jobs, and which percentiles the last ones are.
const COLUMNS: &str = "block,depth,rw,iops,p50_us,p90_us,p99_us,p99_9_us";
const PERCENTILES: [&str; 4] = ["50.000000", "90.000000", "99.000000", "99.900000"];
/// Engines that have one request in flight, whatever `iodepth` says.
const SYNCHRONOUS: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];
/// Options with which a job does not show what the drive does.
const LIMITED: [&str; 7] =
    ["rate", "rate_iops", "thinktime", "bssplit", "bsrange", "fsync", "fdatasync"];
/// The numbers of resctl-bench (`iocost-params`), and the columns of a table that have them.
const MODEL: [(&str, &str); 6] = [
    ("rbps", "read_bytes_per_s"),
    ("rseqiops", "sequential_reads_per_s"),
    ("rrandiops", "random_reads_per_s"),
    ("wbps", "write_bytes_per_s"),
    ("wseqiops", "sequential_writes_per_s"),
    ("wrandiops", "random_writes_per_s"),
];
const QOS: [(&str, &str); 2] =
    [("rlat", "read_p95_us_at_90_percent"), ("wlat", "write_p95_us_at_90_percent")];

/// A calibration from the text of a file, `place`. `model`: which drive of a table of several.
///
/// # Errors
///
/// Files that are none of these, and drives that are not there, in words that begin with the place.
pub fn read(place: &str, text: &str, model: Option<&str>) -> Result<Calibration, String> {
    parse(place, text, model).map_err(|error| format!("{place}: {error}"))
}

fn parse(place: &str, text: &str, model: Option<&str>) -> Result<Calibration, String> {
    // Warnings may precede the object of fio.
    let json = text.find(['{', '[']).map(|at| serde_json::from_str::<Value>(&text[at..]));
    match json {
        _ if text.trim().is_empty() => Err("the file is empty".into()),
        Some(Ok(report)) if report["jobs"].is_array() => {
            fio::read(&report, place).unwrap_or_else(|| {
                let (table, left_out) = jobs(&report);
                if left_out.is_empty() && table.lines().nth(1).is_none() {
                    return Err("there are no jobs in it".into());
                }
                if table.lines().nth(1).is_none() {
                    return Err(format!("no job shows the drive: {}", left_out.join("; ")));
                }
                let mut calibration = published::read(place, &table, "")?;
                let found = calibration.published.as_mut().expect("it is a table");
                found.left_out.extend(left_out);
                Ok(calibration)
            })
        }
        Some(Ok(Value::Array(all))) => {
            let (table, drive) = resctl(&all)?;
            published::read(place, &table, &drive)
        }
        Some(Err(error)) if !text.contains(',') || text.trim_start().starts_with(['{', '[']) => {
            Err(format!("no JSON of fio or resctl-bench: {error}"))
        }
        Some(Ok(_)) => Err("JSON, but neither of fio nor of resctl-bench".into()),
        _ => match model {
            Some(model) => published::read(place, text, model),
            None => Err("a table of measurements: --model says which of its drives".into()),
        },
    }
}

/// A line for the drive of resctl-bench's results, and its name.
fn resctl(all: &[Value]) -> Result<(String, String), String> {
    // Later benchmarks repeat what iocost-params has measured.
    let places = all.iter().flat_map(|job| [&job["record"], &job["result"]].map(|of| (job, of)));
    let names = [["model", "qos"], ["base_model", "base_qos"]];
    let mut found =
        places.flat_map(|(job, of)| names.map(|[model, qos]| (job, &of[model], &of[qos])));
    let (job, numbers, waits) = found
        .find(|(_, numbers, _)| numbers["rbps"].is_u64())
        .ok_or("no result of resctl-bench's iocost-params, which measures the drive")?;
    let system = &job["sysinfo"]["sysreqs_report"];
    let known = |key: &str| system[key].as_str().unwrap_or_default().replace(',', " ");
    let drive = known("scr_dev_model");
    let bytes = system["scr_dev_size"].as_u64().unwrap_or(0);
    let (mut header, mut line) = ("model".to_owned(), drive.clone());
    if bytes > 0 {
        header += ",bytes";
        let _ = write!(line, ",{bytes}");
    }
    for (part, columns) in [(numbers, &MODEL[..]), (waits, &QOS)] {
        for (key, column) in columns {
            let Some(value) = part[key].as_u64().filter(|value| *value > 0) else { continue };
            let _ = write!(header, ",{column}");
            let _ = write!(line, ",{value}");
        }
    }
    Ok((format!("{header}\n{line}\n"), drive))
}

/// A line for each of fio's jobs that shows what the drive does alone, and why the others are left out.
fn jobs(report: &Value) -> (String, Vec<String>) {
    let (mut table, mut left_out) = (format!("{COLUMNS}\n"), Vec::new());
    let all = report["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    // Jobs begin a group when they wait for those before (stonewall); the processes of a job are one as well.
    for together in all.chunk_by(|job, next| job["groupid"] == next["groupid"]) {
        match line(report, together) {
            Ok(line) => table += &line,
            Err(why) => {
                let name = together[0]["jobname"].as_str().unwrap_or_default();
                left_out.push(format!("job \"{name}\": {why}"));
            }
        }
    }
    (table, left_out)
}

fn has(report: &Value, job: &Value, key: &str) -> bool {
    !option(report, job, key).is_null()
}
fn option<'a>(report: &'a Value, job: &'a Value, key: &str) -> &'a Value {
    match &job["job options"][key] {
        Value::Null => &report["global options"][key],
        own => own,
    }
}

/// The line of a job with these processes.
fn line(report: &Value, processes: &[Value]) -> Result<String, String> {
    let first = &processes[0];
    let text = |key: &str| option(report, first, key).as_str().map(str::trim);
    if processes.iter().any(|other| other["jobname"] != first["jobname"]) {
        return Err("it ran beside other jobs".into());
    }
    if let Some(code) =
        processes.iter().find_map(|job| job["error"].as_u64().filter(|code| *code != 0))
    {
        return Err(format!("it ended with error {code}"));
    }
    if !has(report, first, "direct") || text("direct") == Some("0") {
        return Err("its requests went through the page cache (direct=0)".into());
    }
    if let Some(key) = LIMITED.into_iter().find(|key| has(report, first, key)) {
        return Err(format!("{key} limits it"));
    }
    let rw = text("rw").or(text("readwrite")).unwrap_or("read");
    let side = match rw {
        "read" | "randread" => "read",
        "write" | "randwrite" => "write",
        _ => return Err(format!("rw={rw}; read are read, write, randread and randwrite")),
    };
    let number = |key: &str| text(key).map_or(Ok(1), str::parse::<u64>);
    let (Ok(depth), Ok(jobs)) = (number("iodepth"), number("numjobs")) else {
        return Err("iodepth or numjobs is no number".into());
    };
    let is_synchronous = text("ioengine").is_none_or(|engine| SYNCHRONOUS.contains(&engine));
    let depth = if is_synchronous { jobs } else { depth.saturating_mul(jobs) };
    let blocks = text("bs").or(text("blocksize")).unwrap_or("4k").to_lowercase();
    // Of reads, and behind a comma that of writes, if it is another one.
    let own = blocks.split(',').take(if side == "write" { 2 } else { 1 }).last();
    let block = own.filter(|block| !block.is_empty()).unwrap_or("4k");
    let sides = processes.iter().map(|job| &job[side]);
    let iops: f64 = sides.filter_map(|side| side["iops"].as_f64()).sum();
    let mut line = format!("{block},{depth},{rw},{iops}");
    for percentile in PERCENTILES {
        let nanos = &first[side]["clat_ns"]["percentile"][percentile];
        // Percentiles of several processes cannot be added up.
        let nanos = nanos.as_f64().filter(|nanos| processes.len() == 1 && *nanos > 0.0);
        line += &nanos.map_or(",".into(), |nanos| format!(",{}", nanos / 1e3));
    }
    Ok(line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever stands in a job's options, it becomes the line that it should, or a reason. Method: sizes of both directions, numbers
    /// whose product is too large, a report without jobs; more jobs than any report has, which take no longer each.
    #[test]
    fn jobs_become_lines() {
        let job = |group: usize, options: &str| {
            format!(
                "{{\"jobname\": \"j{group}\", \"groupid\": {group}, \"error\": 0, \"job options\": {{\"direct\": \"1\", {options}}}, \
                 \"read\": {{\"iops\": 9000}}, \"write\": {{\"iops\": 800}}}}"
            )
        };
        let read = |list: &[String]| {
            let text = format!("{{\"jobs\": [{}]}}", list.join(","));
            let (table, left_out) = jobs(&serde_json::from_str(&text).unwrap());
            (table.replace(COLUMNS, "").trim().to_owned(), left_out.join("\n"))
        };
        for (options, line) in [
            (r#""rw": "randread", "bs": "8K,16k""#, "8k,1,randread,9000,,,,"),
            (r#""rw": "write", "bs": "8k,1M""#, "1m,1,write,800,,,,"),
            (r#""rw": "read", "bs": ",16k""#, "4k,1,read,9000,,,,"),
            (
                r#""rw": "read", "ioengine": "libaio", "iodepth": "9223372036854775808", "numjobs": "4""#,
                "4k,18446744073709551615,read,9000,,,,",
            ),
        ] {
            assert_eq!(read(&[job(0, options)]), (line.to_owned(), String::new()), "{options}");
        }
        let many: Vec<String> =
            (0..100_000).map(|group| job(group, r#""rw": "randread""#)).collect();
        assert_eq!(read(&many).0.lines().count(), many.len());
        let empty = parse("x", "{\"jobs\": []}", None).err().unwrap();
        assert_eq!(empty, "there are no jobs in it");
    }
}
