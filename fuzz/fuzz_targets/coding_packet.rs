//! Input: packets of random linear codes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("coding_packet", bytes));
