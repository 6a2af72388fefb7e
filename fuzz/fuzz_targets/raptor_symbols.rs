//! Input: symbols of RaptorQ.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("raptor_symbols", bytes));
