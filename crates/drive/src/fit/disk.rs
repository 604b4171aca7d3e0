//! Fits the model of a hard disk.

use iofair_core::time::Nanos;

use super::model::{Parameter, Value};
use super::problem::{Fit, Numbers, Simulations, Tunable, nanos};
use super::row::Row;
use super::scope::Scope;
use super::solve::{self, SIGNIFICANT};
use super::survey::Survey;
use crate::hdd::{Mechanics, Order, Parameters};
use crate::profile::Model;

/// Blocks in which the model counts its memory.
const BLOCK: f64 = 4096.0;
/// A fit is about as good with this many times the squares, and values agree up to this part.
const COMPARABLE_SQUARES: f64 = 4.0;
const AGREEMENT: f64 = 0.05;
/// Head switches that are tried, in microseconds.
const HEAD_SWITCHES: [u64; 4] = [400, 800, 1200, 1800];
/// Numbers of read-ahead segments that are tried.
const SEGMENTS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Depths above which streams go first.
const STREAMS_ABOVE: [u32; 3] = [8, 16, 24];

/// Iterations before the choice of discrete parameters.
const COARSE_ITERATIONS: usize = 4;

/// The continuous parameters.
const TUNABLES: &[Tunable<Parameters>] = &[
    Tunable {
        key: "overhead-read",
        range: (1e3, 1e7),
        offset: 0.0,
        get: |disk| disk.overhead_read.0 as f64,
        set: |disk, value| disk.overhead_read = nanos(value),
    },
    Tunable {
        key: "overhead-write",
        range: (1e3, 1e7),
        offset: 0.0,
        get: |disk| disk.overhead_write.0 as f64,
        set: |disk, value| disk.overhead_write = nanos(value),
    },
    Tunable {
        key: "bus",
        range: (1e7, 1e10),
        offset: 0.0,
        get: |disk| disk.bus as f64,
        set: |disk, value| disk.bus = value as u64,
    },
    Tunable {
        key: "revolution",
        range: (2e6, 2e7),
        offset: 0.0,
        get: |disk| disk.mechanics.revolution.0 as f64,
        set: |disk, value| disk.mechanics.revolution = nanos(value),
    },
    Tunable {
        key: "outer",
        range: (2e6, 1e9),
        offset: 0.0,
        get: |disk| disk.mechanics.outer as f64,
        set: |disk, value| disk.mechanics.outer = (value as u64).max(disk.mechanics.inner),
    },
    Tunable {
        key: "inner",
        range: (2e6, 1e9),
        offset: 0.0,
        get: |disk| disk.mechanics.inner as f64,
        set: |disk, value| {
            disk.mechanics.inner = value as u64;
            disk.mechanics.outer = disk.mechanics.outer.max(disk.mechanics.inner);
        },
    },
    Tunable {
        key: "seek-track",
        range: (1e5, 1e7),
        offset: 0.0,
        get: |disk| disk.mechanics.seek_track.0 as f64,
        set: |disk, value| disk.mechanics.seek_track = nanos(value),
    },
    Tunable {
        key: "seek-average",
        range: (5e5, 5e7),
        offset: 0.0,
        get: |disk| disk.mechanics.seek_average.0 as f64,
        set: |disk, value| {
            disk.mechanics.seek_average = nanos(value).max(disk.mechanics.seek_track);
        },
    },
    Tunable {
        key: "seek-full",
        range: (1e6, 1e8),
        offset: 0.0,
        get: |disk| disk.mechanics.seek_full.0 as f64,
        set: |disk, value| disk.mechanics.seek_full = nanos(value).max(disk.mechanics.seek_average),
    },
    Tunable {
        key: "head-switch",
        range: (1e5, 3e6),
        offset: 0.0,
        get: |disk| disk.mechanics.head_switch.0 as f64,
        set: |disk, value| {
            disk.mechanics.head_switch = nanos(value).min(disk.mechanics.revolution - Nanos(1))
        },
    },
    Tunable {
        key: "write-settle",
        range: (0.0, 5e6),
        offset: 1e5,
        get: |disk| disk.mechanics.write_settle.0 as f64,
        set: |disk, value| disk.mechanics.write_settle = nanos(value),
    },
    Tunable {
        key: "heads",
        range: (1.0, 64.0),
        offset: 0.0,
        get: |disk| disk.mechanics.heads as f64,
        set: |disk, value| disk.mechanics.heads = value.round().max(1.0) as u64,
    },
    Tunable {
        key: "age",
        range: (1e8, 2e10),
        offset: 0.0,
        get: |disk| disk.age.0 as f64,
        set: |disk, value| disk.age = nanos(value),
    },
    Tunable {
        key: "read-ahead",
        range: (BLOCK, 1e9),
        offset: 0.0,
        get: |disk| disk.read_ahead as f64 * BLOCK,
        set: |disk, value| disk.read_ahead = ((value / BLOCK) as u64).max(1),
    },
    Tunable {
        key: "write-cache",
        range: (BLOCK, 1e10),
        offset: 0.0,
        get: |disk| disk.write_cache as f64 * BLOCK,
        set: |disk, value| disk.write_cache = ((value / BLOCK) as u64).max(1),
    },
    Tunable {
        key: "flush",
        range: (0.0, 1e9),
        offset: 1e4,
        get: |disk| disk.flush.0 as f64,
        set: |disk, value| disk.flush = nanos(value),
    },
];

fn number(numbers: &Numbers, row: &str) -> Option<f64> {
    numbers.iter().find(|((name, _), _)| name == row).map(|(_, value)| *value)
}

/// A disk that explains some rows exactly, since each depends on few parameters.
fn guess(scope: &Scope, survey: &Survey, numbers: &Numbers) -> Parameters {
    let of = |row: &str, other: f64| number(numbers, row).unwrap_or(other);
    let (small, large) = (of("the same 4 KiB again", 1e5), of("the same 128 KiB again", 6e5));
    let bus = (124.0 * 1024.0 * 1e9 / (large - small).max(1e3)).clamp(1e7, 1e10);
    let overhead = (small - 4096.0 * 1e9 / bus).max(2e3);
    let written = of("4 KiB random writes, QD1, in the cache", small);
    let revolution = of("4 KiB reads backward", 8.33e6).clamp(2e6, 2e7);
    let outer = of("256 KiB sequential reads, QD4, at the beginning", survey.read_rate);
    let inner = of("256 KiB sequential reads, QD4, at the end", outer / 2.0).min(outer);
    // Head switches hide some of the media's rate.
    let (outer, inner) = ((outer * 1.08).max(2e6), (inner * 1.08).max(2e6));
    let arm = |row: &str, other: f64| (of(row, other) - revolution / 2.0 - overhead).max(2e5);
    let near = arm("4 KiB random reads in 1/4096 of the area", 6e6);
    let third = arm("4 KiB random reads in 1/3 of the area", 1e7);
    let all = survey.lone_read.0 - revolution / 2.0 - overhead;
    let ends = arm("4 KiB reads at both ends", 2e7);
    let average = all.max(third * 1.1).max(near * 1.2);
    Parameters {
        mechanics: Mechanics {
            capacity: scope.facts.capacity.bytes(),
            heads: 4,
            revolution: nanos(revolution),
            outer: outer as u64,
            inner: inner as u64,
            seek_track: nanos(near * 0.7),
            seek_average: nanos(average),
            seek_full: nanos(ends.max(average)),
            head_switch: Nanos::from_micros(800).min(nanos(revolution / 3.0)),
            write_settle: Nanos::from_micros(500),
        },
        slots: scope.facts.depth,
        overhead_read: nanos(overhead),
        overhead_write: nanos((written - 4096.0 * 1e9 / bus).max(2e3)),
        bus: bus as u64,
        order: Order::Sstf,
        streams_above: scope.facts.depth,
        age: Nanos::from_secs(3),
        segments: 8,
        read_ahead: 256,
        write_cache: 2048,
        flush: nanos(survey.flush),
        max_request: scope.facts.max_request.bytes(),
        worst_case: 1,
    }
}

fn alternatives(at: &Parameters) -> Vec<(&'static str, Parameters)> {
    let order = match at.order {
        Order::Fcfs => Order::Sstf,
        Order::Sstf => Order::Fcfs,
    };
    let mut all = vec![("order", Parameters { order, ..at.clone() })];
    let segments = SEGMENTS.into_iter().filter(|segments| *segments != at.segments);
    all.extend(segments.map(|segments| ("segments", Parameters { segments, ..at.clone() })));
    let above = STREAMS_ABOVE.into_iter().chain([at.slots]);
    let above = above.filter(|count| *count <= at.slots && *count != at.streams_above);
    let with = |streams_above| Parameters { streams_above, ..at.clone() };
    all.extend(above.map(|count| ("streams-above", with(count))));
    all
}

/// The fitted model, and what the rows say about each parameter.
pub(super) struct Disk<'a> {
    pub(super) scope: &'a Scope,
    pub(super) survey: &'a Survey,
    pub(super) rows: &'a [Row],
    pub(super) numbers: &'a Numbers,
    pub(super) simulations: &'a Simulations,
    pub(super) is_over: &'a dyn Fn() -> bool,
}

impl Disk<'_> {
    fn fit(&self, base: Parameters) -> Fit<'_, Parameters> {
        let Self { rows, numbers, simulations, is_over, .. } = *self;
        let (tunables, model, volume) = (TUNABLES, Model::Hdd, None);
        Fit { base, tunables, rows, numbers, model, volume, simulations, is_over }
    }
    fn choose(&self, mut best: (Parameters, f64)) -> (Parameters, f64) {
        for _ in 0..5 {
            if (self.is_over)() {
                break;
            }
            let better = alternatives(&best.0)
                .into_iter()
                .map(|(_, disk)| (disk.clone(), self.fit(disk).squares()))
                .min_by(|a, b| a.1.total_cmp(&b.1));
            match better {
                Some(found) if found.1 < best.1 - SIGNIFICANT => best = found,
                _ => break,
            }
        }
        best
    }
    /// The best model near a guess.
    fn near(&self, base: Parameters) -> (Parameters, f64) {
        let mut best = self.fit(base).better(COARSE_ITERATIONS);
        for _ in 0..3 {
            if (self.is_over)() {
                break;
            }
            let chosen = self.choose(best.clone());
            let fitted = self.fit(chosen.0).best();
            let before = best.1;
            if fitted.1 < before {
                best = fitted;
            }
            if best.1 > before - SIGNIFICANT {
                break;
            }
        }
        let polished = self.fit(best.0).polished();
        self.fit(polished.0).better(COARSE_ITERATIONS)
    }
    /// The best model, and others that were fitted from other guesses, with their sums of squares.
    pub(super) fn best(&self) -> (Parameters, Vec<(Parameters, f64)>) {
        let guess = guess(self.scope, self.survey, self.numbers);
        // First what rows without chance say: electronics, bus, revolution, flush.
        let exact: Vec<Row> =
            self.rows.iter().filter(|row| row.tolerance < 0.01).cloned().collect();
        let first = Fit { rows: &exact, ..self.fit(guess) };
        let first = first.better(COARSE_ITERATIONS).0;
        // Head switches and the rate of the media hide each other.
        let with = |micros: u64| {
            let mut base = first.clone();
            let mechanics = &mut base.mechanics;
            let revolution = mechanics.revolution.0;
            let (before, after) = (mechanics.head_switch.0, micros * 1000);
            for rate in [&mut mechanics.outer, &mut mechanics.inner] {
                let scaled = u128::from(*rate) * u128::from(revolution + after);
                *rate = u64::try_from(scaled / u128::from(revolution + before)).unwrap_or(*rate);
            }
            mechanics.head_switch = Nanos(after).min(Nanos(revolution / 2));
            self.near(base)
        };
        let mut tried: Vec<(Parameters, f64)> = HEAD_SWITCHES.into_iter().map(with).collect();
        tried.sort_by(|a, b| a.1.total_cmp(&b.1));
        (tried[0].0.clone(), tried)
    }
    /// What the rows say about each parameter of this model.
    pub(super) fn parameters(
        &self,
        at: &Parameters,
        others: &[(Parameters, f64)],
    ) -> Vec<Parameter> {
        let fit = self.fit(at.clone());
        let (here, scale) = (fit.squares(), fit.scale());
        // Valleys of a disk are winding: a fit from another guess that is about as good must agree.
        let near = others.iter().filter(|(_, squares)| *squares < here * COMPARABLE_SQUARES);
        let near: Vec<&Parameters> = near.map(|(disk, _)| disk).collect();
        let agree = |tunable: &Tunable<Parameters>| {
            let value = (tunable.get)(at);
            near.iter().all(|disk| ((tunable.get)(disk) - value).abs() <= AGREEMENT * value)
        };
        let mut all: Vec<Parameter> = TUNABLES
            .iter()
            .zip(fit.errors())
            .enumerate()
            .map(|(index, (tunable, error))| Parameter {
                key: tunable.key.to_owned(),
                value: Value::new(tunable.key, (tunable.get)(at)),
                error: Some(error),
                decided: solve::is_decided(error) && agree(tunable) && fit.shows(index),
            })
            .collect();
        let mut choice = |key: &str, value: Value| {
            let limit = here + SIGNIFICANT * scale;
            let mut others = alternatives(at).into_iter().filter(|choice| choice.0 == key);
            let decided = others.all(|(_, disk)| self.fit(disk).squares() > limit);
            all.push(Parameter { key: key.to_owned(), value, error: None, decided });
        };
        let order = if at.order == Order::Fcfs { "fcfs" } else { "sstf" };
        choice("order", Value::Text(order));
        choice("segments", Value::Count(at.segments as u64));
        choice("streams-above", Value::Count(u64::from(at.streams_above)));
        all
    }
}
