//! Keys of the host: those of `[host]` in an experiment, and the numbers of a machine's file.

use iofair_config::units::{Bytes, Time};
use serde::Deserialize;

/// Single values of the host, in place of the machine's.
#[derive(Clone, Default, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    /// From a completion to the same process' next read.
    pub turnaround: Option<Time>,
    /// The same for writes.
    pub turnaround_write: Option<Time>,
    /// Percent of spread of both.
    pub turnaround_spread: Option<u32>,
    /// Clients start this long after one another, by chance up to twice that, where the ramp hides their starts.
    pub start_apart: Option<Time>,
    /// Which processor's times schedulers take: `2018`, `none`.
    pub scheduler_times: Option<SchedulerTimes>,
    /// How files lie on the drive.
    pub layout: Option<LayoutName>,
    /// Thousandths of the drive before the first file.
    pub base_permille: Option<u32>,
    /// Whether files that are written start as holes (ext3).
    pub sparse_writes: Option<bool>,
    /// Processor time of a request in the scheduler, whichever it is.
    pub scheduler_time: Option<Time>,
    /// From a completion to the dispatcher's run.
    pub dispatcher_wakeup: Option<Time>,
    /// Percent of spread of that.
    pub dispatcher_spread: Option<u32>,
    /// Whether every completion causes a dispatch, or only new requests and the scheduler do.
    pub dispatch_on_completion: Option<bool>,
    /// The tick of the kernel, at the second of which a scheduler that holds back requests is asked again.
    pub dispatch_again: Option<Time>,
    /// Percent of ext3 files whose indirect blocks must be read first.
    pub cold_percent: Option<u32>,
    /// Time a reader spends on 256 KiB of page cache, in calls of 4 KiB.
    pub consume_window: Option<Time>,
    /// What of that does not depend on the number of calls.
    pub consume_copy: Option<Time>,
    /// Time a writer spends on them.
    pub produce_window: Option<Time>,
    /// Time the flusher takes to collect them.
    pub collect_window: Option<Time>,
    /// Read-ahead window.
    pub read_ahead: Option<Bytes>,
    /// Longest request of read-ahead.
    pub read_ahead_request: Option<Bytes>,
    /// Memory.
    pub memory: Option<Bytes>,
    /// Percent of memory that may be dirty before the flusher starts.
    pub dirty_background_percent: Option<u32>,
    /// Percent of memory that may be dirty before writers wait.
    pub dirty_percent: Option<u32>,
    /// Longest request of the flusher.
    pub writeback_request: Option<Bytes>,
    /// Longest request that the kernel sends, split or merged.
    pub max_request: Option<Bytes>,
    /// Who writes dirty pages, in whose name.
    pub writeback: Option<WritebackName>,
    /// Whether `fdatasync` waits for a journal's commit.
    pub journal: Option<bool>,
    /// Group of the journal's process; the root when absent.
    pub journal_group: Option<String>,
    /// Whether the journal sends flushes around its commit record.
    pub barrier: Option<bool>,
}

impl HostFile {
    /// These keys, and those of `base` where there is none here.
    pub fn or(&self, base: &Self) -> Self {
        let (a, b) = (self.clone(), base.clone());
        Self {
            scheduler_times: a.scheduler_times.or(b.scheduler_times),
            layout: a.layout.or(b.layout),
            base_permille: a.base_permille.or(b.base_permille),
            sparse_writes: a.sparse_writes.or(b.sparse_writes),
            turnaround: a.turnaround.or(b.turnaround),
            turnaround_write: a.turnaround_write.or(b.turnaround_write),
            turnaround_spread: a.turnaround_spread.or(b.turnaround_spread),
            start_apart: a.start_apart.or(b.start_apart),
            scheduler_time: a.scheduler_time.or(b.scheduler_time),
            dispatcher_wakeup: a.dispatcher_wakeup.or(b.dispatcher_wakeup),
            dispatcher_spread: a.dispatcher_spread.or(b.dispatcher_spread),
            dispatch_on_completion: a.dispatch_on_completion.or(b.dispatch_on_completion),
            dispatch_again: a.dispatch_again.or(b.dispatch_again),
            cold_percent: a.cold_percent.or(b.cold_percent),
            consume_window: a.consume_window.or(b.consume_window),
            consume_copy: a.consume_copy.or(b.consume_copy),
            produce_window: a.produce_window.or(b.produce_window),
            collect_window: a.collect_window.or(b.collect_window),
            read_ahead: a.read_ahead.or(b.read_ahead),
            read_ahead_request: a.read_ahead_request.or(b.read_ahead_request),
            memory: a.memory.or(b.memory),
            dirty_background_percent: a.dirty_background_percent.or(b.dirty_background_percent),
            dirty_percent: a.dirty_percent.or(b.dirty_percent),
            writeback_request: a.writeback_request.or(b.writeback_request),
            max_request: a.max_request.or(b.max_request),
            writeback: a.writeback.or(b.writeback),
            journal: a.journal.or(b.journal),
            journal_group: a.journal_group.or(b.journal_group),
            barrier: a.barrier.or(b.barrier),
        }
    }
}

/// Times that schedulers take.
#[derive(Clone, Copy, Deserialize, Debug)]
pub enum SchedulerTimes {
    /// Times of the articles' machine.
    #[serde(rename = "2018")]
    Articles,
    /// Times of the machine of reproduction/truth.md.
    #[serde(rename = "6.18")]
    Linux618,
    /// None.
    #[serde(rename = "none")]
    None,
}

/// How files lie on the drive.
#[derive(Clone, Copy, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum LayoutName {
    /// In one piece each.
    Contiguous,
    /// As ext3 of 2009 has them.
    Ext3,
}

/// Who writes dirty pages, in whose name.
#[derive(Clone, Copy, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum WritebackName {
    /// One flusher, in the root group (cgroup v1).
    Root,
    /// One flusher, charging the writer (cgroup v2).
    Owner,
    /// The writers themselves, side by side.
    Writer,
}
