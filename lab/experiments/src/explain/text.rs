//! A survey and stories as text.

use iofair_core::time::Nanos;

use super::rule::size;
use super::{Story, Summary};
use iofair_simulator::text_table::{PLAIN, counted, text_table};

/// This many rules are printed; JSON has them all.
const RULES_MAX: usize = 12;

fn table(header: &[&str], rows: Vec<Vec<String>>, left: &[usize]) -> String {
    let right = (0..header.len()).filter(|index| !left.contains(index));
    text_table(PLAIN, header.to_vec(), right, rows)
}

fn time(ns: u64) -> String {
    if ns == 0 { "-".to_owned() } else { Nanos(ns).to_string() }
}

/// Waiting times by client and place, the rules, the slowest.
pub fn summary(of: &Summary) -> String {
    let unfinished = match of.unfinished {
        0 => String::new(),
        some => format!(", {some} of them in flight at the end"),
    };
    let requests = counted(of.requests, "request");
    let mut text = format!("{requests}, {} measured{unfinished}\n", of.counted);
    let rows = of.waits.iter().map(|wait| {
        let waited = format!("{} of {}", wait.waited, wait.requests);
        let [mean, p99, max] = [wait.mean_ns, wait.p99_ns, wait.max_ns].map(time);
        vec![wait.client.clone(), wait.place.clone(), waited, mean, p99, max]
    });
    let header = ["client", "where", "requests", "mean", "p99", "max"];
    text += &format!(
        "\nWaiting times by client and place\n{}",
        table(&header, rows.collect(), &[0, 1])
    );
    let rows = of.rules.iter().take(RULES_MAX).map(|rule| {
        let place = rule.place.clone().unwrap_or_default();
        vec![
            rule.about.clone(),
            place,
            rule.rule.clone(),
            rule.times.to_string(),
            time(rule.held_ns),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let header = ["subject", "where", "rule", "times", "total held"];
        text += &format!("\nRules that held requests\n{}", table(&header, rows, &[0, 1, 2]));
        if of.rules.len() > RULES_MAX {
            text += &format!("(and {} more: --json)\n", of.rules.len() - RULES_MAX);
        }
    }
    if of.slowest.is_empty() {
        return text;
    }
    let used: Vec<usize> = (0..of.places.len())
        .filter(|place| of.slowest.iter().any(|slow| slow.waits_ns[*place] > 0))
        .collect();
    let mut header = vec!["request", "client", "operation", "submitted at", "total"];
    header.extend(used.iter().map(|place| of.places[*place].as_str()));
    let rows = of.slowest.iter().map(|slow| {
        let open = if slow.completed { "" } else { " so far" };
        let what = format!("{} {}", slow.operation, size(slow.bytes));
        let total = time(slow.total_ns) + open;
        let mut row = vec![slow.request.to_string(), slow.client.clone(), what];
        row.extend([time(slow.submitted_ns), total]);
        row.extend(used.iter().map(|place| time(slow.waits_ns[*place])));
        row
    });
    text + &format!("\nThe slowest requests\n{}", table(&header, rows.collect(), &[1, 2]))
}

/// Step by step.
pub fn stories(of: &[Story]) -> String {
    let texts: Vec<String> = of.iter().map(story).collect();
    texts.join("\n")
}

fn story(of: &Story) -> String {
    let group = match of.group.strip_prefix("group ") {
        Some(name) if name == of.client => String::new(),
        _ => format!(" in {}", of.group),
    };
    let what = match of.bytes {
        0 => of.operation.to_owned(),
        bytes => {
            let metadata = if of.metadata { " of metadata" } else { "" };
            let size = size(bytes);
            format!("{} of {size}{metadata} at sector {}", of.operation, of.start_sector)
        }
    };
    let open = if of.completed { "" } else { ", not completed" };
    let mut text = format!(
        "request {}, {} from {}{group}, submitted at {}: {}{open}\nwhy: {}\n",
        of.request,
        what,
        of.client,
        Nanos(of.submitted_ns),
        Nanos(of.total_ns),
        of.why,
    );
    for line in &of.lines {
        text += &format!("{:>12}  {}\n", format!("+{}", Nanos(line.after_ns)), line.what);
    }
    text
}
