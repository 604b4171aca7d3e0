//! SVG elements, one a line. Positions are pixels with one decimal. A style is attributes of an element, and a tip is what a
//! pointer on it shows; both may be empty.

use core::fmt::{Arguments, Write};

use crate::look::Look;

/// A place in a picture: to the right, and down.
pub type Point = (f64, f64);

/// The style of bold text.
pub const BOLD: &str = "font-weight=\"600\"";
/// The style of text that ends at its place.
pub const END: &str = "text-anchor=\"end\"";
/// The style of text around its place.
pub const MIDDLE: &str = "text-anchor=\"middle\"";

/// Text that is safe inside an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The path through these points.
pub fn line(points: impl IntoIterator<Item = Point>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{x:.1} {y:.1}");
    }
    path
}

/// A picture in the making.
#[derive(Default, Debug)]
pub struct Svg(String);

impl Svg {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }
    /// One that begins with its title as text.
    pub fn titled(title: &str) -> Self {
        let mut svg = Self::new();
        svg.text((8.0, 18.0), &format!("font-size=\"14\" {BOLD}"), title);
        svg
    }
    /// Text that begins at a place, unless its style says otherwise.
    pub fn text(&mut self, (x, y): Point, style: &str, text: &str) {
        let space = space(style);
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{space}{style}>{}</text>",
            escape(text)
        );
    }
    /// A rectangle from its upper left corner.
    pub fn rect(&mut self, (x, y): Point, (wide, high): (f64, f64), style: &str, tip: &str) {
        let geometry =
            format_args!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\"");
        self.shape("rect", geometry, style, tip);
    }
    /// A circle around a place.
    pub fn circle(&mut self, (x, y): Point, radius: f64, style: &str, tip: &str) {
        self.shape(
            "circle",
            format_args!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\""),
            style,
            tip,
        );
    }
    /// A path, such as that of [`line()`].
    pub fn path(&mut self, path: &str, style: &str, tip: &str) {
        self.shape("path", format_args!("d=\"{path}\""), style, tip);
    }
    /// A diamond around a place.
    pub fn diamond(&mut self, (x, y): Point, size: f64, style: &str) {
        let path = format!("M{:.1} {y:.1}l{size} -{size}l{size} {size}l-{size} {size}z", x - size);
        self.path(&path, style, "");
    }
    /// What a pointer shows on all that is drawn by `inner`.
    pub fn group(&mut self, tip: &str, inner: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.0, "<g><title>{}</title>", escape(tip));
        inner(self);
        self.0.push_str("</g>\n");
    }
    /// What is drawn by `inner`, from a place on.
    pub fn moved(&mut self, (right, down): Point, inner: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.0, "<g transform=\"translate({right:.0} {down:.0})\">");
        inner(self);
        self.0.push_str("</g>\n");
    }
    /// Lines of a grid down, from `top` to `bottom`, each with its label at the height of `labels`.
    pub fn columns(
        &mut self,
        ticks: impl IntoIterator<Item = (f64, String)>,
        (top, bottom): (f64, f64),
        labels: f64,
        look: Look,
    ) {
        for (x, label) in ticks {
            self.path(&format!("M{x:.1} {top:.1}V{bottom:.1}"), look.grid, "");
            self.text((x, labels), &format!("{MIDDLE} {}", look.soft), &label);
        }
    }
    fn shape(&mut self, name: &str, geometry: Arguments<'_>, style: &str, tip: &str) {
        let space = space(style);
        let _ = match tip {
            "" => writeln!(self.0, "<{name} {geometry}{space}{style}/>"),
            tip => {
                let tip = escape(tip);
                writeln!(self.0, "<{name} {geometry}{space}{style}><title>{tip}</title></{name}>")
            }
        };
    }
    /// The picture as a part of a page with the style sheet; a reader who cannot see it is told its title.
    pub fn in_page(self, title: &str, (wide, high): (f64, f64)) -> String {
        format!(
            "<svg viewBox=\"0 0 {wide:.0} {high:.0}\" width=\"{wide:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            escape(title),
            self.0
        )
    }
    /// The picture as a file of its own, dark on white.
    pub fn file(self, title: &str, (wide, high): (f64, f64)) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.0} {high:.0}\" width=\"{wide:.0}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"11\" fill=\"#262626\">\n<title>{}</title>\n\
             <rect width=\"{wide:.0}\" height=\"{high:.0}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            escape(title),
            self.0
        )
    }
}

fn space(style: &str) -> &'static str {
    if style.is_empty() { "" } else { " " }
}
