//! Files that the program creates, and paths that it prints.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use iofair_testkit::directory::Directory;

const PROGRAM: &str = env!("CARGO_BIN_EXE_iofair");
const CONTRACTS: &str = "[drive]\nback = 'directory:pool'\nstack = 'none-none'\n[listen]\nunix = 'pool.sock'\n\
    [control]\nunix = 'control.sock'\naudit = 'audit'\n[metrics]\nunix = 'metrics.sock'\n\
    [[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n";

/// A server, killed when it is dropped.
struct Served(Child);

impl Served {
    /// Starts a server without a umask, and returns what it prints once it serves.
    fn start(directory: &Path) -> (Self, String) {
        fs::create_dir_all(directory.join("pool")).unwrap();
        fs::write(directory.join("contracts.toml"), CONTRACTS).unwrap();
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(directory.join("contracts.toml"), mode).unwrap();
        let mut shell = unmasked("exec \"$0\" serve \"$PWD/contracts.toml\"", directory);
        let mut this = Self(shell.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(this.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let last = |line: &String| !line.contains("curl");
        let mut said: Vec<String> = lines.by_ref().take_while(last).collect();
        said.push("  curl".into());
        (this, said.join("\n"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goal: no command takes the file of a volume for something else, and a pool that is not mounted is noticed however its path is
/// spelt. Method: the file of a stopped server, for a pool and for a calibration; then a directory without it, from elsewhere.
#[test]
fn files_of_volumes_are_not_taken() {
    let directory = Directory::new();
    let here = Path::new(&directory.path("")).to_path_buf();
    drop(Served::start(&here));
    let image = here.join("pool/v.img");
    let data = vec![7; 1 << 20];
    fs::write(&image, &data).unwrap();
    let refused = |arguments: &[&str], told: &str| {
        let output = Command::new(PROGRAM).args(arguments).current_dir("/").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(told), "{arguments:?}: {text}");
    };
    let (name, profile) = (image.to_str().unwrap(), directory.path("x.toml"));
    refused(&["pool", "create", name], "it is in a pool directory");
    refused(&["calibrate", "--write", name, "--out", &profile], "too few");
    assert!(fs::read(&image).unwrap() == data);
    fs::rename(here.join("pool"), here.join("elsewhere")).unwrap();
    fs::create_dir(here.join("pool")).unwrap();
    fs::remove_file(directory.path("pool.iofair")).unwrap();
    std::os::unix::fs::symlink(&here, here.join("link")).unwrap();
    for contracts in
        ["contracts.toml", "./contracts.toml", "elsewhere/../contracts.toml", "link/contracts.toml"]
    {
        let file = format!("{}/{contracts}", here.display());
        refused(&["serve", "--check", &file], "is the right file system mounted?");
    }
}

/// A command of a shell whose umask hides no mode; `$0` is the program.
fn unmasked(script: &str, directory: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("umask 0; {script}"), PROGRAM]).current_dir(directory);
    shell
}

fn good(output: &Output) {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&all));
}

/// Goal: files have their final mode from the beginning, and are for their owner unless others need them, whatever the
/// umask is. Method: a server, a change and a recording without a umask; then the modes.
#[test]
fn files_are_private() {
    let directory = Directory::new();
    let (_served, _) = Served::start(&directory.0);
    good(&unmasked("\"$0\" ctl volume create w g 1MiB", &directory.0).output().unwrap());
    let record = "\"$0\" record it.trace --duration 1ms";
    good(&unmasked(record, &directory.0).output().unwrap());
    for (file, mode) in [
        ("contracts.toml", 0o640),
        ("audit", 0o600),
        ("it.trace", 0o600),
        ("pool/.iofair.json", 0o600),
        ("pool/v.img", 0o600),
        ("control.sock", 0o600),
    ] {
        let found = fs::metadata(directory.path(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{file}: {found:o}");
    }
}

/// Goal: what is printed to be copied can be copied, wherever the files are. Method: a server in a directory with a
/// blank and a quotation mark; the printed command runs, and the printed URI names the socket.
#[test]
fn printed_commands_can_be_copied() {
    let directory = Directory::new();
    let odd = directory.0.join("it's a pool");
    fs::create_dir(&odd).unwrap();
    let (_served, said) = Served::start(&odd);
    let line = |start: &str| {
        let found = said.lines().find_map(|line| line.trim().strip_prefix(start));
        found.unwrap_or_else(|| panic!("{said}")).to_string()
    };
    let command = format!("\"$0\" ctl{}", line("iofair ctl"));
    good(&unmasked(&command, Path::new("/")).output().unwrap());
    assert!(line("nbd+unix:///v?socket=").ends_with("/it%27s%20a%20pool/pool.sock"), "{said}");
    let output = Command::new(PROGRAM).args(["pool", "show", "no pool"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("`iofair pool create 'no pool'`"), "{text}");
}

/// Goal: a volume whose name is not allowed any more can be removed from its pool. Method: a pool of an earlier version
/// with a volume `-rf`; a server refuses the name, and a command deletes the volume.
#[test]
fn odd_names_can_be_removed() {
    let directory = Directory::new();
    let run = |words: &[&str]| {
        let output = Command::new(PROGRAM).args(words).current_dir(&directory.0).output().unwrap();
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let contracts =
        "[drive]\nback = 'file:pool.img'\nstack = 'none-none'\n[listen]\nunix = 'pool.sock'\n";
    fs::write(directory.path("contracts.toml"), contracts).unwrap();
    fs::write(directory.path("pool.img"), vec![1; 3 << 20]).unwrap();
    fs::write(directory.path("pool.img.volumes"), "0 2097152 -rf\n2097152 1048576 a\n").unwrap();
    let (good, text) = run(&["pool", "import", "pool.img", "--contracts", "contracts.toml"]);
    assert!(good, "{text}");
    let odd = format!(
        "{contracts}[[group]]\nname = 'g'\n[[volume]]\nname = '-rf'\ngroup = 'g'\nsize = '2MiB'\n"
    );
    fs::write(directory.path("odd.toml"), odd).unwrap();
    let (good, text) = run(&["serve", "odd.toml"]);
    assert!(!good && text.contains("odd.toml:9:8: \"-rf\" is not a valid volume name"), "{text}");
    let (good, text) = run(&["pool", "delete", "pool.img", "--", "-rf"]);
    assert!(good, "{text}");
    let (_, text) = run(&["pool", "show", "pool.img"]);
    assert!(text.contains(" a ") && !text.contains("-rf"), "{text}");
}
