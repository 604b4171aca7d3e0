//! What a drive reaches, in `[drive]`: what minimums and latencies are checked against.
//!
//! ```toml
//! [drive]
//! reaches = { read = "535MB/s", write = "386MB/s", random = "23.5MB/s", iops = 70000, latency = { read = "1.5ms", write = "0.9ms", sync = "5ms" } }
//! ```
//!
//! `random` is one client that reads 4 KiB at random places, one read after the other; `iops` many such requests at once, reads
//! or writes, whichever is less (optional); `latency` what such a read, a small write, or a flush takes beside writes in 99 of 100 cases
//! (optional; a time in place of the table: reads). An emulated drive is measured on its model, and what is written counts instead.

use iofair_core::attainable::{Attainable, SMALL_READ};
use iofair_core::contract::{Latency, Rate as Shown};
use iofair_core::key::{Field, inside};
use iofair_core::time::Nanos;
use serde::Deserialize;

use super::keys::Times;
use super::table::Table;
use crate::errors::Errors;
use crate::units::{Count, Rate};
use crate::{ConfigError, Source, Spanned};

/// The rates and latency that the file states; the rest is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reaches {
    /// Bytes a second of large reads.
    pub read: Option<u64>,
    /// Bytes a second of large writes, with a full cache.
    pub write: Option<u64>,
    /// Bytes a second of small reads at random places, one after the other.
    pub random: Option<u64>,
    /// Small requests a second, many at once.
    pub iops: Option<u64>,
    /// What a small read, write or flush takes beside writes.
    pub latency: Latency,
}

impl Reaches {
    /// Completed with the known rates; `None` if one is missing.
    pub(super) fn over(self, known: Option<Attainable>) -> Option<Attainable> {
        let reads = self.read.or(known.map(|known| known.reads))?;
        let writes = self.write.or(known.map(|known| known.writes))?;
        let alone = self.random.or(known.map(|known| known.alone))?;
        let small = self.iops.map(|iops| iops.saturating_mul(SMALL_READ));
        let small = small.or(known.and_then(|known| known.small));
        let latency = self.latency.or(known.map_or(Latency::NONE, |known| known.latency));
        Some(Attainable { reads, writes, alone, small, latency })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReaches {
    read: Option<Spanned<Rate>>,
    write: Option<Spanned<Rate>>,
    random: Option<Spanned<Rate>>,
    iops: Option<Spanned<Count>>,
    latency: Option<Spanned<Times>>,
}

/// What the table may have.
const ALL: &str = "read, write and random, and iops and latency if you like";

pub(super) fn check(
    source: &Source,
    written: Option<&Spanned<Table<RawReaches>>>,
    is_emulated: bool,
) -> Result<Reaches, ConfigError> {
    let Some(written) = written else { return Ok(Reaches::default()) };
    let RawReaches { read, write, random, iops, latency } = &**written.get_ref();
    let rates = [read, write, random];
    let times: Vec<&str> = inside("latency").filter_map(Field::inner).collect();
    let mut errors = Errors::default();
    if is_emulated && rates.iter().all(|rate| rate.is_none()) && iops.is_none() && latency.is_none()
    {
        errors.add(source.error(written.span(), "nothing in it").allowed(ALL));
    }
    for rate in rates.into_iter().flatten().filter(|rate| rate.get_ref().0 == 0) {
        errors.add(source.error(rate.span(), "a rate of nothing").allowed("more than 0B/s"));
    }
    if let Some(iops) = iops.as_ref().filter(|iops| iops.get_ref().0 == 0) {
        errors.add(source.error(iops.span(), "no requests at all").allowed("more than 0"));
    }
    let has_zero = |times: &&Spanned<Times>| times.get_ref().0.times().contains(&Some(Nanos::ZERO));
    if let Some(time) = latency.as_ref().filter(has_zero) {
        errors.add(source.error(time.span(), "a latency of nothing").allowed("more than 0ms"));
    }
    if let Some(empty) = latency.as_ref().filter(|times| !times.get_ref().0.is_some()) {
        errors.add(source.error(empty.span(), "no latency in it").allowed(times.join(", ")));
    }
    if let (Some(read), Some(random)) = (read, random)
        && random.get_ref().0 > read.get_ref().0
        && read.get_ref().0 > 0
    {
        let message =
            "small reads at random places, one after the other, are faster than large ones";
        let allowed = format!("at most {}", Shown(read.get_ref().0));
        errors.add(source.error(random.span(), message).allowed(allowed));
    }
    let missing = [("read", read), ("write", write), ("random", random)];
    let missing = missing.into_iter().filter(|(_, rate)| rate.is_none() && !is_emulated);
    for (key, _) in missing {
        let message = format!("`{key}` is missing, and only an emulated drive has it of its own");
        let error = source.error(written.span(), message);
        errors.add(error.allowed(ALL));
    }
    errors.end()?;
    let rate = |written: &Option<Spanned<Rate>>| written.as_ref().map(|rate| rate.get_ref().0);
    let latency = latency.as_ref().map_or(Latency::NONE, |times| times.get_ref().0);
    let iops = iops.as_ref().map(|iops| iops.get_ref().0);
    Ok(Reaches { read: rate(read), write: rate(write), random: rate(random), iops, latency })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::Contracts;

    fn parse(back: &str, keys: &str) -> Result<Reaches, ConfigError> {
        let text = format!("[drive]\nback = '{back}'\nreaches = {keys}\n");
        Contracts::parse("reaches.toml", &text).map(|contracts| contracts.drive.reaches)
    }

    /// Goal: every key is read, an emulated drive needs none of them, and what is wrong is told with its line and what is allowed.
    /// Method: good and bad tables.
    #[test]
    fn what_a_drive_reaches_is_read() {
        let all = "{ read = '535MB/s', write = '386MB/s', random = '23.5MB/s', iops = 70000, latency = '1.5ms' }";
        let found = parse("memory:1GiB", all).expect("every key");
        let drive = found.over(None).expect("nothing is missing");
        let rates = [drive.reads, drive.writes, drive.alone];
        assert_eq!(rates, [535_000_000, 386_000_000, 23_500_000]);
        assert_eq!(drive.small, Some(70_000 * 4096));
        assert_eq!(drive.latency, Latency::of_reads(Nanos::from_micros(1500)));
        let part = parse("emulated:plextor-px256m5s", "{ random = '20MB/s' }").expect("one key");
        assert_eq!(part.over(None), None);
        assert_eq!(part.over(Some(drive)), Some(Attainable { alone: 20_000_000, ..drive }));
        for (keys, message, allowed) in [
            ("{ read = '0B/s' }", "rate of nothing", "more than 0B/s"),
            ("{ iops = 0 }", "no requests", "more than 0"),
            ("{ latency = '0s' }", "latency of nothing", "more than 0ms"),
            ("{ latency = {} }", "no latency in it", "read, write, sync"),
            (
                "{ read = '1MB/s', write = '1MB/s' }",
                "`random` is missing",
                "read, write and random",
            ),
            (
                "{ read = '1MB/s', write = '1MB/s', random = '2MB/s' }",
                "faster",
                "at most 1.00 MB/s",
            ),
            ("{ alone = '1MB/s' }", "unknown key `alone`", "read, write, random, iops, latency"),
            ("'1MB/s'", "", ""),
        ] {
            let error = parse("memory:1GiB", keys).expect_err(keys);
            assert_eq!(error.line(), 3, "{error}");
            assert!(error.message.contains(message), "{error}");
            assert!(error.allowed.as_deref().unwrap_or_default().contains(allowed), "{error}");
        }
        for keys in ["{}", "{ latency = {} }"] {
            parse("emulated:plextor-px256m5s", keys).expect_err("nothing is said");
        }
    }
}
