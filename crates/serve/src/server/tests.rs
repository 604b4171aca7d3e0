//! Goal: a change of the contracts is made or not, also when a step fails after which something is to undo.
//! Method: every step fails once, on a pool and in a directory; then what clients, the disk and a restart see.

use std::fs;

use super::*;

/// Contracts over a back end in a directory.
fn contracts(directory: &Path, back: &str, volumes: &[(&str, &str, &str)]) -> Contracts {
    let place = directory.display();
    let mut text = format!(
        "[drive]\nback = '{back}:{place}/pool'\nstack = 'none-none'\n[listen]\nunix = '{place}/socket'\n\
         [[group]]\nname = 'g'\n[[group]]\nname = 'h'\n"
    );
    for (name, group, size) in volumes {
        text += &format!("[[volume]]\nname = '{name}'\ngroup = '{group}'\nsize = '{size}'\n");
        text += &format!("vhost = '{place}/{name}.vhost'\n");
    }
    Contracts::parse("test.toml", &text).unwrap()
}

fn names(server: &Server) -> Vec<(String, String)> {
    let told = server.stats(false).unwrap();
    told.volumes.into_iter().map(|volume| (volume.name, volume.group)).collect()
}

fn files(directory: &Path) -> Vec<String> {
    let entry = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut files: Vec<String> = fs::read_dir(directory).unwrap().map(entry).collect();
    files.sort_unstable();
    files
}

/// See the top of the file.
#[test]
fn changes_are_made_or_not() {
    for back in ["file", "directory"] {
        for step in [Step::Make, Step::Devices, Step::Apply, Step::Disks, Step::Blocks] {
            let directory = std::env::temp_dir()
                .join(format!("iofair-step-{}-{back}-{step:?}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            let old = contracts(&directory, back, &[("a", "g", "1MiB"), ("b", "g", "1MiB")]);
            let mut server = Server::start(old.clone()).unwrap();
            let seen = (names(&server), files(&directory));
            let new = [("b", "h", "2MiB"), ("c", "h", "1MiB")];
            let new = contracts(&directory, back, &new);
            let consent = Consent { delete: vec!["a".into()], ..Consent::default() };
            server.fails_at.set(Some(step));
            let error = server.reload_with(new.clone(), &consent).unwrap_err().to_string();
            assert!(error.contains(&format!("{step:?}")), "{error}");
            assert_eq!(server.contracts().text(), old.text());
            assert_eq!((names(&server), files(&directory)), seen, "{back} {step:?}");
            server.reload_with(new.clone(), &consent).unwrap();
            assert_eq!(names(&server), [("b".into(), "h".into()), ("c".into(), "h".into())]);
            server.stop().unwrap();
            Server::start(new).unwrap().stop().unwrap();
            fs::remove_dir_all(directory).unwrap();
        }
    }
}

/// Goal: when the last step fails, the change stands and the data is kept. Method: a deletion that fails.
#[test]
fn data_that_could_not_be_deleted_is_kept() {
    let directory = std::env::temp_dir().join(format!("iofair-finish-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let old = contracts(&directory, "file", &[("a", "g", "1MiB"), ("b", "g", "1MiB")]);
    let mut server = Server::start(old).unwrap();
    let new = contracts(&directory, "file", &[("b", "g", "1MiB")]);
    let consent = Consent { delete: vec!["a".into()], ..Consent::default() };
    server.fails_at.set(Some(Step::Finish));
    assert!(server.reload_with(new.clone(), &consent).is_err());
    assert_eq!(server.contracts().text(), new.text());
    server.stop().unwrap();
    let summary = crate::pool::admin::show(&directory.join("pool")).unwrap();
    let states: Vec<_> = summary.volumes.iter().map(|v| (v.name.as_str(), v.state)).collect();
    assert_eq!(states, [("a", "kept"), ("b", "live")]);
    fs::remove_dir_all(directory).unwrap();
}
