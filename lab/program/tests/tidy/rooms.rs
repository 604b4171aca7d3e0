//! Rules about rooms: who may import whom, where a clock is read, what is never iterated.

use crate::files::{File, all, assert_none};

/// What each room may import, by its manifest and in its sources. Tests, benches and examples are free.
const IMPORTS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("policies", &["core"]),
    ("draw", &[]),
    ("testkit", &["core"]),
    ("drive", &["core"]),
    ("trace", &["core"]),
    ("config", &["core", "policies"]),
    ("host", &["core", "config"]),
    ("capi", &["core", "policies", "config"]),
    ("serve", &["core", "policies", "drive", "config", "trace"]),
    ("csi", &["core", "serve"]),
    (
        "cli",
        &["core", "policies", "draw", "drive", "config", "host", "simulator", "serve", "trace"],
    ),
    ("baselines", &["core", "policies"]),
    ("simulator", &["core", "policies", "draw", "drive", "config"]),
    ("experiments", &["core", "baselines", "draw", "drive", "config", "trace", "simulator"]),
    ("reproduction", &["core", "draw", "drive", "simulator", "experiments"]),
    ("python", &["core", "drive", "baselines", "simulator", "experiments"]),
    (
        "program",
        &[
            "core",
            "policies",
            "baselines",
            "draw",
            "drive",
            "config",
            "host",
            "simulator",
            "experiments",
            "reproduction",
            "serve",
            "trace",
            "cli",
        ],
    ),
];
/// What the inner rooms of serve may import of each other, so that data flows one way: a request goes from a front end
/// through the port into the engine and on to the back end. The reactor drives front ends without knowing them. Rooms that
/// are not named here are above all of these.
const SERVE: &[(&str, &[&str])] = &[
    ("request", &[]),
    ("back", &["request"]),
    ("engine", &["request", "back"]),
    ("port", &["request", "back", "engine"]),
    ("reactor", &["request", "port"]),
    ("front", &["request", "port", "reactor"]),
];
/// What rooms of serve that have a row must not import either: they are put together from them.
const SERVE_ABOVE: &[&str] = &["server", "control", "places", "pool", "bare"];
/// The one file that reads a clock.
const CLOCK: &str = "crates/serve/src/clock.rs";
/// Rooms whose every run is the same as the last one.
const DETERMINISTIC: &[&str] = &[
    "core",
    "policies",
    "baselines",
    "draw",
    "drive",
    "simulator",
    "experiments",
    "reproduction",
    "trace",
];
/// Rooms that depend on no other crate.
const BARE: &[&str] = &["core", "policies", "baselines", "draw"];
/// The files that write to standard output and standard error. The macros panic when that fails, and wait while nobody reads.
const PRINTS: &[&str] = &["crates/serve/src/log.rs", "crates/cli/src/output.rs"];
/// Rooms with unsafe code: what talks to the kernel, and the boundaries to C and Python.
const UNSAFE: &[&str] = &["crates/serve/", "crates/capi/", "lab/python/"];

fn allowed(room: &str) -> Option<&'static [&'static str]> {
    IMPORTS.iter().find(|(name, _)| *name == room).map(|(_, allowed)| *allowed)
}

fn forbidden_imports(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_test = |file: &File| file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
    for file in files.iter().filter(|file| !is_test(file)) {
        let Some(room) = file.room_of_source() else { continue };
        let Some(allowed) = allowed(room) else {
            complaints.push(format!("{}: room {room} has no row in rooms.rs", file.path));
            continue;
        };
        for (number, line) in file.code() {
            for rest in line.split("iofair_").skip(1) {
                let other: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
                let is_room = IMPORTS.iter().any(|(name, _)| *name == other) && other != room;
                if is_room && !allowed.contains(&other.as_str()) {
                    complaints.push(format!("{}:{number}: {room} imports {other}", file.path));
                }
            }
        }
    }
    complaints
}

fn forbidden_dependencies(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let Some((room, "Cargo.toml")) = file.in_room() else { continue };
        let manifest: toml::Table = file.text.parse().expect("cargo reads it too");
        let Some(dependencies) = manifest.get("dependencies").and_then(|d| d.as_table()) else {
            continue;
        };
        for name in dependencies.keys() {
            let fine = match name.strip_prefix("iofair-") {
                Some(other) => allowed(room).is_some_and(|allowed| allowed.contains(&other)),
                None => !BARE.contains(&room),
            };
            if !fine {
                complaints.push(format!("{}: {room} may not depend on {name}", file.path));
            }
        }
    }
    complaints
}

/// The one crate of the laboratory that the product has, for `iofair plan`.
const SHARED: &str = "iofair-simulator";

/// Crates of the laboratory that crates of the product depend on.
fn laboratory_in_product(files: &[File]) -> Vec<String> {
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let read = |file: &File| file.text.parse::<toml::Table>().expect("cargo reads it too");
    let (product, laboratory): (Vec<_>, Vec<_>) =
        manifests.partition(|file| file.path.starts_with("crates/"));
    let names: Vec<toml::Table> = laboratory.into_iter().map(read).collect();
    let names: Vec<_> =
        names.iter().filter_map(|table| table.get("package")?.get("name")?.as_str()).collect();
    let mut complaints = Vec::new();
    for file in product {
        let manifest = read(file);
        let dependencies = manifest.get("dependencies").and_then(|table| table.as_table());
        for name in dependencies.into_iter().flat_map(toml::Table::keys) {
            if names.contains(&name.as_str()) && name != SHARED {
                complaints.push(format!("{}: the product does not have {name}", file.path));
            }
        }
    }
    complaints
}

/// What writes to standard output or standard error, outside tests.
fn prints(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let is_test = file.path.contains("/tests") || PRINTS.contains(&file.path.as_str());
        if is_test || file.room_of_source().is_none() {
            continue;
        }
        for (number, line) in file.code() {
            if line.contains("#[cfg(test)]") || line.contains("#[test]") {
                break;
            }
            let writes = ["print!(", "println!(", "io::stdout()", "io::stderr()"];
            if writes.iter().any(|write| line.contains(write)) && !line.contains(".is_terminal()") {
                let instead = "use iofair_serve::log or iofair_cli::output";
                complaints.push(format!("{}:{number}: {instead}", file.path));
            }
        }
    }
    complaints
}

/// Imports against the stream inside serve.
fn upstream_imports(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let inside = file.path.strip_prefix("crates/serve/src/");
        let inside = inside.and_then(|inside| inside.split(['/', '.']).next());
        let row = SERVE.iter().find(|(room, _)| inside == Some(*room));
        let Some((room, allowed)) = row else { continue };
        if file.path.ends_with("/testing.rs") || file.path.ends_with("/tests.rs") {
            continue;
        }
        for (number, line) in file.code() {
            for rest in line.split("crate::").skip(1) {
                let other: String =
                    rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let ruled = SERVE.iter().any(|(name, _)| *name == other)
                    || SERVE_ABOVE.contains(&other.as_str());
                if ruled && other != *room && !allowed.contains(&other.as_str()) {
                    complaints.push(format!("{}:{number}: {room} imports {other}", file.path));
                }
            }
        }
    }
    complaints
}

/// Complaints about code of some rooms that holds one of `words`.
fn banned(
    files: &[File],
    words: &[&str],
    here: impl Fn(&str, &File) -> bool,
    why: &str,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        if !file.room_of_source().is_some_and(|room| here(room, file)) {
            continue;
        }
        for (number, line) in file.code() {
            if words.iter().any(|word| line.contains(word)) {
                complaints.push(format!("{}:{number}: {why}: {}", file.path, line.trim()));
            }
        }
    }
    complaints
}

/// Calls of the engine past the port.
fn engine_calls(files: &[File]) -> Vec<String> {
    let rooms = ["crates/serve/src/reactor/", "crates/serve/src/front/"];
    let here = |_: &str, file: &File| rooms.iter().any(|room| file.path.starts_with(room));
    banned(files, &["engine.", "engine()."], here, "only port.rs calls the engine")
}

fn stray_clocks(files: &[File]) -> Vec<String> {
    let words = ["Instant::now", "SystemTime", "clock_gettime("];
    banned(files, &words, |_, file| file.path != CLOCK, &format!("only {CLOCK} reads a clock"))
}

fn sleeps(files: &[File]) -> Vec<String> {
    banned(
        files,
        &["thread::sleep"],
        |room, _| !["cli", "program"].contains(&room),
        "only the command line sleeps",
    )
}

fn hash_maps(files: &[File]) -> Vec<String> {
    let is_deterministic = |room: &str, _: &File| DETERMINISTIC.contains(&room);
    banned(files, &["HashMap", "HashSet"], is_deterministic, "its order differs from run to run")
}

fn missing_forbid(files: &[File]) -> Vec<String> {
    let libraries = files.iter().filter(|f| f.path.ends_with("src/lib.rs"));
    let safe = libraries.filter(|file| !UNSAFE.iter().any(|room| file.path.starts_with(room)));
    let missing = safe.filter(|file| !file.text.contains("#![forbid(unsafe_code)]"));
    missing.map(|f| format!("{}: #![forbid(unsafe_code)] is missing", f.path)).collect()
}

/// Goal: rooms import only what the map allows. Method: names of crates in sources.
#[test]
fn imports_follow_the_map() {
    assert_none(&forbidden_imports(&all()));
}

/// Goal: manifests allow only what the map allows, and core depends on nothing. Method: read them.
#[test]
fn dependencies_follow_the_map() {
    assert_none(&forbidden_dependencies(&all()));
}

/// Goal: the product has nothing of the laboratory but the simulator. Method: manifests.
#[test]
fn the_product_has_no_laboratory() {
    assert_none(&laboratory_in_product(&all()));
}

/// Goal: inside serve data flows one way. Method: paths in sources.
#[test]
fn nothing_in_serve_imports_upstream() {
    assert_none(&upstream_imports(&all()));
}

/// Goal: reactor and front ends meet the engine at the port. Method: search for calls.
#[test]
fn the_port_alone_calls_the_engine() {
    assert_none(&engine_calls(&all()));
}

/// Goal: time comes in as an argument. Method: search for clocks.
#[test]
fn one_file_reads_the_clock() {
    assert_none(&stray_clocks(&all()));
}

/// Goal: no code waits by sleeping. Method: search.
#[test]
fn nothing_sleeps() {
    assert_none(&sleeps(&all()));
}

/// Goal: no order that differs from run to run. Method: hash maps are banned where it matters.
#[test]
fn no_hash_maps_where_runs_repeat() {
    assert_none(&hash_maps(&all()));
}

/// Goal: no message ends or blocks a program. Method: two files write to the streams, without the macros.
#[test]
fn two_files_print() {
    assert_none(&prints(&all()));
}

/// Goal: unsafe code lives in two rooms. Method: every other library forbids it.
#[test]
fn unsafe_code_lives_in_serve_and_capi() {
    assert_none(&missing_forbid(&all()));
}

/// Goal: every rule of this file catches what it is for. Method: a made-up bad file each.
#[test]
fn canaries() {
    let caught = |rule: fn(&[File]) -> Vec<String>, path: &str, text: &str| {
        assert_eq!(rule(&[File::canary(path, text)]).len(), 1, "{path}: {text}");
    };
    caught(forbidden_imports, "lab/simulator/src/a.rs", "use iofair_serve::clock;");
    caught(forbidden_imports, "crates/core/src/a.rs", "fn f(d: iofair_drive::Command) {}");
    caught(forbidden_imports, "crates/extra/src/lib.rs", "");
    caught(forbidden_dependencies, "crates/core/Cargo.toml", "[dependencies]\nserde = \"1\"");
    caught(
        forbidden_dependencies,
        "crates/serve/Cargo.toml",
        "[dependencies]\niofair-simulator.workspace = true",
    );
    caught(upstream_imports, "crates/serve/src/front/a.rs", "use crate::engine::Engine;");
    caught(upstream_imports, "crates/serve/src/engine/a.rs", "fn f(s: &crate::server::Server) {}");
    let laboratory = ["simulator", "experiments"].map(|room| {
        let text = format!("[package]\nname = \"iofair-{room}\"");
        File::canary(&format!("lab/{room}/Cargo.toml"), &text)
    });
    let text = "[dependencies]\niofair-simulator = {}\niofair-experiments = {}\n[dev-dependencies]\niofair-baselines = {}";
    let mut files = Vec::from(laboratory);
    files.push(File::canary("crates/cli/Cargo.toml", text));
    assert_eq!(laboratory_in_product(&files).len(), 1, "{text}");
    caught(upstream_imports, "crates/serve/src/port.rs", "use crate::reactor::Message;");
    caught(upstream_imports, "crates/serve/src/reactor/a.rs", "use crate::engine::Engine;");
    caught(upstream_imports, "crates/serve/src/reactor/a.rs", "use crate::front::nbd::wire;");
    caught(engine_calls, "crates/serve/src/front/a.rs", "cx.engine.submit(now, new)");
    caught(stray_clocks, "lab/simulator/src/a.rs", "let now = std::time::Instant::now();");
    caught(sleeps, "crates/serve/src/a.rs", "std::thread::sleep(pause);");
    caught(hash_maps, "crates/drive/src/a.rs", "use std::collections::HashMap;");
    caught(prints, "crates/csi/src/a.rs", "eprintln!(\"it failed\");");
    caught(prints, "crates/cli/src/a.rs", "let mut out = std::io::stdout().lock();");
    caught(missing_forbid, "lab/simulator/src/lib.rs", "//! The lab.");
    let fine = [File::canary("crates/cli/src/a.rs", "let bar = io::stderr().is_terminal();")];
    assert_none(&prints(&fine));
    let fine = [File::canary("lab/simulator/src/a.rs", "// HashMap, Instant::now: never here")];
    assert_none(&hash_maps(&fine));
    assert_none(&stray_clocks(&fine));
}
