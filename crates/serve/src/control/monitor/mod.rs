//! The live page: what `iofair top` shows, in a browser, with an hour of history.
//!
//! Once a second, a task copies the counters of all groups ([`super::live`]) and keeps their rates in [`History`]. A
//! page that is open gets the history once and then an event each second. All pages get the same bytes. A page that does
//! not take an event in time is cut off; nothing waits for it.
//!
//! The page shows [`GROUPS`] groups at most. It only reads.

mod history;

use std::sync::Mutex;

use hyper::body::Bytes;
use serde_json::json;
use tokio::sync::watch;

use super::live::{Live, Moment};
use super::page::Page;
use super::problem::Result;
use super::response::ApiResponse;
use super::turns::lock;
use history::History;

/// Groups that a page shows, parents before children.
const GROUPS: usize = 256;
/// The page's content type.
pub(super) const HTML: &str = "text/html; charset=utf-8";
/// What the page may do: load its own files and read its own events.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The path of events.
pub(super) const EVENTS: &str = "/events";
/// All paths of the page.
pub(super) const PATHS: [&str; 4] = ["/", "/page.css", "/page.js", EVENTS];

/// A file of the page by its name; the page itself has none.
pub(super) fn file(name: &str) -> Option<ApiResponse> {
    let (kind, text) = match name {
        "" => (HTML, include_str!("page.html")),
        "page.css" => ("text/css; charset=utf-8", include_str!("page.css")),
        "page.js" => ("text/javascript; charset=utf-8", include_str!("page.js")),
        _ => return None,
    };
    let body = Bytes::from_static(text.as_bytes());
    Some(ApiResponse { status: 200, revision: None, kind, allow: None, body })
}

/// What live pages show.
#[derive(Debug)]
pub(super) struct Monitor {
    history: Mutex<History>,
    /// The newest event.
    latest: watch::Sender<Bytes>,
}

impl Default for Monitor {
    fn default() -> Self {
        Self { history: Mutex::default(), latest: watch::Sender::new(Bytes::new()) }
    }
}

impl Monitor {
    /// Whether a page is open.
    pub(super) fn is_watched(&self) -> bool {
        self.latest.receiver_count() > 0
    }
    /// Keeps what was seen, and sends it to the pages that are open.
    pub(super) fn add(&self, moment: &Moment, revision: String) -> Result<()> {
        let groups = moment.groups.iter().take(GROUPS + 1);
        lock(&self.history).add(groups.map(|group| {
            (group.name.as_str(), group.tally.last.rate(), group.tally.broken_seconds)
        }));
        if self.is_watched() {
            let mut live = Live::new(moment, &Page::first(GROUPS))?;
            live.revision = revision;
            let groups = moment.groups.len().saturating_sub(1);
            self.latest.send_replace(event("look", &json!({ "groups": groups, "live": live })));
        }
        Ok(())
    }
    /// Begins to watch: the history as an event, and those that follow.
    pub(super) fn watch(&self) -> (Bytes, watch::Receiver<Bytes>) {
        let latest = self.latest.subscribe();
        (event("history", &*lock(&self.history)), latest)
    }
}

/// An event in the format of `text/event-stream`.
fn event(name: &str, data: &impl serde::Serialize) -> Bytes {
    let data = serde_json::to_string(data).expect("our own structs are JSON");
    format!("event: {name}\ndata: {data}\n\n").into()
}
