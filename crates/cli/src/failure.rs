//! How a failure is told: the chain of causes on standard error, and the exit code.

use std::process::ExitCode;

use iofair_config::ConfigError;
use iofair_core::controller::StackError;
use iofair_core::unit::UnitError;
use iofair_serve::ServeError;

use crate::output::{ReaderGone, say, without_controls};

/// Wrong usage that clap cannot know: an unknown policy, a directory without experiments.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Usage {}

/// Prints an error with its causes and chooses the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // `iofair list policies | head`: nothing went wrong.
    if error.is::<ReaderGone>() {
        return ExitCode::SUCCESS;
    }
    let mut text = format!("error: {error}");
    for cause in error.chain().skip(1) {
        text += &format!("\n  because: {cause}");
    }
    say(without_controls(&text));
    ExitCode::from(code(error))
}

/// 2 for what the user wrote, 1 for everything else.
fn code(error: &anyhow::Error) -> u8 {
    // `is` also sees what was attached with `context`, which the chain hides.
    let written = error.is::<Usage>()
        || error.chain().any(|cause| {
            cause.is::<Usage>()
                || cause.is::<ConfigError>()
                || cause.is::<StackError>()
                || cause.is::<UnitError>()
                || cause.downcast_ref().is_some_and(is_written)
        });
    if written { 2 } else { 1 }
}

/// Whether the contract file is wrong, or does not fit the drive.
fn is_written(error: &ServeError) -> bool {
    match error {
        ServeError::Full(error) => is_written(error),
        ServeError::Config(_) | ServeError::Infeasible(_) | ServeError::Refused(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use anyhow::Context;

    /// Goal: what the user wrote is 2, the rest 1, however deep it lies. Method: one of each.
    #[test]
    fn exit_codes_tell_usage_from_failure() {
        let usage = Err::<(), _>(Usage("no such policy".into())).context("list").unwrap_err();
        assert_eq!(code(&usage), 2);
        let config = Err::<(), _>(ConfigError::whole_file("a.toml", "bad")).context("serve");
        assert_eq!(code(&config.unwrap_err()), 2);
        let world = Err::<(), _>(io::Error::other("disk gone")).context("serve").unwrap_err();
        assert_eq!(code(&world), 1);
    }
}
