//! Input: files of generated shuffles.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("shuffle_jobs", bytes));
