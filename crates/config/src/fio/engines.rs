//! Engines: how each makes its calls, and which stand for others here.

use super::problems::Bad;
use super::{Engine, Settings};

/// What the model makes of an engine.
struct Row {
    name: &'static str,
    engine: Engine,
    /// What stands for it; empty: it is modelled itself.
    nearest: &'static str,
    /// It does not use the page cache.
    uncached: bool,
    /// Its `filename` is a drive, whatever it is called.
    names_drives: bool,
}

/// An engine that is modelled.
const fn own(name: &'static str, engine: Engine) -> Row {
    Row { name, engine, nearest: "", uncached: false, names_drives: false }
}

/// An engine that uses the page cache in its own way.
const fn cached(name: &'static str) -> Row {
    Row { nearest: "psync", ..own(name, SYNC) }
}

/// An engine without a page cache.
const fn direct(name: &'static str, engine: Engine) -> Row {
    let nearest = match engine {
        SYNC => "psync with direct=1",
        _ => "io_uring with direct=1",
    };
    Row { nearest, uncached: true, ..own(name, engine) }
}

/// The same, of drives that are not files of the machine.
const fn drive(name: &'static str, engine: Engine) -> Row {
    Row { names_drives: true, ..direct(name, engine) }
}

const SYNC: Engine = Engine::Synchronous;
const ASYNC: Engine = Engine::Asynchronous;

/// The engines that do I/O on drives.
const ENGINES: &[Row] = &[
    own("sync", SYNC),
    own("psync", SYNC),
    own("vsync", SYNC),
    own("pvsync", SYNC),
    own("pvsync2", SYNC),
    own("libaio", ASYNC),
    own("linuxaio", ASYNC),
    own("aio", ASYNC),
    own("io_uring", ASYNC),
    own("posixaio", ASYNC),
    own("solarisaio", ASYNC),
    own("windowsaio", ASYNC),
    cached("mmap"),
    cached("splice"),
    cached("ime_psync"),
    cached("ime_psyncv"),
    cached("libcufile"),
    cached("libhipfile"),
    direct("ime_aio", ASYNC),
    direct("libpmem", SYNC),
    direct("dev-dax", SYNC),
    direct("mtd", SYNC),
    direct("null", ASYNC),
    direct("cpp_null", ASYNC),
    direct("sg", ASYNC),
    direct("io_uring_cmd", ASYNC),
    direct("libzbc", SYNC),
    direct("xnvme", ASYNC),
    drive("libblkio", ASYNC),
    drive("libiscsi", ASYNC),
    drive("nbd", ASYNC),
    drive("rbd", ASYNC),
    drive("rados", ASYNC),
    drive("gfapi", SYNC),
    drive("gfapi_async", ASYNC),
    drive("nfs", ASYNC),
    drive("spdk", ASYNC),
    drive("spdk_bdev", ASYNC),
    drive("spdk_nvme", ASYNC),
];

/// `ioengine`: a name, `external:PATH`, or the path of a library.
pub(super) fn set(to: &mut Settings, value: &str) -> Result<(), Bad> {
    let file = value.strip_prefix("external:").unwrap_or(value);
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = name.strip_suffix(".so").or(name.strip_suffix(".o")).unwrap_or(name);
    let name = if name == "fio_plugin" { "spdk" } else { name };
    let Some(row) = ENGINES.iter().find(|engine| engine.name == name) else {
        to.engine = Engine::Elsewhere;
        let names: Vec<&'static str> = ENGINES.iter().map(|engine| engine.name).collect();
        let bad = Bad::unsupported(format!("`{value}` does no I/O on a drive that is modelled"));
        return Err(bad.allowed(names.join(", ")).near(name, names));
    };
    to.engine = row.engine;
    to.is_libaio = ["libaio", "linuxaio", "aio"].contains(&name);
    to.syncs_in_flight = ["io_uring", "posixaio"].contains(&name);
    to.engine_note = (!row.nearest.is_empty()).then_some((row.name, row.nearest));
    to.names_drives = row.names_drives;
    to.uncached = row.uncached;
    Ok(())
}
