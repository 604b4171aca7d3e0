//! Faults on purpose: `back = "faulty:..."` and the rules in `[drive.faults]`.
//!
//! ```toml
//! [drive]
//! back = "faulty:file:pool.img"
//! [drive.faults]
//! seed = 7                                          # optional: the same faults again
//! [[drive.faults.rule]]
//! fault = "eio"                                     # eio, enospc, short, never, delay, late
//! operation = "write"                               # optional: read, write, flush, discard
//! probability = 0.01                                # optional: 1 is always
//! volume = "alice"                                  # optional
//! range = { from = "1MiB", to = "2MiB" }            # optional: bytes within a volume
//! [[drive.faults.rule]]
//! fault = "delay"
//! delay = "500ms"
//! ```
//!
//! The word `faulty` is required, so that the rules do not stay in a file by mistake.

use std::ops::Range;

use iofair_core::time::Nanos;
use serde::Deserialize;

use super::table::{Table, tables};
use crate::errors::all;
use crate::name::listed;
use crate::units::{Bytes, Count, Time};
use crate::{ConfigError, Source, Spanned};

/// Faults on purpose.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// Of the random numbers that decide.
    pub seed: u64,
    /// The first one that suits a command and comes up decides on it.
    pub rules: Vec<FaultRule>,
}

/// One kind of fault, and whom it meets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRule {
    /// What happens.
    pub fault: Fault,
    /// To what.
    pub operation: Option<FaultyOperation>,
    /// In how many of a million cases.
    pub per_million: u32,
    /// On which volume.
    pub volume: Option<String>,
    /// Where in the volume, in bytes.
    pub range: Option<Range<u64>>,
}

/// What happens to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It fails: an input or output error.
    Eio,
    /// It fails: no space is left.
    Enospc,
    /// Only a part of it is done at first.
    Short,
    /// The request is never completed.
    Never,
    /// The request is completed this long after its arrival, at the earliest.
    Delay(Nanos),
    /// The request is executed this long after its arrival, and completed then.
    Late(Nanos),
}

/// What a rule of faults may be restricted to.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum FaultyOperation {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Trims and zeroes.
    Discard,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFaults {
    #[serde(default)]
    seed: Count,
    #[serde(default, deserialize_with = "tables")]
    rule: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    fault: Spanned<Name>,
    operation: Option<FaultyOperation>,
    probability: Option<Spanned<f64>>,
    volume: Option<Spanned<String>>,
    range: Option<Spanned<Table<RawRange>>>,
    delay: Option<Spanned<Time>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Name {
    Eio,
    Enospc,
    Short,
    Never,
    Delay,
    Late,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct RawRange {
    from: Option<Bytes>,
    to: Option<Bytes>,
}

/// Checks the rules; `faulty` says whether the back end asks for them.
pub(super) fn faults(
    source: &Source,
    written: Option<&Spanned<Table<RawFaults>>>,
    faulty: bool,
    volumes: &[&str],
) -> Result<Faults, ConfigError> {
    let Some(written) = written else { return Ok(Faults::default()) };
    if !faulty {
        let message = "rules for faults, but the back end is not a faulty one";
        let allowed = "back = \"faulty:...\", or no [drive.faults]";
        return Err(source.error(written.span(), message).allowed(allowed));
    }
    let RawFaults { seed, rule } = &**written.get_ref();
    let rules = all(rule.iter().map(|rule| check(source, rule, volumes)))?;
    Ok(Faults { seed: seed.0, rules })
}

fn check(source: &Source, rule: &RawRule, volumes: &[&str]) -> Result<FaultRule, ConfigError> {
    let fault = match (rule.fault.get_ref(), &rule.delay) {
        (Name::Delay, Some(delay)) if delay.get_ref().nanos().0 > 0 => {
            Fault::Delay(delay.get_ref().nanos())
        }
        (Name::Late, Some(delay)) if delay.get_ref().nanos().0 > 0 => {
            Fault::Late(delay.get_ref().nanos())
        }
        (Name::Delay | Name::Late, _) => {
            let error = source.error(rule.fault.span(), "a delay of how long?");
            return Err(error.allowed("delay = \"500ms\" beside it, more than 0"));
        }
        (_, Some(delay)) => {
            let error = source.error(delay.span(), "a fault of this kind has no delay");
            return Err(error.allowed("delay with fault = \"delay\" or \"late\" only"));
        }
        (Name::Eio, None) => Fault::Eio,
        (Name::Enospc, None) => Fault::Enospc,
        (Name::Short, None) => Fault::Short,
        (Name::Never, None) => Fault::Never,
    };
    let per_million = rule.probability.as_ref().map_or(Some(1_000_000), |probability| {
        let value = probability.get_ref() * 1e6;
        (1.0..=1e6).contains(&value).then_some(value.round() as u32)
    });
    let Some(per_million) = per_million else {
        let span = rule.probability.as_ref().map_or(0..0, Spanned::span);
        let error = source.error(span, "this is no probability");
        return Err(error.allowed("0.000001 to 1"));
    };
    if let Some(volume) = &rule.volume
        && !volumes.contains(&volume.get_ref().as_str())
    {
        let message = format!("there is no volume \"{}\"", volume.get_ref());
        let error = source.error(volume.span(), message);
        return Err(error.allowed(listed(volumes)).near(volume.get_ref(), volumes.iter().copied()));
    }
    let mut range = None;
    if let Some(written) = &rule.range {
        let RawRange { from, to } = **written.get_ref();
        let bytes = from.map_or(0, |from| from.0)..to.map_or(u64::MAX, |to| to.0);
        if bytes.is_empty() {
            let error = source.error(written.span(), "a range without a byte in it");
            return Err(error.allowed("{ from = \"1MiB\", to = \"2MiB\" }"));
        }
        range = Some(bytes);
    }
    let volume = rule.volume.as_ref().map(|volume| volume.get_ref().clone());
    Ok(FaultRule { fault, operation: rule.operation, per_million, volume, range })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::Contracts;

    fn read(back: &str, rules: &str) -> Result<Faults, ConfigError> {
        let text = format!(
            "[drive]\nback = '{back}'\nstack = 'none-none'\n{rules}\n[[group]]\nname = 'g'\n\
             [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n"
        );
        Contracts::parse("faults.toml", &text).map(|contracts| contracts.drive.faults)
    }

    /// Goal: rules say what is written, and bad ones are refused at their place. Method: every key once; one
    /// bad rule a mistake.
    #[test]
    fn rules_are_read() {
        let all = "[drive.faults]\nseed = 7\n[[drive.faults.rule]]\nfault = 'delay'\ndelay = '5ms'\n\
            operation = 'discard'\nprobability = 0.25\nvolume = 'v'\nrange = { from = '4KiB' }";
        let faults = read("faulty:memory:1MiB", all).expect("good rules");
        let rule = FaultRule {
            fault: Fault::Delay(Nanos::from_millis(5)),
            operation: Some(FaultyOperation::Discard),
            per_million: 250_000,
            volume: Some("v".into()),
            range: Some(4096..u64::MAX),
        };
        assert_eq!(faults, Faults { seed: 7, rules: vec![rule] });
        assert_eq!(read("faulty:memory:1MiB", "").expect("no rule yet"), Faults::default());
        let late =
            read("faulty:memory:1MiB", "[[drive.faults.rule]]\nfault = 'late'\ndelay = '1s'");
        assert_eq!(late.expect("a good rule").rules[0].fault, Fault::Late(Nanos::from_secs(1)));
        for (rule, message) in [
            ("fault = 'delay'", "how long"),
            ("fault = 'late'", "how long"),
            ("fault = 'eio'\ndelay = '1ms'", "has no delay"),
            ("fault = 'eoi'", "eoi"),
            ("fault = 'eio'\nprobability = 0.0", "no probability"),
            ("fault = 'eio'\nprobability = 1.5", "no probability"),
            ("fault = 'eio'\nvolume = 'w'", "no volume \"w\""),
            ("fault = 'eio'\nrange = { from = '4KiB', to = '4KiB' }", "without a byte"),
            ("fault = 'eio'\noperation = 'sync'", "sync"),
        ] {
            let text = format!("[[drive.faults.rule]]\n{rule}");
            let error = read("faulty:memory:1MiB", &text).expect_err(rule);
            assert!(error.message.contains(message), "{error}");
            assert!(error.line() >= 5, "{error}");
        }
        let error = read("memory:1MiB", "[drive.faults]").expect_err("not faulty");
        assert!(error.message.contains("not a faulty one"), "{error}");
        let error = read("faulty:faulty:memory:1MiB", "").expect_err("once is enough");
        assert!(error.message.contains("no back end"), "{error}");
    }
}
