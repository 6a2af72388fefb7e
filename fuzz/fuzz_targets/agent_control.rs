//! Input: frames of a control channel: greeting, admission, orders, reports, manifest offers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("agent_control", bytes));
