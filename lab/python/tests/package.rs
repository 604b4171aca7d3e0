//! The Python package over the extension module of this build, with nothing but Python's own library; `make python` runs
//! the same tests on the wheel, with numpy, pandas, pyarrow and Dask.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Goal: the package runs experiments as the program does. Method: its tests, `test_package.py`.
#[test]
#[ignore = "needs python: version 3.9 or newer"]
fn needs_python_the_package_works() {
    // target/debug/deps/package-...
    let program = env::current_exe().unwrap();
    let [modules, built] = [1, 2].map(|up| program.ancestors().nth(up).unwrap());
    let iofair = built.join("iofair-lab");
    assert!(iofair.exists(), "{} is missing: cargo build -p iofair-lab", iofair.display());
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = env::temp_dir().join(format!("iofair-python-{}", std::process::id()));
    let package = folder.join("iofair");
    fs::create_dir_all(&package).unwrap();
    for file in fs::read_dir(source.join("python/iofair")).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            fs::copy(&path, package.join(path.file_name().unwrap())).unwrap();
        }
    }
    fs::copy(modules.join("lib_iofair.so"), package.join("_iofair.abi3.so")).unwrap();
    let mut python = Command::new("python3");
    python.arg(source.join("tests/test_package.py")).env("PYTHONPATH", &folder);
    let output = python.env("IOFAIR_PROGRAM", iofair).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("OK"), "{told}");
    fs::remove_dir_all(folder).unwrap();
}
