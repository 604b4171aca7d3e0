//! Clients that mean harm, through every front end, beside one that was promised something.
//!
//! `make hostile` measures what the victim gets beside 1, 8 and 64 attackers of each kind and writes
//! `reproduction/isolation.md`. The tests run each attack for a moment and assert what holds on any machine: the victim is
//! served and the server lives.
#![allow(clippy::unwrap_used, unsafe_code)]

#[path = "hostile/attack.rs"]
mod attack;
#[path = "hostile/guest.rs"]
mod attackers_guest;
#[path = "rig/disk.rs"]
mod disk;
#[path = "hostile/file.rs"]
mod file;
#[path = "rig/guest.rs"]
mod guest;
#[path = "hostile/nbd.rs"]
mod nbd;
#[path = "hostile/page.rs"]
mod page;
#[path = "hostile/peer.rs"]
mod peer;
#[path = "hostile/place.rs"]
mod place;
mod rig;
#[path = "hostile/victim.rs"]
mod victim;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use attack::Attack;
use page::Set;
use peer::Transport;
use place::{Drive, Front, Place, Shared, VICTIM_BYTES};
use rig::Directory;
use rig::wire::Wire;
use victim::{Client, Kind, Outcome};

/// A victim that is not done by then, after its time, is not waited for.
const GRACE: Duration = Duration::from_secs(3);
/// Attackers have this long to build up.
const BUILD_UP: Duration = Duration::from_millis(300);

/// One measurement.
struct Run {
    set: Set,
    directory: Arc<Directory>,
    seconds: f64,
    /// Which attackers, and how many.
    attack: Option<(Attack, usize)>,
}

/// Attackers fail all the time, and a run of the tests fails only where it is asserted: their panics say nothing.
fn quiet() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if thread::current().name() != Some("attacker") {
            told(panic);
        }
    }));
}

impl Run {
    fn go(&self) -> Outcome {
        let limit = Duration::from_secs_f64(self.seconds);
        self.until(limit, usize::MAX, |_| true)
    }
    /// The victim works for this long or this many requests, beside attackers that have built up.
    fn until(
        &self,
        limit: Duration,
        requests: usize,
        built_up: impl Fn(&Shared) -> bool,
    ) -> Outcome {
        let Set { front, drive, kind } = self.set;
        let mut place = Place::start(Arc::clone(&self.directory), front, drive);
        let shared = Arc::new(Shared::default());
        let mut client = Client::connect(&place);
        let attackers = self
            .attack
            .map_or(Vec::new(), |(attack, count)| attack::start(attack, count, &place, &shared));
        let begun = Instant::now();
        while begun.elapsed() < BUILD_UP || !built_up(&shared) {
            thread::park_timeout(Duration::from_millis(10));
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is attacked");
        }
        let (done, outcome) = mpsc::channel();
        let seen = Arc::clone(&shared);
        let measured = std::env::var("IOFAIR_PROGRAM").is_ok();
        let victim = thread::spawn(move || {
            if measured {
                peer::be_prompt(0);
            }
            // Its first requests warm it up.
            client.work(kind, limit / 10, 50, &seen);
            // Whoever waits has given up by then, at worst.
            let _ = done.send(client.work(kind, limit, requests, &seen));
        });
        let outcome = outcome.recv_timeout(limit * 2 + GRACE);
        let alive = place.is_alive();
        shared.over.store(true, Ordering::Relaxed);
        place.kill();
        attackers.into_iter().for_each(|attacker| drop(attacker.join()));
        drop(victim.join());
        assert!(alive, "the server has ended");
        // No request of it was completed.
        outcome.unwrap_or(Outcome {
            failed: 1,
            p99_us: (limit + GRACE).as_secs_f64() * 1e6,
            ..Outcome::default()
        })
    }
}

/// Writes the victim's volume in a directory, so that it is read from the disk.
fn fill(directory: &Arc<Directory>) {
    let place = Place::start(Arc::clone(directory), Front::Unix, Drive::Directory);
    let peer = Transport::to(&place).connect("victim").unwrap();
    let mut wire = Wire::after_go(Box::new(peer));
    for offset in (0..VICTIM_BYTES).step_by(4 << 20) {
        assert_eq!(wire.write(0, offset, &vec![1; 4 << 20]), 0);
    }
    wire.send_flush().unwrap();
    assert_eq!(wire.receive().unwrap().error, 0);
}

/// Requests of the victim in a test; and the longest that they may take together, far more than on any machine.
const REQUESTS: usize = 100;
const LIMIT: Duration = Duration::from_secs(40);

/// Every attack through a front end, with four attackers: the victim is served, and the server lives.
fn is_served(front: Front) {
    quiet();
    for attack in Attack::through(front) {
        let set = Set { front, drive: Drive::Emulated, kind: Kind::Writer };
        let directory = Arc::new(Directory::new());
        let run = Run { set, directory, seconds: 0.0, attack: Some((*attack, 4)) };
        let outcome = run.until(LIMIT, REQUESTS, |_| true);
        assert_eq!((outcome.requests, outcome.failed), (REQUESTS, 0), "{front:?} {attack:?}");
    }
}

/// Goal: no attack over NBD keeps a victim from being served. Method: each attack of four attackers beside a victim
/// that reads, writes and flushes.
#[test]
fn a_victim_over_nbd_is_served() {
    is_served(Front::Unix);
}

/// Goal: the same over TCP with TLS, with half-done handshakes. Method: the same.
#[test]
fn a_victim_over_tls_is_served() {
    is_served(Front::Tls);
}

/// Goal: the same between virtual machines, with rings and memory that lie. Method: the same.
#[test]
fn a_virtual_machine_is_served() {
    is_served(Front::Vhost);
}

/// Goal: the same for users of mounted files. Method: the same.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_a_user_of_files_is_served() {
    is_served(Front::Fuse);
}

/// Goal: the page of what victims get. Method: `make hostile`.
#[test]
#[ignore = "needs time: ten minutes, and a quiet machine; make hostile"]
fn needs_time_the_page_is_measured() {
    quiet();
    page::write();
}
