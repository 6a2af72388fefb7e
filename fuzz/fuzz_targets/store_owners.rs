//! Input: files of users and groups.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("store_owners", bytes));
