//! Input: tables of links between sites.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("topology_csv", bytes));
