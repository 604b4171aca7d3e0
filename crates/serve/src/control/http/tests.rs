//! A connection whose caller is slow, in a time of its own.

use std::sync::Weak;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

/// A body, and who sees when it is gone.
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

/// Goal: whoever does not take a response is cut off in the end, and what was kept for him is gone. Method: a caller that
/// takes the head of a megabyte and nothing more, one that takes a byte a second, and one that takes it all; the time
/// is that of the test.
#[test]
fn slow_readers_are_cut_off() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        for (chunk, waits) in [(0, true), (1, true), (1 << 20, false)] {
            let (mut caller, server) = duplex(4096);
            let (bytes, kept) = body();
            let answer = move |_: Request<Incoming>| {
                let response = Response::new(Full::new(bytes.clone()));
                async move { response }
            };
            // Time of the runtime, which is paused and so does not pass by itself.
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
            one_call(server, answer).await;
            let took = begun.elapsed();
            assert_eq!(took >= limits::RESPONSE, waits, "{chunk} bytes at once: {took:?}");
            assert!(took <= limits::RESPONSE + Duration::from_secs(1), "{took:?}");
            assert!(kept.upgrade().is_none(), "its body is gone");
            reading.abort();
        }
    });
}
