//! Whatever messages come, machines bear them, and one that is let through comes back as it was.
#![no_main]

#[path = "../push.rs"]
mod push;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| push::messages(bytes));
