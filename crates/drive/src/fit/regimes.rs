//! Stretches of constant rate in a series of written bytes.

/// A change of the rate by this factor is a cliff.
pub(super) const CLIFF: f64 = 1.12;
/// Windows that must agree.
const WINDOWS_MIN: usize = 4;

/// The rate of writes from a number of written bytes on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Regime {
    /// Written bytes at its start.
    pub from: u64,
    /// Bytes a second.
    pub rate: f64,
}

/// Splits a series into stretches of constant rate. A single slow window, such as one during which something else used the
/// drive, is no stretch.
pub(super) fn regimes(series: &[(u64, u64)]) -> Vec<Regime> {
    let mut windows = Vec::new();
    let mut before = (0, 0);
    for (bytes, at) in series {
        let time = at.saturating_sub(before.1).max(1);
        windows.push((before.0, (bytes - before.0) as f64 * 1e9 / time as f64));
        before = (*bytes, *at);
    }
    let mean = |from: usize, to: usize| {
        // Of times, not of rates: a window has the same bytes as any other.
        let part = &windows[from..to.min(windows.len())];
        part.len() as f64 / part.iter().map(|window| 1.0 / window.1).sum::<f64>().max(1e-12)
    };
    let mut found: Vec<Regime> = Vec::new();
    let mut begun = 0;
    let mut at = WINDOWS_MIN;
    while at + WINDOWS_MIN <= windows.len() {
        let (here, next) = (mean(begun, at), mean(at, at + WINDOWS_MIN));
        let change = (here / next).max(next / here);
        // It is a cliff only if the windows after these agree with them.
        let after = mean(at + WINDOWS_MIN, at + 3 * WINDOWS_MIN);
        let stays =
            at + 2 * WINDOWS_MIN > windows.len() || (after / next).max(next / after) < CLIFF;
        if change > CLIFF && stays {
            found.push(Regime { from: windows[begun].0, rate: here });
            begun = at;
            at += WINDOWS_MIN;
        } else {
            at += 1;
        }
    }
    if !windows.is_empty() {
        found.push(Regime { from: windows[begun].0, rate: mean(begun, windows.len()) });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(parts: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (mut all, mut bytes, mut at) = (Vec::new(), 0, 0);
        for (windows, nanos) in parts {
            for _ in 0..*windows {
                bytes += 1 << 20;
                at += nanos;
                all.push((bytes, at));
            }
        }
        all
    }

    /// Goal: cliffs are found where they are, and a single slow window is none. Method: made-up series.
    #[test]
    fn cliffs_are_found() {
        let found = regimes(&series(&[(20, 1_000_000), (40, 2_000_000), (40, 6_000_000)]));
        let from: Vec<u64> = found.iter().map(|regime| regime.from >> 20).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(from[1].abs_diff(20) <= 3 && from[2].abs_diff(60) <= 3, "{from:?}");
        let found = regimes(&series(&[(30, 1_000_000), (1, 4_000_000), (30, 1_000_000)]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(regimes(&[]).is_empty());
    }
}
