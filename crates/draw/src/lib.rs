//! Drawing: SVG elements ([`Svg`]), axes ([`Scale`], [`Axis`]), plots ([`Plot`]), bar charts ([`bar_chart`]), and the frame of
//! pages that work offline ([`page()`]).
//!
//! A picture is either part of a page, whose style sheet colours it for a light or a dark theme, or a file of its own, dark on
//! white in any theme, since other pages show it as an image. [`Look`] is what differs between them.

#![forbid(unsafe_code)]

mod bars;
mod legend;
mod look;
mod page;
mod plot;
mod scale;
mod svg;

#[cfg(test)]
mod contrast;

pub use bars::{Bar, Group, bar_chart};
pub use legend::{Sign, legend};
pub use look::{COLOURS, FILE, Look, PAGE, STACKS, fill, stack};
pub use page::{FOOT, STYLE, legend_of_stacks, page};
pub use plot::{Axis, Grid, Mark, Plot, picture};
pub use scale::{Scale, tick_label};
pub use svg::{BOLD, END, MIDDLE, Point, Svg, escape, line};
