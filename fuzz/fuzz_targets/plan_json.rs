//! Input: plans as the planner prints them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("plan_json", bytes));
