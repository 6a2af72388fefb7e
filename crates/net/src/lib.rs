//! Data plane: TCP, TLS 1.3, frames, rate limits.
