//! The kernel's block tracepoints as text, from `trace_pipe`, `trace-cmd report` or `perf script`:
//!
//! ```text
//!    fio-4321    [001] d..1. 12345.678901: block_rq_issue: 8,0 R 4096 () 2048 + 8 be,0,4 [fio]
//! fio  4321 [001] 12345.679001: block:block_rq_complete: 8,0 R () 2048 + 8 be,0,4 [0]
//! ```
//!
//! that is process and pid, processor, flags or none, time, name, and what the tracepoint prints: device, letters, bytes and
//! command or neither, first sector, sectors, priority or none, and process or error. Other tracepoints are left out.

use iofair_core::request::Operation;
use iofair_core::time::Instant;

use super::blkparse::{Layout, device};
use super::events::{Action, Event, letters};
use super::fields::{Fault, Fields, decimal, range};
use crate::names::Names;

/// How its lines are read.
pub(super) const LAYOUT: Layout = Layout {
    is_event: |line| parts(line).is_some(),
    // The kernel's count of events that it overwrote.
    is_summary: |line| line.starts_with("CPU:") && line.contains("[LOST "),
    parse,
    wrong: "not a tracepoint, which has a processor such as [001], a time and a name",
};

/// What every tracepoint prints.
struct Parts<'a> {
    pid: &'a str,
    at: Instant,
    name: &'a str,
    rest: &'a str,
}

/// The parts of a line that is a tracepoint.
fn parts(line: &str) -> Option<Parts<'_>> {
    // A process may have brackets in its name, too.
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let is_processor = |text: &str| !text.is_empty() && text.bytes().all(is_digit);
    let brackets = line.match_indices(" [").map(|(at, _)| at);
    let found = brackets.filter_map(|at| {
        let (processor, rest) = line[at + 2..].split_once(']')?;
        is_processor(processor).then_some((&line[..at], rest))
    });
    for (task, rest) in found {
        let mut fields = Fields::spaces(rest);
        let mut time = fields.optional()?;
        if !time.ends_with(':') {
            time = fields.optional()?;
        }
        let time = time.strip_suffix(':').and_then(|time| decimal(time, 1_000_000_000));
        let name = fields.optional().and_then(|name| name.strip_suffix(':'));
        if let (Some(time), Some(name)) = (time, name) {
            // `perf script` may print `PID/TID`, and the kernel the number of the process in parentheses behind that of the thread.
            let task = task.split_once(" (").map_or(task, |(task, _)| task);
            let pid = task.trim_end().rsplit([' ', '-', '/']).next()?;
            return Some(Parts { pid, at: Instant(time), name, rest: fields.rest() });
        }
    }
    None
}

fn parse(line: &str, names: &mut Names) -> Result<Option<Event>, Fault> {
    let Parts { pid, at, name, rest } = parts(line).ok_or("not a tracepoint")?;
    let action = match name.rsplit(':').next().unwrap_or(name) {
        "block_bio_queue" => Action::Queued,
        "block_rq_insert" => Action::Inserted,
        "block_rq_issue" => Action::Issued,
        // The second is of devices without a request queue, such as device-mapper and md.
        "block_rq_complete" | "block_bio_complete" => Action::Completed { failed: false },
        _ => return Ok(None),
    };
    let mut fields = Fields::spaces(rest);
    let volume = fields.text("device")?;
    device(volume).ok_or_else(|| format!("device `{volume}`: not MAJOR,MINOR"))?;
    let word = fields.text("operation")?;
    let Some((mut operation, flags)) = letters(word) else { return Ok(None) };
    let (place, last) =
        fields.rest().rsplit_once(" [").ok_or("the process or error in [] is missing")?;
    let last = last.strip_suffix(']').ok_or("the `]` behind the process or error is missing")?;
    let (before, after) = place.split_once(" + ").ok_or("SECTOR + SECTORS is missing")?;
    let first = before.split_whitespace().next_back().unwrap_or("");
    let (offset, length) = range(first, after.split_whitespace().next().unwrap_or(""))?;
    if length == 0 && word.contains('F') {
        // An empty write with a flush before it.
        operation = Operation::Flush;
    }
    let volume = names.volume(volume);
    let (action, stream) = match action {
        Action::Completed { .. } => (Action::Completed { failed: last != "0" }, 0),
        action => (action, names.stream(&format!("{last}.{pid}"), volume)),
    };
    Ok(Some(Event { at, action, operation, flags, offset, length, volume, stream }))
}
