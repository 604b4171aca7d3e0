//! Goal: processor time is divided by weight at every level, no endpoint waits for ever or is lost. Method: a
//! tree of groups, endpoints that always have input or come and go, costs and choices from seeds.

use iofair_core::contract::Contract;
use iofair_core::controller::Controller;

use super::*;
use crate::testing;

const SEEDS: u64 = 50;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// Groups with these weights, parents first.
fn groups(tree: &[(&str, u32)]) -> Controller {
    testing::controller(tree.iter().map(|(name, weight)| {
        let contract = Contract { weight: *weight, ..Contract::default() };
        (*name, contract)
    }))
}

fn set_all(queue: &mut FairQueue, groups: &Groups) {
    let all: Vec<GroupId> = groups.iter().map(|(id, _)| id).collect();
    queue.set_groups(groups, &all);
}

fn queue(tree: &[(&str, u32)]) -> (FairQueue, Vec<Account>) {
    let controller = groups(tree);
    let mut queue = FairQueue::new();
    set_all(&mut queue, controller.groups());
    let account =
        |(name, _): &(&str, u32)| Account::in_group(controller.groups().find(name).unwrap());
    (queue, tree.iter().map(account).collect())
}

/// Serves this many visits of endpoints that always have more; returns the time that each account used.
fn serve(queue: &mut FairQueue, visits: u32, cost: &mut dyn FnMut(usize) -> u64) -> Vec<u64> {
    let mut used = vec![0; queue.nodes.len()];
    for _ in 0..visits {
        let (account, key) = queue.pop().unwrap();
        let time = cost(key);
        queue.charge(account, Nanos(time));
        used[account.0 as usize] += time;
        queue.push(account, key);
    }
    used
}

/// Goal: time is divided by weight, whatever one visit costs and however many endpoints a group has. Method: two
/// groups of weight 3 to 1 with visits of very different lengths, the lighter one with fifty endpoints.
#[test]
fn time_is_divided_by_weight() {
    for seed in 0..SEEDS {
        let (mut queue, accounts) = queue(&[("a", 300), ("b", 100)]);
        queue.push(accounts[0], 0);
        (1..=50).for_each(|key| queue.push(accounts[1], key));
        let mut random = Random(seed);
        let mut cost = |key| if key == 0 { 1 + random.below(100_000) } else { 1_000_000 };
        let used = serve(&mut queue, 50_000, &mut cost);
        let [a, b] = [used[accounts[0].0 as usize], used[accounts[1].0 as usize]];
        // SFQ keeps the difference of two groups' time by weight below the longest visits of both; a third of a
        // nanosecond a visit is rounded up.
        assert!((a / 3).abs_diff(b) < 1_100_000, "seed {seed}: {a} and {b}");
    }
}

/// Goal: a group does not get more by having more groups in it, and unknown peers get little. Method: a group with
/// ninety-nine groups in it beside one with none, and a flood of handshakes.
#[test]
fn levels_are_fair() {
    let names: Vec<String> = (0..99).map(|number| format!("many/{number}")).collect();
    let mut tree = vec![("one", 100), ("many", 100)];
    tree.extend(names.iter().map(|name| (name.as_str(), 100)));
    let (mut queue, accounts) = queue(&tree);
    accounts.iter().enumerate().filter(|(key, _)| *key != 1).for_each(|(key, account)| {
        queue.push(*account, key);
    });
    (200..300).for_each(|key| queue.push(Account::HANDSHAKE, key));
    let used = serve(&mut queue, 42_000, &mut |_| 1_000);
    let (one, handshakes) = (used[accounts[0].0 as usize], used[0]);
    let many: u64 = accounts[2..].iter().map(|account| used[account.0 as usize]).sum();
    assert!(one.abs_diff(many) < 200_000, "{one} and {many}");
    assert!((handshakes * 10).abs_diff(one) < 200_000, "{handshakes} and {one}");
}

/// Goal: idle time is not saved up, work charged outside of visits counts, and debts end. Method: a group that
/// comes late; a group that was charged for a second of completions.
#[test]
fn idle_time_gives_no_credit() {
    let (mut queue, accounts) = queue(&[("a", 100), ("b", 100)]);
    queue.push(accounts[0], 0);
    serve(&mut queue, 1_000, &mut |_| 1_000);
    queue.push(accounts[1], 1);
    let used = serve(&mut queue, 1_000, &mut |_| 1_000);
    assert_eq!(used[accounts[0].0 as usize], used[accounts[1].0 as usize], "from now on equal");
    queue.charge(accounts[1], Nanos(100_000));
    let used = serve(&mut queue, 1_000, &mut |_| 1_000);
    let [a, b] = [used[accounts[0].0 as usize], used[accounts[1].0 as usize]];
    assert!((a - b).abs_diff(100_000) <= 1_000, "{a} and {b}");
    // Alone it need not wait for anybody.
    queue.remove(0);
    queue.charge(accounts[1], Nanos::from_secs(1));
    assert_eq!(queue.pop(), Some((accounts[1], 1)));
    assert!(queue.pop().is_none() && queue.is_empty());
}

/// Goal: stalled endpoints are woken in turn, first those of the same group, then any. Method: two accounts with two stalled
/// endpoints each.
#[test]
fn stalled_endpoints_take_turns() {
    let (mut queue, accounts) = queue(&[("a", 100), ("b", 100)]);
    for key in 0..4 {
        queue.stall(accounts[key / 2], key);
    }
    assert!(queue.pop().is_none());
    queue.wake(accounts[1]);
    assert_eq!(queue.pop(), Some((accounts[1], 2)));
    queue.stall(accounts[1], 2);
    (0..4).for_each(|_| queue.wake_next());
    let order = std::iter::from_fn(|| {
        let (account, key) = queue.pop()?;
        queue.charge(account, Nanos(1_000));
        Some(key)
    });
    let mut woken: Vec<usize> = order.collect();
    assert_eq!(woken[..2], [0, 3], "one of each");
    woken.sort_unstable();
    assert_eq!(woken, [0, 1, 2, 3]);
    queue.wake_next();
    assert!(queue.is_empty());
}

/// Where an endpoint of the model waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Nowhere,
    Ready,
    Stalled,
}

/// Goal: whatever happens in whatever order, an endpoint is served once for each time that it was pushed or woken,
/// and none is lost. Method: random operations beside a model; groups are moved in the tree meanwhile.
#[test]
fn no_endpoint_is_lost() {
    let trees = [
        groups(&[("a", 100), ("b", 50), ("b/c", 1), ("b/d", 1000)]),
        groups(&[("b", 100), ("b/a", 50), ("b/a/c", 7), ("d", 1000)]),
    ];
    for seed in 0..SEEDS {
        let (mut queue, mut random) = (FairQueue::new(), Random(seed));
        let mut model = [At::Nowhere; 20];
        set_all(&mut queue, trees[0].groups());
        for _ in 0..5_000 {
            let key = random.below(20) as usize;
            let account = match random.below(6) {
                0 => Account::HANDSHAKE,
                group => Account::in_group(GroupId::from_bits(group - 1)),
            };
            match random.below(10) {
                0..=2 => {
                    queue.push(account, key);
                    model[key] = At::Ready;
                }
                3 => {
                    queue.stall(account, key);
                    model[key] = At::Stalled;
                }
                4 => {
                    queue.remove(key);
                    model[key] = At::Nowhere;
                }
                5 => queue.charge(account, Nanos(random.below(1_000))),
                6 => queue.wake(account),
                7 => queue.wake_next(),
                8 if random.below(50) == 0 => {
                    set_all(&mut queue, trees[random.below(2) as usize].groups());
                }
                _ => {
                    let served = queue.pop();
                    let waits = model.contains(&At::Ready);
                    assert_eq!(served.is_some(), waits, "seed {seed}");
                    let Some((_, key)) = served else { continue };
                    assert_eq!(model[key], At::Ready, "seed {seed}");
                    model[key] = At::Nowhere;
                }
            }
            for (key, at) in model.iter_mut().enumerate().filter(|(_, at)| **at == At::Stalled) {
                if queue.is_ready(key) {
                    *at = At::Ready;
                }
            }
        }
        queue.wake_all();
        let left = std::iter::from_fn(|| queue.pop()).count();
        assert_eq!(left, model.iter().filter(|at| **at != At::Nowhere).count(), "seed {seed}");
    }
}

/// Goal: nothing of a parked account is served, and nothing of it is lost or out of order. Method: parked before and
/// after its endpoints came, while it is being served, and while another account has work.
#[test]
fn a_parked_account_keeps_its_place() {
    let (mut queue, accounts) = queue(&[("a", 100)]);
    let (strangers, group) = (Account::HANDSHAKE, accounts[0]);
    queue.push(strangers, 1);
    queue.push(strangers, 2);
    queue.push(group, 3);
    queue.park(strangers);
    queue.push(strangers, 4);
    assert_eq!((queue.pop(), queue.pop()), (Some((group, 3)), None));
    assert!(queue.is_empty(), "what is parked keeps nobody awake");
    queue.push(strangers, 5);
    assert!(queue.is_empty());
    queue.remove(2);
    queue.unpark(strangers);
    assert_eq!(queue.pop(), Some((strangers, 1)));
    queue.park(strangers);
    queue.push(group, 3);
    assert_eq!((queue.pop(), queue.pop()), (Some((group, 3)), None));
    queue.unpark(strangers);
    assert_eq!([(); 3].map(|()| queue.pop()), [Some((strangers, 4)), Some((strangers, 5)), None]);
    queue.park(strangers);
    queue.unpark(strangers);
    assert!(queue.is_empty());
}
