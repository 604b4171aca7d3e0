//! The machine of an experiment file: a host by its preset and single values, and stripes of drives.

use iofair_config::units::{Bytes, Time};
use iofair_config::{ConfigError, Source, Spanned};
use iofair_core::controller::{FlushRule, Stack};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::stripe::Geometry;

use super::file::{ControlName, HostFile, StripeFile, WritebackName};
use crate::host;
use crate::scenario::{Control, Host, JournalSpec, Layout, StripeSpec, Writeback};

/// What flushes pass: nothing, unless the scheduler asks for them.
pub(super) fn flushes(stack: &Stack) -> FlushRule {
    if stack.schedules_flushes() { FlushRule::Scheduled } else { FlushRule::Bypass }
}

pub(super) fn stripe(file: &Spanned<StripeFile>) -> StripeSpec {
    let file = file.get_ref();
    let control = match file.control {
        ControlName::Logical => Control::Logical,
        ControlName::Leaf => Control::Leaf,
    };
    let geometry = Geometry { drives: file.drives, chunk: file.chunk.sectors_ceil() };
    StripeSpec { geometry, control }
}

pub(super) fn host_of(source: &Source, drive: &str, file: &HostFile) -> Result<Host, ConfigError> {
    let mut host = match &file.preset {
        None => host::for_drive(drive),
        Some(name) => host::preset(name.get_ref()).ok_or_else(|| {
            let known = host::PRESETS.iter().map(|(known, _)| *known);
            let error = source.error(name.span(), format!("no host `{}`", name.get_ref()));
            let allowed = known.clone().collect::<Vec<_>>().join(", ");
            error.allowed(allowed).near(name.get_ref(), known)
        })?,
    };
    let time = |to: &mut Nanos, from: Option<Time>| *to = from.map_or(*to, |time| time.0);
    time(&mut host.turnaround, file.turnaround);
    time(&mut host.turnaround_write, file.turnaround_write);
    time(&mut host.start_apart, file.start_apart);
    time(&mut host.scheduling.wakeup, file.dispatcher_wakeup);
    time(&mut host.scheduling.again, file.dispatch_again);
    time(&mut host.consume_window, file.consume_window);
    time(&mut host.consume_copy, file.consume_copy);
    time(&mut host.produce_window, file.produce_window);
    let size = |to: &mut Sectors, from: Option<Bytes>| {
        *to = from.map_or(*to, |bytes| bytes.sectors_ceil());
    };
    size(&mut host.read_ahead, file.read_ahead);
    size(&mut host.read_ahead_request, file.read_ahead_request);
    size(&mut host.writeback_request, file.writeback_request);
    let number = |to: &mut u32, from: Option<u32>| *to = from.unwrap_or(*to);
    number(&mut host.turnaround_spread, file.turnaround_spread);
    number(&mut host.scheduling.wakeup_spread, file.dispatcher_spread);
    host.scheduling.on_completion =
        file.dispatch_on_completion.unwrap_or(host.scheduling.on_completion);
    host.scheduling.time = file.scheduler_time.map(|time| time.0).or(host.scheduling.time);
    number(&mut host.dirty_background_percent, file.dirty_background_percent);
    number(&mut host.dirty_percent, file.dirty_percent);
    if let Layout::Ext3 { cold_percent, .. } = &mut host.layout {
        number(cold_percent, file.cold_percent);
    }
    host.memory = file.memory.map_or(host.memory, |bytes| bytes.0);
    host.writeback = match file.writeback {
        None => host.writeback,
        Some(WritebackName::Root) => Writeback::Root,
        Some(WritebackName::Owner) => Writeback::Owner,
        Some(WritebackName::Writer) => Writeback::Writer,
    };
    if file.journal == Some(true) {
        let group = file.journal_group.clone().unwrap_or_default();
        host.journal = Some(JournalSpec { group, barrier: file.barrier.unwrap_or(true) });
    }
    Ok(host)
}
