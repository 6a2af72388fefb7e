//! Whatever packets come, ranks agree and what is decoded is right.
#![no_main]

#[path = "../coding.rs"]
#[allow(dead_code)]
mod coding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coding::state(bytes));
