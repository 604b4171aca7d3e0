//! cargo-fuzz's way into the harness of the same name.

#![no_main]
#[path = "../harness/jobs.rs"]
mod jobs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| jobs::jobs(data));
