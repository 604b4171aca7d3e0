//! Goal: a change of the contracts is made or not, also when a step fails after which something is to undo.
//! Method: every step fails once, on a pool and in a directory; then what clients, the disk and a restart see.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use iofair_core::id::GroupId;
use iofair_testkit::wire::{FUA, Wire};

use super::*;
use crate::reactor::zeroing::{ZeroJob, Zeroed};

/// Contracts over a back end in a directory.
fn contracts(directory: &Path, back: &str, volumes: &[(&str, &str, &str)]) -> Contracts {
    let place = directory.display();
    let back = match back {
        "emulated" => "emulated:samsung-970-pro@".to_string(),
        back => format!("{back}:"),
    };
    let mut text = format!(
        "[drive]\nback = '{back}{place}/pool'\nstack = 'none-none'\n[listen]\nunix = '{place}/socket'\n\
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
    let names = told.volumes.into_iter().map(|volume| (volume.name, volume.group));
    names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// All files, the lengths of those with data, and what lists of volumes say.
fn files(directory: &Path) -> Vec<String> {
    let entry = |entry: io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            return files(&path);
        }
        let told = match name.as_str() {
            ".iofair.json" | "pool.volumes" => fs::read_to_string(&path).unwrap(),
            "pool" => match crate::pool::admin::show(&path) {
                Ok(pool) => serde_json::to_string(&pool.volumes).unwrap(),
                Err(_) => String::new(),
            },
            _ if name.ends_with(".img") => fs::metadata(&path).unwrap().len().to_string(),
            _ => String::new(),
        };
        vec![format!("{name} {told}")]
    };
    let mut files: Vec<String> = fs::read_dir(directory).unwrap().flat_map(entry).collect();
    files.sort_unstable();
    files
}

/// A change that takes over the file of the contracts, or fails to.
fn change(
    server: &mut Server,
    contracts: &Contracts,
    consent: &Consent,
    commit: impl FnOnce() -> Result<(), ServeError>,
) -> Result<(), ServeError> {
    let removal = server.reload_at_once(contracts.clone(), consent, commit)?;
    removal.map_or(Ok(()), Removal::wait)
}

/// See the top of the file.
#[test]
fn changes_are_made_or_not() {
    let steps = [Step::Make, Step::Prepare, Step::Enlarge, Step::Apply, Step::Start, Step::Started];
    for back in ["file", "directory", "emulated"] {
        // The last one: the contract file cannot be written.
        for step in steps.into_iter().map(Some).chain([None]) {
            let directory = std::env::temp_dir()
                .join(format!("iofair-step-{}-{back}-{step:?}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            let (a, b, kept) = (("a", "g", "1MiB"), ("b", "g", "1MiB"), ("x", "g", "1MiB"));
            // `b` can grow in a row of volumes, too.
            let old = contracts(&directory, back, &[a, b]);
            Server::start(contracts(&directory, back, &[kept, a, b])).unwrap().stop().unwrap();
            let mut server = Server::start(old.clone()).unwrap();
            let seen = (names(&server), files(&directory));
            let new = [("b", "h", "2MiB"), ("c", "h", "1MiB"), ("x", "h", "1MiB")];
            let new = contracts(&directory, back, &new);
            let delete = if back == "emulated" { vec![] } else { vec!["a".into()] };
            let take_over = vec!["x".into()];
            let consent = Consent { delete, take_over, ..Consent::default() };
            server.fails_at.set(step);
            let error = change(&mut server, &new, &consent, || match step {
                Some(_) => Ok(()),
                None => Err(ServeError::Fixed("None".into())),
            });
            let (error, name) = (error.unwrap_err().to_string(), format!("{step:?}"));
            let name = name.trim_start_matches("Some(").trim_end_matches(')');
            assert!(error.contains(name), "{error}");
            assert_eq!(server.contracts().text(), old.text());
            assert_eq!((names(&server), files(&directory)), seen, "{back} {step:?}");
            change(&mut server, &new, &consent, || Ok(())).unwrap();
            let all = ["b", "c", "x"].map(|name| (name.to_string(), "h".to_string()));
            assert_eq!(names(&server), all);
            server.stop().unwrap();
            Server::start(new).unwrap().stop().unwrap();
            fs::remove_dir_all(directory).unwrap();
        }
    }
}

/// Goal: after a crash during a change a server starts, with the contract file as it was before or as it is after, needs no consent
/// and has lost nothing. Method: what is on disk as the file is exchanged, and when the change is in force; volumes that come,
/// grow, shrink and are taken over. Between these states, nothing is listed as larger than the file says.
#[test]
fn a_server_starts_after_a_crash_during_a_change() {
    for back in ["directory", "file", "emulated"] {
        let base = std::env::temp_dir().join(format!("iofair-crash-{}-{back}", std::process::id()));
        let at = |name: &str| base.join(name);
        fs::create_dir_all(at("live")).unwrap();
        let copy = |to: &str| {
            let mut copy = std::process::Command::new("cp");
            assert!(copy.arg("-a").args([at("live"), at(to)]).status().unwrap().success());
        };
        let (grows, shrinks, kept) = (("v", "g", "4MiB"), ("w", "g", "4MiB"), ("x", "g", "1MiB"));
        let old = |place: &str| contracts(&at(place), back, &[shrinks, grows]);
        let new = [("w", "g", "2MiB"), ("v", "g", "8MiB"), ("x", "h", "1MiB"), ("y", "h", "1MiB")];
        let new = |place: &str| contracts(&at(place), back, &new);
        let first = contracts(&at("live"), back, &[kept, shrinks, grows]);
        Server::start(first).unwrap().stop().unwrap();
        let mut server = Server::start(old("live")).unwrap();
        let connect = |place: &str, volume: &str| {
            let socket = at(place).join("socket");
            Wire::connect_to(&socket.display().to_string(), volume).unwrap()
        };
        let end = (4 << 20) - 4096;
        for volume in ["v", "w"] {
            assert_eq!(connect("live", volume).write(FUA, end, &[7; 4096]), 0);
        }
        let consent =
            Consent { shrink: vec!["w".into()], take_over: vec!["x".into()], ..Consent::default() };
        // A volume that a client has open does not shrink.
        while server.stats(false).unwrap().volumes.iter().any(|volume| volume.connections > 0) {
            std::thread::yield_now();
        }
        let commit = || {
            copy("before");
            copy("between");
            Ok(())
        };
        change(&mut server, &new("live"), &consent, commit).unwrap();
        copy("after");
        server.stop().unwrap();
        let started = |place: &str, contracts: Contracts| {
            let server = Server::start(contracts);
            let server = server.unwrap_or_else(|error| panic!("{back}, {place}: {error}"));
            for volume in server.contracts().volumes.iter().filter(|one| one.size_bytes >= 4 << 20)
            {
                let found = connect(place, &volume.name).read(end, 4096).data;
                assert_eq!(found, [7; 4096], "{back}, {place}: {}", volume.name);
            }
            server.stop().unwrap();
        };
        started("before", old("before"));
        started("between", new("between"));
        started("after", new("after"));
        fs::remove_dir_all(base).unwrap();
    }
}

/// Goal: a change of a volume in a longer file cuts off what it says and no more, and a refused one nothing. Method: growth that is
/// taken back, with what somebody appends meanwhile; a smaller size; a start that may shrink and needs not.
#[test]
fn longer_files_keep_what_is_behind_the_volume() {
    let directory = std::env::temp_dir().join(format!("iofair-longer-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("file");
    let bytes: Vec<u8> = (0..8_u32 << 20).map(|at| (at / 512) as u8 | 1).collect();
    fs::write(&file, &bytes).unwrap();
    let with = |size: &str| {
        let place = directory.display();
        let text = contracts(&directory, "directory", &[("v", "g", size)]).text().to_string();
        let text = text.replace("stack", &format!("paths = ['{place}']\nstack"));
        Contracts::parse("test.toml", &format!("{text}path = '{place}/file'\n")).unwrap()
    };
    let consent = || Consent { shrink: vec!["v".into()], ..Consent::default() };
    let fails = || Err(ServeError::Fixed("the file".into()));
    let mut server = Server::start(with("4MiB")).unwrap();
    for size in ["6MiB", "2MiB"] {
        let consent = if size == "2MiB" { consent() } else { Consent::default() };
        change(&mut server, &with(size), &consent, fails).unwrap_err();
        server.fails_at.set(Some(Step::Start));
        change(&mut server, &with(size), &consent, || Ok(())).unwrap_err();
        assert!(fs::read(&file).unwrap() == bytes, "{size}");
    }
    change(&mut server, &with("10MiB"), &Consent::default(), fails).unwrap_err();
    assert!(fs::read(&file).unwrap() == bytes, "the growth is taken back");
    change(&mut server, &with("2MiB"), &consent(), || Ok(())).unwrap();
    let mut expected = bytes.clone();
    expected[2 << 20..4 << 20].fill(0);
    assert!(fs::read(&file).unwrap() == expected);
    server.stop().unwrap();
    Server::start_with(with("2MiB"), Passed::default(), &consent()).unwrap().stop().unwrap();
    assert!(fs::read(&file).unwrap() == expected);
    let mut server = Server::start(with("2MiB")).unwrap();
    let appends = || {
        let file = fs::File::options().append(true).open(&file).unwrap();
        file.set_len(11 << 20).unwrap();
        fails()
    };
    change(&mut server, &with("10MiB"), &Consent::default(), appends).unwrap_err();
    assert_eq!(fs::metadata(&file).unwrap().len(), 11 << 20, "it is somebody's");
    server.stop().unwrap();
    fs::remove_dir_all(directory).unwrap();
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
    let shared = Arc::clone(&server.zeroing.as_ref().unwrap().shared);
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
