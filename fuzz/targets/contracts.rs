//! cargo-fuzz's way into the harness of the same name.

#![no_main]
#[path = "../harness/contracts.rs"]
mod contracts;

libfuzzer_sys::fuzz_target!(|data: &[u8]| contracts::contracts(data));
