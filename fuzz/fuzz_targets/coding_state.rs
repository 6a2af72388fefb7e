//! Input: histories of such packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("coding_state", bytes));
