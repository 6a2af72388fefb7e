//! Benchmarks of Outpour.
