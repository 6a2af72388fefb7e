//! Input: packets from TUN devices, lines at the control socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outpour_fuzzing::run("emulation", bytes));
