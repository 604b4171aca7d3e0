//! Which policies, in which order: the name of a stack and its parameters.
//!
//! Names follow the literature, `<policy>-<scheduler>`: `none-none`, `max-none`, `prop-bfq`,
//! `none-bfq`, `max+prop-bfq`. `prop` asks the scheduler to share by the groups' weights; `none` as
//! policy leaves the groups out. Whole solutions of a source have names of their own ([`Named`]).

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::key::Key;
use crate::params::{ParameterError, Values};
use crate::policy::{Build, DriveFacts, Named, Policy, Role, Row, Table};

/// One stage with its parameters.
#[derive(Clone)]
#[non_exhaustive]
pub struct Stage {
    /// The policy.
    pub row: &'static Row,
    /// Its parameters.
    pub values: Values,
}

/// Throttles, then a scheduler.
#[derive(Clone)]
#[non_exhaustive]
pub struct Stack {
    name: String,
    table: &'static Table,
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
#[non_exhaustive]
pub enum StackError {
    /// Not `<policy>-<scheduler>`.
    Shape {
        /// What was written.
        given: String,
        /// The stacks with names of their own.
        known: Vec<&'static str>,
    },
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
            Self::Shape { given, known } => {
                let shape = "write <policy>-<scheduler>, as in max+prop-bfq";
                write!(f, "\"{given}\" is no stack: {shape}, or {}", known.join(", "))
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
    /// Whether it is the same policy with the same parameters.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        core::ptr::eq(self.row, other.row) && self.values == other.values
    }
    /// Does it enforce this key of contracts?
    #[must_use]
    pub fn enforces(&self, key: Key) -> bool {
        (self.row.enforces)(key, &self.values)
    }
}

impl Table {
    /// Reads a stack's name.
    ///
    /// # Errors
    ///
    /// [`StackError`] if the name has another form, or if the table has no such policy.
    pub fn stack(&'static self, name: &str) -> Result<Stack, StackError> {
        Stack::parse(self, name)
    }
    fn names(&self, of: impl Fn(&Row) -> Option<&'static str>) -> Vec<&'static str> {
        self.policies.iter().filter_map(|row| of(row)).collect()
    }
}

/// The throttles and the scheduler of a stack.
type Stages = (Vec<Box<dyn Policy + Send>>, Box<dyn Policy + Send>);

impl Stack {
    /// Builds its policies.
    pub(super) fn build(&self, facts: &DriveFacts) -> Stages {
        let make = |stage: &Stage| {
            let build = Build { values: &stage.values, facts, groups: self.groups };
            (stage.row.build)(&build)
        };
        (self.throttles.iter().map(make).collect(), make(&self.scheduler))
    }
    fn parse(table: &'static Table, name: &str) -> Result<Self, StackError> {
        match table.stacks.iter().find(|named| named.name == name) {
            Some(Named { stack, admits, settings, .. }) => {
                let mut parts = Self::parts(table, stack)?;
                for (stage, parameter, text) in *settings {
                    parts.set(stage, parameter, text)?;
                }
                Ok(Self { name: name.to_string(), admits: *admits, ..parts })
            }
            None => Self::parts(table, name),
        }
    }
    fn parts(table: &'static Table, name: &str) -> Result<Self, StackError> {
        let Some((policies, scheduler)) = name.split_once('-') else {
            let known = table.stacks.iter().map(|named| named.name).collect();
            return Err(StackError::Shape { given: name.to_string(), known });
        };
        let row = table.find(scheduler).filter(|row| matches!(row.role, Role::Scheduler { .. }));
        let Some(row) = row else {
            let known = table.names(|r| matches!(r.role, Role::Scheduler { .. }).then_some(r.name));
            return Err(StackError::Scheduler { given: scheduler.to_string(), known });
        };
        let (mut throttles, mut groups) = (Vec::new(), false);
        for part in policies.split('+') {
            match part {
                "none" => {}
                "prop" => groups = true,
                part => {
                    let found = table.find(part).filter(|row| row.role == Role::Throttle);
                    let Some(row) = found else {
                        let known = table.names(|r| (r.role == Role::Throttle).then_some(r.short));
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
        Ok(Self { name: name.to_string(), table, throttles, scheduler, groups, admits: false })
    }
    /// Requests that the scheduler and the drive have together ([`Tags`](crate::policy::Tags)).
    #[must_use]
    pub fn tags(&self, facts: &DriveFacts) -> u32 {
        match self.scheduler.row.role {
            Role::Scheduler { tags, .. } => tags.number(facts),
            Role::Throttle => unreachable!("no throttle is taken as a scheduler"),
        }
    }
    /// Are flushes given to the scheduler in experiments too?
    #[must_use]
    pub fn schedules_flushes(&self) -> bool {
        matches!(self.scheduler.row.role, Role::Scheduler { flushes: true, .. })
    }
    /// Does its scheduler keep minimums as such, in I/Os a second too, and not by weights?
    #[must_use]
    pub fn keeps_minimums(&self) -> bool {
        self.groups && self.scheduler.enforces(Key::MinIops)
    }
    /// Does some stage enforce this key of contracts?
    #[must_use]
    pub fn enforces(&self, key: Key) -> bool {
        self.throttles.iter().any(|stage| stage.enforces(key))
            || self.groups && self.scheduler.enforces(key)
    }
    /// Its name as given.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The policies that its name was read with.
    pub fn table(&self) -> &'static Table {
        self.table
    }
    /// Sets a parameter of one of its stages, named as in the table or by its short name.
    ///
    /// # Errors
    ///
    /// [`StackError::Stage`], or [`StackError::Parameter`] if the policy has no such parameter or the value does not fit.
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
