//! Measurements on a machine whose host takes processor time from it: they are repeated.

use serde::{Deserialize, Serialize};

use crate::text_table::counted;

/// Most that may be taken, of the time of all processors.
pub const STOLEN_MAX: f64 = 0.01;

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
             {}.",
            counted(*runs, "run")
        );
        if *kept > 0 {
            text +=
                &format!(" Of these runs, {kept} stayed disturbed, by up to {most_percent:.1} %.");
        }
        text
    }
}

/// Runs it until it is undisturbed, at most `tries` times, and tells `disturbed`. A run says which part of the time was taken from it;
/// the least disturbed one is kept.
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
