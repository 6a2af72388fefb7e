//! What is done with arbitrary bytes as what is found on a disk, to find out whether it is borne; for tests.

/// A journal.
pub fn journal(bytes: &[u8]) {
    crate::journal::fuzz(bytes);
}

/// What a lock file says of its holder, and the name of a directory with the state of a transfer.
pub fn holder(bytes: &[u8]) {
    crate::lock::fuzz(bytes);
    crate::state::fuzz(bytes);
}

/// The files that say how users and groups are called.
pub fn owners(bytes: &[u8]) {
    crate::owners::fuzz(bytes);
}
