//! All errors of a file at once: of its parser, and of the checks after it.
//!
//! The parser stops at its first error. What that is about is then taken out of the file's tables, a missing key is filled in, and the
//! rest is read again, without what a list has before the error: that was read, so all errors of a long list take one pass over it. A
//! file whose syntax is wrong has no tables, so it gets one error.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer, Error};

use crate::error::ConfigError;

/// Errors that are listed of one file: a wrong template makes as many as there are groups.
const LISTED_MAX: usize = 32;
/// What the last one says if there are more.
const MORE: &str = "and more errors";
/// The place of what is filled in, which is in no file.
const FILLED: Range<usize> = usize::MAX..usize::MAX;

/// Errors that checks find one after the other.
#[derive(Default, Debug)]
pub(crate) struct Errors {
    listed: Vec<ConfigError>,
    has_more: bool,
}

impl Errors {
    /// The value, if there is one; an error is kept.
    pub(crate) fn ok<T>(&mut self, made: Result<T, ConfigError>) -> Option<T> {
        made.map_err(|error| self.add(error)).ok()
    }
    /// The value, or its default beside an error, which is kept.
    pub(crate) fn or_default<T: Default>(&mut self, made: Result<T, ConfigError>) -> T {
        self.ok(made).unwrap_or_default()
    }
    pub(crate) fn add(&mut self, error: ConfigError) {
        let mut next = Some(Box::new(error));
        while let Some(mut error) = next {
            next = error.next.take();
            match error.message == MORE {
                true => self.has_more = true,
                false => self.listed.push(*error),
            }
        }
    }
    /// Whether no more will be listed.
    pub(crate) fn is_full(&self) -> bool {
        self.listed.len() > LISTED_MAX
    }
    /// All of them, in the order of the file.
    pub(crate) fn end(mut self) -> Result<(), ConfigError> {
        self.listed.sort_by_key(ConfigError::line);
        self.has_more |= self.is_full();
        self.listed.truncate(LISTED_MAX);
        if self.has_more {
            let last = ConfigError::whole_file(&self.listed[0].path, MORE);
            self.listed.push(last);
        }
        ConfigError::of_all(self.listed).map_or(Ok(()), Err)
    }
}

/// All of them, or what is wrong with each that is not right.
pub(crate) fn all<T>(
    made: impl Iterator<Item = Result<T, ConfigError>>,
) -> Result<Vec<T>, ConfigError> {
    let (mut errors, mut good) = (Errors::default(), Vec::new());
    for made in made {
        good.extend(errors.ok(made));
        if errors.is_full() {
            break;
        }
    }
    errors.end().map(|()| good)
}

/// All errors of a text's parser, of which `first` is the first.
pub(crate) fn of_parser<T: DeserializeOwned>(text: &str, first: Error) -> Vec<Error> {
    let (mut errors, mut incomplete) = (Vec::new(), Vec::new());
    let mut next = Some(first);
    let Ok(root) = DeTable::parse(text) else { return next.into_iter().collect() };
    let (whole, mut root) = (root.span(), DeValue::Table(root.into_inner()));
    while let Some(error) = next.take() {
        let at = error.span().unwrap_or_default();
        let missing = error.message().strip_prefix("missing field `");
        let missing = missing.and_then(|rest| rest.strip_suffix('`')).map(str::to_owned);
        let same =
            |other: &Error| (other.span(), other.message()) == (error.span(), error.message());
        // What was taken out of a table is not missing, and of a list of tables the first one may have been all that is said.
        let follows = at == FILLED
            || missing.is_some() && incomplete.contains(&at)
            || errors.iter().any(same);
        let is_filled = match missing.filter(|_| !follows) {
            Some(name) => fill_in(&mut root, &whole, &at, &name),
            None => false,
        };
        errors.extend((!follows).then_some(error));
        if !is_filled {
            let Some(from) = take_out(&mut root, &whole, &at) else { break };
            incomplete.push(from);
        }
        let DeValue::Table(rest) = &root else { break };
        if errors.len() > LISTED_MAX {
            break;
        }
        let rest = Spanned::new(whole.clone(), rest.clone());
        next = T::deserialize(Deserializer::from(rest)).err();
    }
    errors
}

/// Gives the table at a place a key; `false`: there is no such table.
fn fill_in(value: &mut DeValue<'_>, own: &Range<usize>, at: &Range<usize>, key: &str) -> bool {
    let inside = |value: &mut Spanned<DeValue<'_>>| {
        let own = value.span();
        fill_in(value.get_mut(), &own, at, key)
    };
    match value {
        DeValue::Table(table) if own == at => {
            let value = DeValue::String(Cow::Borrowed(""));
            let key = Spanned::new(FILLED, Cow::Owned(key.to_owned()));
            table.insert(key, Spanned::new(FILLED, value)).is_none()
        }
        DeValue::Table(table) => table.iter_mut().any(|(_, value)| inside(value)),
        DeValue::Array(items) => {
            items.iter_mut().position(inside).map(|index| keep_from(items, index)).is_some()
        }
        _ => false,
    }
}

/// Takes out what is at a place in a value: a key with its own value, or a table of a list. Returns the place of the table that it was in.
fn take_out(
    value: &mut DeValue<'_>,
    own: &Range<usize>,
    at: &Range<usize>,
) -> Option<Range<usize>> {
    match value {
        DeValue::Table(table) => {
            let inside = |(_, value): (_, &mut Spanned<DeValue<'_>>)| {
                let own = value.span();
                take_out(value.get_mut(), &own, at)
            };
            // A list of tables has the place of its first one.
            table.iter_mut().find_map(inside).or_else(|| {
                let is_there = |(key, value): &(&Spanned<_>, &Spanned<_>)| {
                    key.span() == *at || value.span() == *at
                };
                let key = table.iter().find(is_there)?.0.clone();
                table.remove(&key).map(|_| own.clone())
            })
        }
        DeValue::Array(items) => {
            let find = |(index, item): (usize, &mut Spanned<DeValue<'_>>)| {
                let place = item.span();
                match place == *at {
                    true => Some((index + 1, own.clone())),
                    false => Some((index, take_out(item.get_mut(), &place, at)?)),
                }
            };
            let (index, from) = items.iter_mut().enumerate().find_map(find)?;
            keep_from(items, index);
            Some(from)
        }
        _ => None,
    }
}

/// Drops what a list has before an index.
fn keep_from(items: &mut DeArray<'_>, index: usize) {
    *items = std::mem::replace(items, DeArray::new()).into_iter().skip(index).collect();
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde::Deserialize;

    use crate::parse;

    thread_local! {
        static READ: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(Deserialize, Debug)]
    struct List {
        #[expect(dead_code)]
        item: Vec<Item>,
    }
    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Item {
        #[expect(dead_code)]
        #[serde(deserialize_with = "counted")]
        name: String,
    }
    fn counted<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        READ.set(READ.get() + 1);
        String::deserialize(deserializer)
    }

    /// Goal: what is right in a long list is read once for all of its errors, after the reading that found the first one. Method:
    /// names are counted; behind the right ones are wrong values, keys that nobody knows, or tables without a key.
    #[test]
    fn long_lists_are_read_once() {
        for wrong in ["name = 1", "name = 'x'\nnane = 'x'", ""] {
            let item = |keys: &str, count| format!("[[item]]\n{keys}\n").repeat(count);
            READ.set(0);
            let error = parse::<List>("a.toml", &(item("name = 'x'", 1000) + &item(wrong, 30)));
            assert_eq!(error.expect_err("errors").to_string().matches("a.toml:").count(), 30);
            assert!(READ.get() < 2200, "{wrong}: {}", READ.get());
        }
    }
}
