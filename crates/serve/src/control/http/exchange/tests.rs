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
                let response = Response::new(Full::new(bytes.clone()));
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
