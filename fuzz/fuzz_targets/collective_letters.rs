//! Input: letters at a rendezvous, notes between members.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("collective_letters", bytes));
