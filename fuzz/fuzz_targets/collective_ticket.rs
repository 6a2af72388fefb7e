//! Input: tickets of groups.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("collective_ticket", bytes));
