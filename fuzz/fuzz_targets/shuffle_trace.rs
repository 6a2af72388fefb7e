//! Input: traces of the coflow benchmark.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("shuffle_trace", bytes));
