//! An experiment as it is run.

use iofair_core::controller::Stack;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::fitted::FittedOn;
use iofair_simulator::outcome::ClientOutcome;
use iofair_simulator::scenario::{
    Change, ClientSpec, GroupSpec, Host, Job, Pattern, Scenario, Step, StripeSpec,
};

use super::claim::Claim;
use super::file::DedicatedFile;
use super::machine::flushes;
use super::quantity::Units;
use crate::jobs::Jobs;

/// An experiment ready to run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its file, without extension, as it was found.
    pub name: String,
    /// One line.
    pub title: String,
    /// Where the published numbers come from.
    pub source: String,
    /// What a reader should know besides.
    pub note: String,
    /// How rates are printed.
    pub units: Units,
    /// Runs of each variant on each stack.
    pub repeats: u32,
    /// Seed of the first repeat.
    pub seed: u64,
    /// Requests that scheduler and drive may have together.
    pub tags: Option<u32>,
    /// Stacks by the names that the file gives them.
    pub stacks: Vec<(String, Stack)>,
    /// Variants, at least one.
    pub variants: Vec<Variant>,
    /// What the source claims of these stacks and variants.
    pub claims: Vec<Claim>,
    /// Claims left out because they speak of stacks that are not run.
    pub claims_left_out: usize,
    /// Latencies are also kept by intervals of this length.
    pub interval: Option<Nanos>,
    /// How many clients a drive of their own may carry is asked.
    pub dedicated: Option<Dedicated>,
    /// What reports say of a job file of fio, if it is one.
    pub jobs: Option<Jobs>,
}

/// One set of clients on one drive.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name; empty when the file has none.
    pub name: String,
    /// The name of the file's variant that it is a point of the sweeps of.
    pub base: String,
    /// Keys that sweeps set, with their values.
    pub swept: Vec<(String, String)>,
    /// Stacks as sweeps change them, in place of the experiment's of the same names.
    pub stacks: Vec<(String, Stack)>,
    /// Drive profile.
    pub drive: String,
    /// The machine whose host it is, single values of the file aside.
    pub machine: String,
    /// Time measured.
    pub time: Nanos,
    /// Time before it.
    pub ramp: Nanos,
    /// Time before that, in which a lone reader teaches the policies what the drive can do.
    pub history: Nanos,
    /// Several of these drives as one.
    pub stripe: Option<StripeSpec>,
    /// The host.
    pub host: Host,
    /// Groups, inactive ones included.
    pub groups: Vec<GroupSpec>,
    /// Processes.
    pub clients: Vec<ClientSpec>,
    /// What changes meanwhile, in order of time.
    pub changes: Vec<Change>,
    /// Names of the clients that do I/O, in the file's order.
    pub subjects: Vec<String>,
    /// The mix that this is a size of: the name of its variant, and how many clients.
    pub mix: Option<(String, u32)>,
    /// Runs that chose a number of the drive or the machine, from their lists; see [`Experiment::is_fitted_run`].
    pub fitted_on: Vec<FittedOn>,
}

impl Experiment {
    /// One run.
    pub fn scenario(&self, variant: usize, stack: usize, repeat: u32) -> Scenario {
        let chosen = &self.variants[variant];
        Scenario {
            drive: chosen.drive.clone(),
            stack: self.stack(variant, stack).clone(),
            tags: self.tags,
            flushes: flushes(self.stack(variant, stack)),
            stripe: chosen.stripe,
            host: chosen.host.clone(),
            groups: chosen.groups.clone(),
            clients: chosen.clients_after_history(),
            changes: chosen.changes_after_history(),
            ramp: chosen.history + chosen.ramp,
            time: chosen.time,
            seed: self.seed.wrapping_add(u64::from(repeat)),
            interval: self.interval,
        }
    }
    /// A stack as a variant has it.
    pub fn stack(&self, variant: usize, stack: usize) -> &Stack {
        let (name, common) = &self.stacks[stack];
        let own = self.variants[variant].stacks.iter().find(|(own, _)| own == name);
        own.map_or(common, |(_, stack)| stack)
    }
    /// Runs in all.
    pub fn runs(&self) -> usize {
        self.variants.len() * self.stacks.len() * self.repeats as usize
    }
}

impl Variant {
    /// All clients, moved behind the history; its reader comes last, so that files lie where they do
    /// without it.
    fn clients_after_history(&self) -> Vec<ClientSpec> {
        let mut clients = self.clients.clone();
        if self.history == Nanos::ZERO {
            return clients;
        }
        for client in &mut clients {
            client.start += self.history;
            client.stop = client.stop.map(|stop| stop + self.history);
            client.step = client.step.map(|step| Step { number: step.number + 1, ..step });
        }
        let in_steps = clients.iter().any(|client| client.step.is_some());
        let time = Some(self.history);
        let reads = Job::new(Pattern::SequentialRead, Sectors::from_kib(4), true);
        clients.push(ClientSpec {
            stop: time,
            step: in_steps.then_some(Step { time, ..Step::default() }),
            ..ClientSpec::new("history", reads)
        });
        clients
    }
    fn changes_after_history(&self) -> Vec<Change> {
        let after = |change: &Change| Change { at: change.at + self.history, ..change.clone() };
        self.changes.iter().map(after).collect()
    }
}

/// What is asked of dedicated storage: how many clients may share a drive that nobody controls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dedicated {
    /// Bytes a second that every client must get.
    pub promise: u64,
    /// Time that 99 of 100 of its calls may take.
    pub latency: Option<Nanos>,
    /// Clients in all.
    pub clients: u32,
}

impl Dedicated {
    pub(super) fn new(file: &DedicatedFile) -> Self {
        let latency = file.latency.map(|time| time.0);
        Self { promise: file.promise.0, latency, clients: *file.clients.get_ref() }
    }
    pub(super) fn is_kept(&self, client: &ClientOutcome, time: Nanos) -> bool {
        let promised = u128::from(self.promise) * u128::from(time.0);
        let enough = u128::from(client.bytes) * 1_000_000_000 >= promised;
        let soon = |latency: Nanos| client.latency.quantile(990_000) <= latency.0;
        enough && self.latency.is_none_or(soon)
    }
}
