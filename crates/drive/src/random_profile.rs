//! Random drives, for tests on drives for which nothing was tuned.
//!
//! `random-flash:SEED`, `random-disk:SEED` and `random-volume:SEED` can be used like the names of profiles. Every number is
//! drawn from the range that data sheets of drives from 2005 to 2025 cover, mostly uniformly on a logarithmic scale, and
//! independently unless physics links them (a cache drains more slowly than the link fills it; an inner track is
//! slower than an outer one).
//!
//! A volume is a random flash drive behind limits and a path. Their ranges cover what Amazon EBS, Azure managed disks and
//! Google Persistent Disk offer for one volume, from 500 I/Os and 60 MB a second on, and how QEMU and Linux enforce limits.

use std::fmt::Write as _;

use crate::random::Random;

/// Names of the kinds.
pub(crate) const KINDS: [&str; 3] = ["random-flash", "random-disk", "random-volume"];

/// The profile of this kind and seed as the text of a profile file.
pub(crate) fn text(kind: &str, seed: u64) -> Option<String> {
    match KINDS.iter().position(|known| *known == kind)? {
        0 => Some(flash(seed, "A flash drive that nobody built")),
        1 => Some(disk(seed)),
        _ => Some(volume(seed)),
    }
}

/// A number between the two, uniform on a logarithmic scale: first the power of two, then the position in it.
fn log(random: &mut Random, low: u64, high: u64) -> u64 {
    let doublings = (high / low).ilog2();
    let base = low << random.between(0, u64::from(doublings));
    random.between(base, (2 * base).min(high).max(base))
}

struct Text(String);

impl Text {
    fn new(title: &str, capacity: u64, max_request: u64, worst_case: u64) -> Self {
        let mut text = Self(format!("title = \"{title}\"\n"));
        text.quoted("capacity", capacity, "B");
        text.quoted("max-request", max_request, "B");
        text.quoted("worst-case", worst_case, "B/s");
        text
    }
    fn table(&mut self, name: &str) {
        writeln!(self.0, "[{name}]").expect("a string takes everything");
    }
    fn number(&mut self, key: &str, value: impl std::fmt::Display) {
        writeln!(self.0, "{key} = {{ value = {value}, source = \"drawn\", free = true }}")
            .expect("a string takes everything");
    }
    fn quoted(&mut self, key: &str, value: impl std::fmt::Display, unit: &str) {
        writeln!(
            self.0,
            "{key} = {{ value = \"{value}{unit}\", source = \"drawn\", free = true }}"
        )
        .expect("a string takes everything");
    }
}

fn flash(seed: u64, title: &str) -> String {
    let mut random = Random::new(seed, 1);
    let nvme = random.chance(60);
    let link = match nvme {
        true => log(&mut random, 800_000_000, 12_800_000_000),
        false => random.between(180_000_000, 560_000_000),
    };
    let max_request = [128 << 10, 256 << 10, 512 << 10, 1280 << 10][random.below(4) as usize];
    let mut text = Text::new(title, 200_000_000_000, max_request, link / 4);
    text.table("host");
    text.quoted("turnaround", log(&mut random, 3, 24), "us");
    text.quoted("consume-window", 262_144_000_000_000 / (link + link / 4) / 1000, "us");
    text.table("model.ssd");
    text.number("slots", if nvme { log(&mut random, 64, 1023) } else { 32 });
    // At a high queue depth, small requests reach a tenth to all of the rate of large ones.
    let small = (4096 * 1_000_000 / (link / 1000)).max(100);
    text.quoted("firmware-read", log(&mut random, small, small * 10), "ns");
    text.quoted("firmware-write", log(&mut random, small, small * 10), "ns");
    let setup = if random.chance(70) { 0 } else { log(&mut random, 20, 320) };
    text.quoted("large-setup", setup, "us");
    let page = [4u64 << 10, 8 << 10, 16 << 10][random.below(3) as usize];
    let page_read = log(&mut random, 12_000, 192_000);
    // From a drive that cannot fill its link to one that could fill four links.
    let needed = (link / page) * page_read / 1_000_000_000;
    let units = log(&mut random, (needed * 7 / 10).max(4), (needed * 4).max(32)).min(4096);
    text.number("units", units);
    text.quoted("page", page, "B");
    text.quoted("page-read", page_read, "ns");
    let spread = random.below(50);
    text.number("page-read-spread-percent", spread);
    text.quoted("link", link, "B/s");
    let order = if random.chance(60) { "round-robin" } else { "fifo" };
    text.quoted("link-order", order, "");
    text.quoted("duplex", if nvme { "full" } else { "half" }, "");
    let product = (link / 1000) * page_read / 1_000_000;
    text.quoted(
        "read-buffer",
        log(&mut random, product.max(64 << 10), (product * 8).max(1 << 20)),
        "B",
    );
    // A page is programmed in 100 us (one bit per cell) to 3.2 ms (four).
    let program = log(&mut random, 100, 3200);
    text.quoted("drain", (units * page * 1_000_000 / program).min(link * 9 / 10), "B/s");
    text.quoted("write-cache", log(&mut random, 512 << 10, 128 << 20), "B");
    text.quoted("flush", log(&mut random, 20, 5120), "us");
    text.table("model.ssd.deep-queue");
    let deep = random.chance(20);
    text.number("above", 24);
    text.number("overtakes", if deep { random.between(8, 40) } else { 0 });
    text.0
}

fn disk(seed: u64) -> String {
    let mut random = Random::new(seed, 2);
    let rpm = [5400, 7200, 7200, 10_000, 15_000][random.below(5) as usize];
    let outer = random.between(50_000_000, 280_000_000);
    let max_request = [128 << 10, 512 << 10, 1280 << 10][random.below(3) as usize];
    let mut text = Text::new("A disk that nobody built", 500_000_000_000, max_request, 400_000);
    text.table("host");
    text.quoted("turnaround", log(&mut random, 10, 80), "us");
    text.quoted("consume-window", log(&mut random, 90, 720), "us");
    text.table("model.hdd");
    let slots = [1, 31, 31, 31][random.below(4) as usize];
    text.number("slots", slots);
    text.quoted("overhead-read", random.between(50, 200), "us");
    text.quoted("overhead-write", random.between(30, 120), "us");
    text.quoted("bus", 280, "MB/s");
    text.quoted("order", if random.chance(50) { "fcfs" } else { "sstf" }, "");
    text.number("streams-above", if random.chance(50) { 16 } else { 64 });
    text.quoted("age", random.between(500, 4500), "ms");
    text.number("segments", random.between(4, 32));
    text.quoted("read-ahead", log(&mut random, 256 << 10, 2 << 20), "B");
    text.quoted("write-cache", log(&mut random, 2 << 20, 64 << 20), "B");
    text.quoted("flush", random.between(100, 2000), "us");
    text.number("heads", random.between(1, 8));
    text.quoted("revolution", 60_000_000_000u64 / rpm, "ns");
    text.quoted("outer", outer, "B/s");
    text.quoted("inner", outer * random.between(45, 55) / 100, "B/s");
    let average = random.between(3_500, 13_000);
    text.quoted("seek-track", average * random.between(6, 25) / 100, "us");
    text.quoted("seek-average", average, "us");
    text.quoted("seek-full", average * random.between(150, 200) / 100, "us");
    text.quoted("head-switch", random.between(400, 1200), "us");
    text.quoted("write-settle", random.between(200, 1000), "us");
    text.0
}

fn volume(seed: u64) -> String {
    let mut random = Random::new(seed, 3);
    let mut text = Text(flash(seed, "A volume that nobody offers"));
    text.table("volume");
    let latency = log(&mut random, 80, 1280);
    text.quoted("latency", latency, "us");
    text.quoted("jitter", latency * random.between(5, 40) / 100, "us");
    text.number("depth", 32 << random.below(4));
    let iops = log(&mut random, 500, 128_000);
    text.number("iops", iops);
    let io = [16u64 << 10, 256 << 10, 256 << 10, 1 << 20][random.below(4) as usize];
    // More bytes than the I/Os can carry are not offered.
    text.quoted("rate", log(&mut random, 60_000_000, 3_840_000_000).min(iops * io), "B/s");
    text.quoted("io", io, "B");
    let (burst, slice) = match random.below(10) {
        0..3 => (100_000, 100_000),
        3..5 => (100_000, 1),
        _ => (log(&mut random, 10_000, 1_280_000), [1, 1000, 10_000][random.below(3) as usize]),
    };
    text.quoted("burst", burst, "us");
    text.quoted("slice", slice, "us");
    text.number("shared", random.chance(60));
    text.0
}

#[cfg(test)]
mod tests {
    use crate::profile;

    /// Goal: every seed is a drive that the models accept. Method: a thousand of each kind.
    #[test]
    fn every_seed_is_a_drive() {
        for kind in super::KINDS {
            for seed in 0..1000 {
                let name = format!("{kind}:{seed}");
                profile::load(&name, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }
    /// Goal: seeds are different drives, one seed is always the same. Method: names and numbers.
    #[test]
    fn a_seed_is_one_drive() {
        let numbers = |name| profile::read(name).unwrap().numbers;
        assert_eq!(numbers("random-flash:3"), numbers("random-flash:3"));
        assert_ne!(numbers("random-flash:3"), numbers("random-flash:4"));
        let error = profile::load("random-flash:x", 1).err().unwrap().to_string();
        assert!(error.contains("random-flash:x"), "{error}");
    }
}
