//! The machine that this runs on, as results name it.

use std::num::NonZeroUsize;

/// Processors and version of the kernel.
pub fn name() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let release = read("/proc/sys/kernel/osrelease");
    let version = release.trim().split('-').next().unwrap_or_default();
    format!("{cores} cores of {model}, Linux {version}")
}

/// The threads that were asked for, otherwise one a processor.
pub fn threads(asked: Option<NonZeroUsize>) -> usize {
    asked.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}
