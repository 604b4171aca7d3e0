//! Names of options: those with a meaning here, and those that change nothing that is modelled.

use iofair_core::time::Nanos;

use super::problems::Bad;
use super::values;

/// Options with a meaning here.
pub const SUPPORTED: &[&str] = &[
    "allrandrepeat",
    "atomic",
    "ba",
    "blockalign",
    "blocksize",
    "blocksize_range",
    "blocksize_unaligned",
    "bs",
    "bs_unaligned",
    "bsrange",
    "bssplit",
    "buffered",
    "cgroup",
    "cgroup_weight",
    "cmdprio",
    "cmdprio_class",
    "cmdprio_percentage",
    "description",
    "direct",
    "directory",
    "do_verify",
    "end_fsync",
    "exit_what",
    "exitall",
    "fadvise_hint",
    "fdatasync",
    "file_service_type",
    "filename",
    "filename_format",
    "fileoffset",
    "filesize",
    "fill_device",
    "fill_fs",
    "fsync",
    "fsync_on_close",
    "group_reporting",
    "invalidate",
    "io_limit",
    "io_size",
    "io_submit_mode",
    "iodepth",
    "iodepth_batch",
    "iodepth_batch_complete",
    "iodepth_batch_complete_max",
    "iodepth_batch_complete_min",
    "iodepth_batch_submit",
    "iodepth_low",
    "ioengine",
    "kb_base",
    "latency_percentile",
    "latency_run",
    "latency_target",
    "latency_window",
    "log_avg_msec",
    "loops",
    "name",
    "new_group",
    "norandommap",
    "nr_files",
    "nrfiles",
    "number_ios",
    "numjobs",
    "offset",
    "offset_increment",
    "openfiles",
    "percentage_random",
    "prio",
    "prioclass",
    "ramp_time",
    "random_distribution",
    "randrepeat",
    "randseed",
    "rate",
    "rate_cycle",
    "rate_iops",
    "rate_iops_min",
    "rate_min",
    "rate_process",
    "ratecycle",
    "ratemin",
    "readwrite",
    "runtime",
    "rw",
    "rw_sequencer",
    "rwmixread",
    "rwmixwrite",
    "size",
    "startdelay",
    "stonewall",
    "sync",
    "thinktime",
    "thinktime_blocks",
    "time_based",
    "timeout",
    "uncached",
    "verify",
    "verify_backlog",
    "verify_only",
    "verify_pattern",
    "wait_for",
    "wait_for_previous",
    "zonemode",
    "zonerange",
    "zonesize",
    "zoneskip",
];

/// What stands behind an option without effect. fio refuses other values, too.
#[derive(Clone, Copy)]
enum Value {
    /// 0 or 1.
    Flag,
    /// Any number, or nothing.
    Switch,
    /// A number, from the least to the most.
    Number(i64, i64),
    /// A time.
    Time,
    /// One of these; what follows a colon is not looked at.
    Words(&'static str),
    /// Anything.
    Text,
}

use Value::{Flag, Number, Switch, Text, Time, Words};
const U32: i64 = u32::MAX as i64;

/// Options that change nothing that is modelled: how fio makes files and data, keeps time, places, starts and polls its workers,
/// registers memory, names remote drives, checks what it wrote if `verify` is on, and what it logs and prints.
const IGNORED: &[(Value, &str)] = &[
    (
        Flag,
        "allow_file_create allow_mounted_write block_error_percentiles cgroup_nodelete clat_percentiles \
     create_fsync create_on_open create_serialize dedupe_global disable_bw disable_bw_measurement \
     disable_clat disable_lat disable_slat disk_util error_dump experimental_verify gtod_reduce \
     lat_percentiles log_alternate_epoch log_max_value log_offset log_prio log_store_compressed \
     log_unix_epoch nowait overwrite per_job_logs replay_no_stall scramble_buffers serialize_overlap \
     slat_percentiles softrandommap stats unique_filename unlink unlink_each_loop verify_dump \
     verify_fatal verify_state_load verify_state_save",
    ),
    (
        Switch,
        "exitall_on_error fixedbufs hipri refill_buffers registerbufs registerfiles sqthread_poll thread \
     threads userspace_reap zero_buffers",
    ),
    (
        Number(0, U32),
        "buffer_compress_chunk bwavgtime force_async gid gtod_cpu hugepage-size iomem_align \
     log_alternate_epoch_clock_id log_hist_coarseness log_hist_msec mem_align nonvectored replay_align \
     replay_scale sqthread_poll_cpu uid verify_async verify_backlog_batch write_barrier",
    ),
    (
        Number(0, 100),
        "buffer_compress_percentage dedupe_percentage dedupe_working_set_percentage hipri_percentage",
    ),
    (Time, "ss_dur ss_ramp steadystate_duration steadystate_ramp_time thinktime_spin"),
    (
        Text,
        "apptag apptag_mask brick buffer_pattern busy_poll clientname clustername conf cpus_allowed cuda_io \
     enable_sgl enable_vmd exec_postrun exec_prerun gpu_dev_id gpu_dev_ids ignore_error ioscheduler \
     libblkio_driver libblkio_path libblkio_pre_connect_props libblkio_pre_start_props \
     log_compression_cpus log_issue_time log_window_value md_per_io_size mem_size_mb numa_cpu_nodes \
     numa_mem_policy percentile_list pi_act pi_chk pool rbdname replay_redirect replay_skip rocm_io \
     shm_id skip_bad spdk_conf spdk_json_conf spdk_mem ss_interval steadystate_check_interval thp uri \
     verify_async_cpus verify_header_seed verify_pattern_interval verify_write_sequence volume \
     write_bw_log write_hist_log write_iolog write_iops_log write_lat_log xnvme_async xnvme_be \
     xnvme_dev_nsid xnvme_iovec xnvme_mem xnvme_sync",
    ),
    (Number(0, i64::MAX), "cpumask lockmem"),
    (Number(1024, 1 << 29), "log_compression"),
    (Number(1024, 1 << 20), "log_entries"),
    (Number(-20, 19), "nice"),
    (Number(1, U32), "replay_time_scale"),
    (Number(1, 10), "significant_figures"),
    (Number(80, U32), "verify_interval"),
    (Number(40, U32), "verify_offset"),
    (Words("gettimeofday clock_gettime cpu"), "clocksource"),
    (Words("none read write io verify all 0 1"), "continue_on_error"),
    (Words("shared split"), "cpus_allowed_policy"),
    (Words("repeat working_set"), "dedupe_mode"),
    (Words("none native posix keep truncate 0 1"), "fallocate"),
    (Words("malloc shm shmhuge mmap mmapshared mmaphuge cudamalloc"), "iomem mem"),
    (Words("tausworthe lfsr tausworthe64"), "random_generator"),
    (Words("none mixed both 0 1 2"), "unified_rw_reporting"),
    (Words("0 1 8"), "unit_base"),
    (Words("none short medium long extreme"), "write_hint"),
];

/// The names of these options.
pub fn ignored() -> impl Iterator<Item = &'static str> {
    IGNORED.iter().flat_map(|(_, names)| names.split_whitespace())
}

/// Checks the value of an option that changes nothing that is modelled; `None` if it changes something.
pub(super) fn check_ignored(name: &str, text: &str) -> Option<Result<(), Bad>> {
    let neutral = NEUTRAL.iter().find(|(known, _)| *known == name);
    if neutral.is_some_and(|(_, values)| values.contains(&text)) {
        return Some(Ok(()));
    }
    let has = |names: &str| names.split_whitespace().any(|known| known == name);
    let (value, _) = IGNORED.iter().find(|(_, names)| has(names))?;
    // As fio reads it: a number ends at a point, and where nothing is the least, there may be a minus.
    let whole = text.split_once('.').map_or(text, |(before, _)| before);
    let is_number = whole.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
    let whole = if is_number && !whole.is_empty() { whole } else { text };
    let number = |low, high| match values::signed(whole, 1024)? {
        number if (low..=high).contains(&number) || low == 0 && number < 0 => Ok(()),
        number => {
            Err(Bad::new(format!("{number} is out of range")).allowed(format!("{low} to {high}")))
        }
    };
    Some(match *value {
        Text => Ok(()),
        Switch if text.is_empty() => Ok(()),
        _ if text.is_empty() => {
            Err(Bad::new("a value is missing").allowed(format!("{name}=VALUE")))
        }
        Flag => number(0, 1),
        Switch => number(i64::MIN, i64::MAX),
        Number(low, high) => number(low, high),
        Time => {
            let time = whole.strip_prefix('-').unwrap_or(whole);
            values::time(time, Nanos::from_secs(1)).map(|_| ())
        }
        Words(known) => {
            let word = text.split(':').next().unwrap_or(text);
            let is_known = known.split(' ').any(|known| known == word);
            let bad = || Bad::new(format!("`{text}` is not one of its values"));
            is_known.then_some(()).ok_or_else(|| bad().allowed(known.replace(' ', ", ")))
        }
    })
}

/// Options that change nothing with these values. With others they are not supported.
const NEUTRAL: &[(&str, &[&str])] = &[
    ("cmd_type", &["nvme", "bsg"]),
    ("create_only", &["0"]),
    ("fdp", &["0"]),
    ("file_append", &["0"]),
    ("flow", &["0"]),
    ("flow_id", &["0"]),
    ("flow_sleep", &["0"]),
    ("ignore_zone_limits", &["0"]),
    ("initial_zone_reset", &["0"]),
    ("job_max_open_zones", &["0"]),
    ("lockfile", &["none"]),
    ("max_latency", &["0"]),
    ("max_open_zones", &["0"]),
    ("merge_blktrace_iters", &["0"]),
    ("offset_align", &["0"]),
    ("pre_read", &["0"]),
    ("random_sequence_stride", &["0"]),
    ("rate_ignore_thinktime", &["0"]),
    ("read_beyond_wp", &["0"]),
    ("readfua", &["0"]),
    ("sg_write_mode", &["write"]),
    ("sprandom", &["0"]),
    ("ss", &["none"]),
    ("steadystate", &["none"]),
    ("thinktime_blocks_type", &["complete"]),
    ("thinktime_iotime", &["0"]),
    ("trim_backlog", &["0"]),
    ("trim_backlog_batch", &["0"]),
    ("trim_percentage", &["0"]),
    ("trim_verify_zero", &["0"]),
    ("write_mode", &["write"]),
    ("writefua", &["0"]),
    ("zone_append", &["0"]),
    ("zone_reset_frequency", &["0"]),
    ("zone_reset_threshold", &["0"]),
    ("zonecapacity", &["0"]),
];

/// The values with which an option that is not supported changes nothing.
pub(super) fn neutral(name: &str) -> Option<String> {
    let (_, values) = NEUTRAL.iter().find(|(known, _)| *known == name)?;
    Some(values.join(" or "))
}

/// Whether this is the name of an option that is known here.
pub fn is_option(name: &str) -> bool {
    SUPPORTED.contains(&name) || ignored().any(|known| known == name) || neutral(name).is_some()
}
