//! Engines: how each makes its calls, and which stand for others here.

use super::options::Bad;
use super::{Engine, Settings};

/// What the model makes of an engine.
struct Row {
    name: &'static str,
    engine: Engine,
    /// What stands for it; empty: it is modelled itself.
    nearest: &'static str,
    /// Its `filename` is a drive, whatever it is called.
    names_drives: bool,
}

const fn row(name: &'static str, engine: Engine, nearest: &'static str) -> Row {
    Row { name, engine, nearest, names_drives: false }
}

const fn drive(name: &'static str, nearest: &'static str) -> Row {
    Row { name, engine: Engine::Asynchronous, nearest, names_drives: true }
}

const SYNC: Engine = Engine::Synchronous;
const ASYNC: Engine = Engine::Asynchronous;
/// What stands for engines without a page cache, and for those with one.
const DIRECT: &str = "io_uring with direct=1";
const PAGES: &str = "psync";

/// The engines that do I/O on drives.
const ENGINES: &[Row] = &[
    row("sync", SYNC, ""),
    row("psync", SYNC, ""),
    row("vsync", SYNC, ""),
    row("pvsync", SYNC, ""),
    row("pvsync2", SYNC, ""),
    row("libaio", ASYNC, ""),
    row("io_uring", ASYNC, ""),
    row("posixaio", ASYNC, ""),
    row("solarisaio", ASYNC, ""),
    row("windowsaio", ASYNC, ""),
    row("nbd", ASYNC, ""),
    row("mmap", SYNC, PAGES),
    row("splice", SYNC, PAGES),
    row("ime_psync", SYNC, PAGES),
    row("ime_psyncv", SYNC, PAGES),
    row("ime_aio", ASYNC, DIRECT),
    row("libcufile", SYNC, PAGES),
    row("libhipfile", SYNC, PAGES),
    row("libpmem", SYNC, "psync with direct=1"),
    row("dev-dax", SYNC, "psync with direct=1"),
    row("mtd", SYNC, "psync with direct=1"),
    row("null", ASYNC, DIRECT),
    row("cpp_null", ASYNC, DIRECT),
    row("sg", ASYNC, DIRECT),
    row("io_uring_cmd", ASYNC, DIRECT),
    row("libblkio", ASYNC, DIRECT),
    row("libzbc", SYNC, "psync with direct=1"),
    drive("libiscsi", DIRECT),
    drive("rbd", DIRECT),
    drive("spdk", DIRECT),
    drive("spdk_bdev", DIRECT),
    drive("spdk_nvme", DIRECT),
    row("xnvme", ASYNC, DIRECT),
];

/// `ioengine`: a name, `external:PATH`, or the path of a library.
pub(super) fn set(to: &mut Settings, value: &str) -> Result<(), Bad> {
    let file = value.strip_prefix("external:").unwrap_or(value);
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = name.strip_suffix(".so").or(name.strip_suffix(".o")).unwrap_or(name);
    let name = if name == "fio_plugin" { "spdk" } else { name };
    let Some(row) = ENGINES.iter().find(|it| it.name == name) else {
        to.engine = Engine::Elsewhere;
        let names: Vec<&'static str> = ENGINES.iter().map(|it| it.name).collect();
        let bad = Bad::unsupported(format!("`{value}` does no I/O on a drive that is modelled"));
        return Err(bad.allowed(names.join(", ")).near(name, names));
    };
    to.engine = row.engine;
    to.engine_note = (!row.nearest.is_empty()).then_some((row.name, row.nearest));
    to.names_drives = row.names_drives;
    to.uncached = row.nearest.contains("direct=1");
    Ok(())
}
