//! What all connections share, and the class of each caller.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Semaphore;

use crate::control::app::App;
use crate::control::audit::Asked;
use crate::control::gate::{Author, Caller, Role};
use crate::control::limits::{self, Class};
use crate::control::rate::Buckets;
use crate::control::slots::{Slot, Slots};

/// Sent to a caller for which no connection is free.
pub(super) const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Retry-After: 1\r\nConnection: close\r\nContent-Length: 100\r\n\r\n\
    {\"error\":{\"kind\":\"busy\",\"message\":\"too many connections\",\"text\":\"too many connections; come again\"}}";

/// What a listener is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    Control,
    Metrics,
}

/// What all connections share.
pub(super) struct Service {
    pub(super) app: Arc<App>,
    /// Connections by [`Class`].
    pub(super) slots: [Arc<Slots>; Class::COUNT],
    pub(super) handshakes: Arc<Slots>,
    /// Live pages that are open.
    pub(super) live_pages: Arc<Slots>,
    /// Threads by [`Class`], for calls that only read, for changes and for removals.
    pub(super) threads: [Arc<Semaphore>; Class::COUNT],
    pub(super) change_threads: [Arc<Semaphore>; Class::COUNT],
    pub(super) removal_threads: [Arc<Semaphore>; Class::COUNT],
    /// The thread that finds the names of users whose changes were refused.
    pub(super) names: Arc<Semaphore>,
    pub(super) changes: Buckets,
    /// Calls that only read.
    pub(super) looks: Buckets,
    pub(super) scrapes: Buckets,
    /// Refusals that are written into the audit log.
    pub(super) refusals: Buckets,
}

/// The result of something for a connection; `None` once its place is given to another one.
pub(super) async fn unless_cut<F: Future>(slot: &Slot, work: F) -> Option<F::Output> {
    let (mut work, mut cut) = (pin!(work), pin!(slot.is_cut()));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => cut.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// The caller of a connection, and the listener that accepted it.
pub(super) struct Visit {
    pub(super) caller: Caller,
    pub(super) scope: Scope,
}

impl Service {
    pub(super) fn new(app: Arc<App>) -> Self {
        let semaphore = |threads| Arc::new(Semaphore::new(threads));
        Self {
            app,
            slots: Class::ALL.map(|class| Slots::new(class.slots(), class.slots_of_one())),
            handshakes: Slots::new(limits::HANDSHAKES, limits::HANDSHAKES_OF_ONE),
            live_pages: Slots::new(limits::LIVE_PAGES, limits::LIVE_PAGES_OF_ONE),
            threads: Class::ALL.map(|class| semaphore(class.threads())),
            change_threads: Class::ALL.map(|class| semaphore(class.change_threads())),
            removal_threads: Class::ALL.map(|class| semaphore(class.removal_threads())),
            names: semaphore(limits::NAMER),
            changes: Buckets::new(limits::CHANGES),
            looks: Buckets::new(limits::LOOKS),
            scrapes: Buckets::new(limits::SCRAPES),
            refusals: Buckets::new(limits::REFUSALS),
        }
    }
    /// The caller's class under the present rules.
    pub(super) fn class(&self, visit: &Visit) -> Class {
        let operates = || self.app.gate().role(&visit.caller) == Some(Role::Operator);
        match (visit.scope, &visit.caller) {
            (Scope::Metrics, Caller::Unix(_)) => Class::MetricsUnix,
            (Scope::Metrics, _) => Class::MetricsTcp,
            (Scope::Control, Caller::Unix(_)) if operates() => Class::UnixOperator,
            (Scope::Control, Caller::Unix(_)) => Class::UnixViewer,
            (Scope::Control, _) if operates() => Class::TlsOperator,
            (Scope::Control, _) => Class::TlsViewer,
        }
    }
    /// Writes a refused change to the audit log. A name that takes long is left out of the lines after it.
    pub(super) fn log_refusal(&self, author: Author, asked: Asked, why: String) {
        let app = self.app.clone();
        let log = move |author: &Author| app.refused(author, asked, &why);
        match self.names.clone().try_acquire_owned() {
            Ok(permit) => drop(tokio::task::spawn_blocking(move || {
                log(&author.named());
                drop(permit);
            })),
            Err(_) => log(&author),
        }
    }
}
