//! Input: distributions of sizes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("sizes_cdf", bytes));
