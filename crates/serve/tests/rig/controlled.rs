//! A server under control, in a directory of its own.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use iofair_config::contracts::Contracts;
use iofair_serve::control::Control;
use iofair_serve::control::client::{Address, Call, Reply, call};
use serde_json::Value as Json;

use super::Directory;

/// A server under control.
pub(crate) struct Controlled {
    pub(crate) control: Control,
    pub(crate) directory: Directory,
}

/// A contract file with comments, two groups and two volumes.
pub(crate) fn file(directory: &Directory, back: &str) -> String {
    format!(
        "# the pool of the tests\n[drive]\nback = '{back}'  # not much\nstack = 'max+prop-bfq'\n\
         worst_case = '100MB/s'\n\n[drive.policy.bfq]\nlow_latency = false # as promised\n\n\
         [listen]\nunix = '{}'\n\n[control]\nunix = '{}'\n\n\
         # pays well\n[[group]]\nname = 'tenants/alice'\nmin = '10MB/s'\nweight = 300 # thrice\n\n\
         [[group]]\nname = 'batch'\n\n\
         [[volume]]\nname = 'v'\ngroup = 'tenants/alice'\nsize = '16MiB'\n\n\
         [[volume]]\nname = 'w'\ngroup = 'batch'\nsize = '1MiB' # spare\n",
        directory.path("socket"),
        directory.path("control.sock"),
    )
}

impl Controlled {
    pub(crate) fn start() -> Self {
        let directory = Directory::new();
        let text = file(&directory, "memory:64MiB");
        fs::write(directory.path("contracts.toml"), text).unwrap();
        Self::over(directory)
    }
    /// Starts what the directory's file says.
    pub(crate) fn over(directory: Directory) -> Self {
        let path = directory.path("contracts.toml");
        let contracts = Contracts::open_with(&iofair_baselines::TABLE, Path::new(&path))
            .unwrap_or_else(|e| panic!("{e}"));
        let control = Control::start(Path::new(&path), contracts);
        Self { control: control.unwrap_or_else(|error| panic!("{error}")), directory }
    }
    pub(crate) fn address(&self) -> Address {
        Address::Unix(self.directory.path("control.sock").into())
    }
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.directory.path("contracts.toml")).unwrap()
    }
    pub(crate) fn ask(&self, ask: &Call) -> Reply {
        call(&self.address(), ask).unwrap()
    }
    pub(crate) fn get(&self, path: &str) -> Json {
        let reply = self.ask(&Call::new("GET", path));
        assert!(reply.is_good(), "{path}: {}", String::from_utf8_lossy(&reply.body));
        reply.json().unwrap()
    }
    /// The status of a call.
    pub(crate) fn status(&self, ask: &Call) -> u16 {
        self.ask(ask).status
    }
    /// Sends bytes and returns all that comes back.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.directory.path("control.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // A server that has heard enough closes before everything is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}
