//! cargo-fuzz's way into the harness of the same name.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| iofair_harness::operations(data));
