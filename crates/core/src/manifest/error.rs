//! Why a manifest is refused.

use super::attributes::BadAttributes;
use super::path::{BadName, BadTarget};

/// Why an object cannot be described, or what claims to be a manifest is refused.
///
/// Paths are escaped for display: they may come from a stranger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The bytes do not begin as a manifest does.
    #[error("not a manifest: it does not begin with the manifest signature")]
    Signature,
    /// A manifest of a format this program does not know.
    #[error("manifest format {found}; this program reads format {expected}")]
    Version {
        /// The format of the manifest.
        found: u8,
        /// The format this program reads.
        expected: u8,
    },
    /// The manifest is larger than any that is accepted.
    #[error("a manifest of {bytes} bytes; at most {max} are accepted")]
    TooLong {
        /// The length of the manifest.
        bytes: usize,
        /// The longest one accepted.
        max: usize,
    },
    /// The bytes break off or make no sense.
    #[error("malformed manifest: {what}")]
    Malformed {
        /// What does not make sense.
        what: &'static str,
    },
    /// A block size out of bounds or not a power of two.
    #[error("block size {bytes}: it must be a power of two from {min} to {max} bytes")]
    BlockBytes {
        /// The block size, as far as it can be told.
        bytes: u64,
        /// The smallest block size.
        min: u32,
        /// The largest block size.
        max: u32,
    },
    /// A name that must not be written on any file system.
    #[error("\"{path}\": {problem}")]
    Name {
        /// The path with the bad name at its end.
        path: String,
        /// What is wrong with the name.
        problem: BadName,
    },
    /// Two entries have one path (as two files, or as a file and a directory).
    #[error("\"{path}\" occurs twice")]
    Duplicate {
        /// The path.
        path: String,
    },
    /// The entries of a directory are not in the order of their names.
    #[error("\"{path}\" is out of order")]
    Order {
        /// The path.
        path: String,
    },
    /// Permission bits that are never carried over (setuid, setgid, sticky, or no mode at all).
    #[error("\"{path}\": mode {mode:o} has bits outside 0777")]
    Mode {
        /// The path.
        path: String,
        /// The mode.
        mode: u16,
    },
    /// A symlink that must not be made.
    #[error("\"{path}\" is a symlink to \"{target}\": {problem}")]
    Symlink {
        /// The path of the link.
        path: String,
        /// Where it points, escaped.
        target: String,
        /// What is wrong with that.
        problem: BadTarget,
    },
    /// A hard link that leads to no earlier file, or has another time than its file.
    #[error("\"{path}\" is a hard link to no earlier file of its time")]
    Link {
        /// The path of the link.
        path: String,
    },
    /// Attributes that an entry cannot have, or that must not be set.
    #[error("\"{path}\": {problem}")]
    Attributes {
        /// The path of the entry.
        path: String,
        /// What is wrong with them.
        problem: BadAttributes,
    },
    /// A file larger than a file system can hold, or sizes that overflow in sum.
    #[error("\"{path}\": {bytes} bytes are too many")]
    Size {
        /// The path of the file.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// More blocks than an object may have.
    #[error("more than {max} blocks of {block_bytes} bytes; choose larger blocks")]
    TooManyBlocks {
        /// How many blocks an object may have.
        max: u32,
        /// The block size.
        block_bytes: u32,
    },
    /// More entries or longer names in sum than a manifest may have.
    #[error("too many entries: at most {max} fit in a manifest")]
    TooManyEntries {
        /// How many entries a manifest may have.
        max: u32,
    },
    /// The hashes do not match the files in number.
    #[error("{found} bytes of hashes where the files need {expected}")]
    HashCount {
        /// Bytes needed.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// A file object is one file and nothing else.
    #[error("a file object that does not consist of exactly one file")]
    NotOneFile,
}
