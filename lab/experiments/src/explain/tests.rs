//! Small worlds in which it is known why a request waits, on a drive whose completions all take 100 us.

use iofair_baselines::TABLE;
use iofair_core::contract::{Contract, Latency, Limits};
use iofair_core::policy::Role;
use iofair_simulator::observe::{Nobody, Observer};
use iofair_simulator::scenario::{ClientSpec, GroupSpec, Job, Pattern, Scenario, Writeback};
use iofair_simulator::simulate_on;
use iofair_simulator::testing::{Fixed, client, job, scenario, us};

use super::*;

/// Clients, each in a group of its own name, on a stack.
fn world(stack: &str, clients: Vec<ClientSpec>) -> Scenario {
    let group = |client: &ClientSpec| GroupSpec {
        name: client.name.clone(),
        contract: Contract::default(),
    };
    let groups = clients.iter().map(group).collect();
    let clients: Vec<_> =
        clients.into_iter().map(|c| ClientSpec { group: c.name.clone(), ..c }).collect();
    let mut run = scenario(clients, us(50_000));
    (run.stack, run.groups) = (TABLE.stack(stack).expect("in the table"), groups);
    run.tags = Some(128);
    run
}

fn direct(name: &str, depth: u32) -> ClientSpec {
    client(name, Job { depth, ..job(Pattern::RandomRead, 4, false) })
}

fn watch(run: &Scenario, depth: u32, observer: &mut dyn Observer) {
    let mut drive = Fixed::new(us(100), None);
    drive.facts.depth = depth;
    simulate_on(run, Box::new(drive), observer).expect("it runs");
}

fn survey(run: &Scenario, depth: u32) -> Summary {
    let mut survey = Survey::new(run, None, 1_000_000);
    watch(run, depth, &mut survey);
    survey.finish()
}

/// The stories of the slowest of a client.
fn slowest_of(run: &Scenario, depth: u32, client: &str) -> Story {
    let mut survey = Survey::new(run, Some(client), 1);
    watch(run, depth, &mut survey);
    let request = survey.finish().slowest[0].request;
    let mut stories = Stories::new(run, &[request]);
    watch(run, depth, &mut stories);
    stories.finish().0.remove(0)
}

fn mean(summary: &Summary, client: &str, place: &str) -> u64 {
    let row = summary.waits.iter().find(|row| row.client == client && row.place == place);
    row.map_or(0, |row| row.mean_ns)
}

fn says(story: &Story, text: &str) -> bool {
    story.lines.iter().any(|line| line.what.contains(text))
}

/// Goal: who waits for nobody is at the drive all the time. Method: one client, no control.
#[test]
fn alone_it_is_the_drive() {
    let mut run = world("none-none", vec![direct("a", 1)]);
    run.time = us(1_100);
    let summary = survey(&run, 32);
    assert_eq!((mean(&summary, "a", "drive"), summary.waits.len()), (100_000, 1));
    let story = slowest_of(&run, 32, "a");
    assert_eq!(story.why, "100 % (100us) at the drive");
    assert!(says(&story, "the drive completes it after 100us; it completed 0 others"));
}

/// Goal: a ceiling is named as the cause, with its group; the client without one is not held. Method:
/// 100 requests a second for one of two.
#[test]
fn a_ceiling_is_the_cause() {
    let mut run = world("max-none", vec![direct("free", 1), direct("held", 1)]);
    let limits = Limits { iops: [Some(100), None], ..Limits::default() };
    run.groups[1].contract.max = limits;
    run.time = us(1_000_000);
    let summary = survey(&run, 32);
    assert!(mean(&summary, "held", "max") > 5_000_000, "{:?}", summary.waits);
    assert_eq!(mean(&summary, "free", "max"), 0);
    let rule = &summary.rules[0];
    assert_eq!((rule.about.as_str(), rule.place.as_deref()), ("held", Some("max")));
    assert!(rule.rule.starts_with("over the ceiling of a group"), "{rule:?}");
    let story = slowest_of(&run, 32, "held");
    assert!(story.why.contains("held by max: over the ceiling of group held"), "{}", story.why);
    assert!(says(&story, "requests of free"), "{:?}", story.lines);
    assert!(says(&story, "released by max after"), "{:?}", story.lines);
}

/// Goal: a wait for a tag is told as one, with the numbers. Method: one tag for two clients.
#[test]
fn a_tag_is_the_cause() {
    let mut run = world("none-noop", vec![direct("a", 1), direct("b", 1)]);
    run.tags = Some(1);
    let summary = survey(&run, 32);
    assert!(mean(&summary, "b", "tag") > 80_000, "{:?}", summary.waits);
    let story = slowest_of(&run, 32, "b");
    assert!(story.why.contains("waiting for a tag; 1 request of others, 4 KiB"), "{}", story.why);
    assert!(says(&story, "waits for a tag: 1 in use, for its kind until 1"), "{:?}", story.lines);
    assert!(says(&story, "gets a tag after"), "{:?}", story.lines);
}

/// Goal: a slot of another client is told as the cause. Method: BFQ, a drive of depth 1, one client of
/// many requests at once.
#[test]
fn a_slot_of_another_client_is_the_cause() {
    let run = world("prop-bfq", vec![direct("crowd", 32), direct("one", 1)]);
    let story = slowest_of(&run, 1, "one");
    assert!(story.why.contains("queued in bfq; "), "{}", story.why);
    assert!(says(&story, "requests of crowd"), "{:?}", story.lines);
    assert!(says(&story, "released by bfq after"), "{:?}", story.lines);
}

/// Goal: a full drive is told apart from a scheduler that holds. Method: no control, depth 1.
#[test]
fn a_full_drive_is_seen() {
    let run = world("none-noop", vec![direct("a", 2), direct("b", 2)]);
    let summary = survey(&run, 1);
    let queued = mean(&summary, "a", "noop");
    assert!(queued > 200_000 && mean(&summary, "a", "noop: drive full") == queued);
    assert_eq!(mean(&summary, "a", "noop: drive empty"), 0);
}

/// Goal: a merged request goes with the one that took it in, whichever way they met. Method:
/// neighbours at once on a slow drive; every request's places add up.
#[test]
fn merged_requests_are_followed() {
    let neighbours = Job { depth: 16, ..job(Pattern::SequentialRead, 4, false) };
    let run = world("none-mq-deadline", vec![client("a", neighbours), direct("b", 4)]);
    let summary = survey(&run, 1);
    let merged = summary.slowest.iter().filter(|slow| slow.client == "a").map(|slow| slow.request);
    let mut stories = Stories::new(&run, &merged.collect::<Vec<_>>());
    watch(&run, 1, &mut stories);
    let (stories, submitted) = stories.finish();
    assert_eq!(submitted, summary.requests);
    assert!(stories.iter().any(|story| says(story, "merged into request")));
    assert!(stories.iter().any(|story| says(story, "is merged into it")));
    for story in stories {
        let slow = summary.slowest.iter().find(|slow| slow.request == story.request);
        assert_eq!(slow.expect("from there").total_ns, story.total_ns, "{story:?}");
    }
}

/// Goal: every nanosecond of every request is somewhere, flushes and unfinished requests too, and none is
/// left out. Method: writers that sync, and a reader with a ceiling it never comes out of.
#[test]
fn times_add_up() {
    let syncing = Job { fdatasync_every: 2, ..job(Pattern::SequentialWrite, 4, false) };
    let late = ClientSpec { start: us(30), ..client("late", syncing.clone()) };
    let writers = vec![client("w", syncing), late, direct("stuck", 3)];
    let mut run = world("max-mq-deadline", writers);
    run.groups[2].contract.max = Limits { iops: [Some(1), None], ..Limits::default() };
    let summary = survey(&run, 4);
    assert_eq!(summary.counted, summary.requests);
    assert_eq!(summary.slowest.len() as u64, summary.counted);
    assert!(summary.unfinished > 0);
    assert!(mean(&summary, "late", "flush") > 0, "{:?}", summary.waits);
    for slow in &summary.slowest {
        assert_eq!(slow.total_ns, slow.waits_ns.iter().sum::<u64>(), "{slow:?}");
    }
    let stuck = slowest_of(&run, 4, "stuck");
    assert!(!stuck.completed && says(&stuck, "still in flight"), "{stuck:?}");
}

/// Goal: watching changes nothing, and a request that never was is not told of. Method: both observers
/// beside none.
#[test]
fn observers_change_nothing() {
    let run = world("max+prop-bfq", vec![direct("a", 4), direct("b", 1)]);
    let outcome = |observer: &mut dyn Observer| {
        simulate_on(&run, Box::new(Fixed::new(us(100), None)), observer).expect("it runs")
    };
    let plain = outcome(&mut Nobody);
    assert_eq!(outcome(&mut Survey::new(&run, None, 3)), plain);
    let mut stories = Stories::new(&run, &[3, 1, 1 << 40]);
    assert_eq!(outcome(&mut stories), plain);
    let (stories, _) = stories.finish();
    assert_eq!(stories.iter().map(|story| story.request).collect::<Vec<_>>(), [1, 3]);
}

/// Goal: the texts are readable to the end. Method: the headings and the first words of a story.
#[test]
fn texts_have_their_parts() {
    let run = world("max-none", vec![direct("a", 4)]);
    let text = summary_text(&survey(&run, 1));
    for part in ["Waiting times by client and place", "The slowest", "drive"] {
        assert!(text.contains(part), "{text}");
    }
    let text = stories_text(&[slowest_of(&run, 1, "a")]);
    assert!(text.contains("why: ") && text.contains("+0ns  enters max"), "{text}");
}

/// Goal: whatever a throttle holds, it says by which rule, from the first nanosecond. Method: every
/// throttle with limits, shares and targets of all kinds on a slow drive; times held are those explained.
#[test]
fn throttles_explain_what_they_hold() {
    let mut unexplained = Vec::new();
    for row in TABLE.policies.iter().filter(|row| row.role == Role::Throttle) {
        let buffered = client("writer", job(Pattern::SequentialWrite, 4, true));
        let clients = vec![direct("a", 16), direct("b", 16), direct("c", 1), buffered];
        let mut run = world(&format!("{}-none", row.short), clients);
        (run.time, run.host.memory) = (us(3_000_000), 64 << 20);
        run.host.writeback = Writeback::Owner;
        for group in &mut run.groups {
            group.contract.max.iops = [Some(2_000), Some(2_000)];
            group.contract.low.limits = Limits { iops: [Some(1_000), None], ..Limits::default() };
            group.contract.weight = 50;
        }
        run.groups[2].contract.latency = Latency::of_reads(us(150));
        let summary = survey(&run, 2);
        let waits: u64 = summary.slowest.iter().map(|slow| slow.waits_ns[0]).sum();
        let at = |rule: &&RuleCount| rule.place.as_deref() == Some(row.short);
        let explained: u64 = summary.rules.iter().filter(at).map(|rule| rule.held_ns).sum();
        assert!(waits > 0, "{} holds nothing here, so nothing is tested", row.name);
        if waits != explained {
            unexplained.push((row.short, waits, explained));
        }
    }
    assert_eq!(unexplained, [], "held ns, explained ns");
}

/// Goal: a scheduler that leaves the drive empty while requests wait says so. Method: every scheduler, shared
/// by weight where it can be, two random readers and one in order, on a drive that moves a head and has one slot.
#[test]
fn schedulers_explain_why_the_drive_is_empty() {
    let (mut idle, mut silent) = (Vec::new(), Vec::new());
    for row in TABLE.policies {
        let sharing = match row.role {
            Role::Throttle => continue,
            Role::Scheduler { groups, .. } => {
                if groups {
                    "prop"
                } else {
                    "none"
                }
            }
        };
        let in_order = client("in-order", job(Pattern::SequentialRead, 4, false));
        let clients = vec![in_order, direct("a", 1), direct("b", 1)];
        let mut run = world(&format!("{sharing}-{}", row.name), clients);
        run.groups[1].contract.weight = 300;
        let mut survey = Survey::new(&run, None, 0);
        let mut drive = Fixed::new(us(100), None);
        (drive.facts.depth, drive.facts.rotational) = (1, true);
        simulate_on(&run, Box::new(drive), &mut survey).expect("it runs");
        let summary = survey.finish();
        if !summary.waits.iter().any(|wait| wait.place.ends_with("drive empty")) {
            continue;
        }
        idle.push(row.name);
        let tells = |rule: &RuleCount| ["wait", "idle"].iter().any(|word| rule.rule.contains(word));
        if !summary.rules.iter().any(tells) {
            silent.push((row.name, summary.rules));
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
    assert!(idle.contains(&"bfq-4.18") && idle.contains(&"cfq"), "{idle:?}");
    assert!(!idle.contains(&"none") && !idle.contains(&"deadline"), "{idle:?}");
}
