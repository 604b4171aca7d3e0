//! Rules about numbers in the sentences on policies: what was measured is named, not typed; what is named
//! exists and is in reproduction/measured.csv, which holds nothing else; a number that is typed is one of the experiment's
//! file or the default of a parameter.

use std::collections::BTreeSet;

use iofair_baselines::TABLE as POLICIES;
use iofair_core::params::Values;
use iofair_core::policy::{Claim, Judgement, Row};
use iofair_experiments::experiment::{self, Overrides, Spot};
use iofair_reproduction::{self as reproduction, Measured};

use crate::evidence::{experiments, tables, with_table};
use crate::files::{File, all, assert_none, root};

const TABLE: &str = "reproduction/measured.csv";
const JUDGEMENTS: &str = "reproduction/judgements.json";
const PROMISE_PAGE: &str = "reproduction/promise.md";
const UNITS: &[&str] = &["GB/s", "GiB/s", "IOPS", "KiB", "KiB/s", "MB/s", "MiB/s", "ms", "s", "us"];

/// What was measured, as the pages show it.
pub(crate) fn measured(files: &[File]) -> Result<Measured, String> {
    let table = files.iter().find(|file| file.path == TABLE);
    Measured::parse(&table.ok_or_else(|| format!("no {TABLE}"))?.text)
}

/// The page with the tables that `files` give.
fn promise_page(files: &[File], page: &str) -> Option<String> {
    let measured = measured(files).ok()?;
    let table =
        reproduction::promises_table(&experiments(files, reproduction::PROMISES), &measured);
    let page = with_table(page, "measured", &table)?;
    let table = reproduction::cases_table(&experiments(files, reproduction::CASES), &measured);
    let mut page = with_table(&page, "cases", &table)?;
    for (name, table) in tables(files).ok()? {
        page = with_table(&page, name, &table)?;
    }
    Some(page)
}

/// The file of an experiment, as text.
fn text<'a>(files: &'a [File], experiment: &str) -> Option<&'a str> {
    let path = format!("reproduction/experiments/{experiment}.toml");
    files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
}

/// Complaints about places that a claim names and that are not there, or that its command does not show.
fn nowhere(files: &[File], claim: &Claim) -> Vec<String> {
    let spots = match reproduction::spots(claim) {
        Ok(spots) => spots,
        Err(error) => return vec![error],
    };
    let (own, asked) = reproduction::stacks_asked(claim);
    let check = |spot: &Spot| {
        let text = text(files, &spot.experiment);
        let text = text.ok_or_else(|| format!("no experiment {}", spot.experiment))?;
        let mut overrides = Overrides::default();
        if spot.experiment == own && !asked.is_empty() {
            overrides.stacks = Some(asked.iter().map(|stack| (*stack).to_owned()).collect());
        }
        let experiment = experiment::parse(&spot.experiment, text, &overrides);
        spot.place(&experiment.map_err(|error| error.to_string())?)
    };
    spots.iter().filter_map(|spot| check(spot).err()).collect()
}

/// Places without a line, and lines that no sentence names.
fn not_in_step(files: &[File], rows: &[&Row]) -> Vec<String> {
    let measured = match measured(files) {
        Ok(measured) => measured,
        Err(error) => return vec![error],
    };
    let claims = rows.iter().flat_map(|row| row.judgement.claims());
    let mut wanted: BTreeSet<Spot> =
        claims.filter_map(|claim| reproduction::spots(claim).ok()).flatten().collect();
    wanted.extend(reproduction::promises_spots(&experiments(files, reproduction::PROMISES)));
    wanted.extend(reproduction::cases_spots(&experiments(files, reproduction::CASES)));
    let there: BTreeSet<Spot> = measured.spots().cloned().collect();
    let name = |spot: &Spot| {
        let Spot { experiment, variant, stack, quantity } = spot;
        format!("{quantity} of {stack} [{variant}] in {experiment}")
    };
    let missing = wanted
        .difference(&there)
        .map(|spot| format!("{TABLE} lacks {}: run make measured", name(spot)));
    let unused =
        there.difference(&wanted).map(|spot| format!("{TABLE}: nobody names {}", name(spot)));
    missing.chain(unused).collect()
}

/// What a file sets: its words up to what the source claims, without title, source, note and comments.
fn settings(text: &str) -> BTreeSet<&str> {
    let text = text.split("[[expect]]").next().unwrap_or_default();
    let prose = ["title =", "source =", "note ="];
    let lines = text.lines().filter(|line| !prose.iter().any(|key| line.starts_with(key)));
    let code = lines.map(|line| line.split('#').next().unwrap_or_default());
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && !"./".contains(c))).collect()
}

/// Numbers of a sentence that stand neither in its experiment nor among the policy's defaults.
fn typed(files: &[File], row: &Row, says: &str, experiment: &str) -> Vec<String> {
    let mut said = says.replace("} : 1", "}").replace("1 : {", "{");
    for (open, close) in [('{', '}'), ('`', '`')] {
        while let Some((before, rest)) = said.split_once(open) {
            let after = rest.split_once(close).map_or("", |(_, after)| after);
            said = format!("{before}#{after}");
        }
    }
    let mut known: BTreeSet<String> = BTreeSet::new();
    known.extend(
        settings(text(files, experiment).unwrap_or_default()).iter().map(ToString::to_string),
    );
    let defaults = Values::new(row.parameters, row.overrides);
    known.extend(defaults.iter().map(|(parameter, value)| parameter.show(value)));
    let words: Vec<&str> = said.split_whitespace().collect();
    let mut unknown = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '%');
        if !bare.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let next = words
            .get(index + 1)
            .map_or("", |next| next.trim_end_matches(['.', ',', ';', ':', ')']));
        let unit = if UNITS.contains(&next) && word.ends_with(bare) { next } else { "" };
        if !known.contains(&format!("{bare}{unit}")) {
            unknown.push(format!("{}: {bare} {unit} is typed: \"{says}\"", row.name));
        }
    }
    unknown
}

fn typed_in(files: &[File], row: &Row) -> Vec<String> {
    let Judgement { needs, .. } = &row.judgement;
    let claims =
        row.judgement.claims().map(|claim| (claim.says, reproduction::stacks_asked(claim).0));
    claims.chain([(*needs, "")]).flat_map(|(says, of)| typed(files, row, says, of)).collect()
}

/// Goal: every number that a sentence names can be measured. Method: the experiments are read.
#[test]
fn every_number_named_exists() {
    let files = all();
    let claims = POLICIES.policies.iter().flat_map(|row| row.judgement.claims());
    assert_none(&claims.flat_map(|claim| nowhere(&files, claim)).collect::<Vec<_>>());
}

/// Goal: every number named was measured, and none besides. Method: sentences against the table.
#[test]
fn the_measured_numbers_are_those_named() {
    assert_none(&not_in_step(&all(), POLICIES.policies));
}

/// Goal: `iofair list policies` prints what was measured. Method: generate its file and compare; IOFAIR_BLESS=1 writes it.
#[test]
fn generated_pages_of_judgements_are_fresh() {
    let path = root().join(JUDGEMENTS);
    let measured = measured(&all()).expect("the table is there");
    let fresh = reproduction::judgements(POLICIES.policies, &measured);
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("it can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == fresh, "{JUDGEMENTS} is stale; run make docs");
}

/// Goal: the tables of reproduction/promise.md are fresh. Method: generate and compare; IOFAIR_BLESS=1 writes it.
#[test]
fn generated_pages_of_promises_are_fresh() {
    let path = root().join(PROMISE_PAGE);
    let there = std::fs::read_to_string(&path).expect("the page is there");
    let fresh = promise_page(&all(), &there).expect("the page has a place for the table");
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("docs can be written");
    }
    let there = std::fs::read_to_string(&path).expect("the page is there");
    assert!(there == fresh, "{PROMISE_PAGE} is stale; run make docs");
}

/// Goal: a result is never typed. Method: each number of each sentence against the experiment's file.
#[test]
fn no_result_is_typed() {
    let files = all();
    assert_none(
        &POLICIES.policies.iter().flat_map(|row| typed_in(&files, row)).collect::<Vec<_>>(),
    );
}

/// Goal: every rule of this file catches what it is for. Method: made-up sentences about a made-up experiment.
#[test]
fn canaries() {
    let experiment = "title = \"7 readers\"\nsource = \"\"\ndrive = \"plextor-px256m5s\"\ntime = \"2s\" # not 9\n\
        stacks = [\"none-none\"]\n[[client]]\nname = \"target\"\njob = \"read\"\nweight = 300\nlow = \"10MB/s\"\n\
        [[expect]]\nkind = \"within\"\nof = \"total\"\nstack = \"none-none\"\npublished = \"510MB/s\"\nbasis = \"published\"\n";
    let table = "experiment,variant,stack,quantity,value,unit\na/b,,none-none,target,5,MB/s\n";
    let files =
        [File::canary("reproduction/experiments/a/b.toml", experiment), File::canary(TABLE, table)];
    let claim = |says, shown_by| Claim { says, shown_by };
    for (says, shown_by, complaints) in [
        ("{target of none-none}", "a/b", 0),
        ("{target of none-none in a/b}", "a/c", 0),
        ("{target of max-none / total of none-none}", "a/b --stack max-none,none-none", 0),
        ("{target of none-none}", "a/c", 1),
        ("{target of none-none}", "a/b --stack max-none", 1),
        ("{target of none-none [x]}", "a/b", 1),
        ("{reader of none-none}", "a/b", 1),
        ("{target none-none}", "a/b", 1),
        ("{target of none-none", "a/b", 1),
    ] {
        assert_eq!(nowhere(&files, &claim(says, shown_by)).len(), complaints, "{says} {shown_by}");
    }
    let [promised, measured] = [
        File::canary("reproduction/experiments/promise/a.toml", experiment),
        File::canary(TABLE, &table.replace("a/b", "promise/a")),
    ];
    let place = |name| format!("<!-- {name}: generated -->\nold<!-- {name}: end -->\n");
    let page =
        ["measured", "cases", "frontier", "stacks", "seeds", "steps", "found"].map(place).concat();
    let fresh = promise_page(&[promised, measured], &page).expect("it has the place");
    assert!(fresh.contains("|  | - | 5 / (not measured)") && !fresh.contains("old"), "{fresh}");
    assert!(promise_page(&files, "no place").is_none());
    let row = POLICIES.find("deadline").expect("in the table");
    for fine in [
        "{total of none-none} of 10 MB/s in 2 s.",
        "Weight 300: {x} : 1, `a-1` 9 of `7`.",
        "Due after 500 ms.",
    ] {
        let fine = fine.replace(" 9", "");
        assert_none(&typed(&files, row, &fine, "a/b"));
    }
    for wrong in
        ["It gets 510 MB/s.", "It gets 10.", "It gets 10 KiB/s.", "7 get 9.4 : 1.", "A 9.", "82 %."]
    {
        assert!(!typed(&files, row, wrong, "a/b").is_empty(), "{wrong}");
    }
    let judged = |says: &'static str| {
        let claims: &'static [Claim] = Box::leak(Box::new([claim(says, "a/b")]));
        Row { judgement: Judgement { promises: claims, needs: "", fails: &[] }, ..*row }
    };
    assert_none(&not_in_step(&files, &[&judged("{target of none-none}")]));
    assert_eq!(not_in_step(&files, &[&judged("{total of none-none}")]).len(), 2);
    assert_eq!(not_in_step(&files[..1], &[]).len(), 1);
}
