//! Rules about the pictures and tables of reproduction/promise.md: they are made from the tables under reproduction/evidence, which `make evidence`
//! writes, and the page shows all of them.

use iofair_experiments::experiment::{self, Experiment, Overrides};
use iofair_reproduction as reproduction;

use crate::files::{File, all, assert_none, root};

const PAGE: &str = "reproduction/promise.md";
const PICTURES: &str = "reproduction/images";

/// The experiments below a folder, in the order of their paths.
pub(crate) fn experiments(files: &[File], folder: &str) -> Vec<Experiment> {
    let below =
        |file: &&File| file.path.starts_with(&format!("{folder}/")) && file.path.ends_with(".toml");
    let read = |file: &File| experiment::parse(&file.path, &file.text, &Overrides::default());
    files.iter().filter(below).map(|file| read(file).expect("the lab reads all files")).collect()
}

fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|file| file.path == path).map_or("", |file| &file.text)
}

/// Names and contents of all pictures that are drawn.
fn pictures(files: &[File]) -> Result<Vec<(String, String)>, String> {
    let steps = experiments(files, reproduction::STEPS);
    let mut all =
        reproduction::step_pictures(&steps, text(files, "reproduction/evidence/steps.csv"))?;
    all.extend(reproduction::pareto_pictures(text(files, "reproduction/evidence/frontier.csv"))?);
    Ok(all)
}

/// Tables of the page: what they stand between, and what they say.
pub(crate) fn tables(files: &[File]) -> Result<Vec<(&'static str, String)>, String> {
    let steps = experiments(files, reproduction::STEPS);
    let steps = reproduction::steps_table(&steps, text(files, "reproduction/evidence/steps.csv"))?;
    let every = text(files, "reproduction/evidence/frontier.csv");
    let seeds = reproduction::seeds_table(text(files, "reproduction/evidence/seeds.csv"))?;
    let (frontier, stacks) =
        (reproduction::frontier_table(every)?, reproduction::stacks_table(every)?);
    let found = reproduction::found_table(text(files, "reproduction/evidence/search.csv"))?;
    Ok(vec![
        ("frontier", frontier),
        ("stacks", stacks),
        ("seeds", seeds),
        ("steps", steps),
        ("found", found),
    ])
}

/// The page with the table of this name in its place.
pub(crate) fn with_table(page: &str, name: &str, table: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}: generated -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{table}{end}{after}"))
}

/// Complaints about pictures that are not what the tables give, or that the page does not show.
fn stale(files: &[File]) -> Vec<String> {
    let pictures = match pictures(files) {
        Ok(pictures) => pictures,
        Err(error) => return vec![format!("reproduction/evidence: {error}: run make evidence")],
    };
    let mut complaints = Vec::new();
    for (name, svg) in pictures {
        if text(files, &format!("{PICTURES}/{name}")) != svg {
            complaints.push(format!("{PICTURES}/{name} is stale; run make docs"));
        }
        if !text(files, PAGE).contains(&format!("(images/{name})")) {
            complaints.push(format!("{PAGE} does not show {name}"));
        }
    }
    complaints
}

/// Goal: the pictures are those of the tables, and shown. Method: draw and compare; IOFAIR_BLESS=1 writes them.
#[test]
fn generated_pages_have_fresh_pictures() {
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        for (name, svg) in pictures(&all()).expect("make evidence has written the tables") {
            let path = root().join(PICTURES).join(name);
            std::fs::write(path, svg).expect("docs can be written");
        }
    }
    assert_none(&stale(&all()));
}

/// Goal: every rule of this file catches what it is for. Method: a table without its lines; an old picture that nobody
/// shows.
#[test]
fn canaries() {
    let path = "reproduction/experiments/steps/a.toml";
    let experiment = "title = \"\"\nsource = \"\"\ndrive = \"plextor-px256m5s\"\ntime = \"1s\"\n\
        interval = \"500ms\"\nstacks = [\"promise\"]\n[[client]]\nname = \"target\"\njob = \"read\"\n\
        [[variant]]\nname = \"it\"\n";
    let head = "experiment,variant,stack,of,seconds,rates\n";
    let lines = "steps/a,it,promise,target,0.5,1 2\nsteps/a,it,promise,total,0.5,1 2\n";
    let table = format!("{head}{lines}");
    let files = |table: &str| {
        [File::canary(path, experiment), File::canary("reproduction/evidence/steps.csv", table)]
    };
    assert_eq!(stale(&files(&table)).len(), 2);
    assert!(tables(&files(&table)).is_ok() && tables(&files("")).is_ok());
    assert!(with_table("no place", "steps", "").is_none());
    let missing = stale(&files(head));
    assert!(missing.len() == 1 && missing[0].contains("make evidence"), "{missing:?}");
}
