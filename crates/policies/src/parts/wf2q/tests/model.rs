//! The same equations with neither trees nor wrapping: lists, scans and wide integers.

use std::vec::Vec;

use crate::parts::wf2q::{Arrival, IDLE_CLASS_PERIOD, Leave, Reason, SHIFT};
use iofair_core::priority::Class;
use iofair_core::time::Instant;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum State {
    Nowhere,
    Active(u64),
    Idle(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) parent: usize,
    pub(super) is_group: bool,
    pub(super) start: i128,
    pub(super) finish: i128,
    pub(super) budget: u64,
    pub(super) service: u64,
    pub(super) weight: u32,
    pub(super) wanted: (u32, Class),
    pub(super) class: Class,
    pub(super) state: State,
    pub(super) counted: bool,
    pub(super) busy: bool,
    // Of groups:
    pub(super) clocks: [i128; 3],
    pub(super) in_service: Option<usize>,
    pub(super) next: Option<usize>,
    pub(super) idle_served: Instant,
}

/// Item 0 is the root. Items are never removed.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) items: Vec<Item>,
    entries: u64,
    epoch: i128,
    /// Whether moves of a group in service are charged.
    pub(super) charges: bool,
}

fn delta(service: u64, weight: u64) -> i128 {
    (i128::from(service) << SHIFT) / i128::from(weight)
}

impl Model {
    pub(super) fn new(epoch: u64) -> Self {
        let mut this =
            Self { items: Vec::new(), entries: 0, epoch: i128::from(epoch), charges: false };
        this.add(0, true, 1, Class::BestEffort);
        this
    }
    pub(super) fn add(&mut self, parent: usize, is_group: bool, weight: u32, class: Class) {
        let parents_clock = self.items.get(parent).map_or(0, |p| p.clocks[class as usize]);
        self.items.push(Item {
            parent,
            is_group,
            start: 0,
            finish: parents_clock,
            budget: 0,
            service: 0,
            weight,
            wanted: (weight, class),
            class,
            state: State::Nowhere,
            counted: false,
            busy: false,
            clocks: [self.epoch; 3],
            in_service: None,
            next: None,
            idle_served: Instant::ZERO,
        });
    }
    fn clock(&mut self, i: usize) -> &mut i128 {
        let (parent, class) = (self.items[i].parent, self.items[i].class);
        &mut self.items[parent].clocks[class as usize]
    }
    fn members(&self, group: usize, class: Class) -> impl Iterator<Item = usize> + '_ {
        let inside =
            move |i: &usize| self.items[*i].parent == group && self.items[*i].class == class;
        (1..self.items.len()).filter(inside)
    }
    pub(super) fn weight_sum(&self, group: usize, class: Class) -> u64 {
        let counted = self.members(group, class).filter(|i| self.items[*i].counted);
        counted.map(|i| u64::from(self.items[i].weight)).sum()
    }
    fn sorted(&self, group: usize, class: Class, active: bool) -> Vec<(i128, u64, usize)> {
        let entry = |i: usize| match self.items[i].state {
            State::Active(n) if active => Some((self.items[i].finish, n, i)),
            State::Idle(n) if !active => Some((self.items[i].finish, n, i)),
            _ => None,
        };
        let mut list: Vec<_> = self.members(group, class).filter_map(entry).collect();
        list.sort_unstable();
        list
    }
    fn in_service(&self, i: usize) -> bool {
        i != 0 && self.items[self.items[i].parent].in_service == Some(i)
    }

    pub(super) fn activate(&mut self, now: Instant, i: usize, arrival: Arrival) {
        self.items[i].service = 0;
        let raising = match arrival {
            Arrival::Plain => None,
            Arrival::InTime { raising } => Some(raising),
        };
        self.arrive(i, raising);
        let reason = if raising.is_some() { Reason::InTime } else { Reason::Change };
        self.climb(now, i, reason);
    }
    fn arrive(&mut self, i: usize, raising: Option<u32>) {
        let clock = *self.clock(i);
        let item = &mut self.items[i];
        let shifted = raising.is_some() && clock > item.finish;
        let least = if shifted { item.finish } else { clock };
        item.start = if item.counted { least.max(item.finish) } else { least };
        (item.counted, item.busy) = (true, true);
        self.enter(i, raising.filter(|_| shifted));
    }
    fn enter(&mut self, i: usize, raising: Option<u32>) {
        let (weight, class) = self.items[i].wanted;
        self.items[i].weight = weight;
        if class != self.items[i].class {
            self.items[i].class = class;
            self.items[i].start = *self.clock(i);
        }
        let clock = *self.clock(i);
        self.entries += 1;
        let item = &mut self.items[i];
        item.finish = item.start + delta(item.budget, u64::from(weight));
        if let (Some(raising), true) = (raising, clock > item.finish) {
            let shift = (clock - item.finish) / i128::from(raising);
            item.start += shift;
            item.finish += shift;
        }
        item.state = State::Active(self.entries);
    }
    pub(super) fn pick(&mut self, now: Instant) -> Option<usize> {
        let mut at = 0;
        while self.items[at].is_group {
            let next = self.items[at].next?;
            self.items[at].in_service = Some(next);
            if self.items[next].class == Class::Idle {
                self.items[at].idle_served = now;
            }
            at = next;
        }
        self.items[at].state = State::Nowhere;
        self.climb(now, at, Reason::Change);
        Some(at)
    }
    pub(super) fn served(&mut self, queue: usize, service: u64) {
        let mut at = queue;
        while at != 0 {
            let (parent, class) = (self.items[at].parent, self.items[at].class);
            self.items[at].service += service;
            *self.clock(at) += delta(service, self.weight_sum(parent, class));
            self.forget_one(parent, class);
            at = parent;
        }
    }
    fn forget_one(&mut self, group: usize, class: Class) {
        let idle = self.sorted(group, class, false);
        let (Some(first), Some(last)) = (idle.first(), idle.last()) else { return };
        let nobody = self.sorted(group, class, true).is_empty();
        let clock = &mut self.items[group].clocks[class as usize];
        if nobody {
            *clock = (*clock).min(last.0);
        }
        if first.0 <= *clock {
            (self.items[first.2].state, self.items[first.2].counted) = (State::Nowhere, false);
        }
    }
    pub(super) fn requeue(&mut self, now: Instant, i: usize) {
        self.reposition(i, true);
        self.climb(now, i, Reason::Expiry);
    }
    pub(super) fn set_budget(&mut self, now: Instant, i: usize, budget: u64) {
        let old = core::mem::replace(&mut self.items[i].budget, budget);
        if old != budget && matches!(self.items[i].state, State::Active(_)) {
            self.reposition(i, false);
            self.climb(now, i, Reason::Change);
        }
    }
    fn reposition(&mut self, i: usize, expires: bool) {
        if self.in_service(i) {
            let item = &mut self.items[i];
            item.start += delta(item.service, u64::from(item.weight));
            if item.is_group && !self.charges || expires {
                item.service = 0;
            }
            if expires {
                let parent = item.parent;
                self.items[parent].in_service = None;
            }
        }
        self.enter(i, None);
    }
    pub(super) fn deactivate(&mut self, now: Instant, i: usize, leave: Leave) {
        let expiry = self.in_service(i);
        self.retire(i, leave);
        self.climb(now, i, if expiry { Reason::Expiry } else { Reason::Leave });
    }
    fn retire(&mut self, i: usize, leave: Leave) {
        let serving = self.in_service(i);
        let clock = *self.clock(i);
        self.entries += 1;
        let entries = self.entries;
        let item = &mut self.items[i];
        item.finish = item.start + delta(item.service, u64::from(item.weight));
        item.busy = false;
        if item.is_group || !serving {
            item.service = 0;
        }
        let forget = leave == Leave::Forgotten || item.finish <= clock;
        item.counted = !forget;
        item.state = if forget { State::Nowhere } else { State::Idle(entries) };
        let parent = item.parent;
        if serving {
            self.items[parent].in_service = None;
        }
    }
    fn charge_move(&mut self, group: usize) -> bool {
        let charges = self.charges && self.in_service(group);
        if charges {
            let item = &mut self.items[group];
            item.start += delta(item.service, u64::from(item.weight));
        }
        charges
    }
    fn climb(&mut self, now: Instant, from: usize, mut reason: Reason) {
        let (in_time, expiry) = (reason == Reason::InTime, reason == Reason::Expiry);
        let mut group = from;
        loop {
            group = self.items[group].parent;
            self.refresh(now, group);
            if group == 0 {
                return;
            }
            let (next, busy) = (self.items[group].next, self.items[group].busy);
            let waits = matches!(self.items[group].state, State::Active(_));
            if let Some(next) = next {
                let budget = self.items[next].budget;
                let same = core::mem::replace(&mut self.items[group].budget, budget) == budget;
                if !busy {
                    self.arrive(group, in_time.then_some(1));
                } else if !same || !waits || expiry {
                    self.reposition(group, expiry);
                } else if reason == Reason::Leave && self.charge_move(group) {
                    self.enter(group, None);
                } else {
                    return;
                }
            } else if self.items[group].in_service.is_none() {
                self.retire(group, Leave::Remembered);
            } else {
                self.charge_move(group);
                if !waits {
                    return;
                }
                self.items[group].state = State::Nowhere;
            }
            if reason == Reason::Leave {
                reason = Reason::Change;
            }
        }
    }
    fn refresh(&mut self, now: Instant, group: usize) {
        let mut classes = Class::ALL.to_vec();
        if now.since(self.items[group].idle_served) > IDLE_CLASS_PERIOD {
            match self.sorted(group, Class::Idle, true).is_empty() {
                true => self.items[group].idle_served = now,
                false => classes = [Class::Idle].to_vec(),
            }
        }
        self.items[group].next = None;
        for class in classes {
            let active = self.sorted(group, class, true);
            let Some(least) = active.iter().map(|a| self.items[a.2].start).min() else { continue };
            let clock = self.items[group].clocks[class as usize];
            let moment = clock.max(least);
            let eligible = active.iter().find(|a| self.items[a.2].start <= moment);
            self.items[group].next = Some(eligible.expect("the least start is eligible").2);
            if self.items[group].in_service.is_none() && moment != clock {
                self.items[group].clocks[class as usize] = moment;
                self.forget_one(group, class);
            }
            return;
        }
    }
}
