//! Fits the model of a solid-state drive.

use iofair_core::time::Nanos;

use super::model::{Parameter, Value};
use super::plan::cached_writes;
use super::problem::{
    Fit, Numbers, Simulations, Tunable, mean_error, nanos, profile_of, residuals,
};
use super::row::{LARGE, Row, SMALL};
use super::scope::Scope;
use super::solve::{self, SIGNIFICANT};
use super::start::Start;
use super::survey::Survey;
use crate::profile::Model;
use crate::ssd::{DeepQueue, Duplex, Ftl, LinkOrder, Parameters, Slc, Suspend};
use crate::volume;

/// Groups of parameters: of lone reads, of writes, and of reads beside each other.
const READING: [&str; 6] =
    ["firmware-read", "large-setup", "units", "page-read", "page-read-spread-percent", "link"];
const WRITING: [&str; 4] = ["firmware-write", "drain", "write-cache", "flush"];
const COMPETING: [&str; 2] = ["read-buffer", "link"];
/// Sizes of the read buffer that are tried.
const BUFFERS: [u64; 5] = [64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Numbers of flash units that are tried.
const UNITS: [u32; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
/// Sizes of a page that are tried first; flash has no smaller ones.
const PAGES: [u64; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];
/// Deep-queue rules that are tried: from how many commands on, and overtakes.
const DEEP_QUEUES: [(u32, u32); 9] =
    [(8, 8), (8, 28), (16, 8), (16, 28), (20, 28), (24, 8), (24, 28), (28, 8), (28, 28)];

/// The continuous parameters.
const TUNABLES: &[Tunable<Parameters>] = &[
    Tunable {
        key: "firmware-read",
        range: (50.0, 1e6),
        offset: 0.0,
        get: |ssd| ssd.firmware_read.0 as f64,
        set: |ssd, value| ssd.firmware_read = nanos(value),
    },
    Tunable {
        key: "firmware-write",
        range: (50.0, 1e6),
        offset: 0.0,
        get: |ssd| ssd.firmware_write.0 as f64,
        set: |ssd, value| ssd.firmware_write = nanos(value),
    },
    Tunable {
        key: "large-setup",
        range: (0.0, 1e8),
        offset: 1000.0,
        get: |ssd| ssd.large_setup.0 as f64,
        set: |ssd, value| ssd.large_setup = nanos(value),
    },
    Tunable {
        key: "units",
        range: (1.0, 4096.0),
        offset: 0.0,
        get: |ssd| f64::from(ssd.units),
        set: |ssd, value| ssd.units = value.round().max(1.0) as u32,
    },
    Tunable {
        key: "page-read",
        range: (500.0, 1e8),
        offset: 0.0,
        get: |ssd| ssd.page_read.0 as f64,
        set: |ssd, value| ssd.page_read = nanos(value),
    },
    Tunable {
        key: "page-read-spread-percent",
        range: (0.0, 100.0),
        offset: 1.0,
        get: |ssd| f64::from(ssd.page_read_spread),
        set: |ssd, value| ssd.page_read_spread = value.round().clamp(0.0, 100.0) as u32,
    },
    Tunable {
        key: "link",
        range: (1e6, 1e11),
        offset: 0.0,
        get: |ssd| ssd.link as f64,
        set: |ssd, value| ssd.link = value as u64,
    },
    Tunable {
        key: "read-buffer",
        range: (32768.0, 1e9),
        offset: 0.0,
        get: |ssd| ssd.read_buffer as f64,
        set: |ssd, value| ssd.read_buffer = (value as u64).max(ssd.page),
    },
    Tunable {
        key: "drain",
        range: (1e5, 1e11),
        offset: 0.0,
        // With fast flash, what the rows see is that one's rate.
        get: |ssd| ssd.slc.map_or(ssd.drain, |slc| slc.drain) as f64,
        set: |ssd, value| match &mut ssd.slc {
            Some(slc) => slc.drain = value as u64,
            None => ssd.drain = value as u64,
        },
    },
    Tunable {
        key: "write-cache",
        range: (65536.0, 1e11),
        offset: 0.0,
        get: |ssd| ssd.write_cache as f64,
        set: |ssd, value| ssd.write_cache = value as u64,
    },
    Tunable {
        key: "flush",
        range: (0.0, 1e9),
        offset: 500.0,
        get: |ssd| ssd.flush.0 as f64,
        set: |ssd, value| ssd.flush = nanos(value),
    },
];

/// Parameters of flash translation; without it they have no effect.
const TRANSLATION: &[Tunable<Parameters>] = &[
    Tunable {
        key: "ftl.copy",
        range: (1e3, 1e9),
        offset: 0.0,
        get: |ssd| ssd.ftl.map_or(1e3, |ftl| ftl.copy.0 as f64),
        set: |ssd, value| translate(ssd, |ftl| ftl.copy = nanos(value)),
    },
    Tunable {
        key: "ftl.batch",
        range: (0.0, 1e10),
        offset: 1e5,
        get: |ssd| ssd.ftl.map_or(0.0, |ftl| ftl.batch.0 as f64),
        set: |ssd, value| translate(ssd, |ftl| ftl.batch = nanos(value)),
    },
    Tunable {
        key: "ftl.suspend.least",
        range: (0.0, 1e8),
        offset: 1e4,
        get: |ssd| suspend(ssd).map_or(0.0, |suspend| suspend.least.0 as f64),
        set: |ssd, value| suspended(ssd, |suspend| suspend.least = nanos(value)),
    },
    Tunable {
        key: "ftl.suspend.mean",
        range: (1e3, 1e8),
        offset: 1e4,
        get: |ssd| suspend(ssd).map_or(0.0, |suspend| suspend.mean.0 as f64),
        set: |ssd, value| suspended(ssd, |suspend| suspend.mean = nanos(value)),
    },
    Tunable {
        key: "ftl.suspend.mean-full",
        range: (1e3, 1e9),
        offset: 1e4,
        get: |ssd| suspend(ssd).map_or(0.0, |suspend| suspend.mean_full.0 as f64),
        set: |ssd, value| suspended(ssd, |suspend| suspend.mean_full = nanos(value)),
    },
];

fn translate(ssd: &mut Parameters, change: impl FnOnce(&mut Ftl)) {
    if let Some(ftl) = &mut ssd.ftl {
        change(ftl);
    }
}
fn suspend(ssd: &Parameters) -> Option<Suspend> {
    ssd.ftl.and_then(|ftl| ftl.suspend)
}
fn suspended(ssd: &mut Parameters, change: impl FnOnce(&mut Suspend)) {
    translate(ssd, |ftl| {
        if let Some(suspend) = &mut ftl.suspend {
            change(suspend);
        }
    });
}

/// An alternative whose sum of squares is higher by more than this is not fitted anew.
const REFIT_MAX: f64 = 2000.0;
/// Iterations before and after the choice of discrete parameters.
const COARSE_ITERATIONS: usize = 5;

fn latency(numbers: &Numbers, row: &str, stream: usize) -> Option<f64> {
    numbers.get(&(row.to_owned(), format!("latency of {stream}"))).copied()
}

/// Bytes a second of the link behind limits: what a lone long read takes more than a short one.
fn link_behind_limits(survey: &Survey, numbers: &Numbers) -> Option<f64> {
    let more = latency(numbers, "256 KiB random reads, QD1", 0)? - survey.lone_read.0;
    Some((LARGE - SMALL) as f64 * 1e9 / more.max(10_000.0))
}

/// Nanoseconds of a lone cached write, and the part of them for which a write keeps others waiting.
fn own_of_write(numbers: &Numbers) -> Option<(f64, f64)> {
    let of = |depth| latency(numbers, &cached_writes(depth), 0);
    let (lone, many) = (of(1)?, of(32)?);
    Some((lone, ((many - lone) / 31.0).clamp(0.0, lone / 4.0)))
}

/// A drive that explains some rows roughly: each of them depends on few parameters.
fn guess(scope: &Scope, survey: &Survey, numbers: &Numbers, is_limited: bool) -> Parameters {
    let (lone_read, deviation) = survey.lone_read;
    let link = survey.read_rate.max(1e6);
    let behind = link_behind_limits(survey, numbers).filter(|_| is_limited);
    let link = behind.map_or(link, |behind| behind.max(link));
    let small = SMALL as f64 * 1e9 / link;
    // The deepest queue shows the firmware, unless flash is slower.
    let turn = |depth: u32| {
        let row = format!("4 KiB random reads, QD{depth}");
        latency(numbers, &row, 0).map(|latency| latency / f64::from(depth))
    };
    let turns = [8, 16, 32, 64, 128, 256].into_iter().filter_map(turn);
    // Behind limits, a queue says nothing about it.
    let turns = turns.filter(|_| !is_limited).chain(is_limited.then_some(lone_read * 0.02));
    let firmware = turns.fold(lone_read, f64::min).min(lone_read * 0.3).max(100.0);
    let written = latency(numbers, &cached_writes(1), 0);
    let firmware_write = written.map_or(firmware, |latency| (latency - small).max(100.0));
    let own = own_of_write(numbers).filter(|_| is_limited);
    let firmware_write = own.map_or(firmware_write, |own| own.1.max(100.0));
    let page_read = (lone_read - firmware - small).max(lone_read * 0.3);
    // A uniform spread of s has a deviation of s / sqrt(3).
    let spread = (deviation * 1.732 / page_read * 100.0).clamp(1.0, 100.0) as u32;
    let slc = match survey.regimes.as_slice() {
        // Behind limits, writes become slower at the end of a burst, too.
        [.., fast, slow] if survey.regimes.len() > 2 && !is_limited => {
            let cache = survey.cache_bytes().unwrap_or(0.0);
            let size = (slow.from as f64 - cache).max(1e6) as u64;
            Some((Slc { size, drain: fast.rate as u64 }, slow.rate as u64))
        }
        _ => None,
    };
    let write_rate = survey.write_rate.max(100_000);
    // Reads beside writes wait for what is cached.
    let beside = "4 KiB random reads, QD1, beside 256 KiB sequential writes, QD8";
    let cached =
        latency(numbers, beside, 1).map(|time| (time - lone_read) / 1e9 * write_rate as f64);
    let write_cache = survey.cache_bytes().or(cached).unwrap_or(4e6).max(262_144.0);
    Parameters {
        slots: scope.facts.depth,
        firmware_read: nanos(firmware),
        firmware_write: nanos(firmware_write),
        large_setup: Nanos::ZERO,
        units: UNITS[3],
        page: 16 << 10,
        page_read: nanos(page_read),
        page_read_spread: spread,
        link: link as u64,
        link_order: LinkOrder::RoundRobin,
        duplex: Duplex::Full,
        read_buffer: 1 << 20,
        drain: slc.map_or(write_rate, |(_, slow)| slow.max(100_000)),
        slc: slc.map(|(slc, _)| slc),
        ftl: None,
        write_cache: write_cache as u64,
        flush: nanos(survey.flush),
        protected: false,
        deep_queue: None,
        capacity: scope.facts.capacity.bytes(),
        max_request: scope.facts.max_request.bytes(),
        worst_case: 1,
    }
}

/// Parameters and their sum of squares.
pub(super) type Scored = (Parameters, f64);

fn best_of(tried: impl Iterator<Item = Scored>) -> Scored {
    tried.min_by(|a, b| a.1.total_cmp(&b.1)).expect("a list that is not empty")
}

/// Changes to a discrete parameter.
fn alternatives(at: &Parameters) -> Vec<(&'static str, Parameters)> {
    let mut all = Vec::new();
    let order = match at.link_order {
        LinkOrder::RoundRobin => LinkOrder::Fifo,
        LinkOrder::Fifo => LinkOrder::RoundRobin,
    };
    all.push(("link-order", Parameters { link_order: order, ..at.clone() }));
    let duplex = match at.duplex {
        Duplex::Half => Duplex::Full,
        Duplex::Full => Duplex::Half,
    };
    all.push(("duplex", Parameters { duplex, ..at.clone() }));
    all.push(("power-loss-protection", Parameters { protected: !at.protected, ..at.clone() }));
    let deep = |(above, overtakes): (u32, u32)| {
        let deep_queue = Some(DeepQueue { above, overtakes });
        ("deep-queue", Parameters { deep_queue, ..at.clone() })
    };
    all.extend(DEEP_QUEUES.into_iter().filter(|rule| rule.0 < at.slots).map(deep));
    if at.deep_queue.is_some() {
        all.push(("deep-queue", Parameters { deep_queue: None, ..at.clone() }));
    }
    all
}

/// The fitted model, and what the rows say about each parameter.
pub(super) struct Flash<'a> {
    pub(super) scope: &'a Scope,
    pub(super) survey: &'a Survey,
    pub(super) rows: &'a [Row],
    pub(super) numbers: &'a Numbers,
    /// Limits before the drive.
    pub(super) volume: Option<volume::Parameters>,
    pub(super) simulations: &'a Simulations,
    pub(super) is_over: &'a dyn Fn() -> bool,
}

impl Flash<'_> {
    fn fit(&self, base: Parameters) -> Fit<'_, Parameters> {
        let Self { rows, numbers, volume, simulations, is_over, .. } = *self;
        let (tunables, model) = (TUNABLES, Model::Ssd);
        Fit { base, tunables, rows, numbers, model, volume, simulations, is_over }
    }
    /// Fits some parameters to some rows; the sum of squares is of those rows.
    fn stage(&self, base: Parameters, keys: &[&str], rows: impl Fn(&Row) -> bool) -> Scored {
        let tunables: Vec<_> =
            TUNABLES.iter().filter(|tunable| keys.contains(&tunable.key)).copied().collect();
        let rows: Vec<Row> = self.rows.iter().filter(|row| rows(row)).cloned().collect();
        Fit { tunables: &tunables, rows: &rows, ..self.fit(base) }.better(COARSE_ITERATIONS)
    }
    /// Fits groups of parameters to the rows that depend on few others, one group after the other.
    fn staged(&self, base: Parameters) -> Scored {
        let is_single = |row: &Row| row.load.streams.len() == 1;
        // Without conflicts between reads in the rows, the number of units has no gradient: several are tried.
        if (self.is_over)() {
            return (base, f64::INFINITY);
        }
        let of_units = |units: u32| {
            let base = Parameters { units, ..base.clone() };
            self.stage(base, &READING, |row| is_single(row) && !row.writes())
        };
        let base = best_of(UNITS.into_iter().map(of_units)).0;
        let base = self.stage(base, &WRITING, Row::writes).0;
        // The size of the buffer and the rule for deep queues hide each other.
        let with = |buffer: u64| {
            let read_buffer = buffer.max(base.page);
            let base = Parameters { read_buffer, ..base.clone() };
            self.choose((base.clone(), self.squares(base)))
        };
        let base = best_of(BUFFERS.into_iter().map(with)).0;
        let base = self.stage(base, &COMPETING, |row| !row.writes()).0;
        let base = self.stage(base, &WRITING, Row::writes).0;
        (base.clone(), self.squares(base))
    }
    pub(super) fn squares(&self, base: Parameters) -> f64 {
        self.fit(base).squares()
    }
    /// A number of a row.
    pub(super) fn number(&self, row: &str, quantity: &str) -> Option<f64> {
        self.numbers.get(&(row.to_owned(), quantity.to_owned())).copied()
    }
    /// See [`own_of_write`].
    pub(super) fn cached_write(&self) -> Option<(f64, f64)> {
        own_of_write(self.numbers)
    }
    /// The sum of squares for each degree of freedom.
    pub(super) fn scale(&self, at: &Parameters) -> f64 {
        self.fit(at.clone()).scale()
    }
    /// Fits all continuous parameters anew.
    pub(super) fn refit(&self, at: Parameters) -> Scored {
        self.fit(at).best()
    }
    /// Mean absolute error of the fitted rows, in percent.
    pub(super) fn mean_error(&self, at: &Parameters) -> f64 {
        let profile = profile_of(Model::Ssd(at.clone()), self.volume);
        mean_error(&residuals(&profile, self.rows, self.numbers), false).unwrap_or(0.0)
    }
    /// Takes the best alternative of each discrete parameter as long as one is better.
    fn choose(&self, mut best: Scored) -> Scored {
        for _ in 0..4 {
            if (self.is_over)() {
                break;
            }
            let better = alternatives(&best.0)
                .into_iter()
                .map(|(_, ssd)| (ssd.clone(), self.squares(ssd)))
                .min_by(|a, b| a.1.total_cmp(&b.1));
            match better {
                Some(found) if found.1 < best.1 - SIGNIFICANT => best = found,
                _ => break,
            }
        }
        best
    }
    /// The best model, for each size of a page, since a wrong one is hard to leave.
    pub(super) fn best(&self) -> Scored {
        let guess = guess(self.scope, self.survey, self.numbers, self.volume.is_some());
        let of_page = |page: u64| {
            let read_buffer = guess.read_buffer.max(4 * page);
            let base = Parameters { page, read_buffer, ..guess.clone() };
            let chosen = self.choose(self.staged(base));
            self.fit(chosen.0).better(COARSE_ITERATIONS)
        };
        let best = self.refined(best_of(PAGES.into_iter().map(of_page)));
        let best = self.polished(self.with_other_choices(best));
        let coarse = |other| self.fit(other).better(COARSE_ITERATIONS);
        let other_page = best_of(other_pages(&best.0).into_iter().map(coarse));
        best_of([best, self.polished(other_page)].into_iter())
    }
    fn polished(&self, best: Scored) -> Scored {
        let polished = self.fit(best.0).polished();
        self.fit(polished.0).better(COARSE_ITERATIONS)
    }
    /// Discrete and continuous parameters in turn, as long as the fit becomes clearly better.
    fn refined(&self, mut best: Scored) -> Scored {
        for _ in 0..3 {
            if (self.is_over)() {
                break;
            }
            let chosen = self.choose(best.clone());
            let fitted = self.fit(chosen.0).best();
            let (before, scale) = (best.1, self.fit(best.0.clone()).scale());
            if fitted.1 < before {
                best = fitted;
            }
            if best.1 > before - SIGNIFICANT * scale {
                break;
            }
        }
        best
    }
    /// The same after each discrete parameter was changed and all others were fitted anew: its value was chosen when the
    /// others were worse.
    fn with_other_choices(&self, mut best: Scored) -> Scored {
        for (key, other) in alternatives(&best.0) {
            if (self.is_over)() {
                break;
            }
            let scale = self.fit(best.0.clone()).scale();
            let fit = self.fit(other);
            if key != "deep-queue" && fit.squares() < best.1 + REFIT_MAX * scale {
                best = best_of([best, fit.better(COARSE_ITERATIONS)].into_iter());
            }
        }
        best
    }
    /// What the rows say about each parameter of this model.
    pub(super) fn parameters(&self, at: &Parameters) -> Vec<Parameter> {
        let fit = self.fit(at.clone());
        let errors = fit.errors();
        let mut all: Vec<Parameter> = TUNABLES
            .iter()
            .zip(errors)
            .enumerate()
            .map(|(index, (tunable, error))| Parameter {
                key: match (tunable.key, at.slc) {
                    ("drain", Some(_)) => "slc.drain".to_owned(),
                    (key, _) => key.to_owned(),
                },
                value: Value::new(tunable.key, (tunable.get)(at)),
                error: Some(error),
                decided: solve::is_decided(error) && fit.shows(index),
            })
            .collect();
        let (here, scale) = (fit.squares(), fit.scale());
        // With everything else fitted anew.
        let worse = |parameters: &Parameters| {
            let other = self.fit(parameters.clone());
            let squares = other.squares() - here;
            squares > REFIT_MAX * scale
                || (squares > SIGNIFICANT * scale
                    && other.better(COARSE_ITERATIONS).1 > here + SIGNIFICANT * scale)
        };
        let mut choice = |key: &str, value: Value, others: Vec<Parameters>| {
            let decided = !others.is_empty() && !(self.is_over)() && others.iter().all(worse);
            all.push(Parameter { key: key.to_owned(), value, error: None, decided });
        };
        let others = |key: &str| {
            let of_key = alternatives(at).into_iter().filter(|choice| choice.0 == key);
            of_key
                .map(|choice| choice.1)
                .filter(|parameters| parameters.deep_queue != at.deep_queue || key != "deep-queue")
                .collect()
        };
        let order = match at.link_order {
            LinkOrder::RoundRobin => "round-robin",
            LinkOrder::Fifo => "fifo",
        };
        choice("link-order", Value::Text(order), others("link-order"));
        let duplex = if at.duplex == Duplex::Half { "half" } else { "full" };
        choice("duplex", Value::Text(duplex), others("duplex"));
        choice("power-loss-protection", Value::Flag(at.protected), others("power-loss-protection"));
        choice("page", Value::Bytes(at.page), other_pages(at));
        let deep = at.deep_queue.unwrap_or(DeepQueue { above: at.slots, overtakes: 0 });
        let near = |above: f64, overtakes: f64| {
            let (above, overtakes) = (above.round() as u32, overtakes.round() as u32);
            Parameters { deep_queue: Some(DeepQueue { above, overtakes }), ..at.clone() }
        };
        let (above, overtakes) = (f64::from(deep.above), f64::from(deep.overtakes));
        let (around_above, around_overtakes) = match at.deep_queue {
            None => (Vec::new(), others("deep-queue")),
            Some(_) => (
                vec![near(above * 0.9, overtakes), near(above * 1.1, overtakes)],
                vec![near(above, overtakes * 0.9), near(above, overtakes * 1.1)],
            ),
        };
        choice("deep-queue.above", Value::Count(u64::from(deep.above)), around_above);
        choice("deep-queue.overtakes", Value::Count(u64::from(deep.overtakes)), around_overtakes);
        if let Some(slc) = at.slc {
            // Read off the series of writes.
            let direct = |key: &str, value| Parameter {
                key: key.to_owned(),
                value,
                error: None,
                decided: true,
            };
            all.push(direct("slc.size", Value::Bytes(slc.size)));
            all.push(direct("drain", Value::Rate(at.drain)));
        }
        all
    }
}

/// The drive near this start that explains published rows best, and its parameters.
pub(super) fn near(
    start: &Start,
    rows: &[Row],
    numbers: &Numbers,
    is_over: &dyn Fn() -> bool,
) -> (Parameters, Vec<Parameter>) {
    let all = TUNABLES.iter().chain(TRANSLATION).copied();
    let tunables: Vec<_> = all.filter(|tunable| start.fits.contains(&tunable.key)).collect();
    let simulations = &Simulations::default();
    let (base, model, volume) = (start.base.clone(), Model::Ssd, None);
    let fit = Fit { base, tunables: &tunables, rows, numbers, model, volume, simulations, is_over };
    let best = fit.better(COARSE_ITERATIONS).0;
    let errors = Fit { base: best.clone(), ..fit }.errors();
    let of = |tunable: &Tunable<Parameters>, error| Parameter {
        key: tunable.key.to_owned(),
        value: Value::new(tunable.key, (tunable.get)(&best)),
        error,
        decided: true,
    };
    let fitted = tunables.iter().zip(errors).map(|(tunable, error)| of(tunable, Some(error)));
    let mut parameters: Vec<Parameter> = fitted.collect();
    let is_read_off = |tunable: &&Tunable<Parameters>| {
        start.keys.contains(&tunable.key) && !start.fits.contains(&tunable.key)
    };
    let others = TUNABLES.iter().chain(TRANSLATION).filter(is_read_off);
    parameters.extend(others.map(|tunable| of(tunable, None)));
    let in_order = best.ftl.is_some_and(|ftl| ftl.in_order);
    let choices = [("page", Value::Bytes(best.page)), ("ftl.in-order", Value::Flag(in_order))];
    parameters.extend(
        choices.into_iter().filter(|choice| start.keys.contains(&choice.0)).map(|(key, value)| {
            Parameter { key: key.to_owned(), value, error: None, decided: true }
        }),
    );
    (best, parameters)
}

/// The same drive with pages of half and of twice the size, and as many units or as many bytes in all units together.
fn other_pages(at: &Parameters) -> Vec<Parameters> {
    let of = |page: u64| {
        let read_buffer = at.read_buffer.max(page);
        let same_bytes = (u64::from(at.units) * at.page).div_ceil(page) as u32;
        [at.units, same_bytes].map(|units| Parameters { page, read_buffer, units, ..at.clone() })
    };
    let sizes = [at.page / 2, at.page * 2].into_iter();
    sizes.filter(|page| (PAGES[0]..=LARGE).contains(page)).flat_map(of).collect()
}
