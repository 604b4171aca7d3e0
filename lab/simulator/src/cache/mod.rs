//! The page cache. Dirty pages: the files that have them, the pauses of writers, and writeback. Clean pages only where
//! they matter: in files that several processes read ([`shared`]), and for clients whose reads may hit the cache
//! ([`resident`]).
//!
//! A *domain* is a set of dirty files with one flusher and limits of its own: all files of the host when
//! it has one flusher, those of one group when writers start their writeback themselves
//! ([`crate::scenario::Writeback`]). A file determines the client that writeback of its pages is charged to.

mod dirty;
mod flusher;
pub(crate) mod pages;
pub(crate) mod resident;
pub(crate) mod shared;
mod writeback;

use iofair_core::id::ClientId;
use iofair_core::request::Flags;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use crate::engine::Engine;
use crate::sim::Token;
use dirty::Throttle;
pub(crate) use flusher::{Flusher, PERIOD};
use pages::DirtyPages;
use resident::Resident;
use shared::SharedPages;

/// Setup of a page cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheSetup {
    /// Longest request of the flusher.
    pub(crate) longest: Sectors,
    /// Time that a flusher of the host takes to collect 256 KiB of pages.
    pub(crate) collect_window: Nanos,
    /// Actor number of the first flusher.
    pub(crate) first_actor: u32,
    /// Pages that memory holds.
    pub(crate) pages: u64,
}

/// Setup of a domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DomainSetup {
    /// Bytes that may be dirty before the flusher starts.
    pub(crate) background: u64,
    /// Bytes that may be dirty before writers wait.
    pub(crate) limit: u64,
    /// Most requests in flight of a flusher with many threads; a flusher with one thread sleeps when there is no free
    /// tag.
    pub(crate) threads: Option<u32>,
}

/// A buffered writer's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSetup {
    /// Its place among the files of the drive.
    pub(crate) file: usize,
    /// The process that writes it.
    pub(crate) owner: u32,
    pub(crate) size: Sectors,
    pub(crate) domain: usize,
    /// The client that its writeback is charged to.
    pub(crate) client: ClientId,
    /// Flags of its requests.
    pub(crate) flags: Flags,
}

/// One buffered writer's file.
#[derive(Debug)]
struct CachedFile {
    setup: FileSetup,
    pages: DirtyPages,
    /// When it became dirty.
    dirty_since: Instant,
    /// Whether it is in its flusher's queue.
    queued: bool,
}

#[derive(Debug)]
struct Domain {
    throttle: Throttle,
    flusher: Flusher,
}

/// The page cache.
#[derive(Debug)]
pub(crate) struct Cache {
    setup: CacheSetup,
    files: Vec<CachedFile>,
    domains: Vec<Domain>,
    shared: Vec<SharedPages>,
    /// Clean pages, for clients whose reads may hit the cache.
    pub(crate) resident: Resident,
}

impl Cache {
    /// A cache with one flusher a domain; there may be none.
    pub(crate) fn new(setup: CacheSetup, domains: &[DomainSetup]) -> Self {
        let domain = |domain: &DomainSetup| Domain {
            throttle: Throttle::new(domain.background, domain.limit),
            flusher: Flusher::new(domain.threads),
        };
        let domains = domains.iter().map(domain).collect();
        let resident = Resident::new(setup.pages);
        Self { setup, files: Vec::new(), domains, shared: Vec::new(), resident }
    }
    /// A writer's file; its number here.
    pub(crate) fn add_file(&mut self, setup: FileSetup) -> usize {
        let pages = DirtyPages::new(setup.size);
        self.files.push(CachedFile { setup, pages, dirty_since: Instant::MAX, queued: false });
        self.files.len() - 1
    }
    /// A file that several processes read; its number among those.
    pub(crate) fn add_shared(&mut self) -> usize {
        self.shared.push(SharedPages::default());
        self.shared.len() - 1
    }
    /// A file that several processes read.
    pub(crate) fn shared(&mut self, file: usize) -> &mut SharedPages {
        &mut self.shared[file]
    }
    /// The first timer of every flusher.
    pub(crate) fn start(&self, engine: &mut Engine<'_>) {
        for domain in 0..self.domains.len() {
            engine.wake(Instant::ZERO + PERIOD, self.token(domain));
        }
    }
    fn token(&self, domain: usize) -> Token {
        Token { actor: self.setup.first_actor + domain as u32, slot: flusher::LOOK }
    }
    /// Whether this actor is one of the flushers.
    pub(crate) fn is_flusher(&self, actor: u32) -> bool {
        let first = self.setup.first_actor;
        (first..first + self.domains.len() as u32).contains(&actor)
    }
    fn throttle(&self, file: usize) -> &Throttle {
        &self.domains[self.files[file].setup.domain].throttle
    }
    fn throttle_mut(&mut self, file: usize) -> &mut Throttle {
        &mut self.domains[self.files[file].setup.domain].throttle
    }

    /// Bytes that a writer copies between two checks of the limits.
    pub(crate) fn stride(&self, file: usize) -> u64 {
        self.throttle(file).stride()
    }
    /// Whether this many bytes may become dirty within the limit.
    pub(crate) fn has_room(&self, file: usize, bytes: u64) -> bool {
        self.throttle(file).has_room(bytes)
    }
    /// A range of a file becomes dirty.
    pub(crate) fn dirty(&mut self, file: usize, offset: Sectors, length: Sectors, now: Instant) {
        let cached = &mut self.files[file];
        if cached.pages.count() == 0 {
            cached.dirty_since = now;
        }
        let new = cached.pages.mark(offset, length);
        let domain = &mut self.domains[cached.setup.domain];
        domain.throttle.dirtied(new);
        if !cached.queued {
            cached.queued = true;
            domain.flusher.queue.push_back(file);
        }
    }
    /// How long a writer that just copied `bytes` must pause.
    pub(crate) fn balance(&mut self, file: usize, bytes: u64, now: Instant) -> Nanos {
        self.throttle_mut(file).balance(bytes, now)
    }
    /// Takes the file's next dirty run for a write that its owner waits for.
    pub(crate) fn take_dirty(
        &mut self,
        file: usize,
        longest: Sectors,
    ) -> Option<(Sectors, Sectors)> {
        let run = self.files[file].pages.take(longest)?;
        self.throttle_mut(file).sent(run.1);
        Some(run)
    }
    /// A run taken with [`Self::take_dirty`] was written.
    pub(crate) fn written(&mut self, file: usize, length: Sectors) {
        self.throttle_mut(file).written(length);
    }
    /// Bytes dirty or being written.
    #[cfg(test)]
    pub(crate) fn load(&self) -> u64 {
        self.domains.iter().map(|domain| domain.throttle.load()).sum()
    }
}
