//! Commands that messages of the program suggest: they work as they are copied. And what `iofair pool` does with directories.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value as Json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_iofair");

/// A directory with a space in its name, and the servers in it.
struct Scene {
    directory: PathBuf,
    server: Option<Child>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("iofair it's {name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self { directory, server: None }
    }
    /// Writes contracts with volumes: name, group, size.
    fn write(&self, back: &str, volumes: &[(&str, &str, &str)]) {
        let mut text = format!(
            "[drive]\nback = \"{back}:pool\"\n[listen]\nunix = \"socket\"\n[control]\nunix = \"control\"\n\
             [[group]]\nname = \"g\"\n[[group]]\nname = \"h\"\n"
        );
        for (name, group, size) in volumes {
            text +=
                &format!("[[volume]]\nname = \"{name}\"\ngroup = \"{group}\"\nsize = \"{size}\"\n");
        }
        fs::write(self.directory.join("my contracts.toml"), text).unwrap();
    }
    /// Runs a program in some directory of this machine.
    fn run(&self, program: &Path, words: &[&str]) -> Output {
        Command::new(program).args(words).current_dir(&self.directory).output().unwrap()
    }
    fn iofair(&self, words: &[&str]) -> Output {
        self.run(Path::new(PROGRAM), words)
    }
    fn fails(&self, words: &[&str]) -> String {
        let output = self.iofair(words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }
    /// Runs a command as it was copied, with more words behind its name; whether it succeeds, and what it prints.
    fn shell(&self, command: &str, directory: &Path) -> (bool, String) {
        let place = Path::new(PROGRAM).parent().unwrap().display();
        let path = format!("{place}:{}", std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        let bash = bash.args(["-c", command]).current_dir(directory).env("PATH", path);
        let output = bash.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    }
    fn serve(&mut self) {
        self.serve_by(Path::new(PROGRAM));
    }
    fn serve_by(&mut self, program: &Path) {
        let mut program = Command::new(program);
        program.args(["serve", "my contracts.toml"]).current_dir(&self.directory);
        let log = fs::File::create(self.directory.join("log")).unwrap();
        let mut child = program.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving"), "{line}");
        self.server = Some(child);
    }
    fn stop(&mut self) {
        let mut child = self.server.take().unwrap();
        let killed = Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(killed.success() && child.wait().unwrap().success());
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A test that failed may leave it running.
        self.server.iter_mut().for_each(|child| drop((child.kill(), child.wait())));
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// The commands in a message.
fn commands(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

/// Goal: all volumes that need consent are told together, and the commands that give it work as they are printed. Method: volumes
/// that shall be smaller and that are kept for another group, at a start and on a running server, in a directory and in a file;
/// names of files that a shell would split.
#[test]
fn commands_that_give_consent_work_as_printed() {
    for back in ["directory", "file"] {
        let mut scene = Scene::new(&format!("consent {back}"));
        scene.write(back, &[("a", "g", "2MiB"), ("b", "g", "2MiB"), ("c", "g", "2MiB")]);
        scene.serve();
        scene.stop();
        scene.write(back, &[("c", "g", "2MiB")]);
        scene.serve();
        let refused =
            scene.fails(&["ctl", "--socket", "control", "volume", "create", "a", "h", "2MiB"]);
        let found = commands(&refused);
        let [create] = found[..] else { panic!("{refused}") };
        assert!(create.ends_with(" volume create a h 2MiB --take-over"), "{refused}");
        let (works, told) = scene.shell(create, Path::new("/"));
        assert!(works, "{back}: {create}: {told}");
        let refused = scene.fails(&["ctl", "--socket", "control", "volume", "resize", "c", "1MiB"]);
        let (works, told) = scene.shell(commands(&refused)[0], Path::new("/"));
        assert!(works, "{back}: {refused}: {told}");
        scene.stop();
        scene.write(back, &[("a", "g", "2MiB"), ("c", "g", "512KiB")]);
        scene.serve_is_refused(&["volume \"c\"", "would cut data off", "--shrink c"]);
        scene.write(back, &[]);
        scene.serve();
        scene.stop();
        scene.write(back, &[("a", "g", "2MiB"), ("b", "h", "2MiB"), ("c", "h", "512KiB")]);
        let told = ["volume \"a\"", "volume \"b\"", "volume \"c\"", "take-over a", "take-over b"];
        let refused = scene.serve_is_refused(&told);
        let [command] = commands(&refused)[..] else { panic!("{refused}") };
        let command = command.replacen("serve", "serve --check", 1);
        let (works, told) = scene.shell(&command, &scene.directory);
        assert!(works && command.contains("--take-over c --shrink c"), "{back}: {command}: {told}");
    }
}

/// The command that gives the consent that is missing.
fn accepting(message: &str) -> &str {
    let (_, rest) = message.split_once("to accept this: ").unwrap_or_else(|| panic!("{message}"));
    commands(rest)[0]
}

/// Goal: consent that is given step by step is never dropped, and the last command makes the change. Method: data that is kept for
/// another group and longer, and a file that was removed; changes by `ctl`, with other keys, and by reloads of an edited file, in a
/// directory and in a file, first without consent and then with the command that each refusal prints.
#[test]
fn consent_is_complete_after_each_refusal() {
    for back in ["directory", "file"] {
        let mut scene = Scene::new(&format!("steps `x` $y {back}"));
        scene.write(back, &[("a", "g", "2MiB"), ("b", "g", "2MiB"), ("c", "g", "2MiB")]);
        scene.serve();
        scene.stop();
        scene.write(back, &[]);
        scene.serve();
        fn ctl<'a>(words: &[&'a str]) -> Vec<&'a str> {
            [&["ctl", "--socket", "control"], words].concat()
        }
        let create = ["volume", "create", "a", "h", "1MiB", "read_only=true", "--take-over"];
        let told = scene.fails(&ctl(&create));
        let command = accepting(&told);
        assert!(command.ends_with("a h 1MiB read_only=true --take-over --shrink"), "{told}");
        let dry = [&["--dry-run"], &create[..], &["--shrink"]].concat();
        let output = scene.iofair(&ctl(&dry));
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(
            text.contains("gives up: volume \"a\": ") && text.contains("for group \"g\""),
            "{text}"
        );
        assert!(text.contains("would cut data off"), "{text}");
        let (works, text) = scene.shell(command, Path::new("/"));
        assert!(works && text.contains("read_only"), "{back}: {command}: {text}");
        let file = [("a", "h", "1MiB"), ("b", "h", "1MiB"), ("c", "h", "2MiB")];
        scene.write(back, &file);
        let told = scene.fails(&ctl(&["reload", "--take-over", "c"]));
        let command = accepting(&told);
        assert!(command.ends_with("--take-over c --take-over b --shrink b"), "{told}");
        let (works, text) = scene.shell(command, Path::new("/"));
        assert!(works, "{back}: {command}: {text}");
        if back == "directory" {
            fs::remove_file(scene.directory.join("pool/c.img")).unwrap();
            let told = scene.fails(&ctl(&["volume", "remove", "c"]));
            assert!(accepting(&told).ends_with("volume remove c --delete-data"), "{told}");
            scene.write(back, &file[..2]);
            let told = scene.fails(&ctl(&["reload"]));
            let (works, text) = scene.shell(accepting(&told), Path::new("/"));
            assert!(works, "{told}: {text}");
        }
        scene.stop();
        scene.write(back, &[("a", "g", "512KiB"), ("b", "h", "512KiB")]);
        let told = scene.fails(&["serve", "--shrink", "b", "my contracts.toml"]);
        let command = accepting(&told);
        assert!(command.contains("--shrink b --shrink a "), "{told}");
        let (works, text) =
            scene.shell(&command.replacen("serve", "serve --check", 1), &scene.directory);
        assert!(works, "{back}: {command}: {text}");
    }
}

/// Goal: other commands in refusals of `ctl` work, too. Method: a file that was edited, and a group that is not there, by each way to
/// name the server.
#[test]
fn suggested_changes_work_as_printed() {
    let mut scene = Scene::new("changes `x`");
    scene.write("memory", &[("v", "g", "1MiB")]);
    let file = scene.directory.join("my contracts.toml");
    let text = fs::read_to_string(&file).unwrap().replace("memory:pool", "memory:64MiB");
    fs::write(&file, &text).unwrap();
    scene.serve();
    for server in [["--socket", "control"], ["--contracts", "my contracts.toml"]] {
        let ctl = |words: &[&'static str]| [&["ctl", server[0], server[1]], words].concat();
        let works = |told: &str, which: &str| {
            assert!(told.contains(which), "{told}");
            let (_, rest) = told.split_once(which).unwrap();
            let (works, text) = scene.shell(commands(rest)[0], Path::new("/"));
            assert!(works, "{told}: {text}");
        };
        works(&scene.fails(&ctl(&["group", "set", "new", "weight=3"])), "a new one: ");
        let now = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{now}# edited\n")).unwrap();
        works(&scene.fails(&ctl(&["group", "remove", "new"])), "apply the edit first: ");
        assert!(scene.iofair(&ctl(&["group", "remove", "new"])).status.success());
    }
}

/// Goal: consent for volumes that are not there or need none is not accepted in silence. Method: a start, a check, a reload and
/// changes of a volume, on every kind of storage.
#[test]
fn consent_that_nothing_needs_is_told() {
    for back in ["directory", "file", "emulated:plextor-px256m5s@"] {
        let mut scene = Scene::new(&format!("unneeded {}", &back[..4]));
        scene.write(back.trim_end_matches(':'), &[("a", "g", "2MiB")]);
        let text = fs::read_to_string(scene.directory.join("my contracts.toml")).unwrap();
        let text = text.replace("@:pool", "@pool");
        fs::write(scene.directory.join("my contracts.toml"), text).unwrap();
        for flag in ["--take-over", "--shrink"] {
            let told = scene.fails(&["serve", "--check", flag, "aa", "my contracts.toml"]);
            assert!(told.contains(flag) && told.contains("no volume \"aa\""), "{told}");
            assert!(told.contains("allowed: a") && told.contains("did you mean `a`?"), "{told}");
            let output = scene.iofair(&["serve", "--check", flag, "a", "my contracts.toml"]);
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(
                output.status.success() && text.contains("volume \"a\": nothing to "),
                "{text}"
            );
        }
        scene.serve();
        for words in [&["--take-over", "aa"][..], &["--shrink", "aa"], &["--delete-data", "aa"]] {
            let told = scene.fails(&[&["ctl", "--socket", "control", "reload"], words].concat());
            assert!(told.contains("aa"), "{told}");
        }
        for words in [
            &["reload", "--take-over", "a"][..],
            &["reload", "--shrink", "a"],
            &["volume", "create", "b", "g", "1MiB", "--take-over"],
            &["--dry-run", "volume", "create", "b", "g", "1MiB", "--shrink"],
        ] {
            let told = scene.fails(&[&["ctl", "--socket", "control"], words].concat());
            assert!(told.contains("\": nothing to "), "{words:?}: {told}");
        }
        scene.stop();
    }
}

impl Scene {
    fn serve_is_refused(&self, words: &[&str]) -> String {
        let refused = self.fails(&["serve", "--check", "my contracts.toml"]);
        words.iter().for_each(|word| assert!(refused.contains(word), "{word}: {refused}"));
        refused
    }
}

/// Goal: a program under another name suggests commands by that name, and a check finds its server. Method: a pool that is
/// missing, and a server, by a link to the program.
#[test]
fn commands_have_the_name_of_the_program() {
    let mut scene = Scene::new("renamed");
    let program = scene.directory.join("iofair-next");
    symlink(PROGRAM, &program).unwrap();
    let output = scene.run(&program, &["pool", "show", "none.img"]);
    let told = String::from_utf8(output.stderr).unwrap();
    let [command, _] = commands(&told)[..] else { panic!("{told}") };
    assert!(command.contains("iofair-next' pool create none.img"), "{told}");
    let (works, told) = scene.shell(command, &scene.directory);
    assert!(works, "{told}");
    scene.write("directory", &[("a", "g", "1MiB")]);
    scene.serve_by(&program);
    let output = scene.run(&program, &["serve", "--check", "my contracts.toml"]);
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && told.contains("a server runs with this file"), "{told}");
    scene.stop();
}

/// Goal: kept data of a pool directory is shown and can be deleted, by nobody while a server has the directory. Method: two
/// volumes, of which one is removed, and the other one taken out later.
#[test]
fn kept_data_of_a_directory_is_shown_and_deleted() {
    let mut scene = Scene::new("kept");
    scene.write("directory", &[("a", "g", "1MiB"), ("b", "g", "2MiB")]);
    scene.serve();
    assert!(
        scene.iofair(&["ctl", "--socket", "control", "volume", "remove", "b"]).status.success()
    );
    let shown = |scene: &Scene| {
        let output = scene.iofair(&["pool", "show", "pool", "--json"]);
        let shown: Json = serde_json::from_slice(&output.stdout).unwrap();
        let volumes = shown["volumes"].as_array().unwrap().clone();
        let states = volumes
            .iter()
            .map(|volume| format!("{} {} {}", volume["name"], volume["state"], volume["bytes"]));
        states.collect::<Vec<_>>().join(", ").replace('"', "")
    };
    assert_eq!(shown(&scene), "a live 1048576, b kept 2097152");
    let told = scene.fails(&["pool", "delete", "pool", "b"]);
    assert!(told.contains("another server uses it"), "{told}");
    scene.stop();
    let told = scene.fails(&["pool", "delete", "pool", "a"]);
    assert!(told.contains("the contracts have it"), "{told}");
    let told = scene.fails(&["pool", "delete", "pool", "c"]);
    assert!(told.contains("it has a, b"), "{told}");
    assert!(scene.directory.join("pool/b.img").exists());
    assert!(scene.iofair(&["pool", "delete", "pool", "b"]).status.success());
    assert_eq!(shown(&scene), "a live 1048576");
    assert!(!scene.directory.join("pool/b.img").exists());
    scene.write("directory", &[("b", "h", "2MiB")]);
    let delete = ["pool", "delete", "pool", "a", "--contracts", "my contracts.toml"];
    assert!(scene.iofair(&delete).status.success());
    assert_eq!(shown(&scene), "");
    // The next one is another volume, for any group.
    scene.write("directory", &[("a", "g", "1MiB"), ("b", "h", "2MiB")]);
    scene.serve();
    scene.stop();
    fs::create_dir(scene.directory.join("other")).unwrap();
    let told = scene.fails(&["pool", "show", "other"]);
    assert!(told.contains("no server has used this directory"), "{told}");
}

/// Goal: who removes or renames a volume is told where its data is kept, and the printed commands use it again and delete it.
/// Method: a removal by `ctl`, another name at a reload and at a start, in a directory and in a file; each command as it is printed.
#[test]
fn kept_data_is_told_with_its_commands() {
    for back in ["directory", "file"] {
        let mut scene = Scene::new(&format!("removed {back}"));
        scene.write(back, &[("a", "g", "1MiB"), ("b", "g", "1MiB")]);
        scene.serve();
        let says = |scene: &Scene, words: &[&str]| {
            let output = scene.iofair(words);
            let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(output.status.success(), "{words:?}: {text}");
            text
        };
        let ctl = |scene: &Scene, words: &[&str]| {
            says(scene, &[&["ctl", "--socket", "control"], words].concat())
        };
        let works = |scene: &Scene, command: &str| {
            let (works, text) = scene.shell(command, Path::new("/"));
            assert!(works, "{back}: {command}: {text}");
        };
        let is_listed = |scene: &Scene| ctl(scene, &["volume", "list"]).contains("data kept");
        let told = ctl(&scene, &["volume", "remove", "b"]);
        let kept = scene.directory.join("pool");
        assert!(told.contains(&format!("is kept in {}", kept.display())), "{told}");
        let [again, delete, _] = commands(&told)[..] else { panic!("{told}") };
        assert!(is_listed(&scene));
        works(&scene, again);
        assert!(!is_listed(&scene));
        works(&scene, delete);
        assert!(!is_listed(&scene), "{back}: it is deleted");
        scene.write(back, &[("renamed", "g", "1MiB")]);
        let told = ctl(&scene, &["reload"]);
        assert!(told.contains("volume \"a\" is not in the contracts any more"), "{told}");
        works(&scene, commands(&told)[0]);
        scene.stop();
        scene.write(back, &[("a", "g", "1MiB"), ("renamed-again", "g", "1MiB")]);
        let note = "volume \"renamed\" is not in the contracts any more";
        let told = says(&scene, &["serve", "--check", "my contracts.toml"]);
        assert!(told.contains(note), "{told}");
        scene.serve();
        scene.stop();
        let told = fs::read_to_string(scene.directory.join("log")).unwrap();
        assert!(told.contains(note), "{told}");
        let [_, _, delete] = commands(&told)[..] else { panic!("{told}") };
        works(&scene, delete);
        scene.serve();
        scene.stop();
        let told = fs::read_to_string(scene.directory.join("log")).unwrap();
        assert!(!told.contains("contracts any more"), "{told}");
    }
}

/// Goal: with `--json`, errors are JSON, of whatever kind they are. Method: a refusal of a server, wrong words, a missing file, and
/// no server; the kinds, and the same exit codes as without.
#[test]
fn errors_are_json_where_that_is_wanted() {
    let mut scene = Scene::new("json");
    scene.write("directory", &[("a", "g", "1MiB")]);
    scene.serve();
    for (words, kind, code) in [
        (&["ctl", "--socket", "control", "group", "show", "x"][..], "missing", 2),
        (&["ctl", "--socket", "control", "group", "set", "g", "weigth=3"], "refused", 2),
        (&["ctl", "--socket", "none", "status"], "failed", 1),
        (&["ctl", "--sockt", "none", "status"], "usage", 2),
        (&["serve", "missing.toml"], "usage", 2),
        (&["pool", "show", "missing"], "failed", 1),
    ] {
        let output = scene.iofair(&[words, &["--json"]].concat());
        let error: Json = serde_json::from_slice(&output.stderr)
            .unwrap_or_else(|_| panic!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)));
        let error = &error["error"];
        assert_eq!(
            (error["kind"].as_str(), output.status.code()),
            (Some(kind), Some(code)),
            "{words:?}"
        );
        assert!(error["message"].is_string() && error["text"].is_string(), "{error}");
        assert!(output.stdout.is_empty());
        assert_eq!(scene.iofair(words).status.code(), Some(code));
    }
    scene.stop();
}

/// Goal: who creates or enlarges a volume beyond the room for it is told so, and not refused. Method: a volume of all the room,
/// then one more.
#[test]
fn volumes_beyond_the_room_are_noted() {
    let mut scene = Scene::new("room");
    scene.write("directory", &[("a", "g", "1MiB")]);
    scene.serve();
    let ctl = |words: &[&str]| {
        let output = scene.iofair(&[&["ctl", "--socket", "control", "--json"], words].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Json>(&output.stdout).unwrap()
    };
    assert!(ctl(&["volume", "create", "b", "g", "1MiB"])["notes"].is_null());
    let free = ctl(&["status"])["free_bytes"].as_u64().unwrap() >> 20;
    // More than others on this machine may free meanwhile, and less than the longest file.
    let size = format!("{}MiB", free + free / 2);
    let notes = ctl(&["volume", "create", "c", "g", &size])["notes"].clone();
    assert!(notes[0].as_str().unwrap().contains("larger than the room"), "{notes}");
    scene.stop();
}
