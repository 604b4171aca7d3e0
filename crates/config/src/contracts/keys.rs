//! Keys of a contract as a file has them, read by the table [`FIELDS`].
//!
//! The contract file, `iofair host` and experiments have them beside keys of their own, in one table. [`beside`] reads both: what
//! the structure of the caller does not know is looked up in [`FIELDS`].

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use iofair_core::contract::{Contract, Latency};
use iofair_core::key::{FIELDS, Field, Unit, inside, shorthand, tops};
use iofair_core::priority::Class;
use iofair_core::unit::{parse_rate, parse_time};
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use crate::Spanned;
use crate::units::{Bytes, Count, Rate, Time};

/// Values by the names of their fields.
type Values = BTreeMap<&'static str, u64>;

/// The keys of a contract that a file has.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Keys {
    values: Values,
    /// Where each key, or table of keys, has its value.
    spans: BTreeMap<&'static str, Range<usize>>,
}

impl Keys {
    /// Where the value of a key stands, or of a table such as `max`.
    pub fn span(&self, top: &str) -> Option<Range<usize>> {
        self.spans.get(top).cloned()
    }
    /// The keys and tables of keys that are written.
    pub fn tops(&self) -> impl Iterator<Item = &'static str> {
        tops().filter(|top| self.spans.contains_key(top))
    }
    /// Every value that is written, and what it is.
    pub fn written(&self) -> impl Iterator<Item = (&'static Field, u64)> {
        FIELDS.iter().filter_map(|field| Some((field, *self.values.get(field.name)?)))
    }
    /// The contract that they say.
    pub fn contract(&self) -> Contract {
        let mut contract = Contract::default();
        self.written().for_each(|(field, value)| field.set(&mut contract, Some(value)));
        contract
    }
    /// These keys, and those of `base` where there is none here; a table counts as one key.
    #[must_use]
    pub fn or(&self, base: &Self) -> Self {
        let mut both = base.clone();
        both.values.retain(|name, _| {
            Field::named(name).is_none_or(|field| !self.spans.contains_key(field.top()))
        });
        both.values.extend(&self.values);
        both.spans.extend(self.spans.clone());
        both
    }
    /// Reads the value of a key or a table.
    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        top: &'static str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let span = match (Field::named(top), TABLES.iter().position(|table| *table == top)) {
            (Some(field), _) => {
                let amount = amount(map, field.unit)?;
                self.values.insert(top, *amount.get_ref());
                amount.span()
            }
            (None, Some(0)) => self.table(map.next_value::<Spanned<Inside<0>>>()?),
            (None, Some(1)) => self.table(map.next_value::<Spanned<Inside<1>>>()?),
            (None, _) => self.table(map.next_value::<Spanned<Inside<2>>>()?),
        };
        self.spans.insert(top, span);
        Ok(())
    }
    fn table<const TABLE: usize>(&mut self, read: Spanned<Inside<TABLE>>) -> Range<usize> {
        let span = read.span();
        self.values.extend(read.into_inner().0);
        span
    }
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        beside(deserializer, |own| Nothing::deserialize(own)).map(|(Nothing {}, keys)| keys)
    }
}

/// Reads a structure (`own`, as derived) from a table that has keys of a contract beside those of the structure. A key that the
/// structure has too is the structure's.
pub fn beside<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    own: impl for<'a> FnOnce(Beside<'a, D>) -> Result<T, D::Error>,
) -> Result<(T, Keys), D::Error> {
    let mut keys = Keys::default();
    let own = own(Beside { inner: deserializer, fields: &[], keys: &mut keys })?;
    Ok((own, keys))
}

/// A deserializer, visitor or table of which the keys of a contract are taken away.
#[derive(Debug)]
pub struct Beside<'a, T> {
    inner: T,
    /// The keys of the structure.
    fields: &'static [&'static str],
    keys: &'a mut Keys,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Beside<'_, D> {
    type Error = D::Error;
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(visitor)
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(Beside { inner: visitor, fields, keys: self.keys })
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Beside<'_, V> {
    type Value = V::Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Beside { inner: map, fields: self.fields, keys: self.keys })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Beside<'_, A> {
    type Error = A::Error;
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        loop {
            // The errors of a key get their place from the table, so it is judged there.
            let key = self.inner.next_key_seed(Name(|name: &str| {
                match tops().find(|top| *top == name) {
                    _ if self.fields.contains(&name) => Ok(Err(name.to_string())),
                    Some(top) => Ok(Ok(top)),
                    None => {
                        let (first, rest) = self.fields.split_at(self.fields.len().min(1));
                        Err(first
                            .iter()
                            .copied()
                            .chain(tops())
                            .chain(rest.iter().copied())
                            .collect())
                    }
                }
            }))?;
            match key {
                Some(Ok(top)) => self.keys.read(top, &mut self.inner)?,
                Some(Err(own)) => return seed.deserialize(own.into_deserializer()).map(Some),
                None => return Ok(None),
            }
        }
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}

/// Reads the name of a key and looks it up; where it is unknown, the names that are known are the error.
struct Name<F>(F);

impl<'de, T, F: FnOnce(&str) -> Result<T, Vec<&'static str>>> DeserializeSeed<'de> for Name<F> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}
impl<T, F: FnOnce(&str) -> Result<T, Vec<&'static str>>> Visitor<'_> for Name<F> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E: de::Error>(self, name: &str) -> Result<T, E> {
        // As serde words it.
        (self.0)(name).map_err(|known| {
            E::custom(format_args!(
                "unknown field `{name}`, expected one of `{}`",
                known.join("`, `")
            ))
        })
    }
}

/// The tables of keys.
const TABLES: [&str; 3] = ["max", "low", "latency"];

/// What a table has, or one value in place of the table.
struct Inside<const TABLE: usize>(Values);

impl<'de, const TABLE: usize> Deserialize<'de> for Inside<TABLE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TableVisitor(TABLES[TABLE])).map(Self)
    }
}

/// The completion times of the table `latency`, or of reads in place of the table.
pub(super) struct Times(pub(super) Latency);

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = Inside::<2>::deserialize(deserializer)?.0;
        let mut contract = Contract::default();
        let fields = inside(TABLES[2]).filter_map(|field| Some((field, *values.get(field.name)?)));
        fields.for_each(|(field, value)| field.set(&mut contract, Some(value)));
        Ok(Self(contract.latency))
    }
}

/// Reads the table of this name.
struct TableVisitor(&'static str);

impl<'de> Visitor<'de> for TableVisitor {
    type Value = Values;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = inside(self.0).filter_map(Field::inner).collect();
        let value = match shorthand(self.0).next().map(|field| field.unit) {
            Some(Unit::Time) => "a time such as \"2ms\"",
            _ => "a rate such as \"10MB/s\"",
        };
        write!(f, "{value}, or a table {{ {} }}", keys.join(", "))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Values, E> {
        let read = |field: &'static Field| {
            let value = match field.unit {
                Unit::Time => parse_time(text).map(|time| time.0),
                _ => parse_rate(text),
            };
            value.map(|value| (field.name, value))
        };
        shorthand(self.0).map(read).collect::<Result<_, _>>().map_err(|error| {
            let wrong = if error.is_too_large { "is too large" } else { "cannot be read" };
            let expected: &dyn Expected = &self;
            E::custom(format_args!("\"{text}\" {wrong}, expected {expected}"))
        })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
        let find = |name: &str| {
            let field = inside(self.0).find(|field| field.inner() == Some(name));
            field.ok_or_else(|| inside(self.0).filter_map(Field::inner).collect())
        };
        let mut values = Values::new();
        while let Some(field) = map.next_key_seed(Name(find))? {
            values.insert(field.name, *amount(&mut map, field.unit)?.get_ref());
        }
        Ok(values)
    }
}

/// Reads a value.
fn amount<'de, A: MapAccess<'de>>(map: &mut A, unit: Unit) -> Result<Spanned<u64>, A::Error> {
    fn read<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
        map: &mut A,
        number: fn(T) -> u64,
    ) -> Result<Spanned<u64>, A::Error> {
        let read = map.next_value::<Spanned<T>>()?;
        Ok(Spanned::new(read.span(), number(read.into_inner())))
    }
    match unit {
        Unit::Rate => read(map, |rate: Rate| rate.0),
        Unit::Size => read(map, |size: Bytes| size.0),
        Unit::Time => read(map, |time: Time| time.nanos().0),
        Unit::Count => read(map, |count: Count| count.0),
        Unit::Weight => read(map, |weight: Weight| weight.0),
        Unit::Class => read(map, |class: ClassName| class.class() as u64),
    }
}

struct Weight(u64);

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Weight;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("u32")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Weight, E> {
                let range = Unit::Weight.range();
                let weight = u64::try_from(number).ok().filter(|weight| range.contains(weight));
                weight.map(Weight).ok_or_else(|| {
                    let (least, most) = range.into_inner();
                    E::custom(format_args!(
                        "weight {number} is out of range, expected {least} to {most}"
                    ))
                })
            }
        }
        deserializer.deserialize_i64(Number)
    }
}

/// A scheduling class by its name.
#[derive(Deserialize, Clone, Copy, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum ClassName {
    /// `realtime`
    #[serde(rename = "realtime")]
    RealTime,
    /// `best-effort`
    #[default]
    BestEffort,
    /// `idle`
    Idle,
}

impl ClassName {
    /// As the engine knows it.
    pub fn class(self) -> Class {
        match self {
            Self::RealTime => Class::RealTime,
            Self::BestEffort => Class::BestEffort,
            Self::Idle => Class::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct File {
        group: Keys,
    }
    fn read(keys: &str) -> Result<Keys, crate::ConfigError> {
        crate::source::parse::<File>("c.toml", &format!("[group]\n{keys}\n")).map(|file| file.group)
    }

    /// Goal: every row of the table is read from a file. Method: each alone, with a value of its unit.
    #[test]
    fn every_row_is_read() {
        for field in FIELDS {
            let (text, value) = match field.unit {
                Unit::Rate => ("'10MB/s'", 10_000_000),
                Unit::Size => ("'64MB'", 64_000_000),
                Unit::Time => ("'2ms'", 2_000_000),
                Unit::Count | Unit::Weight => ("7", 7),
                Unit::Class => ("'idle'", 2),
            };
            let keys = read(&format!("{} = {text}", field.name)).expect(field.name);
            assert_eq!(keys.written().map(|(_, value)| value).collect::<Vec<_>>(), [value]);
            assert_eq!(field.get(&keys.contract()), Some(value), "{}", field.name);
            assert_eq!(keys.tops().collect::<Vec<_>>(), [field.top()]);
        }
    }

    /// Goal: the manual describes every key that a server takes. Method: the table.
    #[test]
    fn the_manual_names_every_key() {
        let page = include_str!("../../../../docs/contracts.md");
        for field in FIELDS.iter().filter(|field| field.top() != "low") {
            let name = field.inner().unwrap_or(field.name);
            assert!(page.contains(&format!("`{name}`")), "docs/contracts.md lacks {name}");
        }
    }

    /// Goal: an unknown key is named at its place, with those that are known. Method: one in the table and one inside.
    #[test]
    fn unknown_keys_are_refused_at_their_place() {
        let error = read("min = '1MB/s'\nmim = '1MB/s'").expect_err("a slip");
        assert_eq!((error.line(), error.nearest.as_deref()), (3, Some("min")));
        assert_eq!(error.allowed, Some(tops().collect::<Vec<_>>().join(", ")));
        let error = read("[group.max]\nread = '1MB/s'\nreed = '1MB/s'").expect_err("a slip");
        assert_eq!((error.line(), error.message.as_str()), (4, "unknown key `reed`"));
    }

    /// Goal: a table that is written again replaces the whole table. Method: ceilings above others.
    #[test]
    fn tables_are_replaced_as_a_whole() {
        let base = read("min = '1MB/s'\nmax = { read = '9MB/s', total_iops = 5 }").expect("good");
        let both = read("weight = 7\nmax = { write = '2MB/s' }").expect("good").or(&base);
        let names: Vec<&str> = both.written().map(|(field, _)| field.name).collect();
        assert_eq!(names, ["min", "weight", "max.write"]);
    }
}
