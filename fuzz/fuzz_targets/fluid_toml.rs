//! Input: files of the fluid model, capacities, shapes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("fluid_toml", bytes));
