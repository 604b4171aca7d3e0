//! Rules about where claims come from: lists of fitted rows name what is there, no fitted row counts as held-out on the page of
//! results, an implied claim follows from one that is there, and quotes are in the sources.

use std::collections::{BTreeMap, BTreeSet};

use iofair_experiments::experiment::basis::{SET_UP, is_named};
use iofair_experiments::experiment::{Basis, Experiment, Place};
use toml::{Table, Value};

use crate::evidence::experiments;
use crate::files::{File, all, assert_none};

const PAGE: &str = "reproduction/reproduction.md";
/// The folders whose sources are the texts beside the repository.
const SOURCES: [&str; 5] =
    ["article-2018", "comparison-2019", "io-controller-2009", "survey-2019", "controller-2015"];

fn known(files: &[File]) -> Vec<Experiment> {
    let mut known = experiments(files, "reproduction/experiments");
    for experiment in &mut known {
        experiment.name = experiment
            .name
            .trim_start_matches("reproduction/experiments/")
            .trim_end_matches(".toml")
            .to_owned();
    }
    known
}

/// Files under `reproduction/experiments/` in which a claim does not say its basis. Elsewhere a claim without one is `own`.
fn without_basis(files: &[File]) -> Vec<String> {
    let ours = files.iter().filter(|file| {
        file.path.starts_with("reproduction/experiments/") && file.path.ends_with(".toml")
    });
    let complaint = |file: &File| {
        let table: Table = file.text.parse().unwrap_or_default();
        let claims = table.get("expect").and_then(Value::as_array).cloned().unwrap_or_default();
        let silent = claims.iter().any(|claim| claim.get("basis").is_none());
        (silent && !table.contains_key("basis"))
            .then(|| format!("{}: a claim without `basis`", file.path))
    };
    ours.filter_map(complaint).collect()
}

/// An entry of a list, read without the program's own code.
#[derive(Clone, Debug)]
struct Entry {
    experiment: String,
    variant: Option<BTreeSet<String>>,
    stack: Option<BTreeSet<String>>,
}

fn names(value: Option<&Value>) -> Option<BTreeSet<String>> {
    match value? {
        Value::Array(all) => {
            Some(all.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        one => Some(BTreeSet::from([one.as_str()?.to_owned()])),
    }
}

/// The name of a file under `profiles`, such as `drives/nvme-2015`.
fn name_of(path: &str) -> String {
    path.trim_start_matches("profiles/").trim_end_matches(".toml").to_owned()
}

/// The machines that others are based on, by those.
fn bases(files: &[File]) -> BTreeMap<String, String> {
    let machines = files.iter().filter(|file| file.path.starts_with("profiles/machines/"));
    let base = |file: &File| {
        let table: Table = file.text.parse().ok()?;
        Some((name_of(&file.path), format!("machines/{}", table.get("base")?.as_str()?)))
    };
    machines.filter_map(base).collect()
}

/// The lists of all profiles and machines, by the name of their file. A machine has those of its base too.
fn lists(files: &[File]) -> BTreeMap<String, Vec<Entry>> {
    let profiles = files
        .iter()
        .filter(|file| file.path.starts_with("profiles/") && file.path.ends_with(".toml"));
    let list = |file: &File| {
        let table: Table = file.text.parse().unwrap_or_default();
        let entries = table.get("fitted_on").and_then(Value::as_array).cloned().unwrap_or_default();
        let entry = |row: &Value| Entry {
            experiment: row
                .get("experiment")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            variant: names(row.get("variant")),
            stack: names(row.get("stack")),
        };
        (name_of(&file.path), entries.iter().map(entry).collect::<Vec<Entry>>())
    };
    let mut lists: BTreeMap<String, Vec<Entry>> = profiles.map(list).collect();
    let bases = bases(files);
    for name in bases.keys() {
        let mut next = bases.get(name);
        while let Some(base) = next {
            let more = lists.get(base).cloned().unwrap_or_default();
            lists.entry(name.clone()).or_default().extend(more);
            // What is added to a base here already is added twice, which does not matter.
            next = bases.get(base);
        }
    }
    lists
}

/// Entries about experiments that are not there.
fn unknown(lists: &BTreeMap<String, Vec<Entry>>, known: &[Experiment]) -> Vec<String> {
    let there: BTreeSet<&str> = known.iter().map(|experiment| experiment.name.as_str()).collect();
    let entries = lists.iter().flat_map(|(file, list)| list.iter().map(move |entry| (file, entry)));
    let missing = entries.filter(|(_, entry)| !there.contains(entry.experiment.as_str()));
    let complaint = |(file, entry): (&String, &Entry)| {
        format!("{file}: fitted_on: no experiment {}", entry.experiment)
    };
    missing.map(complaint).collect()
}

/// Whether a list of the drive or the machine has the run of a place.
fn is_fitted(lists: &BTreeMap<String, Vec<Entry>>, experiment: &Experiment, place: &Place) -> bool {
    let (variant, stack) = (&experiment.variants[place.variant], &experiment.stacks[place.stack].0);
    let base = |name: &str| name.split([':', '?']).next().unwrap_or_default().to_owned();
    let drive = format!("drives/{}", base(&variant.drive));
    let machine = format!("machines/{}", base(&variant.machine));
    let lists_name = |names: &Option<BTreeSet<String>>, name: &str| {
        names.as_ref().is_none_or(|names| names.contains(name))
    };
    let lists = [drive, machine].into_iter().flat_map(|name| lists.get(&name)).flatten();
    lists
        .filter(|entry| entry.experiment == experiment.name)
        .any(|entry| lists_name(&entry.variant, &variant.name) && lists_name(&entry.stack, stack))
}

/// Cells of a row of the page; `\|` is no border.
fn cells(row: &str) -> Vec<String> {
    let row = row.replace("\\|", "\0");
    row.trim_matches('|').split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// Complaints about the page: a claim whose basis is not what files and lists say, and a headline that is not the held-out
/// published claims among its rows.
fn wrong_page(
    page: &str,
    known: &[Experiment],
    lists: &BTreeMap<String, Vec<Entry>>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let (mut hold, mut judged) = (0, 0);
    for experiment in known.iter().filter(|experiment| !experiment.claims.is_empty()) {
        let name = &experiment.name;
        let heading = format!("\n## {name}\n");
        let section = page.split_once(&heading).map_or("", |(_, rest)| rest);
        let section = section.split("\n## ").next().unwrap_or_default();
        let mut rows = section.lines().filter(|line| line.starts_with('|')).map(cells);
        let titles = rows.next().unwrap_or_default();
        let column = |name: &str| titles.iter().position(|title| title == name);
        let (Some(basis), Some(verdict)) = (column("Basis"), column("Verdict")) else {
            complaints.push(format!("{PAGE}: {name} is missing or old: run make reproduce"));
            continue;
        };
        let rows: Vec<_> = rows.skip(1).collect();
        if rows.len() != experiment.claims.len() {
            complaints.push(format!("{PAGE}: {name}: other claims: run make reproduce"));
            continue;
        }
        for (claim, row) in experiment.claims.iter().zip(&rows) {
            let fitted = claim.places.iter().all(|place| is_fitted(lists, experiment, place));
            let says = claim.origin.basis.word().to_owned() + if fitted { ", fitted" } else { "" };
            if row[basis] != says {
                let text = &claim.text;
                complaints.push(format!("{PAGE}: {name}: {text} is {says}, not {}", row[basis]));
            }
            if claim.origin.basis == Basis::Published && !fitted {
                hold += usize::from(row[verdict] == "holds");
                judged += usize::from(row[verdict] != "informative");
            }
        }
    }
    let headline = format!("**{hold} of {judged} held-out published claims hold.**");
    if !page.contains(&headline) {
        complaints.push(format!("{PAGE}: the headline is not {headline}"));
    }
    complaints
}

/// Claims of other files that are followed but not there.
fn follow_nothing(known: &[Experiment]) -> Vec<String> {
    let mut complaints = Vec::new();
    for experiment in known {
        for claim in &experiment.claims {
            let follows = &claim.origin.follows;
            let Some((words, other)) = follows.rsplit_once(" in ") else { continue };
            let found = known.iter().filter(|source| source.name == other).any(|source| {
                let mut firm =
                    source.claims.iter().filter(|claim| claim.origin.basis != Basis::Implied);
                firm.any(|claim| is_named(words, source, claim))
            });
            if !found && !follows.starts_with(SET_UP) {
                complaints.push(format!(
                    "{}: {} follows from nothing: {follows}",
                    experiment.name, claim.text
                ));
            }
        }
    }
    complaints
}

/// Words only: what a copy of a source may lose are marks, spaces and formulas' signs.
fn words(text: &str) -> String {
    let text = text.replace("\\sim", " ").replace("~", " ");
    let kept = text.replace(|letter: char| !letter.is_alphanumeric(), " ");
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Quotes that no text has. The mails of August 2019, which the comparison also cites, are not among the texts.
fn unquoted(known: &[Experiment], texts: &str) -> Vec<String> {
    let texts = words(texts);
    let mut complaints = BTreeSet::new();
    for file in known.iter().filter(|file| SOURCES.iter().any(|dir| file.name.starts_with(dir))) {
        for claim in file.claims.iter().filter(|claim| !claim.reference.starts_with("mail")) {
            if !texts.contains(&words(&claim.origin.quote)) {
                complaints.insert(format!("{}: no source says: {}", file.name, claim.origin.quote));
            }
        }
    }
    complaints.into_iter().collect()
}

/// Goal: what lists and implied claims name is there. Method: all of them; a list's variants and stacks are checked when its
/// experiment is read.
#[test]
fn named_rows_are_there() {
    let files = all();
    let known = known(&files);
    let mut complaints = unknown(&lists(&files), &known);
    complaints.extend(follow_nothing(&known));
    assert_none(&complaints);
}

/// Goal: no claim about a fitted row counts as held-out. Method: the page's rows against the lists, read anew from the files,
/// and its headline against its rows.
#[test]
fn no_fitted_row_counts_as_held_out() {
    let files = all();
    let known = known(&files);
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| &file.text);
    let mut page = text(PAGE).cloned().unwrap_or_default();
    for experiment in &known {
        let own = text(&format!("reproduction/pages/{}.md", experiment.name.replace('/', "-")));
        if let Some((_, claims)) = own.and_then(|text| text.split_once("\n## All claims\n")) {
            page += &format!("\n## {}\n{claims}", experiment.name);
        }
    }
    assert_none(&wrong_page(&page, &known, &lists(&files)));
    assert_none(&without_basis(&files));
}

/// Goal: quotes are the sources' words. Method: look for them in the texts, which are not part of the repository.
#[test]
#[ignore = "needs sources: IOFAIR_SOURCES names a folder with the texts of the sources"]
fn needs_sources_quotes_are_there() {
    let folder = std::env::var_os("IOFAIR_SOURCES").expect("IOFAIR_SOURCES is set");
    let mut texts = String::new();
    for entry in std::fs::read_dir(&folder).expect("IOFAIR_SOURCES names a folder of texts") {
        texts += &std::fs::read_to_string(entry.expect("an entry").path()).expect("a text");
        texts.push('\n');
    }
    assert_none(&unquoted(&known(&all()), &texts));
}

/// Goal: every rule of this file catches what it is for. Method: one experiment with one claim; a page that has it as it is,
/// as another, and a headline that counts a fitted row.
#[test]
fn canaries() {
    let text = "title = \"\"\nsource = \"\"\ndrive = \"plextor-px256m5s\"\ntime = \"1s\"\nstacks = [\"none-none\"]\n\
        [[client]]\nname = \"target\"\njob = \"read\"\n[[expect]]\nkind = \"within\"\nof = \"total\"\nstack = \"none-none\"\n\
        published = \"510MB/s\"\nband = \"5%\"\nbasis = \"published\"\nquote = \"it reaches 510\"\n";
    let silent =
        |text: &str| without_basis(&[File::canary("reproduction/experiments/a.toml", text)]).len();
    assert_eq!((silent(text), silent(&text.replace("basis =", "# basis ="))), (0, 1));
    let list = |experiment: &str| {
        let text = format!("[[fitted_on]]\nexperiment = \"{experiment}\"\nchose = \"link\"\n");
        lists(&[File::canary("profiles/drives/plextor-px256m5s.toml", &text)])
    };
    let known = known(&[File::canary("reproduction/experiments/survey-2019/a.toml", text)]);
    let page = |basis: &str, headline: &str| {
        format!(
            "**{headline} held-out published claims hold.**\n\n## survey-2019/a\n\n| Claim | Verdict | Basis |\n\
             |---|---|---|\n| total of none-none | holds | {basis} |\n"
        )
    };
    let (free, listed) = (list("survey-2019/b"), list("survey-2019/a"));
    let wrong = |basis: &str, headline: &str, lists| {
        wrong_page(&page(basis, headline), &known, lists).len()
    };
    assert_eq!(wrong("published", "1 of 1", &free), 0);
    assert_eq!(wrong("published, fitted", "0 of 0", &listed), 0);
    assert_eq!(wrong("published", "0 of 0", &listed), 1, "a fitted row as held-out");
    assert_eq!(wrong("published, fitted", "1 of 1", &listed), 1, "a fitted row in the headline");
    assert_eq!(wrong("published", "1 of 1", &listed), 2);
    assert_eq!(wrong("published, fitted", "1 of 1", &free), 1);
    assert!(!wrong_page("", &known, &free).is_empty(), "an old page");
    let machine = |base: &str| {
        let list = "[[fitted_on]]\nexperiment = \"survey-2019/a\"\nchose = \"memory\"\n";
        let other = File::canary("profiles/machines/other.toml", list);
        let its = format!("base = \"{base}\"\n");
        lists(&[other, File::canary("profiles/machines/plextor-2018.toml", &its)])
    };
    let (third, based) = (machine("third"), machine("other"));
    assert_eq!(wrong("published", "1 of 1", &third), 0, "a list of another machine");
    assert_eq!(wrong("published, fitted", "0 of 0", &based), 0, "a list of the base");
    assert_eq!((unknown(&free, &known).len(), unknown(&listed, &known).len()), (1, 0));
    assert!(unquoted(&known, "it *reaches*\n~510 MB/s").is_empty());
    assert_eq!(unquoted(&known, "it reaches 520").len(), 1);
    let implied = text.replace(
        "basis = \"published\"\nquote = \"it reaches 510\"",
        "basis = \"implied\"\nfollows = \"x in a/b\"",
    );
    let implied =
        self::known(&[File::canary("reproduction/experiments/survey-2019/a.toml", &implied)]);
    assert_eq!((follow_nothing(&implied).len(), follow_nothing(&known).len()), (1, 0));
}
