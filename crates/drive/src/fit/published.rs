//! Rows that other people measured: CSV files in the columns of those under `profiles/measured`, whose README says how each was
//! measured. A line becomes loads for the model, and their numbers.
//!
//! Several lines of a drive are submissions: each number is their median. A number that no drive can have is left out, with
//! its line.

use std::collections::{BTreeMap, BTreeSet};

use iofair_core::request::Operation::{self, Read, Write};
use iofair_core::time::Nanos;

use super::plausible::RATE;
use super::row::{LARGE, Measured, Quantity, Record, Row, SMALL};
use crate::measure::{Amount, Load, Order, Stream};
use crate::ssd::State;

/// Requests in flight at saturation.
const SATURATED: u32 = 2048;
/// `iocost_coef_gen.py` multiplies percentiles by this.
const STRETCHED: f64 = 1.5;
/// Requests in flight of six writers, and of each kind of the seventh thread, whose latencies were measured.
const WRITERS: u32 = 384;
const PROBE: u32 = 32;
/// Requests a second of each kind of the latter, and the part of the writers' requests that are reads.
const PROBE_RATE: f64 = 5000.0;
const READ_PART: f64 = 0.01;
/// Time of the host for a request that is not at saturation (io_uring): part of what was measured, not of the drive.
const PATH_NANOS: f64 = 5_000.0;
/// If requests of several sizes reach the same highest rate within this part of it, it is what a core submits.
const CORE_PART: f64 = 0.95;
/// Drives over which a process with 128 requests in flight spreads them, what it has in flight on each, and the number of
/// processes for which ten processors suffice.
const DRIVES: f64 = 8.0;
const NEIGHBOURS_DEPTH: u32 = 16;
const NEIGHBOURS_MAX: u32 = 16;
/// A drive that reaches less than this part of what is offered is beyond its knee.
const BEYOND: f64 = 0.97;
/// Longest request, most of them in flight, and most lines of a drive.
const BLOCK_MAX: u64 = 1 << 30;
const DEPTH_MAX: f64 = 65_536.0;
const LINES_MAX: usize = 4096;
/// A percentile at saturation is between these many times what a full queue takes at the measured rate.
const WAITS: (f64, f64) = (0.5, 30.0);
/// Error of rates, since submissions of a model differ; that of percentiles is three times as high.
const TOLERANCE: f64 = 0.03;

/// How long a row runs on the model: longer than what collects at once takes.
const WARM_UP: Amount = Amount { requests: 20_000, time: Nanos::from_millis(500) };
const MEASURED: Amount = Amount { requests: 60_000, time: Nanos::from_millis(1500) };

/// The warm-up where more is offered than a drive may sustain: until what waits no longer grows.
const FILLING: Amount = Amount { requests: 20_000, time: Nanos::from_millis(2000) };

/// Columns with rates at saturation: operation, order, bytes, requests in flight, and bytes of a unit of the column.
const RATES: [(&str, Operation, Order, u64, u32, u64); 6] = [
    ("read_bytes_per_s", Read, Order::Sequential, LARGE, 64, 1),
    ("sequential_reads_per_s", Read, Order::Sequential, SMALL, SATURATED, SMALL),
    ("random_reads_per_s", Read, Order::Random, SMALL, SATURATED, SMALL),
    ("write_bytes_per_s", Write, Order::Sequential, LARGE, 64, 1),
    ("sequential_writes_per_s", Write, Order::Sequential, SMALL, SATURATED, SMALL),
    ("random_writes_per_s", Write, Order::Random, SMALL, SATURATED, SMALL),
];
/// Names of fio's `rw`, and in the names of rows.
const PATTERNS: [(&str, Operation, Order, &str); 4] = [
    ("read", Read, Order::Sequential, "sequential reads"),
    ("write", Write, Order::Sequential, "sequential writes"),
    ("randread", Read, Order::Random, "random reads"),
    ("randwrite", Write, Order::Random, "random writes"),
];
/// Columns with percentiles of microseconds: of saturated random requests, and beside an offered rate.
const WAITING: [(&str, &str); 2] = [
    ("read_p95_us_at_90_percent", "random_reads_per_s"),
    ("write_p95_us_at_90_percent", "random_writes_per_s"),
];
const PERCENTILES: [(&str, u32); 5] =
    [("p50", 500_000), ("p90", 900_000), ("p99", 990_000), ("p99_9", 999_000), ("p99_99", 999_900)];

/// What a file says of one drive.
#[derive(Clone, PartialEq, Debug)]
pub struct Published {
    /// The submissions, if the file names them.
    pub source: String,
    /// Bytes of the drive; 0 if the file does not say.
    pub capacity: u64,
    /// The loads.
    pub rows: Vec<Row>,
    /// Their numbers.
    pub records: Vec<Record>,
    /// Numbers that were left out: line and reason.
    pub left_out: Vec<String>,
    /// Half the distance between the lowest and the highest submission, of numbers that several have, as a part of the median.
    pub noise: Vec<(String, String, f64)>,
}

/// Numbers that are listed at most.
const LEFT_OUT_MAX: usize = 100;

/// A line with the names of its columns.
struct Line<'a> {
    number: usize,
    header: &'a [&'a str],
    cells: Vec<&'a str>,
}

impl Published {
    /// The same drive with the rows of another file.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.capacity = self.capacity.max(other.capacity);
        self.source = format!("{}; {}", self.source, other.source);
        self.rows.extend(other.rows);
        self.records.extend(other.records);
        self.left_out.extend(other.left_out);
        self.noise.extend(other.noise);
        self
    }
}

impl Line<'_> {
    fn cell(&self, column: &str) -> Option<&str> {
        let at = self.header.iter().position(|name| *name == column)?;
        self.cells.get(at).map(|cell| cell.trim()).filter(|cell| !cell.is_empty())
    }
    fn number(&self, column: &str) -> Result<Option<f64>, String> {
        let Some(cell) = self.cell(column) else { return Ok(None) };
        match cell.parse::<f64>() {
            Ok(number) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            Ok(0.0) if column == "neighbours_iops" => Ok(None),
            _ => Err(format!(
                "line {}: {column} is `{cell}`; allowed are numbers above 0",
                self.number
            )),
        }
    }
    fn name(&self) -> &str {
        self.cell("model").or_else(|| self.cell("drive")).unwrap_or_default()
    }
}

/// The numbers of all lines: of a row and quantity, one of each submission.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    values: BTreeMap<(String, String), Vec<f64>>,
    left_out: Vec<String>,
    /// Requests a second that are the core's rate, not the drive's.
    core: f64,
    /// Whether an offered rate was beyond the knee.
    is_beyond: bool,
}

impl Found {
    fn row(&mut self, name: String, streams: Vec<Stream>, quantities: &[Quantity]) {
        if self.rows.iter().all(|row| row.name != name) {
            let (mut warm_up, measured) = (WARM_UP, MEASURED);
            if streams.iter().any(|stream| stream.interval > Nanos::ZERO) {
                warm_up = FILLING;
            }
            let load = Load { streams, warm_up, measured, window: 0 };
            let (quantities, tolerance) = (quantities.to_vec(), TOLERANCE);
            let in_order = load.streams.iter().all(|stream| stream.order != Order::Random);
            let state = Some(if in_order { State::Filled } else { State::Overwritten });
            self.rows.push(Row { name, load, quantities, tolerance, held_out: false, state });
        }
    }
    fn hold_out(&mut self, name: &str, held_out: bool) {
        let rows = self.rows.iter_mut().filter(|row| row.name == name);
        rows.for_each(|row| row.held_out |= held_out);
    }
    /// The number in a column, if there is one; what is none is left out.
    fn number(&mut self, line: &Line<'_>, column: &str) -> Option<f64> {
        line.number(column).unwrap_or_else(|why| {
            self.left_out.push(why);
            None
        })
    }
    fn shorten(&mut self) {
        if let Some(more @ 1..) = self.left_out.len().checked_sub(LEFT_OUT_MAX) {
            self.left_out.truncate(LEFT_OUT_MAX);
            self.left_out.push(format!("and {more} more"));
        }
    }
    fn value(&mut self, row: &str, quantity: Quantity, value: f64) {
        self.values.entry((row.to_owned(), quantity.name())).or_default().push(value);
    }
}

/// The lines of the drive whose name begins so. A file without names is of one drive.
///
/// # Errors
/// Files in other columns, without the drive, or without a line of it that is left.
pub fn published(text: &str, drive: &str) -> Result<Published, String> {
    let mut lines = text.lines().enumerate();
    let header: Vec<&str> = lines.next().map_or("", |line| line.1).split(',').collect();
    let has = |column: &str| header.contains(&column);
    let read = match () {
        () if RATES.iter().any(|rate| has(rate.0)) => saturated,
        () if has("offered_per_s") => offered,
        () if has("depth") && has("block") => depths,
        () if has("neighbours_iops") => mixes,
        () => return Err("no columns of measurements; profiles/measured has examples".to_owned()),
    };
    let line = |(index, text): (usize, _)| {
        let text: &str = text;
        Line { number: index + 1, header: &header, cells: text.split(',').collect() }
    };
    let all: Vec<Line<'_>> = lines.filter(|line| !line.1.is_empty()).map(line).collect();
    let is_exact = all.iter().any(|line| line.name() == drive);
    let is_asked = |line: &&Line<'_>| match line.name() {
        "" => true,
        name if is_exact => name == drive,
        name => name.starts_with(drive),
    };
    let asked: Vec<&Line<'_>> = all.iter().filter(is_asked).collect();
    let Some(first) = asked.first() else {
        let mut names: Vec<&str> = all.iter().map(Line::name).collect();
        names.dedup();
        return Err(format!("no drive \"{drive}\"; there are: {}", names.join(", ")));
    };
    if let Some(other) = asked.iter().find(|line| line.name() != first.name()) {
        return Err(format!("\"{drive}\" is {} and {}", first.name(), other.name()));
    }
    if asked.len() > LINES_MAX {
        return Err(format!("{} lines of one drive; allowed are {LINES_MAX}", asked.len()));
    }
    let mut found = Found::default();
    let rates = asked.iter().filter_map(|line| Some((line.number("iops").ok()??, line)));
    let highest = rates.clone().map(|(rate, _)| rate).fold(0.0, f64::max) * CORE_PART;
    let sizes: BTreeSet<_> =
        rates.filter(|rate| rate.0 > highest).map(|(_, line)| line.cell("block")).collect();
    found.core = if sizes.len() > 1 { highest } else { f64::INFINITY };
    for line in &asked {
        if let Err(why) = read(line, &mut found) {
            found.left_out.push(why);
        }
    }
    let bytes = found.number(first, "bytes");
    let capacity = bytes.map_or_else(|| size_in(first.name()), |bytes| bytes as u64);
    found.shorten();
    if found.rows.is_empty() {
        return Err(format!("nothing is left to fit:\n  {}", found.left_out.join("\n  ")));
    }
    let ends = asked.iter().filter_map(|line| line.cell("submission"));
    let source = ends.collect::<Vec<_>>().join(" and ");
    let Found { rows, values, left_out, .. } = found;
    let (mut records, mut noise) = (Vec::new(), Vec::new());
    for row in &rows {
        let mut numbers = Vec::new();
        for ((name, quantity), values) in values.iter().filter(|value| value.0.0 == row.name) {
            let mut values = values.clone();
            values.sort_by(f64::total_cmp);
            let value = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
            if values.len() > 1 {
                let half = (values[values.len() - 1] - values[0]) / value / 2.0;
                noise.push((name.clone(), quantity.clone(), half));
            }
            numbers.push(Measured { row: name.clone(), quantity: quantity.clone(), value });
        }
        records.push(Record { row: row.name.clone(), numbers, ..Record::default() });
    }
    Ok(Published { source, capacity, rows, records, left_out, noise })
}

/// The size in a drive's name, such as `960 GB`; 0 if there is none.
fn size_in(name: &str) -> u64 {
    let words: Vec<&str> = name.split(' ').collect();
    let size = |pair: &[&str]| {
        let unit = [("GB", 1e9), ("TB", 1e12)].into_iter().find(|unit| unit.0 == pair[1])?.1;
        Some((pair[0].parse::<f64>().ok()? * unit) as u64)
    };
    words.windows(2).find_map(size).unwrap_or(0)
}

/// Random and sequential requests, as many as the drive takes, within a file.
fn saturated(line: &Line<'_>, found: &mut Found) -> Result<(), String> {
    for (column, operation, order, block, depth, unit) in RATES {
        let rate = found.number(line, column).map(|rate| rate * unit as f64);
        let Some(rate) = rate else { continue };
        if !(RATE.0..RATE.1).contains(&rate) {
            let what = "no drive has less than 100 kB/s or more than 200 GB/s";
            let why = format!("line {}: {column} is {rate} B/s; {what}", line.number);
            found.left_out.push(why);
            continue;
        }
        let kind = if order == Order::Random { "random" } else { "sequential" };
        let verb = if operation == Read { "reads" } else { "writes" };
        let name = format!("{} KiB {kind} {verb}, saturated", block >> 10);
        let stream = Stream::new(operation, block, depth, order);
        let percentile = Quantity::Percentile(0, 950_000);
        let quantities = [Quantity::Rate(0), percentile];
        found.row(name.clone(), vec![stream], &quantities);
        // Eight jobs write or read the same places at once there: no model of a drive explains it.
        found.hold_out(&name, (block, order) == (SMALL, Order::Sequential));
        found.value(&name, Quantity::Rate(0), rate);
        let Some((waiting, _)) = WAITING.iter().find(|waiting| waiting.1 == column) else {
            continue;
        };
        let Some(micros) = found.number(line, waiting) else { continue };
        let nanos = micros * 1000.0 / STRETCHED;
        let waits = nanos / (f64::from(SATURATED) * block as f64 * 1e9 / rate);
        match (WAITS.0..WAITS.1).contains(&waits) {
            true => found.value(&name, percentile, nanos),
            false => found.left_out.push(format!(
                "line {}: {waiting} is {waits:.1} times what {SATURATED} requests take at {column}",
                line.number
            )),
        }
    }
    Ok(())
}

/// The load of SSD-iq (Haas et al., VLDB 2025) at an offered rate of requests a second of 4 KiB: a thread whose latencies count, which
/// reads and writes 5,000 a second each, and writers with 1 % reads. Streams: its reads, its writes, writes and reads of the writers.
pub(crate) fn beside_writers(offered: f64) -> Vec<Stream> {
    let stream = |operation, depth, rate: f64| Stream {
        interval: Nanos((1e9 / rate) as u64),
        ..Stream::new(operation, SMALL, depth, Order::Random)
    };
    let others = offered - PROBE_RATE;
    vec![
        stream(Read, PROBE, PROBE_RATE),
        stream(Write, PROBE, PROBE_RATE),
        stream(Write, WRITERS, others * (1.0 - READ_PART)),
        stream(Read, WRITERS, others * READ_PART),
    ]
}

/// Percentiles of a reader beside writers at an offered rate, on an overwritten drive.
fn offered(line: &Line<'_>, found: &mut Found) -> Result<(), String> {
    let of = |column| {
        let missing = || format!("line {}: {column} is missing", line.number);
        line.number(column)?.ok_or_else(missing)
    };
    let (offered, reads, writes) = (of("offered_per_s")?, of("reads_per_s")?, of("writes_per_s")?);
    if writes > offered * 1.05 || offered <= PROBE_RATE {
        return Err(format!(
            "line {}: {writes} writes of {offered} that were offered",
            line.number
        ));
    }
    let streams = beside_writers(offered);
    let name = format!("4 KiB random writes, {offered} a second offered, beside reads");
    // The seventh thread completes as many writes as reads.
    let reached = writes - (reads - writes * READ_PART);
    let mut numbers = vec![(Quantity::Rate(2), reached * SMALL as f64)];
    for (stream, side) in [(0, "read"), (1, "write")] {
        let mut before = 0.0;
        for (name, part) in PERCENTILES {
            let column = format!("{side}_{name}_us");
            let Some(micros) = line.number(&column)? else { continue };
            if micros < before {
                let what = format!("{column} is {micros}, and a lower percentile {before}");
                return Err(format!("line {}: {what}", line.number));
            }
            before = micros;
            let nanos = (micros * 1000.0 - PATH_NANOS).max(1000.0);
            numbers.push((Quantity::Percentile(stream, part), nanos));
        }
    }
    let quantities: Vec<Quantity> = numbers.iter().map(|number| number.0).collect();
    found.row(name.clone(), streams, &quantities);
    // Beyond the knee, all rows say the same.
    let is_beyond = writes < offered * BEYOND;
    found.hold_out(&name, is_beyond && found.is_beyond);
    found.is_beyond |= is_beyond;
    numbers.into_iter().for_each(|(quantity, value)| found.value(&name, quantity, value));
    Ok(())
}

/// Requests of a size at a depth.
fn depths(line: &Line<'_>, found: &mut Found) -> Result<(), String> {
    let block = line.cell("block").unwrap_or_default();
    let units = [('k', 1 << 10), ('m', 1 << 20)];
    let unit = units.into_iter().find_map(|(unit, bytes)| Some((block.strip_suffix(unit)?, bytes)));
    let (count, unit): (&str, u64) = unit.unwrap_or((block, 1));
    let bytes = count.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    let Some(bytes) = bytes.filter(|bytes| bytes % 512 == 0 && (512..=BLOCK_MAX).contains(bytes))
    else {
        let what = "allowed are multiples of 512, such as 4k, up to 1 GiB";
        return Err(format!("line {}: block is `{block}`; {what}", line.number));
    };
    let (Some(depth), Some(iops)) = (line.number("depth")?, line.number("iops")?) else {
        return Err(format!("line {}: depth or iops is missing", line.number));
    };
    if depth.fract() > 0.0 || depth > DEPTH_MAX {
        let what = format!("allowed are whole numbers up to {DEPTH_MAX}");
        return Err(format!("line {}: depth is {depth}; {what}", line.number));
    }
    if iops * bytes as f64 >= RATE.1 {
        let what = "no drive has more than 200 GB/s";
        return Err(format!("line {}: {iops} requests a second of {block}; {what}", line.number));
    }
    let rw = line.cell("rw").unwrap_or("randread");
    let Some((_, operation, order, what)) = PATTERNS.into_iter().find(|known| known.0 == rw) else {
        let what = "allowed are read, write, randread and randwrite";
        return Err(format!("line {}: rw is `{rw}`; {what}", line.number));
    };
    if iops > found.core {
        let what = format!("{iops} requests a second are what the core submits");
        found.left_out.push(format!("line {}: {what}", line.number));
        return Ok(());
    }
    let name = format!("{block} {what}, QD{depth}");
    let stream = Stream::new(operation, bytes, depth as u32, order);
    let mut numbers = vec![(Quantity::Rate(0), iops * bytes as f64)];
    for (name, part) in PERCENTILES {
        if let Some(micros) = line.number(&format!("{name}_us"))? {
            let nanos = (micros * 1000.0 - PATH_NANOS).max(1000.0);
            numbers.push((Quantity::Percentile(0, part), nanos));
        }
    }
    let quantities: Vec<Quantity> = numbers.iter().map(|number| number.0).collect();
    found.row(name.clone(), vec![stream], &quantities);
    numbers.into_iter().for_each(|(quantity, value)| found.value(&name, quantity, value));
    Ok(())
}

/// A reader beside neighbours on several drives, without a scheduler: one of these drives at the rate that the neighbours have
/// on it. Processors decide this rate, so it is given, and the rows only verify.
fn mixes(line: &Line<'_>, found: &mut Found) -> Result<(), String> {
    if line.cell("scheduler") != Some("none") {
        return Ok(());
    }
    let of = |column| line.number(column).map(|number| number.unwrap_or(0.0));
    let neighbours = line.cell("neighbours").and_then(|cell| cell.parse::<u32>().ok());
    let Some(neighbours) = neighbours else {
        return Err(format!("line {}: neighbours is missing", line.number));
    };
    if neighbours > NEIGHBOURS_MAX {
        let what = format!("{neighbours} processes share ten processors, which decide");
        found.left_out.push(format!("line {}: {what}", line.number));
        return Ok(());
    }
    let writes = line.cell("neighbours_are").is_some_and(|what| what.contains("writes"));
    let (operation, verb) = if writes { (Write, "writes") } else { (Read, "reads") };
    let pause = Nanos(PATH_NANOS as u64);
    let reader = Stream { pause, ..Stream::new(Read, SMALL, 1, Order::Random) };
    let rate = of("client_iops")? * SMALL as f64;
    let waits = of("client_p99_us")? * 1000.0 - PATH_NANOS;
    let mut streams = vec![reader];
    if neighbours > 0 {
        let interval = Nanos((DRIVES * 1e9 / of("neighbours_iops")?.max(1.0)) as u64);
        let depth = neighbours * NEIGHBOURS_DEPTH;
        streams.push(Stream { interval, ..Stream::new(operation, SMALL, depth, Order::Random) });
    }
    let name = format!("4 KiB random reads, QD1, beside {verb} of {neighbours} neighbours");
    let quantities = [Quantity::Rate(0), Quantity::Percentile(0, 990_000)];
    found.row(name.clone(), streams, &quantities);
    found.hold_out(&name, true);
    found.value(&name, quantities[0], rate);
    found.value(&name, quantities[1], waits);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::near;
    use super::*;
    use crate::profile::{self, Model};

    const IOCOST: &str = include_str!("../../../../profiles/measured/iocost-benchmarks.csv");
    const SSD_IQ: &str = include_str!("../../../../profiles/measured/ssd-iq-latency.csv");
    const ICPE: &str = include_str!("../../../../profiles/measured/icpe24-980-pro.csv");

    fn number(found: &Published, row: &str, quantity: Quantity) -> Option<f64> {
        found.records.iter().find(|record| record.row == row)?.number(quantity)
    }

    /// Goal: submissions of a model are one drive, with what fio reported. Method: the two of the 970 PRO, by hand; the start of its
    /// name; a name that is of two drives, and one that is of none.
    #[test]
    fn submissions_are_medians() {
        let found = published(IOCOST, "Samsung SSD 970 PRO").unwrap();
        assert_eq!(
            (found.source.as_str(), found.capacity),
            ("7464dd41 and ebe34772", 512_110_190_592)
        );
        let writes = "4 KiB random writes, saturated";
        let rate = number(&found, writes, Quantity::Rate(0)).unwrap();
        assert!((rate / 4096.0 - 246_978.5).abs() < 1.0, "{rate}");
        let p95 = number(&found, writes, Quantity::Percentile(0, 950_000)).unwrap();
        assert!((p95 - 1_000_000.0 * 13.369 / 1.5).abs() < 1000.0, "{p95}");
        let noise = found.noise.iter().find(|noise| noise.0 == writes).unwrap();
        assert!((noise.2 - 0.0225).abs() < 0.001, "{noise:?}");
        let refused = |drive| published(IOCOST, drive).unwrap_err();
        assert!(refused("Samsung SSD").contains("860 and"), "{}", refused("Samsung SSD"));
        assert!(refused("Intel Optane").contains("WD Blue SN580"));
    }

    /// Goal: numbers that no drive can have are left out with their line, and all others are kept. Method: a percentile of the file that
    /// is 700 times too long, and what the core decides; copies of the files with wrong cells; one in which nothing is left.
    #[test]
    fn implausible_numbers_are_left_out_with_their_line() {
        let left_out = published(IOCOST, "Fanxiang").unwrap().left_out;
        assert!(
            left_out.len() == 1 && left_out[0].starts_with("line 15: read_p95"),
            "{left_out:?}"
        );
        let core = published(ICPE, "").unwrap();
        assert!(
            core.left_out.len() > 8 && core.left_out[0].contains("core"),
            "{:?}",
            core.left_out
        );
        assert!(core.rows.iter().all(|row| row.name != "4k random reads, QD256"));
        let broken = |text: &str, drive: &str, from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            let found = published(&text.replacen(from, to, 1), drive).unwrap();
            (found.left_out.join("\n"), found.rows.len())
        };
        let all = published(IOCOST, "WD Blue").unwrap();
        let (told, rows) = broken(IOCOST, "WD Blue", ",184441,", ",-5,");
        assert!(told.contains("line 43: random_reads_per_s is `-5`"), "{told}");
        assert_eq!(rows, all.rows.len() - 1);
        let (told, rows) = broken(IOCOST, "WD Blue", "4162438684", "4162438684000");
        assert!(told.contains("line 43") && told.contains("200 GB/s"), "{told}");
        assert_eq!(rows, all.rows.len() - 1);
        let (told, _) = broken(SSD_IQ, "WD", ",9948,5050,84,190,", ",9948,5050,840,190,");
        assert!(told.contains("line 65: read_p90_us is 190"), "{told}");
        let (told, _) = broken(SSD_IQ, "WD", ",9948,", ",99480,");
        assert!(told.contains("line 65: 99480 writes of 10000"), "{told}");
        let table = "block,depth,rw,iops\n4k,1,randread,9000\n4k,x,randread,1\n5,1,read,1\n4k,4,trim,1\n\
                     64k,8,read,1e9\n4k,8,randread,60000\n";
        let found = published(table, "").unwrap();
        let told = found.left_out.join("\n");
        assert_eq!((found.rows.len(), found.left_out.len()), (2, 4), "{told}");
        for part in ["line 3: depth is `x`", "line 4: block", "line 5: rw is", "line 6: 10000"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let odd = "block,depth,rw,iops\n1m,1,read,900\n36028797018963969k,1,read,1\n4k,99999999999,read,1\n4k,1.5,read,1\n";
        let told = published(odd, "").unwrap().left_out.join("\n");
        for part in ["line 3: block is `36", "line 4: depth is 99999999999", "line 5: depth is 1.5"]
        {
            assert!(told.contains(part) && !told.contains("line 2"), "{part}: {told}");
        }
        let long = format!("block,depth,rw,iops\n{}", "4k,1,read,9000\n".repeat(5000));
        assert!(published(&long, "").unwrap_err().contains("5000 lines of one drive"));
        let nothing = published(&table.replace("randread", "trim"), "").unwrap_err();
        assert!(
            nothing.contains("nothing is left to fit") && nothing.contains("line 7"),
            "{nothing}"
        );
        assert!(published("a,b\n1,2\n", "").unwrap_err().contains("profiles/measured"));
    }

    /// Goal: a drive is found again from its rows. Method: the rows of a drive of the library on its model, in the place of what was
    /// measured.
    #[test]
    fn a_drive_is_found_again() {
        let truth = profile::of_class("client", &[("model.ssd.units", "24")]).unwrap();
        let mut rows = published(IOCOST, "WDC CL SN730 SDBQNTY-512G").unwrap();
        rows.records = rows.rows.iter().map(|row| row.record(&row.simulate(&truth))).collect();
        let found = near(&rows, "client", &|| false).unwrap();
        let rates = found.residuals.iter().filter(|row| row.is_rate);
        let wrong: Vec<_> = rates.filter(|row| row.error_percent.abs() > 2.0).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let (Model::Ssd(found), Model::Ssd(truth)) = (found.model, truth.model) else { panic!() };
        let near = |found: u64, truth: u64| found.abs_diff(truth) * 10 < truth;
        assert!(near(found.drain, truth.drain), "{} for {}", found.drain, truth.drain);
        assert!(near(found.page_read.0, truth.page_read.0), "{found:?}");
    }
}
