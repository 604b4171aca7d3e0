//! Tables of a file. What serde derives for a structure takes a list of its values, too; in a file that would be a table whose
//! keys are left to guesses.

use std::fmt;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// A structure that is read from a table only.
#[derive(Clone, Default, Debug)]
pub(super) struct Table<T>(T);

impl<T> Deref for Table<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(Only(deserializer)).map(Self)
    }
}

/// Reads the structures of a list of tables.
pub(super) fn tables<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let tables = Vec::<Table<T>>::deserialize(deserializer)?;
    Ok(tables.into_iter().map(|table| table.0).collect())
}

/// A deserializer, or a visitor, of which only tables are taken.
struct Only<T>(T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Only<D> {
    type Error = D::Error;
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Only(visitor))
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Only<V> {
    type Value = V::Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(map)
    }
}
