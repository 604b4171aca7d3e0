//! Which policies, in which order: the name of a stack and its parameters.
//!
//! Names follow the literature, `<policy>-<scheduler>`: `none-none`, `max-none`, `prop-bfq`,
//! `none-bfq`, `max+prop-bfq`. `prop` asks the scheduler to share by the groups' weights; `none` as
//! policy leaves the groups out. Whole solutions of a source have names of their own ([`NAMED`]).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::params::{ParameterError, Values};
use crate::policy::{self, DriveFacts, REGISTRY, Role, Row};

/// One stage with its parameters.
#[derive(Clone)]
pub struct Stage {
    /// The policy.
    pub row: &'static Row,
    /// Its parameters.
    pub values: Values,
}

/// A stack under a name of its own: a source's whole solution.
pub struct Named {
    /// The name.
    pub name: &'static str,
    /// The stack.
    pub stack: &'static str,
    /// Do minimums become weights, and are too many of them refused?
    pub admits: bool,
    /// Parameters that differ from their defaults: stage, parameter, value.
    pub settings: &'static [(&'static str, &'static str, &'static str)],
    /// One line for lists.
    pub summary: &'static str,
}

/// Minimums rest on shares, and shares on whole turns. BFQ of the survey's time (4.18, 4.20) has neither of two
/// later rules by which a queue that wakes up ends another's turn: one of higher weight (5.3), and one that is
/// back in time and raised no less (5.2). With them a reader in order that is admitted beside one at random of
/// more weight falls below its minimum (`crates/lab/tests/minimums.rs`).
const WHOLE_TURNS: &[(&str, &str, &str)] =
    &[("bfq", "preempt_lower", "false"), ("bfq", "preempt_equal", "false")];

/// Every one there is; the first two are from the survey of I/O-control solutions of 2019, the last is our own.
pub static NAMED: &[Named] = &[
    Named {
        name: "complete",
        stack: "max+prop-bfq",
        admits: true,
        settings: WHOLE_TURNS,
        summary: "minimum, high average and maximum: minimums are admitted and become weights, and a \
            turn of bfq ends by no other's weight",
    },
    Named {
        name: "dedicated",
        stack: "none-none",
        admits: false,
        settings: &[],
        summary: "no control, so few clients a drive that none is overtaken for long",
    },
    Named {
        name: "promise",
        stack: "max+prop-promise",
        admits: false,
        settings: &[],
        summary: "ceilings, then our own scheduler: every feasible minimum kept, the rest by weight, the drive full",
    },
];

/// The stack of a server whose contract file names none.
pub const DEFAULT: &str = "promise";

/// Throttles, then a scheduler.
#[derive(Clone)]
pub struct Stack {
    name: String,
    /// The throttles, first one first.
    pub throttles: Vec<Stage>,
    /// The scheduler.
    pub scheduler: Stage,
    /// Does the scheduler share between groups?
    pub groups: bool,
    /// Do minimums become weights ([`crate::contract::admit`]), and are too many refused? Done by whoever makes
    /// the groups.
    pub admits: bool,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stack({})", self.name)
    }
}

/// Why a stack was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StackError {
    /// Not `<policy>-<scheduler>`.
    Shape(String),
    /// No such throttle.
    Throttle {
        /// What was written.
        given: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// No such scheduler.
    Scheduler {
        /// What was written.
        given: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// `prop` above a scheduler that cannot share between groups.
    NoGroups(String),
    /// No stage of this name in the stack.
    Stage {
        /// What was written.
        given: String,
        /// The stages.
        known: Vec<&'static str>,
    },
    /// A parameter was refused.
    Parameter {
        /// The policy.
        policy: &'static str,
        /// Why.
        error: ParameterError,
    },
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape(given) => {
                let named: Vec<&str> = NAMED.iter().map(|named| named.name).collect();
                let shape = "write <policy>-<scheduler>, as in max+prop-bfq";
                write!(f, "\"{given}\" is no stack: {shape}, or {}", named.join(", "))
            }
            Self::Throttle { given, known } => {
                write!(f, "no policy \"{given}\"; there are: none, prop, {}", known.join(", "))
            }
            Self::Scheduler { given, known } => {
                write!(f, "no scheduler \"{given}\"; there are: {}", known.join(", "))
            }
            Self::NoGroups(name) => {
                write!(f, "scheduler {name} cannot share between groups (prop)")
            }
            Self::Stage { given, known } => {
                write!(f, "the stack has no \"{given}\"; it has: {}", known.join(", "))
            }
            Self::Parameter { policy, error } => write!(f, "{policy}: {error}"),
        }
    }
}
impl core::error::Error for StackError {}

impl Stage {
    fn new(row: &'static Row) -> Self {
        Self { row, values: Values::new(row.parameters, row.overrides) }
    }
}

fn names(of: impl Fn(&Row) -> Option<&'static str>) -> Vec<&'static str> {
    REGISTRY.iter().filter_map(|row| of(row)).collect()
}

impl Stack {
    /// Reads a stack's name.
    pub fn parse(name: &str) -> Result<Self, StackError> {
        match NAMED.iter().find(|named| named.name == name) {
            Some(Named { stack, admits, settings, .. }) => {
                let mut parts = Self::parts(stack)?;
                for (stage, parameter, text) in *settings {
                    parts.set(stage, parameter, text)?;
                }
                Ok(Self { name: name.to_string(), admits: *admits, ..parts })
            }
            None => Self::parts(name),
        }
    }
    fn parts(name: &str) -> Result<Self, StackError> {
        let Some((policies, scheduler)) = name.split_once('-') else {
            return Err(StackError::Shape(name.to_string()));
        };
        let row = policy::find(scheduler).filter(|row| matches!(row.role, Role::Scheduler { .. }));
        let Some(row) = row else {
            let known = names(|r| matches!(r.role, Role::Scheduler { .. }).then_some(r.name));
            return Err(StackError::Scheduler { given: scheduler.to_string(), known });
        };
        let (mut throttles, mut groups) = (Vec::new(), false);
        for part in policies.split('+') {
            match part {
                "none" => {}
                "prop" => groups = true,
                part => {
                    let found = policy::find(part).filter(|row| row.role == Role::Throttle);
                    let Some(row) = found else {
                        let known = names(|r| (r.role == Role::Throttle).then_some(r.short));
                        return Err(StackError::Throttle { given: part.to_string(), known });
                    };
                    throttles.push(Stage::new(row));
                }
            }
        }
        if groups && !matches!(row.role, Role::Scheduler { groups: true, .. }) {
            return Err(StackError::NoGroups(row.name.to_string()));
        }
        let scheduler = Stage::new(row);
        Ok(Self { name: name.to_string(), throttles, scheduler, groups, admits: false })
    }
    /// Requests that the scheduler and the drive have together ([`Tags`](policy::Tags)).
    pub fn tags(&self, facts: &DriveFacts) -> u32 {
        match self.scheduler.row.role {
            Role::Scheduler { tags, .. } => tags.number(facts),
            Role::Throttle => unreachable!("no throttle is taken as a scheduler"),
        }
    }
    /// Are flushes given to the scheduler in experiments too?
    pub fn schedules_flushes(&self) -> bool {
        matches!(self.scheduler.row.role, Role::Scheduler { flushes: true, .. })
    }
    /// Does its scheduler keep minimums as such, in I/Os a second too, and not by weights?
    pub fn keeps_minimums(&self) -> bool {
        self.groups && core::ptr::eq(self.scheduler.row, &policy::promise::ROW)
    }
    /// Its name as given.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Sets a parameter of one of its stages, named as in the table or by its short name.
    pub fn set(&mut self, stage: &str, parameter: &str, text: &str) -> Result<(), StackError> {
        let stages = self.throttles.iter_mut().chain([&mut self.scheduler]);
        let mut known = Vec::new();
        for entry in stages {
            if entry.row.name == stage || entry.row.short == stage {
                let policy = entry.row.name;
                let set = entry.values.set(parameter, text);
                return set.map_err(|error| StackError::Parameter { policy, error });
            }
            known.push(entry.row.name);
        }
        Err(StackError::Stage { given: stage.to_string(), known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Sectors;

    /// Goal: the tags are those of the scheduler's row. Method: drives of little and much depth.
    #[test]
    fn tags_are_those_of_the_row() {
        let tags = |stack: &str, depth| {
            let (max_request, capacity) = (Sectors(8), Sectors(1 << 20));
            let facts = DriveFacts { rotational: false, depth, max_request, capacity };
            Stack::parse(stack).expect("a stack").tags(&facts)
        };
        assert_eq!([32, 1023].map(|depth| tags("none-none", depth)), [32, 1023]);
        assert_eq!([32, 1023].map(|depth| tags("prop-bfq", depth)), [64, 256]);
        assert_eq!([32, 1023, 4096].map(|depth| tags("promise", depth)), [u32::MAX; 3]);
        let flushes = |stack| Stack::parse(stack).expect("a stack").schedules_flushes();
        assert_eq!(["none-none", "prop-bfq", DEFAULT].map(flushes), [false, false, true]);
    }

    /// Goal: a named stack is the stack it stands for, under its own name, with its own parameters, which may be
    /// set anew. Method: all of them.
    #[test]
    fn named_stacks_are_what_they_stand_for() {
        for named in NAMED {
            let (own, plain) = (Stack::parse(named.name), Stack::parse(named.stack));
            let (own, plain) = (own.expect("named"), plain.expect("made of rows"));
            let rows = |stack: &Stack| {
                let throttles = stack.throttles.iter().map(|stage| stage.row.name);
                throttles.chain([stack.scheduler.row.name]).collect::<Vec<_>>()
            };
            assert_eq!((rows(&own), own.groups), (rows(&plain), plain.groups));
            assert_eq!((own.name(), own.admits), (named.name, named.admits));
            assert!(!plain.admits);
        }
        let mut complete = Stack::parse("complete").expect("named");
        for rule in ["preempt_lower", "preempt_equal"] {
            assert!(!complete.scheduler.values.bool(rule), "whole turns: {rule}");
            complete.set("bfq", rule, "true").expect("a parameter");
            assert!(complete.scheduler.values.bool(rule), "as set");
        }
        let error = Stack::parse("completed").expect_err("no such stack").to_string();
        assert!(error.contains("complete, dedicated"), "{error}");
    }
}
