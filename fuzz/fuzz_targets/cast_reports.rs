//! Input: what agents report to the coordinator.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("cast_reports", bytes));
