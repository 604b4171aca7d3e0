//! The library: profiles of real drives, in two tables that are part of the program.
//!
//! `profiles/drives/library.csv` has a line for each drive, with the numbers that public measurements decide (`make drives`
//! writes it); `profiles/drives/classes.csv` has a line for each number, with what drives of a class have where no measurement
//! decides it, or a part of the capacity. [`crate::profile`] reads a drive of the library as if it were a file.

use std::fmt::Write as _;

use iofair_core::unit::parse_bytes;

const DRIVES: &str = include_str!("../profiles/library.csv");
const CLASSES: &str = include_str!("../profiles/classes.csv");
/// Columns of the library before the numbers.
const HEAD: [&str; 4] = ["name", "class", "title", "source"];

/// A drive of the library.
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its class.
    pub(crate) class: &'static str,
    /// Its title.
    pub(crate) title: &'static str,
    /// The measurements.
    source: &'static str,
    /// Keys and values that these decide.
    numbers: Vec<(&'static str, &'static str)>,
}

/// The header of a table, and its lines.
fn table(text: &'static str) -> (Vec<&'static str>, impl Iterator<Item = Vec<&'static str>>) {
    let mut lines = text.lines().map(|line| line.split(',').collect());
    (lines.next().unwrap_or_default(), lines)
}

/// All drives.
pub(crate) fn entries() -> impl Iterator<Item = Entry> {
    let (header, lines) = table(DRIVES);
    lines.map(move |line| {
        let numbers = header.iter().copied().zip(line.iter().copied()).skip(HEAD.len());
        let numbers = numbers.filter(|number| !number.1.is_empty()).collect();
        Entry { name: line[0], class: line[1], title: line[2], source: line[3], numbers }
    })
}

/// The classes that have defaults.
pub(crate) fn classes() -> Vec<&'static str> {
    let header = table(CLASSES).0;
    header[1..header.len() - 1].to_vec()
}

/// Keys and values of the defaults of a class.
pub(crate) fn defaults(class: &str) -> Vec<(&'static str, &'static str)> {
    let (header, lines) = table(CLASSES);
    let column = header.iter().position(|name| *name == class);
    column.map_or_else(Vec::new, |column| lines.map(|line| (line[0], line[column])).collect())
}

/// A drive as a profile.
pub(crate) fn text(name: &str) -> Option<String> {
    let entry = entries().find(|entry| entry.name == name)?;
    profile_text(entry.class, entry.title, entry.source, &entry.numbers)
}

/// A profile with the defaults of a class and these numbers, whose source is `source`.
pub(crate) fn profile_text(
    class: &str,
    title: &str,
    source: &str,
    numbers: &[(&str, &str)],
) -> Option<String> {
    let (header, lines) = table(CLASSES);
    let column = header.iter().position(|name| *name == class)?;
    let mut text = format!("title = \"{title}\"\nclass = \"{class}\"\n");
    let mut capacity = 0;
    for line in lines {
        let (key, why) = (line[0], line[header.len() - 1]);
        let number = numbers.iter().find(|number| number.0 == key);
        let value = number.map_or(line[column], |number| number.1);
        let percent = value.strip_suffix('%').and_then(|percent| percent.parse::<u64>().ok());
        let part = percent.map(|percent| format!("{}B", capacity / 100 * percent));
        let value = part.as_deref().unwrap_or(value);
        if key == "capacity" {
            capacity = parse_bytes(value).unwrap_or(0);
        }
        let is_bare = value.parse::<i64>().is_ok() || value.parse::<bool>().is_ok();
        let quote = if is_bare { "" } else { "\"" };
        let (from, free) = match number {
            Some(_) => (format!("{why}: {source}"), ""),
            None if why.starts_with("no row") => (why.to_owned(), ", free = true"),
            None => (format!("as drives of this class, without {why}"), ", free = true"),
        };
        let number = format!("value = {quote}{value}{quote}, source = \"{from}\"{free}");
        let _ = writeln!(text, "{key} = {{ {number} }}");
    }
    Some(text)
}
