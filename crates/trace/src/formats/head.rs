//! The beginning of a file, by which its format is recognised.

use crate::input::{HEAD, content};
use crate::printable::shown_line;

/// Lines that are looked at.
const LINES_MAX: usize = 256;

/// The first bytes of a file, and the lines in them that have content.
pub(super) struct Head<'a> {
    pub(super) bytes: &'a [u8],
    /// Contents, with the lines' numbers.
    lines: Vec<(u64, &'a str)>,
}

impl<'a> Head<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
            // The rest of the last line is elsewhere.
            let is_part = bytes.len() >= HEAD && !line.ends_with(b"\n");
            let text = std::str::from_utf8(line).ok().and_then(content);
            lines.extend(text.filter(|_| !is_part).map(|text| (number, text)));
            if lines.len() >= LINES_MAX {
                break;
            }
        }
        Self { bytes, lines }
    }
    /// Whether the file ends in its first line.
    pub(super) fn is_cut(&self) -> bool {
        self.bytes.len() < HEAD && !self.bytes.contains(&b'\n')
    }
    /// The contents of the lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.lines.iter().map(|(_, line)| *line)
    }
    /// The lines before the first one that has a number.
    pub(super) fn words(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.lines().take_while(|line| is_words(line))
    }
    /// What an error about the whole shows: the first line with a number, and the first line of all; with its number.
    pub(super) fn shown(&self) -> Option<(u64, String)> {
        let (first_number, first) = *self.lines.first()?;
        let shown = |line: &str| shown_line(line.as_bytes());
        let found = self.lines.iter().find(|(_, line)| has_number(line));
        Some(match found {
            Some((number, line)) if *number > first_number => {
                (*number, format!("{}, below {}", shown(line), shown(first)))
            }
            _ => (first_number, shown(first)),
        })
    }
}

/// Whether a line may be a header, or what a program prints before the requests: it has no number, and is text.
pub(super) fn is_words(line: &str) -> bool {
    !has_number(line) && !line.contains(|c: char| c.is_control() && c != '\t')
}

/// Whether one of a line's fields is a number.
fn has_number(line: &str) -> bool {
    let fields = line.split(|c: char| c.is_whitespace() || ",;|".contains(c));
    let is_number = |field: &str| {
        let digits = field.trim_matches('"').trim_start_matches('-').replacen('.', "", 1);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut fields = fields.filter(|field| !field.is_empty());
    fields.any(is_number)
}

/// Whether two headers have the same names, whatever their case and spaces.
pub(super) fn is_same(header: &str, other: &str) -> bool {
    let names = |text: &str| -> Vec<String> {
        let plain = |name: &str| name.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
        text.split(',').map(|name| plain(name).to_ascii_lowercase()).collect()
    };
    names(header) == names(other)
}
