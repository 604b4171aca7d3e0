//! Settings from the command line that change keys of a file (`--set client.reader.count=7`), so that files can serve
//! as templates.
//!
//! The file is read as a table, changed, and written again, so the changed file goes through the same checks. Errors
//! quote the changed text. In an array of tables with a `name` (`[[client]]`), the name is part of the path.

use std::ops::Range;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::error::ConfigError;
use crate::source::Source;

impl Source {
    /// The same file with these settings, each `path=value`. A value that is not valid TOML is taken as a string, so
    /// `time=2s` needs no quotes.
    pub fn with_settings(&self, settings: &[String]) -> Result<Self, ConfigError> {
        let before: Table = self.parse()?;
        let (mut table, mut paths) = (before.clone(), Vec::new());
        for setting in settings {
            let (keys, value) = split(setting)?;
            set(&mut table, &keys, value)
                .map_err(|error| ConfigError { path: argument(setting), ..error })?;
            paths.push(keys);
        }
        let refuse = |error: String| ConfigError::whole_file(self.path(), error);
        let text = toml::to_string(&table).map_err(|error| refuse(error.to_string()))?;
        let written = DeTable::parse(&text).map_err(|error| refuse(error.to_string()))?;
        let places = paths.iter().map(|keys| place(written.get_ref(), Some(&before), keys));
        let arguments = places.zip(settings);
        let arguments = arguments.filter_map(|(place, set)| Some((place?, argument(set))));
        Ok(Self::new(self.path(), &text).with_arguments(arguments.collect()))
    }
}

/// How a setting is written on the command line.
fn argument(setting: &str) -> String {
    match setting.strip_prefix("drive=") {
        Some(drive) => format!("--drive {drive}"),
        None => format!("--set {setting}"),
    }
}

/// Where a setting is written: from the first of its keys that is not in the table before it, to the end of its value.
fn place(table: &DeTable, before: Option<&Table>, keys: &[String]) -> Option<Range<usize>> {
    let (first, rest) = keys.split_first()?;
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == first)?;
    let known = before.and_then(|before| before.get(first));
    let whole = |end: usize| key.span().start..end.max(key.span().end);
    if rest.is_empty() {
        return Some(whole(value.span().end));
    }
    let inside = match value.get_ref() {
        DeValue::Table(below) => place(below, known.and_then(Value::as_table), rest)?,
        DeValue::Array(items) => {
            let name = |item: &Spanned<DeValue>| {
                let name = item.get_ref().get("name")?.get_ref().as_str()?.to_owned();
                Some(name)
            };
            let at = items.iter().position(|item| name(item).as_ref() == Some(&rest[0]))?;
            let known = known.and_then(|known| known.get(at)?.as_table());
            place(items.get(at)?.get_ref().as_table()?, known, &rest[1..])?
        }
        _ => return None,
    };
    Some(if known.is_some() { inside } else { whole(inside.end) })
}

/// The path and the value of a setting.
fn split(setting: &str) -> Result<(Vec<String>, Value), ConfigError> {
    let refuse = |message: &str| ConfigError::whole_file(&argument(setting), message);
    let Some((path, value)) = setting.split_once('=') else {
        return Err(refuse("no `=` in it").allowed("KEY=VALUE"));
    };
    let mut keys = Vec::new();
    let mut table = toml::from_str::<Table>(&format!("{path} = 0")).ok();
    while let Some((key, below)) = table.and_then(|table| table.into_iter().next()) {
        keys.push(key);
        table = match below {
            Value::Table(below) => Some(below),
            _ => None,
        };
    }
    if keys.is_empty() {
        return Err(refuse("no key").allowed("keys with dots between them"));
    }
    let read = toml::from_str::<Table>(&format!("value = {value}")).ok();
    let read = read.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    Ok((keys, read.unwrap_or_else(|| Value::String(value.to_owned()))))
}

fn set(table: &mut Table, keys: &[String], value: Value) -> Result<(), ConfigError> {
    let refuse = |message: String| ConfigError::whole_file("", message);
    let Some((first, rest)) = keys.split_first() else {
        let error = refuse("a key is missing at its end".to_owned());
        return Err(error.allowed("KEY=VALUE, or KEY.NAME.KEY=VALUE for one of several tables"));
    };
    if rest.is_empty() {
        table.insert(first.clone(), value);
        return Ok(());
    }
    match table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(below) => set(below, rest, value),
        Value::Array(items) => {
            fn name(table: &Table) -> Option<&str> {
                table.get("name").and_then(Value::as_str)
            }
            let known = items.iter().filter_map(Value::as_table).filter_map(name);
            let known: Vec<String> = known.map(str::to_owned).collect();
            let mut tables = items.iter_mut().filter_map(Value::as_table_mut);
            match tables.find(|table| name(table) == Some(rest[0].as_str())) {
                Some(below) => set(below, &rest[1..], value),
                None if known.is_empty() => {
                    Err(refuse(format!("no `{}` is called `{}`: there is none", first, rest[0])))
                }
                None => {
                    let error = refuse(format!("no `{}` is called `{}`", first, rest[0]));
                    let near = known.iter().map(String::as_str);
                    Err(error.allowed(known.join(", ")).near(&rest[0], near))
                }
            }
        }
        _ => Err(refuse(format!("`{first}` has no keys in it"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "time = '2s'\n[policy.\"bfq-4.18\"]\nlow_latency = false\n\
        [[client]]\nname = 'a'\ncount = 1\n[[client]]\nname = 'b'\n";

    fn with(settings: &[&str]) -> Result<Table, ConfigError> {
        let settings: Vec<String> = settings.iter().map(|&text| text.to_owned()).collect();
        Source::new("x.toml", FILE).with_settings(&settings)?.parse()
    }

    /// Goal: a setting ends up where its path says, as what it is. Method: one setting a rule, and what must stay.
    #[test]
    fn settings_are_set() {
        let table = with(&[
            "time=10s",
            "seed=7",
            "stacks=[\"none-none\"]",
            "client.b.job=randread",
            "client.b.max={ read = \"1MB/s\" }",
            "policy.\"bfq-4.18\".slice_idle=0s",
            "host.journal=true",
        ]);
        let table = table.expect("good settings");
        assert_eq!(table["time"].as_str(), Some("10s"));
        assert_eq!(table["seed"].as_integer(), Some(7));
        assert_eq!(table["stacks"][0].as_str(), Some("none-none"));
        assert_eq!(table["client"][1]["job"].as_str(), Some("randread"));
        assert_eq!(table["client"][1]["max"]["read"].as_str(), Some("1MB/s"));
        assert_eq!(table["client"][0]["count"].as_integer(), Some(1));
        assert_eq!(table["policy"]["bfq-4.18"]["slice_idle"].as_str(), Some("0s"));
        assert_eq!(table["policy"]["bfq-4.18"]["low_latency"].as_bool(), Some(false));
        assert_eq!(table["host"]["journal"].as_bool(), Some(true));
    }

    /// Goal: an error in what a setting made names the setting, also that of a key it made; others name the file. Method: a wrong
    /// key, value and table each, found by the parser or later.
    #[test]
    fn errors_name_the_setting() {
        #[derive(serde::Deserialize, Debug)]
        #[serde(deny_unknown_fields)]
        struct File {
            time: Spanned<String>,
            #[expect(dead_code)]
            policy: Option<Table>,
            client: Vec<Client>,
        }
        #[derive(serde::Deserialize, Debug)]
        #[serde(deny_unknown_fields)]
        struct Client {
            name: Spanned<String>,
            count: Option<Spanned<u32>>,
        }
        let changed = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|&text| text.to_owned()).collect();
            Source::new("x.toml", FILE).with_settings(&settings).unwrap()
        };
        for (setting, message) in [
            ("tme=2s", "unknown key `tme`"),
            ("tme.x=2s", "unknown key `tme`"),
            ("client.b.cuont=3", "unknown key `cuont`"),
            ("client.a.count=many", "string \"many\" is not allowed here"),
            ("drive=x", "unknown key `drive`"),
        ] {
            let error = changed(&["time=3s", setting]).parse::<File>().unwrap_err();
            let argument =
                if setting == "drive=x" { "--drive x" } else { &format!("--set {setting}") };
            assert_eq!((&error.path[..], &error.message[..]), (argument, message), "{error}");
            assert!(error.place.is_none(), "{error}");
        }
        let source = changed(&["client.a.count=3", "time=3s"]);
        let file: File = source.parse().unwrap();
        let count = file.client[0].count.as_ref().unwrap().span();
        assert_eq!(source.error(count, "no").path, "--set client.a.count=3");
        assert_eq!(source.error(file.time.span(), "no").path, "--set time=3s");
        assert_eq!(source.error(file.client[1].name.span(), "no").path, "x.toml");
    }

    /// Goal: what cannot be set is refused with the setting. Method: one slip a rule.
    #[test]
    fn typing_errors_are_refused() {
        for (setting, message) in [
            ("time", "no `=`"),
            ("=3", "no key"),
            ("a b=3", "no key"),
            ("client.c.count=3", "no `client` is called `c`\n  allowed: a, b"),
            ("client.a=3", "a key is missing"),
            ("time.x=3", "no keys in it"),
        ] {
            let error = with(&[setting]).expect_err(setting).to_string();
            assert!(error.contains(message) && error.contains(setting), "{error}");
        }
    }
}
