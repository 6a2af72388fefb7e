//! Input: messages of parallel push.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("push_messages", bytes));
