//! Text of a trace as it may be printed. A trace comes from anywhere, so a name or a line may have control characters, which
//! a terminal obeys, or marks that change the direction of the text around them.

use std::borrow::Cow;
use std::fmt::Write;

/// Characters of a line that an error shows.
const SHOWN_MAX: usize = 120;

/// The text with escapes, such as `\u{1b}`, in place of characters that are not printed as themselves.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match is_hidden(letter) {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    out.into()
}

/// Control characters, line separators, and marks without a width, among them those for the direction of text.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A line for an error: escaped, and cut if it is long.
pub(crate) fn shown_line(line: &[u8]) -> String {
    let mut out = String::new();
    for chunk in line.trim_ascii_end().utf8_chunks() {
        out.push_str(&printable(chunk.valid()));
        chunk.invalid().iter().for_each(|byte| write!(out, "\\x{byte:02x}").expect("a string"));
        if out.len() > 4 * SHOWN_MAX {
            break;
        }
    }
    format!("`{}`", shortened(&out, SHOWN_MAX))
}

/// The beginning of a text, if it is longer than this many characters.
pub(crate) fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no text of a trace reaches a terminal as a command. Method: escape sequences, a bell, C1 controls, a mark that
    /// reverses text; ordinary text of other scripts stays.
    #[test]
    fn hidden_characters_are_escaped() {
        assert_eq!(printable("a\u{1b}[2Jb\u{7}\r\n"), "a\\u{1b}[2Jb\\u{7}\\r\\n");
        assert_eq!(printable("\u{9b}31m\u{202e}x"), "\\u{9b}31m\\u{202e}x");
        assert_eq!(printable("Größe 日本"), "Größe 日本");
        assert_eq!(shown_line(b"1,\xff\x1b,0\r\n"), "`1,\\xff\\u{1b},0`");
        let long = shown_line(&vec![b'1'; 1 << 16]);
        assert!(long.len() == SHOWN_MAX + 5 && long.ends_with("...`"), "{long}");
    }
}
