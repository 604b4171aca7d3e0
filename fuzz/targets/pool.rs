//! cargo-fuzz's way into the harness of the same name.

#![no_main]
#[path = "../harness/pool.rs"]
mod pool;

libfuzzer_sys::fuzz_target!(|data: &[u8]| pool::pool(data));
