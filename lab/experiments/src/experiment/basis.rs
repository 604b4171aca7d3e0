//! Where a claim comes from, and whether its runs chose a number of the drive or the machine.
//!
//! The file says the first. The second follows from the lists `[[fitted_on]]` of the files that the experiment uses
//! ([`FittedOn`]): a run is fitted if it is listed, a claim if all of its runs are. Everything else is held-out.

use iofair_config::{ConfigError, Source, Spanned};
pub use iofair_drive::fitted::FittedOn;
use iofair_drive::fitted::Names;
use iofair_drive::profile;
use iofair_simulator::machine::{self, base};
use iofair_simulator::scenario::Manner;

use super::claim::{Claim, Kind};
use super::file::{ExpectFile, ExperimentFile};
use super::origin::{Basis, Origin};
use super::resolved::{Experiment, Variant};

/// Most words of a quote: enough for a sentence, too few for a copy of the source.
const QUOTE_WORDS_MAX: usize = 25;

/// How `follows` begins where no claim but the set-up itself makes a claim certain, such as a limit.
pub const SET_UP: &str = "the set-up: ";

/// The origin of a claim, checked.
pub(super) fn origin(
    source: &Source,
    file: &ExperimentFile,
    expect: &ExpectFile,
    kind: Kind,
) -> Result<Origin, ConfigError> {
    if let Some(head) = file.basis.as_ref().filter(|basis| *basis.get_ref() != Basis::Own) {
        let error = source.error(head.span(), "a whole file can only be `own`");
        return Err(error.allowed("own; the others are for single claims"));
    }
    let written = expect.basis.as_ref().or(file.basis.as_ref());
    let basis = written.map_or(Basis::Own, |basis| *basis.get_ref());
    let span = written.map_or(expect.kind.span(), Spanned::span);
    let wrong =
        |message: &str, allowed: &str| Err(source.error(span.clone(), message).allowed(allowed));
    if basis == Basis::Published && kind != Kind::Order && expect.published.is_none() {
        let allowed =
            "a number in `published`; derived, with a quote, for what follows from the text";
        return wrong("a published claim without its number", allowed);
    }
    if basis == Basis::Derived && expect.quote.is_none() {
        return wrong("a derived claim needs `quote`", "the sentence or row of the source");
    }
    if basis == Basis::Implied && expect.follows.is_none() {
        return wrong("an implied claim needs `follows`", "the words of the claim it follows from");
    }
    if let Some(quote) = &expect.quote {
        let words = quote.get_ref().split_whitespace().count();
        if words == 0 || words > QUOTE_WORDS_MAX {
            let error = source.error(quote.span(), format!("a quote of {words} words"));
            return Err(error.allowed(format!("1 to {QUOTE_WORDS_MAX} words")));
        }
        if !matches!(basis, Basis::Derived | Basis::Published) {
            let error = source.error(quote.span(), "a quote of the source");
            return Err(error.allowed("with basis = \"derived\" or \"published\""));
        }
    }
    if let Some(follows) = expect.follows.as_ref().filter(|_| basis != Basis::Implied) {
        let error = source.error(follows.span(), "`follows` is for implied claims");
        return Err(error.allowed("with basis = \"implied\""));
    }
    let text = |key: &Option<Spanned<String>>| {
        key.as_ref().map(|text| text.get_ref().clone()).unwrap_or_default()
    };
    Ok(Origin { basis, quote: text(&expect.quote), follows: text(&expect.follows) })
}

/// Whether `follows` names this claim of the experiment. Without a variant it names the claim in any.
pub fn is_named(follows: &str, experiment: &Experiment, claim: &Claim) -> bool {
    let variant = &experiment.variants[claim.places[0].variant].name;
    follows == claim.text || follows == format!("{} [{variant}]", claim.text)
}

/// What is left when all claims are read: what they follow from, and the lists.
pub(super) fn finish(
    source: &Source,
    file: &ExperimentFile,
    experiment: &mut Experiment,
) -> Result<(), ConfigError> {
    check_follows(source, file, experiment)?;
    take_lists(file, experiment)
}

/// Complains about claims that follow from no claim of their file, or from one that is implied itself.
fn check_follows(
    source: &Source,
    file: &ExperimentFile,
    experiment: &Experiment,
) -> Result<(), ConfigError> {
    if experiment.claims_left_out > 0 {
        return Ok(());
    }
    let written = file.expect.iter().filter_map(|expect| expect.follows.as_ref());
    let elsewhere = |follows: &str| follows.contains(" in ") || follows.starts_with(SET_UP);
    for follows in written.filter(|words| !elsewhere(words.get_ref())) {
        let claims = experiment.claims.iter().filter(|claim| claim.origin.basis != Basis::Implied);
        if !claims.clone().any(|claim| is_named(follows.get_ref(), experiment, claim)) {
            let message = format!("no claim `{}` that is not implied itself", follows.get_ref());
            let known: Vec<&str> = claims.map(|claim| claim.text.as_str()).collect();
            let error = source.error(follows.span(), message);
            return Err(error
                .allowed("the words of a claim of this file, with ` in EXPERIMENT` of another, or `the set-up: ...`")
                .near(follows.get_ref(), known));
        }
    }
    Ok(())
}

/// A file with a list, and its entries about this experiment.
type List = (String, Vec<FittedOn>);

/// The lists of all files that a variant uses: of its drive, its machine and its recordings.
fn lists(variant: &Variant) -> Vec<List> {
    let mut lists = Vec::new();
    // A drive that cannot be read fails when it is run.
    if let Ok(profile) = profile::read(&variant.drive) {
        let base = base(&variant.drive);
        let path = match base.ends_with(".toml") {
            true => base.to_owned(),
            false => format!("profiles/drives/{base}.toml"),
        };
        lists.push((path, profile.fitted_on));
    }
    lists.extend(machine::load(&variant.machine).into_iter().flat_map(|machine| machine.fitted_on));
    for client in &variant.clients {
        let Manner::Startup(recording) = &client.manner else { continue };
        let path = format!("profiles/clients/{}.toml", recording.name);
        if !lists.iter().any(|(known, _)| *known == path) {
            lists.push((path, recording.fitted_on.clone()));
        }
    }
    lists
}

/// Gives each variant its entries, and checks the names in them.
fn take_lists(file: &ExperimentFile, experiment: &mut Experiment) -> Result<(), ConfigError> {
    let stacks: Vec<&str> = file.stacks.iter().map(|stack| stack.get_ref().as_str()).collect();
    // The lists name variants of the file; a sweep makes several of each.
    let variants: Vec<_> = experiment.variants.iter().map(|variant| variant.base.clone()).collect();
    let variants: Vec<&str> = variants.iter().map(String::as_str).collect();
    for variant in &mut experiment.variants {
        for (path, entries) in lists(variant) {
            for entry in entries.into_iter().filter(|entry| entry.experiment == experiment.name) {
                check_names(&path, &entry, "variant", &entry.variant, &variants)?;
                check_names(&path, &entry, "stack", &entry.stack, &stacks)?;
                variant.fitted_on.push(entry);
            }
        }
    }
    Ok(())
}

fn check_names(
    path: &str,
    entry: &FittedOn,
    what: &str,
    names: &Option<Names>,
    known: &[&str],
) -> Result<(), ConfigError> {
    let names = names.as_ref().map(Names::as_slice).unwrap_or_default();
    let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    let message = format!("fitted_on: {} has no {what} `{unknown}`", entry.experiment);
    let error = ConfigError::whole_file(&format!("{path}:{}", entry.line), message);
    Err(error.allowed(known.join(" | ")).near(unknown, known.iter().copied()))
}

impl Experiment {
    /// Whether a run chose a number of the drive or the machine.
    pub fn is_fitted_run(&self, variant: usize, stack: usize) -> bool {
        let (variant, stack) = (&self.variants[variant], &self.stacks[stack].0);
        variant.fitted_on.iter().any(|entry| entry.lists(&self.name, &variant.name, stack))
    }
    /// Whether all runs of a claim did. A ratio or order with one run that did not is a prediction.
    pub fn is_fitted(&self, claim: &Claim) -> bool {
        claim.places.iter().all(|place| self.is_fitted_run(place.variant, place.stack))
    }
}

/// The recordings' lists name known things only where an experiment uses them; see `take_lists`.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Overrides, parse};
    use crate::testing::{EXAMPLE, example};

    fn with(keys: &str) -> Result<Experiment, ConfigError> {
        let text = EXAMPLE.replacen("basis = \"published\"", keys, 1);
        assert!(EXAMPLE.contains("basis = \"published\""));
        parse("reproduction/experiments/a/example.toml", &text, &Overrides::default())
    }

    /// Goal: every claim has a basis with what belongs to it. Method: good ones, and one mistake a rule.
    #[test]
    fn a_basis_is_checked() {
        let good = with("basis = \"derived\"\nquote = \"the target gets ten\"").expect("is good");
        let origin = &good.claims[0].origin;
        assert_eq!((origin.basis, &*origin.quote), (Basis::Derived, "the target gets ten"));
        assert_eq!(with("").expect("is one's own").claims[0].origin.basis, Basis::Own);
        let long = format!("basis = \"derived\"\nquote = \"{}\"", "word ".repeat(26));
        for (keys, says) in [
            ("basis = \"printed\"", "printed"),
            ("basis = \"derived\"", "needs `quote`"),
            ("basis = \"implied\"", "needs `follows`"),
            ("basis = \"own\"\nquote = \"x\"", "quote of the source"),
            ("basis = \"own\"\nfollows = \"x\"", "for implied"),
            ("basis = \"implied\"\nfollows = \"target of again\"", "no claim `target of again`"),
            (&long, "26 words"),
        ] {
            let error = with(keys).expect_err(keys).to_string();
            assert!(error.contains(says) && error.contains(".toml:"), "{keys}: {error}");
        }
        let text = EXAMPLE.replacen("published = \"10MB/s\"\nband = \"10%\"", "low = \"9MB/s\"", 1);
        let error = parse("e.toml", &text, &Overrides::default()).expect_err("no number");
        assert!(error.to_string().contains("without its number"), "{error}");
        let text = format!("basis = \"published\"\n{EXAMPLE}");
        let error = parse("e.toml", &text, &Overrides::default()).expect_err("for all");
        assert!(error.to_string().contains("can only be `own`"), "{error}");
    }

    /// Goal: a claim follows from another one that does not follow itself. Method: two claims, in each order.
    #[test]
    fn implied_claims_name_another() {
        let more = "\n[[expect]]\nkind = \"at_least\"\nvariant = \"rand, N=4\"\nstack = \"none-none\"\nof = \"target\"\n\
                    value = \"1MB/s\"\nbasis = \"implied\"\nfollows = \"target of none-none\"\n";
        let read = |text: &str| parse("e.toml", text, &Overrides::default());
        assert!(read(&format!("{EXAMPLE}{more}")).is_ok());
        let elsewhere = more.replace("none-none\"\n\"", "").replace(
            "follows = \"target of none-none\"",
            "follows = \"target of none-none in b/other\"",
        );
        assert!(
            read(&format!("{EXAMPLE}{elsewhere}")).is_ok(),
            "the tidy tests look into other files"
        );
        let both = EXAMPLE.replacen(
            "basis = \"published\"",
            "basis = \"implied\"\nfollows = \"target of none-none\"",
            1,
        );
        assert!(read(&format!("{both}{more}")).is_err());
    }

    fn entry(variant: Option<&str>, stack: Option<&str>) -> FittedOn {
        let names = |name: Option<&str>| name.map(|name| Names::One(name.to_owned()));
        FittedOn {
            experiment: "a/example".into(),
            variant: names(variant),
            stack: names(stack),
            chose: "link".into(),
            line: 7,
        }
    }

    /// Goal: a claim is fitted if all of its runs are listed. Method: a claim about one run, a ratio of two.
    #[test]
    fn listed_runs_make_a_claim_fitted() {
        let mut experiment = example();
        let mut ratio = experiment.claims[0].clone();
        ratio.places.push(ratio.places[0].clone());
        ratio.places[1].stack = 1;
        experiment.claims.push(ratio);
        let fitted = |entries: &[FittedOn]| {
            let mut experiment = experiment.clone();
            experiment.variants[0].fitted_on = entries.to_vec();
            experiment.claims.iter().map(|claim| experiment.is_fitted(claim)).collect::<Vec<_>>()
        };
        assert_eq!(fitted(&[]), [false, false]);
        assert_eq!(fitted(&[entry(Some("rand, N=4"), Some("none-none"))]), [true, false]);
        assert_eq!(fitted(&[entry(None, None)]), [true, true]);
        assert_eq!(fitted(&[entry(Some("rand, N=1"), None)]), [false, false]);
        let other = FittedOn { experiment: "b/example".into(), ..entry(None, None) };
        assert_eq!(fitted(&[other]), [false, false]);
    }

    /// Goal: a list that names what is not there is refused with its file and line. Method: a variant, a stack.
    #[test]
    fn unknown_names_are_explained() {
        let known = ["rand", "seq"];
        let check = |names: &str| {
            let entry = entry(Some(names), None);
            check_names("profiles/drives/x.toml", &entry, "variant", &entry.variant, &known)
        };
        assert!(check("rand").is_ok());
        let error = check("rnd").expect_err("no such variant").to_string();
        let says = ["profiles/drives/x.toml:7", "`rnd`", "rand | seq", "did you mean `rand`"];
        assert!(says.iter().all(|part| error.contains(part)), "{error}");
    }
}
