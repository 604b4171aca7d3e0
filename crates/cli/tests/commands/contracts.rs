//! `docs/contracts.md` and the contract of the README: the files can be served, and an error is as it is shown.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};

use iofair_testkit::directory::Directory;
use iofair_testkit::script;

/// Goal: a newcomer's copy of the page's file works. Method: its commands, with the page's own contracts.
#[test]
fn the_page_about_contracts_is_true() {
    let page = fs::read_to_string("../../docs/contracts.md").unwrap();
    assert!(script::run("contracts", &page) > 1, "the page has lost its commands");
}

fn iofair(directory: &Directory, words: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_iofair"));
    program.args(words.split(' ')).current_dir(directory);
    program
}

/// What `iofair serve --check` says of a contract file with this text.
fn check(text: &str) -> Output {
    let directory = Directory::new();
    fs::write(directory.path("contracts.toml"), text).unwrap();
    iofair(&directory, "serve --check contracts.toml").output().unwrap()
}

/// Goal: a newcomer who copies the README's contract can use `iofair ctl` as shown below it. Method: the commands.
#[test]
fn the_commands_of_the_readme_work() {
    let readme = fs::read_to_string("../../README.md").unwrap();
    let directory = Directory::new();
    fs::write(directory.path("contracts.toml"), script::contracts(&readme)).unwrap();
    let mut server =
        iofair(&directory, "serve contracts.toml").stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let shown = readme.lines().filter_map(|line| line.strip_prefix("iofair ctl "));
    let ctl = |words: &str| iofair(&directory, &format!("ctl {words}")).output().unwrap();
    let outputs: Vec<Output> = shown.map(ctl).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(!outputs.is_empty(), "the README has lost its commands");
    for output in outputs {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Goal: the README's contract is valid, and a mistyped key gets the error that is shown. Method: check both.
#[test]
fn the_contract_of_the_readme_is_valid() {
    let readme = fs::read_to_string("../../README.md").unwrap();
    let contracts = script::contracts(&readme);
    let output = check(&contracts);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bare = contracts.lines().map(|line| line.split(" #").next().unwrap().trim_end());
    let mistyped = bare.collect::<Vec<_>>().join("\n").replace("weight", "weigth");
    let (_, error) = readme.split_once("```\nerror: ").expect("the README shows an error");
    let shown = format!("error: {}", error.split_once("```").unwrap().0);
    assert_eq!(String::from_utf8(check(&mistyped).stderr).unwrap(), shown);
}

/// Goal: a contract file that is no text is refused at once, with where it is none. Method: another encoding, a zero byte, a pipe, a directory
/// and files of the kernel in its place.
#[test]
fn contract_files_are_text() {
    let directory = Directory::new();
    let place = directory.path("contracts.toml");
    let told = |words: &str| {
        for command in ["serve --check contracts.toml", "serve contracts.toml"] {
            let output = iofair(&directory, command).output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.code() == Some(2) && error.contains(words), "{error}");
        }
    };
    let good = b"[drive]\nback = 'memory:64MiB'\n";
    for (bytes, words) in [
        (&b"\xe9"[..], "byte 30, in line 3, is 0xe9: the file is not UTF-8"),
        (&b"\0"[..], "contracts.toml:3:1: the character U+0000 is not allowed here"),
    ] {
        fs::write(&place, [good, bytes].concat()).unwrap();
        told(words);
    }
    // Of these, one waits at its end for more, and would take lines of the kernel's log away.
    for other in ["/proc/kmsg", "/proc/version", "/dev/null"] {
        fs::remove_file(&place).unwrap();
        symlink(other, &place).unwrap();
        told("not a regular file");
    }
    fs::remove_file(&place).unwrap();
    assert!(Command::new("mkfifo").arg(&place).status().unwrap().success());
    told("not a regular file");
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    told("not a regular file");
}
