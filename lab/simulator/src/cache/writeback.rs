//! When flushers work, and what they send: see [`super::flusher`].

use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

use super::Cache;
use super::flusher::{COLLECTED, EXPIRE, PERIOD};
use crate::engine::{Engine, FileRange};
use crate::sim::Token;

impl Cache {
    /// A flusher looks whether something is to be done. Call after pages became dirty.
    pub(crate) fn write_back(&mut self, file: usize, engine: &mut Engine<'_>) {
        self.flush_domain(self.files[file].setup.domain, engine);
    }
    /// A flusher's periodic look, or the pages of a request are collected.
    pub(crate) fn on_timer(&mut self, Token { actor, slot }: Token, engine: &mut Engine<'_>) {
        let domain = (actor - self.setup.first_actor) as usize;
        if slot == COLLECTED {
            let flusher = &mut self.domains[domain].flusher;
            if let Some(request) = flusher.collecting.take() {
                flusher.send(request, engine);
            }
            return self.flush_domain(domain, engine);
        }
        self.flush_domain(domain, engine);
        engine.wake(engine.now + PERIOD, self.token(domain));
    }
    /// One of a flusher's requests is completed.
    pub(crate) fn on_done(&mut self, actor: u32, length: Sectors, engine: &mut Engine<'_>) {
        let domain = (actor - self.setup.first_actor) as usize;
        let state = &mut self.domains[domain];
        state.throttle.written(length);
        state.flusher.under_way -= 1;
        self.flush_domain(domain, engine);
    }

    /// Sleeping flushers look whether they can go on.
    pub(crate) fn go_on(&mut self, engine: &mut Engine<'_>) {
        for domain in 0..self.domains.len() {
            if core::mem::take(&mut self.domains[domain].flusher.is_asleep) {
                self.flush_domain(domain, engine);
            }
        }
    }

    fn flush_domain(&mut self, index: usize, engine: &mut Engine<'_>) {
        let token = self.token(index);
        let domain = &mut self.domains[index];
        let (throttle, flusher) = (&mut domain.throttle, &mut domain.flusher);
        while flusher.has_thread() && flusher.collecting.is_none() {
            let Some(file) = flusher.queue.front() else { return };
            let file = &mut self.files[*file];
            flusher.is_asleep = flusher.threads.is_none()
                && flusher.sender.is_some_and(|thread| engine.is_asleep(thread));
            if flusher.is_asleep {
                return;
            }
            let expired = file.dirty_since + EXPIRE <= engine.now;
            if !expired && !throttle.is_above_background() {
                return;
            }
            if flusher.chunk_left == Sectors::ZERO {
                flusher.chunk_left = Sectors::from_bytes_ceil(throttle.chunk());
            }
            let run = file.pages.take(self.setup.longest.min(flusher.chunk_left));
            if let Some((offset, length)) = run {
                throttle.sent(length);
                flusher.chunk_left = Sectors(flusher.chunk_left.0.saturating_sub(length.0));
                let range = FileRange {
                    // The process that the bytes are counted for at the drive.
                    token: Token { slot: file.setup.owner, ..token },
                    client: file.setup.client,
                    operation: Operation::Write,
                    flags: file.setup.flags,
                    file: file.setup.file,
                    offset,
                    length,
                    longest: self.setup.longest,
                };
                match flusher.time_to_collect(self.setup.collect_window, length) {
                    Nanos::ZERO => flusher.send(range, engine),
                    time => {
                        flusher.collecting = Some(range);
                        let token = Token { slot: COLLECTED, ..token };
                        engine.wake_after(engine.now + time, time, token);
                    }
                }
            }
            let turn_over = flusher.chunk_left == Sectors::ZERO || file.pages.count() == 0;
            if turn_over {
                flusher.chunk_left = Sectors::ZERO;
                let front = flusher.queue.pop_front().expect("just looked at");
                file.queued = file.pages.count() > 0;
                if file.queued {
                    // Pages that are dirty now are younger than those just written.
                    file.dirty_since = engine.now;
                    flusher.queue.push_back(front);
                }
            }
        }
    }
}
