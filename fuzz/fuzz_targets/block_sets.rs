//! Input: sets of blocks as messages carry them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("block_sets", bytes));
