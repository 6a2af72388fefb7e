//! Input: descriptions of networks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("network_toml", bytes));
