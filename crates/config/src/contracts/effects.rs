//! What a change of contracts takes away, and what a set of contracts leaves: told to an operator before a change, in a dry
//! run, and by `serve --check`.
//!
//! Nothing here refuses a contract; [`super::admission`] does. A share falls when others get more weight or a group comes;
//! a promise is lost when its key goes, be it with a stack that does not enforce it; minimums take time of the drive that
//! others could have used.

use std::collections::BTreeMap;

use iofair_core::attainable::load;
use iofair_core::contract::{Contract, Rate};
use iofair_core::key::{FIELDS, Field, Key, Unit};
use iofair_core::time::Nanos;
use iofair_core::unit::{Count, Size};

use super::Contracts;
use super::admission::{Admitted, Basis, Floors, Known, claimants, shares};
use super::enforced;

/// Groups that are named one by one.
const NAMED_MAX: usize = 16;
/// A share that falls by less than this is not worth a word.
const SHARE_MIN: f64 = 0.000_5;
/// A loss of room of less than this part of the drive is not worth a word.
const ROOM_PARTS: u64 = 200;
/// The part of a drive's time by which a weight exceeds what a minimum takes, that is worth a word.
const BEYOND_MIN: f64 = 0.02;

/// What an effect is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// A group's share of the drive.
    Share,
    /// A promise or a limit that was kept.
    Contract,
    /// What the minimums leave.
    Room,
}

impl About {
    /// For programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Contract => "contract",
            Self::Room => "room",
        }
    }
}

/// Something that a change takes away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The kind of the effect.
    pub about: About,
    /// The group that loses, if it is one.
    pub group: Option<String>,
    /// In words.
    pub text: String,
}

/// Contracts, and the groups as they were admitted.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// The file.
    pub contracts: &'a Contracts,
    /// Its groups, parents first.
    pub groups: &'a Admitted,
}

/// What is given up by going from one state to another.
pub fn given_up(before: State<'_>, after: State<'_>, known: &Known) -> Vec<Effect> {
    let stack = &after.contracts.drive.stack;
    // Of the others, the texts below tell.
    let others = |key| {
        use Key::{Latency, Low, Max, MaxTotal, Min, MinIops, Weight};
        !matches!(key, Min | MinIops | Weight | Max | MaxTotal | Low | Latency)
    };
    let text = enforced::given_up(before.contracts, stack, others);
    let unenforced = text.map(|text| Effect { about: About::Contract, group: None, text });
    let promised = unenforced.into_iter().chain(lost(before, after));
    let mut found: Vec<Effect> = promised.chain(shut_out(before, after)).collect();
    let shared = |state: State<'_>| state.contracts.drive.stack.enforces(Key::Weight);
    match (shared(before), shared(after)) {
        (true, true) => found.extend(smaller_shares(before, after, known)),
        (true, false) => found.push(Effect {
            about: About::Share,
            group: None,
            text: format!(
                "the stack \"{}\" does not share the drive by weight: a group gets what others leave",
                stack.name()
            ),
        }),
        _ => {}
    }
    if let Some(new) = room(after, known) {
        let old = room(before, known);
        // Without minimums before, all of it was left.
        let left = old.map_or(new.whole, |old| old.left);
        if left.saturating_sub(new.left) > new.whole / ROOM_PARTS {
            let text = new.text(Some(left));
            found.push(Effect { about: About::Room, group: None, text });
        }
    }
    found
}

/// What an operator should know of contracts that are admitted: what their minimums leave, and weights that give more than
/// the minimum beside them needs.
pub fn notes(state: State<'_>, known: &Known) -> Vec<String> {
    let room = room(state, known).map(|room| room.text(None));
    room.into_iter().chain(heavy(state, known)).collect()
}

fn by_name(groups: &Admitted) -> BTreeMap<&str, &Contract> {
    groups.iter().map(|(name, contract)| (name.as_str(), contract)).collect()
}

/// Not more texts than are read.
fn cut(mut found: Vec<Effect>, what: &str) -> Vec<Effect> {
    if found.len() > NAMED_MAX {
        let (more, about) = (found.len() - NAMED_MAX, found[0].about);
        found.truncate(NAMED_MAX);
        found.push(Effect {
            about,
            group: None,
            text: format!("{what}: {}", Count(more, "more group")),
        });
    }
    found
}

/// Promises and limits that are there no more, or are smaller.
fn lost(before: State<'_>, after: State<'_>) -> Vec<Effect> {
    let now = by_name(after.groups);
    let (limits, promises): (Vec<_>, Vec<_>) = FIELDS.iter().partition(|field| field.is_limit());
    let mut found = Vec::new();
    for (name, old) in before.groups {
        let Some(new) = now.get(name.as_str()) else { continue };
        let fields = promises.iter().chain(&limits);
        found.extend(fields.filter_map(|field| lost_value(field, old, new)).map(|text| Effect {
            about: About::Contract,
            group: Some(name.clone()),
            text: format!("group \"{name}\" {text}"),
        }));
    }
    cut(found, "promises or limits are lost")
}

/// Groups whose volumes are no longer open to some clients. The first `clients` of a file closes the volumes of all other groups.
fn shut_out(before: State<'_>, after: State<'_>) -> Vec<Effect> {
    let volumes = |state: State<'_>| {
        let all = state.contracts.volumes.iter();
        all.map(|volume| (volume.group.clone(), volume.entry.names.clone())).collect()
    };
    let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) = (volumes(before), volumes(after));
    let words = |names: &Option<Vec<String>>| match names.as_deref() {
        None => "every client".to_string(),
        Some([]) => "no client".to_string(),
        Some(names) => format!("\"{}\"", names.join("\", \"")),
    };
    let fewer = |(group, names): (String, Option<Vec<String>>)| {
        let (now, only) = (new.get(&group)?, new.get(&group)?.as_ref()?);
        let lost = names.as_ref().is_none_or(|names| names.iter().any(|name| !only.contains(name)));
        let text = format!(
            "group \"{group}\" has its volumes open to {} instead of {}",
            words(now),
            words(&names)
        );
        lost.then_some(Effect { about: About::Contract, group: Some(group), text })
    };
    cut(old.into_iter().filter_map(fewer).collect(), "volumes are open to fewer clients")
}

/// What a group has no more of a key, if it has less.
fn lost_value(field: &Field, old: &Contract, new: &Contract) -> Option<String> {
    let (old, new) = (field.get(old)?, field.get(new));
    let text = |value| field.shown.replace("{}", &amount(field.unit, value));
    match (field.enforced_as?, new) {
        (Key::Min | Key::MinIops, None) => Some(format!("is no longer guaranteed {}", text(old))),
        (Key::Min | Key::MinIops, Some(new)) if new < old => {
            Some(format!("is guaranteed {} instead of {}", text(new), text(old)))
        }
        (Key::Latency | Key::LatencyWrite | Key::LatencySync, None) => {
            Some(format!("no longer has {}", text(old)))
        }
        (Key::Latency | Key::LatencyWrite | Key::LatencySync, Some(new)) if new > old => {
            Some(format!("has {} instead of {}", text(new), amount(field.unit, old)))
        }
        (Key::Low, None) if field.is_limit() => {
            Some(format!("no longer has a low limit of {}", text(old)))
        }
        (Key::Max | Key::MaxTotal, None) => Some(format!("is no longer limited to {}", text(old))),
        _ => None,
    }
}

/// A number with its unit.
fn amount(unit: Unit, value: u64) -> String {
    match unit {
        Unit::Rate => Rate(value).to_string(),
        Unit::Time => Nanos(value).to_string(),
        Unit::Size => Size(value).to_string(),
        Unit::Count | Unit::Weight | Unit::Class => value.to_string(),
    }
}

fn smaller_shares(before: State<'_>, after: State<'_>, known: &Known) -> Vec<Effect> {
    let of = |state: State<'_>| shares(state.groups, &state.contracts.floors(known));
    let new: BTreeMap<&str, Option<f64>> =
        after.groups.iter().map(|(name, _)| name.as_str()).zip(of(after)).collect();
    let smaller = |((name, _), old): (&(String, Contract), Option<f64>)| {
        let (old, new) = (old?, new.get(name.as_str()).copied()??);
        let text = || {
            let [old, new] = [old, new].map(|share| share * 100.0);
            format!(
                "group \"{name}\" gets {new:.1} % of the drive instead of {old:.1} % while all groups are busy"
            )
        };
        (old - new >= SHARE_MIN).then(|| Effect {
            about: About::Share,
            group: Some(name.clone()),
            text: text(),
        })
    };
    let found = before.groups.iter().zip(of(before)).filter_map(smaller);
    cut(found.collect(), "shares are smaller")
}

/// What minimums leave of a drive, in bytes a second.
#[derive(Clone, Copy)]
struct Room {
    left: u64,
    /// What is left without minimums.
    whole: u64,
    /// The percentage of the drive's time that the minimums take at worst; `None`: only its worst case is known.
    percent: Option<u64>,
}

impl Room {
    fn text(&self, before: Option<u64>) -> String {
        let before = before.map_or(String::new(), |left| format!(", before {}", Rate(left)));
        let left = Rate(self.left);
        match self.percent {
            Some(percent) => format!(
                "with minimums in full use (up to {percent} % of the drive's time), at least {left} of long requests are \
                 left to share by weight{before}"
            ),
            None => format!(
                "with minimums in full use, {left} of {} at the drive's worst are left to share by weight{before}",
                Rate(self.whole)
            ),
        }
    }
}

/// What the minimums leave, if there are any and the drive is known.
fn room(state: State<'_>, known: &Known) -> Option<Room> {
    let State { contracts, groups } = state;
    groups.iter().find(|(_, contract)| contract.minimum().is_some())?;
    match contracts.basis_of_stack(known) {
        Basis::Reaches(drive) => {
            let load = load(&drive, &claimants(groups, None));
            let percent = Some(load.millionths.div_ceil(10_000));
            Some(Room { left: load.left, whole: drive.reads.min(drive.writes), percent })
        }
        Basis::WorstCase(whole) => {
            let left = whole.saturating_sub(contracts.claimed(whole));
            Some(Room { left, whole, percent: None })
        }
        Basis::Nothing => None,
    }
}

/// Groups whose weight gives them more of the drive's time than their minimum takes, although others reach far more with it.
fn heavy(state: State<'_>, known: &Known) -> Vec<String> {
    let State { contracts, groups } = state;
    let Some(drive) = contracts.drive.reaches.over(known.reaches) else { return Vec::new() };
    if !contracts.drive.stack.enforces(Key::Weight) {
        return Vec::new();
    }
    let streams = drive.reads.min(drive.writes);
    let one = |((name, contract), share): (&(String, Contract), Option<f64>)| {
        let (min, alone, share) = (contract.min?, contract.alone?, share?);
        let takes = min as f64 / alone.max(1) as f64;
        let slow = alone <= streams / 2;
        (slow && share - takes >= BEYOND_MIN).then(|| {
            let percent = |part: f64| part * 100.0;
            // What others reach in the time that the weight gives beyond the minimum, less what this group does.
            let costs = (share - takes) * (streams - alone) as f64;
            format!(
                "group \"{name}\": its weight gives it up to {:.1} % of the drive's time, and its minimum takes {:.1} %; a \
                 smaller weight keeps the minimum and leaves others up to {} more",
                percent(share),
                percent(takes),
                Rate(costs as u64)
            )
        })
    };
    let all = groups.iter().zip(shares(groups, &Floors::default())).filter_map(one);
    all.take(NAMED_MAX).collect()
}

#[cfg(test)]
mod tests;
