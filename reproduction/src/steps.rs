//! Step responses in reproduction/promise.md: `reproduction/evidence/steps.csv`, the rates of the experiments under `reproduction/experiments/steps` over
//! time, and a picture of each variant, drawn from it.

use std::collections::BTreeMap;
use std::fmt::Write;

use iofair_draw::{Axis, COLOURS, Grid, Mark, Plot, picture};
use iofair_experiments::csv_text;
use iofair_experiments::experiment::claim::SECOND;
use iofair_experiments::experiment::{Claim, Experiment, Kind, Metric, Quantity, Results, step};
use iofair_experiments::report::short;
use iofair_simulator::scenario::What;

use crate::promises::{TARGET, minimum};

/// The folder of these experiments.
pub const STEPS: &str = "reproduction/experiments/steps";

const HEADER: [&str; 6] = ["experiment", "variant", "stack", "of", "seconds", "rates"];
/// The stack that the pictures are of.
const STACK: &str = "promise";

/// The rates in each interval of the first repeat: a line a variant, stack and client, one of the total. Experiments
/// without an `interval` have no lines.
pub fn series_csv(results: &[Results]) -> String {
    csv_text(|writer| {
        writer.write_record(HEADER)?;
        for results in results {
            let experiment = &results.experiment;
            let Some(interval) = experiment.interval else { continue };
            let seconds = (interval.0 as f64 / 1e9).to_string();
            for (v, variant) in experiment.variants.iter().enumerate() {
                for (s, (stack, _)) in experiment.stacks.iter().enumerate() {
                    let clients = variant.subjects.iter();
                    let clients = clients.map(|name| Quantity::of_client(name, Metric::Rate));
                    for quantity in clients.chain([Quantity::TOTAL]) {
                        let outcome = &results.repeats(v, s)[0];
                        let rates = quantity.rates(outcome, interval, experiment.units);
                        let rates: Vec<_> = rates.iter().map(|rate| format!("{rate:.3}")).collect();
                        let (of, rates) = (quantity.to_string(), rates.join(" "));
                        let names = [&experiment.name, &variant.name, stack, &of, &seconds, &rates];
                        writer.write_record(names)?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// Seconds of an interval, and the rates of all.
type Series = (f64, Vec<f64>);

/// What [`series_csv`] wrote, by experiment, variant and whose it is; of the pictures' stack.
fn read(text: &str) -> Result<BTreeMap<[String; 3], Series>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut all = BTreeMap::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let wrong = || format!("{record:?}: not a line of {}", HEADER.join(","));
        let cells: Vec<&str> = record.iter().collect();
        let [experiment, variant, stack, of, seconds, rates] = cells[..] else {
            return Err(wrong());
        };
        let rates = rates.split_whitespace().map(|rate| rate.parse().map_err(|_| wrong()));
        let series = (seconds.parse().map_err(|_| wrong())?, rates.collect::<Result<_, _>>()?);
        if stack == STACK {
            all.insert([experiment, variant, of].map(str::to_owned), series);
        }
    }
    Ok(all)
}

/// The name of a picture: of words, with `-` between them.
pub(crate) fn slug(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// A picture for each variant of these experiments: its file name and what is in it.
pub fn step_pictures(
    experiments: &[Experiment],
    csv: &str,
) -> Result<Vec<(String, String)>, String> {
    let series = read(csv)?;
    let mut pictures = Vec::new();
    for experiment in experiments {
        for (index, variant) in experiment.variants.iter().enumerate() {
            let line_of = |of: &str| {
                let key = [&experiment.name, &variant.name, of].map(str::to_owned);
                let missing = || format!("no line of {of} [{}]", variant.name);
                series.get(&key).ok_or_else(missing)
            };
            let mut rates = vec![("total", line_of("total")?)];
            for name in &variant.subjects {
                rates.push((name, line_of(name)?));
            }
            let name = format!("step-{}.svg", slug(&variant.name));
            pictures.push((name, draw(experiment, index, &rates)));
        }
    }
    Ok(pictures)
}

/// When something changes or starts, in seconds after the ramp.
fn steps(experiment: &Experiment, variant: usize) -> Vec<f64> {
    let variant = &experiment.variants[variant];
    let starts = variant.clients.iter().map(|client| client.start);
    let all = starts.chain(variant.changes.iter().map(|change| change.at));
    let mut after: Vec<u64> =
        all.filter(|at| *at > variant.ramp).map(|at| (at - variant.ramp).0).collect();
    after.sort_unstable();
    after.dedup();
    after.into_iter().map(|at| at as f64 / 1e9).collect()
}

/// The minimum that the target has at last, in MB/s.
fn promised(experiment: &Experiment, variant: usize) -> Option<f64> {
    let changed = |what: &What| match what {
        What::Contract { group, contract } if group == TARGET => contract.min,
        _ => None,
    };
    let changes = experiment.variants[variant].changes.iter().rev();
    let last = changes.filter_map(|change| changed(&change.what)).next();
    last.map(|min| min as f64 / 1e6).or_else(|| minimum(experiment, variant))
}

/// The table of these pictures' claims: from when on the rates are what they should be, and how much the total differs
/// from its mean from when on it must be steady.
pub fn steps_table(experiments: &[Experiment], csv: &str) -> Result<String, String> {
    let series = read(csv)?;
    let mut text =
        "| step | at | minimum in every second from | wanted by | total steady from | wanted by | \
        standard deviation then | largest then |\n|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for experiment in experiments {
        for (index, variant) in experiment.variants.iter().enumerate() {
            let mut cells = vec!["-".to_owned(); 6];
            let is_here = |claim: &&Claim| {
                let place = &claim.places[0];
                place.variant == index && experiment.stacks[place.stack].0 == STACK
            };
            for claim in experiment.claims.iter().filter(is_here) {
                let of = claim.places[0].quantity.to_string();
                let key = [&experiment.name, &variant.name, &of].map(String::as_str);
                let (seconds, rates) = series
                    .get(&key.map(str::to_owned))
                    .ok_or_else(|| format!("no line of {of} [{}]", variant.name))?;
                fill(&mut cells, claim, *seconds, rates);
            }
            let steps: Vec<_> = steps(experiment, index).into_iter().map(short).collect();
            let at = if steps.is_empty() { "-".to_owned() } else { steps.join(", ") };
            let _ = writeln!(text, "| {} | {at} | {} |", variant.name, cells.join(" | "));
        }
    }
    Ok(text)
}

/// Puts what a claim says into its cells.
fn fill(cells: &mut [String], claim: &Claim, seconds: f64, rates: &[f64]) {
    let time = |index: Option<usize>| {
        index.map_or("-".to_owned(), |index| format!("{} s", short(index as f64 * seconds)))
    };
    let wanted = claim.high.unwrap_or_default();
    let mark = |index: Option<usize>| match index {
        Some(index) if index as f64 * seconds <= wanted + 1e-9 => time(Some(index)),
        late => format!("**{}**", time(late)),
    };
    let wanted_by = format!("{} s", short(wanted));
    match claim.kind {
        Kind::RisesAt => {
            let width = (SECOND.0 as f64 / 1e9 / seconds).round() as usize;
            cells[0] = mark(step::rises_at(rates, width, claim.part));
            cells[1] = wanted_by;
        }
        Kind::SettlesAt => {
            cells[2] = mark(step::settles_at(rates, claim.part));
            cells[3] = wanted_by;
            let rest = &rates[((wanted / seconds).round() as usize).min(rates.len() - 1)..];
            let mean = rest.iter().sum::<f64>() / rest.len() as f64;
            let squares = rest.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
            let most = rest.iter().map(|rate| (rate - mean).abs()).fold(0.0, f64::max);
            cells[4] = format!("{} %", short((squares / rest.len() as f64).sqrt() / mean * 100.0));
            cells[5] = format!("{} %", short(most / mean * 100.0));
        }
        _ => {}
    }
}

fn draw(experiment: &Experiment, index: usize, rates: &[(&str, &Series)]) -> String {
    let variant = &experiment.variants[index];
    let time = variant.time.0 as f64 / 1e9;
    let steps = steps(experiment, index);
    let down = || steps.iter().map(|at| Mark::Down(*at, String::new()));
    let line = |series: &Series, colour| {
        let middle = |(index, rate): (usize, &f64)| ((index as f64 + 0.5) * series.0, *rate);
        let points = series.1.iter().enumerate().map(middle).collect();
        Mark::line(points, colour, 1.4)
    };
    let (mut all, mut own) = (down().collect::<Vec<_>>(), down().collect::<Vec<_>>());
    let (mut largest, mut largest_own) = (0f64, 0f64);
    let mut legend = Vec::new();
    let mut colours = COLOURS[1..].iter().copied();
    for (name, series) in rates {
        let most = series.1.iter().copied().fold(0.0, f64::max);
        let colour = match *name {
            TARGET => COLOURS[0],
            _ => colours.next().unwrap_or(COLOURS[2]),
        };
        legend.push((*name, colour));
        if *name == TARGET {
            own.push(line(series, colour));
            largest_own = most;
        } else {
            all.push(line(series, colour));
            largest = largest.max(most);
        }
    }
    if let Some(minimum) = promised(experiment, index) {
        own.push(Mark::Across(minimum));
        largest_own = largest_own.max(minimum * 1.2);
    }
    let panel = |title: &str, high, marks| Plot {
        title: title.to_owned(),
        x: Axis::exact("seconds", time),
        y: Axis::linear("MB/s", high),
        marks,
    };
    let panels =
        [panel("target, and its minimum", largest_own, own), panel("the others", largest, all)];
    let title = format!("{}: {}", variant.drive, variant.name);
    picture(&title, &legend, Grid { columns: 2, width: 430.0, height: 230.0 }, &panels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_experiments::experiment::{Overrides, Runner, parse, run};
    use iofair_experiments::testing::{EXAMPLE, simulate};
    use iofair_simulator::outcome::Interval;
    use iofair_simulator::scenario::Scenario;

    const CHANGE: &str = "[[variant]]\nname = \"rand\"\n[[variant.change]]\nat = \"2s\"\nclient.target.min = \"7MB/s\"\n";

    fn experiment() -> Experiment {
        let text = EXAMPLE.replace("[[variant]]\nname = \"rand\"\n", CHANGE);
        let text =
            text.replace("\"again\"]", "\"promise\"]").replace("[stack.again]", "[stack.promise]");
        let claim = |rest: &str| {
            format!(
                "[[expect]]\nvariant = \"rand, N=4\"\nstack = \"promise\"\nbasis = \"own\"\n{rest}"
            )
        };
        let rises =
            claim("kind = \"rises_at\"\nof = \"target\"\nvalue = \"7MB/s\"\nhigh = \"2s\"\n");
        let settles = claim("kind = \"settles_at\"\nof = \"total\"\nvalue = 0.1\nhigh = \"1s\"\n");
        let text = format!("interval = \"500ms\"\n{text}{rises}{settles}");
        parse("reproduction/experiments/a/example.toml", &text, &Overrides::default())
            .expect("a good file")
    }

    /// Goal: pictures are drawn from the table alone, with the step and the minimum that it leads to. Method: the example
    /// with rates of its own and a contract that changes; then a table without a line.
    #[test]
    fn pictures_come_from_the_table() {
        let rates = |scenario: &Scenario| {
            let mut outcome = simulate(scenario)?;
            let intervals = scenario.time.0 / 500_000_000;
            for client in &mut outcome.clients {
                let interval = Interval { bytes: 4_096_000, ..Interval::default() };
                client.series = vec![interval; intervals as usize];
                client.series[1].bytes = 0;
            }
            outcome.drive.series = vec![50 << 20; intervals as usize];
            Ok(outcome)
        };
        let runner = Runner { jobs: 1, simulate: &rates, finished: &|_| {} };
        let results = run(vec![experiment()], &runner).expect("the simulator never fails");
        let csv = series_csv(&results);
        assert!(
            csv.contains("a/example,\"rand, N=4\",promise,target,0.5,8.000 0.000 8.000 8.000\n")
        );
        assert!(csv.contains("promise,total,0.5,100.000 "), "{csv}");
        let pictures = step_pictures(&[experiment()], &csv).expect("all lines are there");
        let names: Vec<_> = pictures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..2], ["step-rand-n-4.svg", "step-rand-n-1.svg"]);
        assert_eq!(pictures[0].1.matches("stroke-dasharray=\"2 3\"").count(), 2, "in both panels");
        assert_eq!(pictures[0].1.matches("stroke-dasharray=\"4 3\"").count(), 1, "the minimum");
        assert_eq!(promised(&experiment(), 0), Some(7.0));
        assert_eq!(promised(&experiment(), 2), Some(10.0));
        let table = steps_table(&[experiment()], &csv).expect("all lines are there");
        assert!(table.contains("| rand, N=4 | 1 | 1 s | 2 s | 0 s | 1 s | 0 % | 0 % |"), "{table}");
        let less = csv.replace("promise,total", "none-none,total");
        assert!(step_pictures(&[experiment()], &less).unwrap_err().contains("total [rand"));
    }
}
