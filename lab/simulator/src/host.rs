//! Hosts: what lies between clients and engine, from the files of machines.

use iofair_config::units::{Bytes, Time};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

use crate::host_file::{HostFile, LayoutName, SchedulerTimes, WritebackName};
use crate::machine::{self, Machine};
use crate::scenario::{Host, JournalSpec, Layout, Scheduling, Writeback};

/// The host of a machine.
pub fn from_machine(machine: &Machine) -> Host {
    let mut host = bare();
    apply(&mut host, &machine.host);
    host
}

/// The host that the published rows of a drive were measured on; that of the PLEXTOR for other drives.
pub fn for_drive(drive: &str) -> Host {
    let machine = machine::load(machine::of_drive_or_any(drive));
    from_machine(&machine.expect("the list of machines names it"))
}

/// The 2018 article's machine.
pub fn host_2018() -> Host {
    for_drive("plextor-px256m5s")
}

/// A host before a machine's file is applied.
fn bare() -> Host {
    Host {
        turnaround: Nanos::ZERO,
        turnaround_write: Nanos::ZERO,
        // The sources' numbers do not tell it from the turnaround.
        process_wakeup: Nanos::ZERO,
        turnaround_spread: 0,
        start_apart: Nanos::ZERO,
        start_spread: Nanos::ZERO,
        scheduling: Scheduling::FREE,
        consume_window: Nanos::ZERO,
        consume_copy: Nanos::ZERO,
        produce_window: Nanos::ZERO,
        collect_window: Nanos::ZERO,
        read_ahead: Sectors::from_kib(128),
        read_ahead_request: Sectors::from_kib(128),
        memory: 8 << 30,
        dirty_background_percent: 10,
        dirty_percent: 20,
        writeback_request: Sectors::from_kib(1024),
        max_request: Sectors(u64::MAX),
        writeback: Writeback::Owner,
        layout: Layout::Contiguous { base_permille: 0 },
        journal: None,
        path: None,
        processors: None,
    }
}

/// Sets what a file says.
pub fn apply(host: &mut Host, file: &HostFile) {
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
        Some(SchedulerTimes::Articles) => SCHEDULERS,
        Some(SchedulerTimes::Linux618) => SCHEDULERS_6_18,
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

/// Time of a request beyond that with `none` on a virtual machine with Linux 6.18: one fio on a loop device over a file
/// in memory, 32 reads of 4 KiB in flight, which its processor limits to 272,000 requests a second, 241,000 with
/// mq-deadline, 234,000 with kyber and 178,000 with BFQ (medians of 5 runs in turns).
pub(crate) const SCHEDULERS_6_18: &[(&str, Nanos)] = &[
    ("bfq", Nanos(1_960)),
    ("bfq-6.18", Nanos(1_960)),
    ("mq-deadline", Nanos(470)),
    ("kyber", Nanos(600)),
];
/// What a request takes of the articles' machine in a scheduler, under its lock. BFQ: both articles call 400,000
/// requests a second its barrier on commodity processors, as Documentation/block/bfq-iosched.rst measured it
/// (i7-4850HQ); its hooks alone take 1.9 us of the article's i7-2760QM. mq-deadline: its hooks there, 0.7 us.
/// No source has a number for kyber.
pub(crate) const SCHEDULERS: &[(&str, Nanos)] = &[
    ("bfq", Nanos(2_500)),
    ("bfq-6.18", Nanos(2_500)),
    ("bfq-5.3", Nanos(2_500)),
    ("bfq-4.20", Nanos(2_500)),
    ("bfq-4.18", Nanos(2_500)),
    ("mq-deadline", Nanos(700)),
];
