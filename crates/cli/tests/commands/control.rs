//! `iofair ctl` on a running server: the page about it, option by option.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_iofair");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/control.md");
const FENCE: &str = "\n```";

/// A server in a directory of its own, which holds the page's contract file.
struct Served {
    child: Child,
    directory: PathBuf,
}

impl Served {
    fn start(name: &str, contracts: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("iofair-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("contracts.toml"), contracts).unwrap();
        let child = Self::serve(&directory);
        Self { child, directory }
    }
    fn serve(directory: &Path) -> Child {
        let mut program = Command::new(PROGRAM);
        program.args(["serve", "contracts.toml"]).current_dir(directory);
        let mut child = program.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving"), "{line}");
        child
    }
    fn run(&self, words: &[&str]) -> Output {
        let mut program = Command::new(PROGRAM);
        program.args(words).current_dir(&self.directory).env_remove("IOFAIR_SOCKET");
        program.output().unwrap()
    }
    /// What a command of the page prints, good or bad, with what differs from run to run left out.
    fn prints(&self, command: &str) -> String {
        let output = self.run(&command.split(' ').collect::<Vec<_>>());
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        let directory = self.directory.canonicalize().unwrap().display().to_string();
        let text = text.replace(&directory, "/srv");
        let steady = |line: &str| match line.split_once(' ') {
            Some(("running", _)) => "running      ...".to_string(),
            Some(("free", _)) => "free         ... for new volumes".to_string(),
            Some(("iofair", _)) => line.split(", up ").next().unwrap_or_default().to_string(),
            // The depth is that of the machine's own drive.
            Some(("drive", rest)) if rest.starts_with("0 of ") => {
                "drive 0 of ... commands,".to_string()
            }
            Some(("drive", _)) => line.split("busy").next().unwrap_or_default().trim().to_string(),
            _ => line.trim_end().to_string(),
        };
        text.lines().map(steady).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A test that failed may leave it running.
        let _ = self.child.kill();
        let _ = self.child.wait();
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

fn contracts(page: &str) -> &str {
    let (_, rest) = page.split_once("```toml\n").expect("the page shows a contract file");
    rest.split_once(FENCE).expect("it ends").0
}

/// The page with what its commands print now.
fn with_answers(page: &str, served: &Served) -> String {
    let mut pieces = page.split("```console\n");
    let mut fresh = pieces.next().unwrap().to_string();
    for piece in pieces {
        let (block, after) = piece.split_once(FENCE).unwrap();
        fresh += "```console";
        for command in block.lines().filter_map(|line| line.strip_prefix("$ iofair ")) {
            fresh += &format!("\n$ iofair {command}\n{}", served.prints(command));
        }
        fresh += &format!("{FENCE}{after}");
    }
    fresh
}

/// Goal: the page shows what its commands print. Method: run them, in order, on a server over the page's
/// own contract file; IOFAIR_BLESS=1 writes what they print.
#[test]
fn the_page_shows_what_its_commands_print() {
    let page = fs::read_to_string(PAGE).unwrap();
    let served = Served::start("control-page", contracts(&page));
    let fresh = with_answers(&page, &served);
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        fs::write(PAGE, &fresh).unwrap();
        return;
    }
    assert!(fresh.matches("$ iofair ctl").count() >= 10, "the page has lost its commands");
    assert!(page == fresh, "docs/control.md is stale; run make docs\n{fresh}");
}

/// Goal: the server is found by option, environment and file; mistakes are 2 with a hint, a dead server is
/// 1; the command ends it. Method: each once.
#[test]
fn the_server_is_found_and_errors_have_hints() {
    let page = fs::read_to_string(PAGE).unwrap();
    let mut served = Served::start("control-find", contracts(&page));
    let code = |words: &[&str]| {
        let output = served.run(words);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(code(&["ctl", "--socket", "control.sock", "status", "--json"]).0, 0);
    assert_eq!(code(&["ctl", "--contracts", "contracts.toml", "status"]).0, 0);
    let mut there = Command::new(PROGRAM);
    there.args(["ctl", "status"]).env("IOFAIR_SOCKET", served.directory.join("control.sock"));
    assert!(there.current_dir("/").output().unwrap().status.success());
    for (words, told) in [
        (&["ctl", "group", "set", "batch", "weigth=3"][..], "did you mean `weight`?"),
        (&["ctl", "group", "set", "batch", "weight"], "is not KEY=VALUE"),
        (&["ctl", "group", "set", "bathc", "weight=4"], "did you mean `batch`?"),
        (&["ctl", "group", "set", "new", "weight=4"], "iofair ctl group create new weight=4"),
        (&["ctl", "group", "create", "batch"], "group \"batch\" exists already"),
        (&["ctl", "group", "show", "bathc"], "did you mean `batch`?"),
        (&["ctl", "why", "bathc"], "did you mean `batch`?"),
        (&["ctl", "stack", "none-none"], "does not enforce `min`, `weight` of group"),
        (&["ctl", "stack", "none-none"], "or --give-up, which removes these keys"),
        (&["ctl", "group", "remove", "bathc"], "did you mean `batch`?"),
        (&["ctl", "stack", "prop-none"], "cannot share between groups"),
        (&["ctl", "volume", "create", "x", "batch", "1000B"], "whole sectors"),
        (&["ctl", "volume", "create", "..", "batch", "1MiB"], "\"..\" is not a valid volume name"),
        (&["ctl", "volume", "create", "--", "-rf", "batch", "1MiB"], "is not a valid volume name"),
        (&["ctl", "group", "create", "a/../b"], "beginning with a letter, digit or underscore"),
        (&["ctl", "group", "create", "a\u{1b}[2J"], "\"a\\u{1b}[2J\" is not a valid group name"),
        (&["ctl", "group", "set", "new one", "class=it's"], "create 'new one' 'class=it'\\''s'"),
        (&["ctl", "--socket", "https://::1:9720", "status"], "needs brackets, [::1]:9720"),
        (&["ctl", "--socket", "::1:9720", "status"], "write https://[::1]:9720"),
        (&["ctl", "--contracts", "nowhere.toml", "status"], "nowhere.toml"),
        (&["ctl", "--socket", "", "status"], "--socket is empty: give a path, or https://"),
        (
            &["ctl", "volume", "create", "x", "batch", "1MiB", "size=2MiB"],
            "\"size\" is given twice",
        ),
        (&["ctl", "group", "set", "batch", "clients=[nobody]"], "a certificate of \"nobody\""),
    ] {
        let (code, text) = code(words);
        assert!(code == 2 && text.contains(told), "{words:?}: {code} {text}");
    }
    for (socket, told) in [
        ("nobody.sock", "cannot reach a server at nobody.sock"),
        ("pool.sock", "that is the socket for NBD clients"),
    ] {
        let (code, text) = code(&["ctl", "--socket", socket, "status"]);
        assert!(code == 1 && text.contains(told), "{text}");
    }
    let words = ["ctl", "group", "set", "batch", r#"clients=["uid:0","*"]"#];
    assert!(served.run(&words).status.success());
    let shown = served.run(&["ctl", "group", "show", "batch"]).stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("clients=") && shown.contains("uid:0"), "{shown}");
    assert!(served.run(&["ctl", "drain"]).status.success());
    let (after, text) = code(&["ctl", "status"]);
    assert_eq!(after, 1, "the server has ended: {text}");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

/// Goal: a server that is stopped holds up no command, and the error says what is the matter. Method: SIGSTOP, and each
/// program that asks; it is asked again after SIGCONT.
#[test]
fn a_stopped_server_holds_up_nobody() {
    let page = fs::read_to_string(PAGE).unwrap();
    let served = Served::start("control-stopped", contracts(&page));
    let signal = |name: &str| {
        let killed = Command::new("kill").args([name, &served.child.id().to_string()]).status();
        assert!(killed.unwrap().success());
    };
    signal("-STOP");
    std::thread::scope(|scope| {
        for words in [
            &["ctl", "status"][..],
            &["top", "--once"],
            &["ctl", "group", "set", "batch", "weight=3"],
            &["ctl", "resume"],
        ] {
            let served = &served;
            scope.spawn(move || {
                let output = served.run(words);
                let text = String::from_utf8(output.stderr).unwrap();
                assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
                assert!(
                    text.contains("control.sock: it accepts connections; is it stopped"),
                    "{text}"
                );
                assert!(text.contains("no response within 10 s"), "{text}");
            });
        }
    });
    signal("-CONT");
    assert!(served.run(&["ctl", "status"]).status.success());
}

/// Goal: something else at the address of the control is told from iofair by every kind of call, and no change counts as made.
/// Method: servers that respond with other JSON, with another status, with text, or not at all.
#[test]
fn what_is_not_iofair_is_told() {
    let directory = std::env::temp_dir().join(format!("iofair-foreign-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let http = |status: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    let expected = |status: u32, field: &str| {
        format!(
            "is not the control of an iofair server\n  because: a response of status {status}; expected a JSON object with `{field}"
        )
    };
    let none = "no response of HTTP; is that the control of an iofair server?".to_string();
    let servers = [
        ("object", http("200 OK", "{}"), expected(200, "")),
        ("list", http("200 OK", "[]"), expected(200, "")),
        ("page", http("200 OK", "<html></html>"), expected(200, "")),
        ("error", http("500 Wrong", "{\"error\": []}"), expected(500, "error/text")),
        ("greets", "220 mail.example ESMTP\r\n".into(), none.clone()),
        ("closes", String::new(), none),
    ];
    for (name, response, told) in servers {
        let path = directory.join(name);
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if response.starts_with("HTTP") {
                    let _ = stream.read(&mut [0; 4096]);
                }
                let _ = stream.write_all(response.as_bytes());
            }
        });
        for command in [
            "ctl status",
            "ctl group list",
            "ctl group show a",
            "ctl group set a weight=3",
            "ctl --dry-run group create a",
            "ctl volume remove a",
            "ctl volume list",
            "ctl stack none-none",
            "ctl why a",
            "ctl drain",
            "ctl resume",
            "ctl reload",
            "ctl audit --json",
            "top --once",
            "record trace",
        ] {
            let mut program = Command::new(PROGRAM);
            program.args(command.split(' ')).arg("--socket").arg(&path).current_dir(&directory);
            let output = program.output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap().replace("\\n", "\n");
            assert_eq!(output.status.code(), Some(1), "{name}: {command}: {text}");
            assert!(
                text.contains(&told) && text.contains(path.to_str().unwrap()),
                "{command}: {text}"
            );
        }
    }
    fs::remove_dir_all(&directory).unwrap();
}

/// Goal: a single frame shows how busy drive and reactor are, which is known between two looks. Method: a server with nothing to do.
#[test]
fn a_single_frame_is_of_two_looks() {
    let page = fs::read_to_string(PAGE).unwrap();
    let served = Served::start("control-frame", contracts(&page));
    let frame = String::from_utf8(served.run(&["top", "--once"]).stdout).unwrap();
    assert!(frame.contains("reactor busy ") && !frame.contains("busy -"), "{frame}");
}

/// Goal: Prometheus' own checker has nothing to say about the metrics. Method: promtool reads them.
#[test]
#[ignore = "needs promtool, curl"]
fn needs_promtool_the_metrics_are_as_they_should_be() {
    let page = fs::read_to_string(PAGE).unwrap();
    let served = Served::start("control-metrics", contracts(&page));
    let read = "curl --silent --fail --unix-socket control.sock http://localhost/metrics | tee metrics \
        | promtool check metrics";
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", read]).current_dir(&served.directory).output().unwrap();
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && told.is_empty(), "{told}");
    let metrics = fs::read_to_string(served.directory.join("metrics")).unwrap();
    assert!(metrics.contains("iofair_group_weight{group=\"tenants/alice\"} 300"), "{metrics}");
}
