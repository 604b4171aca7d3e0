//! One error type: the place, the problem, the allowed values, and a suggestion for a misspelt word.

use std::ffi::OsStr;
use std::path::Path;
use std::{fmt, fs, io};

/// Most files of a folder whose names are compared with one that is not there.
const BESIDE_MAX: usize = 10_000;
/// Pairs of letters that a search for a similar word compares: some milliseconds, and thousands of words.
const COMPARED_MAX: usize = 1 << 20;

/// Why a file was refused. Prints as the place, the line with a caret, and what is allowed:
///
/// ```text
/// contracts.toml:7:10: weight 5000 is out of range
///     7 | weight = 5000
///       |          ^^^^
///   allowed: 1 to 1000
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The file, as it was named.
    pub path: String,
    /// Line and column, both from 1; `None` when the error is about the whole file.
    pub place: Option<Box<Place>>,
    /// What is wrong.
    pub message: String,
    /// What would have been accepted.
    pub allowed: Option<String>,
    /// The known word nearest to the one in the file.
    pub nearest: Option<String>,
    /// What else is wrong with the file.
    pub next: Option<Box<Self>>,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The line itself, or of a long one the part around the place.
    pub text: String,
    /// Characters of the line before `text`.
    pub cut: usize,
    /// Characters to underline, at least one.
    pub width: usize,
}

impl ConfigError {
    /// An error about a whole file.
    pub fn whole_file(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_string(),
            place: None,
            message: message.into(),
            allowed: None,
            nearest: None,
            next: None,
        }
    }
    /// A name of something that is not there, and what is there. `path` is where it was written.
    pub fn unknown<'a>(
        path: &str,
        what: &str,
        written: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let quoted = |name: &&str| match name.contains([' ', ',']) {
            true => format!("\"{name}\""),
            false => (*name).to_owned(),
        };
        let names: Vec<String> = known.iter().map(quoted).collect();
        let error = Self::whole_file(path, format!("no {what} \"{written}\""));
        error.allowed(names.join(", ")).near(written, known)
    }
    /// A file that cannot be read; if it is not there, with a file beside it whose name is similar.
    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        let mut this = Self::whole_file(&path.display().to_string(), error.to_string());
        let name = path.file_name().and_then(OsStr::to_str);
        if let Some(name) = name.filter(|_| error.kind() == io::ErrorKind::NotFound) {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let beside = fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten();
            let names = beside.take(BESIDE_MAX).flatten().map(|entry| entry.file_name());
            let names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
            let nearest = nearest(name, names.iter().map(String::as_str));
            this.nearest = nearest.map(|name| path.with_file_name(name).display().to_string());
        }
        this
    }
    /// Several errors of a file as one; `None` if there are none.
    pub fn of_all(errors: Vec<Self>) -> Option<Self> {
        let before = |next, error| Self { next: Some(Box::new(next)), ..error };
        errors.into_iter().rev().reduce(before)
    }
    /// Says what would have been accepted.
    #[must_use]
    pub fn allowed(mut self, what: impl Into<String>) -> Self {
        self.allowed = Some(what.into());
        self
    }
    /// Suggests the candidate that is most similar to the word in the file, if one is similar enough.
    #[must_use]
    pub fn near<'a>(
        mut self,
        written: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.nearest = nearest(written, candidates).map(str::to_string);
        self
    }
    /// The line, from 1; 0 when the error is about the whole file.
    pub fn line(&self) -> usize {
        self.place.as_ref().map_or(0, |place| place.line)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, None)?;
        let mut before = self;
        while let Some(next) = &before.next {
            writeln!(f)?;
            next.write(f, before.allowed.as_deref())?;
            before = next;
        }
        Ok(())
    }
}
impl ConfigError {
    /// Writes this error alone; what is allowed is left out if the error before it says the same.
    fn write(&self, f: &mut fmt::Formatter<'_>, said: Option<&str>) -> fmt::Result {
        let message = plain(&self.message);
        match &self.place {
            None => write!(f, "{}: {message}", self.path)?,
            Some(place) => {
                writeln!(f, "{}:{}:{}: {message}", self.path, place.line, place.column)?;
                writeln!(f, "{:>5} | {}", place.line, place.text)?;
                // Tabs are kept, so that the caret stands under its character.
                let before = place.text.chars().take(place.column - 1 - place.cut);
                let pad: String = before.map(|c| if c == '\t' { c } else { ' ' }).collect();
                write!(f, "      | {pad}{}", "^".repeat(place.width))?;
            }
        }
        if let Some(allowed) = self.allowed.as_deref().filter(|allowed| Some(*allowed) != said) {
            write!(f, "\n  allowed: {}", plain(allowed))?;
        }
        if let Some(nearest) = &self.nearest {
            write!(f, "\n  did you mean `{}`?", plain(nearest))?;
        }
        Ok(())
    }
}
impl std::error::Error for ConfigError {}

/// A text with nothing in it that a terminal interprets but ends of lines.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { c } else { printable(c) }).collect()
}

/// A character as it is shown, in one column.
pub(crate) fn printable(c: char) -> char {
    if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }
}

/// The candidate most similar to `written`; at most a third of its letters may differ. Of many and long ones, only the first are
/// compared ([`COMPARED_MAX`]).
fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = written.chars().count();
    let (bound, mut left) = ((letters / 3).max(1), COMPARED_MAX);
    let lower = written.to_lowercase();
    let near = candidates.into_iter().filter_map(|candidate| {
        let own = candidate.chars().count();
        if own.abs_diff(letters) > bound {
            return None;
        }
        left = left.checked_sub(letters.saturating_mul(own))?;
        Some((strsim::osa_distance(&lower, &candidate.to_lowercase()), candidate))
    });
    near.filter(|(d, _)| *d <= bound).min_by_key(|(d, _)| *d).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: slips are recognised, other words are not. Method: one example of each kind.
    #[test]
    fn typing_errors_are_recognised() {
        let known = ["weight", "max", "min", "latency"];
        for (written, meant) in [("weigth", "weight"), ("Max", "max"), ("latencey", "latency")] {
            assert_eq!(nearest(written, known), Some(meant));
        }
        for written in ["share", "limit", ""] {
            assert_eq!(nearest(written, known), None, "{written}");
        }
    }

    /// Goal: no message changes a terminal. Method: an escape sequence in each part of one.
    #[test]
    fn messages_have_no_control_characters() {
        let odd = "\u{1b}[2J\u{9b}1m";
        let error = ConfigError::unknown("a", "drive", odd, [odd, "b"]).allowed(odd);
        let shown = error.to_string();
        assert!(
            shown.contains("did you mean") && !shown.contains(['\u{1b}', '\u{9b}']),
            "{shown:?}"
        );
    }

    /// Goal: a search for a similar word ends soon, whatever is written. Method: as many long words as a large file has, and one that is
    /// as long as a file; each with a slip among the first of them, which is found.
    #[test]
    fn long_words_are_not_compared_for_ever() {
        let names = |length: usize| (0..20_000).map(move |at| format!("{at:0length$}"));
        let known: Vec<String> = names(255).collect();
        let known = || known.iter().map(String::as_str);
        let slip = format!("{}x", &"0".repeat(254));
        assert_eq!(nearest(&slip, known()).map(str::len), Some(255));
        assert_eq!(nearest(&"0".repeat(8 << 20), known()), None);
        let long = "x".repeat(8 << 20);
        assert_eq!(nearest(&long[1..], [long.as_str()]), None);
    }
}
