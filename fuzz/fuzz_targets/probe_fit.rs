//! Input: what was measured, made into a network.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("probe_fit", bytes));
