//! Input: certificates, requests for them, lists of revoked ones, grants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("trust_certificates", bytes));
