//! Input: files of shuffles, and their matrices.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("shuffle_toml", bytes));
