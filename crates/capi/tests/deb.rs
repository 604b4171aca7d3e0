//! The Debian packages of the library: unpacked, found by pkg-config, and a C program compiled against them.
#![allow(clippy::unwrap_used)]

mod rig;

use std::process::Command;

use rig::{C_FLAGS, Directory, run, top};

/// The packages, made of the library that is tested, and a tree with both unpacked.
fn packages(directory: &Directory) -> Vec<String> {
    let small = directory.path("libiofair.a");
    run(Command::new("strip").arg("-g").arg("-o").arg(&small).arg(rig::archive()));
    let mut made = Command::new(top().join("scripts/deb-library"));
    made.args([&small, &directory.path("")]).env("IOFAIR_DEB_FAST", "1");
    let output = made.output().unwrap();
    assert!(output.status.success(), "{}", rig::text(&output));
    let packages = String::from_utf8(output.stdout).unwrap();
    packages.lines().map(String::from).collect()
}

/// Goal: a user who installs the packages can compile against the library with what pkg-config says, and run the program. Method: both unpacked
/// into a directory, the C program of all functions.
#[test]
#[ignore = "needs deb: dpkg-deb, pkg-config, a C compiler"]
fn needs_deb_programs_compile_against_the_packages() {
    let directory = Directory::new();
    let packages = packages(&directory);
    assert_eq!(packages.len(), 2, "{packages:?}");
    let root = directory.path("root");
    for package in &packages {
        run(Command::new("dpkg-deb").args(["-x", package, &root]));
    }
    let multiarch = run(Command::new("cc").arg("-print-multiarch"));
    let lib = format!("{root}/usr/lib/{}", multiarch.trim());
    let mut asked = Command::new("pkg-config");
    // No other package: only what is in these two may be found.
    asked.env("PKG_CONFIG_LIBDIR", format!("{lib}/pkgconfig")).env("PKG_CONFIG_SYSROOT_DIR", &root);
    let flags = run(asked.args(["--cflags", "--libs", "iofair"]));
    let program = directory.path("api");
    let mut compiler = Command::new("cc");
    let version = concat!("-DVERSION=\"", env!("CARGO_PKG_VERSION"), "\"");
    compiler
        .args(C_FLAGS)
        .args([version, "-o", &program])
        .arg(top().join("crates/capi/tests/c/api.c"));
    run(compiler.args(flags.split_whitespace()).arg("-lpthread"));
    assert_eq!(run(Command::new(&program).env("LD_LIBRARY_PATH", &lib)), "all is well\n");
    // The development package's link names the other package's file.
    let linked = std::fs::read_link(format!("{lib}/libiofair.so")).unwrap();
    assert!(std::path::Path::new(&lib).join(linked).exists());
}

/// Goal: packages of programs that link the library get their dependency from it. Method: its lists of symbols.
#[test]
#[ignore = "needs deb: dpkg-deb, pkg-config, a C compiler"]
fn needs_deb_every_symbol_is_listed() {
    let directory = Directory::new();
    let packages = packages(&directory);
    let control = directory.path("control");
    run(Command::new("dpkg-deb").args(["-e", &packages[0], &control]));
    let read = |name: &str| std::fs::read_to_string(format!("{control}/{name}")).unwrap();
    let map = include_str!("../iofair.map");
    let symbols = read("symbols");
    for function in map.lines().filter_map(|line| line.trim().strip_suffix(';')) {
        let listed = symbols.contains(&format!(" {function}@IOFAIR_0 0.1.0\n"));
        assert_eq!(listed, function.starts_with("iofair_"), "{function}: {symbols}");
    }
    assert_eq!(read("shlibs"), "libiofair 0 libiofair0 (>= 0.1.0)\n");
    assert!(read("control").contains("\nDepends: libc6 (>= 2."), "{}", read("control"));
}

/// Goal: lintian, which knows Debian's rules, finds no fault. Method: both packages; a test does not wait for compression, and no bug of
/// Debian's asked for the packages.
#[test]
#[ignore = "needs lintian"]
fn needs_lintian_the_packages_keep_debians_rules() {
    let directory = Directory::new();
    let excused = "--suppress-tags=uses-no-compression-for-control-tarball,\
        uses-no-compression-for-data-tarball,initial-upload-closes-no-bugs";
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on=error,warning", "--allow-root", excused]);
    run(lintian.args(packages(&directory)));
}
