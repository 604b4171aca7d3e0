//! Worked examples of synchronous writes that are gathered beside reads that are far behind.

use super::*;

/// A reader and a writer, each with [`MINIMUM`], after a read that was far behind.
fn gathering() -> (Clocks, EntityId, EntityId) {
    let (mut clocks, reader) = clocks();
    let writer = EntityId::group(GroupId::from_bits(2));
    clocks.set(Instant::ZERO, writer, MINIMUM, Class::BestEffort);
    clocks.on_far_read(at(10));
    assert!(clocks.gather(at(11)) && !clocks.gather(at(5_010)));
    (clocks, reader, writer)
}
/// A write that is dispatched and completed at once, and is followed by the next one.
fn write(clocks: &mut Clocks, writer: EntityId, now: Instant) {
    let command = Command { kind: Kind::Gathered, ..URGENT };
    clocks.dispatch(now, writer, command, true);
    clocks.complete(now, writer, command, Nanos::ZERO);
    clocks.arrive(now, writer, Kind::Gathered);
}

/// Goal: gathered writes of a group go one after the other until the group is no longer behind, and a read waits that
/// is behind meanwhile. Method: a writer that sends 4 KiB at each completion, due after 10 ms; each is worth 1 ms.
#[test]
fn gathered_writes_go_together() {
    let (mut clocks, reader, writer) = gathering();
    clocks.arrive(at(10), writer, Kind::Gathered);
    assert_eq!((clocks.gate(at(19)), clocks.next_due(at(19))), (Gate::Open, Some(at(20))));
    assert!(matches!(clocks.gate(at(20)), Gate::Due(id, _) if id == writer));
    write(&mut clocks, writer, at(20));
    clocks.arrive(at(20), reader, Kind::Urgent);
    for behind in (1..=9).rev() {
        let due = Gate::Due(writer, Nanos::from_millis(behind));
        assert_eq!(clocks.gate(at(20)), due, "the writer's turn");
        write(&mut clocks, writer, at(20));
    }
    assert_eq!(clocks.gate(at(20)), Gate::Due(writer, Nanos::ZERO));
    write(&mut clocks, writer, at(20));
    assert_eq!(clocks.gate(at(20)), Gate::Due(reader, Nanos::ZERO), "the turn is over");
}

/// Goal: the turn of gathered writes is bounded. Method: the writer is behind by half a second and its writes keep it so;
/// a read is queued and behind, and goes after 20 ms.
#[test]
fn a_turn_of_gathered_writes_ends() {
    let (mut clocks, reader, writer) = gathering();
    clocks.arrive(at(10), writer, Kind::Gathered);
    write(&mut clocks, writer, at(510));
    clocks.arrive(at(510), reader, Kind::Urgent);
    for ms in 510..530 {
        assert!(matches!(clocks.gate(at(ms)), Gate::Due(id, _) if id == writer), "{ms}");
        write(&mut clocks, writer, at(ms));
    }
    assert_eq!(clocks.gate(at(530)), Gate::Due(reader, Nanos::from_millis(20)));
}
