//! A client as it is written: the keys of a client of an experiment, and of an expected load.

use iofair_config::Spanned;
use iofair_config::contracts::keys::{ClassName, Keys, beside};
use iofair_config::units::{Bytes, Rate, Time};
use serde::{Deserialize, Deserializer};

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum JobFile {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    Randread,
    /// Random writes.
    Randwrite,
    /// Sequential reads and writes.
    Rw,
    /// Random reads and writes.
    Randrw,
    /// Sequential discards.
    Trim,
    /// Random discards.
    Randtrim,
    /// Reads a file and writes another.
    Copy,
    /// What a program reads at its start-up.
    Startup,
}

/// A client, or changes to one (in a variant or a sweep, where `name` is absent).
#[derive(Clone, Default, Deserialize, Debug)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ClientFile {
    /// Its name.
    pub name: Option<Spanned<String>>,
    /// Processes.
    pub count: Option<u32>,
    /// Path of the group for all processes; absent: one group a process, named as the process.
    pub group: Option<String>,
    /// The groups are there, the processes are not.
    pub inactive: Option<bool>,
    /// What it does.
    pub job: Option<JobFile>,
    /// Size of a call.
    pub block: Option<Bytes>,
    /// Sizes of calls and their percentages, as in fio's `bssplit`.
    pub blocks: Option<Spanned<String>>,
    /// Percent of a mix that reads.
    pub reads: Option<u32>,
    /// Where random calls go, as in fio's `random_distribution`.
    pub distribution: Option<Spanned<String>>,
    /// Most calls a second, counted as the smallest block.
    pub iops: Option<u64>,
    /// Through the page cache?
    pub buffered: Option<bool>,
    /// Calls in flight at once.
    pub depth: Option<u32>,
    /// Most bytes a second.
    pub rate: Option<Rate>,
    /// In a virtual machine of its own?
    pub guest: Option<bool>,
    /// The drive of a stripe on which its files lie.
    pub on_drive: Option<u32>,
    /// Whether its processes go through one file together, block by block.
    pub interleaved: Option<bool>,
    /// Whether a start-up is replayed with the program's own time, where it is known.
    pub pauses: Option<bool>,
    /// The program that starts.
    pub program: Option<String>,
    /// `fdatasync` after this many writes.
    pub fdatasync: Option<u32>,
    /// Mean times of work and of rest.
    pub on_off: Option<(Time, Time)>,
    /// Time between a completion and the next call.
    pub think: Option<Time>,
    /// Size of each process' file.
    pub size: Option<Bytes>,
    /// When it starts.
    pub start: Option<Time>,
    /// When it makes no further call.
    pub stop: Option<Time>,
    /// Whether direct writes count as synchronous.
    pub sync_writes: Option<bool>,
    /// Whether its requests count as the file system's own.
    pub metadata: Option<bool>,
    /// I/O class of the process (`ionice`).
    pub class: Option<ClassName>,
    /// Level in the class, 0 to 7.
    pub level: Option<u8>,
    /// Keys of the group's contract, but for the class.
    #[serde(skip)]
    pub contract: Keys,
}

impl<'de> Deserialize<'de> for ClientFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (client, contract) = beside(deserializer, |own| Self::deserialize(own))?;
        Ok(Self { contract, ..client })
    }
}

impl ClientFile {
    /// These keys, and those of `base` where there is none here.
    pub fn or(&self, base: &Self) -> Self {
        let (a, b) = (self.clone(), base.clone());
        Self {
            name: a.name.or(b.name),
            count: a.count.or(b.count),
            group: a.group.or(b.group),
            inactive: a.inactive.or(b.inactive),
            job: a.job.or(b.job),
            block: a.block.or(b.block),
            blocks: a.blocks.or(b.blocks),
            reads: a.reads.or(b.reads),
            distribution: a.distribution.or(b.distribution),
            iops: a.iops.or(b.iops),
            buffered: a.buffered.or(b.buffered),
            depth: a.depth.or(b.depth),
            rate: a.rate.or(b.rate),
            guest: a.guest.or(b.guest),
            on_drive: a.on_drive.or(b.on_drive),
            interleaved: a.interleaved.or(b.interleaved),
            pauses: a.pauses.or(b.pauses),
            program: a.program.or(b.program),
            fdatasync: a.fdatasync.or(b.fdatasync),
            on_off: a.on_off.or(b.on_off),
            think: a.think.or(b.think),
            size: a.size.or(b.size),
            start: a.start.or(b.start),
            stop: a.stop.or(b.stop),
            sync_writes: a.sync_writes.or(b.sync_writes),
            metadata: a.metadata.or(b.metadata),
            class: a.class.or(b.class),
            level: a.level.or(b.level),
            contract: a.contract.or(&b.contract),
        }
    }
}
