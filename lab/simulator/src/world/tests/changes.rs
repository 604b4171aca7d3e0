//! What changes during a run: the drive's speed, contracts.

use super::*;
use crate::scenario::{Change, What};
use iofair_baselines::TABLE;

fn reader(group: &str) -> ClientSpec {
    let group = group.to_owned();
    ClientSpec { group, ..client("a", job(Pattern::RandomRead, 4, false)) }
}

fn contract(at: Nanos, group: &str, contract: Contract) -> Change {
    let contract = Box::new(contract);
    Change { at, what: What::Contract { group: group.to_owned(), contract } }
}

/// Goal: at half speed a call takes twice the drive's time, and intervals count what the drive did in them. Method: by
/// hand: 10 us and 90 us, from 10 ms on 10 us and 180 us.
#[test]
fn a_drive_slows_down() {
    let mut run = scenario(vec![reader("")], us(20_000));
    run.interval = Some(us(10_000));
    run.changes = vec![Change { at: us(10_000), what: What::Speed(50) }];
    let outcome = run_fixed(&run, us(90));
    let calls: Vec<u64> = outcome.clients[0].series.iter().map(|interval| interval.calls).collect();
    assert_eq!(calls, [100, 52]);
    assert_eq!(outcome.drive.series, [100 * 4096, 52 * 4096]);
    run.changes.clear();
    let calls: u64 = run_fixed(&run, us(90)).clients[0].calls;
    assert_eq!(calls, 200);
}

/// Goal: a contract that changes acts from then on. Method: a ceiling of 10 MB/s becomes one of 20 in the middle; the
/// rates of each second.
#[test]
fn a_ceiling_rises() {
    let ceiling = |rate| Contract { max: Limits::both(rate), ..Contract::default() };
    let mut run = scenario(vec![reader("one")], Nanos::from_secs(4));
    run.stack = TABLE.stack("max-none").unwrap();
    run.groups = vec![GroupSpec { name: "one".to_owned(), contract: ceiling(10_000_000) }];
    run.changes = vec![contract(Nanos::from_secs(2), "one", ceiling(20_000_000))];
    run.interval = Some(Nanos::from_secs(1));
    let outcome = run_fixed(&run, us(100));
    let rates: Vec<u64> = outcome.clients[0].series.iter().map(|interval| interval.bytes).collect();
    for (rate, due) in rates.iter().zip([10_000_000u64, 10_000_000, 20_000_000, 20_000_000]) {
        assert!(rate.abs_diff(due) < due / 20, "{rates:?}");
    }
}

/// Goal: what cannot be is refused before the run. Method: a stack that admits minimums is asked for more than the drive
/// has in its worst case, in the middle; a group that is not there.
#[test]
fn impossible_changes_are_refused() {
    let minimum = |min| Contract { min: Some(min), ..Contract::default() };
    let mut run = scenario(vec![reader("one")], us(20_000));
    run.stack = TABLE.stack("complete").unwrap();
    run.groups = vec![GroupSpec { name: "one".to_owned(), contract: minimum(100_000) }];
    let mut changed = |group, min| {
        run.changes = vec![contract(us(10_000), group, minimum(min))];
        simulate_on(&run, Box::new(Fixed::new(us(100), None)), &mut Nobody).map(|_| ())
    };
    assert!(changed("one", 200_000).is_ok());
    assert!(matches!(changed("one", 2_000_000), Err(RunError::Refused(_))));
    assert!(matches!(changed("two", 200_000), Err(RunError::NoGroup(_))));
}
