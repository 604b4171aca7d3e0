//! The pictures of `reproduction/evidence/frontier.csv` in reproduction/promise.md: for each drive and workload, what the promised client gets
//! against what all clients get, a dot a stack.

use iofair_draw::{Axis, COLOURS, Grid, Mark, Plot, fill, picture};
use iofair_experiments::report::short;

use crate::frontier::{Row, STACK, read, workloads};
use crate::steps::slug;

/// A lower part of a minimum is drawn at this one.
const PART_LEAST: f64 = 0.01;
/// Dots that are closer than this part of a panel in both directions have one name and the number of the others.
const NEAR: f64 = 0.015;

/// A picture for each drive of the table: its file name and what is in it. Each workload has a row of panels.
pub fn pareto_pictures(csv: &str) -> Result<Vec<(String, String)>, String> {
    let rows = read(csv)?;
    let mut drives: Vec<(&str, Vec<Plot>)> = Vec::new();
    for workload in workloads(&rows) {
        let drive = workload[0].drive.as_str();
        let panels = panels(workload);
        match drives.iter_mut().find(|(known, _)| *known == drive) {
            Some((_, all)) => all.extend(panels),
            None => drives.push((drive, panels.into())),
        }
    }
    let legend = [(STACK, COLOURS[0]), ("on the frontier", COLOURS[1]), ("others", COLOURS[2])];
    let draw = |(drive, panels): (&str, Vec<Plot>)| {
        let title = format!("{drive}: every stack, a dot each; up and right is better");
        let svg =
            picture(&title, &legend, Grid { columns: 2, width: 430.0, height: 210.0 }, &panels);
        (format!("pareto-{}.svg", slug(drive)), svg)
    };
    Ok(drives.into_iter().map(draw).collect())
}

/// The rate as a part of the minimum and the 99.9th percentile, both against the total.
fn panels(rows: &[Row]) -> [Plot; 2] {
    let part = |row: &Row| row.rate / row.minimum;
    let waits = rows.iter().map(|row| row.p999).filter(|wait| wait.is_finite());
    let shortest = waits.clone().fold(f64::INFINITY, f64::min);
    let most_total = rows.iter().map(|row| row.total).fold(0.0, f64::max);
    let panel = |title: String, y: Axis, of: &dyn Fn(&Row) -> f64| {
        let x = Axis::linear("total, MB/s", most_total);
        Plot { title, marks: dots(rows, of, &x, &y), x, y }
    };
    let title = format!("{}, minimum {} MB/s", rows[0].variant, short(rows[0].minimum));
    let parts = Axis::log("rate / minimum", PART_LEAST, rows.iter().map(part).fold(1.0, f64::max));
    let mut rates = panel(title, parts, &part);
    rates.marks.insert(0, Mark::Across(1.0));
    let waits = Axis::log("p99.9, ms", shortest, waits.fold(0.0, f64::max)).reversed();
    [rates, panel(String::new(), waits, &|row| row.p999)]
}

/// A dot a stack, at its total and at what `of` says: ours above those on the frontier, which are named and which no other
/// stack beats in both, above the rest.
fn dots(rows: &[Row], of: &dyn Fn(&Row) -> f64, x: &Axis, y: &Axis) -> Vec<Mark> {
    let place = |row: &Row| (x.place(row.total), y.place(of(row)));
    let is_beaten = |row: &Row| {
        let (right, up) = place(row);
        let beats = |other: (f64, f64)| {
            other.0 >= right && other.1 >= up && (other.0 > right || other.1 > up)
        };
        rows.iter().map(place).any(beats)
    };
    let (ours, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.stack == STACK);
    let (beaten, best): (Vec<&Row>, Vec<_>) = others.iter().partition(|row| is_beaten(row));
    let dot = |row: &Row, colour, radius, name| {
        let tip = format!("{}: {}, total {} MB/s", row.stack, short(of(row)), short(row.total));
        Mark::Dot { at: (row.total, of(row)), radius, style: fill(colour), name, tip }
    };
    let mut marks: Vec<Mark> =
        beaten.iter().map(|row| dot(row, COLOURS[2], 2.5, String::new())).collect();
    let mut named: Vec<(f64, f64)> = Vec::new();
    for row in best {
        let here = place(row);
        let is_near =
            |other: (f64, f64)| (other.0 - here.0).abs() < NEAR && (other.1 - here.1).abs() < NEAR;
        let mut name = String::new();
        if !named.iter().copied().any(is_near) {
            named.push(here);
            let near: Vec<&&Row> = others.iter().filter(|row| is_near(place(row))).collect();
            name.clone_from(&near[0].stack);
            if near.len() > 1 {
                name += &format!(" + {}", near.len() - 1);
            }
        }
        marks.push(dot(row, COLOURS[1], 3.0, name));
    }
    marks.extend(ours.into_iter().map(|row| dot(row, COLOURS[0], 5.0, String::new())));
    marks
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Write;

    use super::*;

    /// Four stacks on two drives: one has the largest total, one keeps the minimum on the first drive, one is beaten by both, and ours.
    pub(crate) fn lines() -> String {
        let mut csv = "experiment,variant,drive,stack,seeds,minimum,rate,rate_least,second,second_least,seeds_kept,\
            p99,p999,total\n"
            .to_owned();
        for (drive, limited) in [("a:x", 10), ("b", 9)] {
            for (stack, rate, kept, wait, total) in [
                ("none-none", 1, 0, 1, 500),
                ("max-none", limited, 0, 10, 70),
                ("slow", 1, 0, 20, 60),
                ("promise", 10, 1, 9, 350),
            ] {
                let _ = writeln!(
                    csv,
                    "e,v,{drive},{stack},1,10,{rate},{rate},{rate},{rate},{kept},{wait},{wait},{total}"
                );
            }
        }
        csv
    }

    /// Goal: a picture for each drive, ours marked, the best named. Method: four stacks by hand on two drives.
    #[test]
    fn the_frontier_is_named() {
        let pictures = pareto_pictures(&lines()).expect("good lines");
        let names: Vec<_> = pictures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["pareto-a-x.svg", "pareto-b.svg"]);
        let svg = &pictures[0].1;
        assert_eq!(svg.matches("<circle").count(), 2 * 4);
        let named = |name: &str| svg.matches(&format!(">{name}</text>")).count();
        assert_eq!(named("none-none"), 2, "the largest total, and the shortest wait");
        assert_eq!(named("promise"), 1, "in the legend");
        assert_eq!(named("max-none") + named("slow"), 0, "beaten");
        let same = lines()
            .replace("max-none,1,10,10,10,10,10,0,10,10,70", "max-none,1,10,1,1,1,1,0,1,1,499");
        let svg = &pareto_pictures(&same).expect("good lines")[0].1;
        assert_eq!(svg.matches(">none-none + 1</text>").count(), 2);
        assert!(pareto_pictures("a,b\n1,2\n").is_err());
    }
}
