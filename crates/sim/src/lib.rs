//! Flow-level simulator that drives the real protocols in virtual time.
