//! Processor time that the host of a virtual machine gives to others while the machine has work for it ("steal").
//!
//! A client that waits for its processor asks for less, whatever the drive and its scheduler do: on a machine that lost 40 % of
//! its time, a random reader with four reads in flight had 1,300 to 2,500 IOPS under Linux, and 9,900 undisturbed. So a
//! measurement is repeated when more than [`STOLEN_MAX`] was taken from it.

use std::fs;

use serde::{Deserialize, Serialize};

/// Most that may be taken, of the time of all processors.
pub const STOLEN_MAX: f64 = 0.01;

/// Time of all processors since the machine started, in ticks (`proc_stat(5)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticks {
    stolen: u64,
    all: u64,
}

impl Ticks {
    /// Until now; nothing where the kernel does not say.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(&text).unwrap_or(Self { stolen: 0, all: 0 })
    }
    /// From the first line, `cpu` with user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of these.
    fn parse(text: &str) -> Option<Self> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = fields.split_whitespace().flat_map(str::parse).take(8).collect();
        Some(Self { stolen: *fields.get(7)?, all: fields.iter().sum() })
    }
    /// The part that was taken since `before`, 0 to 1.
    pub fn since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        self.stolen.saturating_sub(before.stolen) as f64 / all.max(1) as f64
    }
}

/// How often measurements were disturbed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Disturbed {
    /// Measurements that are kept.
    pub runs: u64,
    /// Those that were measured once more.
    pub again: u64,
    /// Those that are kept though they were disturbed.
    pub kept: u64,
    /// Most that was taken from one of these, in percent.
    pub most_percent: f64,
}

impl Disturbed {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.again += other.again;
        self.kept += other.kept;
        self.most_percent = self.most_percent.max(other.most_percent);
    }
    /// In words; nothing if nothing was disturbed.
    pub fn text(&self) -> String {
        let Self { runs, again, kept, most_percent } = self;
        let limit = STOLEN_MAX * 100.0;
        if *again + *kept == 0 {
            return String::new();
        }
        let times = if *again == 1 { "once".into() } else { format!("{again} times") };
        let mut text = format!(
            "A run from which the machine's host took more than {limit:.0} % of the processors' time was repeated: {times}, for \
             {runs} runs."
        );
        if *kept > 0 {
            text +=
                &format!(" Of these runs, {kept} stayed disturbed, by up to {most_percent:.1} %.");
        }
        text
    }
}

/// Runs it until it is undisturbed, at most `tries` times, and tells `disturbed`; what the least disturbed run gave, and the part that
/// was taken from it.
pub fn undisturbed<T, E>(
    tries: u64,
    disturbed: &mut Disturbed,
    mut run: impl FnMut() -> Result<T, E>,
) -> Result<(T, f64), E> {
    least_disturbed(tries, disturbed, || {
        let before = Ticks::now();
        let got = run()?;
        Ok((got, Ticks::now().since(before)))
    })
}

/// The same for runs that say themselves what was taken from them.
pub fn least_disturbed<T, E>(
    tries: u64,
    disturbed: &mut Disturbed,
    mut run: impl FnMut() -> Result<(T, f64), E>,
) -> Result<(T, f64), E> {
    let mut best = run()?;
    let mut tried = 1;
    while best.1 > STOLEN_MAX && tried < tries {
        let other = run()?;
        tried += 1;
        disturbed.again += 1;
        if other.1 < best.1 {
            best = other;
        }
    }
    disturbed.runs += 1;
    if best.1 > STOLEN_MAX {
        disturbed.kept += 1;
        disturbed.most_percent = disturbed.most_percent.max(best.1 * 100.0);
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Goal: what was taken is the eighth number's part of the first eight, and a kernel without it says nothing. Method: by hand.
    #[test]
    fn ticks_are_read() {
        let read = |text: &str| Ticks::parse(text);
        let before = read("cpu  100 0 50 800 40 0 5 5 60 7\ncpu0 1 2 3").unwrap();
        let after = read("cpu  150 0 70 810 40 0 5 25 99 9\ncpu0 1 2 3").unwrap();
        assert_eq!((before.stolen, before.all), (5, 1000));
        assert!((after.since(before) - 0.2).abs() < 1e-9);
        assert!(before.since(before) < 1e-9);
        assert_eq!([read(""), read("cpu  1 2 3\n"), read("intr 1 2 3 4 5 6 7 8")], [None; 3]);
        assert!(Ticks::now().all > 0);
    }

    /// Goal: a disturbed run is repeated until one is not, but not for ever, and the least disturbed one is kept. Method: runs from which
    /// these parts were taken; every one gives its number.
    #[test]
    fn disturbed_runs_are_repeated() {
        let mut disturbed = Disturbed::default();
        let mut run = |taken: &[f64]| {
            let mut all = taken.iter().copied().enumerate();
            let next = || Ok::<_, Infallible>(all.next().expect("no more tries than allowed"));
            least_disturbed(3, &mut disturbed, next).map(|(run, _)| run).unwrap()
        };
        assert_eq!([run(&[0.0]), run(&[0.2, 0.009]), run(&[0.04, 0.02, 0.03])], [0, 1, 1]);
        let (again, kept, most_percent) = (3, 1, 2.0);
        assert_eq!(disturbed, Disturbed { runs: 3, again, kept, most_percent });
        let text = disturbed.text();
        assert!(text.contains("3 times, for 3 runs. Of these runs, 1"), "{text}");
        assert_eq!(Disturbed::default().text(), "");
        let failed = least_disturbed(3, &mut disturbed, || Err::<((), f64), _>("no drive"));
        assert_eq!((failed, disturbed.runs), (Err("no drive"), 3));
    }
}
