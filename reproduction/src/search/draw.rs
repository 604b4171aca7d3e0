//! Draws cases: a drive, clients with a minimum, and their neighbours.
//!
//! Cases from [`VOLUMES`] on are on volumes, those before it on flash drives and disks.

use std::fmt::Write as _;

use iofair_drive::random::Random;

/// The first case on a volume.
pub const VOLUMES: u64 = 1_000_000;

/// One or several equal clients.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) promised: bool,
    pub(super) weight: u64,
    pub(super) block: u64,
    /// How many bytes it gets at once: a block, or what the host reads ahead.
    pub(super) unit: u64,
    /// The keys that say what it does, as an experiment writes them.
    pub(super) keys: String,
}

/// A case without its minimums, which are parts of what each client reaches alone.
#[derive(Clone, Debug)]
pub struct Case {
    pub(super) seed: u64,
    pub(super) drive: String,
    /// Whether it is on a disk.
    pub disk: bool,
    pub(super) clients: Vec<Client>,
    /// Parts of the drive's time in thousandths, a promised client each.
    pub(super) parts: Vec<u64>,
}

/// What all promised clients ask for together at most, in thousandths of the drive's time: on flash less if some of them
/// write, since a read waits for the pages that a write programs, and a flush for everything.
const PARTS_FLASH: u64 = 700;
const PARTS_WRITES: u64 = 450;
const PARTS_DISK: u64 = 400;
/// What the host reads ahead of a sequential buffered reader.
const READ_AHEAD: u64 = 128 << 10;

impl Case {
    /// The case of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 7);
        let disk = random.chance(15) && seed < VOLUMES;
        let known = ["plextor-px256m5s", "plextor-px256m5s:b", "samsung-970-pro", "nvme-2015"];
        let drive = match (disk, random.below(10)) {
            _ if seed >= VOLUMES => format!("random-volume:{}", random.below(1 << 20)),
            (false, 0..3) => known[random.below(4) as usize].to_owned(),
            (false, _) => format!("random-flash:{}", random.below(1 << 20)),
            (true, _) => format!("random-disk:{}", random.below(1 << 20)),
        };
        let mut clients = Vec::new();
        let promised = random.between(1, if disk { 1 } else { 4 });
        for index in 0..promised {
            let client = draw_client(&mut random, format!("promised{index}"), true, disk);
            clients.push(client);
        }
        for index in 0..random.between(1, 3) {
            let client = draw_client(&mut random, format!("other{index}"), false, disk);
            clients.push(client);
        }
        let writes =
            clients[..promised as usize].iter().any(|client| client.keys.contains("write"));
        let all = match (disk, writes) {
            (true, _) => PARTS_DISK,
            (_, true) => PARTS_WRITES,
            (_, false) => PARTS_FLASH,
        };
        let whole = random.between(all / 5, all);
        let shares: Vec<u64> = (0..promised).map(|_| random.between(1, 10)).collect();
        let sum: u64 = shares.iter().sum();
        let parts = shares.iter().map(|share| (whole * share / sum).max(10)).collect();
        Self { seed, drive, disk, clients, parts }
    }

    /// The same case, but readers without a minimum have latency contracts.
    pub fn with_latencies(&self) -> Self {
        let mut random = Random::new(self.seed, 8);
        let mut case = self.clone();
        let readers = case
            .clients
            .iter_mut()
            .filter(|client| !client.promised && client.keys.contains("read\""));
        for reader in readers {
            let micros = if self.disk {
                random.between(20, 200) * 1000
            } else {
                random.between(300, 10_000)
            };
            reader.keys += &format!("latency = \"{micros}us\"\n");
        }
        case
    }
    /// Whether a client has a latency contract.
    pub fn has_latencies(&self) -> bool {
        self.clients.iter().any(|client| client.keys.contains("latency"))
    }
    /// What kind of drive it has, as in reproduction/evidence/search.csv.
    pub fn drive_kind(&self) -> &'static str {
        match self.disk {
            true => "disk",
            false if self.seed >= VOLUMES => "volume",
            false => "flash",
        }
    }
    /// Seconds that are measured.
    pub(super) fn seconds(&self) -> u64 {
        if self.disk { 20 } else { 3 }
    }
    fn head(&self, stacks: &[&str], note: &str) -> String {
        let (time, ramp) = (self.seconds(), if self.disk { 4 } else { 2 });
        format!(
            "title = \"Case {} of the search\"\nsource = \"our own: make search\"\nbasis = \"own\"\nnote = \"{note}\"\n\
             drive = \"{}\"\ntime = \"{time}s\"\nramp = \"{ramp}s\"\ninterval = \"1s\"\nstacks = {stacks:?}\n\n\
             [policy.bfq]\nlow_latency = false\n",
            self.seed, self.drive
        )
    }
    /// An experiment with one process of this client.
    pub(super) fn alone(&self, client: &Client) -> String {
        let one = Client { count: 1, ..client.clone() };
        self.head(&["promise"], "") + &one.text(None)
    }
    /// The experiment, with these minimums in bytes a second.
    pub(super) fn experiment(&self, stacks: &[&str], note: &str, minimums: &[u64]) -> String {
        let mut text = self.head(stacks, note);
        let mut minimums = minimums.iter();
        for client in &self.clients {
            text += &client.text(minimums.next_if_promised(client));
        }
        text
    }
}

trait NextIfPromised {
    fn next_if_promised(&mut self, client: &Client) -> Option<u64>;
}
impl<'a, I: Iterator<Item = &'a u64>> NextIfPromised for I {
    fn next_if_promised(&mut self, client: &Client) -> Option<u64> {
        if client.promised { self.next().copied() } else { None }
    }
}

impl Client {
    fn text(&self, min: Option<u64>) -> String {
        let mut text = format!(
            "\n[[client]]\nname = \"{}\"\ncount = {}\nweight = {}\n{}",
            self.name, self.count, self.weight, self.keys
        );
        if let Some(min) = min {
            writeln!(text, "min = \"{min}B/s\"").expect("a string takes everything");
        }
        text
    }
}

fn draw_client(random: &mut Random, name: String, promised: bool, disk: bool) -> Client {
    let mut keys = String::new();
    let mut put = |key: &str, value: &dyn std::fmt::Display| {
        writeln!(keys, "{key} = {value}").expect("a string takes everything");
    };
    let random_access = random.chance(60);
    let write = random.chance(if promised { 25 } else { 40 });
    let job = match (random_access, write) {
        (true, false) => "\"randread\"",
        (true, true) => "\"randwrite\"",
        (false, false) => "\"read\"",
        (false, true) => "\"write\"",
    };
    put("job", &job);
    // What a promised client writes to the page cache is not yet on the drive.
    let buffered = if promised && write { false } else { random.chance(50) };
    let block =
        if buffered && !random_access { 4 } else { 4 << random.below(if disk { 6 } else { 8 }) };
    put("block", &format!("\"{block}KiB\""));
    put("buffered", &buffered);
    if !buffered {
        let deepest = if random.chance(40) { 6 } else { 2 };
        let depth = 1 << random.below(deepest);
        put("depth", &depth);
    }
    if write && random.chance(20) {
        put("fdatasync", &random.between(1, 8));
    }
    if random.chance(25) {
        let most = if promised { 500 } else { 5000 };
        put("think", &format!("\"{}us\"", random.between(20, most)));
    }
    if !promised && random.chance(25) {
        let on = random.between(5, 400);
        put("on_off", &format!("[\"{on}ms\", \"{}ms\"]", random.between(5, 400)));
    }
    let weight = if random.chance(50) { 100 } else { random.between(10, 1000) };
    let count = if promised || random.chance(40) { 1 } else { 1 << random.between(1, 5) };
    let unit = if buffered && !random_access && !write { READ_AHEAD } else { block << 10 };
    Client { name, count, promised, weight, block: block << 10, unit, keys }
}
