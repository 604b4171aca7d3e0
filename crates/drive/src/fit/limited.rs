//! Fits a drive behind limits, where the rows show some or a drive alone does not explain them.

use iofair_core::time::Nanos;

use super::flash::{Flash, Scored};
use super::model::{Parameter, Value};
use super::row::LONE_READS;
use super::solve::SIGNIFICANT;
use crate::behind::Path;
use crate::{ssd, volume};

/// Mean error above which a model without limits is compared with one that has some.
const DOUBTFUL_PERCENT: f64 = 3.0;
/// What the series do not show, or what contradicts them, must make the sum of squares this many times smaller.
const BETTER: f64 = 2.0;
/// A longest latency further from the mean than this many deviations is a tail.
const TAIL: f64 = 3.0;
/// The longest of 4,000 exponential draws is about this many means (the logarithm of 4,000).
const LONGEST_OF_4000: f64 = 8.3;

/// The best model, with or without limits.
pub(super) fn best(plain: Flash<'_>) -> (Flash<'_>, ssd::Parameters) {
    let Some(limits) = plain.survey.limits else {
        let best = plain.best().0;
        return (plain, best);
    };
    let volume = limits.volume(plain.scope);
    let path = path(&plain, volume.path);
    let limited = Flash { volume: Some(volume::Parameters { path, ..volume }), ..plain };
    let is_doubtful = |flash: &Flash<'_>, at: &Scored| {
        !(flash.is_over)() && flash.mean_error(&at.0) > DOUBTFUL_PERCENT
    };
    if limits.are_shown() {
        let (limited, best) = with_directions(limited);
        if is_doubtful(&limited, &best) {
            let other = plain.best();
            if other.1 * BETTER < best.1 {
                return (plain, other.0);
            }
        }
        return (limited, best.0);
    }
    let best = plain.best();
    if is_doubtful(&plain, &best) {
        let (limited, other) = with_directions(limited);
        if other.1 * BETTER < best.1 {
            return (limited, other.0);
        }
    }
    (plain, best.0)
}

/// The path to the drive: what a lone cached write takes, without what others wait for. Its jitter has a long tail, and what
/// the flash varies by has none.
fn path(plain: &Flash<'_>, path: Path) -> Path {
    let Some((lone, own)) = plain.cached_write() else { return path };
    let (mean, deviation) = plain.survey.lone_read;
    let tail = plain.number(LONE_READS, "longest of 0").map_or(0.0, |longest| longest - mean);
    let jitter = match tail > TAIL * deviation {
        true => (tail / LONGEST_OF_4000).min(deviation),
        false => 0.0,
    };
    let fixed = (lone - own).min(mean * 0.9) - jitter;
    Path { fixed: Nanos(fixed.max(0.0) as u64), jitter: Nanos(jitter as u64), ..path }
}

/// The best drive behind limits that both directions share, or behind limits of each.
fn with_directions(shared: Flash<'_>) -> (Flash<'_>, Scored) {
    let best = shared.best();
    let own = other_directions(&shared);
    if own.squares(best.0.clone()) < best.1 - SIGNIFICANT {
        let refitted = own.refit(best.0);
        return (own, refitted);
    }
    (shared, best)
}

/// The same limits, shared by reads and writes if they are not, and the reverse.
fn other_directions<'a>(flash: &Flash<'a>) -> Flash<'a> {
    let other =
        |limits: volume::Parameters| volume::Parameters { shared: !limits.shared, ..limits };
    Flash { volume: flash.volume.map(other), ..*flash }
}

/// What the series, and the rows of both directions, say about the limits.
pub(super) fn parameters(flash: &Flash<'_>, at: &ssd::Parameters) -> Vec<Parameter> {
    let (Some(volume), Some(limits)) = (flash.volume, flash.survey.limits) else {
        return Vec::new();
    };
    let of = |key: &str, value: Value, decided: bool| {
        let key = format!("volume.{key}");
        Parameter { key, value, error: None, decided }
    };
    let is_over = (flash.is_over)();
    // A burst ends with a slice, so it is known to a slice only.
    let is_smooth = limits.burst.is_some_and(|burst| volume.slice.0 * 10 < burst.0);
    let directions = !is_over && {
        let other = other_directions(flash);
        let (here, scale) = (flash.squares(at.clone()), flash.scale(at));
        other.squares(at.clone()) > here + SIGNIFICANT * scale
            && other.refit(at.clone()).1 > here + SIGNIFICANT * scale
    };
    vec![
        of("latency", Value::Nanos(volume.path.fixed.0), false),
        of("jitter", Value::Nanos(volume.path.jitter.0), false),
        of("depth", Value::Count(u64::from(volume.path.depth)), false),
        of("iops", Value::Count(volume.iops), limits.iops.is_some()),
        of("rate", Value::Rate(volume.rate), limits.rate.is_some()),
        of("io", Value::Bytes(volume.io), false),
        of("burst", Value::Nanos(limits.whole_burst(&volume).0), is_smooth),
        of("slice", Value::Nanos(volume.slice.0), limits.slice.is_some()),
        of("shared", Value::Flag(volume.shared), directions),
    ]
}
