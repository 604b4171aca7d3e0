//! Amount of a job's I/O, as fio 3.33 counts it: `size`, `io_size`, `loops` and blocks that do not divide them.
//!
//! A pass through the file has as many whole blocks as fit. `io_size` ends a job with the call that reaches it, in the middle of a
//! pass; at the end of a pass, a further one begins only if a block is left to do. Random calls that may come to a place again,
//! and sequential calls with gaps, end with the call that reaches the size; a pass with gaps may end before ([`Gap`]).
//!
//! [`Gap`]: iofair_simulator::scenario::Gap

use iofair_config::fio::{Direction, Settings, Size};

use super::target::Region;

/// Amount of a job's I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Amount {
    pub(super) bytes: u64,
    /// Whether the last call may be longer than what is left. Calls of one size divide what is to be done.
    pub(super) last_is_whole: bool,
}

/// Amount of a job with calls in these directions on a range; `None`: more than can be counted.
pub(super) fn total(settings: &Settings, used: [bool; 3], region: &Region) -> Option<Amount> {
    let size = region.size.bytes();
    let used = settings.blocks.iter().zip(used).filter(|(_, used)| *used);
    let blocks = || used.clone().map(|(blocks, _)| blocks);
    let least = blocks().map(|blocks| blocks.least()).min().unwrap_or(512);
    let most = blocks().map(|blocks| blocks.most()).max().unwrap_or(least);
    // Each block is trimmed and written.
    let times = if settings.direction == Direction::TrimWrite { 2 } else { 1 };
    // Without `filesize`, each of several files has as many whole blocks as fit into its part.
    let files = if settings.file_size.is_none() { settings.nr_files } else { 1 };
    let pass = size / files / least * least * files;
    let differ = least != most;
    let up = |bytes: u64| match differ {
        true => Some(bytes),
        false => bytes.checked_next_multiple_of(least),
    };
    let wanted = match settings.io_size {
        None | Some(Size::Bytes(0)) => {
            let has_gaps =
                (settings.modifier.is_some() && !settings.random) || settings.zone_gap() > 0;
            let (bytes, last_is_whole) = match has_gaps || settings.may_repeat_places() {
                true => (up(size.checked_mul(settings.loops)?)?, differ),
                false => (pass.checked_mul(settings.loops)?, false),
            };
            return Some(Amount { bytes: bytes.checked_mul(times)?, last_is_whole });
        }
        Some(Size::Bytes(bytes)) => bytes,
        Some(Size::Percent(percent)) => (u128::from(size) * u128::from(percent) / 100) as u64,
    };
    let passes = pass.checked_mul(settings.loops)?;
    let bytes = match wanted {
        _ if wanted < pass => up(wanted.checked_mul(settings.loops)?)?,
        _ if wanted <= passes => passes,
        _ => {
            let whole = wanted / pass.max(1) * pass;
            let rest = wanted - whole;
            whole.checked_add(if rest < most { 0 } else { up(rest)? })?
        }
    };
    Some(Amount { bytes: bytes.checked_mul(times)?, last_is_whole: differ })
}

#[cfg(test)]
mod tests {
    use iofair_config::fio::Blocks;
    use iofair_core::unit::Sectors;

    use super::*;

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
            let region = Region {
                place: None,
                size: Sectors(2 * size),
                room: Sectors(2 * size),
                is_whole: true,
            };
            let amount = total(&settings, [true, false, false], &region).expect("not too much");
            let told = (amount.bytes / (block << 10), amount.bytes % (block << 10));
            assert_eq!(told, (wanted, 0), "{size}k {io_size:?} {loops} {block}k");
        }
        let most = Settings { io_size: Some(Size::Bytes(u64::MAX)), ..Settings::default() };
        let region = Region { place: None, size: Sectors(16), room: Sectors(16), is_whole: true };
        assert_eq!(total(&most, [true, false, false], &region), None, "more than can be counted");
    }
}
