#![no_main]
#[path = "../harness/operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|data: &[u8]| operations::operations(data));
