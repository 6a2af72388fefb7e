//! Input: terms of a cast, and protocols built by them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("cast_terms", bytes));
