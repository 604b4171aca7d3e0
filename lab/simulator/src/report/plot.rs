//! Pictures that stand alone, as files beside the pages of docs/: SVG with its own colours on white, since a page shows it
//! as an image. A [`Panel`] is one plot with its axes; [`picture`] puts several into one file.

use core::fmt::Write;

use super::chart::tick_label;
use super::scale::nice;
use super::svg::{escape, picture_file};

/// Colours of lines and dots; those with a meaning come first.
pub const COLOURS: [&str; 6] = ["#d4380d", "#1677ff", "#8c8c8c", "#389e0d", "#722ed1", "#d48806"];

const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 38.0;

/// One axis: from where to where, and in which steps.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with its unit.
    pub name: String,
    low: f64,
    high: f64,
    scale: Scale,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Scale {
    Linear,
    /// Powers of ten.
    Log,
    /// The same, the small ones up or right.
    Reversed,
}

impl Axis {
    /// From zero to a round number that is at least `high`.
    pub fn linear(name: &str, high: f64) -> Self {
        let step = nice(high.max(1e-6) / 5.0);
        let high = (high / step - 1e-9).ceil().max(1.0) * step;
        Self { name: name.to_owned(), low: 0.0, high, scale: Scale::Linear }
    }
    /// From zero to exactly `high`.
    pub fn exact(name: &str, high: f64) -> Self {
        Self { name: name.to_owned(), low: 0.0, high, scale: Scale::Linear }
    }
    /// Whole powers of ten around `low` and `high`; what lies beyond is drawn at the border.
    pub fn log(name: &str, low: f64, high: f64) -> Self {
        let low = 10f64.powi(low.max(1e-9).log10().floor() as i32);
        let high = 10f64.powi(high.max(1e-9).log10().ceil() as i32).max(low * 10.0);
        Self { name: name.to_owned(), low, high, scale: Scale::Log }
    }
    /// The same with small numbers where large ones are elsewhere.
    pub fn reversed(self) -> Self {
        Self { scale: Scale::Reversed, ..self }
    }
    /// Where a value lies, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            _ => (value / self.low).log10() / (self.high / self.low).log10(),
        };
        if self.scale == Scale::Reversed { 1.0 - part } else { part }
    }
    /// The values that are written at it.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.scale != Scale::Linear {
            let (low, high) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            return (low..=high).map(|power| 10f64.powi(power)).collect();
        }
        let step = nice(self.high / 5.0);
        let count = (self.high / step + 1e-9) as u32;
        (0..=count).map(|part| f64::from(part) * step).collect()
    }
}

/// What is drawn in a panel.
#[derive(Clone, Debug)]
pub enum Mark {
    /// A line through points.
    Line {
        /// The points.
        points: Vec<(f64, f64)>,
        /// One of [`COLOURS`].
        colour: &'static str,
        /// In pixels.
        width: f64,
    },
    /// A dashed line across, at a value of y.
    Across(f64),
    /// A dashed line down, at a value of x, with what it says.
    Down(f64, String),
    /// A dot, with its name beside it where there is room.
    Dot {
        /// Its place.
        at: (f64, f64),
        /// One of [`COLOURS`].
        colour: &'static str,
        /// In pixels.
        radius: f64,
        /// What is written beside it.
        name: String,
        /// What is shown when a pointer is on it.
        tip: String,
    },
}

/// One plot.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// The axis to the right.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// What is drawn, in order.
    pub marks: Vec<Mark>,
}

/// Panels in rows of `columns`, each of this size, under a title and a legend of colours.
pub fn picture(
    title: &str,
    legend: &[(&str, &str)],
    (columns, width, height): (usize, f64, f64),
    panels: &[Panel],
) -> String {
    let rows = panels.len().div_ceil(columns);
    let head = 44.0;
    let mut svg = format!(
        "<g font-size=\"11\">\n<text x=\"8\" y=\"18\" font-size=\"14\" font-weight=\"600\">{}</text>\n",
        escape(title)
    );
    let mut at = 8.0;
    for (name, colour) in legend {
        let _ = writeln!(
            svg,
            "<rect x=\"{at:.0}\" y=\"27\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"36\">{}</text>",
            at + 14.0,
            escape(name)
        );
        at += 26.0 + 6.2 * name.chars().count() as f64;
    }
    for (index, panel) in panels.iter().enumerate() {
        let (column, row) = (index % columns, index / columns);
        let (left, top) = (width * column as f64, head + height * row as f64);
        let _ = writeln!(svg, "<g transform=\"translate({left:.0} {top:.0})\">");
        push_panel(&mut svg, panel, (width - LEFT - RIGHT, height - TOP - BOTTOM));
        svg.push_str("</g>\n");
    }
    svg.push_str("</g>\n");
    picture_file(title, (width * columns as f64, head + height * rows as f64), &svg)
}

fn push_panel(svg: &mut String, panel: &Panel, (wide, high): (f64, f64)) {
    let x = |value: f64| LEFT + wide * panel.x.place(value);
    let y = |value: f64| TOP + high * (1.0 - panel.y.place(value));
    let (right, bottom) = (LEFT + wide, TOP + high);
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"14\" font-weight=\"600\">{}</text>",
        escape(&panel.title)
    );
    for tick in panel.y.ticks() {
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {0:.1}H{right:.1}\" stroke=\"#e8e8e8\"/>\
             <text x=\"{1:.0}\" y=\"{2:.1}\" text-anchor=\"end\" fill=\"#595959\">{3}</text>",
            y(tick),
            LEFT - 5.0,
            y(tick) + 3.5,
            tick_label(tick)
        );
    }
    let mut free = 0.0;
    for tick in panel.x.ticks() {
        let (at, label) = (x(tick), tick_label(tick));
        let _ = write!(svg, "<path d=\"M{at:.1} {bottom:.1}v4\" stroke=\"#8c8c8c\"/>");
        // A label that would cover the one before is left out.
        let half = 3.3 * label.chars().count() as f64;
        if at - half > free + 4.0 {
            let _ = write!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#595959\">{label}</text>",
                bottom + 15.0
            );
            free = at + half;
        }
        svg.push('\n');
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {TOP}V{bottom:.1}H{right:.1}\" stroke=\"#8c8c8c\" fill=\"none\"/>\
         <text x=\"{0:.1}\" y=\"{1:.1}\" text-anchor=\"end\" fill=\"#595959\">{2}</text>\
         <text x=\"{3:.0}\" y=\"{4:.0}\" fill=\"#595959\">{5}</text>",
        right,
        bottom + 29.0,
        escape(&panel.x.name),
        6.0,
        TOP - 10.0,
        escape(&panel.y.name)
    );
    let mut labels = Labels { panel: [LEFT, TOP - 9.0, right, bottom], taken: Vec::new() };
    for mark in &panel.marks {
        push_mark(svg, mark, (&x, &y), &mut labels);
    }
}

type Place<'a> = (&'a dyn Fn(f64) -> f64, &'a dyn Fn(f64) -> f64);

fn push_mark(svg: &mut String, mark: &Mark, (x, y): Place<'_>, labels: &mut Labels) {
    let [_, _, right, bottom] = labels.panel;
    let _ = match mark {
        Mark::Line { points, colour, width } => {
            let mut path = String::new();
            for (index, (across, up)) in points.iter().enumerate() {
                let letter = if index == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{letter}{:.1} {:.1}", x(*across), y(*up));
            }
            writeln!(
                svg,
                "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"{width}\" fill=\"none\"/>"
            )
        }
        Mark::Across(value) => writeln!(
            svg,
            "<path d=\"M{LEFT} {:.1}H{right:.1}\" stroke=\"#262626\" stroke-dasharray=\"4 3\"/>",
            y(*value)
        ),
        Mark::Down(value, says) => writeln!(
            svg,
            "<path d=\"M{0:.1} {TOP}V{bottom:.1}\" stroke=\"#262626\" stroke-dasharray=\"2 3\"/>\
             <text x=\"{1:.1}\" y=\"{2:.1}\" fill=\"#595959\">{3}</text>",
            x(*value),
            x(*value) + 4.0,
            TOP + 10.0,
            escape(says)
        ),
        Mark::Dot { at: (across, up), colour, radius, name, tip } => {
            let (left, top) = (x(*across), y(*up));
            let _ = writeln!(
                svg,
                "<circle cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"{radius}\" fill=\"{colour}\"><title>{}</title></circle>",
                escape(tip)
            );
            let Some((anchor, left, bottom)) = labels.place(name, (left, top)) else { return };
            writeln!(
                svg,
                "<text x=\"{left:.1}\" y=\"{bottom:.1}\" text-anchor=\"{anchor}\" font-size=\"9.5\">{}</text>",
                escape(name)
            )
        }
    };
}

/// Where names of dots stand in a panel: left, top, right and bottom of each.
struct Labels {
    panel: [f64; 4],
    taken: Vec<[f64; 4]>,
}

impl Labels {
    /// The anchor and the place of a name beside a dot, where it covers no other name; none if there is no such place.
    fn place(&mut self, name: &str, (x, y): (f64, f64)) -> Option<(&'static str, f64, f64)> {
        let (wide, high) = (5.2 * name.chars().count() as f64, 9.0);
        for (anchor, shift, below) in
            [("start", 6.0, -3.0), ("end", -6.0, -3.0), ("start", 6.0, 9.0), ("end", -6.0, 9.0)]
        {
            let (at, bottom) = (x + shift, y + below);
            let left = if anchor == "end" { at - wide } else { at };
            let [l, t, r, b] = [left, bottom - high, left + wide, bottom];
            let is_free = |it: &[f64; 4]| r <= it[0] || l >= it[2] || b <= it[1] || t >= it[3];
            let panel = self.panel;
            let is_inside = l >= panel[0] && t >= panel[1] && r <= panel[2] && b <= panel[3];
            if wide > 0.0 && is_inside && self.taken.iter().all(is_free) {
                self.taken.push([l, t, r, b]);
                return Some((anchor, at, bottom));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: axes end at round numbers and place values where they belong. Method: by hand.
    #[test]
    fn axes_place_values() {
        let linear = Axis::linear("MB/s", 534.0);
        assert_eq!((linear.place(0.0), linear.place(600.0), linear.place(300.0)), (0.0, 1.0, 0.5));
        assert_eq!(linear.ticks(), [0.0, 200.0, 400.0, 600.0]);
        let log = Axis::log("ms", 0.3, 27.0);
        assert_eq!(log.ticks(), [0.1, 1.0, 10.0, 100.0]);
        assert!((log.place(1.0) - 1.0 / 3.0).abs() < 1e-9 && log.place(0.01) == 0.0);
        assert!((log.reversed().place(1.0) - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(Axis::exact("s", 8.0).place(4.0), 0.5);
    }

    /// Goal: every kind of mark is in the file, names safe. Method: one panel with all of them.
    #[test]
    fn a_picture_has_all_marks() {
        let marks = vec![
            Mark::Line { points: vec![(0.0, 0.0), (1.0, 1.0)], colour: COLOURS[0], width: 1.5 },
            Mark::Across(1.0),
            Mark::Down(0.5, "a & b".to_owned()),
            Mark::Dot {
                at: (1.0, 1.0),
                colour: COLOURS[1],
                radius: 3.0,
                name: "<x>".to_owned(),
                tip: String::new(),
            },
        ];
        let (x, y) = (Axis::exact("s", 1.0), Axis::linear("MB/s", 1.0));
        let panel = Panel { title: "one".to_owned(), x, y, marks };
        let svg = picture("t", &[("red", COLOURS[0])], (2, 300.0, 200.0), &[panel.clone(), panel]);
        assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"));
        assert!(
            svg.contains("a &amp; b") && svg.contains("&lt;x&gt;") && svg.contains("translate(300")
        );
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
