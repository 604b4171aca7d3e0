//! Strided buffered reads of one shared file: process i of n reads the blocks i, i + n, i + 2n, ...
//!
//! No process reads sequentially, but all share the page cache, and read-ahead belongs to its pages: the first page of
//! a window that is read ahead is marked, and the process that reaches the mark requests the next window, whichever
//! process it is. So the processes together read the file sequentially, and each window is requested by another one.
//!
//! The rules (Linux since 2.6.31: `mm/readahead.c`, commits 122a21d11cbf, 10be0b372cac and 2cad40180197) when a process
//! reaches a page with some pages of its call left:
//! - the page is neither there nor in flight: at the beginning of the file, or one page behind its last read, a first
//!   window is asked for, a power of two, two or four times the call; where its last window ended, the next one, twice
//!   or four times as large; where more pages than the call lie in the cache just before it, that many and the call;
//!   else the call alone;
//! - the page carries a mark: from the first gap behind it on, twice the distance (four times, if small) and the call.
//!
//! No window is larger than the host's `read_ahead`. Pages that are there are left out. Then it sleeps until the page
//! has come, and goes on.

use std::ops::Range as Pages;

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use super::base::{Base, Range};
use super::read_ahead::ReadAheadSetup;
use crate::cache::Cache;
use crate::cache::pages::COST_WINDOW;
use crate::cache::shared::SharedPages;
use crate::engine::Engine;
use crate::engine::layout::PAGE;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Between calls.
    Ready,
    /// A page of the call has not come yet, or just came.
    Waiting,
    /// All pages are there; they are being copied.
    Copying,
}

/// The window asked for last: its pages, and how many of them are behind the mark.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    start: u64,
    size: u64,
    ahead: u64,
}

/// Pages to be asked for, the one of them that gets a mark, and what the requests carry.
struct Wanted {
    pages: Pages<u64>,
    mark: Option<u64>,
    flags: Flags,
}

/// A process that reads every n-th block of a shared file.
#[derive(Debug)]
pub(crate) struct Together {
    setup: ReadAheadSetup,
    /// The file's place among those that are read together.
    file: usize,
    state: State,
    started: Instant,
    offset: Sectors,
    /// The next page of the call, and the page after its last one.
    page: u64,
    end: u64,
    window: Window,
    /// The last page of the last call.
    previous: Option<u64>,
}

impl Together {
    pub(crate) fn new(setup: ReadAheadSetup, file: usize) -> Self {
        Self {
            setup,
            file,
            state: State::Ready,
            started: Instant::ZERO,
            offset: Sectors::ZERO,
            page: 0,
            end: 0,
            window: Window::default(),
            previous: None,
        }
    }

    pub(crate) fn on_timer(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        match self.state {
            State::Ready => self.begin(base, engine, cache),
            State::Waiting => self.read_pages(base, engine, cache),
            State::Copying => self.finish(base, engine, cache),
        }
    }
    fn begin(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let start = base.pacer.next_start(engine.now);
        if start > engine.now {
            return base.wake(engine, start, 0);
        }
        base.pacer.issue(base.job.block.bytes());
        let last = std::mem::replace(&mut self.offset, base.next_offset());
        if self.offset < last {
            // fio opens the file again and drops what is cached of it.
            cache.shared(self.file).drop_all();
            (self.window, self.previous) = (Window::default(), None);
        }
        self.started = engine.now;
        self.page = self.offset.0 / PAGE;
        self.end = (self.offset + base.job.block).0.div_ceil(PAGE);
        self.read_pages(base, engine, cache);
    }
    /// Reads page after page until one is missing or in flight.
    fn read_pages(&mut self, base: &Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let pages = cache.shared(self.file);
        while self.page < self.end {
            if !pages.contains(self.page) {
                self.miss(base, engine, pages);
            }
            if pages.take_mark(self.page) {
                self.come_to_mark(base, engine, pages);
            }
            if pages.sleep_on(self.page, base.token(0)) {
                self.state = State::Waiting;
                return;
            }
            self.page += 1;
        }
        self.previous = Some(self.end - 1);
        self.state = State::Copying;
        let cost = self.setup.consume_window.0 * base.job.block.bytes() / COST_WINDOW;
        base.wake(engine, engine.now + Nanos(cost), 0);
    }
    fn finish(&mut self, base: &mut Base, engine: &mut Engine<'_>, cache: &mut Cache) {
        let now = engine.now;
        base.tally.count(base.direction, now, base.job.block.bytes(), now.since(self.started));
        self.state = State::Ready;
        match base.job.think {
            Nanos::ZERO => self.begin(base, engine, cache),
            think => base.wake(engine, now + think, 0),
        }
    }

    fn longest(&self) -> u64 {
        (self.setup.window.0 / PAGE).max(1)
    }
    fn larger(&self, size: u64) -> u64 {
        let most = self.longest();
        (if size < most / 16 { 4 * size } else { 2 * size }).min(most)
    }
    fn first(&self, left: u64) -> u64 {
        let (most, size) = (self.longest(), left.next_power_of_two());
        match size {
            _ if size <= most / 32 => 4 * size,
            _ if size <= most / 4 => 2 * size,
            _ => most,
        }
    }
    /// A page is neither there nor in flight.
    fn miss(&mut self, base: &Base, engine: &mut Engine<'_>, pages: &mut SharedPages) {
        let (page, left, most) = (self.page, self.end - self.page, self.longest());
        let Window { start, size, ahead } = self.window;
        let follows = self.previous.is_some_and(|last| page == last || page == last + 1);
        let history = pages.before(page).min(most);
        if page > 0 && size > 0 && (page == start + size || page == start + size - ahead) {
            let size = self.larger(size);
            self.window = Window { start: start + self.window.size, size, ahead: size };
        } else if page == 0 || left > most || follows {
            let size = self.first(left);
            let ahead = if size > left { size - left } else { size };
            self.window = Window { start: page, size, ahead };
        } else if history > left {
            let whole = if history >= page { 2 * history } else { history };
            self.window = Window { start: page, size: (whole + left).min(most), ahead: 1 };
        } else {
            let call = Wanted { pages: page..page + left, mark: None, flags: Flags::NONE };
            return self.read(base, engine, pages, call);
        }
        self.ask_window(base, engine, pages, Flags::NONE);
    }
    fn come_to_mark(&mut self, base: &Base, engine: &mut Engine<'_>, pages: &mut SharedPages) {
        let (page, left, most) = (self.page, self.end - self.page, self.longest());
        let Window { start, size, ahead } = self.window;
        if page > 0 && size > 0 && (page == start + size || page == start + size - ahead) {
            let larger = self.larger(size);
            self.window = Window { start: start + size, size: larger, ahead: larger };
        } else {
            let gap = pages.gap_from(page);
            if gap - page > most {
                return;
            }
            let size = self.larger(gap - page + left);
            self.window = Window { start: gap, size, ahead: size };
        }
        self.ask_window(base, engine, pages, Flags::READ_AHEAD);
    }
    fn ask_window(
        &mut self,
        base: &Base,
        engine: &mut Engine<'_>,
        pages: &mut SharedPages,
        flags: Flags,
    ) {
        // The process would reach a mark on this page at once, so the window after it joins this one.
        let most = self.longest();
        if self.page == self.window.start && self.window.size == self.window.ahead {
            let more = self.larger(self.window.size);
            (self.window.ahead, self.window.size) = match self.window.size + more <= most {
                true => (more, self.window.size + more),
                false => (most / 2, most),
            };
        }
        let Window { start, size, ahead } = self.window;
        let mark = Some(start + size - ahead);
        self.read(base, engine, pages, Wanted { pages: start..start + size, mark, flags });
    }
    /// Asks for what is missing of some pages.
    fn read(&self, base: &Base, engine: &mut Engine<'_>, pages: &mut SharedPages, wanted: Wanted) {
        let file_end = base.file_size.0.div_ceil(PAGE);
        let Wanted { pages: Pages { start, end }, mark, flags } = wanted;
        let wanted = start.min(file_end)..end.min(file_end);
        while let Some(missing) = pages.missing(&wanted) {
            let number = pages.register_read(missing.clone(), mark);
            let offset = Sectors(missing.start * PAGE);
            let length = Sectors(missing.end * PAGE).min(base.file_size) - offset;
            let (operation, flags) = (Operation::Read, base.flags().with(flags));
            let range = Range { slot: number, operation, flags, offset, length };
            pages.set_requests(number, base.send(engine, range, self.setup.longest));
        }
    }

    pub(crate) fn on_done(&mut self, engine: &mut Engine<'_>, cache: &mut Cache, number: u32) {
        let now = engine.now;
        cache.shared(self.file).completed(number, |token| engine.wake(now, token));
    }
}
