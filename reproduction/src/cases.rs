//! The table of reproduction/promise.md about cases that the search found: what each file under `reproduction/experiments/search` expects, and what
//! it gets. The numbers are in `reproduction/measured.csv`.

use std::collections::BTreeSet;
use std::fmt::Write;

use iofair_experiments::experiment::{Claim, Experiment, Spot, Verdict};
use iofair_experiments::report::{band, short};

use crate::measured::Measured;

/// The folder of these experiments.
pub const CASES: &str = "reproduction/experiments/search";

fn spots<'a>(experiment: &'a Experiment, claim: &'a Claim) -> impl Iterator<Item = Spot> + 'a {
    claim.places.iter().map(|place| Spot::from_place(experiment, place))
}

/// Where the numbers of the table stand.
pub fn cases_spots(experiments: &[Experiment]) -> BTreeSet<Spot> {
    let mut all = BTreeSet::new();
    for experiment in experiments {
        all.extend(experiment.claims.iter().flat_map(|claim| spots(experiment, claim)));
    }
    all
}

/// What a claim expects, and what it gets: bold where that is not enough.
fn cells(experiment: &Experiment, claim: &Claim, measured: &Measured) -> [String; 2] {
    let unit = format!(" {}", claim.unit);
    let variant = match experiment.variants[claim.places[0].variant].name.as_str() {
        "" => String::new(),
        name => format!(", {name}"),
    };
    let expected = format!("{}{variant}: {}{unit}", claim.text, band(claim.low, claim.high));
    let values: Option<Vec<f64>> =
        spots(experiment, claim).map(|spot| measured.value(&spot)).collect();
    let got = match values.map(|values| claim.judge(&values)) {
        None => "(not measured)".to_owned(),
        Some((got, Verdict::DoesNotHold)) => format!("**{}**{unit}", short(got)),
        Some((got, _)) => format!("{}{unit}", short(got)),
    };
    [expected, got].map(|cell| cell.trim_end().to_owned())
}

/// The claims about what was found: those that miss and others of the same quantity; all, if none misses.
fn about(experiment: &Experiment) -> impl Iterator<Item = &Claim> {
    let quantity = |claim: &Claim| claim.places[0].quantity.clone();
    let limits: Vec<_> =
        experiment.claims.iter().filter(|claim| !claim.hard).map(quantity).collect();
    let claims = experiment.claims.iter();
    claims.filter(move |claim| limits.is_empty() || limits.contains(&quantity(claim)))
}

/// The table, a row a case. A case is a limit if one of its claims is not hard.
pub fn cases_table(experiments: &[Experiment], measured: &Measured) -> String {
    let mut text = "| case | | what happens | expected | got |\n|---|---|---|---|---|\n".to_owned();
    for experiment in experiments {
        let name = &experiment.name;
        let short_name = name.rsplit('/').next().unwrap_or(name);
        let is_limit = experiment.claims.iter().any(|claim| !claim.hard);
        let state = if is_limit { "limit" } else { "fixed" };
        let all = about(experiment).map(|claim| cells(experiment, claim, measured));
        let (expected, got): (Vec<_>, Vec<_>) = all.map(|[expected, got]| (expected, got)).unzip();
        let _ = writeln!(
            text,
            "| [{short_name}](experiments/{name}.toml) | {state} | {} | {} | {} |",
            experiment.note,
            expected.join("<br>"),
            got.join("<br>")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_experiments::experiment::{Overrides, parse};
    use iofair_experiments::testing::{EXAMPLE, results};

    /// Goal: each case has its row, its claims and what they get; one that misses a claim is a limit. Method: the example,
    /// whose target has 10 MB/s, with a claim that holds, one that does not, and a ratio; without and with its numbers.
    #[test]
    fn cases_are_fixed_or_limits() {
        let claim = |rest: &str| {
            format!(
                "[[expect]]\nvariant = \"rand, N=4\"\nstack = \"again\"\nbasis = \"own\"\n{rest}\n"
            )
        };
        let kept = "kind = \"at_least\"\nof = \"target\"\nvalue = \"9MB/s\"\nhard = true";
        let same = "kind = \"ratio\"\nof = \"total\"\nto = { stack = \"none-none\" }\nlow = 0.926\nhard = true";
        let missed = "kind = \"at_least\"\nof = \"target\"\nvalue = \"11MB/s\"";
        let read = |claims: &[&str]| {
            let example = EXAMPLE.split("[[expect]]").next().expect("it has a beginning");
            let text = claims.iter().map(|rest| claim(rest)).collect::<String>();
            let path = "reproduction/experiments/search/case-1.toml";
            parse(path, &(example.to_owned() + &text), &Overrides::default()).expect("a good file")
        };
        let fixed = read(&[kept, same]);
        let spots = cases_spots(std::slice::from_ref(&fixed));
        assert_eq!(spots.len(), 3, "a rate and two totals");
        let measured = Measured::read(&[results(fixed.clone(), 1)], &spots).expect("all are there");
        let table = cases_table(&[fixed], &measured);
        let row = "| [case-1](experiments/search/case-1.toml) | fixed | ";
        assert!(table.contains(row), "{table}");
        let cells = "| target of again, rand, N=4: ≥ 9 MB/s<br>total: again / none-none, rand, N=4: ≥ 0.926 | 10 MB/s<br>1 |";
        assert!(table.contains(cells), "{table}");
        let limit = cases_table(&[read(&[kept, missed])], &measured);
        assert!(
            limit.contains(" | limit | ") && limit.contains("| 10 MB/s<br>**10** MB/s |"),
            "{limit}"
        );
        assert!(cases_table(&[read(&[kept])], &Measured::default()).contains("| (not measured) |"));
    }
}
