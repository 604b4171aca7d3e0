//! Faults on purpose: which command meets one, decided by rules and pinned random numbers.
//!
//! This only decides; whoever carries commands out makes it happen. Rules are asked in order, and each that
//! suits a command draws one number, so the same commands in the same order meet the same faults.

use core::ops::Range;

use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

use crate::Command;
use crate::random::Random;

/// Chances are counted in so many.
pub const CHANCES: u32 = 1_000_000;

/// What happens to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It fails with this error number, and nothing is done.
    Status(i32),
    /// Only a part of it is done at first.
    Short,
    /// It is never answered.
    Never,
    /// It is answered so much after it came, at the earliest.
    Delay(Nanos),
    /// It is carried out so much after it came, and answered then.
    Late(Nanos),
}

/// One kind of fault, and whom it meets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What happens.
    pub fault: Fault,
    /// To these operations; to all if there is none.
    pub operations: &'static [Operation],
    /// To commands that touch these sectors. A flush counts as the sector that it begins at.
    pub range: Range<Sectors>,
    /// In how many of [`CHANCES`].
    pub chances: u32,
}

impl Rule {
    fn suits(&self, command: &Command) -> bool {
        let end = Sectors(command.start.0 + command.length.0.max(1));
        (self.operations.is_empty() || self.operations.contains(&command.operation))
            && command.start < self.range.end
            && self.range.start < end
    }
}

/// Rules and the random numbers that decide.
#[derive(Clone, Debug)]
pub struct Faults {
    rules: Vec<Rule>,
    random: Random,
}

impl Faults {
    /// No rule yet.
    pub fn new(seed: u64) -> Self {
        Self { rules: Vec::new(), random: Random::new(seed, 0) }
    }
    /// These rules from now on.
    pub fn set_rules(&mut self, rules: Vec<Rule>) {
        self.rules = rules;
    }
    /// The fault that a command meets, if any.
    pub fn draw(&mut self, command: &Command) -> Option<Fault> {
        for rule in self.rules.iter().filter(|rule| rule.suits(command)) {
            if self.random.below(u64::from(CHANCES)) < u64::from(rule.chances) {
                return Some(rule.fault);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::request::Flags;

    use super::*;

    fn command(operation: Operation, start: u64, length: u64) -> Command {
        let (start, length) = (Sectors(start), Sectors(length));
        Command { id: 0, operation, flags: Flags::NONE, start, length }
    }

    /// Goal: a rule meets what it names and nothing else, as often as it says, and the same way again. Method:
    /// two rules; commands at the borders of a range; ten thousand draws.
    #[test]
    fn rules_meet_whom_they_name() {
        let half = Rule {
            fault: Fault::Never,
            operations: &[Operation::Read],
            range: Sectors(0)..Sectors(u64::MAX),
            chances: CHANCES / 2,
        };
        let always = Rule {
            fault: Fault::Status(5),
            operations: &[Operation::Write, Operation::Flush],
            range: Sectors(8)..Sectors(16),
            chances: CHANCES,
        };
        let mut faults = Faults::new(1);
        faults.set_rules(vec![half, always]);
        let error = Some(Fault::Status(5));
        for (start, length, met) in [(0, 8, None), (0, 9, error), (15, 1, error), (16, 8, None)] {
            assert_eq!(faults.draw(&command(Operation::Write, start, length)), met);
        }
        for (start, met) in [(0, None), (8, error), (16, None)] {
            assert_eq!(faults.draw(&command(Operation::Flush, start, 0)), met);
        }
        assert_eq!(faults.draw(&command(Operation::Discard, 8, 8)), None);
        let mut again = faults.clone();
        let met = |faults: &mut Faults| {
            (0..10_000).filter(|_| faults.draw(&command(Operation::Read, 8, 8)).is_some()).count()
        };
        let count = met(&mut faults);
        assert!((4_800..5_200).contains(&count), "{count} of 10000");
        assert_eq!(met(&mut again), count);
    }
}
