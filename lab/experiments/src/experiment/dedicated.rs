//! Dedicated storage: how many clients may share a drive that nobody controls?
//!
//! So few that every client gets what it was promised in every mix of what they may do. The price is the
//! part of the drive that stays unused, and the number of drives that n clients need. A client of a
//! `[dedicated]` file runs in each mix with 1, 2, ... clients a drive, all of them: what a drive gives does not
//! fall evenly with their number, so that halving the range could step over a number that is too large.

use serde::Serialize;

use super::quantity::Quantity;
use super::resolved::Dedicated;
use super::runner::Results;
use iofair_simulator::text_table::counted;

/// The result for one stack.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sizing {
    /// The stack.
    pub stack: String,
    /// Most clients a drive that get what they were promised; 0: not even one does.
    pub clients_a_unit: u32,
    /// Clients in all.
    pub clients: u32,
    /// Drives that they need.
    pub units: Option<u32>,
    /// Percent of the best rate of any mix and number of clients that a drive then carries, by mix.
    pub utilisation: Vec<(String, f64)>,
    /// What breaks with one client more: the mix, and what the worst off of its clients gets, bytes a second.
    pub breaks: Option<(String, f64)>,
}

/// What is asked of [`Results`], by stack.
pub fn sizings(results: &Results) -> Vec<Sizing> {
    let Some(dedicated) = results.experiment.dedicated else { return Vec::new() };
    (0..results.experiment.stacks.len()).map(|stack| sizing(results, &dedicated, stack)).collect()
}

fn sizing(results: &Results, dedicated: &Dedicated, stack: usize) -> Sizing {
    let sized = || {
        let variants = results.experiment.variants.iter().enumerate();
        variants.filter_map(|(index, variant)| Some((index, variant.mix.as_ref()?)))
    };
    let kept = |variant: usize| {
        let mut outcomes = results.repeats(variant, stack).iter();
        outcomes.all(|o| o.clients.iter().all(|client| dedicated.is_kept(client, o.time)))
    };
    let broken = sized().filter(|(variant, _)| !kept(*variant)).map(|(_, (_, clients))| *clients);
    let most = broken.min().map_or(dedicated.clients, |first| first - 1);
    let total = |variant: usize| results.statistics(variant, stack, &Quantity::TOTAL).mean;
    let best = sized().map(|(variant, _)| total(variant)).fold(0.0, f64::max);
    let of_size = |size: u32| sized().filter(move |(_, (_, clients))| *clients == size);
    let used =
        |(variant, (mix, _)): (usize, &(String, u32))| (mix.clone(), total(variant) / best * 100.0);
    let worst_off = |(variant, (mix, _)): (usize, &(String, u32))| {
        let outcomes = results.repeats(variant, stack).iter();
        let rates = outcomes.flat_map(|outcome| {
            let seconds = outcome.time.0 as f64 / 1e9;
            outcome.clients.iter().map(move |client| client.bytes as f64 / seconds)
        });
        (mix.clone(), rates.fold(f64::INFINITY, f64::min))
    };
    let next = of_size(most + 1).filter(|(variant, _)| !kept(*variant)).map(worst_off);
    Sizing {
        stack: results.experiment.stacks[stack].0.clone(),
        clients_a_unit: most,
        clients: dedicated.clients,
        units: (most > 0).then(|| dedicated.clients.div_ceil(most)),
        utilisation: of_size(most).map(used).collect(),
        breaks: next.min_by(|a, b| a.1.total_cmp(&b.1)),
    }
}

impl Sizing {
    /// In a sentence.
    pub fn text(&self, promise: u64) -> String {
        let Self { stack, clients_a_unit, clients, .. } = self;
        let promise = promise as f64 / 1e6;
        let mut text = match self.units {
            None => {
                format!("{stack}: not even one client a drive gets {promise} MB/s in every mix")
            }
            Some(units) => format!(
                "{stack}: {} a drive get{} {promise} MB/s in every mix; {} need{} {}",
                counted((*clients_a_unit).into(), "client"),
                if *clients_a_unit == 1 { "s" } else { "" },
                counted((*clients).into(), "client"),
                if *clients == 1 { "s" } else { "" },
                counted(units.into(), "drive"),
            ),
        };
        let used = self.utilisation.iter().map(|(mix, used)| format!("{mix} {used:.1} %"));
        let used = used.collect::<Vec<_>>().join(", ");
        if !used.is_empty() {
            text += &format!("; used of what a drive can give: {used}");
        }
        if let Some((mix, rate)) = &self.breaks {
            let next = clients_a_unit + 1;
            text += &format!("; with {next}, a client in \"{mix}\" gets {:.2} MB/s", rate / 1e6);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Overrides, Runner, parse, run};
    use crate::testing::simulate;
    use iofair_simulator::outcome::Outcome;
    use iofair_simulator::scenario::{Pattern, Scenario};

    const FILE: &str = r#"
title = "t"
source = "s"
drive = "plextor-px256m5s"
time = "2s"
repeats = 2
stacks = ["dedicated"]
[dedicated]
promise = "10MB/s"
clients = 7
fill = "others"
[[client]]
name = "others"
job = "read"
[[client]]
name = "target"
job = "randread"
[[variant]]
name = "uneven"
[[variant]]
name = "even"
client.target.count = 0
"#;

    /// Sequential readers share 60 MB/s; beside them a random one gets 12, 11, 9, 11, ... MB/s.
    fn drive(scenario: &Scenario) -> Result<Outcome, String> {
        let mut outcome = simulate(scenario)?;
        let clients = scenario.clients.len() as u64;
        let mut total = 0;
        for (spec, client) in scenario.clients.iter().zip(&mut outcome.clients) {
            let rate = match (spec.job.pattern, clients) {
                (Pattern::SequentialRead, _) => 60_000_000 / clients,
                (_, 3) => 9_000_000,
                (_, clients) => 13_000_000 - clients * 500_000,
            };
            client.bytes = 2 * rate;
            total += 2 * rate;
        }
        outcome.drive.read_bytes = total;
        Ok(outcome)
    }

    fn sized(text: &str) -> Vec<Sizing> {
        let experiment = parse("e.toml", text, &Overrides::default()).expect("a good file");
        let runner = Runner { jobs: 1, simulate: &drive, finished: &|_| {} };
        sizings(&run(vec![experiment], &runner).expect("it never fails")[0])
    }

    /// Goal: the most clients that all get what they were promised, in every mix, with no number below that
    /// breaks it. Method: one mix breaks at 3 and again holds at 4; the other holds until 6.
    #[test]
    fn the_first_broken_promise_decides() {
        let sizing = sized(FILE).remove(0);
        assert_eq!((sizing.clients_a_unit, sizing.units), (2, Some(4)));
        assert_eq!(sizing.breaks, Some(("uneven".to_owned(), 9_000_000.0)));
        let [uneven, even] = &sizing.utilisation[..] else { panic!("{sizing:?}") };
        assert_eq!((uneven.0.as_str(), even.0.as_str()), ("uneven", "even"));
        // The best is seven readers of which one is random, six sevenths of 60 and 9.5; or 60.
        assert!((uneven.1 - 42.0 / (360.0 / 7.0 + 9.5) * 100.0).abs() < 1e-3, "{uneven:?}");
        assert!(even.1 > uneven.1 && even.1 < 100.0, "{even:?}");
        let text = sizing.text(10_000_000);
        assert!(
            text.contains("2 clients a drive get 10 MB/s in every mix; 7 clients need 4 drives")
        );
        assert!(text.ends_with("with 3, a client in \"uneven\" gets 9.00 MB/s"), "{text}");
    }

    /// Goal: the ends of the range, and latency as a promise. Method: promises that nobody and that everybody
    /// gets; the simulator's 99 % are 1 ms for the first client and more for each further one.
    #[test]
    fn none_all_and_latency() {
        let none = sized(&FILE.replace("10MB/s", "70MB/s")).remove(0);
        assert_eq!((none.clients_a_unit, none.units), (0, None));
        assert!(none.text(70_000_000).contains("not even one client a drive"), "{none:?}");
        let all = sized(&FILE.replace("10MB/s", "1MB/s")).remove(0);
        assert_eq!((all.clients_a_unit, all.units, &all.breaks), (7, Some(1), &None));
        let soon = "promise = \"1MB/s\"\nlatency = \"3.5ms\"";
        let soon = sized(&FILE.replace("promise = \"10MB/s\"", soon)).remove(0);
        assert_eq!(soon.clients_a_unit, 3);
    }

    /// Goal: mistakes are found. Method: nobody to fill up with, nobody to serve.
    #[test]
    fn mistakes_are_found() {
        for (good, bad, says) in
            [("\"others\"\n", "\"other\"\n", "no client `other`"), ("= 7", "= 0", "0 clients")]
        {
            let text = FILE.replacen(good, bad, 1);
            let error = parse("e.toml", &text, &Overrides::default()).expect_err(bad);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
