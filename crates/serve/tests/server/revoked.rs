//! Clients of volumes that a change takes away, gives away or makes anew: none keeps a disk that somebody else has, and none keeps
//! one that the contracts do not let it have.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::guest::{BLOCK, Guest};
use crate::rig::wire::Wire;
use crate::rig::{Directory, parse};
use iofair_serve::{Consent, Server};

/// Contracts with the groups `a` and `b`, and these volumes: name, group, further keys.
fn contracts(directory: &Directory, back: &str, volumes: &[(&str, &str, String)]) -> String {
    let back = match back {
        "directory" | "file" => format!("{back}:{}", directory.path("pool")),
        back => back.to_string(),
    };
    let head = format!(
        "[drive]\nback = '{back}'\nstack = 'none-none'\n[listen]\nunix = '{}'\n\
         [[group]]\nname = 'a'\n[[group]]\nname = 'b'\n",
        directory.path("socket"),
    );
    let volume = |(name, group, keys): &(&str, &str, String)| {
        format!("[[volume]]\nname = '{name}'\ngroup = '{group}'\nsize = '1MiB'\n{keys}\n")
    };
    head + &volumes.iter().map(volume).collect::<String>()
}

fn ended(wire: &mut Wire) {
    // What the server says last may be that it is gone.
    let _ = wire.send_read(0, 512);
    assert!(wire.receive().is_err(), "it is still served");
}

fn take_over() -> Consent {
    Consent { take_over: vec!["x".into()], ..Consent::default() }
}

/// Goal: a volume that another group gets has no client of the group before. Method: a virtual machine and an NBD client of `a`,
/// which stay while the volume is removed; then `b` takes the volume over, with a socket of its own, the same, or none.
#[test]
fn a_volume_that_is_given_away_has_no_earlier_clients() {
    for (back, socket) in
        [("directory", "b"), ("directory", "a"), ("memory:1MiB", ""), ("file", "b")]
    {
        let directory = Directory::new();
        let key = |name: &str| match name {
            "" => String::new(),
            name => format!("vhost = '{}'", directory.path(name)),
        };
        let text = |volumes: &[_]| parse(&contracts(&directory, back, volumes));
        let mut server = Server::start(text(&[("x", "a", key("a"))])).unwrap();
        let mut guest = Guest::connected(&directory.path("a"), 1);
        let mut wire = Wire::connect_to(&directory.path("socket"), "x").unwrap();
        assert_eq!(guest.do_one(0, 0, Some(&[1; BLOCK])), 0);
        server.reload(text(&[])).unwrap();
        assert_eq!(guest.do_one(0, 0, Some(&[2; BLOCK])), 0, "it keeps the disk");
        assert_eq!(wire.write(0, 8192, &[3; 512]), 0);
        server.reload_with(text(&[("x", "b", key(socket))]), &take_over()).unwrap();
        assert!(guest.was_sent_away(), "{back}, {socket}");
        ended(&mut wire);
        if !socket.is_empty() {
            let mut other = Guest::connected(&directory.path(socket), 1);
            assert_eq!(other.do_one(0, 0, None), 0);
            assert_eq!(other.data(0, 0), [2; BLOCK]);
        }
        while server.stats(false).unwrap().connections > usize::from(!socket.is_empty()) {
            thread::yield_now();
        }
    }
}

/// Goal: the same of a volume that is moved to another group and another socket at once.
#[test]
fn a_machine_does_not_follow_a_volume_to_another_group_and_socket() {
    let directory = Directory::new();
    let key = |name: &str| format!("vhost = '{}'", directory.path(name));
    let text = |volumes: &[_]| parse(&contracts(&directory, "directory", volumes));
    let mut server = Server::start(text(&[("x", "a", key("a"))])).unwrap();
    let guest = Guest::connected(&directory.path("a"), 1);
    server.reload(text(&[("x", "b", key("b"))])).unwrap();
    assert!(guest.was_sent_away());
    assert_eq!(Guest::connected(&directory.path("b"), 1).do_one(0, 0, None), 0);
}

/// Goal: a volume has one machine at a time, whatever becomes of its socket. Method: the volume is removed and comes again, gets
/// another socket, and is renamed, under a machine that has it. A second one connects and has the disk only once the first one
/// has gone.
#[test]
fn a_second_machine_waits_for_the_first_one() {
    let id = "uuid = '0e9c1f6a-7f3b-4c0f-8c1d-2b7f6a5e4d3c'";
    for (back, away, after) in [
        ("directory", true, ("x", "a")),
        ("memory:1MiB", true, ("x", "a")),
        ("directory", false, ("x", "b")),
        ("file", false, ("y", "b")),
    ] {
        let directory = Directory::new();
        let key = |name: &str| {
            let id = if back == "file" { id } else { "" };
            format!("vhost = '{}'\n{id}", directory.path(name))
        };
        let text = |volumes: &[_]| parse(&contracts(&directory, back, volumes));
        let mut server = Server::start(text(&[("x", "a", key("a"))])).unwrap();
        let first = Guest::connected(&directory.path("a"), 1);
        if away {
            server.reload(text(&[])).unwrap();
        }
        let (name, socket) = after;
        server.reload(text(&[(name, "a", key(socket))])).unwrap();
        let (has_left, path) = (AtomicBool::new(false), directory.path(socket));
        thread::scope(|scope| {
            // Whatever happens here, the second one waits no longer than this one is there.
            let mut first = first;
            let second = scope.spawn(|| {
                let mut second = Guest::connected(&path, 1);
                assert!(has_left.load(Ordering::SeqCst), "{back}: two machines have one disk");
                assert_eq!(second.do_one(0, 0, None), 0);
                second.data(0, 0)
            });
            for round in 0..100 {
                assert_eq!(first.do_one(0, 0, Some(&[round; BLOCK])), 0, "{back}");
                let volumes = server.stats(false).unwrap().volumes;
                assert_eq!(volumes.iter().map(|volume| volume.connections).sum::<u32>(), 1);
            }
            has_left.store(true, Ordering::SeqCst);
            first.front = None;
            assert_eq!(second.join().unwrap(), [99; BLOCK]);
        });
    }
}

/// Goal: revocation reaches the clients of removed volumes, and of removed groups. Method: a client of a volume that is removed;
/// then `clients` changes, or the group goes, too, beside a group with `clients` and without one.
#[test]
fn clients_of_removed_volumes_are_revoked() {
    // SAFETY: only reads a number of the process.
    let user = unsafe { libc::getuid() };
    let group = |name: &str, clients: &str| {
        let clients = if clients.is_empty() { String::new() } else { format!("'{clients}'") };
        format!("[[group]]\nname = '{name}'\nclients = [{clients}]\n")
    };
    let (ours, other) = (format!("uid:{user}"), format!("uid:{}", user + 1));
    let named = group("t/a", &ours) + &group("b", &other);
    for (before, after, stays) in [
        (named.clone(), group("t/a", &other) + &group("b", &other), false),
        (named.clone(), group("t/a", "") + &group("b", &ours), false),
        (named.clone(), group("b", &other), false),
        (named.clone(), group("b", ""), false),
        (named.clone(), group("t", &ours) + &group("b", ""), true),
        (named.clone(), group("t/a", &ours) + &group("b", &ours), true),
        (named, group("t/a", "*"), true),
        (group("t/a", ""), group("b", ""), true),
        (group("t/a", ""), group("b", &ours), false),
    ] {
        let directory = Directory::new();
        let text = |groups: &str, volume: &str| {
            parse(&format!(
                "[drive]\nback = 'memory:1MiB'\nstack = 'none-none'\n[listen]\nunix = '{}'\n{groups}{volume}",
                directory.path("socket"),
            ))
        };
        let volume = "[[volume]]\nname = 'x'\ngroup = 't/a'\nsize = '1MiB'\n";
        let mut server = Server::start(text(&before, volume)).unwrap();
        let mut wire = Wire::connect_to(&directory.path("socket"), "x").unwrap();
        server.reload(text(&before, "")).unwrap();
        assert_eq!(wire.write(0, 0, &[1; 512]), 0, "{before}");
        server.reload(text(&after, "")).unwrap();
        match stays {
            true => assert_eq!(wire.write(0, 0, &[2; 512]), 0, "{before}{after}"),
            false => ended(&mut wire),
        }
    }
}
