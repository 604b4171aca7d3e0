//! Commands in the back end, and those that it does not complete in time.
//!
//! A command that takes longer than the timeout is *late*: the engine completes its requests with an error, but the
//! command keeps its slot at the drive and its memory until the back end completes it, which may be never.
//!
//! Time in which the server itself does not run (SIGSTOP, a virtual machine that is paused) is not the drive's: between two turns
//! at most [`Commands::gap`] counts, and the server takes a turn at least that often while there are commands. A command is late
//! only in the turn after the one that used its time up, so that a completion of the meantime is taken first.

use iofair_core::id::CommandId;
use iofair_core::time::{Instant, Nanos};
use slab::Slab;

/// What counts of the time between two turns is never more than this.
const GAP_MAX: Nanos = Nanos::from_secs(1);
/// No command.
const NIL: usize = usize::MAX;

#[derive(Debug)]
struct Command {
    /// The controller's name for it.
    command: CommandId,
    started: Instant,
    /// How long the server had run then.
    since: Nanos,
    is_flush: bool,
    /// Neighbours in the order of starting; late ones have left it.
    before: usize,
    after: usize,
    /// Tags of the pieces whose memory it uses though the controller knows it no more.
    late: Option<Vec<u64>>,
}

/// What a completion is for.
#[derive(Debug)]
pub(super) enum Timing {
    /// A command of the controller.
    InTime(CommandId),
    /// A late one, and the tags of the pieces that it stood for.
    Late(Vec<u64>),
}

/// All commands that the back end has.
#[derive(Debug)]
pub(super) struct Commands {
    live: Slab<Command>,
    first: usize,
    last: usize,
    late: u32,
    pub(super) timeout: Nanos,
    /// Time in which the server ran, up to the last turn.
    ran: Nanos,
    turned: Instant,
}

impl Commands {
    pub(super) fn new(timeout: Nanos) -> Self {
        let (ran, turned) = (Nanos::ZERO, Instant::ZERO);
        Self { live: Slab::new(), first: NIL, last: NIL, late: 0, timeout, ran, turned }
    }
    /// What counts of the time between two turns, at most.
    fn gap(&self) -> Nanos {
        GAP_MAX.min(Nanos((self.timeout.0 / 4).max(1)))
    }
    /// Counts the time since the last turn.
    pub(super) fn turn(&mut self, now: Instant) {
        self.ran += now.since(self.turned).min(self.gap());
        self.turned = self.turned.max(now);
    }
    /// Late ones.
    pub(super) fn late(&self) -> u32 {
        self.late
    }
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
    /// A command goes to the back end; returns the name that it has there.
    pub(super) fn start(&mut self, now: Instant, command: CommandId, is_flush: bool) -> usize {
        let (before, after) = (self.last, NIL);
        let (started, since, late) = (now, self.ran, None);
        let new = Command { command, started, since, is_flush, before, after, late };
        let key = self.live.insert(new);
        match before {
            NIL => self.first = key,
            before => self.live[before].after = key,
        }
        self.last = key;
        key
    }
    /// When a command was started, if it is a flush.
    pub(super) fn flush_started(&self, key: usize) -> Option<Instant> {
        let command = &self.live[key];
        command.is_flush.then_some(command.started)
    }
    /// The back end completed a command.
    pub(super) fn complete(&mut self, key: usize) -> Timing {
        if self.live[key].late.is_none() {
            self.unlink(key);
        }
        let Command { command, late, .. } = self.live.remove(key);
        match late {
            None => Timing::InTime(command),
            Some(pieces) => {
                self.late -= 1;
                Timing::Late(pieces)
            }
        }
    }
    /// The time that the next command to be late still has.
    fn left(&self) -> Option<Nanos> {
        let command = self.live.get(self.first)?;
        Some((command.since + self.timeout).saturating_sub(self.ran))
    }
    /// When to take a turn for the next command that may be late.
    pub(super) fn next_late(&self) -> Option<Instant> {
        self.left().map(|left| self.turned + left.min(self.gap()))
    }
    /// The next command that was late at the last turn.
    pub(super) fn take_late(&mut self) -> Option<(usize, CommandId)> {
        let key = self.first;
        self.left().filter(|left| *left == Nanos::ZERO)?;
        self.unlink(key);
        self.late += 1;
        self.live[key].late = Some(Vec::new());
        Some((key, self.live[key].command))
    }
    /// A late command uses the memory of this piece.
    pub(super) fn keeps(&mut self, key: usize, tag: u64) {
        self.live[key].late.get_or_insert_default().push(tag);
    }
    fn unlink(&mut self, key: usize) {
        let Command { before, after, .. } = self.live[key];
        match before {
            NIL => self.first = after,
            before => self.live[before].after = after,
        }
        match after {
            NIL => self.last = before,
            after => self.live[after].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns at each of these moments.
    fn run(commands: &mut Commands, moments: std::ops::Range<u64>) {
        moments.for_each(|moment| commands.turn(Instant(moment)));
    }

    /// Goal: commands are late in the order in which they started, unless they were completed, and a late one
    /// stays until its completion. Method: four commands, one completed from each place of the queue.
    #[test]
    fn commands_are_late_in_their_order() {
        let mut commands = Commands::new(Nanos(10));
        let mut start = |i: u64| {
            commands.turn(Instant(i));
            commands.start(Instant(i), CommandId::from_bits(100 + i), false)
        };
        let keys: Vec<usize> = (0..4).map(&mut start).collect();
        assert!(matches!(commands.complete(keys[1]), Timing::InTime(id) if id.to_bits() == 101));
        assert_eq!(commands.next_late(), Some(Instant(5)), "a quarter of the timeout");
        run(&mut commands, 3..13);
        assert_eq!(commands.take_late(), Some((keys[0], CommandId::from_bits(100))));
        commands.keeps(keys[0], 7);
        assert_eq!(commands.take_late(), Some((keys[2], CommandId::from_bits(102))));
        assert_eq!((commands.take_late(), commands.late()), (None, 2));
        assert!(matches!(commands.complete(keys[3]), Timing::InTime(id) if id.to_bits() == 103));
        assert_eq!(commands.next_late(), None);
        match commands.complete(keys[0]) {
            Timing::Late(pieces) => assert_eq!(pieces, [7]),
            other => panic!("{other:?}"),
        }
        assert!(matches!(commands.complete(keys[2]), Timing::Late(_)) && commands.is_empty());
        assert_eq!(
            (commands.start(Instant(20), CommandId::from_bits(1), false), commands.late()),
            (keys[2], 0)
        );
        assert_eq!(commands.next_late(), Some(Instant(14)));
    }

    /// Goal: a pause of the server is not the drive's time, and a command that was due in it is late only in the turn after. Method:
    /// pauses of many times the timeout, before and after half of it has passed.
    #[test]
    fn a_pause_is_not_the_drive_s_time() {
        let mut commands = Commands::new(Nanos(100));
        commands.turn(Instant(1000));
        let key = commands.start(Instant(1000), CommandId::from_bits(1), false);
        for (now, next) in [(9000, 9025), (9025, 9050), (9040, 9065), (99_000, 99_010)] {
            assert_eq!(commands.take_late(), None);
            commands.turn(Instant(now));
            assert_eq!(commands.next_late(), Some(Instant(next)), "{now}");
        }
        assert_eq!(commands.take_late(), None);
        commands.turn(Instant(199_000));
        assert_eq!(
            commands.next_late(),
            Some(Instant(199_000)),
            "at once, after a look at what is complete"
        );
        assert_eq!(commands.take_late(), Some((key, CommandId::from_bits(1))));
    }
}
