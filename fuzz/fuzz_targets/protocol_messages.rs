//! Input: messages of every protocol, from a member of a cast that lies.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("protocol_messages", bytes));
