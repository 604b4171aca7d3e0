//! Frames as text, and what keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::numbers::{Group, Look, Step};
use super::view::{Action, Sort, View};
use super::*;

/// A look at a tree of four groups; `ages` makes numbers grow.
fn scene(ages: u64) -> Look {
    let bounds = [0.001, 0.01, 0.1];
    let steps = |counts: [u64; 4]| {
        let counts = counts.map(|count| count * ages).to_vec();
        let step = |step: &str| Step { step: step.into(), seconds: 1.0, counts: counts.clone() };
        vec![step("held"), step("queued"), step("drive")]
    };
    let group = |name: &str, weight, promised, got: f64, counts| {
        Group {
        name: name.into(),
        weight,
        min_bytes_per_second: (name == "tenants/alice").then_some(10_000_000),
        min_ios_per_second: None,
        share_promised: Some(promised),
        share_got: got,
        bytes_per_second: (got * 100e6) as u64,
        cpu_percent: got * 30.0,
        requests_in_flight: 3,
        request_slots: 2,
        memory_bytes: 3 << 19,
        broken_promise_seconds: u64::from(name == "tenants/alice") * 7,
        steps: steps(counts),
        why: (name == "tenants/alice").then(|| {
            "throttle max holds 3 requests for another 12.0 ms: over the ceiling of group tenants/alice".into()
        }),
    }
    };
    Look {
        uptime_seconds: ages as f64,
        stack: "max+prop-bfq".into(),
        connections: 4,
        requests_in_flight: 12,
        drive_commands: 3,
        failures: Vec::new(),
        drive_depth: 32,
        drive_busy_seconds: 0.75 * ages as f64,
        reactor_busy_seconds: 0.25 * ages as f64,
        bucket_bounds_seconds: bounds.to_vec(),
        groups: vec![
            group("batch", 100, 0.25, 0.5, [10, 0, 0, 0]),
            group("tenants", 300, 0.75, 0.5, [0; 4]),
            group("tenants/alice", 100, 0.25, 0.1, [50, 49, 1, 0]),
            group("tenants/a-name-that-is-longer-than-its-column", 200, 0.5, 0.4, [0, 0, 1, 0]),
        ],
    }
}

fn press(view: &mut View, keys: &str) -> Vec<Action> {
    let code = |key: char| match key {
        'U' => KeyCode::Up,
        'D' => KeyCode::Down,
        'L' => KeyCode::Left,
        'R' => KeyCode::Right,
        '\n' => KeyCode::Enter,
        key => KeyCode::Char(key),
    };
    keys.chars().map(|key| view.on_key(KeyEvent::new(code(key), KeyModifiers::NONE))).collect()
}

/// Goal: a frame of 80 by 24 says everything, line by line. Method: ratatui's own test back end.
#[test]
fn a_frame_fits_eighty_columns() {
    let mut view = View::new(scene(1));
    view.update(scene(2));
    press(&mut view, "DDD");
    let text = picture(&view, (80, 24)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(lines[0], "iofair  max+prop-bfq, 4 clients, 12 requests in flight, up 2.0 s");
    assert_eq!(lines[1], "drive 3 of 32 commands, busy 75 %; reactor busy 25 %");
    let heading =
        "group         weight got, promised    %    MB/s cpu%    held  queued   drive brk";
    assert_eq!(lines[2], heading);
    let rows = [
        "batch 100 ███┃███······ 50 50.00 15 1.0 ms 1.0 ms 1.0 ms 0",
        "▾ tenants 300 ███████···│·· 50 50.00 15 - - - 0",
        "a-name-t… 200 █████··│····· 40 40.00 12 100 ms 100 ms 100 ms 0",
        "alice 100 █··│········· 10 10.00 3 10.0 ms 10.0 ms 10.0 ms 7",
    ];
    for (line, row) in lines[3..].iter().zip(rows) {
        assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), row, "{text}");
    }
    let foot = &lines[lines.len() - 3..];
    assert_eq!(
        foot[0],
        "tenants/alice: promised 25.0 %, min 10.00 MB/s, 3 in flight, 2 slots, 1.5 MiB"
    );
    assert!(foot[1].starts_with("throttle max holds 3 requests for another 12.0 ms"), "{text}");
    assert!(foot[2].ends_with("s sort: name"), "{text}");
    // As narrow and as low as can be, it is cut and nothing breaks.
    for size in [(1, 1), (40, 6), (200, 60)] {
        picture(&view, size).unwrap();
    }
}

/// Goal: times are of what passed between two looks. Method: the second look adds slow requests only.
#[test]
fn times_are_of_the_interval() {
    let (first, mut second) = (scene(1), scene(1));
    second.uptime_seconds += 1.0;
    for step in &mut second.groups[0].steps {
        step.counts[1] += 5;
    }
    let rows = second.rows(Some(&first));
    assert_eq!(rows[0].p99, [Some(0.01); 3]);
    assert_eq!(rows[2].p99, [None; 3], "nothing passed");
    assert_eq!(second.rows(None)[0].p99, [Some(0.01); 3]);
    assert_eq!(first.rows(None)[2].p99, [Some(0.01); 3], "99 of 100");
    let mut endless = scene(1);
    endless.groups[0].steps[0].counts = vec![0, 0, 0, 9];
    assert_eq!(endless.rows(None)[0].p99[0], Some(0.1), "longer than the last bound");
}

/// Goal: keys choose, fold, sort and leave. Method: one after the other; the rows in sight.
#[test]
fn keys_choose_fold_and_sort() {
    let mut view = View::new(scene(1));
    let names = |view: &View| {
        view.rows()
            .iter()
            .map(|row| row.group.own_name().chars().next().unwrap())
            .collect::<String>()
    };
    assert_eq!(names(&view), "btaa");
    press(&mut view, "DL");
    assert_eq!((names(&view), view.chosen.as_deref()), ("bt".into(), Some("tenants")));
    press(&mut view, "R");
    assert_eq!(names(&view), "btaa");
    press(&mut view, "DDDDDD");
    assert_eq!(view.chosen.as_deref(), Some("tenants/alice"), "the last one stays the last one");
    press(&mut view, "L");
    assert_eq!(view.chosen.as_deref(), Some("tenants"), "nothing to fold: up");
    press(&mut view, "s");
    assert_eq!((view.sort, view.rows()[2].group.share_got), (Sort::Share, 0.4));
    press(&mut view, "ss");
    let last = &view.rows()[3];
    assert_eq!((view.sort, last.group.name.as_str()), (Sort::Wait, "tenants/alice"));
    press(&mut view, "w");
    assert!(picture(&view, (80, 24)).unwrap().contains("waits because"));
    assert_eq!(press(&mut view, "q"), [Action::Quit]);
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view.on_key(control), Action::Quit);
    let mut gone = scene(2);
    gone.groups.truncate(1);
    view.update(gone);
    assert_eq!(view.chosen.as_deref(), Some("batch"), "the chosen group went");
}

/// Goal: weights change by a key or a number, and never to one that does not exist. Method: all ways.
#[test]
fn weights_change_on_the_spot() {
    let mut view = View::new(scene(1));
    let weight = |weight| Action::Weight { group: "batch".into(), weight };
    assert_eq!(press(&mut view, "+-"), [weight(110), weight(90)]);
    assert_eq!(press(&mut view, "e250\n").last(), Some(&weight(250)));
    assert!(picture(&view, (80, 24)).unwrap().contains("s sort"));
    press(&mut view, "e5000");
    assert_eq!(view.typed.as_deref(), Some("5000"));
    assert!(picture(&view, (80, 24)).unwrap().contains("5000_"));
    assert_eq!(press(&mut view, "\n"), [Action::None]);
    assert_eq!(view.message.as_deref(), Some("a weight is a number from 1 to 1000"));
    press(&mut view, "e7");
    let escape = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
    assert_eq!(view.on_key(escape), Action::None, "only the typing is called off");
    assert_eq!(view.typed, None);
}
