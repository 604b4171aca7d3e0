//! Laws over random lists of commands, however the drive is woken.

use super::*;

/// A script of commands with their instants.
fn script(name: &str, seed: u64, count: u32) -> Vec<(u64, Command)> {
    let mut random = Random::new(seed, 9);
    let mut at = 0;
    let capacity = parameters(name).capacity / 1024;
    (0..count)
        .map(|id| {
            at += if random.chance(60) { 0 } else { random.below(400_000) };
            let operation = match random.below(100) {
                0..55 => Operation::Read,
                55..92 => Operation::Write,
                92..96 => Operation::Flush,
                96..98 => Operation::Discard,
                _ => Operation::WriteZeroes,
            };
            let length = if random.chance(70) { 4 } else { random.between(1, 512) };
            let start = random.below(capacity - length);
            let mut command = command(id, operation, (start, length));
            if operation == Operation::Flush {
                command.length = Sectors::ZERO;
            }
            if random.chance(10) {
                command.flags = Flags::FUA;
            }
            (at, command)
        })
        .collect()
}

/// Plays a script as the contract of [`Drive`] allows, one command waiting while the drive is full.
/// `wake` draws what to do beyond what is needed: early, late and double calls.
fn play(
    name: &str,
    seed: u64,
    script: &[(u64, Command)],
    wake: &mut Random,
) -> Vec<(Command, u64, Done)> {
    let mut drive = Ssd::new(parameters(name), seed);
    // A depth that leaves the script's own instants alone.
    let depth = drive.facts().depth as usize;
    let (mut done, mut completions) = (Vec::new(), Vec::new());
    let mut next = script.iter().peekable();
    let mut inside: Vec<(u32, Command, u64)> = Vec::new();
    loop {
        let free = inside.len() < depth;
        let event = drive.next_event();
        match (next.peek().filter(|_| free), event) {
            (Some(&&(at, command)), event) if event.is_none_or(|event| at < event.0) => {
                next.next();
                let at =
                    completions.last().map_or(at, |(_, _, last): &(_, _, Done)| at.max(last.at.0));
                drive.submit(Instant(at), command);
                inside.push((command.id, command, at));
            }
            (_, Some(event)) => {
                if wake.chance(30) {
                    drive.advance(Instant(event.0 - 1), &mut done);
                }
                drive.advance(event, &mut done);
                if wake.chance(30) {
                    drive.advance(event, &mut done);
                }
            }
            (_, None) => break,
        }
        for completion in done.drain(..) {
            let index =
                inside.iter().position(|(id, _, _)| *id == completion.id).expect("sent once");
            let (_, command, at) = inside.swap_remove(index);
            completions.push((command, at, completion));
        }
    }
    assert!(inside.is_empty() && next.next().is_none());
    completions
}

/// Goal: each command is completed exactly once, in order of time, and never before physics allows; a
/// flush covers all before it. Method: random scripts on every drive and variant.
#[test]
fn laws_hold_over_seeds() {
    for name in ALL {
        let parameters = parameters(name);
        for seed in 0..20 {
            let script = script(name, seed, 300);
            let completions = play(name, seed, &script, &mut Random::new(seed, 5));
            assert_eq!(completions.len(), script.len(), "{name} seed {seed}");
            assert!(completions.windows(2).all(|pair| pair[0].2.at <= pair[1].2.at));
            for (command, at, done) in &completions {
                let took = done.at.0 - at;
                let link = command.length.bytes() * 1_000_000_000 / parameters.link;
                let least = match command.operation {
                    Operation::Read => parameters.page_read.0 * 3 / 4 + link,
                    Operation::Write if command.flags.has(Flags::FUA) && !parameters.protected => {
                        link + parameters.page_program().0 + parameters.flush.0
                    }
                    Operation::Write => link,
                    Operation::Flush => parameters.flush.0,
                    _ => parameters.firmware_write.0,
                };
                assert!(took >= least, "{name} seed {seed}: {command:?} took {took} < {least}");
                assert_eq!(done.status, 0);
            }
            // A protected cache makes a flush a command like others: what was completed before is durable anyway.
            let drains = |a: &&(Command, u64, Done)| {
                a.0.operation == Operation::Flush && !parameters.protected
            };
            for (flush, at, done) in completions.iter().filter(drains) {
                let outside = completions.iter().all(|(command, other_at, other)| {
                    other.at.0 <= done.at.0 || command.id > flush.id || other_at > at
                });
                assert!(outside, "{name} seed {seed}: a flush passed a command before it");
            }
        }
    }
}

/// Goal: same seed, same completions, however the drive is woken. Method: the same script with different
/// early, late and double calls; another seed completes them at other instants.
#[test]
fn waking_changes_nothing() {
    for name in ALL {
        let script = script(name, 3, 400);
        let plain = play(name, 3, &script, &mut Random::new(0, 0));
        for other in 1..6 {
            assert_eq!(plain, play(name, 3, &script, &mut Random::new(other, 0)), "{name}");
        }
        assert_ne!(plain, play(name, 4, &script, &mut Random::new(0, 0)), "{name}");
    }
}

/// Submits an open script. `look` advances the drive to its next event before the given time; `false` if there is none.
fn submit_all(
    drive: &mut Ssd,
    script: &[(u64, Command)],
    mut look: impl FnMut(&mut Ssd, u64) -> bool,
) {
    for &(at, command) in script {
        while look(drive, at) {}
        drive.submit(Instant(at), command);
    }
    while look(drive, u64::MAX) {}
}

/// Goal: no command completes earlier than announced, and an owner that sleeps until then meets the same drive with far fewer
/// looks. Method: open scripts on every drive and variant, at each event and at announced times; lone reads.
#[test]
fn completions_are_announced() {
    let run = |name: &str, script: &[(u64, Command)], sleeps: bool| {
        let mut drive = Ssd::new(parameters(name), 8);
        let (mut done, mut looks) = (Vec::new(), 0);
        let mut look = |drive: &mut Ssd, before: u64, done: &mut Vec<Done>| {
            let Some(announced) = drive.next_completion() else { return false };
            let next = drive.next_event().expect("something is announced");
            assert!(announced >= next);
            let at = if sleeps { announced } else { next };
            if at.0 >= before {
                return false;
            }
            let known = done.len();
            drive.advance(at, done);
            assert!(done[known..].iter().all(|one| one.at >= announced), "{name}: {announced:?}");
            looks += 1;
            true
        };
        submit_all(&mut drive, script, |drive, before| look(drive, before, &mut done));
        (done, looks)
    };
    for name in ALL {
        let depth = parameters(name).slots as usize;
        for seed in 0..5 {
            let script = script(name, seed, 2 * depth as u32);
            for part in script.chunks(depth) {
                let (plain, lazy) = (run(name, part, false), run(name, part, true));
                assert_eq!(plain.0, lazy.0, "{name} seed {seed}");
                assert!(lazy.1 < plain.1, "{name} seed {seed}: {} and {}", lazy.1, plain.1);
            }
        }
        for (kib, most) in [(4, 2), (256, 6)] {
            let lone = [(0, command(1, Operation::Read, (0, kib)))];
            let looks = run(name, &lone, true).1;
            assert!(looks <= most, "{name}: {looks} looks at a read of {kib} KiB");
        }
    }
}

/// Goal: an owner that lets the drive run on until something completes, or until its next command, meets the same drive, and hands in
/// nothing too late. Method: open scripts on every drive, against looks at each event.
#[test]
fn running_ahead_changes_nothing() {
    let run = |name: &str, script: &[(u64, Command)], ahead: bool| {
        let mut drive = Ssd::new(parameters(name), 8);
        let (mut done, mut looks) = (Vec::new(), 0);
        let mut look = |drive: &mut Ssd, before: u64, done: &mut Vec<Done>| {
            let next = match ahead {
                true => drive.run_to_completion(Instant(before)),
                false => drive.next_event(),
            };
            let Some(at) = next.filter(|at| at.0 <= before && *at < Instant::MAX) else {
                return false;
            };
            let known = done.len();
            drive.advance(Instant(at.0 - 1), done);
            assert_eq!(done.len(), known, "{name}: a completion before {at:?}");
            drive.advance(at, done);
            looks += 1;
            true
        };
        submit_all(&mut drive, script, |drive, before| look(drive, before, &mut done));
        (done, looks, drive.busy())
    };
    for name in ALL {
        let depth = parameters(name).slots as usize;
        for part in script(name, 5, 2 * depth as u32).chunks(depth) {
            let (plain, ahead) = (run(name, part, false), run(name, part, true));
            assert_eq!((&plain.0, plain.2), (&ahead.0, ahead.2), "{name}");
            assert!(ahead.1 <= part.len(), "{name}: {} looks at {} commands", ahead.1, part.len());
        }
    }
}

/// Goal: late calls change nothing either. Method: an open script (fewer commands than slots at any
/// time), advanced only every 3 ms and at submissions, against one advanced at each event.
#[test]
fn late_is_the_same() {
    for name in ["nvme-2015", COLLECTING] {
        late_is_the_same_of(name);
    }
}
fn late_is_the_same_of(name: &str) {
    let script: Vec<_> = script(name, 8, 600);
    let run = |late: bool| {
        let mut drive = Ssd::new(parameters(name), 8);
        let mut done = Vec::new();
        for &(at, command) in &script {
            while !late && drive.next_event().is_some_and(|event| event.0 < at) {
                let event = drive.next_event().unwrap();
                drive.advance(event, &mut done);
            }
            drive.submit(Instant(at), command);
        }
        if late {
            drive.advance(Instant(60_000_000_000), &mut done);
        }
        done.extend(drain(&mut drive));
        (done, drive.busy())
    };
    assert_eq!(run(false), run(true));
}
