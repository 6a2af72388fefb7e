//! Input: files of jobs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("jobs_toml", bytes));
