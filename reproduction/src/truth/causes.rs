//! Why the simulator deviates from the kernel, as far as it was found: a file beside the evidence, written by people. The
//! page shows each cause at the mixes that deviate; a cause of a mix that does not deviate is an error, so that the file
//! cannot outlive what it explains.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::evidence::Evidence;
use super::score::{Mix, Pair, mixes};

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Causes {
    /// The page's beginning, in Markdown, instead of the one about `reproduction/experiments/truth`.
    pub(crate) head: Option<String>,
    #[serde(default, rename = "cause")]
    causes: Vec<Cause>,
}

/// One cause.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cause {
    /// Mixes: `experiment [variant] stack`; each part may be `*`.
    mixes: Vec<String>,
    /// In sentences.
    why: String,
}

fn matches(pattern: &str, mix: &Mix<'_>) -> Result<bool> {
    let shape = || format!("`{pattern}`: expected `experiment [variant] stack`");
    let (experiment, rest) = pattern.split_once(" [").with_context(shape)?;
    let (variant, stack) = rest.rsplit_once("] ").with_context(shape)?;
    let row = &mix.rows[0];
    let parts = [(experiment, mix.short()), (variant, &row.variant), (stack, &row.stack)];
    Ok(parts.iter().all(|(pattern, part)| *pattern == "*" || pattern == part))
}

fn deviates(mix: &Mix<'_>) -> bool {
    mix.pairs(|row| &row.lab).iter().any(|pair| !Pair::is_near(pair))
}

impl Causes {
    /// Reads the causes beside the evidence in `file`, if there are any. `evidence` has the simulator's numbers.
    pub fn read(file: &Path, evidence: &Evidence) -> Result<Self> {
        let file = file.with_extension("causes.toml");
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(&file)?;
        let causes: Self = toml::from_str(&text).with_context(|| format!("{}", file.display()))?;
        let all = mixes(evidence);
        for pattern in causes.causes.iter().flat_map(|cause| &cause.mixes) {
            let mut found = false;
            for mix in &all {
                found |= matches(pattern, mix)? && deviates(mix);
            }
            if !found {
                bail!("{}: `{pattern}` names no mix that deviates", file.display());
            }
        }
        Ok(causes)
    }
    /// Each cause with the mixes that it explains, and the mixes without a cause at the end.
    pub(crate) fn explain<'a>(&self, evidence: &'a Evidence) -> Vec<(Option<&str>, Vec<Mix<'a>>)> {
        let deviating: Vec<Mix<'_>> = mixes(evidence).into_iter().filter(deviates).collect();
        let cause_of = |mix: &Mix<'_>| {
            let names = |pattern: &String| matches(pattern, mix).unwrap_or(false);
            self.causes.iter().position(|cause| cause.mixes.iter().any(names))
        };
        let mut explained = Vec::new();
        for (n, cause) in self.causes.iter().enumerate() {
            let its = deviating.iter().filter(|mix| cause_of(mix) == Some(n)).copied().collect();
            explained.push((Some(cause.why.trim()), its));
        }
        let rest: Vec<Mix<'_>> =
            deviating.iter().filter(|mix| cause_of(mix).is_none()).copied().collect();
        if !rest.is_empty() {
            explained.push((None, rest));
        }
        explained
    }
}
