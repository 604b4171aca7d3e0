//! cargo-fuzz's way into the harness of the same name.

#![no_main]
#[path = "../harness/nbd.rs"]
mod nbd;

libfuzzer_sys::fuzz_target!(|data: &[u8]| nbd::handshake(data));
