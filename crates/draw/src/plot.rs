//! Plots: two axes, and marks between them. A [`Plot`] is drawn into a page, or several into a file of their own ([`picture`]).

use crate::legend::{Sign, legend};
use crate::look::{FILE, Look, PAGE, fill};
use crate::scale::{Scale, tick_label};
use crate::svg::{BOLD, END, MIDDLE, Point, Svg, line};

/// One axis: what it shows, where values lie, and which are written at it.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with its unit.
    pub name: String,
    /// Where values lie.
    pub scale: Scale,
    /// Values, and what is written there.
    pub ticks: Vec<(f64, String)>,
    /// Whether small numbers are where large ones are elsewhere.
    pub is_reversed: bool,
}

impl Axis {
    /// An axis with the ticks of its scale.
    pub fn new(name: &str, scale: Scale) -> Self {
        let ticks = scale.ticks().into_iter().map(|tick| (tick, tick_label(tick))).collect();
        Self { name: name.to_owned(), scale, ticks, is_reversed: false }
    }
    /// From zero to a round number that is at least `high`.
    pub fn linear(name: &str, high: f64) -> Self {
        Self::new(name, Scale::from_zero(high))
    }
    /// From zero to exactly `high`.
    pub fn exact(name: &str, high: f64) -> Self {
        Self::new(name, Scale::between(0.0, high))
    }
    /// Whole powers of ten around `low` and `high`.
    pub fn log(name: &str, low: f64, high: f64) -> Self {
        Self::new(name, Scale::powers(low, high))
    }
    /// From zero or logarithmic, as the values need it; its name says which.
    pub fn fit(name: &str, values: impl Iterator<Item = f64>) -> Self {
        let scale = Scale::fit(values);
        Self::new(&format!("{name}{}", if scale.is_log() { ", logarithmic" } else { "" }), scale)
    }
    /// The same with other ticks.
    pub fn with_ticks(self, ticks: Vec<(f64, String)>) -> Self {
        Self { ticks, ..self }
    }
    /// The same with small numbers where large ones are elsewhere.
    pub fn reversed(self) -> Self {
        Self { is_reversed: true, ..self }
    }
    /// Where a value lies, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let place = self.scale.place(value);
        if self.is_reversed { 1.0 - place } else { place }
    }
}

/// What is drawn in a plot.
#[derive(Clone, Debug)]
pub enum Mark {
    /// A line through points.
    Line {
        /// The points.
        points: Vec<Point>,
        /// Its style.
        style: String,
        /// What is shown when a pointer is on it.
        tip: String,
    },
    /// A dashed line across, at a value of y.
    Across(f64),
    /// A dashed line down, at a value of x, with what it says.
    Down(f64, String),
    /// A dot, with its name beside it where there is room.
    Dot {
        /// Its place.
        at: Point,
        /// In pixels.
        radius: f64,
        /// Its style.
        style: String,
        /// Text beside it.
        name: String,
        /// What is shown when a pointer is on it.
        tip: String,
    },
}

impl Mark {
    /// A line in a file.
    pub fn line(points: Vec<Point>, colour: &str, width: f64) -> Self {
        let style = format!("stroke=\"{colour}\" stroke-width=\"{width}\" fill=\"none\"");
        Self::Line { points, style, tip: String::new() }
    }
}

/// One plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The axis to the right.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// What is drawn, in order.
    pub marks: Vec<Mark>,
}

/// Where a plot's marks are in a picture, and how its frame looks.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    top: f64,
    wide: f64,
    high: f64,
    look: Look,
}

impl Plot {
    /// The plot as a part of a page, which shows its title; `wide` pixels between its ends.
    pub fn in_page(&self, wide: f64) -> String {
        let frame = Frame { left: 46.0, top: 24.0, wide, high: 170.0, look: PAGE };
        let mut svg = Svg::new();
        self.draw(&mut svg, frame);
        let below = if self.x.name.is_empty() { 22.0 } else { 36.0 };
        svg.in_page(&self.title, (frame.left + wide + 26.0, frame.top + frame.high + below))
    }
    fn draw(&self, svg: &mut Svg, frame: Frame) {
        let Frame { left, top, wide, high, look } = frame;
        let (right, bottom) = (left + wide, top + high);
        for (value, label) in &self.y.ticks {
            let at = top + high * (1.0 - self.y.place(*value));
            svg.path(&format!("M{left:.1} {at:.1}H{right:.1}"), look.grid, "");
            svg.text((left - 5.0, at + 3.5), &format!("{END} {}", look.soft), label);
        }
        // A label that would cover the one after it is left out: what an axis ends with is written.
        let mut free = f64::INFINITY;
        for (value, label) in self.x.ticks.iter().rev() {
            let at = left + wide * self.x.place(*value);
            match look.axis {
                "" => svg.path(&format!("M{at:.1} {top:.1}V{bottom:.1}"), look.grid, ""),
                axis => svg.path(&format!("M{at:.1} {bottom:.1}v4"), axis, ""),
            }
            let half = 3.3 * label.chars().count() as f64;
            if at + half + 4.0 < free {
                svg.text((at, bottom + 15.0), &format!("{MIDDLE} {}", look.soft), label);
                free = at - half;
            }
        }
        if !look.axis.is_empty() {
            svg.path(&format!("M{left:.1} {top:.1}V{bottom:.1}H{right:.1}"), look.axis, "");
        }
        svg.text((right, bottom + 29.0), &format!("{END} {}", look.soft), &self.x.name);
        svg.text((6.0, top - 11.0), look.soft, &self.y.name);
        let mut labels = Labels { panel: [left, top - 9.0, right, bottom], taken: Vec::new() };
        for mark in &self.marks {
            self.draw_mark(svg, mark, frame, &mut labels);
        }
    }
    fn draw_mark(&self, svg: &mut Svg, mark: &Mark, frame: Frame, labels: &mut Labels) {
        let Frame { left, top, wide, high, look } = frame;
        let (right, bottom) = (left + wide, top + high);
        let place =
            |(x, y): Point| (left + wide * self.x.place(x), top + high * (1.0 - self.y.place(y)));
        match mark {
            Mark::Line { points, style, tip } => {
                svg.path(&line(points.iter().copied().map(place)), style, tip);
            }
            Mark::Across(value) => {
                let (_, at) = place((0.0, *value));
                let style = format!("{} stroke-dasharray=\"4 3\"", look.mark);
                svg.path(&format!("M{left:.1} {at:.1}H{right:.1}"), &style, "");
            }
            Mark::Down(value, says) => {
                let (at, _) = place((*value, 0.0));
                let style = format!("{} stroke-dasharray=\"2 3\"", look.mark);
                svg.path(&format!("M{at:.1} {top:.1}V{bottom:.1}"), &style, "");
                svg.text((at + 4.0, top + 10.0), look.soft, says);
            }
            Mark::Dot { at, radius, style, name, tip } => {
                let at = place(*at);
                svg.circle(at, *radius, style, tip);
                if let Some((anchor, at)) = labels.place(name, at) {
                    svg.text(at, &format!("{anchor} font-size=\"9.5\""), name);
                }
            }
        }
    }
}

/// Columns of a picture, and the size of each plot in it.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Plots in a row.
    pub columns: usize,
    /// Width of a plot.
    pub width: f64,
    /// Height of a plot.
    pub height: f64,
}

/// Plots in a grid under a title and a legend of colours; a file of its own.
pub fn picture(
    title: &str,
    colours: &[(&str, &str)],
    Grid { columns, width, height }: Grid,
    plots: &[Plot],
) -> String {
    const HEAD: f64 = 44.0;
    let mut svg = Svg::titled(title);
    let styles: Vec<_> = colours.iter().map(|(name, colour)| (fill(colour), *name)).collect();
    legend(&mut svg, (8.0, 36.0), styles.iter().map(|(style, name)| (Sign::Bar(style), *name)));
    for (index, plot) in plots.iter().enumerate() {
        let (column, row) = (index % columns, index / columns);
        svg.moved((width * column as f64, HEAD + height * row as f64), |svg| {
            svg.text((52.0, 14.0), BOLD, &plot.title);
            let (wide, high) = (width - 66.0, height - 74.0);
            plot.draw(svg, Frame { left: 52.0, top: 36.0, wide, high, look: FILE });
        });
    }
    let rows = plots.len().div_ceil(columns);
    svg.file(title, (width * columns as f64, HEAD + height * rows as f64))
}

/// Where names of dots stand in a plot: left, top, right and bottom of each.
struct Labels {
    panel: [f64; 4],
    taken: Vec<[f64; 4]>,
}

impl Labels {
    /// The anchor and the place of a name beside a dot, where it covers no other name; none if there is no such place.
    fn place(&mut self, name: &str, (x, y): Point) -> Option<(&'static str, Point)> {
        let (wide, high) = (5.2 * name.chars().count() as f64, 9.0);
        for (is_left, below) in [(false, -3.0), (true, -3.0), (false, 9.0), (true, 9.0)] {
            let bottom = y + below;
            let (anchor, at, l) = match is_left {
                true => (END, x - 6.0, x - 6.0 - wide),
                false => ("text-anchor=\"start\"", x + 6.0, x + 6.0),
            };
            let [t, r, b] = [bottom - high, l + wide, bottom];
            let is_free =
                |other: &[f64; 4]| r <= other[0] || l >= other[2] || b <= other[1] || t >= other[3];
            let panel = self.panel;
            let is_inside = l >= panel[0] && t >= panel[1] && r <= panel[2] && b <= panel[3];
            if wide > 0.0 && is_inside && self.taken.iter().all(is_free) {
                self.taken.push([l, t, r, b]);
                return Some((anchor, (at, bottom)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::COLOURS;

    /// Goal: every kind of mark is in the file, names safe. Method: one plot with all of them.
    #[test]
    fn a_picture_has_all_marks() {
        let marks = vec![
            Mark::line(vec![(0.0, 0.0), (1.0, 1.0)], COLOURS[0], 1.5),
            Mark::Across(1.0),
            Mark::Down(0.5, "a & b".to_owned()),
            Mark::Dot {
                at: (1.0, 1.0),
                radius: 3.0,
                style: fill(COLOURS[1]),
                name: "<x>".to_owned(),
                tip: String::new(),
            },
        ];
        let (x, y) = (Axis::exact("s", 1.0), Axis::linear("MB/s", 1.0));
        assert!((Axis::log("", 0.1, 100.0).reversed().place(1.0) - 2.0 / 3.0).abs() < 1e-9);
        let plot = Plot { title: "one".to_owned(), x, y, marks };
        let grid = Grid { columns: 2, width: 300.0, height: 200.0 };
        let svg = picture("t", &[("red", COLOURS[0])], grid, &[plot.clone(), plot]);
        assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"));
        assert!(
            svg.contains("a &amp; b") && svg.contains("&lt;x&gt;") && svg.contains("translate(300")
        );
        assert_eq!(svg.matches("<circle").count(), 2);
    }

    /// Goal: labels at the axis to the right do not cover each other, and the last one is written. Method: three, two of which are
    /// close.
    #[test]
    fn the_last_label_is_written() {
        let ticks = [0.0, 0.98, 1.0].map(|at| (at, format!("at {at}"))).to_vec();
        let x = Axis::exact("", 1.0).with_ticks(ticks);
        let plot =
            Plot { title: "t".to_owned(), x, y: Axis::linear("MB/s", 1.0), marks: Vec::new() };
        let svg = plot.in_page(300.0);
        assert!(svg.contains(">at 0<") && svg.contains(">at 1<") && !svg.contains(">at 0.98<"));
    }
}
