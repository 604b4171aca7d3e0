//! Settings from the command line that change keys of a file (`--set client.reader.count=7`), so that files can serve
//! as templates.
//!
//! The file is read as a table, changed, and written again, so the changed file goes through the same checks. Errors
//! quote the changed text. In an array of tables with a `name` (`[[client]]`), the name is part of the path.

use toml::{Table, Value};

use crate::error::ConfigError;
use crate::source::Source;

impl Source {
    /// The same file with these settings, each `path=value`. A value that is not valid TOML is taken as a string, so
    /// `time=2s` needs no quotes.
    pub fn with_settings(&self, settings: &[String]) -> Result<Self, ConfigError> {
        let mut table: Table = self.parse()?;
        for setting in settings {
            let (keys, value) = split(setting)?;
            set(&mut table, &keys, value)
                .map_err(|error| ConfigError { path: format!("--set {setting}"), ..error })?;
        }
        let text = toml::to_string(&table)
            .map_err(|error| ConfigError::whole_file(self.path(), error.to_string()))?;
        Ok(Self::new(self.path(), &text))
    }
}

/// The path and the value of a setting.
fn split(setting: &str) -> Result<(Vec<String>, Value), ConfigError> {
    let refuse = |message: &str| ConfigError::whole_file(&format!("--set {setting}"), message);
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
        return Err(refuse("a key is missing at its end".to_owned()));
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
        let settings: Vec<String> = settings.iter().map(|&it| it.to_owned()).collect();
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

    /// Goal: what cannot be set is refused with the setting. Method: one slip a rule.
    #[test]
    fn typing_errors_are_refused() {
        for (setting, message) in [
            ("time", "no `=`"),
            ("=3", "no key"),
            ("a b=3", "no key"),
            ("client.c.count=3", "no `client` is called `c`"),
            ("client.a=3", "a key is missing"),
            ("time.x=3", "no keys in it"),
        ] {
            let error = with(&[setting]).expect_err(setting).to_string();
            assert!(error.contains(message) && error.contains(setting), "{error}");
        }
    }
}
