//! Goal: a change of the contracts is made or not, also when a step fails after which something is to undo.
//! Method: every step fails once, on a pool and in a directory; then what clients, the disk and a restart see.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use iofair_core::id::GroupId;

use super::*;
use crate::reactor::zeroing::{ZeroJob, Zeroed};

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
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let (name, file) = (entry.file_name().into_string().unwrap(), entry.metadata().unwrap());
        if name.ends_with(".img") { format!("{name} {}", file.len()) } else { name }
    };
    let mut files: Vec<String> = fs::read_dir(directory).unwrap().map(entry).collect();
    files.sort_unstable();
    files
}

/// See the top of the file.
#[test]
fn changes_are_made_or_not() {
    for back in ["file", "directory"] {
        for step in [Step::Make, Step::Prepare, Step::Apply, Step::Start, Step::Started] {
            let directory = std::env::temp_dir()
                .join(format!("iofair-step-{}-{back}-{step:?}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            let old = contracts(&directory, back, &[("a", "g", "1MiB"), ("b", "g", "1MiB")]);
            let mut server = Server::start(old.clone()).unwrap();
            let pool = directory.join("pool");
            let files = || if pool.is_dir() { files(&pool) } else { files(&directory) };
            let seen = (names(&server), files());
            let new = [("b", "h", "2MiB"), ("c", "h", "1MiB")];
            let new = contracts(&directory, back, &new);
            let consent = Consent { delete: vec!["a".into()], ..Consent::default() };
            server.fails_at.set(Some(step));
            let error = server.reload_with(new.clone(), &consent).unwrap_err().to_string();
            assert!(error.contains(&format!("{step:?}")), "{error}");
            assert_eq!(server.contracts().text(), old.text());
            assert_eq!((names(&server), files()), seen, "{back} {step:?}");
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
    let error = server.reload_with(new.clone(), &consent).unwrap_err().to_string();
    assert!(error.starts_with("the contracts were changed, but data"), "{error}");
    assert_eq!(server.contracts().text(), new.text());
    server.stop().unwrap();
    let summary = crate::pool::admin::show(&directory.join("pool")).unwrap();
    let states: Vec<_> = summary.volumes.iter().map(|v| (v.name.as_str(), v.state)).collect();
    assert_eq!(states, [("a", "kept"), ("b", "live")]);
    fs::remove_dir_all(directory).unwrap();
}

/// Dirty bytes of the pool, after the background thread has had time to make them none.
fn dirty_at_last(server: &Server) -> u64 {
    let until = crate::clock::moment() + Duration::from_secs(60);
    let zeroing = server.zeroing().unwrap();
    while zeroing.dirty_bytes() > 0 && crate::clock::moment() < until {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    zeroing.dirty_bytes()
}

/// Zeroes that were written for volumes directly in a group.
fn zeroes_of(server: &Server, group: &'static str) -> u64 {
    let look = server.line().look(move |seen| {
        let groups = seen.engine.controller().groups();
        let id = if group.is_empty() { Some(GroupId::ROOT) } else { groups.find(group) };
        id.map_or(0, |id| seen.engine.tally(id).zeroes)
    });
    look.unwrap()
}

/// Goal: what a deleted volume left is zeroed in the background, charged to no account, also after a restart; a volume that
/// needs it at once has it zeroed for its own group's. Method: deletions; the background is held at an engine that takes
/// nothing in, with the extents, until a change waits for them. Nobody sees the volume that this needs.
#[test]
fn room_is_zeroed_in_the_background_or_for_the_group_that_needs_it() {
    let directory = std::env::temp_dir().join(format!("iofair-zeroing-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let with = |volumes: &[(&str, &str, &str)]| contracts(&directory, "file", volumes);
    let (a, b) = (("a", "g", "32MiB"), ("b", "g", "1MiB"));
    let deleting = Consent { delete: vec!["a".into()], ..Consent::default() };

    let mut server = Server::start(with(&[a, b])).unwrap();
    server.reload_with(with(&[b]), &deleting).unwrap();
    assert_eq!((dirty_at_last(&server), zeroes_of(&server, "")), (0, 32));
    assert_eq!(names(&server), [("b".into(), "g".into())]);

    server.reload(with(&[a, b])).unwrap();
    let held = server.line().pause().unwrap();
    held.recv().unwrap();
    server.reload_with(with(&[b]), &deleting).unwrap();
    assert_eq!(server.zeroing().unwrap().dirty_bytes(), 32 << 20);
    let line = server.line().clone();
    let shared = Arc::clone(server.places.pool().unwrap().shared());
    while !shared.is_busy() {
        std::thread::yield_now();
    }
    let other = std::thread::spawn(move || {
        while !shared.is_waited_for() {
            std::thread::yield_now();
        }
        line.resume().unwrap();
    });
    server.reload(with(&[b, ("c", "h", "32MiB")])).unwrap();
    other.join().unwrap();
    assert_eq!((zeroes_of(&server, "h"), dirty_at_last(&server)), (32, 0));
    assert_eq!(fs::metadata(directory.join("pool")).unwrap().len(), (1 + 16 + 33) << 20);

    let deleting = Consent { delete: vec!["c".into()], ..Consent::default() };
    server.line().pause().unwrap().recv().unwrap();
    server.reload_with(with(&[b]), &deleting).unwrap();
    server.stop().unwrap();
    let pool = directory.join("pool");
    assert_eq!(crate::pool::admin::show(&pool).unwrap().dirty_bytes, 32 << 20);
    let server = Server::start(with(&[b])).unwrap();
    assert_eq!(dirty_at_last(&server), 0);
    server.stop().unwrap();
    assert_eq!(crate::pool::admin::show(&pool).unwrap().dirty_bytes, 0);
    fs::remove_dir_all(directory).unwrap();
}

/// Has the reactor zero 4 MiB that no volume has.
fn zero(server: &Server, group: Option<&str>) -> mpsc::Receiver<Zeroed> {
    let (reply, replied) = mpsc::channel();
    let (stop, counter) = (Arc::default(), Arc::default());
    let (start, group) = (1 << 30, group.map(str::to_string));
    let extents = std::iter::once(start..start + (4 << 20)).collect();
    let job = ZeroJob { group, extents, hole: true, flush: true, stop, counter, reply };
    server.line().send(Message::Zero(job)).unwrap();
    replied
}

/// Goal: the background gives way to every other request, whatever the scheduler; what a group needs does not, and the
/// group's limit holds it. Method: a scheduler without classes, a group with a limit far below one request a second; what
/// is held there is the other request.
#[test]
fn zeroing_gives_way_or_is_held_by_its_groups_limit() {
    let directory = std::env::temp_dir().join(format!("iofair-giving-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let contracts = |limit: &str| {
        let text = contracts(&directory, "file", &[("a", "g", "1MiB")]).text().to_string();
        let text = text.replace("none-none", "max-none");
        let text = text.replace("name = 'h'\n", &format!("name = 'h'\n{limit}\n"));
        Contracts::parse("test.toml", &text).unwrap()
    };
    let mut server = Server::start(contracts("max.write = '1kB/s'")).unwrap();
    let all = Zeroed { bytes: 4 << 20, is_durable: true, ..Zeroed::default() };
    assert_eq!(zero(&server, None).recv().unwrap(), all);
    let held = zero(&server, Some("h"));
    while server.line().look(|seen| seen.engine.pending()).unwrap() == 0 {}
    let some = Zeroed { bytes: 1 << 20, contended: true, ..all };
    assert_eq!(zero(&server, None).recv().unwrap(), some);
    let free = zero(&server, Some("g/new"));
    assert_eq!(free.recv().unwrap(), Zeroed { contended: true, ..all });
    assert_eq!(zeroes_of(&server, "g"), 4);
    assert_eq!(held.try_recv(), Err(mpsc::TryRecvError::Empty));
    server.reload(contracts("")).unwrap();
    assert_eq!(held.recv().unwrap().bytes, 4 << 20);
    server.stop().unwrap();
    fs::remove_dir_all(directory).unwrap();
}
