//! What a change of contracts may destroy or move, and the refusal of what was not agreed to.

use std::path::{Path, absolute};

use iofair_config::contracts::Contracts;
use iofair_config::shell;

use crate::error::ServeError;

/// Volumes that are explained one by one.
const NAMED_MAX: usize = 16;

/// Consent to changes that cannot be undone or that need permission; each list names volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Consent {
    /// May shrink; data beyond the new size is lost.
    pub shrink: Vec<String>,
    /// May be created again in another group than the one for which their data was kept, or empty, if their file is
    /// missing.
    pub take_over: Vec<String>,
    /// Are removed from the contracts together with their data.
    pub delete: Vec<String>,
}

/// The consent that a volume needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    Shrink,
    TakeOver,
}

impl Needs {
    const fn flag(self) -> &'static str {
        match self {
            Self::Shrink => "--shrink",
            Self::TakeOver => "--take-over",
        }
    }
}

/// How a command that calls the server with these contracts begins, if it can be called on this host.
pub(crate) fn ctl(contracts: &Contracts) -> Option<String> {
    let socket = absolute(contracts.control.unix.as_deref()?).ok()?;
    Some(format!("iofair ctl --socket {}", shell::path(&socket)))
}

/// Volumes that cannot be as the contracts say without consent, and why.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Vec<(String, Needs, String)>);

impl Refusals {
    pub(crate) fn add(&mut self, volume: &str, needs: Needs, why: String) {
        self.0.push((volume.to_string(), needs, why));
    }
    /// One error for all of them, with the commands that give the consent.
    pub(crate) fn check(self, contracts: &Contracts, is_running: bool) -> Result<(), ServeError> {
        let Some((first, _, why)) = self.0.first() else { return Ok(()) };
        let others = self.0.iter().skip(1).take(NAMED_MAX - 1);
        let others = others.map(|(name, _, why)| format!("\nvolume \"{name}\": {why}"));
        let mut message = why.clone() + &others.collect::<String>();
        if self.0.len() > NAMED_MAX {
            message += &format!("\nand {} more volumes", self.0.len() - NAMED_MAX);
        }
        let told = Path::new(contracts.path());
        let file = if is_running { absolute(told).ok() } else { None };
        let file = shell::path(file.as_deref().unwrap_or(told));
        let flags = self.0.iter().map(|(name, needs, _)| {
            let name = shell::word(name);
            format!("{} {name} ", needs.flag())
        });
        let serve = format!("`iofair serve {}{file}`", flags.collect::<String>());
        message += &match is_running {
            false => format!("\n  to accept this: {serve}"),
            true => format!("\n  to accept this: {}a restart with {serve}", self.calls(contracts)),
        };
        Err(ServeError::volume(first, message))
    }
    /// The calls to a running server that give the consent, a line each.
    fn calls(&self, contracts: &Contracts) -> String {
        let Some(ctl) = ctl(contracts) else { return String::new() };
        let call = |(name, needs, _): &(String, Needs, String)| {
            let volume = contracts.volumes.iter().find(|volume| volume.name == *name)?;
            let (name, size, flag) = (shell::word(name), volume.size_bytes, needs.flag());
            let what = match needs {
                Needs::Shrink => format!("resize {name} {size}"),
                Needs::TakeOver => format!("create {name} {} {size}", shell::word(&volume.group)),
            };
            Some(format!("`{ctl} volume {what} {flag}`"))
        };
        let calls = self.0.iter().take(NAMED_MAX).filter_map(call).collect::<Vec<_>>();
        calls.join("\n  and ") + " (before it is in the contract file), or\n  "
    }
}
