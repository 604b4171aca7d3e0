#![no_main]
#[path = "../harness/nbd.rs"]
mod nbd;

libfuzzer_sys::fuzz_target!(|data: &[u8]| nbd::handshake(data));
