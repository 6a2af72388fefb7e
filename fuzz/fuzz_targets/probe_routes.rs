//! Input: what routers say of packets that came too far.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("probe_routes", bytes));
