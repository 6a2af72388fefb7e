//! Input: greetings and headers of frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("net_frames", bytes));
