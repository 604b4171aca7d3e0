//! cargo-fuzz's way into the harness of the same name.

#![no_main]
#[path = "../harness/trace.rs"]
mod trace;

libfuzzer_sys::fuzz_target!(|data: &[u8]| trace::trace(data));
