//! What the tests share: a server in this process, a directory of its own, clients as processes.
// Each test file uses its part of it; outside of test functions clippy does not know that these are tests.
#![allow(dead_code, unused_imports, clippy::unwrap_used)]

pub(crate) mod controlled;
pub(crate) mod pki;
pub(crate) mod scene;
pub(crate) mod schema;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use iofair_config::contracts::Contracts;
use iofair_serve::Server;

pub(crate) use iofair_testkit::directory::Directory;
pub(crate) use iofair_testkit::wire;

/// Marks a test as ended when dropped, also by a panic: threads that poll it end, and none waits for ever.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A running server and where its clients find it.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) directory: Directory,
}

/// Contracts with one group `g` (with `contract` in it) and one volume `v`.
pub(crate) fn contracts(directory: &Directory, back: &str, stack: &str, contract: &str) -> String {
    let socket = directory.path("socket");
    format!(
        "[drive]\nback = '{back}'\nstack = '{stack}'\n\
         [listen]\nunix = '{socket}'\ntcp = '127.0.0.1:0'\ninsecure = true\n\
         [[group]]\nname = 'g'\n{contract}\n\
         [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '64MiB'\n"
    )
}

/// The bytes of a volume, as they lie in the file or device of its pool.
pub(crate) fn stored(pool: &str, volume: &str) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let summary = iofair_serve::pool::admin::show(pool.as_ref()).unwrap();
    let found = summary.volumes.iter().find(|found| found.name == volume).unwrap();
    let file = fs::File::open(pool).unwrap();
    let read = |(at, length): &(u64, u64)| {
        let mut piece = vec![0; *length as usize];
        file.read_exact_at(&mut piece, *at).unwrap();
        piece
    };
    let mut bytes = found.extents.iter().map(read).collect::<Vec<_>>().concat();
    bytes.truncate(found.bytes as usize);
    bytes
}

pub(crate) fn parse(text: &str) -> Contracts {
    Contracts::parse_with(&iofair_baselines::TABLE, "test.toml", text)
        .unwrap_or_else(|error| panic!("{error}"))
}

impl Rig {
    pub(crate) fn start(back: &str) -> Self {
        Self::with(back, "none-none", "")
    }
    pub(crate) fn with(back: &str, stack: &str, contract: &str) -> Self {
        Self::build(back, |directory, back| contracts(directory, back, stack, contract))
    }
    /// The volume `v` has more keys.
    pub(crate) fn start_with(back: &str, keys: impl Fn(&Directory) -> String) -> Self {
        Self::build(back, |directory, back| {
            contracts(directory, back, "none-none", "") + &keys(directory)
        })
    }
    fn build(back: &str, contracts: impl Fn(&Directory, &str) -> String) -> Self {
        let directory = Directory::new();
        let back = match back {
            "file" => format!("file:{}", directory.path("pool.img")),
            back => back.to_string(),
        };
        let server = Server::start(parse(&contracts(&directory, &back)));
        Self { server: server.unwrap_or_else(|error| panic!("{error}")), directory }
    }
    pub(crate) fn unix(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.directory.path("socket"))
    }
    pub(crate) fn tcp(&self, volume: &str) -> String {
        format!("nbd://{}/{volume}", self.server.tcp().unwrap())
    }
    pub(crate) fn image(&self) -> String {
        image(&self.directory)
    }
}

/// A file of 64 MiB with half of it pseudo-random and a hole in the middle.
pub(crate) fn image(directory: &Directory) -> String {
    let path = directory.path("image");
    let mut seed = 1u64;
    let mut bytes = vec![0u8; 64 << 20];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if !(2 << 20..6 << 20).contains(&index) {
            word.copy_from_slice(&seed.to_ne_bytes());
        }
    }
    fs::write(&path, bytes).unwrap();
    path
}

/// Starts a program.
pub(crate) fn begin(program: &str, arguments: &[&str]) -> Child {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    child.unwrap_or_else(|error| panic!("{program} does not start: {error}"))
}

/// Runs a program to its good end.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    good(program, begin(program, arguments).wait_with_output().unwrap())
}

pub(crate) fn good(program: &str, output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}\n{text}\n{errors}", output.status);
    text
}

/// fio's nbd engine with the usual arguments and these.
pub(crate) fn fio(uri: &str, arguments: &[&str]) -> Child {
    let uri = format!("--uri={uri}");
    let mut all = vec!["--name=job", "--ioengine=nbd", "--output-format=json", "--thread", &uri];
    all.extend_from_slice(arguments);
    begin("fio", &all)
}

/// The first job of fio's report.
pub(crate) fn report(child: Child) -> serde_json::Value {
    let text = good("fio", child.wait_with_output().unwrap());
    let json = &text[text.find('{').unwrap()..];
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(value["jobs"][0]["error"], 0, "{text}");
    value["jobs"][0].clone()
}
