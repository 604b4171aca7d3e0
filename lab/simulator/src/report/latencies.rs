//! Distributions of latencies on other pages than those of experiments.

use core::fmt::Write;

use super::chart::{COLOURS, Curve, percentiles};
use super::svg::escape;

/// A chart of distributions by name: nanoseconds, and the share of requests not above, ascending.
pub(crate) fn latencies(title: &str, all: &[(String, Vec<(u64, f64)>)]) -> String {
    let mut curves = Vec::new();
    for (colour, (name, points)) in all.iter().enumerate() {
        curves.push(Curve { name, colour, points });
    }
    percentiles(title, &curves)
}

/// The legend of such charts.
pub(crate) fn latency_legend(names: &[&str]) -> String {
    let mut html = "<div class=\"legend\">".to_owned();
    for (index, name) in names.iter().enumerate() {
        let _ = write!(html, "<span><i class=\"s{}\"></i>{}</span>", index % COLOURS, escape(name));
    }
    html.push_str("</div>\n");
    html
}
