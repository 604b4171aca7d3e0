//! The parameters of a model as a least-squares problem.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use iofair_core::time::Nanos;

use super::plausible::Odd;
use super::row::{Quantity, Record, Row};
use super::solve::{self, Fitted, Problem};
use crate::profile::{HostFacts, Model, Profile};
use crate::volume;

/// A continuous parameter of a model.
pub(super) struct Tunable<P> {
    /// Its key in a profile.
    pub(super) key: &'static str,
    /// Allowed values.
    pub(super) range: (f64, f64),
    /// Added to the value, so that logarithms of values around zero exist.
    pub(super) offset: f64,
    pub(super) get: fn(&P) -> f64,
    pub(super) set: fn(&mut P, f64),
}

// Not derived, since the parameters themselves need not be copied.
impl<P> Clone for Tunable<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Tunable<P> {}

/// Iterations of a fit of all other parameters after one was changed.
const REFIT_ITERATIONS: usize = 2;
/// Residuals above this many tolerances count less than by their square.
const OUTLIER: f64 = 20.0;

/// A time; zero where the number is negative.
pub(super) const fn nanos(value: f64) -> Nanos {
    Nanos(if value > 0.0 { value as u64 } else { 0 })
}

/// A profile with this model, behind these limits.
pub(super) fn profile_of(model: Model, volume: Option<volume::Parameters>) -> Profile {
    let host = HostFacts { turnaround: Nanos::ZERO, consume_window: Nanos::ZERO };
    let [name, title, class] = ["calibrated"; 3].map(str::to_owned);
    Profile { name, title, class, host, model, volume, numbers: Vec::new(), fitted_on: Vec::new() }
}

/// Measured numbers by row and quantity.
pub(super) type Numbers = BTreeMap<(String, String), f64>;

/// By row and quantity.
pub(super) fn numbers(records: &[Record]) -> Numbers {
    let all = records.iter().flat_map(|record| &record.numbers);
    all.map(|number| ((number.row.clone(), number.quantity.clone()), number.value)).collect()
}

/// A number of the plan beside the model's.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Residual {
    /// The row.
    pub row: String,
    /// The quantity, such as `latency of 4 KiB reads`.
    pub quantity: String,
    /// Whether both numbers are bytes a second, and not nanoseconds.
    pub is_rate: bool,
    /// Measured on the target.
    pub measured: f64,
    /// In the model.
    pub model: f64,
    /// Of the model, in percent of the measured number.
    pub error_percent: f64,
    /// Whether the row was only used to verify the fit.
    pub held_out: bool,
    /// Whether it was used for nothing, since no drive has this number; the quantity says why.
    pub left_out: bool,
}

impl Residual {
    /// A number of this row with its unit.
    pub fn shown(&self, value: f64) -> String {
        match self.is_rate {
            _ if value.is_nan() => "-".to_owned(),
            true => format!("{:.1} MB/s", value / 1e6),
            false => format!("{:.1} us", value / 1e3),
        }
    }
}

/// All measured numbers of these rows beside those of a model.
pub(super) fn residuals(profile: &Profile, rows: &[Row], numbers: &Numbers) -> Vec<Residual> {
    let mut all = Vec::new();
    for row in rows {
        let has = |quantity: &Quantity| numbers.contains_key(&(row.name.clone(), quantity.name()));
        if !row.quantities.iter().any(has) {
            continue;
        }
        let outcome = row.simulate(profile);
        for quantity in &row.quantities {
            let name = quantity.name();
            let Some(measured) = numbers.get(&(row.name.clone(), name)) else { continue };
            let model = quantity.value_in(&outcome);
            all.push(Residual {
                row: row.name.clone(),
                quantity: row.describe(*quantity),
                is_rate: quantity.is_rate(),
                measured: *measured,
                model,
                error_percent: (model / measured.max(1e-9) - 1.0) * 100.0,
                held_out: row.held_out,
                left_out: false,
            });
        }
    }
    all
}

/// The numbers of odd rows, with what is wrong with them.
pub(super) fn left_out(
    profile: &Profile,
    rows: &[Row],
    records: &[Record],
    odd: &[Odd],
) -> Vec<Residual> {
    let of = |odd: &Odd| {
        let row = rows.iter().find(|row| row.name == odd.row)?;
        let measured = records.iter().find(|record| record.row == odd.row);
        let measured = numbers(measured.map_or(&[], std::slice::from_ref));
        let found = residuals(profile, std::slice::from_ref(row), &measured).into_iter().next();
        let nothing = Residual {
            row: odd.row.clone(),
            quantity: String::new(),
            is_rate: false,
            measured: f64::NAN,
            model: f64::NAN,
            error_percent: 0.0,
            held_out: row.held_out,
            left_out: true,
        };
        let found = found.unwrap_or(nothing);
        let quantity = format!("{} LEFT OUT: {}", found.quantity, odd.why).trim_start().to_owned();
        Some(Residual { quantity, left_out: true, ..found })
    };
    odd.iter().filter_map(of).collect()
}

/// Mean absolute error in percent: of the rows that were fitted, or of those that only verify.
pub(super) fn mean_error(residuals: &[Residual], held_out: bool) -> Option<f64> {
    let counts = |residual: &&Residual| residual.held_out == held_out && !residual.left_out;
    let of = residuals.iter().filter(counts);
    let errors: Vec<f64> = of.map(|residual| residual.error_percent.abs()).collect();
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}

/// The quantities of rows, by row and model, that were simulated before. A fit asks for many models again, and most rows do
/// not depend on all of a model ([`Row::model`]).
#[derive(Default, Debug)]
pub(super) struct Simulations(RefCell<BTreeMap<String, Rc<[f64]>>>);

impl Simulations {
    /// The quantities of these rows, in their order, for a model behind these limits.
    fn quantities(
        &self,
        rows: &[&Row],
        model: &Model,
        volume: Option<volume::Parameters>,
    ) -> Vec<Rc<[f64]>> {
        let key = |row: &&Row| format!("{} {:?} {volume:?}", row.name, row.model(model));
        let keys: Vec<String> = rows.iter().map(key).collect();
        let known = |key| self.0.borrow().get(key).cloned();
        let found: Vec<Option<Rc<[f64]>>> = keys.iter().map(known).collect();
        let missing = rows.iter().zip(&found).filter(|row| row.1.is_none());
        let missing: Vec<&Row> = missing.map(|row| *row.0).collect();
        let mut new = simulate(&missing, &profile_of(model.clone(), volume)).into_iter();
        let all = keys.into_iter().zip(found).map(|(key, found)| {
            found.or_else(|| {
                let new: Rc<[f64]> = new.next()?.into();
                self.0.borrow_mut().insert(key, Rc::clone(&new));
                Some(new)
            })
        });
        all.flatten().collect()
    }
}

/// The quantities of each of these rows, in their order. Each row is a simulation of its own, so the number of threads
/// changes nothing but the time.
fn simulate(rows: &[&Row], profile: &Profile) -> Vec<Vec<f64>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(row) = rows.get(index) else { return done };
            let outcome = row.simulate(profile);
            let value = |quantity: &Quantity| quantity.value_in(&outcome);
            done.push((index, row.quantities.iter().map(value).collect()));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(rows.len());
    let mut all: Vec<(usize, Vec<f64>)> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let others = others.into_iter().map(thread::ScopedJoinHandle::join);
        own.into_iter()
            .chain(others.flat_map(|done| done.expect("a simulation does not panic")))
            .collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, quantities)| quantities).collect()
}

/// A model, its continuous parameters, and the rows to fit them to.
pub(super) struct Fit<'a, P> {
    pub(super) base: P,
    pub(super) tunables: &'a [Tunable<P>],
    pub(super) rows: &'a [Row],
    pub(super) numbers: &'a Numbers,
    pub(super) model: fn(P) -> Model,
    /// Limits before the drive, which are not fitted.
    pub(super) volume: Option<volume::Parameters>,
    pub(super) simulations: &'a Simulations,
    pub(super) is_over: &'a dyn Fn() -> bool,
}

impl<P: Clone> Fit<'_, P> {
    pub(super) fn at(&self, values: &[f64]) -> P {
        let mut parameters = self.base.clone();
        for (tunable, value) in self.tunables.iter().zip(values) {
            (tunable.set)(&mut parameters, value - tunable.offset);
        }
        parameters
    }
    fn values(&self) -> Vec<f64> {
        self.tunables.iter().map(|tunable| (tunable.get)(&self.base) + tunable.offset).collect()
    }
    /// The sum of squares of the parameters as they are.
    pub(super) fn squares(&self) -> f64 {
        self.residuals(&self.values()).iter().map(|residual| residual * residual).sum()
    }
    /// The best parameters near those that it has, and their sum of squares.
    pub(super) fn best(&self) -> (P, f64) {
        self.better(solve::ITERATIONS)
    }
    /// The same with fewer iterations.
    pub(super) fn better(&self, iterations: usize) -> (P, f64) {
        let values = self.values();
        let Fitted { parameters, squares } = solve::fit(self, &values, iterations, self.is_over);
        (self.at(&parameters), squares)
    }
    /// The same after a search along each parameter.
    pub(super) fn polished(&self) -> (P, f64) {
        let (parameters, squares) = (self.values(), self.squares());
        let fitted = Fitted { parameters, squares };
        let Fitted { parameters, squares } = solve::polish(self, fitted, self.is_over);
        (self.at(&parameters), squares)
    }
    /// The standard error of each parameter. Where the model does not explain the rows within their tolerances, the
    /// tolerances are taken to be too small.
    pub(super) fn errors(&self) -> Vec<f64> {
        let scale = self.scale().sqrt();
        solve::errors(self, &self.values()).into_iter().map(|error| error * scale).collect()
    }
    /// Whether an error of a tenth in a parameter shows even if all others are fitted anew. An interrupted fit does not
    /// know.
    pub(super) fn shows(&self, index: usize) -> bool {
        if (self.is_over)() {
            return false;
        }
        let limit = self.squares() + solve::SIGNIFICANT * self.scale();
        let mut others = self.tunables.to_vec();
        others.remove(index);
        let tunable = &self.tunables[index];
        [1.1, 1.0 / 1.1].into_iter().all(|factor| {
            let mut base = self.base.clone();
            (tunable.set)(&mut base, (tunable.get)(&self.base) * factor);
            Fit { base, tunables: &others, ..*self }.better(REFIT_ITERATIONS).1 > limit
        })
    }
    /// The sum of squares for each degree of freedom, at least 1.
    pub(super) fn scale(&self) -> f64 {
        let residuals = self.residuals(&self.values());
        let free = residuals.len().saturating_sub(self.tunables.len()).max(1);
        (residuals.iter().map(|residual| residual * residual).sum::<f64>() / free as f64).max(1.0)
    }
}

impl<P: Clone> Problem for Fit<'_, P> {
    fn residuals(&self, parameters: &[f64]) -> Vec<f64> {
        let model = (self.model)(self.at(parameters));
        let known =
            |row: &Row, of: &Quantity| self.numbers.get(&(row.name.clone(), of.name())).copied();
        let has_any = |row: &Row| row.quantities.iter().any(|name| known(row, name).is_some());
        let is_fitted = |row: &&Row| !row.held_out && has_any(row);
        let rows: Vec<&Row> = self.rows.iter().filter(is_fitted).collect();
        let mut all = Vec::new();
        let simulated = self.simulations.quantities(&rows, &model, self.volume);
        for (row, quantities) in rows.iter().zip(simulated) {
            for (quantity, here) in row.quantities.iter().zip(quantities.iter()) {
                let Some(measured) = known(row, quantity) else { continue };
                // A number below a nanosecond or a byte a second says only that nothing was there.
                let (here, there) = (here.max(1.0), measured.max(1.0));
                let residual = (here / there).ln() / quantity.tolerance(row.tolerance);
                // A row that is far off must not outweigh all others.
                all.push(residual / (1.0 + residual.abs() / OUTLIER).sqrt());
            }
        }
        all
    }
    fn ranges(&self) -> Vec<(f64, f64)> {
        let range = |Tunable { range: (low, high), offset, .. }: &Tunable<P>| {
            ((low + offset).max(1e-9), high + offset)
        };
        self.tunables.iter().map(range).collect()
    }
}
