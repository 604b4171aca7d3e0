//! Changes upon changes under load: repeated, at the same time, contradicting each other.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::rig::Directory;
use crate::rig::controlled::{Controlled, file};
use crate::rig::wire::{Wire, Workload};
use iofair_config::contracts::Contracts;
use iofair_serve::control::client::{Address, Call, Reply, call};
use serde_json::{Value as Json, json};

/// Changes of each kind.
const ROUNDS: u32 = 20;
const ALICE: &str = "/v1/groups/tenants/alice";
const STACKS: [&str; 5] =
    ["max+prop-bfq", "max+cost-none", "wbt+max+cost-kyber", "max+lat+prop-bfq", "promise"];

/// A server over a pool directory.
fn pool() -> Controlled {
    let directory = Directory::new();
    let text = file(&directory, &format!("directory:{}", directory.path("pool")));
    fs::write(directory.path("contracts.toml"), text).unwrap();
    Controlled::over(directory)
}

/// A thread that changes.
struct Changer<'a> {
    address: &'a Address,
}

impl Changer<'_> {
    fn ask(&self, ask: &Call) -> Reply {
        call(self.address, ask).unwrap()
    }
    fn must(&self, ask: &Call) -> Json {
        let reply = self.ask(ask);
        let told = String::from_utf8_lossy(&reply.body);
        assert!(reply.is_good(), "{} {}: {told}", ask.method, ask.path);
        reply.json().unwrap()
    }
    /// One more for alice's weight, by whoever sees it first; how often somebody else was faster.
    fn increments(&self) -> u32 {
        let mut refused = 0;
        for _ in 0..ROUNDS {
            loop {
                let seen = self.must(&Call::new("GET", ALICE));
                let weight = seen["group"]["contract"]["weight"].as_u64().unwrap() + 1;
                let ask = Call::new("PATCH", ALICE).body(json!({ "weight": weight }));
                let revision = seen["revision"].as_str().map(str::to_owned);
                match self.ask(&Call { if_match: revision, ..ask }).status {
                    200 => break,
                    412 => refused += 1,
                    other => panic!("{other}"),
                }
            }
        }
        refused
    }
    /// A group and a volume in it, made, changed twice the same way, and deleted.
    fn come_and_go(&self, name: &str) {
        let (group, volume) =
            (format!("/v1/groups/{name}"), format!("/v1/volumes/{}", name.replace('/', "-")));
        for round in 0..ROUNDS / 4 {
            let new = |ask: Call| Call { only_new: true, ..ask };
            self.must(&new(Call::new("PUT", &group).body(json!({"weight": round + 1}))));
            let settings = json!({"group": name, "size": "1MiB"});
            self.must(&new(Call::new("PUT", &volume).body(settings.clone())));
            assert_eq!(self.ask(&new(Call::new("PUT", &volume).body(settings))).status, 409);
            for _ in 0..2 {
                self.must(&Call::new("PATCH", &volume).body(json!({"size": "2MiB"})));
            }
            assert_eq!(self.ask(&Call::new("DELETE", &group)).status, 422, "a volume is in it");
            let limit = json!({"max": {"read": "1MB/s"}, "weight": 2});
            self.must(&Call::new("PATCH", &group).body(limit));
            self.must(&Call::new("DELETE", &format!("{volume}?data=delete")));
            assert_eq!(self.ask(&Call::new("DELETE", &volume)).status, 404);
            self.must(&Call::new("DELETE", &group));
        }
    }
    /// One stack after the other; those that do not exist are refused.
    fn stacks(&self) {
        for round in 0..ROUNDS as usize {
            let name = STACKS[round % STACKS.len()];
            self.must(&Call::new("PUT", "/v1/stack").body(json!({ "name": name })));
            let wrong = Call::new("PUT", "/v1/stack").body(json!({"name": "prop-none"}));
            assert_eq!(self.ask(&wrong).status, 422);
        }
    }
    /// A volume in use moves from group to group, and its groups change their minds.
    fn minds(&self) {
        for round in 0..ROUNDS {
            let group = ["tenants/alice", "batch"][round as usize % 2];
            self.must(&Call::new("PATCH", "/v1/volumes/v").body(json!({ "group": group })));
            let max = if round % 3 == 0 { Json::Null } else { json!({"write": "900MB/s"}) };
            self.must(&Call::new("PATCH", "/v1/groups/batch").body(json!({ "max": max })));
            let much = Call::new("PATCH", "/v1/groups/batch").body(json!({"min": "99MB/s"}));
            assert_eq!(self.ask(&much).status, 422, "10 and 99 of 100");
        }
    }
    /// Everybody looks, and drains now and then.
    fn looks(&self, done: &AtomicBool) {
        let mut looks = 0;
        while !done.load(Ordering::Relaxed) {
            for path in ["/v1/status", "/v1/live", "/v1/groups/tenants/why"] {
                self.must(&Call::new("GET", path));
            }
            assert!(self.ask(&Call::new("GET", "/metrics")).is_good());
            looks += 1;
            if looks % 8 == 0 {
                self.must(&Call::new("POST", "/v1/drain").body(json!({"then": "resume"})));
            }
        }
    }
}

/// Everything that can be asked for and must be the same after a restart.
fn settled(rig: &Controlled) -> Vec<Json> {
    let mut volumes = rig.get("/v1/volumes");
    for volume in volumes["volumes"].as_array_mut().unwrap() {
        for count in ["connections", "requests", "bytes", "failed"] {
            volume[count] = Json::Null;
        }
    }
    let mut groups = rig.get("/v1/groups");
    for group in groups["groups"].as_array_mut().unwrap() {
        group["usage"] = Json::Null;
    }
    vec![groups, rig.get("/v1/stack"), volumes]
}

/// Goal: no change is lost or half made, however many callers make changes at once, and no request of a
/// client is lost or wrong meanwhile; a restart finds the file as the server had it. Method: three clients
/// with verified reads and writes; two threads that count together with `If-Match`; others that make and
/// delete groups and volumes, switch stacks, move the clients' volume, look and drain. Then the count, the
/// file against the answers, every byte, and the same from a second server.
#[test]
fn long_run_changes_upon_changes_under_load() {
    let rig = pool();
    let (socket, address) = (rig.directory.path("socket"), rig.address());
    let done = AtomicBool::new(false);
    let work = |number: u64| {
        let mut workload = Workload::new(&socket, number * 512, 512);
        while !done.load(Ordering::Relaxed) {
            workload.run(50, 8);
        }
        workload.drain();
        workload
    };
    let refused = AtomicU32::new(0);
    let changer = &Changer { address: &address };
    let workloads: Vec<Workload> = thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        let refused = &refused;
        let count = || {
            refused.fetch_add(changer.increments(), Ordering::Relaxed);
        };
        let mut changers: Vec<_> = (0..2).map(|_| scope.spawn(count)).collect();
        changers.push(scope.spawn(|| changer.come_and_go("one")));
        changers.push(scope.spawn(|| changer.come_and_go("two/deep")));
        changers.push(scope.spawn(|| changer.stacks()));
        changers.push(scope.spawn(|| changer.minds()));
        let looks = scope.spawn(|| changer.looks(&done));
        let ended: Vec<_> = changers.into_iter().map(|one| one.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|one| one.unwrap());
        looks.join().unwrap();
        clients.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(refused.load(Ordering::Relaxed) > 0, "the counters never met");
    let weight = 300 + 2 * ROUNDS;
    assert_eq!(rig.get(ALICE)["group"]["contract"]["weight"], weight);
    let text = rig.text();
    assert!(
        text.contains(&format!("weight = {weight} # thrice")) && text.contains("# spare"),
        "{text}"
    );
    let contracts = Contracts::parse_with(&iofair_baselines::TABLE, "after.toml", &text).unwrap();
    assert_eq!(contracts.groups.len(), 2, "{text}");
    assert_eq!(contracts.drive.stack.name(), rig.get("/v1/stack")["stack"]["name"]);
    let before = settled(&rig);
    let Controlled { control, directory } = rig;
    control.stop().unwrap();
    let left: Vec<_> = fs::read_dir(directory.path("pool")).unwrap().map(|f| f.unwrap()).collect();
    let images = left.iter().filter(|f| f.path().extension().is_some_and(|end| end == "img"));
    assert_eq!(images.count(), 2, "deleted volumes left something: {left:?}");
    let again = Controlled::over(directory);
    assert_eq!(settled(&again), before);
    let told = Wire::connect(&again.directory.path("socket")).read(0, 8 << 20).data;
    for workload in &workloads {
        assert!(workload.written() > 100, "only {} blocks", workload.written());
        workload.verify(&told);
    }
}

/// Goal: when the file cannot be written, the server stays as it was. Method: something stands where the new
/// text would be written.
#[test]
fn a_file_that_cannot_be_written_changes_nothing() {
    let rig = Controlled::start();
    let before = (rig.text(), settled(&rig));
    let blocked = rig.directory.path("contracts.toml.new");
    fs::create_dir(&blocked).unwrap();
    for ask in [
        Call::new("PATCH", ALICE).body(json!({"weight": 5})),
        Call::new("PUT", "/v1/stack").body(json!({"name": "promise"})),
        Call::new("DELETE", "/v1/volumes/w"),
    ] {
        let reply = rig.ask(&ask);
        assert_eq!(reply.status, 500, "{}", String::from_utf8_lossy(&reply.body));
    }
    assert_eq!((rig.text(), settled(&rig)), before);
    fs::remove_dir(&blocked).unwrap();
    assert!(rig.ask(&Call::new("PATCH", ALICE).body(json!({"weight": 5}))).is_good());
}
