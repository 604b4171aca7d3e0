//! What a package is made of: units, manual pages, completions, the package itself, and the page that tells an
//! operator what to do with it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use iofair_testkit::directory::Directory;

const PROGRAM: &str = env!("CARGO_BIN_EXE_iofair");
const PAGE: &str = include_str!("../../../../docs/operate.md");

fn top() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Runs a program to its good end, and returns all that it said.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} does not start: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output));
    text(&output)
}

/// The package, made of the program that is tested.
fn package(directory: &Directory) -> String {
    let mut made = Command::new(top().join("scripts/deb"));
    made.arg(PROGRAM).arg(&directory.0).env("IOFAIR_DEB_FAST", "1");
    let output = made.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

/// Goal: systemd finds nothing to complain about in the units, and little to attack in the service. Method:
/// systemd-analyze, with the program that is tested in the place of the installed one.
#[test]
#[ignore = "needs systemd: systemd-analyze"]
fn needs_systemd_the_units_are_sound() {
    let directory = Directory::new();
    let units = fs::read_dir(top().join("packaging/systemd")).unwrap();
    let mut paths = Vec::new();
    for unit in units.map(|unit| unit.unwrap().path()) {
        let here = directory.path(unit.file_name().unwrap().to_str().unwrap());
        let told = fs::read_to_string(&unit).unwrap().replace("/usr/bin/iofair", PROGRAM);
        fs::write(&here, told).unwrap();
        paths.push(here);
    }
    assert_eq!(paths.len(), 5);
    let mut words = vec!["verify", "--man=no"];
    words.extend(paths.iter().map(String::as_str));
    assert_eq!(run("systemd-analyze", &words), "");
    // Of 100; a service that says nothing has 96. Those of the machine's groups are root and write to /sys.
    for (name, threshold) in [("iofair", 20), ("iofair-host", 25), ("iofair-host-watch", 25)] {
        let (service, threshold) =
            (directory.path(&format!("{name}.service")), format!("--threshold={threshold}"));
        run("systemd-analyze", &["security", "--offline=true", &threshold, &service]);
    }
    let service = directory.path("iofair.service");
    let told = fs::read_to_string(&service).unwrap();
    fs::write(&service, told.replace("ProtectSystem=strict", "ProtectSystm=strict")).unwrap();
    assert_ne!(run("systemd-analyze", &["verify", "--man=no", &service]), "", "the canary");
}

/// Goal: the manual has a page for every command, and `man` likes them all. Method: all pages, read with warnings.
#[test]
#[ignore = "needs man"]
fn needs_man_the_manual_reads_well() {
    let directory = Directory::new();
    run(PROGRAM, &["man", "--directory", &directory.path("")]);
    let mut pages = 0;
    for page in fs::read_dir(&directory.0).unwrap() {
        let page = page.unwrap().path().display().to_string();
        let mut man = Command::new("man");
        man.args(["--warnings", "-l", &page]).env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
        let output = man.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{page}: {}", text(&output));
        assert!(text(&output).contains("SYNOPSIS"), "{page}");
        pages += 1;
    }
    assert!(pages > 20, "{pages} pages");
}

/// Goal: the completions complete. Method: bash is asked what may follow.
#[test]
fn bash_completes_commands() {
    let script = run(PROGRAM, &["completions", "bash"]);
    let directory = Directory::new();
    fs::write(directory.path("iofair"), script).unwrap();
    run("bash", &["-n", &directory.path("iofair")]);
    let asked = "source \"$0\"; COMP_WORDS=(iofair ctl vol); COMP_CWORD=2; \
        _iofair iofair vol ctl; echo \"${COMPREPLY[@]}\"";
    assert_eq!(run("bash", &["-c", asked, &directory.path("iofair")]), "volume\n");
    for shell in ["zsh", "fish"] {
        assert!(run(PROGRAM, &["completions", shell]).contains("iofair"));
    }
}

/// Goal: lintian, which knows Debian's rules, finds no fault. Method: the package of the tested program; a test does
/// not wait for compression, and no bug of Debian's asked for the package.
#[test]
#[ignore = "needs lintian"]
fn needs_lintian_the_package_keeps_debians_rules() {
    let directory = Directory::new();
    let package = package(&directory);
    let excused = "--suppress-tags=uses-no-compression-for-control-tarball,\
        uses-no-compression-for-data-tarball,initial-upload-closes-no-bugs";
    let root = "--allow-root";
    run("lintian", &["--fail-on=error,warning", root, excused, &package]);
}

/// Goal: links of packaged pages lead to what is in the package. Method: every relative link of the pages.
#[test]
#[ignore = "needs deb: cc, objdump, strip, pkg-config, dpkg-deb"]
fn needs_deb_links_of_packaged_pages_lead_somewhere() {
    let directory = Directory::new();
    let package = package(&directory);
    run("dpkg-deb", &["-x", &package, &directory.path("")]);
    let documentation = directory.0.join("usr/share/doc/iofair");
    let mut followed = 0;
    for folder in [documentation.clone(), documentation.join("docs")] {
        let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        for page in files.filter(|file| file.extension().is_some_and(|kind| kind == "md")) {
            let text = fs::read_to_string(&page).unwrap();
            for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
                let place = link.0.split('#').next().unwrap();
                if place.is_empty() || place.contains("://") {
                    continue;
                }
                assert!(folder.join(place).exists(), "{}: {place}", page.display());
                followed += 1;
            }
        }
    }
    assert!(followed > 100, "{followed} links");
}

/// What is to be typed, and what lies between, for a shell.
fn script(page: &str) -> String {
    let mut script = String::from(include_str!("packaging/operator.sh"));
    let mut lines = page.lines();
    let mut commands = 0;
    let mut named = String::new();
    while let Some(line) = lines.next() {
        if let Some(test) = line.strip_prefix("<!-- test: ") {
            script += &format!("{}\n", test.trim_end_matches(" -->"));
        } else if let Some(kind) = line.strip_prefix("```").filter(|kind| !kind.is_empty()) {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if kind == "console" {
                commands += block.len();
                for line in block {
                    let command = line.strip_prefix("$ ").expect("every line is a command");
                    script += &typed(command);
                }
            } else if named.starts_with('/') {
                script += &format!("cat >{named} <<'IOFAIR'\n{}\nIOFAIR\n", block.join("\n"));
            }
        }
        if let Some(before) = line.strip_suffix("`:") {
            named = before.rsplit('`').next().unwrap_or_default().to_string();
        } else if !line.is_empty() {
            named.clear();
        }
    }
    assert!(commands > 60, "the page has lost its commands");
    script + "echo ALL DONE\n"
}

/// A command that says itself, and ends the script if it fails.
fn typed(command: &str) -> String {
    let quoted = command.replace('\'', "'\\''");
    match command.strip_suffix('&') {
        Some(_) => format!("echo '$ {quoted}'\n{command}\n"),
        None => format!("echo '$ {quoted}'\n{command} || fails '{quoted}'\n"),
    }
}

/// Goal: the page of operation is true from its first command to its last. Method: all of them, on a machine of its
/// own with systemd, with the package of the tested program and two guests, which write and compare all the time:
/// they go on after restart, upgrade and kill -9.
#[test]
#[ignore = "needs box: root, systemd, overlayfs, qemu, target/guest (scripts/guest), nbdinfo, fio, openssl, curl"]
fn needs_box_the_page_about_operation_is_true() {
    let directory = Directory::new();
    package(&directory);
    for name in ["vmlinuz", "initramfs"] {
        fs::copy(top().join("target/guest").join(name), directory.path(name)).unwrap();
    }
    fs::write(directory.path("script"), script(PAGE)).unwrap();
    let ended = Command::new(top().join("scripts/box")).arg(&directory.0).arg("400").output();
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{}", text(&ended));
    assert!(text(&ended).ends_with("ALL DONE\n"), "{}", text(&ended));
}

/// Goal: the unit that gives contracts to the kernel may do what that needs, and nothing beyond. Method: under the unit, a
/// probe in place of the program: it writes what the program writes, and tries what must be refused.
#[test]
#[ignore = "needs box: root, systemd, overlayfs"]
fn needs_box_the_unit_of_hosts_allows_what_it_needs() {
    let directory = Directory::new();
    let unit = "iofair-host.service";
    fs::copy(top().join("packaging/systemd").join(unit), directory.path(unit)).unwrap();
    fs::write(directory.path("script"), include_str!("packaging/host.sh")).unwrap();
    let ended = Command::new(top().join("scripts/box")).arg(&directory.0).arg("100").output();
    let told = text(&ended.unwrap());
    assert!(told.ends_with("ALL DONE\n") && !told.contains("failed: "), "{told}");
    assert_eq!(told.matches("ok: ").count(), 12, "{told}");
}

/// Goal: what the page says of errors is what the program says. Method: each quoted message stands in the sources.
#[test]
fn errors_of_the_page_are_the_programs() {
    let tables = include_str!("../../../../docs/troubleshooting.md");
    let mut sources = String::new();
    let mut places = vec![top().join("crates")];
    while let Some(place) = places.pop() {
        match fs::read_dir(&place) {
            Ok(inside) => places.extend(inside.map(|entry| entry.unwrap().path())),
            Err(_) if place.extension().is_some_and(|kind| kind == "rs") => {
                sources += &fs::read_to_string(&place).unwrap().replace("\\\n", "");
            }
            Err(_) => {}
        }
    }
    let sources = sources.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows = tables.lines().filter(|line| line.starts_with("| `"));
    let said = rows.map(|row| row.split('`').nth(1).unwrap()).collect::<Vec<_>>();
    assert!(said.len() >= 20);
    for words in said {
        assert!(sources.contains(words), "nobody says: {words}");
    }
}
