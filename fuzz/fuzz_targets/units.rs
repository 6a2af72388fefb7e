//! Input: sizes, rates, times, queue lengths, priorities.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("units", bytes));
