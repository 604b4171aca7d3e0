//! The file system's journal, as ext3 and ext4 have it: what `fdatasync` waits for besides its data, done by
//! a process that is not the one that waits.
//!
//! Commits are one after the other. One writes a descriptor and a metadata block for each of those that
//! wait, then, when these are completed, the commit record; with barriers a flush lies before the record and
//! one after it. Whoever asks meanwhile waits for the next commit, all of them together (Linux
//! `fs/jbd2/commit.c`, in brief: data were written by their owners before they asked, nothing is written
//! to its final place, the journal is never full).
//!
//! Because the journal's process has a queue and a group of its own, a policy that keeps the drive
//! waiting for the one keeps it from the other, on whom the first depends.

use iofair_core::id::ClientId;
use iofair_core::request::{Flags, Operation};
use iofair_core::unit::Sectors;

use crate::engine::layout::BLOCK;
use crate::engine::{Engine, NewRequest};
use crate::sim::Token;

/// Size of the journal, as mke2fs makes it on disks of this size: 128 MiB.
const SIZE: u64 = (128 << 20) / 512;
/// Most waiting processes whose metadata one request takes: it is at most 128 KiB long.
const BLOCKS_MAX: u64 = 32;

/// What a commit waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing to do.
    Idle,
    /// Descriptor and metadata.
    Blocks,
    /// Everything before the record is made durable.
    FlushBefore,
    /// The commit record.
    Record,
    /// The record is made durable.
    FlushAfter,
}

/// Setup of a journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalSetup {
    pub(crate) actor: u32,
    /// Its process.
    pub(crate) client: ClientId,
    /// Where it lies.
    pub(crate) start: Sectors,
    /// Whether there are flushes around the record.
    pub(crate) barrier: bool,
}

/// The journal of a run.
#[derive(Debug)]
pub(crate) struct Journal {
    setup: JournalSetup,
    stage: Stage,
    /// Next block of the journal.
    next: u64,
    /// The processes that the present commit is for.
    served: Vec<Token>,
    /// The processes that asked for a commit since it began.
    waiting: Vec<Token>,
    /// Requests of the present stage in flight.
    under_way: u32,
}

impl Journal {
    pub(crate) fn new(setup: JournalSetup) -> Self {
        let (served, waiting) = (Vec::new(), Vec::new());
        Self { setup, stage: Stage::Idle, next: 0, served, waiting, under_way: 0 }
    }

    /// Takes up what processes asked for.
    pub(crate) fn collect(&mut self, engine: &mut Engine<'_>) {
        self.waiting.append(&mut engine.commits);
        if self.stage == Stage::Idle && !self.waiting.is_empty() {
            std::mem::swap(&mut self.served, &mut self.waiting);
            self.stage = Stage::Blocks;
            self.write((1 + self.served.len() as u64).min(BLOCKS_MAX), engine);
        }
    }

    /// One of its requests is completed.
    pub(crate) fn on_done(&mut self, engine: &mut Engine<'_>) {
        self.under_way -= 1;
        if self.under_way > 0 {
            return;
        }
        match (self.stage, self.setup.barrier) {
            (Stage::Blocks, true) => self.flush(Stage::FlushBefore, engine),
            (Stage::Blocks, false) | (Stage::FlushBefore, _) => {
                self.stage = Stage::Record;
                self.write(1, engine);
            }
            (Stage::Record, true) => self.flush(Stage::FlushAfter, engine),
            (Stage::Record, false) | (Stage::FlushAfter, _) => {
                self.stage = Stage::Idle;
                for token in self.served.drain(..) {
                    engine.wake(engine.now, token);
                }
            }
            (Stage::Idle, _) => unreachable!("an idle journal has sent nothing"),
        }
    }

    fn write(&mut self, blocks: u64, engine: &mut Engine<'_>) {
        if (self.next + blocks) * BLOCK > SIZE {
            self.next = 0;
        }
        let start = self.setup.start + Sectors(self.next * BLOCK);
        self.next += blocks;
        self.send(Operation::Write, start, Sectors(blocks * BLOCK), engine);
    }
    fn flush(&mut self, stage: Stage, engine: &mut Engine<'_>) {
        self.stage = stage;
        self.send(Operation::Flush, Sectors::ZERO, Sectors::ZERO, engine);
    }
    fn send(
        &mut self,
        operation: Operation,
        start: Sectors,
        length: Sectors,
        engine: &mut Engine<'_>,
    ) {
        let JournalSetup { actor, client, .. } = self.setup;
        let flags = match operation {
            Operation::Flush => Flags::NONE,
            _ => Flags::SYNC.with(Flags::METADATA),
        };
        let token = Token { actor, slot: 0 };
        self.under_way =
            engine.submit(NewRequest { token, client, operation, flags, start, length });
    }
}

/// Where the journal lies on a drive: in its middle, as mke2fs has it.
pub(crate) fn place(capacity: Sectors) -> Sectors {
    Sectors(capacity.0 / 2 / BLOCK * BLOCK)
}
