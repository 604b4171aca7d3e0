//! Facts about jobs for reports.

use iofair_core::time::Nanos;
use iofair_simulator::outcome::Outcome;

/// Facts about a job file for reports, besides its numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Jobs {
    /// Options of `[global]`.
    pub global: Vec<(String, String)>,
    /// The jobs in order. Their clones are the clients of the run, in the same order.
    pub jobs: Vec<JobInfo>,
}

/// Facts about a job for reports.
#[derive(Clone, PartialEq, Debug)]
pub struct JobInfo {
    /// As the file has it; two jobs may have the same name.
    pub name: String,
    /// `description`
    pub description: Option<String>,
    /// Its options, without the global ones.
    pub options: Vec<(String, String)>,
    /// Clones.
    pub clones: u32,
    /// Number of its reporting group.
    pub group: u32,
    /// `group_reporting`
    pub group_reporting: bool,
    /// Calls in flight at once.
    pub depth: u32,
    /// `latency_target`, `latency_window`, `latency_percentile` in millionths.
    pub latency: Option<(Nanos, Nanos, u32)>,
    /// `fsync` and `fdatasync`: writes before each.
    pub syncs: (u32, u32),
    /// After the first sync, none comes before this number of writes.
    pub sync_gap: u32,
    /// Of blocks that run as whole pages: their bytes, and those of the pages.
    pub odd_block: Option<(u64, u64)>,
}

impl Jobs {
    /// Counts the bytes of calls that ran as whole pages.
    pub(crate) fn count_calls(&self, outcome: &mut Outcome) {
        let mut clients = outcome.clients.iter_mut();
        for info in &self.jobs {
            for client in clients.by_ref().take(info.clones as usize) {
                let Some((block, whole)) = info.odd_block else { continue };
                let count = |bytes: &mut u64| *bytes = *bytes / whole * block;
                count(&mut client.bytes);
                client.directions.iter_mut().for_each(|side| count(&mut side.bytes));
                let sides = client.directions.iter_mut().flat_map(|side| &mut side.series);
                client.series.iter_mut().chain(sides).for_each(|part| count(&mut part.bytes));
            }
        }
    }
}

impl JobInfo {
    /// How many of the syncs of a clone are `fsync`; a sync that is due as both is one.
    pub(crate) fn fsyncs(&self, syncs: u64) -> u64 {
        let (fsync, fdatasync) = (u64::from(self.syncs.0), u64::from(self.syncs.1));
        match (fsync, fdatasync) {
            (0, _) => 0,
            (_, 0) => syncs,
            _ => {
                let both = fsync / common_divisor(fsync, fdatasync) * fdatasync;
                let first = fsync.min(fdatasync);
                let gap = u64::from(self.sync_gap).saturating_sub(1).max(first);
                // Of all multiples, those behind the first one and in the gap are none.
                let of = |every: u64, writes: u64| {
                    writes / every + first / every - writes.clamp(first, gap) / every
                };
                let made = |writes| of(fsync, writes) + of(fdatasync, writes) - of(both, writes);
                // The writes after which the last one came.
                let (mut low, mut high) = (0, gap + syncs * first);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if made(middle) < syncs { low = middle + 1 } else { high = middle }
                }
                of(fsync, low)
            }
        }
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
