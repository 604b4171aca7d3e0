//! Latency over time as inline SVG: one line a stack, the mean of each interval.

use core::fmt::Write;

use super::chart::{COLOURS, HIGH, LEFT, TOP, WIDE, nice, open, tick_label};
use super::svg::escape;

/// One stack's mean latencies in milliseconds, interval after interval.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) colour: usize,
    pub(super) points: &'a [Option<f64>],
}

/// The lines over `seconds` a point; intervals in which no call ended are bridged.
pub(super) fn timeline(title: &str, seconds: f64, lines: &[Line<'_>]) -> String {
    let largest = lines.iter().flat_map(|line| line.points.iter().flatten().copied());
    let scale = nice(largest.fold(1e-3, f64::max) / 5.0) * 5.0;
    let longest = lines.iter().map(|line| line.points.len()).max().unwrap_or(1).max(1) as f64;
    let time = longest * seconds;
    let x = |at: f64| LEFT + WIDE * at / time;
    let y = |value: f64| TOP + HIGH * (1.0 - value / scale);
    let mut svg = open(title, LEFT + WIDE + 26.0, TOP + HIGH + 22.0);
    for part in 0..=5 {
        let (value, at) = (scale * f64::from(part) / 5.0, time * f64::from(part) / 5.0);
        let (across, down) = (x(at), y(value));
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{down:.1}\" y2=\"{down:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} ms</text>\
             <text class=\"tick\" x=\"{across:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            LEFT + WIDE,
            LEFT - 6.0,
            down + 3.5,
            tick_label(value),
            TOP + HIGH + 15.0,
            tick_label(at)
        );
    }
    for line in lines {
        let mut path = String::new();
        for (index, mean) in line.points.iter().enumerate() {
            let Some(mean) = mean else { continue };
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ =
                write!(path, "{letter}{:.1} {:.1}", x((index as f64 + 0.5) * seconds), y(*mean));
        }
        let (colour, name) = (line.colour % COLOURS, escape(line.name));
        let _ = write!(
            svg,
            "<path class=\"curve s{colour}\" d=\"{path}\"><title>{name}</title></path>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}
