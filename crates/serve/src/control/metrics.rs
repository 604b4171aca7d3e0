//! The server's counters for Prometheus: text format 0.0.4.
//!
//! Names and labels are a public interface: dashboards such as `packaging/grafana/iofair.json` use them, and a test
//! looks for every one that it uses.

use std::fmt::{Display, Write as _};

use iofair_config::contracts::Detail;
use iofair_core::time::{Instant, Nanos};

use super::files::Files;
use super::live::{GroupMoment, Moment, VolumeMoment, bounds};
use super::usage::seconds;
use crate::engine::tally::{Step, Times};
use crate::log;
use crate::pool::zeroing::Progress;
use crate::reactor::refusals::Refusal;

/// What the text is.
pub(super) const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

const DIRECTIONS: [&str; 2] = ["read", "write"];

/// The text as it grows.
struct Page(String);

/// Labels of a line: names and values.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}")
            .expect("writing to a string");
    }
    fn line(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.0 += name;
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.0, "{before}{label}=\"{text}\"").expect("writing to a string");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{close} {value}").expect("writing to a string");
    }
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }
}

/// The page.
pub(super) fn page(
    moment: &Moment,
    files: &Files,
    zeroing: Option<&Progress>,
    detail: Detail,
) -> String {
    let mut page = Page(String::new());
    server(&mut page, moment);
    storage(&mut page, files);
    if let Some(zeroing) = zeroing {
        pool(&mut page, zeroing);
    }
    if detail >= Detail::Groups {
        let below_root = moment.groups.get(1..).unwrap_or_default();
        groups(&mut page, below_root);
        times(&mut page, below_root);
    }
    if detail >= Detail::Volumes {
        volumes(&mut page, moment);
    }
    page.0
}

fn server(page: &mut Page, moment: &Moment) {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("stack", moment.stack.as_str())];
    page.family("iofair_info", "gauge", "Version and stack; always 1.");
    page.line("iofair_info", &labels, 1);
    let (counter, gauge) = ("counter", "gauge");
    page.single("iofair_uptime_seconds", gauge, "Time since the start.", seconds(moment.uptime));
    page.single("iofair_connections", gauge, "Connected clients.", moment.connections);
    page.single("iofair_requests_in_flight", gauge, "Requests in flight.", moment.inside);
    let help = "Commands at the drive.";
    page.single("iofair_drive_commands", gauge, help, moment.commands);
    let now = Instant(moment.uptime.0);
    let help = "Time for which every read, write or flush at the drive has failed; 0: none does.";
    let failing = moment.failures.drive.map_or(Nanos::ZERO, |run| now.since(run.since));
    page.single("iofair_drive_failing_seconds", gauge, help, seconds(failing));
    let help = "Volumes of which every read, write or flush has failed since some time.";
    page.single("iofair_failing_volumes", gauge, help, moment.failures.volume_count);
    let help = "Queue depth of the drive.";
    page.single("iofair_drive_depth", gauge, help, moment.depth);
    let help = "Time in which the drive had at least one command.";
    page.single("iofair_drive_busy_seconds_total", counter, help, seconds(moment.drive_busy));
    let help = "Processor time of the reactor thread.";
    page.single("iofair_reactor_busy_seconds_total", counter, help, seconds(moment.reactor_busy));
    let help = "Processor time of the reactor for clients that have not chosen a volume.";
    page.single("iofair_handshake_cpu_seconds_total", counter, help, seconds(moment.handshake_cpu));
    let help = "Lines of the log that were not written: too many from one source, or standard error or output failed.";
    page.single("iofair_log_lines_lost_total", counter, help, log::lost());
    let name = "iofair_connections_refused_total";
    page.family(name, counter, "Clients refused before they had a volume, and callers, by reason.");
    for (refusal, count) in Refusal::all().zip(moment.refused) {
        page.line(name, &[("reason", refusal.name())], count);
    }
    page.family("iofair_policy", gauge, "Counters of the policies, in the unit of their name.");
    for (name, value) in &moment.gauges {
        page.line("iofair_policy", &[("gauge", name)], value);
    }
}

fn storage(page: &mut Page, files: &Files) {
    let seen = files.seen();
    if let Some(free) = seen.free {
        page.single("iofair_free_bytes", "gauge", "Bytes that new volumes can have.", free.new);
        let (name, help) = (
            "iofair_path_free_bytes",
            "Bytes that another file system has for the files of volumes with `path` beyond what they take, by a directory on it.",
        );
        if !free.elsewhere.is_empty() {
            page.family(name, "gauge", help);
        }
        for (directory, bytes) in &free.elsewhere {
            page.line(name, &[("directory", directory.to_string_lossy().as_ref())], bytes);
        }
    }
    let help = "Whether somebody else has unmounted the directory with volumes as files.";
    page.single("iofair_unmounted", "gauge", help, u8::from(seen.unmounted.is_some()));
    let help =
        "Files that hold volumes and were removed, moved or truncated while they are served.";
    page.single("iofair_removed_files", "gauge", help, seen.removed.len());
}

fn pool(page: &mut Page, zeroing: &Progress) {
    let help = "Free space of the pool that must be zeroed before reuse.";
    page.single("iofair_pool_dirty_bytes", "gauge", help, zeroing.dirty_bytes());
    let help = "Bytes of the pool zeroed since the start.";
    page.single("iofair_pool_zeroed_bytes_total", "counter", help, zeroing.zeroed_bytes());
}

fn groups(page: &mut Page, groups: &[GroupMoment]) {
    let mut by_direction = |name: &str, help: &str, of: fn(&GroupMoment) -> [u64; 2]| {
        page.family(name, "counter", help);
        for group in groups {
            for (direction, value) in DIRECTIONS.iter().zip(of(group)) {
                page.line(name, &[("group", &group.name), ("direction", direction)], value);
            }
        }
    };
    let help = "Completed requests of volumes directly in the group.";
    by_direction("iofair_group_requests_total", help, |group| group.tally.requests);
    let help = "Bytes of completed requests of volumes directly in the group; trims have none.";
    by_direction("iofair_group_bytes_total", help, |group| group.tally.bytes);
    let mut each = |name: &str, kind: &str, help: &str, of: fn(&GroupMoment) -> Option<f64>| {
        page.family(name, kind, help);
        for group in groups {
            if let Some(value) = of(group) {
                page.line(name, &[("group", &group.name)], value);
            }
        }
    };
    let help = "Completed flushes of volumes directly in the group.";
    each("iofair_group_flushes_total", "counter", help, |g| Some(g.tally.flushes as f64));
    let help = "Completed trims of volumes directly in the group; they also count as writes.";
    each("iofair_group_trims_total", "counter", help, |g| Some(g.tally.trims as f64));
    let help =
        "Completed write-zeroes of volumes directly in the group; they also count as writes.";
    each("iofair_group_zeroes_total", "counter", help, |g| Some(g.tally.zeroes as f64));
    let help = "Block-status requests of volumes directly in the group.";
    let statuses = |g: &GroupMoment| Some(g.tally.block_statuses as f64);
    each("iofair_group_block_statuses_total", "counter", help, statuses);
    let help = "Failed and refused requests of volumes directly in the group.";
    each("iofair_group_failures_total", "counter", help, |g| Some(g.tally.failed as f64));
    let help = "Requests of volumes directly in the group that a front end refused.";
    each("iofair_group_refusals_total", "counter", help, |g| Some(g.tally.refused as f64));
    let help = "Times that a client had to wait for a request slot, memory or another block-status request.";
    each("iofair_group_stalls_total", "counter", help, |g| Some(g.tally.stalls as f64));
    let help = "Calls to the control socket that named the group or a volume directly in it.";
    let calls = |g: &GroupMoment| Some(g.tally.control_calls as f64);
    each("iofair_group_control_calls_total", "counter", help, calls);
    let help = "Request slots held by volumes directly in the group.";
    each("iofair_group_request_slots", "gauge", help, |g| Some(g.holds.slots as f64));
    let help = "Payload held by clients of volumes directly in the group, beyond 128 KiB each.";
    each("iofair_group_memory_bytes", "gauge", help, |g| Some(g.holds.memory as f64));
    let help = "Requests in flight of the group and the groups inside it.";
    each("iofair_group_requests_in_flight", "gauge", help, |g| Some(g.tally.inside as f64));
    let help = "Bytes in the last second of the group and the groups inside it.";
    each("iofair_group_bytes_per_second", "gauge", help, |g| Some(g.tally.last.rate() as f64));
    let help = "Guaranteed minimum in bytes a second.";
    let minimum = |g: &GroupMoment| g.minimum.bytes_per_s.map(|min| min as f64);
    each("iofair_group_minimum_bytes_per_second", "gauge", help, minimum);
    let help = "Guaranteed minimum in I/Os a second, of at most 16 KiB each.";
    let minimum = |g: &GroupMoment| g.minimum.ios_per_s.map(|min| min as f64);
    each("iofair_group_minimum_ios_per_second", "gauge", help, minimum);
    let help = "Weight in force.";
    each("iofair_group_weight", "gauge", help, |g| Some(f64::from(g.weight)));
    let help = "Share of the drive by class and weight: among the groups that were busy in the last second, or among all groups if it was not.";
    each("iofair_group_share_promised", "gauge", help, |g| g.promised);
    let help = "Share of all bytes of the last second that the group got.";
    each("iofair_group_share_got", "gauge", help, |g| Some(g.got));
    let help = "Seconds in which the minimum was not kept: the group was overdue for more than a twentieth of them.";
    let broken = |g: &GroupMoment| Some(g.tally.broken_seconds as f64);
    each("iofair_group_broken_promise_seconds_total", "counter", help, broken);
    let help = "Processor time spent on volumes directly in the group.";
    each("iofair_group_cpu_seconds_total", "counter", help, |g| Some(seconds(g.tally.cpu)));
    let help = "Processor time of the last second in per cent of one core, of the group and the groups inside it.";
    each("iofair_group_cpu_percent", "gauge", help, |g| Some(g.tally.last.cpu_percent()));
}

/// A histogram a group, step and direction that anything was counted in.
fn times(page: &mut Page, groups: &[GroupMoment]) {
    const NAME: &str = "iofair_group_step_seconds";
    let help =
        "Time of requests in each step: held by throttles, queued in the scheduler, at the drive.";
    page.family(NAME, "histogram", help);
    for group in groups {
        let own = ("group", group.name.as_str());
        for step in Step::ALL {
            let kind = ("step", step.word());
            for (direction, times) in DIRECTIONS.iter().zip(&group.tally.times[step as usize]) {
                if times.count() > 0 {
                    histogram(page, NAME, [own, kind, ("direction", direction)], times);
                }
            }
        }
    }
}

fn histogram(page: &mut Page, name: &str, labels: [(&str, &str); 3], times: &Times) {
    let mut total = 0;
    let bucket = format!("{name}_bucket");
    for (bound, count) in bounds().zip(times.counts) {
        total += count;
        let le = bound.to_string();
        page.line(&bucket, &[&labels[..], &[("le", le.as_str())]].concat(), total);
    }
    let count = times.count();
    page.line(&bucket, &[&labels[..], &[("le", "+Inf")]].concat(), count);
    page.line(&format!("{name}_sum"), &labels, times.sum as f64 / 1e9);
    page.line(&format!("{name}_count"), &labels, count);
}

/// A number of a volume.
type Of<T> = fn(&VolumeMoment) -> T;

fn volumes(page: &mut Page, moment: &Moment) {
    const FAILING: &str = "iofair_volume_failing_seconds";
    let help = "Time for which every read, write or flush of the volume has failed; 0: none does.";
    page.family(FAILING, "gauge", help);
    let now = Instant(moment.uptime.0);
    for volume in &moment.volumes {
        let labels = [("volume", volume.name.as_str()), ("group", volume.group.as_str())];
        let time = volume.failing_since.map_or(Nanos::ZERO, |since| now.since(since));
        page.line(FAILING, &labels, seconds(time));
    }
    let mut by_direction = |name: &str, help: &str, of: Of<[u64; 2]>| {
        page.family(name, "counter", help);
        for volume in &moment.volumes {
            let (own, group) = (volume.name.as_str(), volume.group.as_str());
            for (direction, value) in DIRECTIONS.iter().zip(of(volume)) {
                let labels = [("volume", own), ("group", group), ("direction", direction)];
                page.line(name, &labels, value);
            }
        }
    };
    by_direction("iofair_volume_requests_total", "Completed requests.", |volume| volume.requests);
    by_direction("iofair_volume_bytes_total", "Bytes of completed requests.", |volume| {
        volume.bytes
    });
    let mut each = |name: &str, kind: &str, help: &str, of: Of<u64>| {
        page.family(name, kind, help);
        for volume in &moment.volumes {
            let labels = [("volume", volume.name.as_str()), ("group", volume.group.as_str())];
            page.line(name, &labels, of(volume));
        }
    };
    each("iofair_volume_flushes_total", "counter", "Completed flushes.", |volume| volume.flushes);
    each("iofair_volume_failures_total", "counter", "Failed requests.", |volume| volume.failed);
    let help = "Failed flushes after which completed writes may be lost.";
    each("iofair_volume_losses_total", "counter", help, |volume| volume.losses);
    let connections: Of<u64> = |volume| volume.connections.into();
    each("iofair_volume_connections", "gauge", "Connected clients.", connections);
}
