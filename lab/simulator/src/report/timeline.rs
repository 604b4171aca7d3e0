//! Latency over time as inline SVG: two lines a stack, the mean and the longest of each interval.

use core::fmt::Write;

use super::chart::{COLOURS, HIGH, LEFT, TOP, WIDE, open, push_level, tick_label};
use super::scale::Scale;
use super::svg::escape;

/// One stack's latencies in milliseconds, interval after interval.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) colour: usize,
    pub(super) means: &'a [Option<f64>],
    pub(super) longest: &'a [Option<f64>],
}

/// The lines over `seconds` a point; intervals in which no call ended are bridged.
pub(super) fn timeline(title: &str, seconds: f64, lines: &[Line<'_>]) -> String {
    let values = lines.iter().flat_map(|line| line.means.iter().chain(line.longest).flatten());
    let scale = Scale::of(values.copied());
    let longest = lines.iter().map(|line| line.means.len()).max().unwrap_or(1).max(1) as f64;
    let time = longest * seconds;
    let x = |at: f64| LEFT + WIDE * at / time;
    let y = |value: f64| TOP + HIGH * (1.0 - scale.place(value));
    let mut svg = open(title, LEFT + WIDE + 26.0, TOP + HIGH + 22.0);
    for tick in scale.ticks() {
        push_level(&mut svg, LEFT + WIDE, y(tick), &tick_label(tick));
    }
    for part in 0..=5 {
        let at = time * f64::from(part) / 5.0;
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            x(at),
            TOP + HIGH + 15.0,
            tick_label(at)
        );
    }
    let unit = if scale.is_log() { "ms, logarithmic" } else { "ms" };
    let _ = write!(svg, "<text class=\"unit\" x=\"0\" y=\"11\">{unit}</text>");
    for line in lines {
        for (points, class, word) in
            [(line.longest, " longest", "longest"), (line.means, "", "mean")]
        {
            let mut path = String::new();
            for (index, value) in points.iter().enumerate() {
                let Some(value) = value else { continue };
                let letter = if path.is_empty() { 'M' } else { 'L' };
                let across = x((index as f64 + 0.5) * seconds);
                let _ = write!(path, "{letter}{across:.1} {:.1}", y(*value));
            }
            let (colour, name) = (line.colour % COLOURS, escape(line.name));
            let _ = write!(
                svg,
                "<path class=\"curve s{colour}{class}\" d=\"{path}\"><title>{name}, {word}</title></path>"
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
