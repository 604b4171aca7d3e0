//! Goal: connections are counted for volumes, groups and all, and come back. Method: exports of some groups, clients
//! that come and go, and a reload.

use iofair_core::contract::Contract;
use iofair_core::controller::Controller;

use super::*;
use crate::testing;

/// A controller with these groups.
fn controller(names: &[&str]) -> Controller {
    testing::controller(names.iter().map(|name| (*name, Contract::default())))
}

/// An export in a group; its name begins with the group's.
fn export(id: u32, name: &str, limits: &[(&str, u32)]) -> Export {
    let groups = limits.iter().map(|(name, limit)| (name.to_string(), *limit)).collect();
    Export {
        id,
        name: name.into(),
        size: 4096,
        read_only: false,
        rotational: false,
        entry: Entry { groups, ..Entry::default() },
        connections: 0,
    }
}

/// Connects to an export until it is full.
fn fill(exports: &mut Exports, groups: &Groups, name: &str) -> u32 {
    let id = exports.find(name).unwrap().id;
    for count in 0.. {
        if (Offer { exports, groups }).is_full(exports.find(name).unwrap()) {
            return count;
        }
        exports.enter(id, groups);
    }
    unreachable!("there is a limit");
}

/// Goal: a group cannot take the connections of another. Method: one group takes all it gets, then the other.
#[test]
fn groups_share_connections() {
    let controller = controller(&["a", "b"]);
    let groups = controller.groups();
    let id = |name| groups.find(name).unwrap();
    let mut exports = Exports::new(100);
    let offered = || vec![(export(0, "a1", &[]), id("a")), (export(5, "b1", &[]), id("b"))];
    exports.set(100, offered(), groups);
    let a = fill(&mut exports, groups, "a1");
    let b = fill(&mut exports, groups, "b1");
    assert!((40..=75).contains(&a) && b >= 16 && a + b <= 100, "{a} and {b}");
    assert_eq!(fill(&mut exports, groups, "a1"), 0);
    // What they have stays after a reload, and comes back.
    exports.set(100, offered(), groups);
    assert_eq!(fill(&mut exports, groups, "a1"), 0);
    (0..a).for_each(|_| exports.leave(0));
    (0..b).for_each(|_| exports.leave(5));
    assert_eq!((exports.quota.held_by_all(), exports.list[0].connections), (0, 0));
    // Alone it has them all.
    exports.set(100, offered()[..1].to_vec(), groups);
    assert_eq!(fill(&mut exports, groups, "a1"), 100);
    assert!(exports.find("b1").is_none() && exports.get(5).is_none());
}

/// Goal: limits of groups count for what is in them. Method: a limit above and one below, two volumes under both and
/// one under the upper one.
#[test]
fn groups_have_limits() {
    let controller = controller(&["t", "t/a", "t/b"]);
    let groups = controller.groups();
    let id = |name| groups.find(name).unwrap();
    let mut exports = Exports::new(1000);
    let inner = [("t", 5), ("t/a", 3)];
    let offered = vec![
        (export(0, "a1", &inner), id("t/a")),
        (export(1, "a2", &inner), id("t/a")),
        (export(2, "b1", &[("t", 5)]), id("t/b")),
    ];
    exports.set(1000, offered, groups);
    assert_eq!(fill(&mut exports, groups, "a1"), 3);
    assert_eq!(fill(&mut exports, groups, "a2"), 0);
    assert_eq!(fill(&mut exports, groups, "b1"), 2);
    exports.leave(0);
    assert_eq!(fill(&mut exports, groups, "a2"), 1);
    assert_eq!(exports.starting_at(1).iter().map(|export| export.id).collect::<Vec<_>>(), [1, 2]);
}

/// Goal: connections to a volume that was removed count for it when it comes back, and end then or before. Method: both.
#[test]
fn retired_exports_keep_their_connections() {
    let controller = controller(&["a"]);
    let groups = controller.groups();
    let offered = || vec![(export(0, "a1", &[]), groups.find("a").unwrap())];
    let mut exports = Exports::new(100);
    exports.set(100, offered(), groups);
    exports.enter(0, groups);
    exports.enter(0, groups);
    exports.set(100, Vec::new(), groups);
    exports.leave(0);
    exports.set(100, offered(), groups);
    assert_eq!(exports.list[0].connections, 1);
    exports.leave(0);
    assert_eq!((exports.quota.held_by_all(), exports.list[0].connections), (0, 0));
}
