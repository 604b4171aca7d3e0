//! The library as a C program meets it: found by pkg-config, linked shared and static, every function called, under valgrind and
//! AddressSanitizer too.
#![allow(clippy::unwrap_used)]

mod rig;

use std::process::Command;

use rig::{C_FLAGS, Installed, run, text};

const PROGRAM: &str = "tests/c/api.c";
const VERSION: &str = concat!("-DVERSION=\"", env!("CARGO_PKG_VERSION"), "\"");

/// Goal: every function does what the header says, in a program linked to the shared library. Method: the C program, and the
/// names that it was linked by.
#[test]
#[ignore = "needs valgrind: C programs, pkg-config, valgrind"]
fn needs_valgrind_the_shared_library_does_what_the_header_says() {
    let library = Installed::new();
    let program = library.compile(PROGRAM, "api", &[VERSION]);
    assert_eq!(run(&mut library.command(&program)), "all is well\n");
    let symbols = run(Command::new("objdump").args(["-T", &program]));
    assert!(symbols.contains("(IOFAIR_0)   iofair_submit"), "{symbols}");
    let needed = run(Command::new("objdump").args(["-p", &program]));
    assert!(needed.contains("libiofair.so.0\n"), "{needed}");
    let mut checked = library.command("valgrind");
    checked.args(["-q", "--leak-check=full", "--error-exitcode=9", &program]);
    assert_eq!(run(&mut checked), "all is well\n");
}

/// Goal: the same with the static library, and no error of memory or undefined behaviour in C. Method: gcc's sanitizers, which must also
/// find an error that is there.
#[test]
#[ignore = "needs valgrind: C programs, pkg-config, valgrind"]
fn needs_valgrind_the_static_library_is_clean_under_sanitizers() {
    let library = Installed::new();
    let sanitized = |more: &[&str], source: &str| {
        let program = library.0.path("sanitized");
        let mut compiler = Command::new("cc");
        compiler.args(C_FLAGS).args(more).args(["-fsanitize=address,undefined", "-o", &program]);
        compiler.args(["-fno-sanitize-recover=all", VERSION, source]);
        compiler.args(library.pkg_config(&["--cflags"])).arg(library.path("lib/libiofair.a"));
        // Not -lc: the sanitizers come before it.
        let private = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
        run(compiler.args(private));
        Command::new(program).output().unwrap()
    };
    let source = rig::top().join("crates/capi").join(PROGRAM);
    let output = sanitized(&[], source.to_str().unwrap());
    assert_eq!(text(&output), "all is well\n");
    let canary = library.0.path("canary.c");
    let leak = "#include <iofair.h>\nint main(void) { struct iofair_setup s = {.capacity_bytes = 4096, .depth = 1};\n\
        struct iofair_engine *e; int code = iofair_engine_new(&s, \"promise\", &e); e = 0; return code; }\n";
    std::fs::write(&canary, leak).unwrap();
    let output = sanitized(&[], &canary);
    assert!(text(&output).contains("LeakSanitizer"), "the canary: {}", text(&output));
}

/// Goal: pkg-config says how to link, and what a static link needs besides. Method: ask it.
#[test]
#[ignore = "needs valgrind: C programs, pkg-config, valgrind"]
fn needs_valgrind_pkg_config_knows_the_library() {
    let library = Installed::new();
    assert_eq!(library.pkg_config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    assert!(library.pkg_config(&["--libs"]).contains(&"-liofair".to_string()));
    assert!(library.pkg_config(&["--static", "--libs"]).contains(&"-lgcc_s".to_string()));
}

/// Goal: the example compiles as the page about embedding says, and does what it says. Method: both.
#[test]
#[ignore = "needs valgrind: C programs, pkg-config, valgrind"]
fn needs_valgrind_the_program_of_the_page_runs() {
    let program = include_str!("../examples/read.c");
    let library = Installed::new();
    let (source, example) = (library.0.path("example.c"), library.0.path("example"));
    std::fs::write(&source, program).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", &source, "-o", &example]);
    run(compiler.args(library.pkg_config(&["--cflags", "--libs"])));
    let file = library.0.path("file");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    let said = run(library.command("valgrind").args(["-q", "--error-exitcode=9", &example, &file]));
    assert_eq!(said, "slow: 1048576 bytes\nfast: 1048576 bytes\n");
}
