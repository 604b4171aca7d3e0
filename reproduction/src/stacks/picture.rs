//! The picture of `reproduction/stacks.md`: a dot a drive and stack, fresh and in the steady state.

use iofair_draw::{Axis, COLOURS, Grid, Mark, Plot, fill, picture};

use super::line::{Aspect, Line, STACKS, STATES, drives, read};

/// A lower part is drawn at this one, and a higher one at the other.
const LEAST: f64 = 0.01;
const MOST: f64 = 10.0;

/// The picture.
///
/// # Errors
/// A table in another format.
pub fn stacks_picture(csv: &str) -> Result<String, String> {
    let lines = read(csv)?;
    let panels = [(Aspect::Minimum, "minimum"), (Aspect::Latency, "latency")];
    let plots = panels.iter().flat_map(|(aspect, name)| {
        STATES.map(|state| {
            let marks = [Mark::Across(1.0), Mark::Down(1.0, String::new())].into_iter();
            let marks = marks.chain(dots(&lines, state, *aspect));
            Plot {
                title: format!("{name}, {state}"),
                x: Axis::linear("total as a part of what it should be, the lowest", 1.2),
                y: Axis::log(&format!("part of the {name} that is kept, the lowest"), LEAST, MOST),
                marks: marks.collect(),
            }
        })
    });
    let plots: Vec<Plot> = plots.collect();
    let legend: Vec<(&str, &str)> = STACKS.into_iter().zip(COLOURS).collect();
    let grid = Grid { columns: 2, width: 430.0, height: 260.0 };
    Ok(picture(
        "every drive of the library, a dot each: up and right is better",
        &legend,
        grid,
        &plots,
    ))
}

fn dots<'a>(lines: &'a [Line], state: &'a str, aspect: Aspect) -> impl Iterator<Item = Mark> + 'a {
    let dot = move |(stack, colour): (&str, &str), drive: &str| {
        let is_its =
            |line: &&Line| line.drive == drive && line.state == state && line.stack == stack;
        let lowest = |aspect: Aspect| {
            let parts = lines.iter().filter(is_its).filter_map(|line| aspect.part(line));
            parts.fold(f64::INFINITY, f64::min)
        };
        let at = (lowest(Aspect::Total).min(1.2), lowest(aspect).clamp(LEAST, MOST));
        let tip = format!("{drive}, {stack}: total {:.2}, {} {:.2}", at.0, aspect.name(), at.1);
        Mark::Dot { at, radius: 3.0, style: fill(colour), name: String::new(), tip }
    };
    let stacks = STACKS.into_iter().zip(COLOURS);
    stacks.flat_map(move |stack| drives(lines).into_iter().map(move |drive| dot(stack, drive)))
}
