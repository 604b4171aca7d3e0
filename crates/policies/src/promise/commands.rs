//! The time that a command takes the drive whatever its length.
//!
//! A volume of a cloud or of a hypervisor allows a number of commands a second, whatever their length. While the drive has more
//! commands than it serves at once, the busy time of a window is shared by its commands and its bytes:
//!
//! ```text
//! busy time = command * commands + byte * bytes          least squares over windows of 100 ms, which fade
//! ```
//!
//! A window counts if its commands took at least three times the shortest time of a command of their direction on average, and no
//! flush was in flight. Where the mean length is nearly the same in all windows, the two cannot be told apart, and what is known is
//! kept, but at most the busy time divided by the commands. If that is long, requests are cut into longer pieces in one window,
//! and then again after ever more windows. The time of a command must halve the mean square that is left unexplained, and is
//! dropped if it no longer explains a fifth of it: what a drive writes out meanwhile may look alike. Times below [`SLOW`] are
//! neglected: they are those of flash.

use super::shares::Side;
use iofair_core::time::Nanos;

/// Busy time of a window.
const WINDOW: Nanos = Nanos::from_millis(100);
/// Commands wait for each other if they take this many times the shortest time.
const WAITS: u64 = 3;
/// The shortest times grow by this part in each window.
const GROWS: u64 = 1024;
/// Older windows fade by this part with each window.
const FADES: i128 = 8;
/// The two costs can be separated if the determinant is at least this part.
const DISTINCT: i128 = 64;
/// Fewer commands in a window show nothing.
const COMMANDS_MIN: u64 = 8;
/// A shorter time per command is neglected.
const SLOW: Nanos = Nanos::from_micros(200);
/// Windows between two with longer pieces: at first, and at most.
const PAUSE: [u32; 2] = [4, 64];
/// After this many windows in a row with more time per command, the length of commands may matter.
const SLOW_WINDOWS: u32 = 3;
/// Unit of bytes in the sums.
const UNIT: u64 = 4096;

/// Sums over windows: products of commands, units of bytes, and time.
#[derive(Clone, Copy, Default, Debug)]
struct Sums {
    commands: i128,
    units: i128,
    both: i128,
    commands_time: i128,
    units_time: i128,
    time: i128,
}

/// Measures the time of a command, and of a byte.
#[derive(Debug)]
pub(super) struct Commands {
    sums: Sums,
    /// The present window: busy time, commands of each direction and their times in the drive, and bytes.
    busy: Nanos,
    count: [u64; 2],
    took: [u128; 2],
    bytes: u64,
    flushed: bool,
    /// The shortest time of a command of each direction.
    shortest: [Option<Nanos>; 2],
    /// How many of the last windows in a row had few commands for their time.
    slow: u32,
    /// Time per command, and per [`UNIT`].
    command: Nanos,
    unit: Nanos,
    /// Whether pieces are longer in this window, windows until the next such window, and between two of them.
    tries: bool,
    tries_in: u32,
    pause: u32,
    /// Whether there may be such windows.
    may_try: bool,
}

impl Default for Commands {
    fn default() -> Self {
        Self {
            sums: Sums::default(),
            busy: Nanos::ZERO,
            count: [0; 2],
            took: [0; 2],
            bytes: 0,
            flushed: false,
            shortest: [None; 2],
            slow: 0,
            command: Nanos::ZERO,
            unit: Nanos::ZERO,
            tries: false,
            tries_in: 0,
            pause: 0,
            may_try: true,
        }
    }
}

impl Commands {
    /// Time of a command whatever its length, or zero if that can be neglected.
    pub(super) fn command(&self) -> Nanos {
        if self.command >= SLOW { self.command } else { Nanos::ZERO }
    }
    /// Whether the last windows had so few commands for their time that the time of a command may matter.
    pub(super) fn is_slow(&self) -> bool {
        self.slow > 0
    }
    /// The length that takes as long by its bytes as a command does anyway, if the latter cannot be neglected.
    pub(super) fn even_length(&self) -> u64 {
        let command = self.command();
        match command {
            _ if self.tries => u64::MAX,
            Nanos::ZERO => 0,
            _ => (command.0 / self.unit.0.max(1)).saturating_mul(UNIT),
        }
    }
    /// Pieces are never longer only to measure what that gives: a reader has a latency contract.
    pub(super) fn keep_pieces(&mut self) {
        (self.may_try, self.tries) = (false, false);
    }
    /// The shortest time of a command in this direction, for some seconds; zero if there was none.
    pub(super) fn shortest(&self, side: Side) -> Nanos {
        self.shortest[usize::from(side != Side::Read)].unwrap_or_default()
    }
    /// A flush is in flight in this window.
    pub(super) fn on_flush(&mut self) {
        self.flushed = true;
    }
    /// The drive had commands for this time.
    pub(super) fn on_busy(&mut self, time: Nanos) {
        self.busy += time;
    }
    /// A command that moved data was completed after this time in the drive. Returns whether a window ends.
    pub(super) fn on_complete(&mut self, side: Side, bytes: u64, took: Nanos) -> bool {
        let side = usize::from(side != Side::Read);
        self.count[side] += 1;
        self.took[side] += u128::from(took.0);
        self.bytes += bytes;
        let shortest = self.shortest[side].unwrap_or(took);
        self.shortest[side] = Some(shortest.min(took));
        let ends = self.busy >= WINDOW;
        if ends {
            self.end_window();
        }
        ends
    }
    fn end_window(&mut self) {
        let busy = core::mem::take(&mut self.busy);
        let (count, took) = (core::mem::take(&mut self.count), core::mem::take(&mut self.took));
        let bytes = core::mem::take(&mut self.bytes);
        let flushed = core::mem::take(&mut self.flushed);
        let shortest = self.shortest.map(|time| u128::from(time.unwrap_or_default().0));
        let alone: u128 = (0..2).map(|side| u128::from(count[side]) * shortest[side]).sum();
        for known in self.shortest.iter_mut().flatten() {
            *known = *known + *known / GROWS;
        }
        let all = count[0] + count[1];
        let tried = core::mem::take(&mut self.tries);
        self.slow = if busy / all.max(1) >= SLOW { self.slow.saturating_add(1) } else { 0 };
        if flushed || all < COMMANDS_MIN || took[0] + took[1] < alone * u128::from(WAITS) {
            self.tries_in = if tried { self.pause.max(PAUSE[0]) } else { self.tries_in };
            return;
        }
        self.add(all.into(), (bytes / UNIT).into(), busy.0.into());
        self.command = self.command.min(busy / all);
        match (self.solve(), tried) {
            (true, _) => (self.pause, self.tries_in) = (PAUSE[0], PAUSE[0]),
            (false, true) => {
                self.pause = (self.pause * 2).clamp(PAUSE[0], PAUSE[1]);
                self.tries_in = self.pause;
            }
            (false, false) if self.slow >= SLOW_WINDOWS && self.may_try => {
                self.tries_in = self.tries_in.saturating_sub(1);
                self.tries = self.tries_in == 0;
            }
            (false, false) => {}
        }
    }
    fn add(&mut self, commands: i128, units: i128, time: i128) {
        let sums = &mut self.sums;
        for (sum, more) in [
            (&mut sums.commands, commands * commands),
            (&mut sums.units, units * units),
            (&mut sums.both, commands * units),
            (&mut sums.commands_time, commands * time),
            (&mut sums.units_time, units * time),
            (&mut sums.time, time * time),
        ] {
            *sum += more - *sum / FADES;
        }
    }
    /// Separates the time of commands and that of bytes, if that is possible.
    fn solve(&mut self) -> bool {
        let Sums { commands, units, both, commands_time, units_time, time: all_time } = self.sums;
        let all = commands * units;
        let determinant = all - both * both;
        if determinant < all / DISTINCT || determinant == 0 {
            return false;
        }
        let command = (commands_time * units - units_time * both) / determinant;
        let unit = (units_time * commands - commands_time * both) / determinant;
        let (command, unit) = match (command, unit) {
            (..=0, _) => (0, units_time / units.max(1)),
            (_, ..=0) => (commands_time / commands.max(1), 0),
            found => found,
        };
        let time = |ns: i128| Nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        // Mean squares that both costs leave, and that the cost of bytes alone leaves.
        let left = (all_time - command * commands_time - unit * units_time).max(1);
        let left_by_bytes = all_time - units_time * units_time / units.max(1);
        if left_by_bytes < 2 * left {
            let has_none = left_by_bytes < left + left / 4;
            self.command = if has_none { Nanos::ZERO } else { self.command };
            return true;
        }
        (self.command, self.unit) = (time(command), time(unit));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// A drive that serves one command after the other: completes commands of these lengths in turn, each of which waits for
    /// `depth` others, for 2 s.
    fn run(commands: &mut Commands, lengths: &[u64], depth: u64, time: impl Fn(u64) -> Nanos) {
        let mut passed = Nanos::ZERO;
        for length in lengths.iter().cycle() {
            let takes = time(*length);
            passed += takes;
            commands.on_busy(takes);
            commands.on_complete(Side::Read, *length, takes * depth);
            if passed > Nanos::from_secs(2) {
                return;
            }
        }
    }
    const KIB: u64 = 1024;
    const US: fn(u64) -> Nanos = Nanos::from_micros;

    /// Goal: a drive with a limit on commands is found, and that its bytes cost little. Method: 1 ms for each command and 1 us
    /// for each 4 KiB; mostly short ones for 2 s, then mostly long ones.
    #[test]
    fn a_limit_on_commands_is_found() {
        let (mut commands, time) = (Commands::default(), |length: u64| US(1000 + length / 4096));
        run(&mut commands, &[32 * KIB], 1, time);
        run(&mut commands, &[32 * KIB], 8, time);
        assert_eq!(commands.command(), Nanos::ZERO, "it may be the bytes");
        run(&mut commands, &[64 * KIB, 32 * KIB, 64 * KIB], 8, time);
        let found = commands.command();
        assert!((US(900)..US(1100)).contains(&found), "{found:?}");
        assert!(commands.even_length() > 1024 * KIB, "{}", commands.even_length());
    }

    /// Goal: where all commands are equally long, longer ones are tried now and then, ever more rarely, and never if a reader has a
    /// latency contract. Method: a minute of commands of 32 KiB that take 1 ms each, since all requests are that short.
    #[test]
    fn longer_commands_are_tried_rarely() {
        let mut commands = Commands::default();
        let mut tries = Vec::new();
        for window in 0..600 {
            (0..100).for_each(|_| {
                commands.on_busy(US(1000));
                let took = US(if window == 0 { 1000 } else { 4000 });
                commands.on_complete(Side::Read, 32 * KIB, took);
            });
            if commands.even_length() > 0 {
                tries.push(window);
            }
        }
        let pauses: Vec<i32> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses[..5], [5, 9, 17, 33, 65], "{tries:?}");
        assert!(pauses[5..].iter().all(|pause| *pause == 65), "{tries:?}");
        commands.keep_pieces();
        run(&mut commands, &[32 * KIB], 8, |_| US(1000));
        assert_eq!(commands.even_length(), 0);
    }

    /// Goal: flash is not taken for such a drive. Method: 5 us for each command and 20 us for each 4 KiB, of mixed lengths;
    /// then long latencies of few requests.
    #[test]
    fn flash_has_no_limit_on_commands() {
        let (mut commands, time) = (Commands::default(), |length: u64| US(5 + length / 4096 * 20));
        run(&mut commands, &[32 * KIB, 4 * KIB], 1, time);
        run(&mut commands, &[32 * KIB, 4 * KIB], 8, time);
        run(&mut commands, &[4 * KIB], 8, time);
        assert_eq!(commands.command(), Nanos::ZERO);
        run(&mut commands, &[4 * KIB, 64 * KIB, 4 * KIB], 1, |_| US(1000));
        assert_eq!(commands.command(), Nanos::ZERO, "the drive had no more");
    }
}
