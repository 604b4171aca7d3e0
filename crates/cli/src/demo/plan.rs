//! What the demo runs: the first workload of the article of 2018, or the survey's of 2019, as a contract
//! file with one volume a client.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use iofair_config::contracts::Key;
use iofair_policies::DEFAULT_STACK;
use iofair_policies::TABLE;

use super::client::Work;

/// Clients of the article: one target and four readers.
pub(crate) const ARTICLE_CLIENTS: usize = 5;
/// Table 2: weights of the target and of each reader.
const ARTICLE_WEIGHTS: (u32, u32) = (300, 100);
/// The survey gives all clients the same.
const EQUAL_WEIGHT: u32 = 100;
/// Table 2: the ceiling of each reader under `max`, in bytes a second, for a promise of 10 MB/s; the target's is its promise.
const READER_MAX: (u64, u64) = (15_000_000, 10_000_000);
/// The suite's files are at most this long.
pub(crate) const EMULATED_SIZE: u64 = 500 << 20;

/// One client of the plan.
#[derive(Clone)]
pub(crate) struct PlannedClient {
    pub(crate) name: String,
    pub(crate) work: Work,
}

/// Everything that the runs of all stacks have in common.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The back end, as in a contract file.
    pub(crate) back: String,
    /// What each client has of it, in bytes.
    pub(crate) volume_size: u64,
    /// Target and readers together, at least one.
    pub(crate) clients: usize,
    /// What the target is promised, bytes a second; 0: nothing.
    pub(crate) promised: u64,
    /// What it gets alone, where that was measured: what its promise is admitted by.
    pub(crate) alone: Option<u64>,
    /// How long one sequential reader is alone first, as before the sources' own runs: policies that
    /// measure the drive (BFQ) know it then.
    pub(crate) history_seconds: f64,
    pub(crate) ramp_seconds: f64,
    pub(crate) seconds: f64,
    pub(crate) socket: PathBuf,
}

impl Plan {
    /// Of one stack, from its start to its end.
    pub(crate) fn all_seconds(&self) -> f64 {
        self.history_seconds + self.ramp_seconds + self.seconds
    }
    /// The target first, then the readers.
    pub(crate) fn roster(&self) -> Vec<PlannedClient> {
        let target = PlannedClient { name: "target".into(), work: Work::Random };
        let reader = |i| PlannedClient { name: format!("reader-{i}"), work: Work::Sequential };
        std::iter::once(target).chain((1..self.clients).map(reader)).collect()
    }
    /// The contract file of a run with this stack, with the promises that the stack enforces.
    pub(crate) fn contracts(&self, stack: &str, socket: &Path) -> String {
        let weights = match self.clients {
            ARTICLE_CLIENTS => ARTICLE_WEIGHTS,
            _ => (EQUAL_WEIGHT, EQUAL_WEIGHT),
        };
        let mut text = format!(
            "[drive]\nback = {:?}\nstack = \"{stack}\"\n\n[listen]\nunix = {:?}\n",
            self.back,
            socket.display().to_string()
        );
        if let Some(scheduler) = wants_low_latency_off(stack) {
            let _ = write!(text, "\n[drive.policy.\"{scheduler}\"]\nlow_latency = false\n");
        }
        for client in self.roster() {
            let name = &client.name;
            let (weight, max) = match client.work {
                Work::Random => (weights.0, self.promised),
                Work::Sequential => (weights.1, self.promised * READER_MAX.0 / READER_MAX.1),
            };
            let _ = write!(text, "\n[[group]]\nname = \"{name}\"\n");
            if enforces(stack, Key::Weight) {
                let _ = writeln!(text, "weight = {weight}");
            }
            if max > 0 && has_ceilings(stack) && enforces(stack, Key::Max) {
                let _ = writeln!(text, "max = \"{max}B/s\"");
            }
            let is_promised = client.work == Work::Random && self.promised > 0;
            if is_promised && enforces(stack, Key::Min) {
                let _ = writeln!(text, "min = \"{}B/s\"", self.promised);
                if let Some(alone) = self.alone {
                    let _ = writeln!(text, "alone = \"{alone}B/s\"");
                }
            }
            let size = self.volume_size;
            let _ = write!(
                text,
                "[[volume]]\nname = \"{name}\"\ngroup = \"{name}\"\nsize = \"{size}B\"\n"
            );
        }
        text
    }
}

/// The server takes no promise that its stack does not enforce.
fn enforces(stack: &str, key: Key) -> bool {
    TABLE.stack(stack).is_ok_and(|stack| key.is_enforced_by(&stack))
}

/// Ceilings are the means of stacks that keep promises by nothing else. The default stack has a throttle for them too, and the
/// demo shows that it needs none.
fn has_ceilings(stack: &str) -> bool {
    stack != DEFAULT_STACK
}

/// The scheduler of a stack whose weight raising must be off to see the shares as promised, which is
/// how the article and the survey ran it.
fn wants_low_latency_off(stack: &str) -> Option<&'static str> {
    let row = TABLE.stack(stack).ok()?.scheduler.row;
    row.parameters.iter().any(|p| p.name == "low_latency").then_some(row.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_config::contracts::Contracts;
    use iofair_core::contract::Limits;

    fn plan(clients: usize) -> Plan {
        Plan {
            back: "emulated:plextor-px256m5s".into(),
            volume_size: EMULATED_SIZE,
            clients,
            promised: 10_000_000,
            alone: None,
            history_seconds: 1.0,
            ramp_seconds: 1.0,
            seconds: 1.0,
            socket: PathBuf::from("demo.sock"),
        }
    }

    fn read(clients: usize) -> Contracts {
        let text = plan(clients).contracts("complete", Path::new("demo.sock"));
        Contracts::parse_with(&TABLE, "demo", &text).expect("the demo's own contracts are good")
    }

    /// Goal: the contracts are the article's and the survey's. Method: weights and limits of both.
    #[test]
    fn contracts_are_those_of_the_sources() {
        let article = read(5);
        let weights: Vec<u32> = article.groups.iter().map(|g| g.contract.weight).collect();
        assert_eq!(weights, [300, 100, 100, 100, 100]);
        assert_eq!(article.groups[0].contract.min, Some(10_000_000));
        assert_eq!(article.groups[1].contract.max.bytes_per_s, [Some(15_000_000); 2]);
        for stack in ["none-none", "max-none", "prop-bfq"] {
            let text = plan(5).contracts(stack, Path::new("demo.sock"));
            Contracts::parse_with(&TABLE, "demo", &text).unwrap_or_else(|error| panic!("{error}"));
        }
        let bfq = plan(5).contracts("prop-bfq", Path::new("demo.sock"));
        let bfq = Contracts::parse_with(&TABLE, "demo", &bfq).expect("good");
        assert!(!bfq.drive.stack.scheduler.values.bool("low_latency"));
        let promise = plan(5).contracts("promise", Path::new("demo.sock"));
        let promise =
            Contracts::parse_with(&TABLE, "demo", &promise).expect("good without ceilings");
        assert_eq!(promise.groups[0].contract.min, Some(10_000_000));
        assert!(promise.groups.iter().all(|g| g.contract.max == Limits::default()));
        let survey = read(16);
        assert_eq!(survey.volumes.len(), 16);
        assert!(survey.groups.iter().all(|g| g.contract.weight == 100));
        // Both are admitted as written on a drive of 160 MB/s.
        for (contracts, target) in [(article, 300), (survey, 100)] {
            let admitted = contracts.admitted(Some(160_000_000)).expect("10 of 160 MB/s fits");
            let found = admitted.iter().find(|(name, _)| name == "target").expect("the target");
            assert_eq!(found.1.weight, target);
        }
    }

    /// Goal: the file that people can serve themselves is the demo's first workload. Method: compare
    /// what both say, whatever the comments.
    #[test]
    fn the_file_beside_the_demo_says_the_same() {
        let text = include_str!("../../../../demo/contracts.toml");
        let file = Contracts::parse_with(&TABLE, "demo/contracts.toml", text).expect("a good file");
        let names = |c: &Contracts| c.groups.iter().map(|g| g.name.clone()).collect::<Vec<_>>();
        let contracts =
            |c: &Contracts| c.groups.iter().map(|g| g.contract.clone()).collect::<Vec<_>>();
        let demo = plan(5).contracts(DEFAULT_STACK, Path::new("demo.sock"));
        let demo = Contracts::parse_with(&TABLE, "demo", &demo).expect("good");
        assert_eq!((names(&file), contracts(&file)), (names(&demo), contracts(&demo)));
        assert_eq!(file.drive.back, demo.drive.back);
        assert_eq!(file.drive.stack.name(), DEFAULT_STACK, "it is not written");
    }
}
