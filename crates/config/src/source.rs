//! A file's text, and the conversion of byte ranges into lines and columns.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::error::{ConfigError, Place, printable};
use crate::errors::{self, Errors};

/// More than any file that a person writes: devices may have no end.
const BYTES_MAX: u64 = 64 << 20;
/// Where the files of the kernel are: some wait for more at their end, or take away what is read.
const OF_THE_KERNEL: [&str; 2] = ["/proc", "/sys"];
/// What editors of other systems begin a text with.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Characters of a line that are shown.
const SHOWN_MAX: usize = 200;

/// A file with its name, kept for errors that are found after parsing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    path: String,
    text: String,
    /// What of the text is from arguments of the command line, with the argument.
    arguments: Vec<(Range<usize>, String)>,
}

/// Reads TOML that is already in memory; `path` is only for error messages.
pub fn parse<T: DeserializeOwned>(path: &str, text: &str) -> Result<T, ConfigError> {
    Source::new(path, text).parse()
}

/// Reads a text that a person wrote.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!("the file has more than {} MiB", BYTES_MAX >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let (good, rest) = error.as_bytes().split_at(at);
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message =
            format!("byte {at}, in line {line}, is {:#04x}: the file is not UTF-8", rest[0]);
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// Whether it is a file on some drive.
pub fn is_regular(path: &Path) -> io::Result<bool> {
    let real = || fs::canonicalize(path).unwrap_or_default();
    Ok(fs::metadata(path)?.is_file() && !OF_THE_KERNEL.iter().any(|own| real().starts_with(own)))
}

/// Reads a TOML file.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<(Source, T), ConfigError> {
    let source = Source::open(path)?;
    let value = source.parse()?;
    Ok((source, value))
}

impl Source {
    /// Text that is already in memory.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_string(), text: text.to_string(), arguments: Vec::new() }
    }
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = read_text(path);
        let text = text.map_err(|error| ConfigError::unreadable(path, &error))?;
        Ok(Self { path: name, text, arguments: Vec::new() })
    }
    /// Reads a file on some drive, or a pipe of a shell, which has a writer and no place. Others, such as named pipes, may let their
    /// reader wait for ever.
    pub fn open_regular(path: &Path) -> Result<Self, ConfigError> {
        let is_other = is_regular(path).is_ok_and(|is_regular| !is_regular);
        if is_other && fs::canonicalize(path).is_ok() {
            return Err(ConfigError::whole_file(&path.display().to_string(), "not a regular file"));
        }
        Self::open(path)
    }
    /// The file's name as it was given.
    pub fn path(&self) -> &str {
        &self.path
    }
    /// The file's text.
    pub fn text(&self) -> &str {
        &self.text
    }
    /// The location of a path in the file: relative paths start at the file's directory, not at the working
    /// directory.
    pub fn beside(&self, written: &str) -> PathBuf {
        Path::new(&self.path).parent().map_or_else(|| written.into(), |own| own.join(written))
    }
    /// The name of a drive profile in the file: a path of a `.toml` file, with or without a `:VARIANT` after it, starts at
    /// the file's directory; other names are as they are written.
    pub fn profile(&self, written: &str) -> String {
        let (base, variant) = match written.rsplit_once(':') {
            Some((base, variant)) if !variant.contains('/') => (base, Some(variant)),
            _ => (written, None),
        };
        if Path::new(base).extension().is_none_or(|extension| extension != "toml") {
            return written.to_owned();
        }
        let path = self.beside(base).display().to_string();
        variant.map_or_else(|| path.clone(), |variant| format!("{path}:{variant}"))
    }
    /// Parses the text.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(&self.text).map_err(|error| {
            if let Some(error) = self.odd_character() {
                return error;
            }
            let mut errors = Errors::default();
            for error in errors::of_parser::<T>(&self.text, error) {
                errors.add(self.explain(&error));
            }
            errors.end().expect_err("there is one")
        })
    }
    /// The first character that no text has, which editors do not show.
    fn odd_character(&self) -> Option<ConfigError> {
        let is_odd = |(at, c): &(usize, char)| {
            c.is_ascii_control() && !"\t\n\r".contains(*c) || *c == BYTE_ORDER_MARK && *at > 0
        };
        let (at, c) = self.text.char_indices().find(is_odd)?;
        let message = format!("the character U+{:04X} is not allowed here", u32::from(c));
        Some(self.error(at..at + c.len_utf8(), message).allowed("text"))
    }
    /// The same source, of whose text these parts are from arguments.
    pub(crate) fn with_arguments(self, arguments: Vec<(Range<usize>, String)>) -> Self {
        Self { arguments, ..self }
    }
    /// The source with more text behind it.
    pub fn followed_by(&self, more: &str) -> Self {
        Self { text: self.text.clone() + more, ..self.clone() }
    }
    /// An error at a byte range of the text, as [`toml::Spanned::span`] gives it; about the argument that the text is from, if it
    /// is from one.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        let is_there = |part: &Range<usize>| part.start < span.end && span.start < part.end;
        let mut arguments = self.arguments.iter().rev();
        if let Some((_, argument)) = arguments.find(|argument| is_there(&argument.0)) {
            return ConfigError::whole_file(argument, message);
        }
        let place = Some(Box::new(self.place(span)));
        ConfigError { place, ..ConfigError::whole_file(&self.path, message) }
    }

    fn place(&self, span: Range<usize>) -> Place {
        let start = self.floor_boundary(span.start);
        let end = self.floor_boundary(span.end).max(start);
        let head = &self.text[..start];
        // A byte order mark is no character of the first line.
        let mark =
            if self.text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
        let line_start = head.rfind('\n').map_or(mark.min(start), |newline| newline + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |n| start + n);
        let text = self.text[line_start..line_end].trim_end_matches('\r');
        // A table's span runs over several lines: underline its part of the first one.
        let shown_end = end.min(line_start + text.len()).max(start);
        let before = self.text[line_start..start].chars().count();
        let is_long = text.chars().nth(SHOWN_MAX).is_some();
        let cut = if is_long { before.saturating_sub(SHOWN_MAX / 2) } else { 0 };
        let width = self.text[start..shown_end]
            .chars()
            .take((cut + SHOWN_MAX).saturating_sub(before))
            .count();
        Place {
            line: head.matches('\n').count() + 1,
            column: before + 1,
            text: text.chars().skip(cut).take(SHOWN_MAX).map(printable).collect(),
            cut,
            width: width.max(1),
        }
    }
    fn floor_boundary(&self, index: usize) -> usize {
        let index = index.min(self.text.len());
        (0..=index).rev().find(|i| self.text.is_char_boundary(*i)).unwrap_or(0)
    }

    /// Converts a parser's error: known keys become `allowed`, the most similar one `nearest`.
    fn explain(&self, error: &toml::de::Error) -> ConfigError {
        let message = error.message();
        let at = |message: &str| match error.span() {
            Some(span) => self.error(span, message),
            None => ConfigError::whole_file(&self.path, message),
        };
        for (serde_says, we_say) in [("unknown field", "unknown key"), ("unknown variant", "")] {
            if let Some(rest) = message.strip_prefix(serde_says) {
                let (written, known) = split_expected(rest);
                let what = match we_say {
                    "" => format!("`{written}` is not one of the allowed values"),
                    _ => format!("{we_say} `{written}`"),
                };
                let allowed = match known.as_slice() {
                    [] => "no key".to_string(),
                    known => known.join(", "),
                };
                return at(&what).allowed(allowed).near(written, known);
            }
        }
        if let Some(name) = message.strip_prefix("missing field ") {
            return at(&format!("the key {name} is missing"));
        }
        if message == "wanted string or table" {
            return at("this is not a string").allowed(allowed("a string"));
        }
        match message.split_once(", expected ") {
            Some((wrong, expected)) => at(&value(wrong)).allowed(allowed(expected.trim())),
            None => at(message.trim()),
        }
    }
}

/// The value in the file: "invalid type: integer `10`" is about the value, not about types.
fn value(wrong: &str) -> String {
    match wrong.strip_prefix("invalid type: ") {
        Some("map") => "a table is not allowed here".into(),
        Some("sequence") => "a list is not allowed here".into(),
        Some(found) => format!("{found} is not allowed here"),
        None => wrong.to_string(),
    }
}

/// What a parser expects, described by values instead of types.
fn allowed(expected: &str) -> String {
    let is_type = |prefix: &str| expected.starts_with(prefix);
    match expected {
        "i64" | "u64" | "i32" | "u32" | "u16" | "u8" | "usize" => "a whole number such as 300",
        "f64" | "f32" => "a number such as 1.5",
        "a boolean" => "true or false",
        "a string" => "a text in quotes, such as \"name\"",
        "a sequence" => "a list such as [\"one\", \"two\"]; of tables, each begins with two brackets, as [[volume]]",
        "a map" => "a table of keys",
        _ if is_type("struct ") || is_type("internally tagged enum ") => "a table of keys",
        _ if is_type("enum ") || is_type("variant ") => "one of the known words, in quotes",
        // Errors of units and limits describe the allowed values themselves.
        _ => expected,
    }
    .to_string()
}

/// Serde's "`a`, expected one of `b`, `c`" as ("a", ["b", "c"]).
fn split_expected(text: &str) -> (&str, Vec<&str>) {
    let mut quoted = text.split('`').skip(1).step_by(2);
    let written = quoted.next().unwrap_or_default();
    (written, quoted.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[derive(serde::Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Example {
        #[expect(dead_code)]
        size: Bytes,
        #[expect(dead_code)]
        #[serde(default)]
        kind: Kind,
        #[expect(dead_code)]
        #[serde(default)]
        count: i64,
    }
    #[derive(serde::Deserialize, Debug, Default)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        #[default]
        RealTime,
        Idle,
    }

    fn refuse(text: &str) -> ConfigError {
        parse::<Example>("example.toml", text).expect_err("the example is bad")
    }

    /// Goal: an error shows the place as an editor counts it. Method: a character of several bytes and
    /// a tab before the mistake.
    #[test]
    fn the_place_is_what_an_editor_shows() {
        let error = refuse("# größe\n\tsize = 'ä'\n");
        let place = error.place.clone().expect("has a place");
        assert_eq!((place.line, place.column, place.width), (2, 9, 3));
        let shown = error.to_string();
        assert!(shown.starts_with("example.toml:2:9: \"ä\" cannot be read"), "{shown}");
        assert!(shown.contains("    2 | \tsize = 'ä'\n      | \t       ^^^"), "{shown}");
    }

    /// Goal: of a long line, the part around the place is shown. Method: a mistake in the middle of one, and a line of zero bytes.
    #[test]
    fn long_lines_are_cut() {
        let error = refuse(&format!("{}size = 'ä' # {}", " ".repeat(1000), "x".repeat(1000)));
        let shown = error.to_string();
        assert!(shown.starts_with("example.toml:1:1008: ") && shown.len() < 1000, "{shown}");
        let [_, line, caret] = shown.split('\n').take(3).collect::<Vec<_>>()[..] else { panic!() };
        let under = |(at, _)| line.chars().skip(at).take(3).collect::<String>();
        assert_eq!(caret.chars().enumerate().find(|(_, c)| *c == '^').map(under).unwrap(), "'ä'");
        assert!(refuse(&"\0".repeat(1000)).to_string().len() < 2000);
    }

    /// Goal: every family of parser errors is answered with what is allowed. Method: one bad text each.
    #[test]
    fn parser_errors_say_what_is_allowed() {
        let unknown = refuse("sise = '1B'");
        assert_eq!(unknown.message, "unknown key `sise`");
        assert_eq!(unknown.allowed.as_deref(), Some("size, kind, count"));
        assert_eq!(unknown.nearest.as_deref(), Some("size"));
        let variant = refuse("size = '1B'\nkind = 'real-tine'");
        assert_eq!((variant.line(), variant.nearest.as_deref()), (2, Some("real-time")));
        let missing = refuse("kind = 'idle'");
        assert!(missing.message.contains("`size` is missing"), "{missing}");
        let number = refuse("size = 4096");
        assert_eq!(number.message, "integer `4096` is not allowed here");
        assert!(number.allowed.expect("says what").contains("4KiB"));
        let text = refuse("size = '1B'\ncount = 'three'");
        assert_eq!(text.message, "string \"three\" is not allowed here");
        assert_eq!(text.allowed.as_deref(), Some("a whole number such as 300"));
        let flag = refuse("size = '1B'\nkind = true");
        assert!(!flag.to_string().contains("enum"), "{flag}");
        let list = refuse("size = []");
        assert_eq!(list.message, "a list is not allowed here");
        let syntax = refuse("size = '1B'\nkind = ");
        assert_eq!(syntax.line(), 2, "{syntax}");
    }

    /// Goal: paths are relative to the file that names them. Method: files named in several ways.
    #[test]
    fn paths_begin_at_the_file() {
        for (file, named, meant) in [
            ("/etc/iofair/contracts.toml", "pool.sock", "/etc/iofair/pool.sock"),
            ("/etc/iofair/contracts.toml", "/run/pool.sock", "/run/pool.sock"),
            ("sub/contracts.toml", "../pool", "sub/../pool"),
            ("contracts.toml", "pool", "pool"),
        ] {
            assert_eq!(Source::new(file, "").beside(named), PathBuf::from(meant), "{file}");
        }
    }

    /// Goal: a file that cannot be read is an error with its name. Method: no such file.
    #[test]
    fn a_missing_file_is_named() {
        let error = read::<Example>(Path::new("no-such-file.toml")).expect_err("not there");
        assert!(error.to_string().starts_with("no-such-file.toml: "), "{error}");
    }

    /// Goal: characters that an editor does not show are named, and a byte order mark and ends of lines of other systems are none.
    /// Method: some of each; the caret stays under its character.
    #[test]
    fn odd_characters_are_named() {
        for (text, line, name) in [
            ("size = '1B'\ncount\0 = 1", 2, "U+0000"),
            ("size = '1B' # \u{7f}", 1, "U+007F"),
            ("size = '1B'\n\u{feff}count = 1", 2, "U+FEFF"),
        ] {
            let error = refuse(text);
            assert_eq!(error.message, format!("the character {name} is not allowed here"));
            assert_eq!(error.line(), line);
            assert!(!error.to_string().contains('\0'), "{error}");
        }
        parse::<Example>("example.toml", "\u{feff}size = '1B'\r\ncount = 1\r\n").expect("good");
        let marked = refuse("\u{feff}size = 'ä'\n").to_string();
        assert_eq!(marked, refuse("size = 'ä'\n").to_string());
    }
}
