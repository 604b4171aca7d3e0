//! Sweeps: a key of the file through several values, several keys multiplied out or sampled.
//!
//! A key of a client is set after the variant's own keys. Any other key is set in the file, and in the variant where a
//! variant can have it, as `--set` would; policies, host and drive are then resolved anew for that point.

use iofair_config::{ConfigError, Source, Spanned};
use iofair_core::controller::Stack;
use iofair_drive::random::Random;
use iofair_simulator::client_file::ClientFile;

use super::file::{ExperimentFile, SweepFile};
use super::machine;
use super::overrides::Overrides;
use super::stacks::stacks;

/// Tables and keys that may be swept, clients aside.
const ROOTS: [&str; 10] =
    ["drive", "group", "history", "host", "machine", "policy", "ramp", "stack", "stripe", "time"];
/// Those that a variant can have.
const OF_VARIANTS: [&str; 6] = ["drive", "host", "machine", "ramp", "stripe", "time"];
/// Most variants of one file.
pub(super) const VARIANTS_MAX: usize = 1_000;
/// Stream of random numbers of a sample: no client has it.
const STREAM: u64 = 0x5a3b_1e00;

/// One value of one sweep.
#[derive(Clone, Debug)]
pub(super) struct Value {
    /// The whole key and the value without quotes.
    pub(super) swept: (String, String),
    /// What the variant's name says of it.
    pub(super) label: String,
    /// A client's key.
    pub(super) client: Option<(usize, ClientFile)>,
    /// Another key with its value, as in `--set`.
    pub(super) setting: Option<(String, String)>,
}

/// A client and its key, or the key alone.
fn client_of(source: &Source, sweep: &SweepFile) -> Result<Option<(String, String)>, ConfigError> {
    let key = sweep.key.get_ref();
    if let Some(client) = &sweep.client {
        return Ok(Some((client.get_ref().clone(), key.clone())));
    }
    if let Some(rest) = key.strip_prefix("client.") {
        let (client, key) = rest.split_once('.').ok_or_else(|| {
            source
                .error(sweep.key.span(), format!("`{key}` is no key of a client"))
                .allowed("client.NAME.KEY")
        })?;
        return Ok(Some((client.to_owned(), key.to_owned())));
    }
    let root = key.split('.').next().unwrap_or_default();
    if !ROOTS.contains(&root) {
        let error = source.error(sweep.key.span(), format!("`{key}` cannot be swept"));
        let allowed = format!("client.NAME.KEY, or a key of {}", ROOTS.join(", "));
        return Err(error.allowed(allowed).near(root, ROOTS));
    }
    Ok(None)
}

pub(super) fn index_of(
    source: &Source,
    names: &[&str],
    client: &Spanned<String>,
) -> Result<usize, ConfigError> {
    names.iter().position(|name| name == client.get_ref()).ok_or_else(|| {
        let error = source.error(client.span(), format!("no client `{}`", client.get_ref()));
        error.allowed(names.join(", ")).near(client.get_ref(), names.iter().copied())
    })
}

fn value(
    source: &Source,
    sweep: &SweepFile,
    names: &[&str],
    value: &Spanned<toml::Value>,
) -> Result<Value, ConfigError> {
    let (key, written) = (sweep.key.get_ref(), &source.text()[value.span()]);
    let plain = written.trim_matches(['"', '\'']);
    let label = match &sweep.label {
        Some(label) => label.replace("{}", plain),
        None => format!("{key}={plain}"),
    };
    let Some((client, own)) = client_of(source, sweep)? else {
        let swept = (key.clone(), plain.to_owned());
        let setting = Some((key.clone(), written.to_owned()));
        return Ok(Value { swept, label, client: None, setting });
    };
    let name = match &sweep.client {
        Some(name) => name.clone(),
        None => Spanned::new(sweep.key.span(), client.clone()),
    };
    let index = index_of(source, names, &name)?;
    // Read as if the key stood in the client's own table; only the place of an error must be ours.
    let keys = iofair_config::parse::<ClientFile>(source.path(), &format!("{own} = {written}"));
    match keys {
        Ok(keys) if keys.name.is_none() => {
            let swept = (format!("client.{client}.{own}"), plain.to_owned());
            Ok(Value { swept, label, client: Some((index, keys)), setting: None })
        }
        Ok(_) => Err(source.error(sweep.key.span(), "a sweep cannot rename a client")),
        Err(error) => {
            let unknown = error.message.starts_with("unknown key");
            let span = if unknown { sweep.key.span() } else { value.span() };
            let place = source.error(span, "").place;
            Err(ConfigError { place, ..error })
        }
    }
}

/// All points: the values of the first sweep, each with those of the second, and so on; or a sample of them.
pub(super) fn points(
    source: &Source,
    file: &ExperimentFile,
    names: &[&str],
) -> Result<Vec<Vec<Value>>, ConfigError> {
    let mut axes: Vec<Vec<Value>> = Vec::new();
    for sweep in &file.sweep {
        let values = sweep.values.iter().map(|written| value(source, sweep, names, written));
        axes.push(values.collect::<Result<_, _>>()?);
    }
    if let Some(sample) = &file.sample {
        let count = *sample.get_ref() as usize;
        if count == 0 || count > VARIANTS_MAX || axes.is_empty() {
            let error = source.error(sample.span(), "no sample of sweeps");
            return Err(error.allowed(format!("1 to {VARIANTS_MAX}, beside a [[sweep]]")));
        }
        return Ok(latin_hypercube(&axes, count, file.seed));
    }
    let count = axes.iter().map(Vec::len).try_fold(1usize, usize::checked_mul);
    if count.is_none_or(|count| count > VARIANTS_MAX) {
        let message = format!("the sweeps have more than {VARIANTS_MAX} points");
        let error = ConfigError::whole_file(source.path(), message);
        return Err(error.allowed("fewer values, or `sample = N`"));
    }
    let mut points = vec![Vec::new()];
    for axis in &axes {
        let longer = |point: &Vec<Value>| -> Vec<Vec<Value>> {
            axis.iter()
                .map(|value| [point.as_slice(), std::slice::from_ref(value)].concat())
                .collect()
        };
        points = points.iter().flat_map(longer).collect();
    }
    Ok(points)
}

/// `count` points in which each axis takes all of its values equally often, in an order that chance decides (McKay,
/// Beckman and Conover 1979). Equal points are run once.
fn latin_hypercube(axes: &[Vec<Value>], count: usize, seed: u64) -> Vec<Vec<Value>> {
    let mut points: Vec<Vec<Value>> = vec![Vec::new(); count];
    for (index, axis) in axes.iter().enumerate() {
        let mut random = Random::new(seed, STREAM + index as u64);
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        for (point, place) in points.iter_mut().zip(order) {
            point.push(axis[place * axis.len() / count].clone());
        }
    }
    let mut seen: Vec<Vec<String>> = Vec::new();
    points.retain(|point| {
        let key: Vec<String> = point.iter().map(|value| value.swept.1.clone()).collect();
        let fresh = !seen.contains(&key);
        seen.extend(fresh.then_some(key));
        fresh
    });
    points
}

/// The file at a point, whose keys other than those of clients are set.
pub(super) struct Changed {
    pub(super) source: Source,
    pub(super) file: ExperimentFile,
    pub(super) stacks: Vec<(String, Stack)>,
}

/// Sets these keys in the file and, where they can be there, in the variant.
pub(super) fn changed(
    source: &Source,
    settings: &[(String, String)],
    variant: Option<&str>,
    overrides: &Overrides,
) -> Result<Changed, ConfigError> {
    let mut texts = Vec::new();
    for (key, value) in settings {
        texts.push(format!("{key}={value}"));
        let root = key.split('.').next().unwrap_or_default();
        if let Some(name) = variant.filter(|_| OF_VARIANTS.contains(&root)) {
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            texts.push(format!("variant.\"{name}\".{key}={value}"));
        }
    }
    let changed = source.with_settings(&texts)?;
    let file: ExperimentFile = changed.parse()?;
    let machine = machine::named(&changed, file.machine.as_ref(), None)?;
    let stacks = stacks(&changed, &file, machine.as_ref(), overrides)?;
    Ok(Changed { source: changed, file, stacks })
}

/// An error of a point, at the place of its first sweep that is not a client's.
pub(super) fn at_sweep(source: &Source, file: &ExperimentFile, error: ConfigError) -> ConfigError {
    let own =
        |sweep: &&SweepFile| sweep.client.is_none() && !sweep.key.get_ref().starts_with("client.");
    let Some(sweep) = file.sweep.iter().find(own) else { return error };
    let place = source.error(sweep.key.span(), "").place;
    ConfigError { path: source.path().to_owned(), place, ..error }
}

/// Sweeps of the command line, `KEY=VALUE,VALUE,...`, as a part of a file.
pub(super) fn written(sweeps: &[String]) -> Result<String, ConfigError> {
    let mut text = String::new();
    for sweep in sweeps {
        let refuse = |message: &str| {
            ConfigError::whole_file(&format!("--sweep {sweep}"), message)
                .allowed("KEY=VALUE,VALUE,...")
        };
        let (key, values) = sweep.split_once('=').ok_or_else(|| refuse("no `=` in it"))?;
        if values.is_empty() {
            return Err(refuse("no values"));
        }
        let is_toml = |value: &str| toml::from_str::<toml::Table>(&format!("x = {value}")).is_ok();
        let quoted = |value: &str| match is_toml(value) {
            true => value.to_owned(),
            false => toml::Value::String(value.to_owned()).to_string(),
        };
        let values: Vec<String> = values.split(',').map(|value| quoted(value.trim())).collect();
        let key = toml::Value::String(key.trim().to_owned());
        text += &format!("\n[[sweep]]\nkey = {key}\nvalues = [{}]\n", values.join(", "));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
