//! Commands in the back end, and those that it does not complete in time.
//!
//! A command that takes longer than the timeout is *late*: the engine completes its requests with an error, but the
//! command keeps its slot at the drive and its memory until the back end completes it, which may be never.

use iofair_core::id::CommandId;
use iofair_core::time::{Instant, Nanos};
use slab::Slab;

/// No command.
const NIL: usize = usize::MAX;

#[derive(Debug)]
struct Command {
    /// The controller's name for it.
    command: CommandId,
    started: Instant,
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
}

impl Commands {
    pub(super) fn new(timeout: Nanos) -> Self {
        Self { live: Slab::new(), first: NIL, last: NIL, late: 0, timeout }
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
        let (started, late) = (now, None);
        let key = self.live.insert(Command { command, started, is_flush, before, after, late });
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
    /// When the next command is late.
    pub(super) fn next_late(&self) -> Option<Instant> {
        self.live.get(self.first).map(|command| command.started + self.timeout)
    }
    /// The next command that is late by now.
    pub(super) fn take_late(&mut self, now: Instant) -> Option<(usize, CommandId)> {
        let key = self.first;
        self.next_late().filter(|due| *due <= now)?;
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

    /// Goal: commands are late in the order in which they started, unless they were completed, and a late one
    /// stays until its completion. Method: four commands, one completed from each place of the queue.
    #[test]
    fn commands_are_late_in_their_order() {
        let mut commands = Commands::new(Nanos(10));
        let keys: Vec<usize> = (0..4)
            .map(|i| commands.start(Instant(i), CommandId::from_bits(100 + i), false))
            .collect();
        assert!(matches!(commands.complete(keys[1]), Timing::InTime(id) if id.to_bits() == 101));
        assert_eq!(commands.next_late(), Some(Instant(10)));
        assert_eq!(commands.take_late(Instant(9)), None);
        assert_eq!(commands.take_late(Instant(12)), Some((keys[0], CommandId::from_bits(100))));
        commands.keeps(keys[0], 7);
        assert_eq!(commands.take_late(Instant(12)), Some((keys[2], CommandId::from_bits(102))));
        assert_eq!((commands.take_late(Instant(12)), commands.late()), (None, 2));
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
        assert_eq!(commands.next_late(), Some(Instant(30)));
    }
}
