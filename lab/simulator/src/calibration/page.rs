//! A calibration as one HTML page: plots, rows, parameters.

use std::fmt::Write as _;

use iofair_draw::{Axis, COLOURS, Grid, Mark, Plot, escape, fill, picture};
use iofair_drive::fit::{Fitted, Residual};

use super::Calibration;

const GRID: Grid = Grid { columns: 2, width: 560.0, height: 300.0 };
const MODEL: &str = COLOURS[1];
const MEASURED: &str = COLOURS[0];

/// Whole depths in names such as `4 KiB random reads, QD32`.
fn depths<'a>(fitted: &'a Fitted, before: &str) -> Vec<(f64, &'a Residual)> {
    let depth_of = |row: &'a Residual| {
        let depth: f64 = row.row.strip_prefix(before)?.parse().ok()?;
        (!row.is_rate && row.quantity.starts_with("latency")).then_some((depth, row))
    };
    let mut found: Vec<_> = fitted.residuals.iter().filter_map(depth_of).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

/// Measured dots and the model's line.
fn panel(title: &str, x: Axis, y: Axis, points: &[(f64, f64, f64)]) -> Plot {
    let line = points.iter().map(|(x, _, model)| (*x, *model)).collect();
    let mut marks = vec![Mark::line(line, MODEL, 2.0)];
    marks.extend(points.iter().map(|(x, measured, model)| Mark::Dot {
        at: (*x, *measured),
        radius: 4.0,
        style: fill(MEASURED),
        name: String::new(),
        tip: format!("{measured:.1}, model {model:.1}"),
    }));
    Plot { title: title.to_owned(), x, y, marks }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), high.max(value)))
}

/// Megabytes and the rate up to there, in megabytes a second. Requests often complete together, so each point is a
/// hundredth of the time or more.
fn rates(series: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let step = series.last().map_or(1, |last| (last.1 / 100).max(1));
    let (mut points, mut before) = (Vec::new(), (0, 0));
    for (bytes, at) in series {
        let time = at.saturating_sub(before.1);
        if time >= step {
            points.push((*bytes as f64 / 1e6, (bytes - before.0) as f64 * 1e3 / time as f64));
            before = (*bytes, *at);
        }
    }
    points
}

fn panels(calibration: &Calibration, fitted: &Fitted) -> Vec<Plot> {
    let mut panels = Vec::new();
    for (title, before, with_rates) in [
        ("Latency of 4 KiB random reads by depth", "4 KiB random reads, QD", true),
        (
            "Latency of a 4 KiB read beside sequential reads by their depth",
            "4 KiB random reads, QD1, beside 256 KiB sequential reads, QD",
            false,
        ),
    ] {
        let found = depths(fitted, before);
        if found.len() < 2 {
            continue;
        }
        let micros: Vec<(f64, f64, f64)> = found
            .iter()
            .map(|(depth, row)| (*depth, row.measured / 1e3, row.model / 1e3))
            .collect();
        let (low, high) = range(micros.iter().flat_map(|point| [point.1, point.2]));
        let (first, last) = range(micros.iter().map(|point| point.0));
        let depth = Axis::log("depth", first, last);
        panels.push(panel(title, depth.clone(), Axis::log("us", low, high), &micros));
        if with_rates {
            let rates: Vec<_> =
                micros.iter().map(|(d, a, b)| (*d, d / a * 1e3, d / b * 1e3)).collect();
            let (_, high) = range(rates.iter().flat_map(|point| [point.1, point.2]));
            let rate = Axis::linear("thousand IOPS", high);
            panels.push(panel("IOPS of 4 KiB random reads by depth", depth, rate, &rates));
        }
    }
    for record in calibration.records.iter().filter(|record| record.series.len() > 2) {
        let Some(row) = calibration.rows.iter().find(|row| row.name == record.row) else {
            continue;
        };
        let model = row.record(&row.simulate(&fitted.profile())).series;
        let [measured, model] = [&record.series, &model].map(|series| rates(series));
        let (_, last) = range(measured.iter().map(|point| point.0));
        let model: Vec<_> = model.into_iter().take_while(|point| point.0 <= last).collect();
        let (_, high) = range(measured.iter().chain(&model).map(|point| point.1));
        let bytes = if row.writes() { "MB written" } else { "MB read" };
        let (x, y) = (Axis::linear(bytes, last), Axis::linear("MB/s", high));
        let marks = vec![Mark::line(measured, MEASURED, 1.5), Mark::line(model, MODEL, 1.5)];
        panels.push(Plot { title: record.row.clone(), x, y, marks });
    }
    panels
}

/// The page; `lines` are those for contracts and for the kernel.
pub fn page(calibration: &Calibration, fitted: &Fitted, lines: &[&str]) -> String {
    let mut html = String::new();
    let error = |held_out| {
        fitted.mean_error(held_out).map_or("no row".to_owned(), |percent| format!("{percent:.1} %"))
    };
    let _ = writeln!(
        html,
        "<p>Mean error of the model: {} of the rows that were fitted, {} of the rows that only verify.</p>",
        error(false),
        error(true)
    );
    if !fitted.is_explained() {
        html +=
            "<p>NOT EXPLAINED: the mean error is above 10 %, so the model is not this drive.</p>\n";
    }
    let plots = picture(
        &calibration.title,
        &[("measured", MEASURED), ("model", MODEL)],
        GRID,
        &panels(calibration, fitted),
    );
    let _ = writeln!(html, "<section class=\"card scroll\">{plots}</section>");
    html += "<section class=\"card\"><h2>Rows</h2><table><tr><th>row</th><th></th>\
             <th class=\"n\">measured</th><th class=\"n\">model</th><th class=\"n\">error</th><th></th></tr>\n";
    for row in &fitted.residuals {
        let held_out = if row.held_out { "only verifies" } else { "" };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{:+.1} %</td><td>{held_out}</td></tr>",
            escape(&row.row),
            escape(&row.quantity),
            row.shown(row.measured),
            row.shown(row.model),
            row.error_percent
        );
    }
    html += "</table></section>\n<section class=\"card\"><h2>Parameters</h2><table><tr><th>parameter</th>\
             <th>value</th><th>standard error</th><th></th></tr>\n";
    for parameter in &fitted.parameters {
        let error = parameter.error.filter(|error| *error < 10.0);
        let error = error.map_or(String::new(), |error| format!("{:.1} %", error * 100.0));
        let decided = if parameter.decided { "decided" } else { "no row decides it" };
        let (key, value) = (escape(&parameter.key), escape(&parameter.value.written()));
        let _ = writeln!(
            html,
            "<tr><td>{key}</td><td>{value}</td><td>{error}</td><td>{decided}</td></tr>"
        );
    }
    html += "</table></section>\n<section class=\"card\"><h2>Lines to use</h2>\n";
    for line in lines.iter().filter(|line| !line.is_empty()) {
        let _ = writeln!(html, "<pre>{}</pre>", escape(line));
    }
    html += "</section>\n";
    iofair_draw::page(&calibration.title, &calibration.title, &html)
}

#[cfg(test)]
mod tests {
    use iofair_core::request::Operation;
    use iofair_core::time::Nanos;
    use iofair_drive::fit::Row;
    use iofair_drive::measure::{Amount, Load, Order, Stream};

    use super::*;

    /// Goal: requests that complete together do not look like an infinite rate. Method: pairs of equal times.
    #[test]
    fn rates_are_averages() {
        let series: Vec<_> = (1..=200).map(|mib| (mib << 20, mib / 2 * 2_000_000)).collect();
        let points = rates(&series);
        assert!(points.len() > 50, "{points:?}");
        assert!(points[1..].iter().all(|point| (point.1 - 1048.6).abs() < 1.0), "{points:?}");
    }

    /// Goal: a series shows the drive beside its model. Method: a series of reads of a drive, and its own profile.
    #[test]
    fn a_series_is_shown_beside_the_model() {
        let truth = iofair_drive::profile::read("nvme-2015").unwrap();
        let stream = Stream::new(Operation::Read, 256 << 10, 32, Order::Sequential);
        let stream = Stream { area: (0, 1 << 30), ..stream };
        let amount = |requests| Amount { requests, time: Nanos::from_secs(60) };
        let [warm_up, measured] = [0, 4000].map(amount);
        let load = Load { streams: vec![stream], warm_up, measured, window: 1 << 20 };
        let name = "256 KiB sequential reads".to_owned();
        let row = Row {
            name,
            load,
            quantities: Vec::new(),
            tolerance: 0.01,
            held_out: false,
            state: None,
        };
        let mut calibration = crate::calibration::fio::tests::calibration();
        calibration.records = vec![row.record(&row.simulate(&truth))];
        calibration.rows = vec![row];
        let (volume, parameters, residuals) = (None, Vec::new(), Vec::new());
        let fitted = Fitted { model: truth.model, volume, parameters, residuals, class: None };
        let panels = panels(&calibration, &fitted);
        let [Mark::Line { points, .. }, Mark::Line { points: model, .. }] = &panels[0].marks[..]
        else {
            panic!("two lines")
        };
        assert!(points.len() > 50 && points == model, "{points:?} {model:?}");
    }

    /// Goal: each plot has a title of its own and both lines, and text is escaped. Method: a page of made-up rows.
    #[test]
    fn each_plot_has_its_title() {
        let row = |name: String, depth: u32| Residual {
            row: name,
            quantity: "latency of 0".into(),
            is_rate: false,
            measured: 1e5 * f64::from(depth),
            model: 1.1e5 * f64::from(depth),
            error_percent: 10.0,
            held_out: false,
            left_out: false,
        };
        let both = [
            "4 KiB random reads, QD",
            "4 KiB random reads, QD1, beside 256 KiB sequential reads, QD",
        ];
        let depths = [1, 4, 16];
        let residuals =
            both.iter().flat_map(|name| depths.map(|depth| row(format!("{name}{depth}"), depth)));
        let model = iofair_drive::profile::read("nvme-2015").unwrap().model;
        let fitted = Fitted {
            model,
            volume: None,
            parameters: Vec::new(),
            residuals: residuals.collect(),
            class: None,
        };
        let mut calibration = crate::calibration::fio::tests::calibration();
        calibration.title = "a < b".into();
        let titles: Vec<String> =
            panels(&calibration, &fitted).into_iter().map(|panel| panel.title).collect();
        assert_eq!(titles.len(), 3);
        assert!(
            titles.iter().all(|title| titles.iter().filter(|other| *other == title).count() == 1)
        );
        let html = page(&calibration, &fitted, &["rbps=1"]);
        assert!(html.contains("a &lt; b") && html.contains("rbps=1") && !html.contains("a < b"));
    }
}
