//! One frame. Fits 80 columns; more of them go to names and reasons.

use iofair_core::contract::Rate;
use iofair_core::unit::Count;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::numbers::Row;
use super::view::View;

/// Columns of everything but the name.
const FIXED: usize = 67;
/// Columns of the three times or of the reason.
const TIMES: usize = 24;
const BAR: usize = 13;
const NAME_MIN: usize = 8;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Paints it.
pub(crate) fn frame(frame: &mut Frame<'_>, view: &View) {
    let width = frame.area().width as usize;
    let areas = [Constraint::Length(2), Constraint::Min(1), Constraint::Length(3)];
    let [head, body, foot] = Layout::vertical(areas).areas(frame.area());
    let rows = view.rows();
    let name = width.saturating_sub(FIXED).max(NAME_MIN);
    let chosen = rows.iter().position(|row| Some(&row.group.name) == view.chosen.as_ref());
    // The chosen row stays in sight, below the line of headings.
    let room = (body.height as usize).saturating_sub(1).max(1);
    let first = chosen.map_or(0, |at| (at + 1).saturating_sub(room));
    let mut lines = vec![headings(view, name)];
    for (index, one) in rows.iter().enumerate().skip(first).take(room) {
        lines.push(row(view, one, name, chosen == Some(index)));
    }
    frame.render_widget(Paragraph::new(title(view)), head);
    frame.render_widget(Paragraph::new(lines), body);
    frame.render_widget(Paragraph::new(footer(view, &rows, width)), foot);
}

fn title(view: &View) -> Vec<Line<'static>> {
    let look = &view.look;
    let busy = look.busy(view.before.as_ref());
    let [drive, reactor] = [0, 1].map(|index| match busy {
        Some(parts) => format!("{:.0} %", parts[index] * 100.0),
        None => "-".into(),
    });
    let first = format!(
        "{}, {}, {} in flight, up {}",
        look.stack,
        Count(look.connections, "client"),
        Count(look.requests_in_flight, "request"),
        time(Some(look.uptime_seconds)).trim()
    );
    let second = format!(
        "drive {} of {}, busy {drive}; reactor busy {reactor}",
        look.drive_commands,
        Count(look.drive_depth, "command")
    );
    let second = match look.failures.first() {
        Some(failure) => Line::styled(failure.text.clone(), Style::new().fg(Color::Red)),
        None => Line::raw(second),
    };
    vec![Line::from(vec![Span::styled("iofair  ", BOLD), Span::raw(first)]), second]
}

fn headings(view: &View, name: usize) -> Line<'static> {
    let right = match view.whys {
        true => format!(" {:<TIMES$}", "waits because"),
        false => format!("{:>8}{:>8}{:>8}", "held", "queued", "drive"),
    };
    let text = format!(
        "{:<name$} {:>6} {:<BAR$} {:>4} {:>7} {:>4}{right} {:>3}",
        "group", "weight", "got, promised", "%", "MB/s", "cpu%", "brk"
    );
    Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
}

/// Cut to `width` letters, the last of them an ellipsis when something is lost.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return format!("{text:<width$}");
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// What was got as a bar, what was promised as a mark in it.
fn bar(row: &Row) -> Vec<Span<'static>> {
    let cell = |share: f64| (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let got = cell(row.group.share_got);
    let mark = row.group.share_promised.map(|share| cell(share).min(BAR - 1));
    let wants = row.group.requests_in_flight > 0 || row.group.bytes_per_second > 0;
    let least = row.group.share_promised.map_or(0.0, |share| 0.9 * share);
    let short = wants && row.group.share_got < least;
    let colour = if short { Color::Yellow } else { Color::Green };
    let cells = (0..BAR).map(|index| {
        let filled = index < got;
        match (Some(index) == mark, filled) {
            (true, true) => Span::styled("┃", Style::new().fg(Color::Black).bg(colour)),
            (true, false) => Span::styled("│", BOLD),
            (false, true) => Span::styled("█", Style::new().fg(colour)),
            (false, false) => Span::styled("·", DIM),
        }
    });
    cells.collect()
}

fn row(view: &View, row: &Row, name: usize, chosen: bool) -> Line<'static> {
    let group = &row.group;
    let fold = match (row.has_children, view.is_folded(&group.name)) {
        (true, true) => "▸ ",
        (true, false) => "▾ ",
        (false, _) => "  ",
    };
    let own = format!("{}{fold}{}", "  ".repeat(row.depth), group.own_name());
    let mut style = Style::new();
    if chosen {
        style = style.add_modifier(Modifier::REVERSED);
    }
    let weight = match &view.typed {
        Some(typed) if chosen => format!("{typed}_"),
        _ => group.weight.to_string(),
    };
    let mut spans = vec![Span::styled(fit(&own, name), style), Span::raw(format!(" {weight:>6} "))];
    spans.extend(bar(row));
    let rate = group.bytes_per_second as f64 / 1e6;
    let rate = if rate < 1000.0 { format!("{rate:.2}") } else { format!("{rate:.0}") };
    let (share, cpu) = (group.share_got * 100.0, group.cpu_percent);
    spans.push(Span::raw(format!(" {share:>4.0} {rate:>7} {cpu:>4.0}")));
    if view.whys {
        let why = group.why.as_deref().unwrap_or("");
        let nothing = why.is_empty() || why.starts_with("nothing waits");
        spans.push(Span::raw(format!(" {}", fit(if nothing { "" } else { why }, TIMES - 1))));
    } else {
        for (index, value) in row.p99.iter().enumerate() {
            // Only what iofair itself does to a request is worth a colour.
            let long = index < 2 && value.is_some_and(|value| value > 0.01);
            let style = if long { Style::new().fg(Color::Yellow) } else { Style::new() };
            spans.push(Span::styled(format!(" {:>7}", time(*value)), style));
        }
    }
    let broken = group.broken_promise_seconds;
    let style = if broken > 0 { Style::new().fg(Color::Red) } else { DIM };
    spans.push(Span::styled(format!(" {broken:>3}"), style));
    Line::from(spans)
}

/// A time in at most seven letters.
fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_string(),
        Some(time) if time < 1e-3 => format!("{:.0} us", time * 1e6),
        Some(time) if time < 0.1 => format!("{:.1} ms", time * 1e3),
        Some(time) if time < 1.0 => format!("{:.0} ms", time * 1e3),
        Some(time) if time < 100.0 => format!("{time:.1} s"),
        Some(time) if time < 6000.0 => format!("{:.0} min", time / 60.0),
        Some(time) => format!("{:.0} h", time / 3600.0),
    }
}

fn footer(view: &View, rows: &[Row], width: usize) -> Vec<Line<'static>> {
    let chosen = rows.iter().find(|row| Some(&row.group.name) == view.chosen.as_ref());
    let about = chosen.map(|row| {
        let group = &row.group;
        let min = group.min_bytes_per_second.map(|min| format!(", min {}", Rate(min)));
        let min_iops =
            group.min_ios_per_second.map(|min| format!(", min {} a second", Count(min, "I/O")));
        let share = group.share_promised.map(|part| format!("promised {:.1} %", part * 100.0));
        let promised = format!(
            "{}: {}{}{}, {} in flight, {}, {:.1} MiB",
            group.name,
            share.unwrap_or("no share promised".into()),
            min.unwrap_or_default(),
            min_iops.unwrap_or_default(),
            group.requests_in_flight,
            Count(group.request_slots, "slot"),
            group.memory_bytes as f64 / (1 << 20) as f64
        );
        let why = group.why.clone().unwrap_or_else(|| "nothing waits".to_string());
        [fit(&promised, width), fit(&why, width)]
    });
    let [first, second] = about.unwrap_or_default();
    let keys =
        "↑↓ choose  ←→ fold  +- e weight  w why  q quit  s sort: ".to_string() + view.sort.word();
    let last = match (&view.typed, &view.message) {
        (Some(_), _) => "type a weight from 1 to 1000, then Enter".to_string(),
        (None, Some(message)) => message.clone(),
        (None, None) => keys,
    };
    vec![Line::styled(first, BOLD), Line::raw(second), Line::styled(fit(&last, width), DIM)]
}
