//! Fault injection: decides by rules and reproducible random numbers which command gets which fault.
//!
//! This module only decides; the caller that executes commands produces the fault. Rules are checked in order, and
//! each rule that matches a command draws one number, so the same commands in the same order get the same faults.

use core::ops::Range;

use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

use crate::Command;
use crate::random::Random;

/// The denominator of [`Rule::chances`].
pub(crate) const CHANCES: u32 = 1_000_000;

/// What happens to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It fails with this error number and is not executed.
    Status(i32),
    /// Only a part of it is executed at first.
    Short,
    /// It never completes.
    Never,
    /// It completes at the earliest this long after its arrival.
    Delay(Nanos),
    /// It is executed this long after its arrival, and completes then.
    Late(Nanos),
}

/// A kind of fault, and the commands to which it applies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// The operations to which it applies; all operations if empty.
    pub operations: &'static [Operation],
    /// The sectors to which it applies: commands that overlap this range. A flush counts as its start sector.
    pub range: Range<Sectors>,
    /// The probability, in units of 1 / [`CHANCES`].
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

/// Rules, and the random numbers that decide.
#[derive(Clone, Debug)]
pub struct Faults {
    rules: Vec<Rule>,
    random: Random,
}

impl Faults {
    /// Without rules.
    pub fn new(seed: u64) -> Self {
        Self { rules: Vec::new(), random: Random::new(seed, 0) }
    }
    /// Replaces the rules.
    pub fn set_rules(&mut self, rules: Vec<Rule>) {
        self.rules = rules;
    }
    /// The fault that applies to a command, if any.
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
    fn rules_apply_to_what_they_name() {
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
