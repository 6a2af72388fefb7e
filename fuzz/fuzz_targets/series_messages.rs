//! Input: messages of series of multicasts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("series_messages", bytes));
