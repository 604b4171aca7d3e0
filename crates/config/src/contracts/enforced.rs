//! Which keys of a group's contract a stack enforces.
//!
//! A key that the stack does not enforce would be a promise that is not kept, so the server refuses a contract file that
//! has one, whether it is read at the start, at a reload or after a change of the stack. Experiments compare what policies
//! make of the same contracts, so the lab does not ask.
//!
//! Some stages enforce a key only in part; `docs/contracts.md` says which.

use std::ops::Range;

use iofair_core::contract::Limits;
use iofair_core::controller::Stack;

use super::{Contracts, raw};
use crate::{ConfigError, Spanned};

/// Keys that an error names.
const NAMED_MAX: usize = 8;

/// Throttles that share by weight, by their short names.
const SHARING: [&str; 3] = ["cost", "ioband", "unified"];
/// Throttles that hold ceilings.
const LIMITING: [&str; 3] = ["max", "iothrottle", "rangebw"];
/// The one of them that has bursts, and ceilings on reads and writes together.
const EXACT: &str = "max";
/// The throttle that protects minimums by low limits, which can hold ceilings too.
const LOW: &str = "low";
/// The throttle that keeps a band of bandwidth.
const BAND: &str = "rangebw";
/// The throttle that protects latencies.
const LATENCY: &str = "lat";
/// Schedulers that know the class of a group.
const CLASSES: [&str; 10] = [
    "promise",
    "bfq",
    "bfq-6.18",
    "bfq-5.3",
    "bfq-4.20",
    "bfq-4.18",
    "fair-noop",
    "fair-deadline",
    "fair-anticipatory",
    "fair-cfq",
];

/// A key of a `[[group]]` that some stage has to enforce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// `min`
    Min,
    /// `min_iops`
    MinIops,
    /// `weight`
    Weight,
    /// `max`
    Max,
    /// `total` and `total_iops` of `max`
    MaxTotal,
    /// `burst` and `burst_requests` of `max`
    MaxBurst,
    /// `low`
    Low,
    /// `latency`
    Latency,
    /// `class`
    Class,
}

impl Key {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Min,
        Self::MinIops,
        Self::Weight,
        Self::Max,
        Self::MaxTotal,
        Self::MaxBurst,
        Self::Low,
        Self::Latency,
        Self::Class,
    ];
    /// As it is spelled in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::MinIops => "min_iops",
            Self::Weight => "weight",
            Self::Max => "max",
            Self::MaxTotal => "max.total",
            Self::MaxBurst => "max.burst",
            Self::Low => "low",
            Self::Latency => "latency",
            Self::Class => "class",
        }
    }
    /// Where it is in the table of a group: the keys of a table inside, or itself.
    pub(super) const fn place(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::MaxTotal => ("max", &["total", "total_iops"]),
            Self::MaxBurst => ("max", &["burst", "burst_requests"]),
            other => (other.word(), &[]),
        }
    }
    /// Does some stage of this stack enforce it?
    pub fn is_enforced_by(self, stack: &Stack) -> bool {
        let mut throttles = stack.throttles.iter();
        let mut has = |names: &[&str]| throttles.any(|stage| names.contains(&stage.row.short));
        match self {
            // Where a stack shares by weight, admission turns minimums into weights.
            Self::Min => Self::Weight.is_enforced_by(stack) || has(&[LOW, BAND]),
            Self::MinIops => stack.keeps_minimums(),
            Self::Weight => stack.groups || has(&SHARING),
            Self::Max => throttles.any(|stage| match stage.row.short {
                LOW => stage.values.bool("ceilings"),
                short => LIMITING.contains(&short),
            }),
            Self::MaxTotal | Self::MaxBurst => has(&[EXACT]),
            Self::Low => has(&[LOW]),
            Self::Latency => stack.keeps_minimums() || has(&[LATENCY]),
            Self::Class => stack.groups && CLASSES.contains(&stack.scheduler.row.name),
        }
    }
    /// Stacks of the same policies that enforce it, and the stages that do.
    fn allowed(self, stack: &Stack) -> String {
        let table = stack.table();
        let stacks = self.candidates(stack).into_iter().filter(|name| {
            table.stack(name).is_ok_and(|candidate| self.is_enforced_by(&candidate))
        });
        let stacks: Vec<String> = stacks.map(|name| format!("\"{name}\"")).collect();
        let known = |name: &&&str| table.find(name).is_some();
        let words =
            |names: &[&str]| names.iter().filter(known).copied().collect::<Vec<_>>().join(", ");
        let sharing = || words(&[&["promise", "bfq"], &SHARING[..]].concat());
        let stages = match self {
            Self::Min => format!("{}, {}", sharing(), words(&[LOW, BAND])),
            Self::MinIops => words(&["promise"]),
            Self::Weight => sharing(),
            Self::Max => words(&LIMITING),
            Self::MaxTotal | Self::MaxBurst => words(&[EXACT]),
            Self::Low => words(&[LOW]),
            Self::Latency => words(&["promise", LATENCY]),
            Self::Class => words(&CLASSES),
        };
        let stages = stages.trim_end_matches(", ");
        let word = self.word();
        match (stacks.is_empty(), stages.is_empty()) {
            (_, true) => format!("no {word}: no policy of this program enforces it"),
            (true, false) => format!("a stack with one of {stages}; or no {word}"),
            (false, false) => {
                let stacks = stacks.join(" or ");
                format!("stack = {stacks} (policies that enforce it: {stages}); or no {word}")
            }
        }
    }
    /// Stacks that may enforce it and are near to this one.
    fn candidates(self, stack: &Stack) -> Vec<String> {
        let mut found = vec!["promise".to_string()];
        // A stack with a name of its own has no dash, and nothing can be added to it.
        let (policies, scheduler) = stack.name().split_once('-').unwrap_or(("none", "none"));
        let with = |stage: &str| match policies {
            "none" => format!("{stage}-{scheduler}"),
            policies => format!("{stage}+{policies}-{scheduler}"),
        };
        match self {
            Self::Max | Self::MaxTotal | Self::MaxBurst => found.push(with(EXACT)),
            Self::Low => found.push(with(LOW)),
            Self::Latency => found.push(with(LATENCY)),
            Self::Min | Self::Weight | Self::Class => {
                let scheduler = if CLASSES.contains(&scheduler) { scheduler } else { "bfq" };
                let others = policies.split('+').filter(|part| !["none", "prop"].contains(part));
                let parts: Vec<&str> = others.chain(["prop"]).collect();
                found.push(format!("{}-{scheduler}", parts.join("+")));
            }
            Self::MinIops => {}
        }
        found
    }
}

/// A key that is written and not enforced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unenforced {
    /// The group's path.
    pub(super) group: String,
    pub(super) key: Key,
    span: Range<usize>,
}

/// Every key that this stack does not enforce, in the order of the file's groups.
pub(super) fn unenforced(written: &[raw::Group], stack: &Stack) -> Vec<Unenforced> {
    let of = |group: &raw::Group| {
        let max = group.max.as_ref();
        let part = |has: fn(&Limits) -> bool| max.filter(|max| has(&max.get_ref().0));
        // Where the whole of `max` is not enforced, its parts need no mention.
        let part = |has| part(has).filter(|_| Key::Max.is_enforced_by(stack));
        let spans = [
            group.min.as_ref().map(Spanned::span),
            group.min_iops.as_ref().map(Spanned::span),
            group.weight.as_ref().map(Spanned::span),
            max.map(Spanned::span),
            part(Limits::has_total).map(Spanned::span),
            part(Limits::has_burst).map(Spanned::span),
            group.low.as_ref().map(Spanned::span),
            group.latency.as_ref().map(Spanned::span),
            group.class.as_ref().map(Spanned::span),
        ];
        let written = Key::ALL.into_iter().zip(spans);
        let missed = written.filter(|(key, _)| !key.is_enforced_by(stack));
        let name = group.name.get_ref().clone();
        let found = missed.filter_map(|(key, span)| Some((key, span?)));
        found.map(|(key, span)| Unenforced { group: name.clone(), key, span }).collect::<Vec<_>>()
    };
    written.iter().flat_map(of).collect()
}

/// The error about keys that are not enforced: it stands at the first and names the others.
pub(super) fn error(contracts: &Contracts, unenforced: &[Unenforced]) -> Option<ConfigError> {
    let first = unenforced.first()?;
    let stack = &contracts.drive.stack;
    let shown = &unenforced[..unenforced.len().min(NAMED_MAX)];
    let of = |keys: &[Unenforced]| {
        let words: Vec<String> = keys.iter().map(|one| format!("`{}`", one.key.word())).collect();
        format!("{} of group \"{}\"", words.join(", "), keys[0].group)
    };
    let groups: Vec<String> = shown.chunk_by(|a, b| a.group == b.group).map(of).collect();
    let mut message =
        format!("the stack \"{}\" does not enforce {}", stack.name(), groups.join(", nor "));
    if unenforced.len() > NAMED_MAX {
        message += &format!(", and {} more", unenforced.len() - NAMED_MAX);
    }
    let error = contracts.source.error(first.span.clone(), message);
    Some(error.allowed(first.key.allowed(stack)))
}

#[cfg(test)]
mod tests;
