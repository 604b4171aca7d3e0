//! How a failure is reported: the chain of causes on standard error, as text or with `--json` as a line of JSON, and the exit code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use iofair_config::{ConfigError, shell};
use iofair_core::controller::StackError;
use iofair_core::unit::UnitError;
use iofair_serve::ServeError;
use serde_json::{Value as Json, json};

use crate::output::{ReaderGone, say, without_controls};

/// Wrong usage that clap cannot know: an unknown policy, a directory without experiments.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Checks before long work that its results have a place. Nothing is created.
///
/// # Errors
/// The directory of a file is missing, the file is a directory, one of `inputs`, or `-`: results in files are not for standard output.
pub fn check_places<'a>(
    files: impl IntoIterator<Item = &'a PathBuf>,
    inputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Usage> {
    let inputs: Vec<PathBuf> =
        inputs.into_iter().filter_map(|input| fs::canonicalize(input).ok()).collect();
    for file in files {
        let name = file.display();
        let above = file.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        let wrong = match file {
            file if file.as_os_str() == "-" => {
                "`-` is no file: name one; ./- is a file of this name".to_owned()
            }
            file if file.is_dir() => format!("cannot write {name}: it is a directory"),
            file if fs::canonicalize(file).is_ok_and(|real| inputs.contains(&real)) => {
                format!("cannot write {name}: it is read by this command")
            }
            _ if !above.is_dir() => {
                format!("cannot write {name}: there is no directory {}", above.display())
            }
            _ => continue,
        };
        return Err(Usage(wrong));
    }
    Ok(())
}

/// What a server responded to a call that it refused.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Refused {
    /// For people.
    pub(crate) text: String,
    /// The fields of the response.
    pub(crate) error: Json,
    /// 4xx for what the user wrote, 5xx for what went wrong.
    pub(crate) status: u16,
}

/// An error as the HTTP API has it: `{"error": {"kind": ..., "message": ..., "text": ...}}`.
pub(crate) fn as_json(kind: &str, message: &str, text: &str) -> Json {
    json!({ "error": { "kind": kind, "message": message, "text": text } })
}

fn in_json(error: &anyhow::Error, text: &str) -> Json {
    if let Some(refused) = error.downcast_ref::<Refused>() {
        let mut fields = refused.error.clone();
        fields["text"] = json!(refused.text);
        return json!({ "error": fields });
    }
    let kind = if code(error) == 2 { "usage" } else { "failed" };
    as_json(kind, &error.to_string(), text)
}

/// How this program was called, if its name is another one: commands in messages are to be copied.
fn renamed() -> Option<String> {
    let program = PathBuf::from(std::env::args_os().next()?);
    let own =
        ["iofair", "iofair-lab"].iter().any(|name| program.file_name() == Some(name.as_ref()));
    (!own).then(|| shell::path(&program))
}

/// Prints an error with its causes and chooses the exit code.
pub fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    // `iofair list policies | head`: nothing went wrong.
    if error.is::<ReaderGone>() {
        return ExitCode::SUCCESS;
    }
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        text += &format!("\n  because: {cause}");
    }
    if let Some(program) = renamed() {
        text = text.replace("`iofair ", &format!("`{program} "));
    }
    match json {
        true => say(in_json(error, &text)),
        false => say(without_controls(&format!("error: {text}"))),
    }
    ExitCode::from(code(error))
}

/// 2 for what the user wrote, 1 for everything else.
fn code(error: &anyhow::Error) -> u8 {
    // `is` also sees what was attached with `context`, which the chain hides.
    let refused = |refused: &Refused| refused.status < 500;
    let written = error.is::<Usage>()
        || error.downcast_ref::<Refused>().is_some_and(refused)
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
        let refused = |status| Refused { text: "no".into(), error: json!({}), status };
        assert_eq!([422, 503].map(|status| code(&refused(status).into())), [2, 1]);
        let world = Err::<(), _>(io::Error::other("disk gone")).context("serve").unwrap_err();
        assert_eq!(code(&world), 1);
    }
}
