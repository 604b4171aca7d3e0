//! Single requests as bars in time: before the scheduler, in it, in the drive.

use core::fmt::Write;

use iofair_core::request::Operation;
use iofair_draw::{END, PAGE, Scale, Svg, escape, tick_label};
use iofair_simulator::outcome::Timeline;

use super::number::short;
use super::summary::Summary;

/// Width of a letter of a name.
const LETTER: f64 = 5.9;
const WIDE: f64 = 430.0;
const TOP: f64 = 24.0;
const LINE: f64 = 17.0;
/// Most charts of an experiment: one for each variant and stack.
const CHARTS_MAX: usize = 24;
/// Most requests of a chart.
const REQUESTS_MAX: usize = 40;
/// The parts of a request's time, with their colours.
const PARTS: [(&str, &str); 3] =
    [("before the scheduler", "s2"), ("scheduler", "s4"), ("drive", "s1")];

/// Charts of all runs whose requests were kept.
pub(super) fn requests(html: &mut String, summary: &Summary) {
    let rows: Vec<_> = summary.rows.iter().filter(|row| !row.requests.is_empty()).collect();
    if rows.is_empty() {
        return;
    }
    html.push_str("<details class=\"requests\"><summary>Single requests: the longest, and some by chance</summary><div class=\"legend\">");
    for (name, class) in PARTS {
        let _ = write!(html, "<span><i class=\"{class}\"></i>{name}</span>");
    }
    html.push_str(
        "</div><p class=\"soft\">Before the scheduler, throttles hold a request, or its process sleeps because all tags are in use. What the \
         page cache answers is no request, and what the flusher writes back counts from when it is sent.</p><div class=\"charts\">",
    );
    for row in rows.iter().take(CHARTS_MAX) {
        let words = [row.stack.as_str(), row.variant.as_str()];
        let title =
            words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
        let shown = &row.requests[..row.requests.len().min(REQUESTS_MAX)];
        let _ = write!(html, "<div><h3>{}</h3>{}</div>", escape(&title), chart(&title, shown));
    }
    html.push_str("</div>");
    if rows.len() > CHARTS_MAX {
        let _ =
            write!(html, "<p class=\"soft\">The first {CHARTS_MAX} of {} runs.</p>", rows.len());
    }
    html.push_str("</details>\n");
}

fn words(request: &Timeline) -> String {
    let operation = match request.operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::Flush => "flush",
        Operation::Discard => "trim",
        Operation::WriteZeroes => "write zeroes",
    };
    let back = if request.written_back { ", written back" } else { "" };
    let kib = if request.bytes > 0 {
        format!(" {} KiB", short(request.bytes as f64 / 1024.0))
    } else {
        String::new()
    };
    let at = short(request.submitted.0 as f64 / 1e9);
    format!("{}: {operation}{kib}{back} at {at} s", request.process)
}

fn chart(title: &str, requests: &[Timeline]) -> String {
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let longest = requests.iter().map(|request| ms(request.latency().0)).fold(1e-3, f64::max);
    // From zero on: the parts of a bar have to be comparable.
    let scale = Scale::with_room(longest);
    let letters = requests.iter().map(|request| words(request).chars().count()).max().unwrap_or(0);
    let left = letters as f64 * LETTER + 14.0;
    let x = |value: f64| left + WIDE * scale.place(value);
    let bottom = TOP + LINE * requests.len() as f64;
    let mut svg = Svg::new();
    let ticks = scale.ticks().into_iter().map(|tick| (x(tick), tick_label(tick)));
    svg.columns(ticks, (TOP, bottom), bottom + 14.0, PAGE);
    svg.text((left, 11.0), PAGE.soft, "ms");
    for (index, request) in requests.iter().enumerate() {
        let top = TOP + LINE * index as f64;
        let parts = [request.throttled, request.scheduled, request.served].map(|part| ms(part.0));
        let told =
            PARTS.iter().zip(parts).map(|((name, _), part)| format!("{name} {}", short(part)));
        let tip = format!(
            "{}: {} ms ({})",
            words(request),
            short(ms(request.latency().0)),
            told.collect::<Vec<_>>().join(", ")
        );
        let class = if request.is_longest { "class=\"label\"" } else { PAGE.soft };
        svg.group(&tip, |svg| {
            svg.text((left - 8.0, top + 12.0), &format!("{END} {class}"), &words(request));
            let mut from = 0.0;
            for ((_, class), part) in PARTS.iter().zip(parts).filter(|(_, part)| *part > 0.0) {
                let size = ((x(from + part) - x(from)).max(0.6), 11.0);
                svg.rect((x(from), top + 3.0), size, &format!("class=\"{class}\""), "");
                from += part;
            }
            svg.text((x(from) + 5.0, top + 12.0), "class=\"value\"", &short(from));
        });
    }
    svg.in_page(title, (left + WIDE + 60.0, bottom + 20.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Overrides, parse};
    use crate::report::summarize;
    use crate::testing::{EXAMPLE, results};
    use iofair_core::time::Nanos;

    /// Goal: each request is a bar of its parts. Method: one that was held, waited and was served, and one that was only served.
    #[test]
    fn requests_are_bars() {
        let experiment = parse("e.toml", EXAMPLE, &Overrides::default()).expect("a good file");
        let mut summary = summarize(&results(experiment, 1));
        let mut html = String::new();
        requests(&mut html, &summary);
        assert!(html.is_empty(), "none were kept");
        let ms = Nanos::from_millis;
        let one = Timeline {
            process: "a<b".to_owned(),
            written_back: false,
            operation: Operation::Read,
            bytes: 4096,
            submitted: ms(1500),
            throttled: ms(3),
            scheduled: ms(2),
            served: ms(1),
            is_longest: true,
        };
        let other = Timeline {
            written_back: true,
            throttled: Nanos::ZERO,
            scheduled: Nanos::ZERO,
            is_longest: false,
            ..one.clone()
        };
        summary.rows[0].requests = vec![one, other];
        requests(&mut html, &summary);
        assert_eq!((html.matches("<svg").count(), html.matches("<rect").count()), (1, 4));
        let tip =
            "a&lt;b: read 4 KiB at 1.5 s: 6 ms (before the scheduler 3, scheduler 2, drive 1)";
        assert!(html.contains(tip) && !html.contains("a<b"));
        assert!(html.contains("read 4 KiB, written back at 1.5 s: 1 ms"));
    }
}
