//! Input: TLS records of a peer that has the keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("net_records", bytes));
