//! Amount of a job's I/O, as fio 3.33 counts it: `size`, `io_size`, `loops` and blocks that do not divide them.
//!
//! A pass through the file has as many whole blocks as fit; with an asynchronous engine it ends with the call that reaches `size`. There are `loops` passes,
//! and with `io_size` further ones as long as a block is left to do; all of them end with the call that reaches `io_size`, times
//! `loops`. Where random calls may come to a place again, only bytes end a pass. Passes of calls with gaps end where calls
//! cannot go on ([`Gap`]), so that only the run shows how long they are.
//!
//! [`Gap`]: iofair_simulator::scenario::Gap

use iofair_config::fio::{Blocks, Direction, Settings, Size};

use super::target::Region;
use iofair_simulator::scenario::Passes;

/// Amount of a job's I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Amount {
    /// Of pairs of a trim and a write, those written.
    pub(super) bytes: u64,
    /// Calls of a pass, if it ends by their number.
    pub(super) pass: Option<u64>,
    /// Whether the last call may be longer than what is left. Calls of one size divide what is to be done.
    pub(super) last_is_whole: bool,
    /// Whether it ends because no further block fits.
    pub(super) fails: bool,
}

/// Passes of a job on a range.
pub(super) fn passes(settings: &Settings, region: &Region) -> Passes {
    let (mut bytes, mut wanted) = (region.size, None);
    match settings.io_size {
        None | Some(Size::Bytes(0)) => {}
        Some(Size::Bytes(size)) => wanted = Some(size),
        Some(Size::Percent(percent)) => {
            let part = u128::from(region.reach) * u128::from(percent) / 100;
            bytes = bytes.min(part as u64);
        }
    }
    let (goes_on, wanted) = (wanted.is_some(), wanted.unwrap_or(bytes));
    if settings.writes() && settings.random && !settings.random_map {
        bytes = bytes.max(wanted);
    }
    if settings.direction == Direction::TrimWrite {
        bytes = bytes.saturating_add(wanted.saturating_mul(settings.loops));
    }
    if !settings.counts_calls_in_flight() {
        bytes = u64::MAX;
    }
    let most = settings.blocks.iter().map(Blocks::most).max().unwrap_or(512);
    Passes { number: settings.loops, bytes, wanted, goes_on, most }
}

/// Amount of a job with calls in these directions on a range; `None`: more than can be counted.
pub(super) fn total(settings: &Settings, used: [bool; 3], region: &Region) -> Option<Amount> {
    let used = settings.blocks.iter().zip(used).filter(|(_, used)| *used);
    let blocks = || used.clone().map(|(blocks, _)| blocks);
    let block = blocks().map(Blocks::least).min().unwrap_or(512);
    let differ = blocks().any(|blocks| *blocks != Blocks::Fixed(block));
    let up = |bytes: u64| match differ {
        true => Some(bytes),
        false => bytes.checked_next_multiple_of(block),
    };
    let Passes { number, bytes, wanted, goes_on, most } = passes(settings, region);
    let all = up(wanted.checked_mul(number)?)?;
    if settings.has_gaps() {
        return Some(Amount { bytes: all, pass: None, last_is_whole: differ, fails: false });
    }
    let files = settings.nr_files;
    let whole = match settings.may_repeat_places() {
        true => u64::MAX,
        false => region.reach / files / block * block * files,
    };
    let pass = whole.min(up(bytes).unwrap_or(u64::MAX)).min(all);
    let mut done = pass.checked_mul(number)?.min(all);
    // Each block is trimmed and written. Only what is written ends the job, but both end a pass.
    let times = if settings.direction == Direction::TrimWrite { 2 } else { 1 };
    let left = wanted.saturating_sub(done.saturating_mul(times));
    if goes_on && left >= most && pass > 0 {
        let further = (left - most) / pass.saturating_mul(times) + 1;
        done = done.checked_add(further.checked_mul(pass)?)?.min(all);
    }
    // A pass that ends so has done more than is wanted, so that none follows for `io_size`.
    let ends = times > 1 && bytes < u64::MAX && (!goes_on || whole.saturating_mul(times) > bytes);
    let calls = ends.then(|| bytes.div_ceil(block));
    // Without `io_size`, the end of the file cuts the last call.
    let last_is_whole = differ && (settings.io_size.is_some() || settings.may_repeat_places());
    Some(Amount { bytes: done, pass: calls, last_is_whole, fails: whole < bytes && done < all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_config::fio::Blocks;

    /// Goal: as many calls as fio 3.33 makes. Method: sizes in KiB, `io_size` in bytes or percent, loops and blocks, and the calls
    /// that fio made with them on a new file.
    #[test]
    fn calls_are_fios() {
        let kib = |kib: u64| Some(Size::Bytes(kib << 10));
        let percent = |percent| Some(Size::Percent(percent));
        for (size, io_size, loops, block, wanted) in [
            (1024, percent(50), 1, 4, 128),
            (1024, percent(33), 1, 4, 85),
            (10, percent(50), 1, 4, 2),
            (1024, kib(10), 1, 4, 3),
            (10, None, 1, 4, 2),
            (10, kib(10), 1, 4, 2),
            (10, kib(50), 1, 4, 12),
            (1024, None, 1, 12, 85),
            (1024, kib(1024), 1, 12, 85),
            (1024, kib(1000), 1, 12, 84),
            (1024, percent(50), 1, 12, 43),
            (1024, None, 2, 12, 170),
            (1024, kib(10), 2, 4, 5),
            (1024, percent(50), 3, 12, 128),
            (1024, kib(1500), 2, 4, 512),
            (1024, kib(1500), 1, 4, 375),
            (1024, kib(1500), 1, 12, 125),
            (1024, kib(1045), 1, 12, 88),
            (1024, kib(1060), 1, 12, 89),
        ] {
            let blocks = std::array::from_fn(|_| Blocks::Fixed(block << 10));
            let settings = Settings { io_size, loops, blocks, ..Settings::default() };
            let size = size << 10;
            let region = Region { size, reach: size, room: size, ..Region::default() };
            let amount = total(&settings, [true, false, false], &region).expect("not too much");
            let told = (amount.bytes / (block << 10), amount.bytes % (block << 10));
            assert_eq!(told, (wanted, 0), "{size} {io_size:?} {loops} {block}k");
        }
        let most = Settings { io_size: Some(Size::Bytes(u64::MAX)), ..Settings::default() };
        let region = Region { size: 8192, reach: 8192, ..Region::default() };
        assert_eq!(total(&most, [true, false, false], &region), None, "more than can be counted");
    }
}
