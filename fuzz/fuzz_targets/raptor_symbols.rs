//! Whatever symbols come, memory is bounded and no wrong block passes.
#![no_main]

#[path = "../raptor.rs"]
mod raptor;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| raptor::symbols(bytes));
