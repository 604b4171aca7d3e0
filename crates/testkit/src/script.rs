//! Runs a page of the documentation: what it tells an operator to type works as it is written.

use std::fs;
use std::process::Command;

/// Blocks of one kind, in order.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}\n");
    let pieces = page.split(&fence).skip(1);
    pieces.map(|piece| piece.split_once("```").unwrap().0.to_string()).collect()
}

/// The page's first contracts that name a drive.
pub fn contracts(page: &str) -> String {
    blocks(page, "toml").into_iter().find(|text| text.contains("\nback = ")).unwrap()
}

/// All commands of a page for a shell, and how many there are; the first one that fails ends it.
pub fn commands_of(page: &str) -> (String, usize) {
    let (mut script, mut commands) = (String::new(), 0);
    for line in blocks(page, "console").iter().flat_map(|block| block.lines()) {
        let command = line.strip_prefix("$ ").unwrap_or_else(|| panic!("no command: {line}"));
        commands += 1;
        match command.strip_suffix(" &") {
            // The first line that it says comes when clients may. Both ends are opened here and at once: an open
            // that waits for the other end fails where a child that was killed earlier ends meanwhile.
            Some(server) => {
                script += "rm -f said; mkfifo said; exec 3<>said 4<said\n";
                script += &format!("{server} >&3 3>&- 4<&- &\nexec 3>&-; read -r line <&4\n");
            }
            None => {
                let quoted = line.replace('\'', "'\\''");
                script += &format!("{command} || {{ echo 'failed: {quoted}' >&2; exit 1; }}\n");
            }
        }
    }
    (script, commands)
}

/// Runs all commands of a page in one shell, in a directory of its own, with the page's contracts; those with
/// `!` must fail. Returns how many there were.
pub fn run(name: &str, page: &str) -> usize {
    let directory = std::env::temp_dir().join(format!("iofair-page-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("contracts.toml"), contracts(page)).unwrap();
    // Job files begin with their names.
    for text in blocks(page, "ini") {
        let name = text.lines().next().and_then(|line| line.strip_prefix("; ")).unwrap();
        fs::write(directory.join(name), &text).unwrap();
    }
    let (lines, commands) = commands_of(page);
    let script = format!(
        "set -m\ntrap 'kill %1 2>/dev/null' EXIT\n{lines}kill -0 %1 && kill -TERM %1 && wait %1\n"
    );
    // target/debug/deps/quickstart-...: the programs are above.
    let own = std::env::current_exe().unwrap();
    let programs = own.ancestors().nth(2).unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("PATH", path)
        .current_dir(&directory)
        .output()
        .unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{told}");
    commands
}
