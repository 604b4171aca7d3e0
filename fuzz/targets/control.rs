//! cargo-fuzz's way into the harness of the same name.

#![no_main]
#[path = "../harness/control.rs"]
mod control;

libfuzzer_sys::fuzz_target!(|data: &[u8]| control::control(data));
