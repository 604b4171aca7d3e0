//! Bounds of what is kept, tables and the picture, by hand.

use super::line::*;
use super::{load, stacks_picture, stacks_tables};

/// A run that keeps everything.
fn line() -> Line {
    Line {
        drive: "a".to_owned(),
        state: STATES[0].to_owned(),
        load: load::LOADS[3].name.to_owned(),
        stack: OURS.to_owned(),
        minimum: Some(10.0),
        bound: Some(1.0),
        wanted: 100.0,
        reader: 10.0,
        reads: 60.0,
        writes: 40.0,
        mean: 0.4,
        p99: 0.9,
        ..Line::default()
    }
}

/// Goal: what is kept has a bound, and what a load does not ask for is not judged. Method: a run on each side of each bound.
#[test]
fn aspects_have_bounds() {
    let broken = |change: fn(&mut Line)| {
        let mut line = line();
        change(&mut line);
        let broken = Aspect::ALL.into_iter().filter(|aspect| aspect.is_broken(&line));
        broken.collect::<Vec<_>>()
    };
    assert_eq!(broken(|_| {}), []);
    assert_eq!(broken(|line| line.reader = 9.6), [Aspect::Minimum]);
    assert_eq!(broken(|line| line.p99 = 1.1), [Aspect::Latency]);
    assert_eq!(broken(|line| line.writes = 34.0), [Aspect::Total]);
    assert_eq!(broken(|line| line.jain = Some(0.9)), [Aspect::Shares]);
    assert_eq!(broken(|line| (line.jain, line.share) = (Some(1.0), Some(0.2))), [Aspect::Shares]);
    assert_eq!(broken(|line| (line.minimum, line.reader) = (None, 0.0)), []);
}

/// Goal: the worst drive comes first, with the cause. Method: one drive that keeps all, and one that breaks two things.
#[test]
fn the_worst_drive_is_first() {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (drive, reads) in [("a", 60.0), ("b", 20.0)] {
        for stack in STACKS {
            let reads = if stack == OURS { reads } else { 60.0 };
            let (drive, stack) = (drive.to_owned(), stack.to_owned());
            writer.serialize(Line { drive, stack, reads, ..line() }).unwrap();
        }
    }
    let csv = String::from_utf8(writer.into_inner().unwrap()).unwrap();
    let [kept, loads, worst] = stacks_tables(&csv).unwrap().map(|table| table.1);
    assert!(kept.contains("| fresh | `promise` | 2 | 2 | 2 | 1 | 1 |"), "{kept}");
    assert!(loads.contains("| database, backup, ingest | fresh | minimum | 2 | - |"), "{loads}");
    assert!(loads.contains("| database, backup, ingest | fresh | total | 1 | `b`: all"), "{loads}");
    let first = worst.lines().nth(2).unwrap();
    assert!(
        first.starts_with("| `b` | 1 | 0 | database, backup, ingest, fresh: all have 0.6 of"),
        "{worst}"
    );
    assert!(first.contains("reads have 20 of the 60 MB/s without control"), "{worst}");
    assert_eq!(stacks_picture(&csv).unwrap().matches("<circle").count(), 4 * 2 * STACKS.len());
    assert!(stacks_tables("a,b\n1,2\n").is_err());
}
