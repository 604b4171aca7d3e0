//! Consent to changes that destroy or move data, and a refusal for want of it.

use iofair_config::shell;
use serde::{Deserialize, Serialize};

/// Consent to changes that cannot be undone or that need permission; each list names volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Consent {
    /// May shrink; data beyond the new size is lost.
    pub shrink: Vec<String>,
    /// May be created again in another group than the one for which their data was kept, or empty, if their file is
    /// missing.
    pub take_over: Vec<String>,
    /// Are removed from the contracts together with their data.
    pub delete: Vec<String>,
}

/// The refusal of contracts that need consent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unagreed {
    /// What is missing.
    pub missing: Consent,
    /// Why it is needed.
    pub why: String,
    /// The commands that give it, and what was given already.
    pub(crate) commands: String,
}

impl Consent {
    pub(crate) const fn lists(&self) -> [(&'static str, &Vec<String>); 3] {
        let Self { shrink, take_over, delete } = self;
        [("--take-over", take_over), ("--shrink", shrink), ("--delete-data", delete)]
    }
    /// This and more.
    #[must_use]
    pub fn and(&self, more: Self) -> Self {
        let both = |a: &[String], b: Vec<String>| [a, &b].concat();
        Self {
            shrink: both(&self.shrink, more.shrink),
            take_over: both(&self.take_over, more.take_over),
            delete: both(&self.delete, more.delete),
        }
    }
    /// As options of a command.
    pub fn options(&self) -> String {
        let options = |(flag, names): (&str, &Vec<String>)| {
            names.iter().map(|name| format!("{flag} {} ", shell::word(name))).collect::<String>()
        };
        self.lists().map(options).concat()
    }
    /// Whether there is any that concerns the data of new contracts.
    pub(crate) fn is_given(&self) -> bool {
        !self.shrink.is_empty() || !self.take_over.is_empty()
    }
}
