//! What `iofair-lab run --frontier` runs: every stack, every variant of a drive, but nothing that a stack refuses.

use iofair_baselines::TABLE;
use iofair_core::policy::{Role, Row};
use iofair_core::time::Nanos;
use iofair_drive::profile;
use iofair_experiments::experiment::Experiment;
use iofair_simulator::{RunError, simulate};

use iofair_cli::output::say;

/// Stacks that are the same as another one: `promise` without ceilings, and `none-none`.
const DUPLICATES: &[&str] = &["prop-promise", "dedicated"];

/// A stack for each policy, and the named stacks. A throttle stands above no scheduler; a scheduler shares between groups if
/// it can.
pub(crate) fn every_stack() -> Vec<String> {
    let stack_of = |row: &&Row| match row.role {
        Role::Throttle => format!("{}-none", row.short),
        Role::Scheduler { groups: true, .. } => format!("prop-{}", row.name),
        Role::Scheduler { .. } => format!("none-{}", row.name),
    };
    let named = TABLE.stacks.iter().map(|named| named.name.to_owned());
    let all = TABLE.policies.iter().map(stack_of).chain(named);
    all.filter(|name| !DUPLICATES.contains(&name.as_str())).collect()
}

/// The variants in the profile of a drive, by the names that an experiment gives them.
pub(crate) fn drive_variants(drive: &str) -> Vec<String> {
    let is_variant = |name: &String| name.split_once(':').is_some_and(|(base, _)| base == drive);
    profile::list().into_iter().map(|listed| listed.name).filter(is_variant).collect()
}

/// Each variant with a minimum as an experiment without claims and without the stacks that refuse its contracts, which
/// are named on standard error.
pub(crate) fn admitted(experiments: &[Experiment]) -> Vec<Experiment> {
    let mut all = Vec::new();
    for experiment in experiments {
        for (index, variant) in experiment.variants.iter().enumerate() {
            if !iofair_reproduction::has_promise(experiment, index) {
                continue;
            }
            let mut one = Experiment { variants: vec![variant.clone()], ..experiment.clone() };
            one.claims.clear();
            let refusals: Vec<_> =
                (0..one.stacks.len()).map(|stack| refusal(&one, stack)).collect();
            let mut stacks = Vec::new();
            for ((name, stack), refusal) in one.stacks.into_iter().zip(refusals) {
                match refusal {
                    Some(error) => say(format_args!(
                        "left out: {} [{}] {name}: {error}",
                        one.name, variant.name
                    )),
                    None => stacks.push((name, stack)),
                }
            }
            one.stacks = stacks;
            all.push(one);
        }
    }
    all
}

/// Why a stack does not admit the contracts of the first variant.
fn refusal(experiment: &Experiment, stack: usize) -> Option<RunError> {
    let mut scenario = experiment.scenario(0, stack, 0);
    (scenario.ramp, scenario.time) = (Nanos::ZERO, Nanos(1));
    let error = simulate(&scenario).err()?;
    matches!(error, RunError::Refused(_) | RunError::Unattainable(_)).then_some(error)
}

#[cfg(test)]
mod tests {
    use iofair_experiments::experiment::{Overrides, parse};

    use super::*;

    /// Goal: every policy is in one of the stacks, and each can be run. Method: the table of policies.
    #[test]
    fn every_policy_has_a_stack() {
        let stacks = every_stack();
        for row in TABLE.policies {
            let has_policy = |name: &String| {
                let stack = TABLE.stack(name).expect("made of rows");
                let throttles = stack.throttles.iter().map(|stage| stage.row.name);
                throttles.chain([stack.scheduler.row.name]).any(|policy| policy == row.name)
            };
            assert!(stacks.iter().any(has_policy), "{}", row.name);
        }
        assert!(
            stacks.contains(&"complete".to_owned()) && !stacks.contains(&"dedicated".to_owned())
        );
        let variants = drive_variants("plextor-px256m5s");
        assert_eq!(variants, ["plextor-px256m5s:a-fifo", "plextor-px256m5s:b"]);
        assert!(drive_variants("nvme-2015").is_empty());
    }

    /// Goal: what a stack refuses is left out, and what has no minimum; the rest stays. Method: a minimum above the drive's
    /// worst case, and none.
    #[test]
    fn refusals_are_left_out() {
        let text = "title = \"\"\nsource = \"\"\ndrive = \"plextor-px256m5s\"\ntime = \"1s\"\n\
            stacks = [\"complete\", \"promise\"]\n[[client]]\nname = \"target\"\njob = \"read\"\nmin = \"1MB/s\"\n\
            [[variant]]\nname = \"little\"\n[[variant]]\nname = \"much\"\nclient.target.min = \"400MB/s\"\n\
            [[variant]]\nname = \"none\"\nclient.target.min = \"0MB/s\"\n";
        let experiment = parse("x.toml", text, &Overrides::default()).expect("a good file");
        let all = admitted(&[experiment]);
        let stacks: Vec<usize> = all.iter().map(|experiment| experiment.stacks.len()).collect();
        assert_eq!(stacks, [2, 1]);
        assert_eq!(all[1].stacks[0].0, "promise");
    }
}
