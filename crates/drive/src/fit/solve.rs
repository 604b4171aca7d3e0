//! Least squares for the parameters of a model, in logarithms (Levenberg-Marquardt), and what the rows decide.
//!
//! A parameter is *decided* if an error of 10 % in it would show: its standard error, from the rows' tolerances and the
//! sensitivities of all rows to all parameters together (the Cramer-Rao bound), is at most a third of that. A parameter that only
//! counts in a sum or product with another one is therefore not decided, although each row depends on it. Since slopes are
//! only local, the parameter is also set a tenth higher and lower, and all others are fitted anew: the rows must then fit
//! clearly worse.

/// Relative step for the sensitivities.
const DIFFERENCE: f64 = 0.08;
/// Iterations of a thorough fit.
pub(super) const ITERATIONS: usize = 12;
/// A fit ends if an iteration improves the sum of squares by less than this part.
const CONVERGED: f64 = 1e-2;
/// Largest change of a parameter in one iteration, as a logarithm.
const STEP_MAX: f64 = 0.7;
/// An increase of the sum of squares that is significant: three standard deviations of one parameter.
pub(super) const SIGNIFICANT: f64 = 9.0;
/// Standard error up to which a parameter is decided: three of them are 10 %.
const ERROR_MAX: f64 = 0.033;
/// Factors of a search along each parameter.
const SEARCH_FACTORS: [f64; 3] = [1.2, 1.05, 1.015];
/// Rounds of it for each factor.
const SEARCH_ROUNDS: usize = 3;
/// Damping at the start, and bounds of it.
const DAMPING: (f64, f64, f64) = (1e-2, 1e-6, 1e6);

/// What is fitted: parameters above zero, and residuals that are functions of them.
pub(super) trait Problem {
    /// The residuals, divided by their tolerances.
    fn residuals(&self, parameters: &[f64]) -> Vec<f64>;
    /// The allowed range of each parameter.
    fn ranges(&self) -> Vec<(f64, f64)>;
}

/// The result of a fit.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    pub(super) parameters: Vec<f64>,
    /// Sum of the squares of the residuals.
    pub(super) squares: f64,
}

fn squares(residuals: &[f64]) -> f64 {
    residuals.iter().map(|residual| residual * residual).sum()
}

/// Residuals and the logarithm of a parameter after it was multiplied by a factor.
fn moved(problem: &dyn Problem, at: &[f64], index: usize, factor: f64) -> (Vec<f64>, f64) {
    let (low, high) = problem.ranges()[index];
    let mut parameters = at.to_vec();
    parameters[index] = (at[index] * factor).clamp(low, high);
    (problem.residuals(&parameters), parameters[index].ln())
}

/// The slope of each residual from `from` to `to`.
fn slopes(from: &(Vec<f64>, f64), to: &(Vec<f64>, f64)) -> Vec<f64> {
    let width = to.1 - from.1;
    let slope =
        |(to, from): (&f64, &f64)| if width.abs() < 1e-9 { 0.0 } else { (to - from) / width };
    to.0.iter().zip(&from.0).map(slope).collect()
}

/// For each parameter, the change of each residual with its logarithm.
fn sensitivities(problem: &dyn Problem, at: &[f64], here: &[f64]) -> Vec<Vec<f64>> {
    let column = |index: usize| {
        slopes(&(here.to_vec(), at[index].ln()), &moved(problem, at, index, 1.0 + DIFFERENCE))
    };
    (0..at.len()).map(column).collect()
}

/// The same as far as it is the same upwards and downwards: a row that jumps says nothing.
fn reliable_sensitivities(problem: &dyn Problem, at: &[f64]) -> Vec<Vec<f64>> {
    let residuals = problem.residuals(at);
    let column = |index: usize| {
        let here = (residuals.clone(), at[index].ln());
        let up = slopes(&here, &moved(problem, at, index, 1.0 + DIFFERENCE));
        let down = slopes(&here, &moved(problem, at, index, 1.0 / (1.0 + DIFFERENCE)));
        let smaller = |(up, down): (&f64, &f64)| {
            if up * down <= 0.0 {
                0.0
            } else if up.abs() < down.abs() {
                *up
            } else {
                *down
            }
        };
        up.iter().zip(&down).map(smaller).collect()
    };
    (0..at.len()).map(column).collect()
}

/// The matrix of a least-squares problem.
fn normal(columns: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum();
    columns.iter().map(|a| columns.iter().map(|b| product(a, b)).collect()).collect()
}

/// Solves a symmetric system by elimination with pivots; `None` if it is singular.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let size = right.len();
    for at in 0..size {
        let pivot =
            (at..size).max_by(|a, b| matrix[*a][at].abs().total_cmp(&matrix[*b][at].abs()))?;
        if matrix[pivot][at].abs() < 1e-12 {
            return None;
        }
        matrix.swap(at, pivot);
        right.swap(at, pivot);
        for row in at + 1..size {
            let pivot = matrix[at].clone();
            let factor = matrix[row][at] / pivot[at];
            matrix[row].iter_mut().zip(&pivot).for_each(|(cell, above)| *cell -= factor * above);
            right[row] -= factor * right[at];
        }
    }
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size).map(|column| matrix[at][column] * right[column]).sum();
        right[at] = (right[at] - known) / matrix[at][at];
    }
    Some(right)
}

/// Fits the parameters, from a guess, in at most this many iterations.
pub(super) fn fit(
    problem: &dyn Problem,
    guess: &[f64],
    iterations: usize,
    is_over: &dyn Fn() -> bool,
) -> Fitted {
    let ranges = problem.ranges();
    let inside = |index: usize, value: f64| value.clamp(ranges[index].0, ranges[index].1);
    let mut at: Vec<f64> = guess.iter().enumerate().map(|(i, value)| inside(i, *value)).collect();
    let mut residuals = problem.residuals(&at);
    let mut best = squares(&residuals);
    let mut damping = DAMPING.0;
    for _ in 0..iterations {
        if is_over() {
            break;
        }
        let columns = sensitivities(problem, &at, &residuals);
        let matrix = normal(&columns);
        let right: Vec<f64> = columns
            .iter()
            .map(|column| -column.iter().zip(&residuals).map(|(a, b)| a * b).sum::<f64>())
            .collect();
        let before = best;
        for _ in 0..5 {
            let mut damped = matrix.clone();
            for (index, row) in damped.iter_mut().enumerate() {
                row[index] += damping * row[index].max(1.0);
            }
            let Some(step) = solve(damped, right.clone()) else { break };
            let tried: Vec<f64> = at
                .iter()
                .zip(&step)
                .enumerate()
                .map(|(i, (value, step))| inside(i, value * step.clamp(-STEP_MAX, STEP_MAX).exp()))
                .collect();
            let found = problem.residuals(&tried);
            let sum = squares(&found);
            if sum < best {
                (at, residuals, best) = (tried, found, sum);
                damping = (damping / 10.0).max(DAMPING.1);
                break;
            }
            damping = (damping * 10.0).min(DAMPING.2);
        }
        if best > before * (1.0 - CONVERGED) {
            break;
        }
    }
    Fitted { parameters: at, squares: best }
}

/// Changes one parameter after the other as long as that is better. Rows of queues that a drive reorders jump with the
/// parameters, so that their slopes mislead a fit near its end.
pub(super) fn polish(problem: &dyn Problem, fitted: Fitted, is_over: &dyn Fn() -> bool) -> Fitted {
    let ranges = problem.ranges();
    let mut best = fitted;
    for factor in SEARCH_FACTORS {
        for _ in 0..SEARCH_ROUNDS {
            let before = best.squares;
            for index in 0..best.parameters.len() {
                for factor in [factor, 1.0 / factor] {
                    let mut parameters = best.parameters.clone();
                    let value = parameters[index] * factor;
                    parameters[index] = value.clamp(ranges[index].0, ranges[index].1);
                    let squares = squares(&problem.residuals(&parameters));
                    if squares < best.squares {
                        best = Fitted { parameters, squares };
                        break;
                    }
                }
                if is_over() {
                    return best;
                }
            }
            if best.squares > before * (1.0 - CONVERGED) {
                break;
            }
        }
    }
    best
}

/// The standard error of each parameter, relative; infinite if nothing depends on it.
pub(super) fn errors(problem: &dyn Problem, at: &[f64]) -> Vec<f64> {
    let columns = reliable_sensitivities(problem, at);
    let mut matrix = normal(&columns);
    for (index, row) in matrix.iter_mut().enumerate() {
        // A parameter without any row would make the matrix singular; it has a variance of 10^6 then.
        row[index] += 1e-6;
    }
    let size = at.len();
    let error = |index: usize| {
        let unit = (0..size).map(|other| if other == index { 1.0 } else { 0.0 }).collect();
        solve(matrix.clone(), unit).map_or(f64::INFINITY, |column| column[index].max(0.0).sqrt())
    };
    (0..size).map(error).collect()
}

/// Whether rows decide a parameter with this standard error.
pub(super) fn is_decided(error: f64) -> bool {
    error <= ERROR_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that know a and b, and c and d only as a product.
    struct Four;
    impl Problem for Four {
        fn residuals(&self, p: &[f64]) -> Vec<f64> {
            let rows = [(p[0], 3.0), (p[0] + p[1], 10.0), (p[2] * p[3], 8.0)];
            rows.iter().map(|(here, there)| (here / there).ln() / 0.01).collect()
        }
        fn ranges(&self) -> Vec<(f64, f64)> {
            vec![(0.1, 100.0); 4]
        }
    }

    /// Goal: a fit finds what the rows decide, and knows what they do not. Method: a problem with a known answer.
    #[test]
    fn what_rows_decide_is_found() {
        let fitted = fit(&Four, &[1.0, 1.0, 1.0, 1.0], ITERATIONS, &|| false);
        assert!(fitted.squares < 1.0, "{fitted:?}");
        assert!(
            (fitted.parameters[0] - 3.0).abs() < 0.01 && (fitted.parameters[1] - 7.0).abs() < 0.02
        );
        let errors = errors(&Four, &fitted.parameters);
        let decided: Vec<bool> = errors.iter().map(|error| is_decided(*error)).collect();
        assert_eq!(decided, [true, true, false, false], "{errors:?}");
    }
}
