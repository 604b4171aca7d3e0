//! The page cache's dirty half: who made what dirty, when writers must pause, and who writes it back.
//!
//! A *domain* is a set of dirty files with one flusher: all files when the flusher writes in its own
//! name, one a group of writers when it writes in theirs ([`crate::scenario::Writeback`]). Dirty limits
//! are shared between domains in equal parts.

mod dirty;
mod flusher;
pub(crate) mod pages;

use iofair_core::group::ClientId;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use crate::sim::Token;
use crate::world::engine::Engine;
use dirty::Throttle;
pub(crate) use flusher::{Flusher, PERIOD};
use pages::DirtyPages;

/// What a page cache is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheSetup {
    /// Bytes that may be dirty before the flusher starts.
    pub(crate) background: u64,
    /// Bytes that may be dirty before writers wait.
    pub(crate) limit: u64,
    /// Longest request of the flusher.
    pub(crate) longest: Sectors,
    /// Requests that a flusher has under way at most: it sleeps where it finds no tag.
    pub(crate) depth: u32,
    /// Actor number of the first flusher.
    pub(crate) first_actor: u32,
}

/// One buffered writer's file.
#[derive(Debug)]
struct CachedFile {
    /// Its place among the files of the drive.
    file: usize,
    domain: usize,
    pages: DirtyPages,
    /// When it became dirty.
    dirty_since: Instant,
    /// Is it in its flusher's queue?
    queued: bool,
}

#[derive(Debug)]
struct Domain {
    throttle: Throttle,
    flusher: Flusher,
}

/// The dirty half of the page cache.
#[derive(Debug)]
pub(crate) struct Cache {
    setup: CacheSetup,
    files: Vec<CachedFile>,
    domains: Vec<Domain>,
}

impl Cache {
    /// A cache with one flusher for each of `flushers`, which may be none.
    pub(crate) fn new(setup: CacheSetup, flushers: &[ClientId]) -> Self {
        let share = flushers.len().max(1) as u64;
        let domain = |client: &ClientId| Domain {
            throttle: Throttle::new(setup.background / share, setup.limit / share),
            flusher: Flusher::new(*client),
        };
        Self { setup, files: Vec::new(), domains: flushers.iter().map(domain).collect() }
    }
    /// A writer's file, `file` among the drive's files; its number here.
    pub(crate) fn add_file(&mut self, file: usize, size: Sectors, domain: usize) -> usize {
        let pages = DirtyPages::new(size);
        let dirty_since = Instant::MAX;
        self.files.push(CachedFile { file, domain, pages, dirty_since, queued: false });
        self.files.len() - 1
    }
    /// The first timer of every flusher.
    pub(crate) fn start(&self, engine: &mut Engine<'_>) {
        for domain in 0..self.domains.len() {
            engine.wake(Instant::ZERO + PERIOD, self.token(domain));
        }
    }
    fn token(&self, domain: usize) -> Token {
        Token { actor: self.setup.first_actor + domain as u32, slot: 0 }
    }
    fn throttle(&self, file: usize) -> &Throttle {
        &self.domains[self.files[file].domain].throttle
    }
    fn throttle_mut(&mut self, file: usize) -> &mut Throttle {
        &mut self.domains[self.files[file].domain].throttle
    }

    /// Bytes that a writer copies between two looks at the limits.
    pub(crate) fn stride(&self, file: usize) -> u64 {
        self.throttle(file).stride()
    }
    /// May so many bytes become dirty without passing the limit?
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
        let domain = &mut self.domains[cached.domain];
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
    /// Bytes dirty or on their way out.
    #[cfg(test)]
    pub(crate) fn load(&self) -> u64 {
        self.domains.iter().map(|domain| domain.throttle.load()).sum()
    }
}
