//! The library of drives: fitted to public measurements, and judged by rows that it was not fitted to.
//!
//! `make drives` calls [`fitted`], which takes minutes, and keeps what it finds: `profiles/drives/library.csv`, and
//! `reproduction/evidence/library.csv` with each number beside the model's. [`library_tables`] makes the tables of the page from the latter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use iofair_drive::fit::{self, Fitted, Published, Quantity, Record, Row, published};
use serde::{Deserialize, Serialize};

/// The files of measurements.
const FILES: [&str; 4] =
    ["iocost-benchmarks.csv", "ssd-iq-latency.csv", "icpe24-980-pro.csv", "icpe24-mixes.csv"];
/// The files without names of drives, and whose they are.
const UNNAMED: (&[&str], &str) = (&[FILES[2], FILES[3]], "samsung-980-pro-1tb");

/// An offered rate of which less than this part is reached is beyond the knee.
const REACHED: f64 = 0.97;

/// A model, and what the library calls it: a line of `drives.csv`.
#[derive(Deserialize)]
struct Drive {
    name: String,
    class: String,
    model: String,
    title: String,
}

/// A number beside the model's: a line of `reproduction/evidence/library.csv`.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
struct Judged {
    drive: String,
    /// The kind of row, whose errors are summed up together.
    kind: String,
    row: String,
    quantity: String,
    measured: f64,
    model: f64,
    /// `fitted`, `predicted`, or `noise`: how far submissions are apart, as a part of 1.
    basis: String,
}

/// The library and the judgement, as CSV.
///
/// # Errors
/// Files that cannot be read, in words.
pub fn fitted(measured: &Path) -> Result<(String, String), String> {
    let read = |name: &str| {
        let path = measured.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let texts: Vec<(&str, String)> =
        FILES.into_iter().map(|name| Ok((name, read(name)?))).collect::<Result<_, String>>()?;
    let drives = read("drives.csv")?;
    let drives = csv::Reader::from_reader(drives.as_bytes()).into_deserialize();
    let drives: Vec<Drive> = drives.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let (mut lines, mut judged) = (Vec::new(), csv::Writer::from_writer(Vec::new()));
    for drive in &drives {
        let is_its = |file: &str| !UNNAMED.0.contains(&file) || drive.name == UNNAMED.1;
        let all = texts.iter().filter(|(file, _)| is_its(file));
        let all = all.filter_map(|(file, text)| {
            let found = published(text, &drive.model).ok()?;
            let source = format!("{file} {}", found.source).trim_end().to_owned();
            Some(Published { source, ..found })
        });
        let Some(all) = all.reduce(Published::and) else {
            return Err(format!("no file has rows of {}", drive.model));
        };
        let fit = |rows: &Published| {
            fit::near(rows, &drive.class, &|| false).map_err(|error| error.to_string())
        };
        lines.push((drive, all.source.clone(), numbers(&fit(&all)?, &all)));
        let half = half(&all);
        let noise = all.noise.iter().map(|(row, quantity, part)| {
            let its = all.rows.iter().find(|known| known.name == *row).expect("it is its row");
            let known = its.quantities.iter().find(|known| known.name() == *quantity);
            let quantity = known.map_or_else(String::new, |known| its.describe(*known));
            let (drive, row, basis) = (drive.name.clone(), row.clone(), "noise".to_owned());
            let kind = kind(its, None, &quantity);
            Judged { drive, kind, row, quantity, measured: 1.0, model: 1.0 + part, basis }
        });
        let noise: Vec<Judged> = noise.collect();
        for line in judge(drive, &all, &half, &fit(&half)?).into_iter().chain(noise) {
            judged.serialize(line).map_err(|error| error.to_string())?;
        }
    }
    let judged = judged.into_inner().map_err(|error| error.to_string())?;
    Ok((table(&lines), String::from_utf8(judged).map_err(|error| error.to_string())?))
}

type Numbers = BTreeMap<String, String>;

fn numbers(fitted: &Fitted, rows: &Published) -> Numbers {
    fit::library_numbers(fitted, rows.worst_case()).into_iter().collect()
}

/// The lines of the library. Commas separate its cells, so no cell has any.
fn table(lines: &[(&Drive, String, Numbers)]) -> String {
    let mut keys: Vec<&String> = lines.iter().flat_map(|line| line.2.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut text = "name,class,title,source".to_owned();
    keys.iter().for_each(|key| text += &format!(",{key}"));
    for (Drive { name, class, title, .. }, source, numbers) in lines {
        let _ = write!(text, "\n{name},{class},{title},{source}");
        for key in &keys {
            text += ",";
            text += numbers.get(*key).map_or("", String::as_str);
        }
    }
    text + "\n"
}

/// What is fitted where the rest judges: rates at saturation without percentiles, and every second row of a series with its last
/// one, which is beyond the knee.
fn half(all: &Published) -> Published {
    let mut half = all.clone();
    let saturated = |row: &str| row.ends_with("saturated");
    let series = half.rows.iter_mut().filter(|row| !row.held_out && !saturated(&row.name));
    for (place, row) in series.rev().enumerate() {
        row.held_out = place % 2 == 1;
    }
    for record in half.records.iter_mut().filter(|record| saturated(&record.row)) {
        record.numbers.retain(|number| number.quantity == Quantity::Rate(0).name());
    }
    half
}

/// All numbers beside those of the model that was fitted to half of them.
fn judge(drive: &Drive, all: &Published, half: &Published, fitted: &Fitted) -> Vec<Judged> {
    let profile = fitted.profile();
    let mut judged = Vec::new();
    for ((row, record), seen) in all.rows.iter().zip(&all.records).zip(&half.records) {
        let outcome = row.simulate(&profile);
        let held_out = half.rows.iter().any(|other| other.name == row.name && other.held_out);
        for known in &row.quantities {
            let number = record.numbers.iter().find(|number| number.quantity == known.name());
            let Some(number) = number else { continue };
            let is_fitted = !held_out && seen.numbers.contains(number);
            let quantity = row.describe(*known);
            judged.push(Judged {
                drive: drive.name.clone(),
                kind: kind(row, Some(record), &quantity),
                row: row.name.clone(),
                quantity,
                measured: number.value,
                model: known.value_in(&outcome),
                basis: if is_fitted { "fitted" } else { "predicted" }.to_owned(),
            });
        }
    }
    judged
}

/// The kind of a row: without its depth or rate.
fn kind(row: &Row, record: Option<&Record>, quantity: &str) -> String {
    let parts: Vec<&str> = row.name.split(", ").collect();
    let words = match parts[..] {
        [what, "saturated"] => format!("{what} at saturation"),
        [what, _, "beside reads"] => match is_beyond_knee(row, record) {
            false => format!("{what} below the knee"),
            true => format!("{what} beyond the knee"),
        },
        [what, "QD1", beside] if beside.contains("reads") => format!("{what} beside reads"),
        [what, "QD1", _] => format!("{what} beside writes"),
        _ => "random reads by block and depth".to_owned(),
    };
    format!("{words}: {quantity}")
}

/// Whether fewer writes were reached than were offered.
fn is_beyond_knee(row: &Row, record: Option<&Record>) -> bool {
    let numbers = record.into_iter().flat_map(|record| &record.numbers);
    let mut rates = numbers.filter_map(|number| {
        let of = number.quantity.strip_prefix("rate of ")?.parse::<usize>().ok()?;
        let stream = row.load.streams.get(of)?;
        let offered = stream.block as f64 * 1e9 / stream.interval.0 as f64;
        Some(number.value < REACHED * offered)
    });
    rates.next_back().unwrap_or(false)
}

/// A line of the table of errors: numbers of one kind.
struct Errors<'a> {
    kind: &'a str,
    fitted: Vec<f64>,
    predicted: Vec<f64>,
    noise: Vec<f64>,
}

fn percent(value: f64) -> String {
    if value < 9.95 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}
/// The value that this part of the numbers does not exceed.
fn part(numbers: &[f64], part: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(((sorted.len() as f64 * part).ceil() as usize).saturating_sub(1)).copied()
}
fn cell(numbers: &[f64], of: f64) -> String {
    part(numbers, of).map_or("-".to_owned(), percent)
}

/// The tables of the library's page: errors by kind of row, and drives, the worst first.
///
/// # Errors
/// A file in another format.
pub fn library_tables(evidence: &str) -> Result<[(&'static str, String); 2], String> {
    let lines = csv::Reader::from_reader(evidence.as_bytes()).into_deserialize();
    let lines: Vec<Judged> = lines.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let error = |line: &&Judged| (line.model / line.measured - 1.0).abs() * 100.0;
    let mut kinds: Vec<Errors<'_>> = Vec::new();
    for line in &lines {
        if kinds.iter().all(|errors| errors.kind != line.kind) {
            let (fitted, predicted, noise) = (Vec::new(), Vec::new(), Vec::new());
            kinds.push(Errors { kind: &line.kind, fitted, predicted, noise });
        }
        let errors = kinds.iter_mut().find(|errors| errors.kind == line.kind);
        let errors = errors.expect("it was just pushed");
        match line.basis.as_str() {
            "fitted" => errors.fitted.push(error(&line)),
            "predicted" => errors.predicted.push(error(&line)),
            _ => errors.noise.push(error(&line)),
        }
    }
    let mut text = String::from(
        "| kind of row | predicted: numbers | median error | 90th percentile | fitted: median error | submissions differ by |\n\
         |---|---|---|---|---|---|\n",
    );
    for Errors { kind, fitted, predicted, noise } in &kinds {
        let _ = writeln!(
            text,
            "| {kind} | {} | {} | {} | {} | {} |",
            predicted.len(),
            cell(predicted, 0.5),
            cell(predicted, 0.9),
            cell(fitted, 0.5),
            cell(noise, 0.5)
        );
    }
    let mut drives: Vec<(&str, Vec<&Judged>)> = Vec::new();
    for line in lines.iter().filter(|line| line.basis == "predicted") {
        match drives.iter_mut().find(|drive| drive.0 == line.drive) {
            Some(drive) => drive.1.push(line),
            None => drives.push((&line.drive, vec![line])),
        }
    }
    let median = |lines: &[&Judged]| {
        part(&lines.iter().map(error).collect::<Vec<_>>(), 0.5).unwrap_or_default()
    };
    drives.sort_by(|a, b| median(&b.1).total_cmp(&median(&a.1)));
    let mut worst =
        String::from("| drive | predicted: median error | the worst number |\n|---|---|---|\n");
    for (name, lines) in &drives {
        let last = lines.iter().max_by(|a, b| error(a).total_cmp(&error(b))).expect("not empty");
        let signed = (last.model / last.measured - 1.0) * 100.0;
        let (row, quantity) = (&last.row, &last.quantity);
        let _ = writeln!(
            worst,
            "| `{name}` | {} | {row}, {quantity}: {signed:+.0} % |",
            percent(median(lines))
        );
    }
    Ok([("errors", text), ("drives", worst)])
}
