//! Groups and what stands between a client and its share: ceilings, flushers, guests, stripes, metadata.

use super::*;
use iofair_baselines::TABLE;

/// Goal: several clients of one group share its ceiling. Method: two groups of 10 MB/s, one with one
/// direct reader, one with a client of three processes and another client.
#[test]
fn a_group_holds_several_clients() {
    let limit = || GroupSpec {
        name: String::new(),
        contract: Contract { max: Limits::both(10_000_000), ..Contract::default() },
    };
    let member = |name: &str, group: &str, processes| ClientSpec {
        group: group.to_owned(),
        processes,
        ..client(name, job(Pattern::RandomRead, 4, false))
    };
    let members = vec![member("a", "one", 1), member("b", "many", 3), member("c", "many", 1)];
    let mut run = scenario(members, Nanos::from_secs(4));
    run.stack = TABLE.stack("max-none").unwrap();
    run.ramp = Nanos::from_secs(1);
    run.groups = ["one", "many"].map(|name| GroupSpec { name: name.to_owned(), ..limit() }).into();
    let outcome = run_fixed(&run, us(100));
    let bytes: Vec<u64> = outcome.clients.iter().map(|c| c.bytes / 4).collect();
    assert!(bytes[0].abs_diff(10_000_000) < 200_000, "{bytes:?}");
    assert!(bytes[1..].iter().sum::<u64>().abs_diff(10_000_000) < 200_000, "{bytes:?}");
}

/// Goal: in the simulator a ceiling on reads and writes together holds for all groups inside one, and its burst goes at
/// once. Method: a random reader and a writer in groups of their own below one of 10 MB/s, with bursts of nearly nothing and
/// of 20 MB; then a reader with a ceiling of its own beside.
#[test]
fn reads_and_writes_have_a_ceiling_together() {
    let bytes = |burst, reads| {
        let member = |name: &str, pattern| ClientSpec {
            group: format!("p/{name}"),
            ..client(name, job(pattern, 4, false))
        };
        let members = vec![member("r", Pattern::RandomRead), member("w", Pattern::RandomWrite)];
        let mut run = scenario(members, Nanos::from_secs(4));
        run.stack = TABLE.stack("max-none").unwrap();
        let total = Total { bytes_per_s: Some(10_000_000), iops: None };
        let burst = Burst { bytes: Some(burst), requests: None };
        let spec = |name: &str, max| GroupSpec {
            name: name.to_owned(),
            contract: Contract { max, ..Contract::default() },
        };
        let own = Limits { bytes_per_s: [reads, None], ..Limits::NONE };
        let p = Limits { total, burst, ..Limits::NONE };
        run.groups = vec![spec("p", p), spec("p/r", own), spec("p/w", Limits::NONE)];
        let outcome = run_fixed(&run, us(100));
        [0, 1].map(|index| outcome.clients[index].bytes)
    };
    let near = |got: u64, want: u64| assert!(got.abs_diff(want) < want / 20, "{got} of {want}");
    for burst in [1, 20_000_000] {
        let [reads, writes] = bytes(burst, None);
        near(reads + writes, 40_000_000 + burst);
        near(reads, writes);
    }
    let [reads, writes] = bytes(1, Some(2_000_000));
    near(reads, 8_000_000);
    near(reads + writes, 40_000_000);
}

/// Goal: whether a ceiling acts on a buffered writer depends on in whose name its pages are written.
/// Method: one writer with 10 MB/s on a drive of 100 MB/s, each way of writing back.
#[test]
fn ceilings_of_buffered_writers_follow_the_writeback() {
    let rate = |writeback| {
        let mut writer = client("w", job(Pattern::SequentialWrite, 4, true));
        writer.group = "w".to_owned();
        let mut run = scenario(vec![writer], Nanos::from_secs(10));
        run.ramp = Nanos::from_secs(10);
        run.stack = TABLE.stack("max-none").unwrap();
        run.host = Host { memory: 320 << 20, writeback, ..plain_host() };
        let contract = Contract { max: Limits::both(10_000_000), ..Contract::default() };
        run.groups = vec![GroupSpec { name: "w".to_owned(), contract }];
        let drive = Box::new(Fixed::new(us(100), Some(100_000_000)));
        let outcome = simulate_on(&run, drive, &mut Nobody).unwrap();
        let (call, drive) = (outcome.clients[0].bytes, outcome.drive.written_bytes);
        assert!(call.abs_diff(drive) < drive / 5, "dirty pages pile up: {call} {drive}");
        drive / 10
    };
    assert!(rate(Writeback::Root) > 95_000_000);
    assert!(rate(Writeback::Owner).abs_diff(10_000_000) < 500_000);
    assert!(rate(Writeback::Writer).abs_diff(10_000_000) < 500_000);
}

/// Goal: one flusher that writes in owners' names gives equal rates to writers of weights 1000 and 500,
/// because the heavier one's queue runs empty; flushers of their own keep the weights as long as they find
/// requests, for which the patches of 2009 gave each group a pool of its own. Method: the disk of 2009 under CFQ's
/// fair layer; the share, and the longest time in which the heavier has nothing queued.
#[test]
fn one_flusher_blurs_the_weights() {
    let run = |writeback, tags| {
        let writer = |name: &str| {
            let writing = client(name, job(Pattern::SequentialWrite, 64, true));
            ClientSpec { group: name.to_owned(), file_size: kib(2 << 20), ..writing }
        };
        let mut run = scenario(vec![writer("heavy"), writer("light")], Nanos::from_secs(20));
        run.drive = "sata-7200-2009".to_owned();
        run.stack = TABLE.stack("prop-fair-cfq").unwrap();
        run.ramp = Nanos::from_secs(20);
        run.tags = Some(tags);
        run.host = Host { writeback, ..host::for_drive("sata-7200-2009") };
        let group = |name: &str, weight| GroupSpec {
            name: name.to_owned(),
            contract: Contract { weight, ..Contract::default() },
        };
        run.groups = vec![group("heavy", 1000), group("light", 500)];
        let from = Instant::ZERO + run.ramp;
        // 2 % of 160 GB lie before the first file.
        let border = Sectors::from_kib(3_125_000 + (2 << 20) + (4 << 10));
        let (empty_since, longest) = (from, Nanos::ZERO);
        let mut gaps = Gaps { border, from, waiting: 0, empty_since, longest };
        let outcome = simulate_with(&run, &mut gaps).unwrap();
        (outcome.clients[0].bytes * 100 / outcome.clients[1].bytes, gaps.longest)
    };
    let (share, gap) = run(Writeback::Owner, 128);
    println!("one flusher: {share} %, empty for {gap:?}");
    assert!((80..125).contains(&share), "{share} %");
    assert!(gap >= Nanos::from_millis(200), "{gap:?}");
    let (share, gap) = run(Writeback::Writer, 1 << 14);
    println!("two flushers: {share} %, empty for {gap:?}");
    assert!((160..240).contains(&share), "{share} %");
}

/// Goal: what guests write through their page caches reaches the host in their own name, so weights act.
/// Method: two with weights 1000 and 500 on the disk of 2009, under deadline's fair layer.
#[test]
fn guests_keep_their_weights() {
    let guest = |name: &str| {
        let writing = client(name, job(Pattern::SequentialWrite, 64, true));
        ClientSpec { group: name.to_owned(), guest: true, ..writing }
    };
    let mut run = scenario(vec![guest("heavy"), guest("light")], Nanos::from_secs(20));
    run.drive = "sata-7200-2009".to_owned();
    run.stack = TABLE.stack("prop-fair-deadline").unwrap();
    run.stack.set("fair-deadline", "fairness", "1").unwrap();
    run.ramp = Nanos::from_secs(10);
    run.tags = Some(128);
    run.host = host::for_drive("sata-7200-2009");
    let group = |name: &str, weight| GroupSpec {
        name: name.to_owned(),
        contract: Contract { weight, ..Contract::default() },
    };
    run.groups = vec![group("heavy", 1000), group("light", 500)];
    let outcome = simulate(&run).unwrap();
    let share = outcome.clients[0].bytes * 100 / outcome.clients[1].bytes;
    println!("guests: {share} %");
    assert!((160..=240).contains(&share), "{share} %");
    run.clients[0].job.buffered = false;
    assert!(matches!(simulate(&run), Err(RunError::Job { .. })), "a guest has a page cache");
}

/// Goal: on a stripe every kind of call is completed, flushes by all drives, whoever controls it; a reader that
/// keeps to one drive leaves the other alone. Method: every job on two disks with a journal and without.
#[test]
fn stripes_answer_every_call() {
    let geometry = Geometry { drives: 2, chunk: kib(64) };
    for (control, journal) in
        [(Control::Leaf, false), (Control::Logical, true), (Control::Leaf, true)]
    {
        let syncing = |pattern, buffered| Job { fdatasync_every: 2, ..job(pattern, 256, buffered) };
        let clients = vec![
            client("reader", job(Pattern::SequentialRead, 4, true)),
            client("buffered", syncing(Pattern::SequentialWrite, true)),
            client("direct", syncing(Pattern::RandomWrite, false)),
        ];
        let mut run = scenario(clients, Nanos::from_secs(2));
        run.drive = "sata-7200-2009".to_owned();
        run.host = host::for_drive("sata-7200-2009");
        run.host.journal = journal.then(|| JournalSpec { group: String::new(), barrier: true });
        run.stripe = Some(StripeSpec { geometry, control });
        let outcome = simulate(&run).unwrap();
        for client in &outcome.clients {
            assert!(client.calls > 4, "{control:?} {journal}: {client:?}");
        }
        assert!(outcome.clients[1].sync_latency.count() > 2, "{control:?} {journal}");
        run.clients.truncate(1);
        run.clients[0].on_drive = Some(1);
        let alone = simulate(&run).unwrap();
        let busy = alone.drive.busy.0 / 20_000_000;
        assert!((25..=50).contains(&busy), "{control:?}: the mean of the two is {busy} %");
        run.clients[0].on_drive = Some(2);
        assert!(matches!(simulate(&run), Err(RunError::Job { .. })), "there is no third");
    }
}

/// Goal: metadata is marked as such, whatever the way to the drive. Method: every kind of job.
#[test]
fn metadata_is_marked() {
    for pattern in [Pattern::SequentialRead, Pattern::RandomRead, Pattern::SequentialWrite] {
        for (buffered, every) in [(false, 0), (true, 0), (true, 1)] {
            let own = Job { metadata: true, fdatasync_every: every, ..job(pattern, 4, buffered) };
            let mut run = scenario(vec![client("a", own)], Nanos::from_millis(100));
            run.host.memory = 64 << 20;
            let mut recorder = Recorder::default();
            simulate_on(&run, Box::new(Fixed::new(us(500), None)), &mut recorder).unwrap();
            let marked = |step: &Step| match step {
                Step::Submit(_, sent) => {
                    sent.operation == Operation::Flush || sent.flags.has(Flags::METADATA)
                }
                _ => true,
            };
            assert!(recorder.steps.len() > 10, "{pattern:?} {buffered}");
            assert!(recorder.steps.iter().all(marked), "{pattern:?} {buffered} {every}");
        }
    }
}

/// Watches the queue of the file that lies below `border`.
struct Gaps {
    border: Sectors,
    from: Instant,
    waiting: u64,
    empty_since: Instant,
    longest: Nanos,
}

impl Observer for Gaps {
    fn on_submit(&mut self, now: Instant, submission: &Submission) {
        if submission.start < self.border {
            if self.waiting == 0 && now > self.from {
                self.longest = self.longest.max(now.since(self.empty_since.max(self.from)));
            }
            self.waiting += submission.length.0;
        }
    }
    fn on_dispatch(&mut self, now: Instant, dispatch: &Dispatch) {
        if dispatch.start < self.border {
            self.waiting -= dispatch.length.0;
            self.empty_since = now;
        }
    }
}

/// Goal: under `complete` minimums become weights, and too many are refused; under the stack it stands for
/// weights are as written; who says what it reaches alone is counted by time. Method: minimums of 3:1 on a drive
/// that counts on 1 MB/s and gives ten; then equal ones of groups that reach 0.5 and 1.5 alone.
#[test]
fn complete_admits_minimums() {
    let run_with = |stack: &str, minimums: [u64; 2], alone: [Option<u64>; 2]| {
        let member = |name: &str| {
            let job = Job { depth: 8, ..job(Pattern::RandomRead, 4, false) };
            ClientSpec { group: name.to_owned(), ..client(name, job) }
        };
        let mut run = scenario(vec![member("a"), member("b")], Nanos::from_secs(4));
        run.stack = TABLE.stack(stack).unwrap();
        run.stack.set("bfq", "low_latency", "false").unwrap();
        run.ramp = Nanos::from_secs(1);
        let group = |i: usize| {
            let contract =
                Contract { min: Some(minimums[i]), alone: alone[i], ..Contract::default() };
            GroupSpec { name: ["a", "b"][i].to_owned(), contract }
        };
        run.groups = [0, 1].map(group).to_vec();
        simulate_on(&run, Box::new(Fixed::new(us(100), Some(10_000_000))), &mut Nobody)
    };
    let run = |stack: &str, minimums| run_with(stack, minimums, [None; 2]);
    let by_time = [Some(500_000), Some(1_500_000)];
    for (stack, minimums, alone, expected) in [
        ("complete", [750_000, 250_000], [None; 2], 3.0),
        ("max+prop-bfq", [750_000, 250_000], [None; 2], 1.0),
        ("complete", [300_000; 2], by_time, 3.0),
    ] {
        let outcome = run_with(stack, minimums, alone).unwrap();
        let [a, b] = [0, 1].map(|i| outcome.clients[i].bytes as f64);
        assert!((a / b - expected).abs() < 0.1 * expected, "{stack}: {}", a / b);
    }
    let refusal = run("complete", [750_000, 260_000]).expect_err("1.01 of 1 MB/s does not fit");
    assert!(refusal.to_string().contains("10.00 kB/s too much"), "{refusal}");
    run("max+prop-bfq", [750_000, 260_000]).expect("nobody counts");
}
