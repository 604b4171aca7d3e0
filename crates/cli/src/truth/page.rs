//! The page: a summary, a table for each experiment, and pictures of shares with their spread over runs.

use std::fmt::Write;

use iofair_lab::report::{escape, picture_file};

use super::{Evidence, Numbers, Row};

/// The introduction, above the results.
const HEAD: &str = include_str!("head.md");
/// The aims, as parts: shares, totals, mean latencies.
const AIMS: [f64; 3] = [0.10, 0.15, 0.25];

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn ends(of: &[f64]) -> [f64; 2] {
    let least = of.iter().copied().fold(f64::INFINITY, f64::min);
    [least, of.iter().copied().fold(0.0, f64::max)]
}

fn near(ours: f64, kernel: f64, part: f64) -> bool {
    ours == kernel || (ours / kernel - 1.0).abs() <= part
}

/// Three digits.
fn number(value: f64) -> String {
    match value {
        it if it >= 100.0 => format!("{it:.0}"),
        it if it >= 10.0 => format!("{it:.1}"),
        it if it >= 1.0 => format!("{it:.2}"),
        it => format!("{it:.3}"),
    }
}

fn spread(of: &[f64]) -> String {
    let [least, most] = ends(of);
    match near(least, most, 0.02) {
        true => number(median(of)),
        false => format!("{} to {}", number(least), number(most)),
    }
}

/// Rows of a variant on a stack.
fn runs(rows: &[Row]) -> Vec<&[Row]> {
    let same = |a: &Row, b: &Row| {
        (&a.experiment, &a.variant, &a.stack) == (&b.experiment, &b.variant, &b.stack)
    };
    rows.chunk_by(same).collect()
}

/// What the clients of a run got together, run by run.
fn totals(run: &[Row], of: impl Fn(&Row) -> &Numbers) -> Vec<f64> {
    let count = run.iter().map(|row| of(row).rate.len()).min().unwrap_or(0);
    (0..count).map(|n| run.iter().map(|row| of(row).rate[n]).sum()).collect()
}

type World = fn(&Row) -> &Numbers;

/// How many of our numbers are near the kernel's: shares, totals, means; and of how many.
fn score(rows: &[Row], ours: World) -> [(usize, usize); 3] {
    let mut scores = [(0, 0); 3];
    let mut count = |which: usize, ours: f64, kernel: f64| {
        scores[which].1 += 1;
        scores[which].0 += usize::from(near(ours, kernel, AIMS[which]));
    };
    for run in runs(rows) {
        count(1, median(&totals(run, ours)), median(&totals(run, |it| &it.kernel)));
        for row in run {
            if run.len() > 1 {
                count(0, median(&ours(row).share_percent), median(&row.kernel.share_percent));
            }
            count(2, median(&ours(row).mean_ms), median(&row.kernel.mean_ms));
        }
    }
    scores
}

/// The page.
pub(crate) fn page(evidence: &Evidence) -> String {
    let rows = &evidence.rows;
    let lab = score(rows, |it| &it.lab);
    let live = score(rows, |it| &it.live);
    let of = |(within, all): (usize, usize)| format!("{within} of {all}");
    let percent = |(within, all): (usize, usize)| within * 100 / all.max(1);
    let all = lab.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    let mut text = HEAD.to_owned();
    let _ = write!(
        text,
        "\n## Summary\n\nThe simulator agrees with Linux in {} of {} numbers ({} %): {} shares within 10 %, {} totals within \
         15 %, {} mean latencies within 25 %.\n\n{}\n\n| beside the kernel | shares within 10 % | totals within 15 % | means within 25 % \
         |\n|---|---|---|---|\n",
        all.0,
        all.1,
        percent(all),
        of(lab[0]),
        of(lab[1]),
        of(lab[2]),
        evidence.here
    );
    for (name, it) in [("simulator", lab), ("live server", live)] {
        let _ = writeln!(text, "| {name} | {} | {} | {} |", of(it[0]), of(it[1]), of(it[2]));
    }
    text.push_str("\nBy scheduler, simulator beside kernel:\n\n| stack | shares | totals | means |\n|---|---|---|---|\n");
    let mut stacks: Vec<&str> = Vec::new();
    for row in rows {
        if !stacks.contains(&row.stack.as_str()) {
            stacks.push(&row.stack);
        }
    }
    for stack in stacks {
        let its: Vec<Row> = rows.iter().filter(|it| it.stack == stack).cloned().collect();
        let it = score(&its, |it| &it.lab);
        let _ = writeln!(text, "| {stack} | {} | {} | {} |", of(it[0]), of(it[1]), of(it[2]));
    }
    for experiment in rows.chunk_by(|a, b| a.experiment == b.experiment) {
        section(&mut text, experiment);
    }
    text
}

fn section(text: &mut String, rows: &[Row]) {
    let name = &rows[0].experiment;
    let short = name.rsplit('/').next().unwrap_or(name);
    let _ = write!(
        text,
        "\n## {short}\n\n![Shares of each client: simulator, live server, kernel](images/truth-{short}.svg)\n\n\
         | variant, stack | client | MB/s lab | live | kernel | share % lab | live | kernel | mean ms lab | live | kernel | p99 ms \
         lab | kernel |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for run in runs(rows) {
        for row in run {
            let marked = |lab: &[f64], kernel: &[f64], part: f64| match near(
                median(lab),
                median(kernel),
                part,
            ) {
                true => spread(lab),
                false => format!("**{}**", spread(lab)),
            };
            let Row { variant, stack, client, lab, live, kernel, .. } = row;
            let cells = [
                format!("{variant}, {stack}"),
                client.clone(),
                spread(&lab.rate),
                spread(&live.rate),
                spread(&kernel.rate),
                marked(&lab.share_percent, &kernel.share_percent, AIMS[0]),
                spread(&live.share_percent),
                spread(&kernel.share_percent),
                marked(&lab.mean_ms, &kernel.mean_ms, AIMS[2]),
                spread(&live.mean_ms),
                spread(&kernel.mean_ms),
                spread(&lab.p99_ms),
                spread(&kernel.p99_ms),
            ];
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        let total = |of: World| totals(run, of);
        let (lab, kernel) = (total(|it| &it.lab), total(|it| &it.kernel));
        let mark = if near(median(&lab), median(&kernel), AIMS[1]) { "" } else { "**" };
        let _ = writeln!(
            text,
            "| | total | {mark}{}{mark} | {} | {} | | | | | | | | |",
            spread(&lab),
            spread(&total(|it| &it.live)),
            spread(&kernel)
        );
    }
}

/// A picture for each experiment: its name and its text.
pub(crate) fn pictures(evidence: &Evidence) -> Vec<(String, String)> {
    let chunks = evidence.rows.chunk_by(|a, b| a.experiment == b.experiment);
    chunks
        .map(|rows| {
            let name = &rows[0].experiment;
            let short = name.rsplit('/').next().unwrap_or(name);
            (format!("truth-{short}.svg"), picture(short, rows))
        })
        .collect()
}

/// Rates on a logarithmic scale: three marks a client, with a line from the least to the most of all runs.
fn picture(title: &str, rows: &[Row]) -> String {
    const LEFT: f64 = 330.0;
    const WIDE: f64 = 560.0;
    const LINE: f64 = 16.0;
    let x = |rate: f64| LEFT + (rate.max(0.1).log10() + 1.0) / 4.0 * WIDE;
    let mut body = String::new();
    let high = 44.0 + rows.len() as f64 * LINE + 10.0;
    for (power, label) in ["0.1", "1", "10", "100", "1000 MB/s"].iter().enumerate() {
        let at = LEFT + power as f64 / 4.0 * WIDE;
        let _ = writeln!(
            body,
            "<line x1=\"{at:.0}\" x2=\"{at:.0}\" y1=\"40\" y2=\"{high:.0}\" stroke=\"#dddddd\"/>\
             <text x=\"{at:.0}\" y=\"36\" font-size=\"11\" text-anchor=\"middle\">{label}</text>"
        );
    }
    let worlds: [(&str, &str, World); 3] = [
        ("simulator", "#1f6feb", |it| &it.lab),
        ("live server", "#2da44e", |it| &it.live),
        ("kernel", "#cf222e", |it| &it.kernel),
    ];
    for (n, (name, colour, _)) in worlds.iter().enumerate() {
        let at = 10.0 + n as f64 * 100.0;
        let _ = writeln!(
            body,
            "<circle cx=\"{at:.0}\" cy=\"16\" r=\"4\" fill=\"{colour}\"/><text x=\"{:.0}\" y=\"20\" font-size=\"12\">{name}</text>",
            at + 8.0
        );
    }
    for (n, row) in rows.iter().enumerate() {
        let y = 52.0 + n as f64 * LINE;
        let label = escape(&format!("{}, {}: {}", row.variant, row.stack, row.client));
        let _ =
            writeln!(body, "<text x=\"4\" y=\"{:.0}\" font-size=\"11\">{label}</text>", y + 4.0);
        for (offset, (_, colour, of)) in [-4.0, 0.0, 4.0].into_iter().zip(&worlds) {
            let rates = &of(row).rate;
            if rates.is_empty() {
                continue;
            }
            let ([least, most], y) = (ends(rates), y + offset);
            let _ = writeln!(
                body,
                "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>\
                 <circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>",
                x(least),
                x(most),
                x(median(rates))
            );
        }
    }
    picture_file(
        &format!("{title}: rates on a logarithmic scale"),
        (LEFT + WIDE + 40.0, high),
        &body,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(rate: f64, share: f64, mean: f64) -> Numbers {
        let (rate, mean_ms) = (vec![rate, rate * 1.01], vec![mean; 2]);
        Numbers { rate, share_percent: vec![share; 2], p99_ms: mean_ms.clone(), mean_ms }
    }
    fn row(client: &str, kernel: Numbers, lab: Numbers) -> Row {
        let [experiment, variant, stack] = ["truth/e", "v", "none-none"].map(str::to_owned);
        Row { experiment, variant, stack, client: client.into(), kernel, live: lab.clone(), lab }
    }

    /// Goal: the page counts what is near the kernel's numbers and marks what is not. Method: two clients, one share and
    /// one latency off.
    #[test]
    fn deviations_are_marked() {
        let rows = vec![
            row("a", numbers(10.0, 25.0, 1.0), numbers(10.0, 30.0, 1.0)),
            row("b", numbers(30.0, 75.0, 1.0), numbers(30.0, 70.0, 2.0)),
        ];
        let here = "On a machine.".to_owned();
        let evidence = Evidence { here, turnaround_ns: 0, path_ns: [0; 3], depth: 128, rows };
        let text = page(&evidence);
        assert!(text.contains("| simulator | 1 of 2 | 1 of 1 | 1 of 2 |"), "{text}");
        assert!(text.contains("**30.0**") && text.contains("**2.00**"), "{text}");
        let pictures = pictures(&evidence);
        assert!(pictures[0].0 == "truth-e.svg" && pictures[0].1.starts_with("<svg"));
    }
}
