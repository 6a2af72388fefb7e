//! Input: access control lists as file systems have them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("access_lists", bytes));
