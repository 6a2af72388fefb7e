//! Input: packets and messages of a measurement.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("probe_packets", bytes));
