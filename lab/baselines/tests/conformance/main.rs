//! The law of the engine, for every row of the table of policies, over random lists of operations.
//!
//! Each scheduler runs alone, sharing between groups if it can, and under each throttle; each throttle
//! also above `none`, and all throttles together. A list is drawn from a seed ([`operations`]), run in
//! five moods of the engine's owner ([`run`]), and watched from outside ([`check`]):
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
//! `IOFAIR_SEED=17` just that one. A policy that is broken on purpose ([`canaries`]) must be caught by its
//! clause.

#[path = "../support/broken.rs"]
mod broken;
mod canaries;
mod ceilings;
mod check;
mod operations;
mod random;
mod run;

use std::ops::Range;

use iofair_baselines::TABLE;
use iofair_core::controller::Stack;
use iofair_core::id::ClientId;
use iofair_core::stats::counters::Counters;
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::token_bucket::LATE_MAX;
use iofair_testkit::stacks::{self, schedulers};

use crate::operations::{Generator, Step};
use crate::random::Random;
use crate::run::{Case, Failure, Line, Mood, run};

/// The clause that early, double and needless wake-ups change nothing.
const RESTLESS: &str = "restless";
/// The clause that a time that lies back, and ids and requests that are wrong, change nothing.
const CONFUSED: &str = "confused";
/// The clause that the same seed gives the same lines.
const REPEATABLE: &str = "repeatable";

/// Steps of a list; every tenth is a long one, for what takes time to learn.
const STEPS: [usize; 2] = [400, 4000];

/// Steps of a list for two stacks: some ten changes each way.
const STEPS_OF_TWO: usize = 200;

fn seeds(usual: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("IOFAIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("IOFAIR_SEEDS").unwrap_or(usual),
    }
}

fn throttled() -> Vec<String> {
    let throttles = stacks::throttles(&TABLE);
    let mut names = Vec::new();
    for throttle in &throttles {
        for scheduler in schedulers(&TABLE) {
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

fn case(seed: u64, mut stack: Stack) -> Case {
    let mut random = Random::new(seed);
    let mut setup = operations::setup(&mut random);
    vary(&mut stack, &mut random);
    if seed % 2 == 1 && ceilings::Promise::made_by(&stack, ceilings::TAGS).is_some() {
        setup.tags = ceilings::TAGS;
    }
    let steps = Generator::new(&mut random, &setup).list(STEPS[usize::from(seed % 10 == 9)]);
    let none = TABLE.stack("none-none").expect("in the table");
    Case { seed, setup, stacks: vec![stack, none], steps }
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

/// Runs a case in every mood; `only` keeps to one clause.
fn verify(case: &Case, only: Option<&str>) -> Result<Vec<Line>, Failure> {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let run = |mood| {
        let late = if mood == Mood::Late { LATE_MAX } else { Nanos::ZERO };
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

fn same(a: &[Line], b: &[Line], clause: &'static str, mood: Mood) -> Result<(), Failure> {
    let first = a.iter().zip(b).position(|(a, b)| a != b);
    let Some(at) = first.or((a.len() != b.len()).then_some(a.len().min(b.len()))) else {
        return Ok(());
    };
    let text = format!("line {at}: {:?} became {:?}", a.get(at), b.get(at));
    Err(Failure { clause, mood, text, step: 0 })
}

/// Cuts steps out of a failing case as long as the same clause fails.
fn cut_down(mut case: Case, clause: &str) -> Case {
    let fails = |case: &Case| verify(case, None).is_err_and(|failure| failure.clause == clause);
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

fn show(case: Case, failure: &Failure) -> String {
    let clause = failure.clause;
    let stack = case.stacks[0].name().to_string();
    let case = cut_down(case, clause);
    let failure = verify(&case, None).err();
    let text =
        failure.map_or(String::new(), |f| format!("{:?}, step {}: {}", f.mood, f.step, f.text));
    let steps: Vec<_> = case.steps.iter().map(|step: &Step| format!("  {step:?}\n")).collect();
    let stages = case.stacks[0].throttles.iter().chain([&case.stacks[0].scheduler]);
    let changed = stages.flat_map(|stage| {
        let values = stage.values.iter().filter(|(parameter, value)| parameter.default != *value);
        values.map(|(parameter, value)| format!("{} = {} ", parameter.name, parameter.show(value)))
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
fn verify_all(names: &[String], seeds: &Range<u64>) {
    let mut failures = Vec::new();
    let mut lines = 0;
    for name in names {
        let mut known = Vec::new();
        for seed in seeds.clone() {
            let case = case(seed, TABLE.stack(name).expect("made from the table"));
            match verify(&case, None) {
                Ok(trace) => lines += trace.len(),
                Err(failure) if known.contains(&failure.clause) => {}
                Err(failure) => {
                    known.push(failure.clause);
                    failures.push(show(case, &failure));
                }
            }
        }
    }
    println!("{} stacks, {} seeds, {lines} lines", names.len(), seeds.end - seeds.start);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(lines > 0 || names.is_empty(), "nothing was served at all");
}

/// Goal: every scheduler keeps the law. Method: random lists of operations, five moods, checkers.
#[test]
fn schedulers_keep_the_law() {
    verify_all(&schedulers(&TABLE), &seeds(100));
}

/// Goal: every throttle above every scheduler keeps the law. Method: as above.
#[test]
fn throttled_stacks_keep_the_law() {
    verify_all(&throttled(), &seeds(30));
}

/// Goal: cases that once broke the law keep it. Method: their seeds.
#[test]
fn known_cases_keep_the_law() {
    // Writes behind a flush may go when the flush begins to wait for another group: nothing woke the scheduler then.
    verify_all(&["cost+prop-promise".to_string()], &(139..140));
}

/// Goal: the law holds while stacks replace each other under load: nothing is lost, completed twice or sent before a write
/// that a flush covers. Method: every stack of the table with every other one, as above, a change at every tenth step.
#[test]
fn stacks_replace_each_other() {
    let mut names = schedulers(&TABLE);
    names.extend(throttled().into_iter().filter(|name| name.ends_with("-none")));
    names.push("max+prop-promise".to_string());
    let stack = |name: &str| TABLE.stack(name).expect("made from the table");
    let mut failures = Vec::new();
    for (turn, old) in names.iter().enumerate() {
        for (other, new) in names.iter().enumerate() {
            // A seed for each pair.
            let first = (turn * names.len() + other) as u64;
            for seed in seeds(1).map(|seed| seed * 10_000 + first) {
                let case = case_of_two(seed, [stack(old), stack(new)]);
                if let Err(failure) = verify(&case, None) {
                    failures.push(format!("with {new}: {}", show(case, &failure)));
                }
                assert!(failures.len() < 5, "{}", failures.join("\n"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Whether a stack breaks a clause, or one of the others, with all other checkers switched off.
fn is_caught(stack: &Stack, clause: &str, others: &[&str]) -> bool {
    (0..20).any(|seed| {
        let failure = verify(&case(seed, stack.clone()), Some(clause)).err();
        failure.is_some_and(|failure| failure.clause == clause || others.contains(&failure.clause))
    })
}

/// Goal: the checkers see. Method: policies broken on purpose; each must be caught by its own clause
/// with all others switched off, within a few seeds, and the whole policy underneath by none.
#[test]
fn every_canary_is_caught() {
    for (clause, row) in canaries::CANARIES {
        let mut stack = TABLE.stack("none-none").expect("in the table");
        stack.scheduler.row = row;
        assert!(is_caught(&stack, clause, &[]), "\"{}\" got past \"{clause}\"", row.name);
    }
}

/// Goal: the same for throttles. Method: as above, above a scheduler that is whole, whose assertions what is passed on twice
/// may fail.
#[test]
fn every_canary_among_throttles_is_caught() {
    for (clause, row) in canaries::throttles() {
        let mut stack = TABLE.stack("none-none").expect("in the table");
        stack.throttles.push(stack.scheduler.clone());
        stack.throttles[0].row = row;
        let caught = is_caught(&stack, clause, &["panic"]);
        assert!(caught, "\"{}\" got past \"{clause}\"", row.name);
    }
}

/// Goal: the engine's refusals are examined. Method: an owner whose wrong ids are right.
#[test]
fn a_mistake_that_is_accepted_is_caught() {
    let stack = TABLE.stack("none-none").expect("in the table");
    let case = case(0, stack);
    let failure =
        run(&case, Mood::Misled, check::all(&case.setup, Nanos::ZERO)).expect_err("it is accepted");
    assert_eq!(failure.clause, "mistakes", "{failure:?}");
}

/// Goal: no checker is without its canary. Method: the names; the engine's counters, which no policy can
/// spoil, are spoilt by hand.
#[test]
fn every_checker_has_a_canary() {
    for checker in check::all(&operations::setup(&mut Random::new(0)), Nanos::ZERO) {
        let name = checker.name();
        let mut canaries = canaries::CANARIES.iter().copied().chain(canaries::throttles());
        let has_one = canaries.any(|(clause, _)| clause == name);
        assert!(has_one || name == "counts", "{name}");
    }
    let mut counts = check::Counts::default();
    let wrong = Counters { requests: [1, 0], ..Counters::default() };
    let event = check::Event::Counted(ClientId::from_bits(0), &wrong);
    assert!(check::Checker::see(&mut counts, Instant::ZERO, &event).is_err());
}
