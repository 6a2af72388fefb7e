//! Input: what a member says to a running endpoint inside TLS.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("net_endpoint", bytes));
