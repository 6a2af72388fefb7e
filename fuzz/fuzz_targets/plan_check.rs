//! Input: plans as they travel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("plan_check", bytes));
