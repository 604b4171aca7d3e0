//! Events of one live page.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Response;
use hyper::body::{Body, Bytes, Frame};
use hyper::header::{self, HeaderValue};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::limits;

/// A response body with one event after the other. It holds at most one event that was not sent yet.
#[derive(Debug)]
pub(super) struct Events {
    ready: mpsc::Receiver<Bytes>,
    ended: Arc<Notify>,
}

impl Events {
    /// The first event, and the newest one whenever there is another. `slot` is dropped when no more of them are sent.
    pub(super) fn new(
        first: Bytes,
        mut latest: watch::Receiver<Bytes>,
        slot: impl Send + 'static,
    ) -> Self {
        let ended = Arc::new(Notify::new());
        let (sender, ready) = mpsc::channel(1);
        let notify = ended.clone();
        let feed = async move {
            let mut next = first;
            let all = async {
                while let Ok(Ok(())) = timeout(limits::EVENT, sender.send(next)).await {
                    // The monitor is gone when the server ends.
                    if latest.changed().await.is_err() {
                        break;
                    }
                    next = latest.borrow_and_update().clone();
                }
            };
            // A page that has been open for long connects again.
            let _ = timeout(limits::EVENTS, all).await;
            drop((slot, sender));
            notify.notify_one();
        };
        drop(tokio::spawn(feed));
        Self { ready, ended }
    }
    /// Notifies when no more events come; what was not read by then need not be waited for.
    pub(super) fn notify_at_end(&self, other: Arc<Notify>) {
        let ended = self.ended.clone();
        drop(tokio::spawn(async move {
            ended.notified().await;
            other.notify_one();
        }));
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.ready.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// Its response.
pub(super) fn response(events: Events) -> Response<Events> {
    let mut response = Response::new(events);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
