//! Grouped bars in a page, with published values and bands on them.

use crate::look::{PAGE, stack};
use crate::plot::Axis;
use crate::svg::{END, MIDDLE, Point, Svg};

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its height.
    pub value: f64,
    /// Text above it.
    pub label: String,
    /// From where to where its whisker goes.
    pub range: Option<(f64, f64)>,
    /// The published value.
    pub published: Option<f64>,
    /// Accepted band.
    pub band: Option<(f64, f64)>,
    /// Index of its stack.
    pub colour: usize,
    /// Text that a pointer shows.
    pub tip: String,
}

impl Bar {
    /// The values that its axis has to show. Lower ends of a band or an interval may lie below it.
    fn values(&self) -> impl Iterator<Item = f64> {
        let published = self.published.into_iter();
        let ends = self.range.into_iter().chain(self.band).map(|(_, high)| high);
        [self.value].into_iter().chain(published).chain(ends)
    }
}

/// Bars side by side under one label.
#[derive(Clone, Debug)]
pub struct Group {
    /// Label below the bars.
    pub label: String,
    /// From left to right.
    pub bars: Vec<Bar>,
}

const HIGH: f64 = 230.0;
const TOP: f64 = 24.0;
const LEFT: f64 = 46.0;
const LINE: f64 = 14.0;
/// Size of a figure above a bar.
const LABEL_WIDE: f64 = 5.4;
const LABEL_HIGH: f64 = 10.0;

fn wrapped(label: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in label.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A grouped bar chart, in `unit`, with a title.
pub fn bar_chart(title: &str, unit: &str, groups: &[Group]) -> String {
    let most = groups.iter().map(|group| group.bars.len()).max().unwrap_or(1).max(1) as f64;
    let count = groups.len().max(1) as f64;
    let width = (490.0 / (count * (most + 0.9))).clamp(15.0, 48.0);
    let pitch = width * (most + 0.9);
    let right = LEFT + pitch * count;
    let axis = Axis::fit(unit, groups.iter().flat_map(|group| &group.bars).flat_map(Bar::values));
    let y = |value: f64| TOP + HIGH * (1.0 - axis.place(value));
    let mut svg = Svg::new();
    for (value, label) in &axis.ticks {
        let at = y(*value);
        svg.path(&format!("M{LEFT:.1} {at:.1}H{right:.1}"), PAGE.grid, "");
        svg.text((LEFT - 6.0, at + 3.5), &format!("{END} {}", PAGE.soft), label);
    }
    svg.text((0.0, 11.0), PAGE.soft, &axis.name);
    let (mut labels, mut lines) = (Labels::default(), 0);
    for (index, group) in groups.iter().enumerate() {
        let middle = LEFT + pitch * (index as f64 + 0.5);
        let left = middle - width * group.bars.len() as f64 / 2.0;
        for (place, bar) in group.bars.iter().enumerate() {
            let left = left + width * place as f64;
            svg.group(&bar.tip, |svg| draw(svg, bar, (left, width), &y, &mut labels));
        }
        let label = wrapped(&group.label, (pitch / 6.2) as usize);
        lines = lines.max(label.len());
        for (line, text) in label.iter().enumerate() {
            let at = TOP + HIGH + 17.0 + LINE * line as f64;
            svg.text((middle, at), &format!("class=\"label\" {MIDDLE}"), text);
        }
    }
    svg.in_page(title, (right + 8.0, TOP + HIGH + 10.0 + lines as f64 * LINE))
}

fn draw(
    svg: &mut Svg,
    bar: &Bar,
    (left, width): (f64, f64),
    y: &dyn Fn(f64) -> f64,
    labels: &mut Labels,
) {
    let value = if bar.value.is_finite() { bar.value } else { 0.0 };
    let (x, wide, middle) = (left + 1.5, width - 3.0, left + width / 2.0);
    let style = format!("{} rx=\"1.5\"", stack(bar.colour));
    svg.rect((x, y(value)), (wide, (y(0.0) - y(value)).max(0.5)), &style, "");
    if let Some((low, high)) = bar.band {
        let size = (wide, (y(low) - y(high)).max(1.0));
        svg.rect((x, y(high)), size, "class=\"band\"", "");
    }
    if let Some((low, high)) = bar.range {
        let (low, high, end) = (y(low), y(high), middle - 3.0);
        let path = format!(
            "M{middle:.1} {low:.1}V{high:.1}M{end:.1} {low:.1}h6m-6 0M{end:.1} {high:.1}h6"
        );
        svg.path(&path, "class=\"whisker\"", "");
    }
    if let Some(published) = bar.published {
        let at = y(published);
        let path = format!("M{:.1} {at:.1}h{:.1}", left - 1.0, width + 2.0);
        svg.path(&path, "class=\"published\"", "");
        svg.diamond((middle, at), 4.5, "class=\"diamond\"");
    }
    // Above everything that is drawn for this bar.
    let marks = bar.published.into_iter().chain(bar.band.map(|(_, high)| high));
    let highest = marks.fold(bar.range.map_or(value, |(_, high)| high), f64::max);
    let above = y(highest) - if bar.published == Some(highest) { 7.0 } else { 4.0 };
    if let Some(at) = labels.place(&bar.label, (middle, above)) {
        svg.text((middle, at), &format!("class=\"value\" {MIDDLE}"), &bar.label);
    }
}

/// The numbers above bars, from left to right: the right end and the height of the last ones.
#[derive(Default)]
struct Labels(Vec<Point>);

impl Labels {
    /// Where the baseline of a label goes that would best be at `above`: there, or above the ones that it would cover. `None` if
    /// there is no room; what points at the bar shows the number.
    fn place(&mut self, text: &str, (middle, above): Point) -> Option<f64> {
        let half = text.chars().count() as f64 * LABEL_WIDE / 2.0;
        self.0.retain(|(right, _)| *right > middle - half);
        let mut at = above;
        // At most as many steps as there are labels beside it.
        for _ in 0..=self.0.len() {
            match self.0.iter().find(|(_, other)| (other - at).abs() < LABEL_HIGH) {
                Some((_, other)) => at = other - LABEL_HIGH,
                None => break,
            }
        }
        if at < LABEL_HIGH || above - at > 2.0 * LABEL_HIGH {
            return None;
        }
        self.0.push((middle + half, at));
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: numbers above bars do not cover each other. Method: one beside another of the same height is drawn above it, a third one
    /// above both, a fourth one is left out, and one that is far away stays where it is.
    #[test]
    fn labels_do_not_overlap() {
        let mut labels = Labels::default();
        let mut place = |middle, above| labels.place("12345", (middle, above));
        assert_eq!(place(100.0, 100.0), Some(100.0));
        assert_eq!(place(110.0, 100.0), Some(90.0));
        assert_eq!(place(120.0, 95.0), Some(80.0));
        assert_eq!(place(125.0, 100.0), None);
        assert_eq!(place(400.0, 100.0), Some(100.0));
    }
}
