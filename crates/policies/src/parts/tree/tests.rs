//! The tree against a naive model, over random operations.

use super::*;
use iofair_core::id::RequestId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Start(u64);
impl Summary for Start {
    type Of = u64;
    fn alone(&self) -> u64 {
        self.0
    }
    fn join(one: u64, other: u64) -> u64 {
        one.min(other)
    }
}

/// A tree and what it should be: nodes by key and order of insertion, with their values.
#[derive(Default)]
struct Pair {
    tree: Tree,
    model: BTreeMap<(u64, u32), (NodeId, u64)>,
    inserted: u32,
}

impl Pair {
    fn insert(&mut self, arena: &mut Arena<u64, Start>, key: u64, start: u64) {
        self.inserted += 1;
        let node = arena.insert(&mut self.tree, key, Start(start));
        self.model.insert((key, self.inserted), (node, start));
    }
    fn take(&mut self, skip: usize) -> (NodeId, u64) {
        let entry = *self.model.keys().nth(skip).expect("as many");
        self.model.remove(&entry).expect("just seen")
    }
    fn remove(&mut self, arena: &mut Arena<u64, Start>, skip: usize) {
        let (node, start) = self.take(skip);
        assert_eq!(arena.remove(&mut self.tree, node), Start(start));
    }
    fn replace(&mut self, arena: &mut Arena<u64, Start>, skip: usize, (key, start): (u64, u64)) {
        let (node, _) = self.take(skip);
        self.inserted += 1;
        arena.replace(&mut self.tree, node, key, Start(start));
        self.model.insert((key, self.inserted), (node, start));
    }
    fn compare(&self, arena: &Arena<u64, Start>, key: u64) {
        let model = &self.model;
        let after = model.range((key, 0)..).next().map(|(_, n)| n.0);
        let before = model.range(..(key, 0)).next_back().map(|(_, n)| n.0);
        assert_eq!(arena.at_or_after(&self.tree, key), after);
        assert_eq!(arena.before(&self.tree, key), before);
        assert_eq!(arena.first(&self.tree), model.values().next().map(|n| n.0));
        assert_eq!(arena.last(&self.tree), model.values().next_back().map(|n| n.0));
        assert_eq!(self.tree.len(), model.len());
        assert_eq!(arena.summary(&self.tree), model.values().map(|n| n.1).min());
        let low = model.values().find(|n| n.1 <= key).map(|n| n.0);
        assert_eq!(arena.first_where(&self.tree, |least| least <= key), low);
    }
    /// Compares everything, and looks into the pages.
    fn check(&self, arena: &Arena<u64, Start>) {
        let mut at = arena.first(&self.tree);
        let mut previous = None;
        for ((key, _), (node, start)) in &self.model {
            assert_eq!(at, Some(*node));
            assert_eq!((arena.key(*node), arena.value(*node)), (*key, Start(*start)));
            assert_eq!(arena.previous(*node), previous);
            (previous, at) = (at, arena.next(*node));
        }
        assert_eq!(at, None);
        if self.tree.len > 2 {
            assert_eq!(arena.page(self.tree.root).parent, NIL);
            check_page(arena, self.tree.root);
        }
    }
}

/// Every summary, bound and way back up below a page is right; its smallest and largest key.
fn check_page(arena: &Arena<u64, Start>, index: u32) -> (u64, u64) {
    let page = arena.page(index);
    assert!(page.len() > 0);
    let mut range: Option<(u64, u64)> = None;
    for at in 0..page.len() {
        let (key, summary, link) = page.entry(at);
        let (first, last) = if page.leaf {
            let node = &arena.nodes[link as usize];
            assert_eq!((node.key, node.value.alone(), node.page), (key, summary, index));
            (key, key)
        } else {
            assert_eq!(arena.page(link).parent, index);
            assert_eq!(arena.page(link).summary(Start::join), summary);
            check_page(arena, link)
        };
        if let Some((_, before)) = range {
            assert!(before <= key && key <= first, "{before} {key} {first}");
        }
        range = Some((range.map_or(first, |r| r.0), last));
    }
    range.expect("not empty")
}

fn free_pages(arena: &Arena<u64, Start>) -> usize {
    let some = |page: u32| (page != NIL).then_some(page);
    core::iter::successors(some(arena.free_page), |page| some(arena.page(*page).next)).count()
}

/// A random number below the bound.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) % below
}

/// Goal: trees that share an arena are ordered multimaps with right summaries. Method: three trees
/// that grow and shrink by random inserts, removals and replacements against BTreeMap, every
/// question asked at each step, all pages looked at now and then.
#[test]
fn agrees_with_a_btree_map() {
    for seed in 0..8 {
        let (mut arena, mut state) = (Arena::new(), seed);
        let mut pairs: [Pair; 3] = Default::default();
        for step in 0..6_000 {
            let pair = &mut pairs[random(&mut state, 3) as usize];
            let (key, start) = (random(&mut state, 500), random(&mut state, 1000));
            // Up to about 400 nodes, down to none, and again.
            let inserts = if step / 1500 % 2 == 0 { 6 } else { 1 };
            match random(&mut state, 10) {
                _ if pair.model.is_empty() => pair.insert(&mut arena, key, start),
                choice if choice < inserts => pair.insert(&mut arena, key, start),
                choice => {
                    let skip = random(&mut state, pair.model.len() as u64) as usize;
                    let near = pair.model.keys().nth(skip).expect("as many").0 + key % 3;
                    match choice {
                        7 => pair.replace(&mut arena, skip, (key, start)),
                        8 => pair.replace(&mut arena, skip, (near, start)),
                        _ => pair.remove(&mut arena, skip),
                    }
                }
            }
            pair.compare(&arena, key);
            if step % 250 == 0 {
                pairs.iter().for_each(|pair| pair.check(&arena));
            }
        }
        for pair in &mut pairs {
            while !pair.tree.is_empty() {
                pair.remove(&mut arena, 0);
            }
        }
        assert_eq!(free_pages(&arena), arena.pages.len());
    }
}

/// Goal: trees of none to four nodes, which come and go as pairs and pages, are right too, equal keys
/// included. Method: as above, with few nodes and few keys, everything looked at after each step.
#[test]
fn tiny_trees_agree_too() {
    let (mut arena, mut state) = (Arena::new(), 1);
    let mut pairs: [Pair; 3] = Default::default();
    for _ in 0..20_000 {
        let pair = &mut pairs[random(&mut state, 3) as usize];
        let (key, start) = (random(&mut state, 4), random(&mut state, 4));
        match (pair.model.len(), random(&mut state, 3)) {
            (0, _) | (1..4, 0) => pair.insert(&mut arena, key, start),
            (len, choice) => {
                let skip = random(&mut state, len as u64) as usize;
                match choice {
                    1 => pair.replace(&mut arena, skip, (key, start)),
                    _ => pair.remove(&mut arena, skip),
                }
            }
        }
        pair.compare(&arena, key);
        pairs.iter().for_each(|pair| pair.check(&arena));
    }
    assert!(arena.pages.len() <= 3, "{} pages", arena.pages.len());
}

/// Goal: keys that come in order and leave in order, as finishes do, keep few pages in use. Method: a
/// window of 1,000 nodes that moves on, then all leave.
#[test]
fn a_moving_window_keeps_its_pages_filled() {
    let (mut arena, mut pair, mut state) = (Arena::new(), Pair::default(), 1);
    for step in 0..20_000u64 {
        pair.insert(&mut arena, step + random(&mut state, 100), step);
        if step >= 1000 {
            pair.remove(&mut arena, random(&mut state, 3) as usize);
        }
        if step % 1000 == 0 {
            pair.check(&arena);
            pair.compare(&arena, step);
        }
    }
    assert!(arena.pages.len() < 1000 / FILLED, "{} pages", arena.pages.len());
    while !pair.tree.is_empty() {
        pair.remove(&mut arena, 0);
    }
    assert_eq!(free_pages(&arena), arena.pages.len());
}

/// Goal: trees without summaries, whose keys are times, are right: there the first node often moves to the end. Method: as many
/// nodes as fit into a pair, a page, and some levels; the first one moves, mostly to the end, and others come and go; after each
/// step the order is that of a model.
#[test]
fn the_first_node_moves_to_the_end() {
    for (seed, nodes) in [2, 3, 5, 15, 16, 17, 40, 300].into_iter().enumerate() {
        let (mut arena, mut tree, mut state) = (Arena::new(), Tree::new(), seed as u64);
        let mut model: BTreeMap<(u64, u32), NodeId> = BTreeMap::new();
        let (mut now, mut inserted) = (0, 0);
        for step in 0..4_000 {
            now += random(&mut state, 3);
            let key =
                now + 100 - if random(&mut state, 4) == 0 { random(&mut state, 99) } else { 0 };
            let value = RequestId(step);
            let any = random(&mut state, model.len().max(1) as u64) as usize;
            let chosen = if random(&mut state, 4) == 0 { any } else { 0 };
            let chosen = model.keys().nth(chosen).copied();
            inserted += 1;
            match (random(&mut state, 8), chosen) {
                (0, Some(entry)) => {
                    arena.remove(&mut tree, model.remove(&entry).expect("just seen"));
                }
                (choice, Some(entry)) if choice > 1 || model.len() > nodes => {
                    let node = model.remove(&entry).expect("just seen");
                    arena.replace(&mut tree, node, key, value);
                    model.insert((key, inserted), node);
                }
                _ => _ = model.insert((key, inserted), arena.insert(&mut tree, key, value)),
            }
            assert_eq!(arena.first_key(&tree), model.keys().next().map(|(key, _)| *key));
            let walk = core::iter::successors(arena.first(&tree), |node| arena.next(*node));
            assert!(walk.eq(model.values().copied()), "{nodes} nodes, step {step}");
            assert!(model.iter().all(|((key, _), node)| arena.key(*node) == *key));
        }
    }
}
