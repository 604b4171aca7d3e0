//! Legends of files.

use crate::look::FILE;
use crate::svg::{Point, Svg};

/// What stands before a name, with its style.
#[derive(Clone, Copy, Debug)]
pub enum Sign<'a> {
    /// A bar.
    Bar(&'a str),
    /// A dot.
    Dot(&'a str),
    /// A diamond.
    Diamond,
    /// A line down.
    Line,
    /// Nothing.
    None,
}

/// Signs with their names in a line, from a place on.
pub fn legend<'a>(
    svg: &mut Svg,
    (mut x, y): Point,
    entries: impl IntoIterator<Item = (Sign<'a>, &'a str)>,
) {
    for (sign, name) in entries {
        let middle = (x + 7.0, y - 4.0);
        match sign {
            Sign::Bar(style) => {
                svg.rect((x, y - 9.0), (14.0, 10.0), &format!("rx=\"2\" {style}"), "")
            }
            Sign::Dot(style) => svg.circle(middle, 4.0, style, ""),
            Sign::Diamond => svg.diamond(middle, 5.0, FILE.mark),
            Sign::Line => svg.path(&format!("M{:.1} {:.1}v14", x + 7.0, y - 11.0), FILE.mark, ""),
            Sign::None => x -= 20.0,
        }
        svg.text((x + 20.0, y), "", name);
        x += 36.0 + 6.2 * name.chars().count() as f64;
    }
}
