//! Starts with consent that are killed.

use std::fs;
use std::process::{Command, Stdio};

use crate::crash::killed_at;
use crate::rig::wire::FUA;
use crate::rig::{Directory, parse};
use crate::stored::{connect, contracts, refused, start};
use iofair_serve::{Consent, Server};

const CONTRACTS: &str = "IOFAIR_TEST_KILLED";

/// Starts a server with consent to take over `w` and `x`, and ends without stopping it, if this is that process.
#[test]
fn server_that_is_killed() {
    let Ok(path) = std::env::var(CONTRACTS) else { return };
    let consent = Consent { take_over: vec!["w".into(), "x".into()], ..Consent::default() };
    let contracts = parse(&fs::read_to_string(path).unwrap());
    let server = Server::start_with(contracts, Default::default(), &consent).unwrap();
    std::mem::forget(server);
    std::process::exit(0);
}

/// Goal: a start with `--take-over` that is killed at any step loses nothing and gives nothing to anybody else, and the next one works.
/// Method: killed before each change of a file; a volume elsewhere whose file was renamed and one of the pool come to another group, one
/// is new, one grows. Then a third group wants the renamed file, a start without consent, the same start again, and the next one.
#[test]
fn a_killed_start_gives_nothing_away() {
    for step in 1.. {
        let directory = Directory::new();
        let (own, moved) = (directory.path("own"), directory.path("moved"));
        let back = format!("directory:{}", directory.path("pool"));
        let text = |volumes: &[(&str, &str, &str)]| {
            let text = contracts(&directory, &back, volumes);
            text.replacen("[[group]]", "[[group]]\nname = 'i'\n[[group]]", 1)
        };
        let key = |path: &str| format!("path = '{path}'");
        let (at_own, at_moved) = (key(&own), key(&moved));
        let server = start(&text(&[("v", "g", &at_own), ("x", "g", ""), ("z", "g", "")]), &[]);
        let server = server.unwrap();
        for volume in ["v", "x", "z"] {
            assert_eq!(connect(&directory, volume).write(FUA, 4096, &[7; 4096]), 0);
        }
        server.stop().unwrap();
        start(&text(&[("z", "g", "")]), &[]).unwrap().stop().unwrap();
        fs::rename(&own, &moved).unwrap();
        let grown = "size = '16MiB'";
        let new = [("w", "h", &*at_moved), ("x", "h", ""), ("y", "h", ""), ("z", "g", grown)];
        let new = text(&new);
        fs::write(directory.path("contracts.toml"), &new).unwrap();
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "killed::server_that_is_killed"]);
        program.env(CONTRACTS, directory.path("contracts.toml"));
        let is_killed = killed_at(step, program.stdout(Stdio::null()).stderr(Stdio::null()));
        refused(&text(&[("q", "i", &at_moved)]), "--take-over q");
        match start(&new, &[]) {
            Ok(server) => server.stop().unwrap(),
            Err(error) => assert!(error.contains("--take-over "), "{step}: {error}"),
        }
        for consent in [&["w", "x"][..], &[]] {
            let server = start(&new, consent).unwrap_or_else(|error| panic!("{step}: {error}"));
            for volume in ["w", "x", "z"] {
                let found = connect(&directory, volume).read(4096, 4096).data;
                assert_eq!(found, [7; 4096], "{step}: {volume}");
            }
            assert_eq!(connect(&directory, "y").read(4096, 4096).data, [0; 4096]);
            server.stop().unwrap();
        }
        if !is_killed {
            assert!(step > 10, "only {step} changes of files");
            break;
        }
    }
}
