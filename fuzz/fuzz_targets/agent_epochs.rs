//! Input: the file of the highest epochs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("agent_epochs", bytes));
