//! Input: lock files, names of state directories.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("store_holder", bytes));
