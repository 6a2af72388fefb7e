//! A packet that is let through has one encoding.
#![no_main]

#[path = "../coding.rs"]
#[allow(dead_code)]
mod coding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coding::packet(bytes));
