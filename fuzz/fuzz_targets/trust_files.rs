//! Input: files of identities, keys, and what was issued.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("trust_files", bytes));
