//! The evidence while it is measured. Every finished experiment is saved in a file beside the evidence, so that an
//! interrupted comparison goes on where it was; at the end, what was measured replaces the same experiments in the
//! evidence.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use iofair_experiments::experiment::Experiment;

use super::evidence::{Described, Evidence, Part, Row, fingerprint};

/// The system that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum World {
    /// The kernel.
    Kernel,
    /// The kernel's, which are added to those that the file has.
    Added,
    /// The live server.
    Live,
}

/// Evidence that is being measured.
pub struct Store {
    file: PathBuf,
    partial: PathBuf,
    world: World,
    described: Described,
    done: Evidence,
}

fn read_if_there(file: &Path) -> Result<Evidence> {
    if file.exists() { Evidence::read(file) } else { Ok(Evidence::default()) }
}

impl Store {
    /// For the evidence in `file`; continues what was interrupted.
    pub fn open(file: &Path, world: World, described: Described) -> Result<Self> {
        let mut partial = OsString::from(file);
        partial.push(match world {
            World::Kernel => ".kernel-partial",
            World::Added => ".added-partial",
            World::Live => ".live-partial",
        });
        let partial = PathBuf::from(partial);
        // A file that is no evidence is noticed before anything is measured.
        read_if_there(file)?;
        let done = read_if_there(&partial)?;
        Ok(Self { file: file.to_owned(), partial, world, described, done })
    }
    /// Runs can be added to an experiment only if it has not changed since.
    pub fn check(&self, experiments: &[Experiment]) -> Result<()> {
        let known = read_if_there(&self.file)?;
        let mut are_there =
            experiments.iter().filter(|experiment| known.part(&experiment.name).is_some());
        are_there.try_for_each(|experiment| known.measured(experiment, self.described).map(|_| ()))
    }
    /// The experiments that are not measured yet.
    pub fn missing(&self, experiments: Vec<Experiment>) -> Result<Vec<Experiment>> {
        let runs = |row: &Row| match self.world {
            World::Kernel | World::Added => row.kernel.rate.len(),
            World::Live => row.live.rate.len(),
        };
        let mut missing = Vec::new();
        for experiment in experiments {
            let now = fingerprint(&experiment, self.described)?;
            let done = self.done.part(&experiment.name).is_some_and(|part| {
                let complete = part.rows.iter().all(|row| runs(row) == experiment.repeats as usize);
                part.fingerprint == now && complete
            });
            if !done {
                missing.push(experiment);
            }
        }
        Ok(missing)
    }
    /// What it continues, in words.
    pub fn continued(&self) -> Option<String> {
        let (count, file) = (self.done.experiments.len(), self.partial.display());
        let text =
            || format!("continues: {count} experiments are in {file}; delete it to start again");
        (count > 0).then(text)
    }
    /// Saves what was measured of an experiment; refuses to add what another machine measured.
    pub fn put(&mut self, part: Part) -> Result<()> {
        if let (World::Added, Some(known)) =
            (self.world, read_if_there(&self.file)?.part(&part.experiment))
            && known.place != part.place
        {
            let (name, here, there) = (&part.experiment, &part.place, &known.place);
            bail!("{name} was measured on {there}; this is {here}, whose runs --add cannot add");
        }
        self.done.put(part);
        self.done.write(&self.partial)
    }
    /// Everything is measured.
    pub fn close(self) -> Result<()> {
        let mut evidence = read_if_there(&self.file)?;
        for part in self.done.experiments {
            let known =
                evidence.experiments.iter_mut().find(|known| known.experiment == part.experiment);
            match (self.world, known) {
                (World::Live, Some(known)) => known.take_live_of(part),
                (World::Added, Some(known)) => known.add_kernel(part),
                (World::Kernel, Some(known)) => {
                    let known = std::mem::replace(known, part);
                    if let Some(own) = evidence.experiments.iter_mut().find(|part| {
                        part.experiment == known.experiment && part.fingerprint == known.fingerprint
                    }) {
                        own.take_live_of(known);
                    }
                }
                (_, None) => evidence.put(part),
            }
        }
        evidence.write(&self.file)?;
        let cannot = || format!("cannot remove {}", self.partial.display());
        if self.partial.exists() {
            std::fs::remove_file(&self.partial).with_context(cannot)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use iofair_experiments::experiment::{Overrides, parse};
    use iofair_simulator::calibration::Disturbed;

    use super::super::evidence::Numbers;
    use super::super::path::PathTimes;
    use super::*;

    const DESCRIBED: Described = |scenario| Ok(format!("{:?}", scenario.clients));

    const FILE: &str = r#"
title = "Two readers"
source = "none"
drive = "plextor-px256m5s"
time = "1s"
stacks = ["prop-bfq"]
[[client]]
name = "a"
job = "randread"
buffered = false
"#;

    fn experiment(name: &str, text: &str) -> Experiment {
        parse(name, text, &Overrides::default()).expect("a good file")
    }
    fn part(experiment: &Experiment, kernel: f64, live: f64) -> Part {
        let numbers = |rate: f64| match rate > 0.0 {
            true => Numbers { rate: vec![rate], ..Numbers::default() },
            false => Numbers::default(),
        };
        let [variant, stack, client] = ["", "prop-bfq", "a"].map(str::to_owned);
        let disturbed = [kernel, live]
            .map(|percent| Disturbed { most_percent: percent, ..Disturbed::default() });
        let (kernel, live, lab) = (numbers(kernel), numbers(live), Numbers::default());
        Part {
            experiment: experiment.name.clone(),
            fingerprint: fingerprint(experiment, DESCRIBED).expect("anything is described"),
            place: String::new(),
            paths: vec![PathTimes::default()],
            disturbed,
            rows: vec![Row { variant, stack, client, kernel, live, lab }],
        }
    }

    /// Goal: an interrupted comparison continues, a changed experiment is measured again, and other experiments and the
    /// live numbers stay. Method: two experiments, of which one is measured, one changed, one measured live.
    #[test]
    fn interrupted_comparisons_continue() {
        let directory = std::env::temp_dir().join(format!("iofair-store-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("truth.json");
        let (a, b) = (experiment("a", FILE), experiment("b", FILE));
        let open = |world| Store::open(&file, world, DESCRIBED).expect("a store");
        let names = |store: &Store, of: Vec<Experiment>| {
            let missing = store.missing(of).expect("known").into_iter();
            missing.map(|experiment| experiment.name).collect::<Vec<_>>()
        };
        let mut first = open(World::Kernel);
        first.put(part(&a, 1.0, 0.0)).expect("saved");
        drop(first);
        assert!(!file.exists(), "interrupted");
        let mut second = open(World::Kernel);
        assert_eq!(names(&second, vec![a.clone(), b.clone()]), [b.name.as_str()]);
        let changed = FILE.replace("randread", "read");
        assert_eq!(names(&second, vec![experiment("a", &changed)]).len(), 1);
        second.put(part(&b, 2.0, 0.0)).expect("saved");
        second.close().expect("merged");
        let mut live = open(World::Live);
        live.put(part(&a, 7.0, 3.0)).expect("saved");
        live.close().expect("merged");
        let mut again = open(World::Kernel);
        assert_eq!(names(&again, vec![a.clone()]).len(), 1, "a complete one is measured again");
        again.put(part(&a, 4.0, 0.0)).expect("saved");
        again.close().expect("merged");
        let evidence = Evidence::read(&file).expect("evidence");
        let rates = |name: &str| {
            let row = &evidence.part(name).expect("a part").rows[0];
            (row.kernel.rate.clone(), row.live.rate.clone())
        };
        assert_eq!(rates(&a.name), (vec![4.0], vec![3.0]));
        assert_eq!(rates(&b.name), (vec![2.0], vec![]));
        let mut added = open(World::Added);
        added.check(&[a.clone(), b.clone()]).expect("they are the same");
        assert!(added.check(&[experiment("a", &changed)]).is_err());
        added.put(part(&a, 5.0, 0.0)).expect("saved");
        added.close().expect("merged");
        let evidence = Evidence::read(&file).expect("evidence");
        let kept = evidence.part(&a.name).expect("a part");
        assert_eq!((kept.rows[0].kernel.rate.as_slice(), kept.paths.len()), (&[4.0, 5.0][..], 2));
        assert_eq!(kept.rows[0].live.rate, [3.0]);
        let most = kept.disturbed.map(|part| part.most_percent);
        assert_eq!(most, [5.0, 3.0], "of both passes, and of the live one");
        let mut elsewhere = open(World::Added);
        let other = Part { place: "elsewhere".into(), ..part(&a, 6.0, 0.0) };
        assert!(elsewhere.put(other).is_err(), "another machine");
        elsewhere.put(part(&a, 6.0, 0.0)).expect("saved");
        drop(elsewhere);
        let names = |world| names(&open(world), vec![a.clone()]);
        assert_eq!((names(World::Added).len(), names(World::Kernel).len()), (0, 1));
        std::fs::remove_dir_all(directory).expect("removed");
    }
}
