//! What a report says first: one or two sentences about the result, and warnings about numbers that mislead.

use super::clients::ClientRow;
use super::number::{differs_too_much, number, short};
use super::summary::{Row, Summary};
use crate::experiment::quantity::is_process_of;

/// Stacks that the first sentence names of those that are alike.
const STACKS_MAX: usize = 4;
/// Places that a warning names.
const PLACES_MAX: usize = 3;

/// The result in one or two sentences; empty if no client does I/O.
pub(super) fn synopsis(summary: &Summary) -> String {
    let (focus, unit) = (&summary.focus, summary.rate_unit);
    let stacks = summary.stacks();
    let of_focus = |row: &&Row| row.client(focus).is_some();
    let rows: Vec<&Row> = summary.rows.iter().filter(of_focus).collect();
    if rows.is_empty() {
        return String::new();
    }
    let client = |row: &Row| row.client(focus).expect("the rows were filtered").clone();
    let mut text = match minimums(&rows, &stacks, focus) {
        Some(minimums) => minimums,
        None => {
            let rate = |row: &Row| client(row).rate.mean;
            let verb = if summary.is_one_process(focus) { "gets" } else { "get" };
            format!("{focus} {verb} {}", extremes(&rows, &stacks, unit, rate))
        }
    };
    text += &format!("; the drive moves {}", extremes(&rows, &stacks, unit, |row| row.total.mean));
    let longest = |row: &Row| client(row).longest;
    let most = rows.iter().copied().max_by(|a, b| longest(a).total_cmp(&longest(b)));
    if let Some(row) = most.filter(|row| longest(row) > 0.0) {
        let place = if rows.len() > 1 { format!(" ({})", place(row)) } else { String::new() };
        text += &format!(". The longest call of {focus} takes {} ms{place}.", number(longest(row)));
    } else {
        text.push('.');
    }
    let averaged = summary.rows.chunk_by(|a, b| a.variant == b.variant).count();
    if averaged > 1 && text.contains("on average") {
        text = text.replace("on average", &format!("on average over {averaged} variants"));
    }
    text
}

/// In how many runs the focus has its minimum under each stack; none where no variant gives it one.
fn minimums(rows: &[&Row], stacks: &[&str], focus: &str) -> Option<String> {
    let promised = |row: &&Row| row.client(focus).is_some_and(|client| client.minimum > 0.0);
    let kept = |row: &Row| row.client(focus).map_or(0, ClientRow::runs_kept);
    let repeats = |row: &Row| row.client(focus).map_or(0, |client| client.rates.len());
    // Stacks that keep it equally often stand together, the best first.
    let mut counts: Vec<((usize, usize), Vec<&str>)> = Vec::new();
    for stack in stacks {
        let mine = || rows.iter().filter(|row| row.stack == **stack && promised(row));
        let count = (mine().map(|row| kept(row)).sum(), mine().map(|row| repeats(row)).sum());
        match counts.iter_mut().find(|(other, _)| *other == count) {
            Some((_, names)) => names.push(stack),
            None if count.1 > 0 => counts.push((count, vec![stack])),
            None => {}
        }
    }
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let part = |((kept, of), names): &((usize, usize), Vec<&str>)| {
        let more = names.len().saturating_sub(STACKS_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = &names[..names.len().min(STACKS_MAX)];
        format!("{kept} of {of} under {}{more}", names.join(", "))
    };
    let mut parts: Vec<String> = counts.iter().map(part).collect();
    let several = rows.iter().filter(|row| promised(row)).count() > stacks.len();
    let runs = match several && rows.iter().all(|row| repeats(row) == 1) {
        true => "variants",
        false => "runs",
    };
    let first = (!parts.is_empty()).then(|| parts.remove(0))?;
    let first = first.replacen(" under", &format!(" {runs} under"), 1);
    parts.insert(0, first);
    Some(format!("{focus} gets its minimum (less 5 %, on the mean) in {}", parts.join("; ")))
}

/// The value where there is one place; else the largest and the smallest by stack, averaged over the variants.
fn extremes(rows: &[&Row], stacks: &[&str], unit: &str, value: impl Fn(&Row) -> f64) -> String {
    let several = rows.iter().any(|row| row.variant != rows[0].variant);
    if let ([_], true) = (stacks, several) {
        let by_value = |a: &&&Row, b: &&&Row| value(a).total_cmp(&value(b));
        if let (Some(least), Some(most)) =
            (rows.iter().min_by(by_value), rows.iter().max_by(by_value))
        {
            let (from, to) = (number(value(least)), number(value(most)));
            return match from == to {
                true => format!("{from} {unit} in every variant"),
                false => format!("{from} {unit} [{}] to {to} [{}]", least.variant, most.variant),
            };
        }
    }
    let average = |stack: &str| {
        let all: Vec<f64> =
            rows.iter().filter(|row| row.stack == stack).map(|row| value(row)).collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    let mut by_stack: Vec<_> = stacks.iter().map(|stack| (average(stack), *stack)).collect();
    by_stack.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (most, least) = (by_stack[0], by_stack[by_stack.len() - 1]);
    let on_average = if several { " on average" } else { "" };
    match number(most.0) == number(least.0) {
        true if stacks.len() > 1 => {
            format!("{} {unit}{on_average} under every stack", number(most.0))
        }
        true => format!("{} {unit}{on_average}", number(most.0)),
        false => format!(
            "most under {} ({} {unit}{on_average}) and least under {} ({})",
            most.1,
            number(most.0),
            least.1,
            number(least.0)
        ),
    }
}

fn place(row: &Row) -> String {
    match row.variant.is_empty() {
        true => format!("under {}", row.stack),
        false => format!("under {} [{}]", row.stack, row.variant),
    }
}

/// "in `all` run", or the first places.
fn places(rows: &[&Row], summary: &Summary, all: &str) -> String {
    if rows.len() == summary.rows.len() {
        return if rows.len() == 1 { "in this run".to_owned() } else { format!("in {all} run") };
    }
    let named: Vec<String> = rows.iter().take(PLACES_MAX).map(|row| place(row)).collect();
    let more = rows.len().saturating_sub(PLACES_MAX);
    let more = if more > 0 { format!(" and in {more} more") } else { String::new() };
    named.join(", ") + &more
}

/// What a reader of the numbers has to know. `warm_ups` are the clients with a warm-up of their own.
pub(super) fn warnings(summary: &Summary, warm_ups: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    let rows = |wanted: &dyn Fn(&Row) -> bool| -> Vec<&Row> {
        summary.rows.iter().filter(|row| wanted(row)).collect()
    };
    // Trims reach the drive without bytes.
    let trims = |row: &Row, name: &str| {
        row.jobs.iter().any(|cells| cells[1] == "trim" && (name.is_empty() || cells[0] == name))
    };
    let idle = |row: &Row| row.total.max == 0.0 && !trims(row, "");
    let without = rows(&idle);
    if !without.is_empty() {
        let places = places(&without, summary, "any");
        all.push(format!("Nothing reached the drive {places}: the page cache served all calls."));
    }
    for name in summary.clients() {
        let stacks_with = |wanted: &dyn Fn(&ClientRow) -> bool| {
            rows(&|row| !idle(row) && row.client(name).is_some_and(wanted))
        };
        let mut in_memory =
            stacks_with(&|client| client.calls > 0 && client.drive_bytes == Some(0));
        in_memory.retain(|row| !trims(row, name));
        if !in_memory.is_empty() {
            let places = places(&in_memory, summary, "any");
            all.push(format!(
                "Nothing of {name} reached the drive {places}: the page cache served its calls."
            ));
        }
        let stuck = rows(&|row| row.client(name).is_some_and(|client| client.calls == 0));
        if !stuck.is_empty() {
            let places = places(&stuck, summary, "any");
            let begins = match warm_ups.iter().any(|client| is_process_of(client, name)) {
                true => ", which begins after its ramp_time",
                false => "",
            };
            all.push(format!("No call of {name} ended in the measured time {places}{begins}."));
        }
        all.extend(stalls(name, &stacks_with(&ClientRow::hides_stalls), summary));
    }
    all.extend(spread(summary));
    all
}

/// Calls that a p99 does not show.
fn stalls(name: &str, rows: &[&Row], summary: &Summary) -> Option<String> {
    let longest = |row: &&&Row| row.client(name).map_or(0.0, |client| client.longest);
    let worst = rows.iter().max_by(|a, b| longest(a).total_cmp(&longest(b)))?;
    let client = worst.client(name)?;
    Some(format!(
        "The p99 of {name} hides stalls {}: less than 1 % of its calls take most of the time (mean {} ms, p99 {} ms, longest {} \
         ms {}).",
        places(rows, summary, "every"),
        number(client.mean.mean),
        number(client.p99.mean),
        number(client.longest),
        place(worst)
    ))
}

/// Numbers whose repeats differ too much.
fn spread(summary: &Summary) -> Option<String> {
    let (mut count, mut worst) = (0, None);
    for row in &summary.rows {
        let rates = row.clients.iter().map(|client| (client.name.as_str(), client.rate));
        for (name, rate) in rates.chain([("total", row.total)]) {
            if differs_too_much(&rate) {
                count += 1;
                let part = rate.confidence_95.unwrap_or(0.0) / rate.mean.abs();
                if worst.as_ref().is_none_or(|(most, _)| part > *most) {
                    let repeats = rate.count;
                    let text = format!(
                        "{name} {}: {} to {} in {repeats} repeats",
                        place(row),
                        short(rate.min),
                        short(rate.max)
                    );
                    worst = Some((part, text));
                }
            }
        }
    }
    let (_, worst) = worst?;
    let numbers = if count == 1 { "1 rate are".to_owned() } else { format!("{count} rates are") };
    Some(format!(
        "The repeats differ too much for a mean: the 95 % confidence intervals of {numbers} wider than the value, so the \
         smallest and the largest are shown (the worst is {worst})."
    ))
}
