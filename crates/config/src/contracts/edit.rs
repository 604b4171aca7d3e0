//! Changes of a contract file, made as a person would make them: comments, order and spelling of all
//! that does not change stay.
//!
//! A change gives a new text, and the text is checked like any other. So a change is refused with the
//! same words as a file that a person got wrong: the place it would have, and what is allowed. Comments inside a list, or a table in
//! braces, belong to no key, so what would rewrite such a value is refused.

use iofair_core::key::{Field, Key, inside, shorthand};
use iofair_core::policy::Table as Policies;
use serde_json::{Map, Value as Json};
use toml_edit::{
    Array, ArrayOfTables, Decor, DocumentMut, InlineTable, Item, RawString, Table, TableLike, Value,
};

use super::enforced::{Unenforced, whole};
use super::{Contracts, check};
pub use crate::name::listed;
use crate::{ConfigError, Source};

#[cfg(test)]
mod tests;

/// Keys of a group, a volume or a policy, spelled as in the file.
pub type Keys = Map<String, Json>;

/// What an edit is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A `[[group]]`.
    Group,
    /// A `[[volume]]`.
    Volume,
}

/// What happens to keys that the change does not name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// There are none: the object must be new.
    Create,
    /// They are removed. The object may be new.
    Replace,
    /// They stay, and `null` removes one. The object must exist.
    Merge,
}

/// A change.
#[derive(Clone, PartialEq, Debug)]
pub enum Edit {
    /// Writes a group or volume.
    Set {
        /// Which kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// What is written beside the name.
        keys: Keys,
        /// How.
        how: How,
    },
    /// Removes a group or volume.
    Remove {
        /// Which kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// Another stack.
    Stack {
        /// Its name.
        name: String,
        /// Parameters by policy; `None`: those of policies that the new stack has too stay.
        policy: Option<Keys>,
        /// Whether keys of groups that the new stack does not enforce are removed from the file; otherwise they are an error.
        give_up: bool,
    },
}

/// Why a change was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EditError {
    /// The object does not exist.
    Missing(ConfigError),
    /// The object exists already.
    Exists(ConfigError),
    /// The new file would not be valid.
    Bad(ConfigError),
}

impl EditError {
    /// What is wrong.
    pub fn error(&self) -> &ConfigError {
        match self {
            Self::Missing(error) | Self::Exists(error) | Self::Bad(error) => error,
        }
    }
}

/// The value of this key has comments in it that a change would lose.
struct Commented(String);

impl Commented {
    fn in_file(self, path: &str) -> EditError {
        let message =
            format!("the value of `{}` has comments in it, which this change would lose", self.0);
        let error = ConfigError::whole_file(path, message);
        EditError::Bad(error.allowed("the same change by hand, in the file, and then a reload"))
    }
}

impl Kind {
    /// Its key in the file, and what people call it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Volume => "volume",
        }
    }
}

impl Contracts {
    /// These contracts with a change, checked; [`Contracts::text`] is the new file.
    pub fn edited(&self, edit: &Edit) -> Result<Self, EditError> {
        let path = self.path();
        let document = self.text().parse::<DocumentMut>();
        let mut document =
            document.map_err(|e| EditError::Bad(ConfigError::whole_file(path, e.to_string())))?;
        match edit {
            Edit::Set { kind, name, keys, how } => {
                let list = tables(&mut document, *kind).map_err(|lost| lost.in_file(path))?;
                Target { path, kind: *kind, name, list }.keys(keys, *how)?;
            }
            Edit::Remove { kind, name } => remove(&mut document, path, *kind, name)?,
            Edit::Stack { name, policy, give_up } => {
                let table = self.drive.stack.table();
                let lost = |commented: Commented| commented.in_file(path);
                stack(&mut document, table, name, policy.as_ref()).map_err(lost)?;
                if *give_up {
                    let source = Source::new(path, &document.to_string());
                    let (_, unenforced) =
                        check::contracts(source, table).map_err(EditError::Bad)?;
                    forget(&mut document, &unenforced).map_err(lost)?;
                }
            }
        }
        let mut text = document.to_string();
        if self.text().contains("\r\n") {
            // The parser reads them, and writes ends of lines without them.
            text = text.replace("\r\n", "\n").replace('\n', "\r\n");
        }
        Self::parse_with(self.drive.stack.table(), path, &text).map_err(EditError::Bad)
    }
    /// The file as plain values, to be shown.
    pub fn written(&self) -> Json {
        toml::from_str(self.text()).expect("the text was read before")
    }
}

/// The tables of one kind; a list written in one line becomes tables.
fn tables(document: &mut DocumentMut, kind: Kind) -> Result<&mut ArrayOfTables, Commented> {
    let item = document.entry(kind.word()).or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    if !item.is_array_of_tables() {
        if item.as_value().is_some_and(has_comment) {
            return Err(Commented(kind.word().into()));
        }
        let list = std::mem::take(item).into_array_of_tables().unwrap_or_default();
        *item = Item::ArrayOfTables(list);
    }
    Ok(item.as_array_of_tables_mut().expect("it was just made one"))
}

/// Whether a list, or a table in braces, has a comment in it.
fn has_comment(value: &Value) -> bool {
    let is_in = |raw: &RawString| raw.as_str().is_some_and(|text| text.contains('#'));
    let is_beside = |decor: &Decor| decor.prefix().into_iter().chain(decor.suffix()).any(is_in);
    let is_at = |value: &Value| is_beside(value.decor()) || has_comment(value);
    match value {
        Value::Array(list) => is_in(list.trailing()) || list.iter().any(is_at),
        Value::InlineTable(table) => {
            let is_at_key =
                |key: &str| table.key(key).is_some_and(|key| is_beside(key.leaf_decor()));
            is_in(table.trailing())
                || table.iter().any(|(key, value)| is_at_key(key) || is_at(value))
        }
        _ => false,
    }
}

/// Removes keys inside the value of a key.
fn remove_inside(item: &mut Item, key: &str, gone: &[String]) -> Result<(), Commented> {
    if !gone.is_empty() && item.as_value().is_some_and(has_comment) {
        return Err(Commented(key.into()));
    }
    let Some(table) = item.as_table_like_mut() else { return Ok(()) };
    gone.iter().for_each(|key| drop(table.remove(key)));
    Ok(())
}

fn name_of(table: &Table) -> &str {
    table.get("name").and_then(Item::as_str).unwrap_or_default()
}

fn missing(path: &str, kind: Kind, name: &str, list: &ArrayOfTables) -> EditError {
    let known: Vec<&str> = list.iter().map(name_of).collect();
    let word = kind.word();
    let is_above =
        |group: &&str| group.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    let message = match kind == Kind::Group && known.iter().any(is_above) {
        true => {
            format!("group \"{name}\" has no contract: it is only a part of other groups' paths")
        }
        false => format!("there is no {word} \"{name}\""),
    };
    let error = ConfigError::whole_file(path, message);
    EditError::Missing(error.allowed(listed(&known)).near(name, known))
}

/// The table that keys are written to.
struct Target<'a> {
    path: &'a str,
    kind: Kind,
    name: &'a str,
    list: &'a mut ArrayOfTables,
}

impl Target<'_> {
    fn keys(self, keys: &Keys, how: How) -> Result<(), EditError> {
        let Self { path, kind, name, list } = self;
        let bad = |message| Err(EditError::Bad(ConfigError::whole_file(path, message)));
        match keys.get("name") {
            Some(other) if other != name => {
                return bad(format!("{} \"{name}\" cannot be renamed to {other}", kind.word()));
            }
            _ => {}
        }
        let found = list.iter().position(|table| name_of(table) == name);
        let index = match (found, how) {
            (Some(_), How::Create) => {
                let message = format!("{} \"{name}\" exists already", kind.word());
                return Err(EditError::Exists(ConfigError::whole_file(path, message)));
            }
            (None, How::Merge) => return Err(missing(path, kind, name, list)),
            (Some(index), _) => index,
            (None, _) => {
                let mut table = Table::new();
                table.insert("name", toml_edit::value(name));
                table.decor_mut().set_prefix("\n");
                list.push(table);
                list.len() - 1
            }
        };
        let table = list.get_mut(index).expect("found or just made");
        if how == How::Replace {
            table.retain(|key, _| key == "name" || keys.contains_key(key));
        }
        for (key, value) in keys.iter().filter(|(key, _)| *key != "name") {
            put(table, key, value, how == How::Merge).map_err(|lost| lost.in_file(path))?;
        }
        Ok(())
    }
}

fn remove(document: &mut DocumentMut, path: &str, kind: Kind, name: &str) -> Result<(), EditError> {
    let list = tables(document, kind).map_err(|lost| lost.in_file(path))?;
    let Some(index) = list.iter().position(|table| name_of(table) == name) else {
        return Err(missing(path, kind, name, list));
    };
    list.remove(index);
    if kind == Kind::Group {
        let volumes = tables(document, Kind::Volume).map_err(|lost| lost.in_file(path))?.iter();
        let inside =
            volumes.filter(|table| table.get("group").and_then(Item::as_str) == Some(name));
        let inside: Vec<&str> = inside.map(name_of).collect();
        if !inside.is_empty() {
            let message = format!("group \"{name}\" has volumes: {}", listed(&inside));
            let error = ConfigError::whole_file(path, message);
            return Err(EditError::Bad(
                error.allowed("a group without volumes: remove them first"),
            ));
        }
    }
    Ok(())
}

fn stack(
    document: &mut DocumentMut,
    table: &'static Policies,
    name: &str,
    policy: Option<&Keys>,
) -> Result<(), Commented> {
    let drive = document.entry("drive").or_insert(toml_edit::table());
    let Some(drive) = drive.as_table_like_mut() else { return Ok(()) };
    put(drive, "stack", &Json::from(name), false)?;
    match policy {
        Some(policy) if policy.is_empty() => drop(drive.remove("policy")),
        Some(policy) => put(drive, "policy", &Json::Object(policy.clone()), false)?,
        None => {
            let Ok(stack) = table.stack(name) else { return Ok(()) };
            let stages = || stack.throttles.iter().chain([&stack.scheduler]).map(|s| s.row);
            let stays = |key: &str| stages().any(|row| row.name == key || row.short == key);
            let Some(item) = drive.get_mut("policy") else { return Ok(()) };
            let Some(written) = item.as_table_like() else { return Ok(()) };
            let gone = written.iter().map(|(key, _)| key.to_string()).filter(|key| !stays(key));
            let gone: Vec<String> = gone.collect();
            remove_inside(item, "policy", &gone)?;
            if item.as_table_like().is_some_and(TableLike::is_empty) {
                drive.remove("policy");
            }
        }
    }
    Ok(())
}

/// Removes these keys from the file, and what has no meaning without them.
fn forget(document: &mut DocumentMut, unenforced: &[Unenforced]) -> Result<(), Commented> {
    let list = tables(document, Kind::Group)?;
    for Unenforced { group, key, .. } in unenforced {
        let Some(table) = list.iter_mut().find(|table| name_of(table) == group) else { continue };
        let top = whole(*key).word();
        match table.get_mut(top) {
            Some(item) if whole(*key) != *key && item.is_table_like() => {
                let gone = inside(top).filter(|field| field.enforced_as == Some(*key));
                let gone = gone.filter_map(Field::inner);
                let written = |key: &str| item.get(key).is_some();
                // A burst of ceilings that are gone, or a table without any.
                let rest = inside(top).filter(|field| {
                    !matches!(field.enforced_as, Some(Key::MaxBurst))
                        && field.enforced_as != Some(*key)
                });
                match rest.filter_map(Field::inner).any(written) {
                    true => {
                        let gone: Vec<String> = gone.map(str::to_string).collect();
                        remove_inside(item, top, &gone)?;
                    }
                    false => drop(table.remove(top)),
                }
            }
            _ => drop(table.remove(top)),
        }
        if *key == Key::Min {
            table.remove("alone");
        }
    }
    Ok(())
}

/// Writes one key; what is written the same already is not touched.
fn put(table: &mut dyn TableLike, key: &str, json: &Json, merge: bool) -> Result<(), Commented> {
    if json.is_null() {
        table.remove(key);
        return Ok(());
    }
    let removes_only = |inner: &Keys| !inner.is_empty() && inner.values().all(Json::is_null);
    let Some(item) = table.get_mut(key) else {
        if !json.as_object().is_some_and(removes_only) {
            table.insert(key, Item::Value(value(json)));
        }
        return Ok(());
    };
    if let Json::Object(inner) = json {
        if merge && item.is_str() {
            let is_there = |name| inner.contains_key(name);
            if removes_only(inner) && !shorthand(key).filter_map(Field::inner).any(is_there) {
                return Ok(());
            }
            split(item, key);
        }
        if let Some(written) = item.as_table_like() {
            let is_gone = |key: &String| inner.get(key).map_or(!merge, Json::is_null);
            let gone = written.iter().map(|(key, _)| key.to_string()).filter(is_gone);
            let gone: Vec<String> = gone.collect();
            remove_inside(item, key, &gone)?;
        }
        if let Some(written) = item.as_table_like_mut() {
            for (key, json) in inner {
                put(written, key, json, merge)?;
            }
            if written.is_empty() {
                table.remove(key);
            }
            return Ok(());
        }
    }
    let fresh = value(json);
    match item.as_value_mut() {
        Some(old) if same(old, &fresh) => {}
        Some(old) if has_comment(old) => return Err(Commented(key.into())),
        Some(old) => {
            let decor = old.decor().clone();
            *old = fresh;
            *old.decor_mut() = decor;
        }
        None => *item = Item::Value(fresh),
    }
    Ok(())
}

/// One value in place of a table becomes the values that it stands for, so that one of them can change.
fn split(item: &mut Item, top: &str) {
    let value = item.as_str().unwrap_or_default().to_string();
    let inner = shorthand(top).filter_map(Field::inner);
    let table: InlineTable = inner.map(|inner| (inner, value.as_str())).collect();
    let decor = item.as_value().map(|value| value.decor().clone());
    *item = Item::Value(table.into());
    if let (Some(value), Some(decor)) = (item.as_value_mut(), decor) {
        *value.decor_mut() = decor;
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.value() == b.value(),
        (Value::Integer(a), Value::Integer(b)) => a.value() == b.value(),
        (Value::Boolean(a), Value::Boolean(b)) => a.value() == b.value(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        _ => false,
    }
}

fn value(json: &Json) -> Value {
    match json {
        // Only inside a list; the check refuses lists.
        Json::Null => "".into(),
        Json::Bool(flag) => (*flag).into(),
        Json::String(text) => text.as_str().into(),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64().unwrap_or(f64::MAX).into(),
        },
        Json::Array(list) => Value::Array(list.iter().map(value).collect::<Array>()),
        Json::Object(keys) => {
            let given = keys.iter().filter(|(_, json)| !json.is_null());
            let pairs = given.map(|(key, json)| (key.as_str(), value(json)));
            Value::InlineTable(pairs.collect::<InlineTable>())
        }
    }
}
