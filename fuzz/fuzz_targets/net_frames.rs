//! A peer's bytes inside TLS: greeting and frame headers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_net::frame::fuzz(bytes));
