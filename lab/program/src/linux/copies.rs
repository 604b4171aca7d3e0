//! Measures the processor time of the page cache: copies into and out of it, and the flusher's work.
//!
//! Lone clients run on the emulated drive with `none`; what counts is fio's processor time for each byte. A client that calls
//! `fdatasync` collects its pages itself, so the difference to another writer is the flusher's time. Both write the same pages
//! again and again.
//!
//! What copies take depends on where the pages come from: in a virtual machine, the host may have to find memory for them. So the
//! warm-up is as long as that of the mixes.

use anyhow::{Result, bail};
use iofair_core::unit::Sectors;
use iofair_experiments::experiment::{Overrides, parse};
use iofair_simulator::scenario::Work;

use super::execute::kernel;
use crate::live::Watch;

/// The host's dirty limits are so low that pages are written from the beginning.
const PROBES: &str = r#"
title = "Copies"
source = "a probe"
drive = "DRIVE"
time = "1200ms"
ramp = "1300ms"
repeats = 3
stacks = ["none-none"]
[host]
memory = "1GiB"
dirty_background_percent = 5
dirty_percent = 10
writeback = "root"
read_ahead = "256KiB"
[[client]]
name = "probe"
size = "2GiB"
job = "read"
buffered = true
[[variant]]
name = "reader"
[[variant]]
name = "reader of 256 KiB"
client.probe.block = "256KiB"
[[variant]]
name = "writer"
client.probe.job = "write"
[[variant]]
name = "writer of old pages"
client.probe.job = "write"
client.probe.size = "64MiB"
[[variant]]
name = "writer with fdatasync"
client.probe.job = "write"
client.probe.size = "64MiB"
client.probe.fdatasync = 256
"#;
const VARIANTS: usize = 5;
/// Bytes that the times are for.
const WINDOW: u64 = 256 << 10;

/// Processor time for 256 KiB of page cache in nanoseconds, as [`iofair_reproduction::truth::PathTimes`] has it, from the processor
/// times of a reader in calls of 4 KiB, a reader in calls of 256 KiB, a writer, a writer to old pages, and one that also writes
/// them back.
fn copies([calls, call, writer, old, synced]: [u64; VARIANTS], new_pages: u64) -> [u64; 5] {
    // The long call contains one call's overhead instead of 64.
    let copy = call.saturating_sub(calls.saturating_sub(call) / 63).min(calls);
    [calls, copy, writer, synced.saturating_sub(old), new_pages]
}

/// Measures them, over the drive with this profile; `None` where the kernel does not count processor time. `server` is the work of
/// the server without a page cache.
pub(super) fn measure(
    drive: &str,
    server: Option<Work>,
    watch: &Watch,
) -> Result<Option<[u64; 5]>> {
    let Some(server) = server else { return Ok(None) };
    // It takes two turns for a request.
    let direct = server.turn * 2 + server.time_for(Sectors::from_kib(256));
    let mut new_pages = 0;
    let probes = parse("copies.toml", &PROBES.replace("DRIVE", drive), &Overrides::default())?;
    let mut times = [0; VARIANTS];
    for (variant, time) in times.iter_mut().enumerate() {
        let (outcome, used) = kernel(&probes, variant, watch)?;
        let bytes = outcome.clients[0].bytes;
        if bytes == 0 {
            bail!("a buffered client moved nothing");
        }
        let of_window = |time: u64| {
            let work = u128::from(time) * u128::from(WINDOW) / u128::from(bytes);
            u64::try_from(work).unwrap_or(u64::MAX)
        };
        *time = of_window(used.usage.client);
        if variant == 0 {
            new_pages = of_window(used.usage.server).saturating_sub(direct.0);
        }
    }
    Ok(times.iter().all(|time| *time > 0).then(|| copies(times, new_pages)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: calls and copies are told apart, and disturbed numbers become no nonsense. Method: by hand, with calls of 1 us.
    #[test]
    fn calls_are_no_copies() {
        let measured = copies([104_000, 41_000, 131_000, 90_000, 170_000], 7_000);
        assert_eq!(measured, [104_000, 40_000, 131_000, 80_000, 7_000]);
        let disturbed = copies([50_000, 60_000, 100_000, 100_000, 90_000], 7_000);
        assert_eq!((disturbed[1], disturbed[3]), (50_000, 0));
    }
}
