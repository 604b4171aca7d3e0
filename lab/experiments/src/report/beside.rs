//! Two worlds side by side: what an experiment gave in virtual time and what it gave live, as numbers, ratios and
//! verdicts.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::number::{band, number, published};
use super::summarize::summarize;
use super::summary::Summary;
use crate::experiment::{Kind, Metric, Quantity, Results, Subject, Verdict};
use iofair_simulator::text_table::{RULED, text_table};

/// How far a live share may be from the lab's, as a part of it.
const SHARES_WITHIN: f64 = 0.10;
/// The same for latencies.
const LATENCIES_WITHIN: f64 = 0.25;

/// A number of both worlds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pair {
    /// In virtual time.
    pub lab: f64,
    /// Live.
    pub live: f64,
}

impl Pair {
    /// Live by lab; 1 where both are nothing.
    pub fn ratio(&self) -> f64 {
        if self.lab == self.live { 1.0 } else { self.live / self.lab }
    }
    /// Whether the live number is near enough to the simulator's.
    pub fn is_within(&self, part: f64) -> bool {
        (self.ratio() - 1.0).abs() <= part
    }
}

impl Serialize for Pair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pair = serializer.serialize_struct("Pair", 3)?;
        pair.serialize_field("lab", &self.lab)?;
        pair.serialize_field("live", &self.live)?;
        pair.serialize_field("ratio", &self.ratio())?;
        pair.end()
    }
}

/// One client (all its processes) of one variant on one stack.
#[derive(Clone, Debug, Serialize)]
pub struct ClientRow {
    /// Its name.
    pub name: String,
    /// In the experiment's unit.
    pub rate: Pair,
    /// Percent of what all clients got; `None` when it is alone.
    pub share_percent: Option<Pair>,
    /// Milliseconds of a call.
    pub mean_ms: Pair,
    /// What 99 of 100 calls do not exceed.
    pub p99_ms: Pair,
}

/// One variant on one stack.
#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    /// The variant; empty when the file has none.
    pub variant: String,
    /// The stack.
    pub stack: String,
    /// Rate of the drive, in the experiment's unit.
    pub total: Pair,
    /// Percent of the time in which the drive had work.
    pub busy_percent: Pair,
    /// In the file's order.
    pub clients: Vec<ClientRow>,
}

/// A claim in both worlds.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimPair {
    /// The variant.
    pub variant: String,
    /// In words.
    pub text: String,
    /// Unit of the numbers.
    pub unit: &'static str,
    /// What the source prints.
    pub published: Option<f64>,
    /// Lower end of the band.
    pub low: Option<f64>,
    /// Upper end of the band.
    pub high: Option<f64>,
    /// Our numbers.
    pub got: Pair,
    /// Whether it is about an order.
    pub is_order: bool,
    /// The lab's verdict.
    pub lab: Verdict,
    /// The live one.
    pub live: Verdict,
}

/// A count out of a total.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Count {
    /// Within the aim.
    pub within: usize,
    /// In all.
    pub of: usize,
}

impl Count {
    fn add(&mut self, within: bool) {
        self.within += usize::from(within);
        self.of += 1;
    }
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { within: self.within + other.within, of: self.of + other.of }
    }
}

/// An experiment in both worlds.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// Its name.
    pub experiment: String,
    /// One line.
    pub title: String,
    /// Where the published numbers come from.
    pub source: String,
    /// Drives, times, seeds, units.
    pub conditions: String,
    /// How rates are printed.
    pub rate_unit: &'static str,
    /// What else a reader should know of the live run.
    pub notes: Vec<String>,
    /// By variant and stack.
    pub runs: Vec<RunRow>,
    /// In the file's order.
    pub claims: Vec<ClaimPair>,
    /// Live shares near the lab's.
    pub shares: Count,
    /// Live latencies (mean and 99 %) near the lab's.
    pub latencies: Count,
}

/// The same experiment's results of both worlds.
pub fn beside(lab: &Results, live: &Results, notes: Vec<String>) -> Beside {
    let experiment = &lab.experiment;
    let (Summary { conditions, rate_unit, claims, .. }, told) = (summarize(lab), summarize(live));
    let mut runs = Vec::new();
    for (v, variant) in experiment.variants.iter().enumerate() {
        for (s, (stack, _)) in experiment.stacks.iter().enumerate() {
            let pair = |quantity: &Quantity| Pair {
                lab: lab.statistics(v, s, quantity).mean,
                live: live.statistics(v, s, quantity).mean,
            };
            runs.push(RunRow {
                variant: variant.name.clone(),
                stack: stack.clone(),
                total: pair(&Quantity::TOTAL),
                busy_percent: pair(&Quantity { subject: Subject::Total, metric: Metric::Busy }),
                clients: clients(&variant.subjects, pair),
            });
        }
    }
    let claims = claims.into_iter().zip(told.claims).map(|(lab, live)| ClaimPair {
        variant: lab.variant,
        text: lab.text,
        unit: lab.unit,
        published: lab.published,
        low: lab.low,
        high: lab.high,
        got: Pair { lab: lab.got, live: live.got },
        is_order: lab.kind == Kind::Order,
        lab: lab.verdict,
        live: live.verdict,
    });
    let (shares, latencies) = count(&runs);
    Beside {
        experiment: experiment.name.clone(),
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        conditions,
        rate_unit,
        notes,
        runs,
        claims: claims.collect(),
        shares,
        latencies,
    }
}

fn clients(names: &[String], of: impl Fn(&Quantity) -> Pair) -> Vec<ClientRow> {
    let rates: Vec<Pair> =
        names.iter().map(|n| of(&Quantity::of_client(n, Metric::Rate))).collect();
    let all = rates.iter().fold((0.0, 0.0), |sum, rate| (sum.0 + rate.lab, sum.1 + rate.live));
    let percent = |part: f64, all: f64| if all > 0.0 { part / all * 100.0 } else { 0.0 };
    let row = |(name, rate): (&String, &Pair)| ClientRow {
        name: name.clone(),
        rate: *rate,
        share_percent: (names.len() > 1)
            .then(|| Pair { lab: percent(rate.lab, all.0), live: percent(rate.live, all.1) }),
        mean_ms: of(&Quantity::of_client(name, Metric::Mean)),
        p99_ms: of(&Quantity::of_client(name, Metric::P99)),
    };
    names.iter().zip(&rates).map(row).collect()
}

fn count(runs: &[RunRow]) -> (Count, Count) {
    let (mut shares, mut latencies) = (Count::default(), Count::default());
    for client in runs.iter().flat_map(|run| &run.clients) {
        if let Some(share) = client.share_percent {
            shares.add(share.is_within(SHARES_WITHIN));
        }
        for latency in [client.mean_ms, client.p99_ms] {
            latencies.add(latency.is_within(LATENCIES_WITHIN));
        }
    }
    (shares, latencies)
}

/// A ratio; what misses its aim is marked.
fn ratio(pair: &Pair, part: f64, mark: &str) -> String {
    let text = format!("{:.2}", pair.ratio());
    if pair.is_within(part) { text } else { format!("{mark}{text}{mark}") }
}

const TITLES: [&str; 11] =
    ["client", "lab", "live", "share %", "live", "x", "mean ms", "live", "x", "p99 ms", "x"];

/// The cells of a run: a line a client, and one for the drive.
fn cells(run: &RunRow, mark: &str) -> Vec<Vec<String>> {
    let line = |client: &ClientRow| {
        let ClientRow { name, rate, share_percent, mean_ms, p99_ms } = client;
        let share = share_percent.as_ref().map_or([const { String::new() }; 3], |share| {
            [number(share.lab), number(share.live), ratio(share, SHARES_WITHIN, mark)]
        });
        let [share, share_live, share_ratio] = share;
        vec![
            name.clone(),
            number(rate.lab),
            number(rate.live),
            share,
            share_live,
            share_ratio,
            number(mean_ms.lab),
            number(mean_ms.live),
            ratio(mean_ms, LATENCIES_WITHIN, mark),
            format!("{} {}", number(p99_ms.lab), number(p99_ms.live)),
            ratio(p99_ms, LATENCIES_WITHIN, mark),
        ]
    };
    let mut lines: Vec<Vec<String>> = run.clients.iter().map(line).collect();
    let mut drive = vec!["the drive".to_owned(), number(run.total.lab), number(run.total.live)];
    drive.resize(TITLES.len(), String::new());
    lines.push(drive);
    lines
}

fn got(claim: &ClaimPair, value: f64) -> String {
    if claim.is_order { format!("x {}", number(value)) } else { number(value) }
}

impl Beside {
    /// "n of m" in a sentence.
    pub fn verdict(&self) -> String {
        aims(self.shares, self.latencies)
    }
    fn claims_alike(&self) -> Count {
        let mut alike = Count::default();
        let judged = self.claims.iter().filter(|claim| claim.lab != Verdict::Informative);
        judged.for_each(|claim| alike.add(claim.lab == claim.live));
        alike
    }
}

fn aims(shares: Count, latencies: Count) -> String {
    format!(
        "{} of {} shares within {:.0} %, {} of {} latencies within {:.0} % of the simulator's",
        shares.within,
        shares.of,
        SHARES_WITHIN * 100.0,
        latencies.within,
        latencies.of,
        LATENCIES_WITHIN * 100.0
    )
}

/// An experiment as text; what misses its aim has an exclamation mark.
pub fn beside_table(beside: &Beside) -> String {
    let mut text = format!("{}\n  {}\n  {}\n", beside.title, beside.source, beside.conditions);
    for note in &beside.notes {
        text.push_str(&format!("  {note}\n"));
    }
    text.push('\n');
    let titles = [&["variant", "stack"][..], &TITLES].concat();
    let (mut rows, mut last) = (Vec::new(), None);
    for run in &beside.runs {
        for (number, mut line) in cells(run, "!").into_iter().enumerate() {
            let variant = if last == Some(&run.variant) { "" } else { &run.variant };
            let stack = if number == 0 { &run.stack } else { "" };
            last = Some(&run.variant);
            line.splice(0..0, [variant.to_owned(), stack.to_owned()]);
            rows.push(line);
        }
    }
    let right = 3..titles.len();
    text.push_str(&text_table(RULED, titles, right, rows));
    if !beside.claims.is_empty() {
        let titles = ["variant", "claim", "band", "lab", "live", "in the lab", "live"];
        let row = |claim: &ClaimPair| {
            vec![
                claim.variant.clone(),
                claim.text.clone(),
                band(claim.low, claim.high),
                got(claim, claim.got.lab),
                got(claim, claim.got.live),
                claim.lab.words().to_owned(),
                claim.live.words().to_owned(),
            ]
        };
        let table = text_table(RULED, titles, 2..7, beside.claims.iter().map(row));
        text.push_str(&format!("\n{table}"));
    }
    text.push_str(&format!("\n{}\n", beside.verdict()));
    let alike = beside.claims_alike();
    if alike.of > 0 {
        text.push_str(&format!("{} of {} verdicts match\n", alike.within, alike.of));
    }
    text
}

/// Experiments as a page; `head` stands above all.
pub fn beside_markdown(head: &str, all: &[Beside]) -> String {
    let mut text = head.to_owned();
    let shares = all.iter().map(|beside| beside.shares).fold(Count::default(), Count::plus);
    let latencies = all.iter().map(|beside| beside.latencies).fold(Count::default(), Count::plus);
    let alike = all.iter().map(Beside::claims_alike).fold(Count::default(), Count::plus);
    text.push_str(&format!(
        "**{}**; {} of {} verdicts on published claims match.\n\n",
        aims(shares, latencies),
        alike.within,
        alike.of
    ));
    text.push_str("| experiment | shares | latencies | verdicts |\n|---|---|---|---|\n");
    for beside in all {
        let text_of = |count: Count| format!("{} of {}", count.within, count.of);
        let alike = text_of(beside.claims_alike());
        let (shares, latencies) = (text_of(beside.shares), text_of(beside.latencies));
        text.push_str(&format!("| {} | {shares} | {latencies} | {alike} |\n", beside.experiment));
    }
    all.iter().for_each(|beside| section(&mut text, beside));
    text
}

fn section(text: &mut String, beside: &Beside) {
    let Beside { experiment, title, conditions, .. } = beside;
    text.push_str(&format!("\n## {experiment}\n\n{title}. {conditions}.\n"));
    for note in &beside.notes {
        text.push_str(&format!("{note}.\n"));
    }
    let unit = beside.rate_unit;
    let mut variant = None;
    for run in &beside.runs {
        if variant != Some(&run.variant) {
            variant = Some(&run.variant);
            let name =
                if run.variant.is_empty() { "" } else { &format!("**{}**\n\n", run.variant) };
            text.push_str(&format!(
                "\n{name}| stack | client | {unit} lab | live | share % | live | x | mean ms | live | x | p99 ms, live | x \
                 |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n"
            ));
        }
        for (number, line) in cells(run, "**").into_iter().enumerate() {
            let stack = if number == 0 { &run.stack } else { "" };
            text.push_str(&format!("| {stack} | {} |\n", line.join(" | ")));
        }
    }
    let differs = beside.claims.iter().filter(|claim| claim.lab != claim.live);
    let differs: Vec<&ClaimPair> = differs.collect();
    if differs.is_empty() {
        return;
    }
    text.push_str("\nVerdicts that differ:\n\n| variant | claim | published | band | lab | live | live verdict |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for claim in differs {
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            claim.variant,
            claim.text.replace('<', "&lt;"),
            claim.published.map(published).unwrap_or_default(),
            band(claim.low, claim.high),
            got(claim, claim.got.lab),
            got(claim, claim.got.live),
            claim.live.words()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Overrides, Runner, parse, run};
    use crate::testing::simulate;
    use iofair_simulator::outcome::Outcome;
    use iofair_simulator::scenario::Scenario;

    const FILE: &str = r#"
title = "Two readers"
source = "none"
basis = "own"
drive = "plextor-px256m5s"
time = "1s"
stacks = ["none-none"]
[[client]]
name = "a"
job = "read"
[[client]]
name = "b"
job = "randread"
[[expect]]
kind = "at_least"
stack = "none-none"
of = "b"
value = "3MB/s"
"#;

    fn results(bytes: [u64; 2], nanos: [u64; 2]) -> Results {
        let experiment = parse("e.toml", FILE, &Overrides::default()).expect("a good file");
        let simulate = |scenario: &Scenario| -> Result<Outcome, String> {
            let mut outcome = simulate(scenario)?;
            for ((client, bytes), nanos) in outcome.clients.iter_mut().zip(bytes).zip(nanos) {
                client.bytes = bytes * 1_000_000;
                client.latency = iofair_core::stats::histogram::Histogram::new();
                client.latency.record(nanos);
            }
            Ok(outcome)
        };
        let runner = Runner { jobs: 1, simulate: &simulate, finished: &|_| {} };
        run(vec![experiment], &runner).expect("it never fails").remove(0)
    }

    /// Goal: shares and latencies are compared with their aims, and claims are judged in both worlds. Method: made-up
    /// numbers: shares of 75 and 25 % against 80 and 20, one latency the same, one half as much again.
    #[test]
    fn worlds_are_compared() {
        let lab = results([9, 3], [1_000_000, 1_000_000]);
        let live = results([8, 2], [1_000_000, 1_500_000]);
        let compared = beside(&lab, &live, vec!["a note".to_owned()]);
        let run = &compared.runs[0];
        assert_eq!(run.clients[0].share_percent, Some(Pair { lab: 75.0, live: 80.0 }));
        assert_eq!(
            (compared.shares, compared.latencies),
            (Count { within: 1, of: 2 }, Count { within: 2, of: 4 })
        );
        let claim = &compared.claims[0];
        assert_eq!((claim.lab, claim.live), (Verdict::Holds, Verdict::DoesNotHold));
        let text = beside_table(&compared);
        assert!(text.contains("1 of 2 shares within 10 %, 2 of 4 latencies within 25 %"), "{text}");
        assert!(text.contains("!0.80!") && text.contains("a note"), "{text}");
        let page = beside_markdown("# Live\n", std::slice::from_ref(&compared));
        assert!(page.contains("| e | 1 of 2 | 2 of 4 | 0 of 1 |"), "{page}");
        assert!(page.contains("**0.80**") && page.contains("Verdicts that differ"), "{page}");
        let json = serde_json::to_value(&compared).expect("plain numbers");
        assert_eq!(json["runs"][0]["clients"][1]["mean_ms"]["ratio"], 1.5);
    }
}
