//! Work that is shared out to threads. The number of threads changes no byte of what comes back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The results of `work` on all items, in their order. A failure stops what has not begun.
///
/// # Errors
///
/// That of the first item that failed.
pub fn parallel<I: Sync, T: Send, E: Send>(
    jobs: usize,
    items: &[I],
    work: &(dyn Fn(&I) -> Result<T, E> + Sync),
) -> Result<Vec<T>, E> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return };
            let result = work(item);
            if result.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            done.lock().expect("no thread panics with it").push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(run);
        }
        run();
    });
    let mut done = done.into_inner().expect("no thread panics with it");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
