//! Memory that monitors share: which, how much, and what happens when they take it away.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use iofair_serve::Server;

use crate::disk::Disk;
use crate::guest::{self, BLOCK, Guest, SLOTS};
use crate::rig::{self, Directory, Ending, Rig, parse};
use crate::{BACKS, pattern};

/// What a monitor does to what it shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taken {
    Everything,
    /// All but the rings and the headers.
    Data,
    /// The in-flight region.
    InFlight,
}

/// Goal: a monitor that takes shared memory away while requests are inside is sent away, its requests are errors or
/// are not answered at all; the server goes on, and so do the clients of another volume; the next client of the same
/// socket finds a good disk. Method: the file behind the memory, the data in it, the in-flight region is cut short
/// before a queue full of requests is published, or while it is served, on every back end; meanwhile the driver of another
/// disk writes and reads back.
#[test]
fn removed_memory_affects_only_its_owner() {
    for back in ["memory:128MiB", BACKS[1], BACKS[2]] {
        let rig = Rig::start_with(back, |directory| {
            let other = "[[volume]]\nname = 'w'\ngroup = 'g'\nsize = '64MiB'\n";
            let [disk, second] = ["disk", "other"].map(|name| directory.path(name));
            format!("vhost = '{disk}'\n{other}vhost = '{second}'\n")
        });
        let (path, other) = (rig.directory.path("disk"), rig.directory.path("other"));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| write_and_read_back(&other, &over));
            let _ending = Ending(&over);
            for what in [Taken::Everything, Taken::Data, Taken::InFlight] {
                for kicked in [false, true] {
                    take_away(&path, Guest::new(1), what, kicked, back);
                }
            }
        });
        rig.server.stop().unwrap();
    }
}

/// A client's load: blocks that are written and read back until it is told to end, and one after that.
fn write_and_read_back(path: &str, over: &AtomicBool) {
    let mut disk = Disk::connect(path, 1, 128);
    for number in 0.. {
        let last = over.load(Ordering::Relaxed);
        let (at, data) = (number % 1000 * 8192, pattern(number, 8192));
        assert_eq!(disk.write(at, &data), 0);
        assert_eq!(disk.read(at, 8192), Ok(data));
        if last {
            return;
        }
    }
}

/// One monitor that does it, and one that comes after it.
fn take_away(path: &str, guest: Guest, what: Taken, kicked: bool, back: &str) {
    let told = format!("{back}: {what:?}, kicked before: {kicked}");
    let mut guest = guest.with_own_inflight();
    guest.connect(path);
    guest.start();
    assert_eq!(guest.do_one(0, 5, Some(&[5; BLOCK])), 0, "{told}");
    let heads = (0..SLOTS).map(|slot| {
        let data = (slot % 2 == 0).then_some([slot as u8; BLOCK]);
        guest.prepare(0, slot, 100 + u64::from(slot) * 2, data.as_ref().map(|data| &data[..]))
    });
    let heads: Vec<u16> = heads.collect();
    // A server that has just completed a request may look at the ring without a kick. So requests that must find their memory
    // gone are published after the cut, except where the ring itself goes.
    let published_before = kicked || what == Taken::Everything;
    if published_before {
        heads.iter().for_each(|head| guest.publish(0, *head));
    }
    if kicked {
        guest.kick(0);
    }
    match what {
        Taken::Everything => guest.cut(0),
        Taken::Data => guest.cut(guest::DATA),
        Taken::InFlight => guest.cut_inflight(),
    }
    if !published_before {
        heads.iter().for_each(|head| guest.publish(0, *head));
    }
    guest.kick(0);
    // A kernel that finds no data tells us so, and no signal comes: those requests are errors, and the rest is good.
    // What was kicked before may be over already.
    if what == Taken::Everything || !(kicked || (what == Taken::Data && back == "file")) {
        assert!(guest.was_sent_away(), "{told}");
    } else if what == Taken::Data && !kicked {
        for _ in 0..SLOTS {
            let (head, _) = guest.used(0);
            assert_eq!(guest.status(0, head / 3), 1, "{told}");
        }
    }
    drop(guest);
    let mut next = Guest::connected(path, 1);
    assert_eq!((next.do_one(0, 5, None), next.data(0, 0)), (0, vec![5; BLOCK]), "{told}");
}

/// More huge pages, as long as a test needs them.
struct HugePages(String);

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

impl HugePages {
    fn more(pages: u32) -> Self {
        let before = std::fs::read_to_string(HUGE_PAGES).unwrap();
        let wanted = before.trim().parse::<u32>().unwrap() + pages;
        std::fs::write(HUGE_PAGES, wanted.to_string()).unwrap();
        Self(before)
    }
}
impl Drop for HugePages {
    fn drop(&mut self) {
        std::fs::write(HUGE_PAGES, &self.0).unwrap();
    }
}

/// Goal: memory in huge pages, as most monitors for big machines have it, is as good as any, and can be taken away
/// as well. Method: requests are answered; then the file is cut short between a queue full of them and the kick.
#[test]
#[ignore = "needs hugepages: root, four free pieces of 2 MiB"]
fn needs_hugepages_memory_in_huge_pages_may_go_too() {
    let _pages = HugePages::more(4);
    let rig = Rig::start_with("memory:128MiB", |directory| {
        format!("vhost = '{}'\n", directory.path("disk"))
    });
    for kicked in [false, true] {
        let guest = Guest::new(1).in_a_huge_page();
        take_away(&rig.directory.path("disk"), guest, Taken::Everything, kicked, "huge pages");
    }
    rig.server.stop().unwrap();
}

/// Goal: memory is refused that is not only memory: when a page of such a file is not there, its file system fetches it,
/// and that may need this very server. Method: a monitor offers a file beside the server's own pool; then a memfd.
#[test]
fn only_memory_may_be_shared() {
    let (rig, path) = crate::rig("memory:64MiB");
    let bytes = 1 << 20;
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(rig.directory.path("guest"))
        .unwrap();
    file.set_len(bytes as u64).unwrap();
    if !is_memory(&file) {
        let mut guest = Guest::new(1).in_file(file, bytes);
        guest.greet(&path);
        assert!(guest.share().is_err() && guest.was_sent_away());
        drop(guest);
    }
    assert_eq!(Guest::connected(&path, 1).do_one(0, 0, None), 0);
}

/// Whether this file is in memory. Where the tests run, there may be no other file system.
fn is_memory(file: &File) -> bool {
    let path = std::fs::canonicalize(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?.to_string(), words.next()?.to_string()))
    });
    let over = mounts.filter(|(mount, _)| path.starts_with(mount));
    let (_, kind) = over.max_by_key(|(mount, _)| mount.len()).unwrap();
    matches!(kind.as_str(), "tmpfs" | "ramfs" | "hugetlbfs")
}

/// Goal: while a queue runs, nothing takes the place of the region in which it notes what is inside, or the server's own
/// thread would unmap the old one. Method: a guest that runs shares its region once more; then the next one comes.
#[test]
fn the_in_flight_region_stays_while_queues_run() {
    let (rig, path) = crate::rig("memory:64MiB");
    let mut guest = Guest::connected(&path, 1);
    assert_eq!(guest.do_one(0, 0, None), 0);
    // This message has no answer of its own.
    let _ = guest.share_inflight();
    assert!(guest.was_sent_away());
    drop(guest);
    assert_eq!(Guest::connected(&path, 1).do_one(0, 0, None), 0);
    drop(rig);
}

/// Goal: machines share no more memory than the contracts allow, each and together; the message says which limit it was,
/// what a machine gives back others may share, and new limits count from the reload on. Method: guests of 1 MiB a queue.
#[test]
fn shared_memory_is_limited() {
    let directory = Directory::new();
    let [first, second] = ["disk", "other"].map(|name| directory.path(name));
    let limits = |all, each| format!("[vhost]\nmemory = '{all}MiB'\nmemory_each = '{each}MiB'\n");
    let other = "[[volume]]\nname = 'w'\ngroup = 'g'\nsize = '1MiB'\n";
    let text = |limits: &str| {
        let text = rig::contracts(&directory, "memory:80MiB", "none-none", "");
        format!("{text}vhost = '{first}'\n{other}vhost = '{second}'\n{limits}")
    };
    let mut server = Server::start(parse(&text(&limits(3, 2)))).unwrap();
    let refused = |path: &str, queues| {
        let mut guest = Guest::new(queues);
        guest.greet(path);
        guest.share().is_err() && guest.was_sent_away()
    };
    assert!(refused(&first, 3), "more than each may share");
    let mut one = Guest::connected(&first, 2);
    assert!(refused(&second, 2), "more than all may share");
    let mut two = Guest::connected(&second, 1);
    assert_eq!((one.do_one(0, 0, None), two.do_one(0, 0, None)), (0, 0));
    drop(one);
    drop(two);
    server.reload(parse(&text(&limits(3, 1)))).unwrap();
    assert!(refused(&second, 2), "a new limit");
    assert_eq!(Guest::connected(&second, 1).do_one(0, 0, None), 0);
    server.stop().unwrap();
}
