//! The loads, as texts of experiments. What is promised follows what the drive sustains, and is the same in both states.

use iofair_core::attainable::Attainable;
use iofair_core::time::Nanos;

/// A minimum is this part of the least that admission counts with.
const MINIMUM_PART: u64 = 3;
/// A latency is this many times the lowest one that admission accepts.
const LATENCY_TIMES: u64 = 2;
/// Weight of a reader with a minimum, for a scheduler that knows only weights.
const WEIGHT: u32 = 1000;

/// A small reader, one read at a time, beside other clients.
pub(super) struct Load {
    pub(super) name: &'static str,
    /// What the reader is promised.
    pub(super) minimum: bool,
    pub(super) latency: bool,
    /// The others: name, number, weight, and further keys.
    others: &'static [(&'static str, u32, u32, &'static str)],
    /// Whether these are of one kind.
    pub(super) is_one_kind: bool,
}

const WRITER: &str = "job = \"randwrite\", block = \"64KiB\", depth = 8";

pub(super) const LOADS: [Load; 4] = [
    Load {
        name: "4 of 16 KiB, depth 16, 70 % reads",
        minimum: false,
        latency: false,
        others: &[("other", 4, 100, "job = \"randrw\", block = \"16KiB\", depth = 16, reads = 70")],
        is_one_kind: true,
    },
    Load {
        name: "16 of 4 KiB, depth 8, 30 % reads",
        minimum: true,
        latency: false,
        others: &[("other", 16, 100, "job = \"randrw\", block = \"4KiB\", depth = 8, reads = 30")],
        is_one_kind: false,
    },
    Load {
        name: "4 writers of 64 KiB, weights 1 to 4",
        minimum: false,
        latency: true,
        others: &[
            ("a", 1, 100, WRITER),
            ("b", 1, 200, WRITER),
            ("c", 1, 300, WRITER),
            ("d", 1, 400, WRITER),
        ],
        is_one_kind: true,
    },
    Load {
        name: "database, backup, ingest",
        minimum: true,
        latency: true,
        others: &[
            ("backup", 1, 100, "job = \"read\", block = \"256KiB\", depth = 8"),
            ("ingest", 1, 100, "job = \"write\", block = \"256KiB\", depth = 16"),
        ],
        is_one_kind: false,
    },
];

/// What readers are promised on a drive.
#[derive(Clone, Copy)]
pub(super) struct Promised {
    /// Bytes a second that the reader has alone.
    pub(super) alone: u64,
    pub(super) minimum: u64,
    pub(super) latency: Nanos,
}

impl Promised {
    pub(super) fn new(reaches: &Attainable) -> Self {
        let Attainable { reads, writes, alone, small, latency } = *reaches;
        let least = reads.min(writes).min(alone).min(small.unwrap_or(alone));
        Self {
            alone,
            minimum: least / MINIMUM_PART,
            latency: latency.read.unwrap_or_default() * LATENCY_TIMES,
        }
    }
}

impl Load {
    /// The number of clients, and the sum of their weights.
    pub(super) fn clients(&self) -> u32 {
        1 + self.others.iter().map(|other| other.1).sum::<u32>()
    }
    /// An experiment on a drive for stacks that are told of minimums, or of weights in their place.
    pub(super) fn text(
        &self,
        drive: &str,
        promised: &Promised,
        [ramp, time]: [Nanos; 2],
        stacks: &[&str],
    ) -> String {
        let knows_weights = stacks.iter().any(|stack| stack.contains("bfq"));
        let mut text = format!(
            "title = \"stacks\"\nsource = \"make stacks\"\nbasis = \"own\"\ndrive = \"{drive}\"\nramp = \"{}ns\"\n\
             time = \"{}ns\"\nstacks = {stacks:?}\n[policy.bfq]\nlow_latency = false\n\
             [[client]]\nname = \"reader\"\njob = \"randread\"\nbuffered = false\n",
            ramp.0, time.0
        );
        if self.minimum {
            text += &format!("min = \"{}B/s\"\n", promised.minimum);
        }
        if self.minimum && knows_weights {
            text += &format!("weight = {WEIGHT}\n");
        }
        if self.latency {
            text += &format!("latency = \"{}ns\"\n", promised.latency.0);
        }
        for (name, count, weight, keys) in self.others {
            let keys = keys.replace(", ", "\n");
            text += &format!(
                "[[client]]\nname = \"{name}\"\ncount = {count}\nweight = {weight}\nbuffered = false\nsize = \"4GiB\"\n{keys}\n"
            );
        }
        text
    }
}
