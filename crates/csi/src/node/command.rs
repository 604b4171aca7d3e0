//! Programs of the system: mount, losetup, mkfs.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;
use tonic::Status;

/// A program may take this long: a file system is created on a volume that is zeroed meanwhile.
const TIMEOUT: Duration = Duration::from_secs(110);

/// What a program did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Done {
    /// Its exit status; `None` if a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs a program to its end, which is killed after [`TIMEOUT`].
///
/// # Errors
/// INTERNAL: it could not be started. `DEADLINE_EXCEEDED`: it took too long.
pub(super) async fn output<A: AsRef<OsStr>>(
    program: &str,
    arguments: &[A],
) -> Result<Done, Status> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let done = timeout(TIMEOUT, command.output()).await;
    let done = done.map_err(|_| {
        Status::deadline_exceeded(format!("{program} took more than {} s", TIMEOUT.as_secs()))
    })?;
    let done = done.map_err(|error| Status::internal(format!("{program}: {error}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    Ok(Done { code: done.status.code(), stdout: text(&done.stdout), stderr: text(&done.stderr) })
}

/// Runs a program that must succeed; returns what it printed.
///
/// # Errors
/// As [`output`], and INTERNAL with the program's message if it failed.
pub(super) async fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Result<String, Status> {
    let done = output(program, arguments).await?;
    if done.code == Some(0) {
        return Ok(done.stdout);
    }
    let code = done.code.map_or("a signal".to_string(), |code| format!("status {code}"));
    let message = if done.stderr.is_empty() { done.stdout } else { done.stderr };
    Err(Status::internal(format!("{program} ended with {code}: {message}")))
}
