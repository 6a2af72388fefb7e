//! Input: journals of interrupted transfers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("store_journal", bytes));
