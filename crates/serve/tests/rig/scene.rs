//! A server with limits of its own, for clients that try them.

use std::os::unix::net::UnixStream;
use std::thread;

use iofair_serve::{Server, Snapshot};

use super::wire::{TIMEOUT, Wire};
use super::{Directory, parse};

pub(crate) struct Scene {
    pub(crate) server: Server,
    directory: Directory,
}

impl Scene {
    /// A file of 64 MiB behind a socket with these keys in `[listen]` and in the group.
    pub(crate) fn start(listen: &str, group: &str) -> Self {
        let directory = Directory::new();
        let [socket, pool] = ["socket", "pool.img"].map(|name| directory.path(name));
        let stack = if group.is_empty() { "none-none" } else { "max-none" };
        let text = format!(
            "[drive]\nback = 'file:{pool}'\nstack = '{stack}'\n[listen]\nunix = '{socket}'\n{listen}\n\
             [[group]]\nname = 'g'\n{group}\n\
             [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '64MiB'\n"
        );
        Self { server: Server::start(parse(&text)).unwrap(), directory }
    }
    pub(crate) fn socket(&self) -> String {
        self.directory.path("socket")
    }
    pub(crate) fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }
    pub(crate) fn wire(&self) -> Wire {
        Wire::connect(&self.socket())
    }
    pub(crate) fn until(&self, done: impl Fn(&Snapshot) -> bool) {
        while !done(&self.server.stats(false).unwrap()) {
            thread::yield_now();
        }
    }
}
