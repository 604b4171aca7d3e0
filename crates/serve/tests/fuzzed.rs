//! The harnesses of `fuzz/` over their corpus, and over mutations of it: what `make fuzz` does for hours,
//! in a second and on any compiler.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::panic::catch_unwind;

/// Inputs a target, and for one that starts a server with each.
const ROUNDS: usize = 3_000;
const ROUNDS_WITH_SERVERS: usize = 150;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = format!("../../fuzz/corpus/{target}");
    let mut paths: Vec<_> =
        fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 3, "{target}: seeds are missing");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs the seeds, then seeds with bytes changed, doubled, left out or exchanged for those of another.
fn run(target: &str, rounds: usize, harness: fn(&[u8])) {
    let seeds = corpus(target);
    let mut random = Random(1);
    let check = |input: &[u8]| {
        if catch_unwind(|| harness(input)).is_err() {
            panic!("{target} fails on {input:02x?}");
        }
    };
    seeds.iter().for_each(|seed| check(seed));
    for _ in 0..rounds {
        let mut input = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(6) {
            let (at, byte) = (random.below(input.len()), random.below(256) as u8);
            match random.below(5) {
                0 if !input.is_empty() => input[at] = byte,
                1 if !input.is_empty() => input[at] ^= 1 << (byte & 7),
                2 => input.truncate(at.max(1)),
                3 => {
                    let other = &seeds[random.below(seeds.len())];
                    let from = random.below(other.len());
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
                _ => {
                    let repeated = input[at..].to_vec();
                    input.extend_from_slice(&repeated[..repeated.len().min(512)]);
                }
            }
        }
        check(&input);
    }
}

/// Goal: no bytes break the handshake's rules. Method: see the top of the file.
#[test]
fn handshakes() {
    run("handshake", ROUNDS, iofair_harness::handshake);
}

/// Goal: no bytes break the rules of commands.
/// Method: see the top of the file.
#[test]
fn transmissions() {
    run("transmission", ROUNDS, iofair_harness::transmission);
}

/// Goal: no text breaks the reader of contract files. Method: see the top of the file.
#[test]
fn contract_files() {
    run("contracts", ROUNDS, iofair_harness::contracts);
}

/// Goal: no list of operations loses or doubles a request. Method: see the top of the file.
#[test]
fn operation_lists() {
    run("operations", ROUNDS, iofair_harness::operations);
}

/// Goal: nothing said on the control socket breaks the server or parts it from its file.
/// Method: see the top of the file.
#[test]
fn control_sockets() {
    run("control", ROUNDS_WITH_SERVERS, iofair_harness::control);
}

/// Goal: no bytes break the readers of traces, or give requests that a drive does not have. Method: see the top of the file.
#[test]
fn traces() {
    run("trace", ROUNDS, iofair_harness::trace);
}

/// Goal: no text breaks the reader of fio's job files, or gives jobs out of bounds. Method: see the top of the file.
#[test]
fn job_files() {
    run("jobs", ROUNDS, iofair_harness::jobs);
}

/// Goal: no bytes on a device break the reader of pools. Method: see the top of the file.
#[test]
fn pools() {
    run("pool", ROUNDS, iofair_harness::pool);
}

/// Goal: nothing in a guest's memory breaks its queue's rules. Method: see the top of the file.
#[test]
fn virtqueues() {
    run("virtqueue", 10 * ROUNDS, iofair_harness::virtqueue);
}
