//! Changes of a table: volumes are created, grow, shrink, and are renamed, kept and deleted. Pure: one table in,
//! another out.
//!
//! A change only allocates blocks that were free before it, so a change that may still fail never touches a volume's
//! data. The extents of a deleted volume are free for the next change, and zeroed before they are allocated again.

use std::collections::BTreeMap;

use iofair_core::unit::Count;
use uuid::Uuid;

use super::format::{BLOCK, Extent, Record, State, Superblock, Table};
use crate::places::Needs;

/// Sorts extents and joins those that touch.
pub(super) fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut result: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match result.last_mut() {
            Some(last) if last.end() >= extent.start => {
                last.blocks = last.end().max(extent.end()) - last.start;
            }
            _ => result.push(extent),
        }
    }
    result
}

/// What of `all` is not in `taken`; both sorted.
pub(super) fn without(all: &[Extent], taken: &[Extent]) -> Vec<Extent> {
    let (mut result, mut first) = (Vec::new(), 0);
    for extent in all {
        let mut at = extent.start;
        while taken.get(first).is_some_and(|taken| taken.end() <= at) {
            first += 1;
        }
        for hole in taken[first..].iter().take_while(|taken| taken.start < extent.end()) {
            if hole.start > at {
                result.push(Extent { start: at, blocks: hole.start - at });
            }
            at = at.max(hole.end());
        }
        if at < extent.end() {
            result.push(Extent { start: at, blocks: extent.end() - at });
        }
    }
    result
}

/// What of `all` is in `other`, too; both sorted.
pub(super) fn common(all: &[Extent], other: &[Extent]) -> Vec<Extent> {
    without(all, &without(all, other))
}

/// How many blocks.
pub(super) fn total(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.blocks).sum()
}

/// The first blocks of a list, and the rest.
pub(super) fn split(extents: &[Extent], blocks: u64) -> (Vec<Extent>, Vec<Extent>) {
    let (mut first, mut rest, mut left) = (Vec::new(), Vec::new(), blocks);
    for extent in extents {
        let here = extent.blocks.min(left);
        left -= here;
        if here > 0 {
            first.push(Extent { start: extent.start, blocks: here });
        }
        if here < extent.blocks {
            rest.push(Extent { start: extent.start + here, blocks: extent.blocks - here });
        }
    }
    (first, rest)
}

/// What somebody wants a volume to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted<'a> {
    /// Its identity, if it was written.
    pub(crate) id: Option<Uuid>,
    pub(crate) name: &'a str,
    pub(crate) group: &'a str,
    pub(crate) size: u64,
    /// It may become shorter.
    pub(crate) shrink: bool,
    /// It may come back to another group than it was kept for.
    pub(crate) take_over: bool,
}

/// Why a volume cannot be what was wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    pub(crate) volume: String,
    pub(crate) message: String,
    pub(crate) why: Why,
}

/// The kind of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// There are too few free extents.
    NoRoom,
    /// The operator has not consented.
    Needs(Needs),
    /// The pool keeps another volume of this name.
    Twin,
}

impl Refused {
    fn new(volume: &str, why: Why, message: String) -> Self {
        Self { volume: volume.to_string(), message, why }
    }
}

/// Free blocks, from which a change takes. What reads as zeroes goes first.
#[derive(Debug)]
pub(crate) struct Free {
    clean: Vec<Extent>,
    /// What must be zeroed before a volume gets it.
    dirty: Vec<Extent>,
    /// Where the pool may be made longer.
    grows_at: Option<u64>,
}

impl Free {
    /// Those of a pool. `grows`: it is a file, which may become longer. `quarantine`: not before somebody is done.
    pub(crate) fn new(
        table: &Table,
        superblock: &Superblock,
        grows: bool,
        quarantine: &[Extent],
    ) -> Self {
        let mut taken = superblock.reserved();
        taken.extend(table.volumes.iter().flat_map(|volume| &volume.extents));
        taken.extend(quarantine);
        let all = [Extent { start: 0, blocks: superblock.blocks }];
        let free = without(&all, &joined(taken));
        let dirty = common(&free, &table.dirty);
        let clean = without(&free, &dirty);
        Self { clean, dirty, grows_at: grows.then_some(superblock.blocks) }
    }
    /// Those of them that read as zeroes.
    pub(crate) fn clean(self) -> Self {
        Self { dirty: Vec::new(), ..self }
    }
    /// How many there are without growing.
    pub(crate) fn blocks(&self) -> u64 {
        total(&self.clean) + total(&self.dirty)
    }
    /// Takes blocks: those behind `after` first, then one extent that is long enough, then the longest ones. A pool that
    /// may grow does so rather than to scatter a volume. Clean ones go before dirty ones.
    fn take(&mut self, blocks: u64, after: Option<u64>) -> Option<Vec<Extent>> {
        let (mut taken, mut left) = (Vec::new(), blocks);
        let (clean, dirty) = (&mut self.clean, &mut self.dirty);
        if let Some(index) = clean.iter().position(|extent| Some(extent.start) == after) {
            cut(clean, index, &mut left, &mut taken);
        }
        let fits = |extents: &[Extent], left| extents.iter().position(|one| one.blocks >= left);
        if let Some(index) = fits(clean, left) {
            cut(clean, index, &mut left, &mut taken);
        }
        if left > 0 && self.grows_at.is_some() {
            match fits(dirty, left) {
                Some(index) => cut(dirty, index, &mut left, &mut taken),
                None => self.grow(&mut left, &mut taken),
            }
        }
        for extents in [&mut self.clean, &mut self.dirty] {
            while left > 0 {
                let longest = extents.iter().enumerate().max_by_key(|(_, extent)| extent.blocks);
                let Some((index, _)) = longest else { break };
                cut(extents, index, &mut left, &mut taken);
            }
        }
        if left > 0 {
            // The search stops taking extents, but still counts the room.
            self.clean.extend(taken);
            return None;
        }
        Some(taken)
    }
    /// Makes the pool so much longer that what is left to take is at its end.
    fn grow(&mut self, left: &mut u64, taken: &mut Vec<Extent>) {
        let end = self.grows_at.expect("asked before");
        let there =
            self.clean.last().filter(|last| last.end() == end).map_or(0, |last| last.blocks);
        let more = left.saturating_sub(there);
        self.clean.push(Extent { start: end, blocks: more });
        self.clean = joined(std::mem::take(&mut self.clean));
        self.grows_at = Some(end + more);
        let last = self.clean.len() - 1;
        cut(&mut self.clean, last, left, taken);
    }
}

/// Takes the first blocks of one of these extents, as many as it has of those that are left to take.
fn cut(extents: &mut Vec<Extent>, index: usize, left: &mut u64, taken: &mut Vec<Extent>) {
    let extent = &mut extents[index];
    let blocks = extent.blocks.min(*left);
    if blocks == 0 {
        return;
    }
    taken.push(Extent { start: extent.start, blocks });
    *left -= blocks;
    *extent = Extent { start: extent.start + blocks, blocks: extent.blocks - blocks };
    if extent.blocks == 0 {
        extents.remove(index);
    }
}

/// Where in a table volumes are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    ids: BTreeMap<Uuid, usize>,
    names: BTreeMap<String, usize>,
}

impl Index {
    pub(crate) fn new(table: &Table) -> Self {
        let all = || table.volumes.iter().enumerate();
        Self {
            ids: all().map(|(index, volume)| (volume.id, index)).collect(),
            names: all().map(|(index, volume)| (volume.name.clone(), index)).collect(),
        }
    }
    /// The volume with this UUID if one is given, else the one with this name.
    pub(crate) fn find(&self, id: Option<Uuid>, name: &str) -> Option<usize> {
        match id {
            Some(id) => self.ids.get(&id).copied(),
            None => self.names.get(name).copied(),
        }
    }
}

impl Table {
    /// The extents of all volumes, in order.
    pub(crate) fn assigned(&self) -> Vec<Extent> {
        joined(self.volumes.iter().flat_map(|volume| volume.extents.iter().copied()).collect())
    }
    /// This table with all volumes that are wanted; others become kept ones. Volumes that shall be shorter keep their
    /// extents until [`Table::cut`]. All volumes are refused together that need consent.
    pub(crate) fn with(&self, wanted: &[Wanted<'_>], mut free: Free) -> Result<Self, Vec<Refused>> {
        let (mut new, mut refused) = (self.clone(), Vec::new());
        new.volumes.iter_mut().for_each(|volume| volume.state = State::Kept);
        let known = Index::new(self);
        for one in wanted {
            match known.find(one.id, one.name) {
                Some(index) => {
                    let was_kept = self.volumes[index].state == State::Kept;
                    refused.extend(self.volumes[index].refused(one, was_kept));
                    if refused.is_empty() {
                        new.volumes[index].adapt(one, &mut free).map_err(|error| vec![error])?;
                    }
                }
                None => {
                    let Some(extents) = free.take(one.size.div_ceil(BLOCK), None) else {
                        return Err(vec![no_room(one.name, one.size, &free)]);
                    };
                    let id = one.id.unwrap_or_else(Uuid::new_v4);
                    let (name, group) = (one.name.to_string(), one.group.to_string());
                    let (state, size) = (State::Live, one.size);
                    new.volumes.push(Record { id, name, group, state, size, extents });
                }
            }
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        new.refuse_twins().map_err(|error| vec![error])?;
        Ok(new)
    }
    fn refuse_twins(&self) -> Result<(), Refused> {
        let mut names: BTreeMap<&str, &Record> = BTreeMap::new();
        for volume in &self.volumes {
            let Some(other) = names.insert(&volume.name, volume) else { continue };
            let (other, id) = match volume.state {
                State::Kept => (volume, volume.id),
                State::Live => (other, other.id),
            };
            let group = &other.group;
            let message = format!(
                "the pool keeps another volume of this name, UUID {id}, of group \"{group}\": choose another name, or \
                 delete that one"
            );
            return Err(Refused::new(&volume.name, Why::Twin, message));
        }
        Ok(())
    }
    /// This table, with no volume larger than in an earlier one.
    pub(super) fn not_larger(mut self, earlier: &Self) -> Self {
        let known = Index::new(earlier);
        for volume in &mut self.volumes {
            let was = known.find(Some(volume.id), "").map(|index| &earlier.volumes[index]);
            if let Some(was) = was.filter(|was| was.size < volume.size) {
                (volume.size, volume.extents) = (was.size, was.extents.clone());
            }
        }
        self
    }
    /// Takes extents from volumes that have become shorter, and forgets those of these names.
    pub(crate) fn cut(&self, delete: &[String]) -> Self {
        let mut new = self.clone();
        for volume in new.volumes.iter_mut().filter(|volume| volume.is_cut_short()) {
            volume.extents = split(&volume.extents, volume.size.div_ceil(BLOCK)).0;
        }
        let goes = |volume: &Record| volume.state == State::Kept && delete.contains(&volume.name);
        new.volumes.retain(|volume| !goes(volume));
        new
    }
    /// What is dirty after a change from `old` to this: what was, and what was given back, less what was given out.
    pub(super) fn dirty_after(&self, old: &Self) -> Vec<Extent> {
        let assigned = self.assigned();
        let mut dirty = without(&old.assigned(), &assigned);
        dirty.extend(&old.dirty);
        without(&joined(dirty), &assigned)
    }
    /// What volumes get in a change from `old` to this, in order; `None` if it was another's until now.
    pub(super) fn given_out(&self, old: &Self) -> Option<Vec<Extent>> {
        let before: BTreeMap<Uuid, &Record> =
            old.volumes.iter().map(|volume| (volume.id, volume)).collect();
        let mut given = Vec::new();
        for volume in &self.volumes {
            let had = before.get(&volume.id).map_or(Vec::new(), |old| joined(old.extents.clone()));
            given.extend(without(&joined(volume.extents.clone()), &had));
        }
        let given = joined(given);
        common(&given, &old.assigned()).is_empty().then_some(given)
    }
}

impl Record {
    /// What of that which is wanted needs consent that is not there.
    fn refused(
        &self,
        wanted: &Wanted<'_>,
        was_kept: bool,
    ) -> impl Iterator<Item = Refused> + use<> {
        let mut refused = Vec::new();
        if was_kept && self.group != wanted.group && !wanted.take_over {
            let message = format!(
                "the pool keeps its data for group \"{}\", and the contracts have it in group \"{}\"",
                self.group, wanted.group
            );
            refused.push(Refused::new(wanted.name, Why::Needs(Needs::TakeOver), message));
        }
        if wanted.size < self.size && !wanted.shrink {
            let message = format!(
                "it has {}, and {} would cut data off",
                Count(self.size, "byte"),
                wanted.size
            );
            refused.push(Refused::new(wanted.name, Why::Needs(Needs::Shrink), message));
        }
        refused.into_iter()
    }
    /// Whether it has more extents than its size needs, since a change that makes it shorter has not come to its end.
    pub(super) fn is_cut_short(&self) -> bool {
        total(&self.extents) > self.size.div_ceil(BLOCK)
    }
    /// Becomes what is wanted, and keeps its extents if that is shorter.
    fn adapt(&mut self, wanted: &Wanted<'_>, free: &mut Free) -> Result<(), Refused> {
        let (has, wants) = (total(&self.extents), wanted.size.div_ceil(BLOCK));
        if wants > has {
            let after = self.extents.last().map(Extent::end);
            let Some(more) = free.take(wants - has, after) else {
                return Err(no_room(wanted.name, (wants - has) * BLOCK, free));
            };
            self.extents.extend(more);
            self.extents = merged(&self.extents);
        }
        self.size = wanted.size;
        self.state = State::Live;
        self.name = wanted.name.to_string();
        self.group = wanted.group.to_string();
        Ok(())
    }
}

/// Joins extents that follow each other in the volume and on the pool.
fn merged(extents: &[Extent]) -> Vec<Extent> {
    let mut result: Vec<Extent> = Vec::new();
    for extent in extents {
        match result.last_mut() {
            Some(last) if last.end() == extent.start => last.blocks += extent.blocks,
            _ => result.push(*extent),
        }
    }
    result
}

fn no_room(volume: &str, bytes: u64, free: &Free) -> Refused {
    let free = free.blocks() * BLOCK;
    let message = format!("it needs {} more, and the pool has {free} free", Count(bytes, "byte"));
    Refused::new(volume, Why::NoRoom, message)
}
