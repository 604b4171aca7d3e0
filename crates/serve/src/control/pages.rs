//! Pages of metrics, rendered once for many readers.
//!
//! A page for ten thousand groups has several megabytes, and stays in memory until its slowest reader has received
//! it. Pages are therefore shared: a caller gets a page that another caller requested within the last second, but
//! never the same page twice. The number of pages is bounded: when slow readers hold as many as allowed, further
//! callers get the newest of them, although it is older.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hyper::body::Bytes;
use iofair_core::time::{Instant, Nanos};

use super::gate::Key;

/// How long a page is given to callers that did not have it.
const FRESH: Nanos = Nanos::from_secs(1);
/// Pages of one detail that are in memory at once.
pub(super) const PAGES_MAX: usize = 4;

/// A page's bytes; they go with its last reader.
#[derive(Debug)]
struct Rendered(Vec<u8>);

/// What a connection holds of it.
struct Reading(Arc<Rendered>);

impl AsRef<[u8]> for Reading {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

#[derive(Debug)]
struct Newest {
    page: Arc<Rendered>,
    begun: Instant,
    /// Callers that had it.
    had: BTreeSet<Key>,
}

/// The pages of one detail.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    newest: Option<Newest>,
    /// Older ones that somebody still reads.
    others: Vec<Weak<Rendered>>,
}

impl Pages {
    /// The page for a caller. A caller that comes while one is rendered waits for it.
    pub(super) fn get<E>(
        &self,
        now: impl Fn() -> Instant,
        caller: Option<&Key>,
        render: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Bytes, E> {
        let mut state = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        state.others.retain(|page| page.strong_count() > 0);
        let begun = now();
        let State { newest, others } = &mut *state;
        if let Some(newest) = newest {
            let is_fresh = begun < newest.begun + FRESH;
            let is_new = is_fresh && caller.is_some_and(|caller| newest.had.insert(caller.clone()));
            let is_held = Arc::strong_count(&newest.page) > 1;
            if is_new || (is_held && others.len() + 1 >= PAGES_MAX) {
                return Ok(Bytes::from_owner(Reading(newest.page.clone())));
            }
        }
        if let Some(old) = newest.take() {
            others.push(Arc::downgrade(&old.page));
        }
        let page = Arc::new(Rendered(render()?));
        let had = caller.into_iter().cloned().collect();
        *newest = Some(Newest { page: page.clone(), begun, had });
        Ok(Bytes::from_owner(Reading(page)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        pages: Pages,
        now: Instant,
        rendered: u32,
    }

    impl Scene {
        fn get(&mut self, user: u32) -> Bytes {
            let Self { pages, now, rendered } = self;
            let render = || -> Result<Vec<u8>, ()> {
                *rendered += 1;
                Ok(rendered.to_string().into_bytes())
            };
            pages.get(|| *now, Some(&Key::User(user)), render).unwrap()
        }
    }

    fn scene() -> Scene {
        Scene { pages: Pages::default(), now: Instant::ZERO, rendered: 0 }
    }

    /// Goal: callers share a page, and none gets an old one. Method: two callers, the same one twice, and one after a
    /// second.
    #[test]
    fn concurrent_callers_share_a_page() {
        let mut scene = scene();
        let first = scene.get(1);
        assert_eq!((scene.get(2), scene.rendered), (first, 1), "another caller gets the same");
        assert_eq!(scene.get(1), "2", "and the same caller another one");
        scene.now += FRESH;
        assert_eq!(scene.get(2), "3", "a second is too old");
    }

    /// Goal: the number of pages in memory is bounded, however many slow readers there are, and they go with their
    /// readers. Method: a hundred readers that keep what they got; the pages among it.
    #[test]
    fn slow_readers_hold_few_pages() {
        let mut scene = scene();
        let held: Vec<Bytes> = (0..100)
            .map(|_| {
                scene.now += FRESH;
                scene.get(1)
            })
            .collect();
        let different: BTreeSet<&Bytes> = held.iter().collect();
        assert_eq!((different.len(), scene.rendered), (PAGES_MAX, PAGES_MAX as u32));
        assert_eq!(scene.get(2), "4");
        drop(held);
        assert_eq!(scene.get(2), "5", "nobody holds one");
        let state = scene.pages.pages.lock().unwrap();
        assert_eq!(state.others.iter().filter(|page| page.strong_count() > 0).count(), 0);
    }

    /// Goal: a page that could not be rendered is not shared. Method: one that fails, then one that does not.
    #[test]
    fn a_failure_is_not_kept() {
        let pages = Pages::default();
        let key = Key::User(1);
        assert_eq!(pages.get(|| Instant::ZERO, Some(&key), || Err("no")), Err("no"));
        let page = pages.get(|| Instant::ZERO, Some(&key), || Ok::<_, ()>(b"page".to_vec()));
        assert_eq!(page.unwrap(), "page");
    }
}
