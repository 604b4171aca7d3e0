//! cargo-fuzz's way into the harness of the same name.

#![no_main]
#[path = "../harness/operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|data: &[u8]| operations::operations(data));
