//! The frame of pages. They are self-contained: no font, no address of anybody. A script sorts tables and saves charts; without
//! it a page shows the same.

use core::fmt::Write;

use crate::look::STACKS;
use crate::svg::escape;

/// The style sheet of pages.
pub const STYLE: &str = include_str!("page.css");
/// The end of pages, with their script.
pub const FOOT: &str =
    concat!("<script>\n", include_str!("page.js"), "</script>\n</body></html>\n");

/// A page: its title, the heading where that differs, and what is below it in HTML.
pub fn page(title: &str, heading: &str, body: &str) -> String {
    let (title, heading) = (escape(title), escape(heading));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<h1>{heading}</h1>\n{body}{FOOT}"
    )
}

/// The colours of stacks, or of whatever has these names.
pub fn legend_of_stacks(names: &[&str]) -> String {
    let mut html = String::new();
    for (index, name) in names.iter().enumerate() {
        let _ = write!(html, "<span><i class=\"s{}\"></i>{}</span>", index % STACKS, escape(name));
    }
    html
}
