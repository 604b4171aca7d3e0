//! Connections with slow callers, in paused time.

use std::sync::Weak;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

/// A body whose release a test can see.
struct Body(Arc<Vec<u8>>);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn body() -> (Bytes, Weak<Vec<u8>>) {
    let bytes = Arc::new(vec![b'x'; 1 << 20]);
    let seen = Arc::downgrade(&bytes);
    (Bytes::from_owner(Body(bytes)), seen)
}

/// Goal: a caller that does not read its response is cut off in the end, and the response is freed. Method: a caller
/// that reads the head of a megabyte and nothing more, one that reads a byte a second, and one that reads everything; the
/// runtime's time is paused.
#[test]
fn slow_readers_are_cut_off() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        for (chunk, waits) in [(0, true), (1, true), (1 << 20, false)] {
            let (mut caller, server) = duplex(4096);
            let (bytes, kept) = body();
            let respond = move |_: Request<Incoming>| {
                let response = Response::new(Either::Left(Full::new(bytes.clone())));
                async move { response }
            };
            // Time of the runtime, which is paused: it advances only while all tasks wait.
            let begun = sleep(Duration::ZERO).deadline();
            let reader = async move {
                let head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
                caller.write_all(head).await.unwrap();
                caller.read_exact(&mut [0; 100]).await.unwrap();
                let mut taken = vec![0; chunk];
                loop {
                    if chunk < 2 {
                        sleep(Duration::from_secs(1)).await;
                    }
                    if chunk > 0 && caller.read(&mut taken).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
            };
            let reading = tokio::spawn(reader);
            one_call(server, respond).await;
            let took = begun.elapsed();
            assert_eq!(took >= limits::RESPONSE, waits, "{chunk} bytes at once: {took:?}");
            assert!(took <= limits::RESPONSE + Duration::from_secs(1), "{took:?}");
            assert!(kept.upgrade().is_none(), "its body is freed");
            reading.abort();
        }
    });
}

/// Goal: a live page that does not take its events is cut off, and its place is free again; one that takes them stays.
/// Method: an event a second; a caller that reads nothing after the head, and one that reads; the runtime's time is paused.
#[test]
fn pages_that_do_not_read_are_cut_off() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        for reads in [false, true] {
            let (mut caller, server) = duplex(4096);
            let latest = tokio::sync::watch::Sender::new(Bytes::new());
            let (slot, place) = (Arc::new(()), latest.subscribe());
            let held = Arc::downgrade(&slot);
            let events = Events::new(Bytes::from_static(b"event: first\n\n"), place, slot);
            let events = std::sync::Mutex::new(Some(events));
            let respond = move |_: Request<Incoming>| {
                let response = events::response(events.lock().unwrap().take().unwrap());
                async move { response.map(Either::Right) }
            };
            let sending = tokio::spawn(async move {
                loop {
                    sleep(Duration::from_secs(1)).await;
                    latest.send_replace(vec![b'x'; 64 << 10].into());
                }
            });
            let begun = sleep(Duration::ZERO).deadline();
            let reader = async move {
                let head = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
                caller.write_all(head).await.unwrap();
                let mut taken = vec![0; 1 << 20];
                // Ten minutes of events, then it goes.
                let until = sleep(Duration::ZERO).deadline() + Duration::from_secs(600);
                while sleep(Duration::ZERO).deadline() < until {
                    match reads {
                        true => assert!(caller.read(&mut taken).await.unwrap() > 0),
                        false => sleep(Duration::from_secs(1)).await,
                    }
                }
            };
            let reading = tokio::spawn(reader);
            one_call(server, respond).await;
            let took = begun.elapsed();
            let limit = limits::EVENT + limits::RESPONSE + Duration::from_secs(10);
            assert_eq!(took > limit, reads, "{took:?}");
            sleep(limits::EVENT + Duration::from_secs(2)).await;
            assert!(held.upgrade().is_none(), "its place is free");
            reading.abort();
            sending.abort();
        }
    });
}

/// Goal: the caller of a change that storage holds up hears of it; other calls wait. Method: calls that end after ten minutes of the
/// runtime's time, which is paused.
#[test]
fn changes_that_hang_are_told() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        for (is_change, status) in [(true, 503), (false, 200)] {
            let called = tokio::spawn(async {
                sleep(Duration::from_secs(600)).await;
                ApiResponse::json(200, None, &())
            });
            let found = outcome(called, is_change).await;
            assert_eq!(found.map_or_else(|problem| problem.status, |found| found.status), status);
        }
    });
}
