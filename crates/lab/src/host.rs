//! The machines of the published experiments, as [`Host`] presets.
//!
//! Numbers that the measured rows identify are those whose residuals docs/drives.md
//! prints. Where no row says anything, the field is marked "free": a plausible value
//! that a reader may change.

use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

use crate::scenario::{Host, Layout, Scheduling, Writeback};

/// A preset: its name and what builds it.
pub type Preset = (&'static str, fn() -> Host);

/// All presets.
pub const PRESETS: &[Preset] = &[
    ("host-2018", host_2018),
    ("host-970-pro", host_970_pro),
    ("host-nvme-2015", host_nvme_2015),
    ("host-nvme-2021", host_nvme_2021),
    ("host-hitachi", host_hitachi),
    ("host-2009", host_2009),
];

/// The preset of this name.
pub fn preset(name: &str) -> Option<Host> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, build)| build())
}

/// The host that the published rows of a drive were measured on; [`host_2018`] for other drives.
pub fn for_drive(drive: &str) -> Host {
    let profile = drive.split(':').next().unwrap_or(drive);
    match profile {
        "samsung-970-pro" => host_970_pro(),
        "nvme-2015" => host_nvme_2015(),
        "nvme-2021" => host_nvme_2021(),
        "hitachi-hts727550a9e364" => host_hitachi(),
        "sata-7200-2009" => host_2009(),
        _ => host_2018(),
    }
}

/// What a request takes of the articles' machine in a scheduler, under its lock. BFQ: both articles call 400,000
/// requests a second its barrier on commodity processors, as Documentation/block/bfq-iosched.rst measured it
/// (i7-4850HQ); its hooks alone take 1.9 us of the article's i7-2760QM. mq-deadline: its hooks there, 0.7 us.
/// No source has a number for kyber.
const SCHEDULERS: &[(&str, Nanos)] = &[
    ("bfq", Nanos(2_500)),
    ("bfq-5.3", Nanos(2_500)),
    ("bfq-4.20", Nanos(2_500)),
    ("bfq-4.18", Nanos(2_500)),
    ("mq-deadline", Nanos(700)),
];

/// The dispatcher runs on the processor that took the completion's interrupt, which is awake: blk-mq queues its work
/// without binding it where there is one hardware queue (`blk_mq_hctx_next_cpu`), which prefers the local processor
/// (`WORK_CPU_UNBOUND`), with several on the queue's own; and kblockd is of high priority. What is left is a switch
/// to its thread: 1.2 to 2.2 us on Linux (Bendersky, "Measuring context switching and memory overheads for Linux
/// threads", 2018).
const WOKEN: Scheduling =
    Scheduling { wakeup: Nanos(1_700), wakeup_spread: 30, ..Scheduling::FREE };

/// The S suite's loop forks a shell of its own for each client (bandwidth-latency.sh), which puts itself into its cgroup
/// and then starts fio. Free: a loop of such forks alone takes 0.5 ms each; 1 to 4 ms give the same.
const START_APART: Nanos = Nanos::from_millis(2);

/// The 2018 article's machine (i7-2760QM) with the PLEXTOR PX-256M5S: h 11 us, H 620 us.
pub fn host_2018() -> Host {
    Host {
        turnaround: Nanos::from_micros(11),
        turnaround_write: Nanos::from_micros(11),
        // The sources' numbers do not tell it from the turnaround.
        process_wakeup: Nanos::ZERO,
        turnaround_spread: 30,
        start_apart: START_APART,
        scheduling: Scheduling { times: SCHEDULERS, ..WOKEN },
        consume_window: Nanos::from_micros(620),
        // Free: 256 KiB of fresh pages at 2.6 GB/s. No row has a buffered reader of longer calls; anything below
        // the drive's own 490 us makes such a reader as fast as the drive.
        consume_copy: Nanos::from_micros(100),
        // Free: 64 calls of 4 KiB at 1.9 us each.
        produce_window: Nanos::from_micros(120),
        // Twice the kernel's default of 128 KiB, because fio declares sequential files.
        read_ahead: Sectors::from_kib(256),
        read_ahead_request: Sectors::from_kib(256),
        // Free, as is everything about dirty memory but the kernel's two percentages.
        memory: 8 << 30,
        dirty_background_percent: 10,
        dirty_percent: 20,
        // A bio holds 256 pages (BIO_MAX_PAGES).
        writeback_request: Sectors::from_kib(1024),
        // fio reopens its file for each loop and drops the cache (FADV_DONTNEED), which makes the writer
        // itself start the writeback: its group pays, under cgroup v1 too.
        writeback: Writeback::Writer,
        layout: Layout::Contiguous { base_permille: 0 },
        journal: None,
        path: None,
        processors: None,
    }
}

/// NVMe drives: nothing runs the queue after a completion, but what BFQ schedules (when it leaves the drive empty and waits
/// for nobody), completions when there was no room in the drive, and flushes (`nvme_complete_rq`, `blk_mq_sched_restart`,
/// `bfq_completed_request`: Linux 4.18 to 5.14). SATA drives have it run after every completion (`scsi_end_request`).
const NVME: Scheduling = Scheduling { on_completion: false, ..WOKEN };

/// The machine with the SAMSUNG 970 PRO: h 10 us, H 115 us.
pub fn host_970_pro() -> Host {
    Host {
        turnaround: Nanos::from_micros(10),
        turnaround_write: Nanos::from_micros(10),
        scheduling: NVME,
        consume_window: Nanos::from_micros(115),
        consume_copy: Nanos::from_micros(60),
        // Free: half of what reading costs, as a rule of thumb for copies into fresh pages.
        produce_window: Nanos::from_micros(60),
        ..host_2018()
    }
}

/// The machine with the NVMe drive of 2015: h 10 us; its rows have no buffered client.
pub fn host_nvme_2015() -> Host {
    Host { start_apart: Nanos::ZERO, ..host_970_pro() }
}

/// A server beside a data-centre drive of 2021; free, since only data sheets are known: H 60 us.
pub fn host_nvme_2021() -> Host {
    Host {
        consume_window: Nanos::from_micros(60),
        consume_copy: Nanos::from_micros(30),
        produce_window: Nanos::from_micros(45),
        memory: 64 << 30,
        ..host_nvme_2015()
    }
}

/// The machine with the HITACHI HTS727550A9E364: two requests of 128 KiB in flight a buffered reader, 45
/// us of its own time for each; files side by side from 2 % of the disk on.
pub fn host_hitachi() -> Host {
    Host {
        turnaround: Nanos::from_micros(33),
        turnaround_write: Nanos::from_micros(33),
        turnaround_spread: 0,
        scheduling: Scheduling::FREE,
        consume_window: Nanos::from_micros(90),
        consume_copy: Nanos::from_micros(60),
        read_ahead: Sectors::from_kib(128),
        read_ahead_request: Sectors::from_kib(128),
        layout: Layout::Contiguous { base_permille: 20 },
        ..host_2018()
    }
}

/// The machine of the 2009 patches: ext3, half of the files with cold indirect blocks (which half is
/// an inference from the order of the published rows), holes in files that direct writers fill.
pub fn host_2009() -> Host {
    Host {
        turnaround: Nanos::from_micros(33),
        turnaround_write: Nanos::from_micros(36),
        turnaround_spread: 0,
        start_apart: Nanos::ZERO,
        scheduling: Scheduling::FREE,
        consume_window: Nanos::from_micros(90),
        consume_copy: Nanos::from_micros(60),
        read_ahead: Sectors::from_kib(128),
        read_ahead_request: Sectors::from_kib(128),
        memory: 2 << 30,
        // Free: between one page and max_sectors_kb of that time, 512.
        writeback_request: Sectors::from_kib(256),
        // No source says how pages found their owners; IO controller V10 charged them to who made them dirty,
        // and one thread of pdflush wrote them.
        writeback: Writeback::Owner,
        layout: Layout::Ext3 { base_permille: 20, cold_percent: 50, sparse_writes: true },
        ..host_2018()
    }
}
