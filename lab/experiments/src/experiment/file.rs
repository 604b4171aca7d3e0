//! The experiment file as it is written: one struct a table, every key optional where it has a
//! default. What the keys mean together is decided in [`super::expand`].

use std::collections::BTreeMap;

use iofair_config::Spanned;
use iofair_config::contracts::keys::{Keys, beside};
use iofair_config::units::{Bytes, Rate, Time};
use iofair_simulator::client_file::ClientFile;
use iofair_simulator::host_file::HostFile;
use iofair_simulator::machine::ParameterFile;
use iofair_simulator::scenario::Control;
use serde::{Deserialize, Deserializer};

use super::claim::Kind;
use super::origin::Basis;
use super::quantity::Units;

/// A whole file.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// One line.
    pub title: String,
    /// Where the published numbers come from.
    pub source: String,
    /// What a reader should know besides.
    #[serde(default)]
    pub note: String,
    /// The machine: drive, host, kernel; see [`iofair_simulator::machine`].
    pub machine: Option<Spanned<String>>,
    /// Drive profile, in place of the machine's.
    pub drive: Option<Spanned<String>>,
    /// Time measured.
    pub time: Spanned<Time>,
    /// Time before it.
    #[serde(default)]
    pub ramp: Time,
    /// How long a lone buffered sequential reader uses the drive before anything else starts: what a
    /// policy has learned of the drive outlives a run.
    #[serde(default)]
    pub history: Time,
    /// Also keep latencies by intervals of this length.
    pub interval: Option<Spanned<Time>>,
    /// Runs with seeds of their own.
    #[serde(default = "one_repeat")]
    pub repeats: u32,
    /// First seed; repeat `i` uses `seed + i`.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// How rates are printed.
    #[serde(default)]
    pub units: Units,
    /// Stacks to compare.
    pub stacks: Vec<Spanned<String>>,
    /// Requests that scheduler and drive may have together.
    pub tags: Option<u32>,
    /// Several of these drives as one.
    pub stripe: Option<Spanned<StripeFile>>,
    /// Policy parameters for every stack that has the policy: policy, parameter, value.
    #[serde(default)]
    pub policy: ParameterFile,
    /// Stacks with parameters of their own, by the name that `stacks` uses.
    #[serde(default)]
    pub stack: BTreeMap<Spanned<String>, StackFile>,
    /// The machine.
    #[serde(default)]
    pub host: HostFile,
    /// Groups that hold others, or that several clients share.
    #[serde(default)]
    pub group: Vec<GroupFile>,
    /// Clients.
    pub client: Vec<ClientFile>,
    /// What changes during a run.
    #[serde(default)]
    pub change: Vec<ChangeFile>,
    /// The same experiment with some keys changed.
    #[serde(default)]
    pub variant: Vec<VariantFile>,
    /// One key through several values.
    #[serde(default)]
    pub sweep: Vec<SweepFile>,
    /// This many points of the sweeps, a Latin hypercube, in place of all.
    pub sample: Option<Spanned<u32>>,
    /// How many clients a drive of their own may carry.
    pub dedicated: Option<DedicatedFile>,
    /// Where claims come from that do not say it themselves; only our own.
    pub basis: Option<Spanned<Basis>>,
    /// What the source claims.
    #[serde(default)]
    pub expect: Vec<ExpectFile>,
}

const fn one_repeat() -> u32 {
    1
}
const fn first_seed() -> u64 {
    1
}

/// A stack under a name of its own.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct StackFile {
    /// The stack; the table's own name when absent.
    pub base: Option<Spanned<String>>,
    /// Its parameters.
    #[serde(default)]
    pub policy: ParameterFile,
}

/// Equal drives as one.
#[derive(Clone, Copy, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct StripeFile {
    /// How many.
    pub drives: u32,
    /// Contiguous bytes on each.
    pub chunk: Bytes,
    /// Where the stack is.
    pub control: Control,
}

/// A group of its own, besides those that clients bring.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct GroupFile {
    /// Its path.
    pub name: Spanned<String>,
    /// Keys of its contract.
    #[serde(skip)]
    pub contract: Keys,
}

impl<'de> Deserialize<'de> for GroupFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (group, contract) = beside(deserializer, |own| Self::deserialize(own))?;
        Ok(Self { contract, ..group })
    }
}

/// The experiment with some keys changed.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct VariantFile {
    /// Its name, in tables and in `[[expect]]`.
    pub name: Spanned<String>,
    /// Another machine.
    pub machine: Option<Spanned<String>>,
    /// Another drive.
    pub drive: Option<Spanned<String>>,
    /// Another time.
    pub time: Option<Time>,
    /// Another ramp.
    pub ramp: Option<Time>,
    /// Another stripe.
    pub stripe: Option<Spanned<StripeFile>>,
    /// Keys of the host.
    #[serde(default)]
    pub host: HostFile,
    /// Keys of clients, by client.
    #[serde(default)]
    pub client: BTreeMap<Spanned<String>, ClientFile>,
    /// Other changes during a run.
    pub change: Option<Vec<ChangeFile>>,
}

/// Something that changes during a run.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct ChangeFile {
    /// When, from the beginning of the run, as clients start.
    pub at: Spanned<Time>,
    /// The drive's speed from then on, such as `"50%"` of its profile's.
    pub speed: Option<Spanned<String>>,
    /// Other contracts of clients' groups from then on, by client.
    #[serde(default)]
    pub client: BTreeMap<Spanned<String>, Keys>,
}

/// One key through several values; several sweeps multiply.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct SweepFile {
    /// The client whose key it is; otherwise the key is a path from the top of the file.
    pub client: Option<Spanned<String>>,
    /// The key.
    pub key: Spanned<String>,
    /// Its values.
    pub values: Vec<Spanned<toml::Value>>,
    /// Name of each variant, `{}` standing for the value; `key={}` when absent.
    pub label: Option<String>,
}

/// Every variant becomes a mix of the clients of one drive, run with 1, 2, ... of them: how many may
/// share a drive before a promise is broken in any mix?
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct DedicatedFile {
    /// What every client must get, whatever the others do.
    pub promise: Rate,
    /// Time that 99 of 100 calls may take.
    pub latency: Option<Time>,
    /// Clients in all.
    pub clients: Spanned<u32>,
    /// The client whose `count` fills a drive up, after those of the others.
    pub fill: Spanned<String>,
}

/// One or several of something.
#[derive(Clone, Deserialize, Debug)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum Several {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Several {
    /// All of them.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// Another place to read a quantity: a stack's name, or a table of what differs from the claim's own.
#[derive(Clone, Deserialize, Debug)]
#[serde(untagged, expecting = "expected a stack's name, or a table with stack, variant, of")]
pub enum PlaceFile {
    /// Another stack.
    Stack(String),
    /// Anything.
    Place(PlaceTable),
}

/// What differs from the claim's own place.
#[derive(Clone, Default, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct PlaceTable {
    /// The stack.
    pub stack: Option<String>,
    /// The variant.
    pub variant: Option<String>,
    /// The quantity.
    pub of: Option<String>,
}

impl PlaceFile {
    /// As a table.
    pub fn table(&self) -> PlaceTable {
        match self {
            Self::Stack(name) => PlaceTable { stack: Some(name.clone()), ..PlaceTable::default() },
            Self::Place(table) => table.clone(),
        }
    }
}

/// A published number or order, and the band in which ours must lie.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct ExpectFile {
    /// Kind of claim.
    pub kind: Spanned<Kind>,
    /// The quantity: `total`, a client's name, `target p99`, ...
    pub of: Spanned<String>,
    /// The stack or stacks; absent in an order over stacks.
    pub stack: Option<Spanned<Several>>,
    /// The variant or variants; absent: all.
    pub variant: Option<Spanned<Several>>,
    /// Bound of `at_least`, `at_most` and `rises_at`; a part for `falls_at` and `settles_at`.
    pub value: Option<Spanned<Number>>,
    /// What the source prints.
    pub published: Option<Spanned<Number>>,
    /// Band around the published value, such as `"12%"`.
    pub band: Option<Spanned<String>>,
    /// Lower end of the band.
    pub low: Option<Spanned<Number>>,
    /// Upper end of the band.
    pub high: Option<Spanned<Number>>,
    /// The other place of a ratio, or what a latency falls below.
    pub to: Option<Spanned<PlaceFile>>,
    /// The places of an order, smallest first.
    pub order: Option<Spanned<Vec<PlaceFile>>>,
    /// What differs at the place that each number of an order is divided by.
    pub per: Option<Spanned<PlaceTable>>,
    /// Must hold for the experiment to count as reproduced.
    #[serde(default)]
    pub hard: bool,
    /// Where it comes from.
    pub basis: Option<Spanned<Basis>>,
    /// The sentence or row of the source that a derived claim comes from.
    pub quote: Option<Spanned<String>>,
    /// The claim that an implied one follows from.
    pub follows: Option<Spanned<String>>,
    /// Line of the source.
    #[serde(default)]
    pub reference: String,
    /// Mechanism of a miss, as an experiment showed it.
    #[serde(default)]
    pub why: String,
}

/// A plain number (ratios) or one with a unit.
#[derive(Clone, PartialEq, Deserialize, Debug)]
#[serde(
    untagged,
    expecting = "expected a number, or a text with a unit such as \"10MB/s\" or \"39ms\""
)]
pub enum Number {
    /// `0.23`
    Float(f64),
    /// `4`
    Integer(i64),
    /// `"10MB/s"`
    Text(String),
}
