//! Installs the library that is tested, as `scripts/capi` does for others, and compiles C against it.
#![allow(dead_code)] // Each test uses its part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) use iofair_testkit::directory::Directory;

/// Warnings of C are errors.
pub(crate) const C_FLAGS: [&str; 6] = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1"];

pub(crate) fn top() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

pub(crate) fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Runs a command that must succeed; returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    text(&output)
}

/// The static library that cargo built for this test: beside it, the newest if there are several.
pub(crate) fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let archives = beside.filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libiofair-") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    newest.expect("cargo builds the static library with the tests")
}

/// The library, installed.
pub(crate) struct Installed(pub(crate) Directory);

impl Installed {
    pub(crate) fn new() -> Self {
        let directory = Directory::new();
        // Without debugging information, which makes it ten times as large and every link as slow.
        let small = directory.path("libiofair.a");
        run(Command::new("strip").arg("-g").arg("-o").arg(&small).arg(archive()));
        run(Command::new(top().join("scripts/capi")).args([&small, &directory.path(""), "/usr"]));
        Self(directory)
    }
    pub(crate) fn path(&self, below: &str) -> String {
        self.0.path(&format!("usr/{below}"))
    }
    /// The flags that pkg-config prints.
    pub(crate) fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(arguments).arg("iofair");
        command.env("PKG_CONFIG_PATH", self.path("lib/pkgconfig"));
        command.env("PKG_CONFIG_SYSROOT_DIR", self.0.path("").trim_end_matches('/'));
        run(&mut command).split_whitespace().map(String::from).collect()
    }
    /// A program or library of one C file, against the shared library; returns its path.
    pub(crate) fn compile(&self, source: &str, name: &str, more: &[&str]) -> String {
        let program = self.0.path(name);
        let mut compiler = Command::new("cc");
        compiler.args(C_FLAGS).args(more).args(["-o", &program]);
        compiler.arg(top().join("crates/capi").join(source));
        compiler.args(self.pkg_config(&["--cflags", "--libs"])).arg("-lpthread");
        run(&mut compiler);
        program
    }
    /// A command that finds the shared library.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path("lib"));
        command
    }
}
