//! A case with findings as an experiment: what was found is its note, what is expected are claims.

use super::draw::{Case, Client};
use super::finding::{BEATEN, Finding, KEPT, KEPT_SECOND, Kind, SLICED, STARVED};

/// The experiment. Claims that do not hold are not hard.
pub(super) fn experiment(case: &Case, minimums: &[u64], findings: &[Finding]) -> String {
    let mut stacks = vec!["promise"];
    let mut claims = String::new();
    let promised = case.clients.iter().filter(|client| client.promised);
    for (client, minimum) in promised.zip(minimums) {
        let is_broken =
            |finding: &Finding| finding.kind == Kind::Broken && finding.of == client.name;
        let (name, holds) = (&client.name, !findings.iter().any(is_broken));
        let least = (minimum * KEPT / 100).saturating_sub(client.unit / case.seconds());
        let reference = format!("{KEPT} % of its minimum, but for one request");
        claims += &at_least(name, least, holds, &reference);
    }
    for Finding { kind, of, expected, .. } in findings {
        match kind {
            // Among the claims above.
            Kind::Broken => {}
            Kind::Second => {
                let client = client_of(case, of);
                let least = (expected * KEPT_SECOND / 100).saturating_sub(2 * client.unit);
                let reference =
                    format!("{KEPT_SECOND} % of its minimum in each second, but for two requests");
                claims += &at_least(&format!("{} least", client.name), least, false, &reference);
            }
            Kind::Starved => {
                let client = client_of(case, of);
                let least = expected * STARVED / 100 * client.count;
                let reference = format!("{STARVED} % of its share of what the minimums leave");
                claims += &at_least(&client.name, least, false, &reference);
            }
            Kind::Sliced => {
                let reference = format!("{SLICED} % of what time slicing leaves");
                claims += &at_least("total", expected * SLICED / 100, false, &reference);
            }
            Kind::Beaten => {
                stacks.push(of);
                claims += &expect(&format!(
                    "kind = \"ratio\"\nof = \"total\"\nto = {{ stack = \"{of}\" }}\nlow = {:.3}\nhard = false\n\
                     reference = \"all that a stack carries that keeps the same promises, less {} %\"\n",
                    100.0 / BEATEN as f64,
                    BEATEN - 100
                ));
            }
        }
    }
    let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
    case.experiment(&stacks, &format!("Found: {}.", found.join("; ")), minimums) + &claims
}

fn expect(keys: &str) -> String {
    format!("\n[[expect]]\nstack = \"promise\"\n{keys}")
}

fn at_least(of: &str, bytes_a_second: u64, hard: bool, reference: &str) -> String {
    let value = bytes_a_second as f64 / 1e6;
    expect(&format!(
        "kind = \"at_least\"\nof = \"{of}\"\nvalue = \"{value}MB/s\"\nhard = {hard}\nreference = \"{reference}\"\n"
    ))
}

/// The client of a process, which has its name and perhaps a number.
fn client_of<'a>(case: &'a Case, process: &str) -> &'a Client {
    let name = process.split_once('.').map_or(process, |(name, _)| name);
    case.clients.iter().find(|client| client.name == name).expect("a finding is about a client")
}

/// Goal: a case is written so that the lab can run it and its claims ask for what the search asks for. Method: a drawn case with a
/// finding of each kind, read as an experiment.
#[test]
fn cases_are_experiments() {
    let case = Case::draw(1);
    let minimums: Vec<u64> = case.parts.iter().map(|part| part * 1_000_000).collect();
    let name = |promised: bool| {
        let client = case.clients.iter().find(|client| client.promised == promised);
        client.expect("every case has both").name.clone()
    };
    let (promised, other) = (name(true), name(false));
    let finding = |kind, of: &str| Finding { kind, of: of.to_owned(), expected: 9_000_000, got: 1 };
    let findings = [
        finding(Kind::Broken, &promised),
        finding(Kind::Second, &promised),
        finding(Kind::Starved, &(other + ".1")),
        finding(Kind::Sliced, "all"),
        finding(Kind::Beaten, "prop-bfq"),
    ];
    let text = experiment(&case, &minimums, &findings);
    let read = iofair_experiments::experiment::parse("case.toml", &text, &Default::default());
    let read = read.unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert!(read.note.contains("broken: ") && read.note.contains("beaten: prop-bfq"), "{text}");
    let stacks: Vec<&str> = read.stacks.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(stacks, ["promise", "prop-bfq"]);
    assert_eq!(read.claims.len(), minimums.len() + 4);
    assert_eq!(read.claims.iter().filter(|claim| !claim.hard).count(), 5, "one a finding");
    let ratio = read.claims.last().expect("as many as findings");
    assert_eq!((ratio.places.len(), ratio.low), (2, Some(0.926)));
}
