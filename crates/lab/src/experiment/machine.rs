//! The machine of an experiment file: a machine by its name and single values of its host, and stripes of drives.

use iofair_config::units::{Bytes, Time};
use iofair_config::{ConfigError, Source, Spanned};
use iofair_core::controller::{FlushRule, Stack};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::stripe::Geometry;

use super::draws::{Numbers, base};
use super::file::{ControlName, ExperimentFile, StripeFile, VariantFile};
use super::host_file::{HostFile, LayoutName, SchedulerTimes, WritebackName};
use crate::host;
use crate::machine::{self, Machine};
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

/// The machine that a file names.
pub(super) fn named(
    source: &Source,
    name: Option<&Spanned<String>>,
    numbers: Option<&Numbers>,
) -> Result<Option<Machine>, ConfigError> {
    let Some(name) = name else { return Ok(None) };
    let machine = load(name.get_ref(), numbers);
    machine.map(Some).ok_or_else(|| {
        let known: Vec<String> = machine::list().into_iter().map(|(name, _)| name).collect();
        let error = source.error(name.span(), format!("no machine `{}`", name.get_ref()));
        error.allowed(known.join(", ")).near(name.get_ref(), known.iter().map(String::as_str))
    })
}

fn load(name: &str, numbers: Option<&Numbers>) -> Option<Machine> {
    let file = format!("machines/{}", base(name));
    let other = numbers.map(|numbers| numbers.of_file(&file));
    machine::load_with(name, &|number| other.as_ref().and_then(|other| other(number)))
}

/// Drive, name of the machine, and host of a variant: its own drive, that of its machine, then those of the file. A drive
/// that is not the machine's is on the machine that it was measured on.
pub(super) fn setting(
    source: &Source,
    file: &ExperimentFile,
    variant: Option<&VariantFile>,
    numbers: Option<&Numbers>,
) -> Result<(String, String, Host), ConfigError> {
    let own = variant.and_then(|it| it.machine.as_ref());
    let machine = named(source, own.or(file.machine.as_ref()), numbers)?;
    let of_file = file.drive.as_ref().filter(|_| own.is_none());
    let written = variant.and_then(|it| it.drive.as_ref()).or(of_file);
    let drive = match (written, &machine) {
        (Some(written), _) => source.profile(written.get_ref()),
        (None, Some(machine)) => machine.drive.clone(),
        (None, None) => {
            let error = ConfigError::whole_file(source.path(), "no `machine` and no `drive`");
            return Err(error.allowed("a machine of profiles/machines, or a drive"));
        }
    };
    let machine = machine.filter(|machine| base(&machine.drive) == base(&drive));
    let machine = machine.unwrap_or_else(|| {
        load(machine::of_drive_or_any(&drive), numbers).expect("the list of machines names it")
    });
    let mut host = host::of(&machine);
    let keys = match variant {
        Some(variant) => variant.host.or(&file.host),
        None => file.host.clone(),
    };
    apply(&mut host, &keys);
    let Some(numbers) = numbers else { return Ok((drive, machine.name, host)) };
    host.start_spread = numbers.start_spread();
    Ok((numbers.drive(&drive), machine.name, host))
}

/// Sets what a file says.
pub(crate) fn apply(host: &mut Host, file: &HostFile) {
    match file.layout {
        None => {}
        Some(LayoutName::Contiguous) => host.layout = Layout::Contiguous { base_permille: 0 },
        Some(LayoutName::Ext3) => {
            let (base_permille, cold_percent) = (0, 0);
            host.layout = Layout::Ext3 { base_permille, cold_percent, sparse_writes: false };
        }
    }
    host.scheduling.times = match file.scheduler_times {
        None => host.scheduling.times,
        Some(SchedulerTimes::Articles) => host::SCHEDULERS,
        Some(SchedulerTimes::Linux618) => host::SCHEDULERS_6_18,
        Some(SchedulerTimes::None) => &[],
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
    time(&mut host.collect_window, file.collect_window);
    let size = |to: &mut Sectors, from: Option<Bytes>| {
        *to = from.map_or(*to, |bytes| bytes.sectors_ceil());
    };
    size(&mut host.read_ahead, file.read_ahead);
    size(&mut host.read_ahead_request, file.read_ahead_request);
    size(&mut host.writeback_request, file.writeback_request);
    size(&mut host.max_request, file.max_request);
    let number = |to: &mut u32, from: Option<u32>| *to = from.unwrap_or(*to);
    number(&mut host.turnaround_spread, file.turnaround_spread);
    number(&mut host.scheduling.wakeup_spread, file.dispatcher_spread);
    host.scheduling.on_completion =
        file.dispatch_on_completion.unwrap_or(host.scheduling.on_completion);
    host.scheduling.time = file.scheduler_time.map(|time| time.0).or(host.scheduling.time);
    number(&mut host.dirty_background_percent, file.dirty_background_percent);
    number(&mut host.dirty_percent, file.dirty_percent);
    match &mut host.layout {
        Layout::Contiguous { base_permille } => number(base_permille, file.base_permille),
        Layout::Ext3 { base_permille, cold_percent, sparse_writes } => {
            number(base_permille, file.base_permille);
            number(cold_percent, file.cold_percent);
            *sparse_writes = file.sparse_writes.unwrap_or(*sparse_writes);
        }
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
}
