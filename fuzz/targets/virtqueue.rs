//! cargo-fuzz's way to a driver of a virtqueue that may do anything.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iofair_serve::hostile_driver(data));
