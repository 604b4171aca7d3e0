//! The law of the engine, for every row of a table of policies, over random lists of operations.
//!
//! Each scheduler runs alone, sharing between groups if it can, and under each throttle; each throttle
//! also above `none`, and all throttles together. A list is drawn from a seed ([`operations`]), run in
//! five moods of the engine's owner ([`mod@run`]), and watched from outside ([`check`]):
//!
//! - *exact*: the owner asks when something happened and at each wake-up. Every clause holds, and a second
//!   run gives the same lines.
//! - *restless*: it also asks twice, early and in between, and reads gauges and traces. Every clause holds,
//!   and the lines are those of the exact run: same commands, same order, same instants.
//! - *late*: it serves wake-ups late, or only when something else happens. Every clause holds; the lines may
//!   differ, since time has passed.
//! - *sparing*: after a completion it asks only if that calls for it, as NVMe's host does. Every clause holds.
//! - *confused*: it also passes times that lie back, ids of what is gone, and requests that cannot be. All of that is refused or
//!   ignored; the lines are those of the exact run.
//!
//! A failing list is cut down before it is shown. `IOFAIR_SEEDS=5000` runs this many seeds a stack,
//! `IOFAIR_SEED=17` just that one. Policies that are broken on purpose are in `lab/baselines/tests/conformance`: each must be
//! caught by its clause.

mod ceilings;
mod check;
mod operations;
mod random;
mod run;

use std::ops::Range;

use iofair_core::controller::Stack;
use iofair_core::id::ClientId;
use iofair_core::policy::Table;
use iofair_core::stats::counters::Counters;
use iofair_core::time::{Instant, Nanos};

use crate::stacks::{schedulers, throttles};
use operations::{Generator, Step};
use random::Random;
use run::{Case, Failure, Line, Mood, run};

/// The clause that early, double and needless wake-ups change nothing.
pub const RESTLESS: &str = "restless";
/// The clause that a time that lies back, and ids and requests that are wrong, change nothing.
pub const CONFUSED: &str = "confused";
/// The clause that the same seed gives the same lines.
pub const REPEATABLE: &str = "repeatable";

/// Steps of a list; every tenth is a long one, for what takes time to learn.
const STEPS: [usize; 2] = [400, 4000];

/// Steps of a list for two stacks: some ten changes each way.
const STEPS_OF_TWO: usize = 200;

/// Lists for the stacks with a throttle, of which a table of servers has a handful and that of the laboratory hundreds: at most 30
/// each, and at least ten, one of which is long.
const THROTTLED: u64 = 1_250;

fn seeds(usual: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("IOFAIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("IOFAIR_SEEDS").unwrap_or(usual),
    }
}

/// Sets some parameters anywhere in their range, in half of the seeds.
fn vary(stack: &mut Stack, random: &mut Random) {
    if random.one_in(2) {
        return;
    }
    let stages = stack.throttles.iter().chain([&stack.scheduler]);
    let rows: Vec<_> = stages.map(|stage| stage.row).collect();
    for row in rows {
        for parameter in row.parameters {
            let (low, high) = parameter.range;
            let value = match random.below(4) {
                0 => random.scale(low, high),
                1 => random.between(low, high.min(low.saturating_add(20))),
                _ => continue,
            };
            // A time is printed to three digits, which may leave the range: then it keeps its default.
            let _ = stack.set(row.name, parameter.name, &parameter.show(value));
        }
    }
}

fn same(a: &[Line], b: &[Line], clause: &'static str, mood: Mood) -> Result<(), Failure> {
    let first = a.iter().zip(b).position(|(a, b)| a != b);
    let Some(at) = first.or((a.len() != b.len()).then_some(a.len().min(b.len()))) else {
        return Ok(());
    };
    let text = format!("line {at}: {:?} became {:?}", a.get(at), b.get(at));
    Err(Failure { clause, mood, text, step: 0 })
}

/// Two stacks that replace each other again and again.
fn case_of_two(seed: u64, mut stacks: [Stack; 2]) -> Case {
    let mut random = Random::new(seed);
    let mut setup = operations::setup(&mut random);
    stacks.iter_mut().for_each(|stack| vary(stack, &mut random));
    let promises = |stack| ceilings::Promise::made_by(stack, ceilings::TAGS).is_some();
    if seed % 2 == 1 && stacks.iter().any(promises) {
        setup.tags = ceilings::TAGS;
    }
    let mut generator = Generator::new(&mut random, &setup);
    generator.switch_often();
    let steps = generator.list(STEPS_OF_TWO);
    Case { seed, setup, stacks: stacks.to_vec(), steps }
}

/// Cuts requests out of plugs.
fn cut_plugs(mut case: Case, fails: impl Fn(&Case) -> bool) -> Case {
    for step in 0..case.steps.len() {
        let mut at = 0;
        loop {
            let mut shorter = case.clone();
            match &mut shorter.steps[step] {
                Step::Plug(asks) if at < asks.len() => drop(asks.remove(at)),
                _ => break,
            }
            if fails(&shorter) {
                case = shorter;
            } else {
                at += 1;
            }
        }
    }
    case
}

/// A table of policies under the law.
#[derive(Clone, Copy)]
pub struct Suite {
    pub table: &'static Table,
    /// How late the owner of the engine may be: what throttles make up for.
    pub late: Nanos,
    /// Whether a stack is in another suite.
    pub is_elsewhere: fn(&str) -> bool,
}

impl Suite {
    fn stack(&self, name: &str) -> Stack {
        self.table.stack(name).expect("made from the table")
    }
    fn throttled(&self) -> Vec<String> {
        let throttles = throttles(self.table);
        let mut names = Vec::new();
        for throttle in &throttles {
            for scheduler in schedulers(self.table) {
                let (policy, scheduler) = scheduler.split_once('-').expect("a stack's name");
                let policy = if policy == "prop" { "+prop" } else { "" };
                names.push(format!("{throttle}{policy}-{scheduler}"));
            }
        }
        if throttles.len() > 1 {
            names.push(format!("{}-none", throttles.join("+")));
        }
        names
    }
    fn case(&self, seed: u64, mut stack: Stack) -> Case {
        let mut random = Random::new(seed);
        let mut setup = operations::setup(&mut random);
        vary(&mut stack, &mut random);
        if seed % 2 == 1 && ceilings::Promise::made_by(&stack, ceilings::TAGS).is_some() {
            setup.tags = ceilings::TAGS;
        }
        let steps = Generator::new(&mut random, &setup).list(STEPS[usize::from(seed % 10 == 9)]);
        let none = self.stack("none-none");
        Case { seed, setup, stacks: vec![stack, none], steps }
    }
    /// Runs a case in every mood; `only` keeps to one clause.
    fn verify(&self, case: &Case, only: Option<&str>) -> Result<Vec<Line>, Failure> {
        let wanted = |name: &str| only.is_none_or(|only| only == name);
        let run = |mood| {
            let late = if mood == Mood::Late { self.late } else { Nanos::ZERO };
            let mut checkers = check::all(&case.setup, late);
            checkers.retain(|checker| wanted(checker.name()));
            run(case, mood, checkers)
        };
        let exact = run(Mood::Exact)?;
        if wanted(REPEATABLE) {
            same(&exact, &run(Mood::Exact)?, REPEATABLE, Mood::Exact)?;
        }
        let restless = run(Mood::Restless)?;
        if wanted(RESTLESS) {
            same(&exact, &restless, RESTLESS, Mood::Restless)?;
        }
        if wanted(CONFUSED) {
            same(&exact, &run(Mood::Confused)?, CONFUSED, Mood::Confused)?;
        }
        run(Mood::Late)?;
        run(Mood::Sparing)?;
        Ok(exact)
    }
    /// Cuts steps out of a failing case as long as the same clause fails.
    fn cut_down(&self, mut case: Case, clause: &str) -> Case {
        let fails =
            |case: &Case| self.verify(case, None).is_err_and(|failure| failure.clause == clause);
        let mut size = case.steps.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < case.steps.len() {
                let end = (at + size).min(case.steps.len());
                let mut shorter = case.clone();
                shorter.steps.drain(at..end);
                if fails(&shorter) {
                    case = shorter;
                } else {
                    at = end;
                }
            }
            size /= 2;
        }
        cut_plugs(case, fails)
    }
    fn show(&self, case: Case, failure: &Failure) -> String {
        let clause = failure.clause;
        let stack = case.stacks[0].name().to_string();
        let case = self.cut_down(case, clause);
        let failure = self.verify(&case, None).err();
        let text =
            failure.map_or(String::new(), |f| format!("{:?}, step {}: {}", f.mood, f.step, f.text));
        let steps: Vec<_> = case.steps.iter().map(|step: &Step| format!("  {step:?}\n")).collect();
        let stages = case.stacks[0].throttles.iter().chain([&case.stacks[0].scheduler]);
        let changed = stages.flat_map(|stage| {
            let values =
                stage.values.iter().filter(|(parameter, value)| parameter.default != *value);
            values.map(|(parameter, value)| {
                format!("{} = {} ", parameter.name, parameter.show(value))
            })
        });
        format!(
            "seed {} of {stack} breaks \"{clause}\": {text}\n{:?}\n{}\n{}",
            case.seed,
            case.setup,
            changed.collect::<String>(),
            steps.concat()
        )
    }
    /// Verifies stacks over seeds; all broken clauses of all stacks are shown, each by its first seed.
    pub fn verify_all(&self, names: &[String], seeds: &Range<u64>) {
        let mut failures = Vec::new();
        let mut lines = 0;
        for name in names {
            let mut known = Vec::new();
            for seed in seeds.clone() {
                let case = self.case(seed, self.stack(name));
                match self.verify(&case, None) {
                    Ok(trace) => lines += trace.len(),
                    Err(failure) if known.contains(&failure.clause) => {}
                    Err(failure) => {
                        known.push(failure.clause);
                        failures.push(self.show(case, &failure));
                    }
                }
            }
        }
        println!("{} stacks, {} seeds, {lines} lines", names.len(), seeds.end - seeds.start);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert!(lines > 0 || names.is_empty(), "nothing was served at all");
    }

    /// Every scheduler keeps the law.
    pub fn verify_schedulers(&self) {
        let mut names = schedulers(self.table);
        names.retain(|name| !(self.is_elsewhere)(name));
        self.verify_all(&names, &seeds(25));
    }

    /// Every throttle above every scheduler keeps the law.
    pub fn verify_throttled(&self) {
        let mut names = self.throttled();
        names.retain(|name| !(self.is_elsewhere)(name));
        let each = THROTTLED.div_ceil(names.len().max(1) as u64).clamp(10, 30);
        self.verify_all(&names, &seeds(each));
    }

    /// The law holds while stacks replace each other under load: every stack of the table with every other one, a change at
    /// every tenth step.
    pub fn verify_replacements(&self) {
        let mut names = schedulers(self.table);
        names.extend(self.throttled().into_iter().filter(|name| name.ends_with("-none")));
        names.push("max+prop-promise".to_string());
        let mut failures = Vec::new();
        for (turn, old) in names.iter().enumerate() {
            for (other, new) in names.iter().enumerate() {
                if [old, new].into_iter().all(|name| (self.is_elsewhere)(name)) {
                    continue;
                }
                // A seed for each pair.
                let first = (turn * names.len() + other) as u64;
                for seed in seeds(1).map(|seed| seed * 10_000 + first) {
                    let case = case_of_two(seed, [self.stack(old), self.stack(new)]);
                    if let Err(failure) = self.verify(&case, None) {
                        failures.push(format!("with {new}: {}", self.show(case, &failure)));
                    }
                    assert!(failures.len() < 5, "{}", failures.join("\n"));
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    /// Whether a stack breaks a clause, or one of the others, with all other checkers switched off.
    pub fn is_caught(&self, stack: &Stack, clause: &str, others: &[&str]) -> bool {
        (0..20).any(|seed| {
            let failure = self.verify(&self.case(seed, stack.clone()), Some(clause)).err();
            failure
                .is_some_and(|failure| failure.clause == clause || others.contains(&failure.clause))
        })
    }

    /// The engine's refusals are examined: an owner whose wrong ids are right is caught.
    pub fn verify_mistakes(&self) {
        let case = self.case(0, self.stack("none-none"));
        let failure = run(&case, Mood::Misled, check::all(&case.setup, Nanos::ZERO))
            .expect_err("it is accepted");
        assert_eq!(failure.clause, "mistakes", "{failure:?}");
    }
}

/// The clauses that policies can break.
pub fn clauses() -> Vec<&'static str> {
    let checkers = check::all(&operations::setup(&mut Random::new(0)), Nanos::ZERO);
    let names = checkers.iter().map(|checker| checker.name());
    names.filter(|name| *name != "counts").collect()
}

/// The engine's counters, which no policy can spoil, are examined: spoilt by hand, they are caught.
pub fn verify_counts() {
    let mut counts = check::Counts::default();
    let wrong = Counters { requests: [1, 0], ..Counters::default() };
    let event = check::Event::Counted(ClientId::from_bits(0), &wrong);
    assert!(check::Checker::see(&mut counts, Instant::ZERO, &event).is_err());
}
