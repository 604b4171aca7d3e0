//! What the server tells of itself: metrics, why, the dashboard.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::prometheus::Page;
use crate::rig::controlled::Controlled;
use crate::rig::wire::{FLUSH, Options, READ, REPLY_ACK, Wire, Workload};
use crate::stored::{Mounted, contracts};
use iofair_serve::control::client::Call;
use serde_json::{Value as Json, json};

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/iofair.json");
const TENANTS: &str = include_str!("../../../../packaging/helm/iofair/files/iofair-tenants.json");

fn page(rig: &Controlled) -> Page {
    let reply = rig.ask(&Call::new("GET", "/metrics"));
    assert_eq!(reply.content_type, "text/plain; version=0.0.4; charset=utf-8");
    Page::parse(&String::from_utf8(reply.body).unwrap())
}

fn change(rig: &Controlled, path: &str, json: Json) {
    let method = if path == "/v1/stack" { "PUT" } else { "PATCH" };
    let reply = rig.ask(&Call::new(method, path).body(json));
    assert!(reply.is_good(), "{}", String::from_utf8_lossy(&reply.body));
}

/// Goal: the metrics are good Prometheus text and say what happened. Method: a strict parser; requests that
/// are counted by hand, with one that fails; a group whose name needs escapes.
#[test]
fn metrics_say_what_happened() {
    let rig = Controlled::start();
    let odd = "/v1/groups/odd%5Cname";
    assert!(rig.ask(&Call::new("PUT", odd).body(json!({}))).is_good());
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    for number in 0..10 {
        assert_eq!(wire.write(0, number * 4096, &[1; 4096]), 0);
        assert_eq!(wire.read(number * 4096, 8192).error, 0);
    }
    wire.send_flush().unwrap();
    assert_eq!(wire.receive().unwrap().error, 0);
    let page = page(&rig);
    let alice =
        |direction: &'static str| vec![("group", "tenants/alice"), ("direction", direction)];
    assert_eq!(page.value("iofair_group_requests_total", &alice("read")), 10.0);
    assert_eq!(page.value("iofair_group_bytes_total", &alice("read")), 81_920.0);
    assert_eq!(page.value("iofair_group_bytes_total", &alice("write")), 40_960.0);
    assert_eq!(page.value("iofair_group_flushes_total", &[("group", "tenants/alice")]), 1.0);
    let of = |group| [("group", group)];
    assert_eq!(page.value("iofair_group_minimum_bytes_per_second", &of("tenants/alice")), 1e7);
    assert_eq!(page.value("iofair_group_weight", &of("odd\\name")), 100.0);
    assert_eq!(
        page.value("iofair_volume_connections", &[("volume", "v"), ("group", "tenants/alice")]),
        1.0
    );
    assert_eq!(page.value("iofair_connections", &[]), 1.0);
    for step in ["held", "queued", "drive"] {
        let labels = [&alice("read")[..], &[("step", step)]].concat();
        assert_eq!(page.value("iofair_group_step_seconds_count", &labels), 10.0, "{step}");
    }
    assert!(page.value("iofair_reactor_busy_seconds_total", &[]) > 0.0);
    // What only grows grows, and a histogram's buckets do so from left to right.
    Workload::new(&rig.directory.path("socket"), 64, 64).run(2_000, 8);
    let later = self::page(&rig);
    page.compare_counters(&later);
    assert!(later.value("iofair_group_requests_total", &alice("read")) > 100.0);
}

const BLOCK_STATUS: u16 = 7;
const CONTEXT: &[u8] = b"\0\0\0\x01v\0\0\0\x01\0\0\0\x0fbase:allocation";

/// A client that may ask for block status, and its answers, one after the other.
fn asker(socket: &str) -> Options<UnixStream> {
    let mut client = Options::greet(UnixStream::connect(socket).unwrap()).unwrap();
    assert_eq!(client.ask(8, &[]).unwrap(), REPLY_ACK, "structured replies");
    assert_eq!(client.ask(10, CONTEXT).unwrap(), REPLY_ACK, "a context");
    assert_eq!(client.go("v").unwrap(), REPLY_ACK);
    client
}

/// One command, and whether it was carried out.
fn command(client: &mut Options<UnixStream>, kind: u16, offset: u64, length: u32) -> bool {
    let head = [0x2560_9513u32.to_be_bytes(), u32::from(kind).to_be_bytes()].concat();
    let rest = [&[0; 8][..], &offset.to_be_bytes(), &length.to_be_bytes()].concat();
    client.stream.write_all(&[head, rest].concat()).unwrap();
    let mut magic = [0; 4];
    client.stream.read_exact(&mut magic).unwrap();
    if u32::from_be_bytes(magic) == 0x6744_6698 {
        let mut simple = [0; 12];
        client.stream.read_exact(&mut simple).unwrap();
        return simple[..4] == [0; 4];
    }
    let mut chunk = [0; 16];
    client.stream.read_exact(&mut chunk).unwrap();
    let length = u32::from_be_bytes(chunk[12..].try_into().unwrap());
    client.stream.read_exact(&mut vec![0; length as usize]).unwrap();
    chunk[2] & 0x80 == 0
}

/// What counts the same wherever it is shown: its metric, the key of `usage`, what it must be.
const COUNTS: [(&str, &str, u64); 8] = [
    ("flushes_total", "flushes", 2),
    ("trims_total", "trims", 3),
    ("zeroes_total", "zeroes", 4),
    ("block_statuses_total", "block_statuses", 5),
    ("failures_total", "failed", 6),
    ("refusals_total", "refused", 6),
    ("control_calls_total", "control_calls", 3),
    ("stalls_total", "stalls", 0),
];

/// Goal: whatever a client and an operator do is counted in the group that it concerns and in no other, and metrics,
/// lists of groups and the live view say the same. Method: this many of each command over NBD, through back ends that
/// find block status out at once and on another thread; calls that name a group, its volume, and neither.
#[test]
fn every_command_is_counted_once() {
    for back in ["memory:64MiB", "file"] {
        let directory = crate::rig::Directory::new();
        let at = match back {
            "file" => format!("file:{}", directory.path("pool")),
            memory => memory.to_string(),
        };
        let text = crate::rig::controlled::file(&directory, &at);
        std::fs::write(directory.path("contracts.toml"), text).unwrap();
        let rig = Controlled::over(directory);
        let mut client = asker(&rig.directory.path("socket"));
        for (kind, count) in [(FLUSH, 2), (4, 3), (6, 4), (BLOCK_STATUS, 5)] {
            let length = if kind == FLUSH { 0 } else { 4096 };
            for _ in 0..count {
                assert!(command(&mut client, kind, 0, length), "{back}: command {kind}");
            }
        }
        for kind in [READ, 4, 6, BLOCK_STATUS, 77, 78] {
            assert!(!command(&mut client, kind, 1 << 40, 4096), "{back}: out of range");
        }
        change(&rig, "/v1/groups/tenants%2Falice", json!({ "weight": 200 }));
        rig.get("/v1/groups/tenants/alice/why");
        rig.get("/v1/volumes/v");
        rig.get("/v1/volumes");
        check_counts(&rig, back);
    }
}

fn check_counts(rig: &Controlled, back: &str) {
    let (page, groups, live) = (page(rig), rig.get("/v1/groups"), rig.get("/v1/live"));
    let of = |list: &Json, name: &str| {
        let mut all = list["groups"].as_array().unwrap().iter();
        all.find(|group| group["name"] == name).unwrap().clone()
    };
    for (metric, key, count) in COUNTS {
        for (group, count) in [("tenants/alice", count), ("tenants", 0), ("batch", 0)] {
            let told = page.value(&format!("iofair_group_{metric}"), &[("group", group)]);
            let (listed, live) = (&of(&groups, group)["usage"][key], &of(&live, group)[key]);
            let shown = [told as u64, listed.as_u64().unwrap(), live.as_u64().unwrap()];
            assert_eq!(shown, [count; 3], "{back}: {metric} of {group}");
        }
    }
    let usage = &of(&groups, "tenants/alice")["usage"];
    assert!(usage["cpu_seconds"].as_f64().unwrap() > 0.0, "{usage}");
    assert_eq!(usage["requests"], json!([0, 7]), "trims and zeroes are writes");
    assert_eq!(usage["bytes"], json!([0, 4 * 4096]), "trims have no bytes");
    assert_eq!(rig.get("/v1/volumes/v")["volume"]["bytes"], 4 * 4096, "{back}");
    let one = &rig.get("/v1/groups/tenants/alice")["group"]["usage"];
    assert_eq!(one["flushes"], 2, "one by one it says the same");
}

/// Goal: what a group holds is shown while it holds it. Method: a ceiling of one request a second, a client with many
/// requests, large and small.
#[test]
fn what_a_group_holds_is_shown() {
    let rig = Controlled::start();
    change(&rig, "/v1/groups/tenants/alice", json!({ "max": { "read_iops": 1 } }));
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    for number in 0..8 {
        wire.send_read(number << 20, 1 << 20).unwrap();
    }
    let usage = || {
        let group = rig.get("/v1/groups/tenants/alice");
        let usage = group["group"]["usage"].clone();
        let shown = |key: &str| usage[key].as_u64().unwrap();
        [shown("request_slots"), shown("memory_bytes")]
    };
    let mut held = usage();
    while held[0] == 0 || held[1] < 4 << 20 {
        thread::yield_now();
        held = usage();
    }
    let page = page(&rig);
    let metric = |name: &str| page.value(name, &[("group", "tenants/alice")]);
    assert!(metric("iofair_group_request_slots") > 0.0);
    assert!(metric("iofair_group_memory_bytes") >= f64::from(4 << 20));
    assert_eq!(page.value("iofair_group_request_slots", &[("group", "batch")]), 0.0);
}

/// Goal: a page shows as much as is asked for, and lists come in pages. Method: every detail; lists of more groups and
/// volumes than are copied at once, in pages of seven.
#[test]
fn detail_and_pages_are_chosen() {
    let directory = crate::rig::Directory::new();
    let mut text = crate::rig::controlled::file(&directory, "memory:64MiB");
    for number in 0..600 {
        text += &format!("[[group]]\nname = 'many/{number}'\n");
        text +=
            &format!("[[volume]]\nname = 'v{number}'\ngroup = 'many/{number}'\nsize = '4KiB'\n");
    }
    std::fs::write(directory.path("contracts.toml"), text + "[metrics]\ndetail = 'none'\n")
        .unwrap();
    let rig = Controlled::over(directory);
    let shown = |query: &str| {
        let reply = rig.ask(&Call::new("GET", &format!("/metrics{query}")));
        let text = String::from_utf8(reply.body).unwrap();
        Page::parse(&text);
        ["iofair_uptime", "iofair_group_weight{", "iofair_volume_connections{"]
            .map(|name| text.lines().filter(|line| line.starts_with(name)).count())
    };
    // With `batch`, `tenants`, `tenants/alice` and `many`; `v` and `w`.
    assert_eq!(shown(""), [1, 0, 0]);
    assert_eq!(shown("?detail=groups"), [1, 604, 0]);
    assert_eq!(shown("?detail=volumes"), [1, 604, 602]);
    for (list, count) in [("groups", 604), ("volumes", 602), ("live", 604)] {
        let (mut names, mut query) = (BTreeSet::new(), String::new());
        loop {
            let page = rig.get(&format!("/v1/{list}?limit=97{query}"));
            let part = page[if list == "live" { "groups" } else { list }].as_array().unwrap();
            assert!(part.len() <= 97);
            names.extend(part.iter().map(|one| one["name"].as_str().unwrap().to_string()));
            let Some(next) = page["next"].as_str() else { break };
            query = format!("&after={}", next.replace('/', "%2F"));
        }
        assert_eq!(names.len(), count, "{list}");
    }
    let whole = rig.get("/v1/live")["groups"].as_array().unwrap().clone();
    let named = |name: &str| whole.iter().position(|group| group["name"] == name).unwrap();
    assert!(named("many") < named("many/0"), "parents come first");
    let shares: f64 = whole.iter().map(|group| group["share_promised"].as_f64().unwrap()).sum();
    assert!(shares.is_finite() && shares > 0.0);
}

/// Goal: every query of the dashboard uses metrics that are exported, with labels that they have, and
/// every metric is on it or known not to be. Method: take the names out of its expressions.
#[test]
fn the_dashboard_shows_what_is_exported() {
    let rig = Controlled::start();
    let asked = [
        Call::new("PUT", "/v1/stack").body(json!({ "name": "promise" })),
        Call::new("PATCH", "/v1/groups/tenants%2Falice").body(json!({ "min_iops": 100 })),
    ];
    for ask in asked {
        let answer = rig.ask(&ask);
        assert!(answer.is_good(), "{answer:?}");
    }
    Workload::new(&rig.directory.path("socket"), 0, 64).run(200, 8);
    let page = page(&rig);
    let on_panels = used(DASHBOARD, &page);
    assert!(used(TENANTS, &page).len() >= 6, "the dashboard of tenants has lost its panels");
    let exported: BTreeSet<String> = page.families().map(str::to_owned).collect();
    let unseen: Vec<_> = exported.difference(&on_panels).collect();
    assert!(unseen.is_empty(), "exported and on no panel: {unseen:?}");
}

/// The families of metrics that a dashboard uses, with labels that the page has.
fn used(dashboard: &str, page: &Page) -> BTreeSet<String> {
    let dashboard: Json = serde_json::from_str(dashboard).unwrap();
    let mut used = BTreeSet::new();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 8, "the dashboard has lost its panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let queries = targets.map(|target| &target["expr"]).chain(variables.map(|v| &v["query"]));
    for query in queries.map(|query| query.as_str().unwrap()) {
        for (name, labels) in crate::prometheus::selectors(query) {
            page.check_use(&name, &labels, query);
            used.insert(crate::prometheus::family(&name).to_string());
        }
    }
    used
}

/// What holds a group, whose sentences never contradict each other.
fn why(rig: &Controlled, group: &str) -> Json {
    let told = rig.get(&format!("/v1/groups/{group}/why"));
    let waits = told["waits"].as_array().unwrap();
    let requests = waits.iter().map(|wait| wait["requests"].as_u64().unwrap());
    assert_eq!(Some(requests.sum()), told["requests"].as_u64(), "{told}");
    let of = |wait: &Json| wait["place"] == "drive";
    let idle = told["answer"].as_str().unwrap().starts_with("nothing waits");
    assert_eq!(
        idle || told["answer"].as_str().unwrap().starts_with("the server is drained"),
        waits.iter().all(of),
        "{told}"
    );
    let texts = waits.iter().map(|wait| wait["text"].as_str().unwrap());
    assert!(texts.into_iter().all(|text| !text.contains("nothing waits")), "{told}");
    told
}

/// Goal: `why` names the throttle, its rule and ceiling and when it ends; and says so when nothing waits.
/// Method: a ceiling of this few requests that some must wait, asked while they do, for the group and for the
/// one above it.
#[test]
fn why_names_the_throttle_and_its_rule() {
    let rig = Controlled::start();
    assert_eq!(why(&rig, "batch")["answer"], "nothing waits: the group has no request in flight");
    change(&rig, "/v1/groups/tenants/alice", json!({"max": {"read_iops": 2}}));
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    for number in 0..5 {
        wire.send_read(number * 4096, 4096).unwrap();
    }
    let held = |group: &str| loop {
        let told = why(&rig, group);
        if told["waits"][0]["place"] == "max" {
            return told;
        }
    };
    for group in ["tenants/alice", "tenants"] {
        let told = held(group);
        let answer = told["answer"].as_str().unwrap();
        assert!(
            answer.starts_with("throttle max holds ") && answer.contains(" for another "),
            "{told}"
        );
        // How many are held is counted, and not what the policy saw when it held one.
        let rule = "over the ceiling of group tenants/alice (2 reads a second)";
        assert!(answer.contains(rule) && told["waits"][0]["rule"] == rule, "{told}");
        assert!(told["waits"][0]["until_seconds"].as_f64().unwrap() <= 1.0, "{told}");
    }
    assert!(why(&rig, "batch")["waits"].as_array().unwrap().is_empty());
    let live = rig.get("/v1/live");
    for group in live["groups"].as_array().unwrap() {
        match group["name"].as_str().unwrap() {
            "batch" => assert!(group["why"].is_null(), "{group}"),
            // Also of the group above, which has no request of its own.
            _ => {
                assert!(group["why"].as_str().unwrap().starts_with("throttle max holds"), "{group}")
            }
        }
    }
    // Without the ceiling they go, nobody has to come again.
    change(&rig, "/v1/groups/tenants/alice", json!({"max": null}));
    (0..5).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
}

/// Goal: a drained server does not say that nothing waits. Method: `why` and the live view, drained and resumed.
#[test]
fn why_says_that_the_server_is_drained() {
    let rig = Controlled::start();
    let told = || {
        let live = rig.get("/v1/live")["groups"][0]["why"].clone();
        (why(&rig, "batch")["answer"].clone(), live)
    };
    let drained = "the server is drained: new requests wait until it resumes";
    assert!(rig.ask(&Call::new("POST", "/v1/drain").body(json!({ "then": "hold" }))).is_good());
    assert_eq!(told(), (drained.into(), drained.into()));
    assert!(rig.ask(&Call::new("POST", "/v1/resume")).is_good());
    assert_eq!(told(), ("nothing waits: the group has no request in flight".into(), Json::Null));
}

/// Goal: metrics tell the room for sparse files, whichever back end has them, below which file system they are. Method: a file system of
/// 64 MiB with the file of an emulated drive, and one with a volume that has a path of its own.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_the_room_for_sparse_files_is_told() {
    for kind in ["emulated", "path"] {
        let directory = crate::rig::Directory::new();
        let small = directory.path("small");
        std::fs::create_dir(&small).unwrap();
        let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=64m", "none", &small]);
        let (back, key) = match kind {
            "emulated" => (format!("emulated:samsung-970-pro@{small}/drive"), String::new()),
            _ => {
                let pool = format!("directory:{}", directory.path("pool"));
                (pool, format!("size = '16MiB'\npath = '{small}/v'"))
            }
        };
        let more = if key.is_empty() { "size = '16MiB'" } else { &key };
        let text = contracts(&directory, &back, &[("v", "g", more), ("w", "h", "")]);
        std::fs::write(directory.path("contracts.toml"), text).unwrap();
        let rig = Controlled::over(directory);
        // It looks at the file systems.
        rig.get("/v1/status");
        let (page, labels) = (page(&rig), [("directory", small.as_str())]);
        let (free, taken) = match kind {
            "path" => (page.value("iofair_path_free_bytes", &labels), 16.0),
            _ => (page.value("iofair_free_bytes", &[]), 24.0),
        };
        let most = (64.0 - taken) * 1024.0 * 1024.0;
        drop(mounted);
        assert!(free <= most && free > 0.75 * most, "{kind}: {free} of {most}");
    }
}

/// Goal: every refusal of a client or a caller is counted, by its reason. Method: one of each kind.
#[test]
fn refusals_are_counted() {
    let rig = Controlled::start();
    change(&rig, "/v1/groups/batch", json!({ "connections": 1 }));
    let socket = rig.directory.path("socket");
    let open = || Options::greet(UnixStream::connect(&socket).unwrap()).unwrap();
    let mut first = open();
    assert_eq!(first.go("w").unwrap(), REPLY_ACK);
    assert_ne!(open().go("w").unwrap(), REPLY_ACK);
    assert_ne!(open().go("nothing").unwrap(), REPLY_ACK);
    let mut stranger = UnixStream::connect(&socket).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stranger.read_to_end(&mut Vec::new()).unwrap();
    let page_call = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\n\r\n";
    assert!(rig.raw(page_call.as_bytes()).contains("403"));
    let counts = page(&rig);
    let count = |reason| counts.value("iofair_connections_refused_total", &[("reason", reason)]);
    for reason in ["group", "unknown", "protocol", "origin"] {
        assert_eq!(count(reason), 1.0, "{reason}");
    }
    assert_eq!(count("connections"), 0.0);
}

/// Goal: a live server lets a burst through at once and then holds reads and writes to one ceiling together, at the group
/// and at the one above it; it says so; and the ceiling can be lifted. Method: an NBD client with 128 reads and 128 writes of
/// 4 KiB, so little a second that no more than the burst can go during the test.
#[test]
fn a_burst_goes_and_then_reads_and_writes_wait_together() {
    for group in ["tenants/alice", "tenants"] {
        let rig = Controlled::start();
        let path = format!("/v1/groups/{group}");
        // A ceiling below a minimum inside is refused.
        change(&rig, "/v1/groups/tenants/alice", json!({"min": null}));
        let put = Call::new("PUT", &path).body(json!({"max": {"total": "1B/s", "burst": "1MB"}}));
        assert!(rig.ask(&put).is_good());
        let in_force = rig.get(&path)["group"]["in_force"].clone();
        let total = json!({"of": "total", "unit": "bytes", "per_second": 1, "burst": 1_000_000});
        assert_eq!(in_force["ceilings"], json!([total]));
        let mut wire = Wire::connect(&rig.directory.path("socket"));
        for number in 0..128 {
            wire.send_read(number * 4096, 4096).unwrap();
            wire.send_write(0, number * 4096, &[1; 4096]).unwrap();
        }
        // What fits into the burst of 1,000,000 bytes: 244 of 256.
        (0..244).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
        let told = why(&rig, "tenants/alice");
        let answer = told["answer"].as_str().unwrap();
        assert!(answer.starts_with("throttle max holds 12 requests for another "), "{told}");
        let rule = format!("over the ceiling of group {group} (both at 1 B/s)");
        assert!(answer.contains(&rule), "{told}");
        change(&rig, &path, json!({"max": {"total": "100MB/s"}}));
        (0..12).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
    }
}

/// Goal: each request is told to wait for its own reason. Method: ceilings of reads and of writes, each with requests that wait for it.
#[test]
fn reads_and_writes_wait_for_their_own_reasons() {
    let rig = Controlled::start();
    let max = json!({"read": "1B/s", "write": "2B/s", "burst": "64KiB"});
    change(&rig, "/v1/groups/tenants/alice", json!({"min": null, "max": max}));
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    for number in 0..20 {
        wire.send_write(0, number * 4096, &[1; 4096]).unwrap();
    }
    for number in 0..24 {
        wire.send_read(number * 4096, 4096).unwrap();
    }
    // The bursts.
    (0..32).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
    let told = why(&rig, "tenants/alice");
    let texts = told["waits"].as_array().unwrap().iter().map(|wait| wait["text"].as_str().unwrap());
    let texts: Vec<&str> = texts.collect();
    for (count, rule) in [(8, "(reads at 1 B/s)"), (4, "(writes at 2 B/s)")] {
        let begin = format!("throttle max holds {count} requests");
        assert!(texts.iter().any(|text| text.starts_with(&begin) && text.contains(rule)), "{told}");
    }
    change(&rig, "/v1/groups/tenants/alice", json!({"max": null}));
    (0..12).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
}

/// Reads here and there with 16 requests at once, until told to stop.
fn read_on(socket: &str, volume: &str, done: &AtomicBool) {
    let mut wire = Wire::connect_to(socket, volume).unwrap();
    let blocks = wire.size / 4096;
    let mut next = 1u64;
    while !done.load(Ordering::Relaxed) || wire.in_flight() > 0 {
        while wire.in_flight() < 16 && !done.load(Ordering::Relaxed) {
            next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            wire.send_read((next >> 33) % blocks * 4096, 4096).unwrap();
        }
        if wire.in_flight() > 0 {
            assert_eq!(wire.receive().unwrap().error, 0);
        }
    }
}

/// Goal: under `promise` the answers are in the terms of the contract: who holds others, and how a group stands by its own
/// minimum. Method: a minimum that the drive cannot keep, and a group beside it, both with many requests all the time.
#[test]
fn why_explains_minimums() {
    let directory = crate::rig::Directory::new();
    let text = crate::rig::controlled::file(&directory, "emulated:plextor-px256m5s")
        .replace("stack = 'max+prop-bfq'\n", "")
        .replace("[drive.policy.bfq]\nlow_latency = false # as promised\n", "")
        .replace("min = '10MB/s'", "min = '500MB/s'\nalone = '600MB/s'");
    std::fs::write(directory.path("contracts.toml"), text).unwrap();
    let rig = Controlled::over(directory);
    let (socket, done) = (rig.directory.path("socket"), AtomicBool::new(false));
    thread::scope(|scope| {
        for volume in ["v", "w"] {
            let (socket, done) = (&socket, &done);
            scope.spawn(move || read_on(socket, volume, done));
        }
        let says = |group: &str, what: &[&str]| loop {
            let told = why(&rig, group)["answer"].as_str().unwrap().to_string();
            if what.iter().all(|what| told.contains(what)) {
                break;
            }
        };
        says("batch", &["held: group tenants/alice is ", " behind its minimum"]);
        says("tenants/alice", &["; ", " behind its minimum"]);
        change(&rig, "/v1/groups/tenants/alice", json!({"min": "1MB/s"}));
        says("tenants/alice", &["; ", " ahead of its minimum"]);
        done.store(true, Ordering::Relaxed);
    });
}

/// Goal: `why` says whose turn it is. Method: two volumes on an emulated disk with BFQ, each with many
/// requests all the time; the lighter group is asked until it has to wait for the heavier one.
#[test]
fn why_names_the_queue_in_service() {
    let directory = crate::rig::Directory::new();
    let text = crate::rig::controlled::file(&directory, "emulated:hitachi-hts727550a9e364");
    std::fs::write(directory.path("contracts.toml"), text.replace("min = '10MB/s'\n", "")).unwrap();
    let rig = Controlled::over(directory);
    let (socket, done) = (rig.directory.path("socket"), AtomicBool::new(false));
    let told = thread::scope(|scope| {
        for volume in ["v", "w"] {
            let (socket, done) = (&socket, &done);
            scope.spawn(move || read_on(socket, volume, done));
        }
        let told = loop {
            let told = why(&rig, "batch");
            if told["answer"].as_str().unwrap().contains("for a turn") {
                break told;
            }
        };
        done.store(true, Ordering::Relaxed);
        told
    });
    let answer = told["answer"].as_str().unwrap();
    assert!(answer.contains("bfq serves volume v of group tenants/alice"), "{answer}");
    assert_eq!(told["waits"][0]["place"], "bfq");
}
