//! Input: files of earlier measurements.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("probe_history", bytes));
