//! What can go wrong with files, in words that name the file.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use outpour_core::manifest::{ManifestError, ObjectId, STATE_DIR, escape};
use outpour_core::{BlockId, Bytes};
use rustix::io::Errno;

use crate::lock::Holder;

/// Why files could not be read, written or put in place.
///
/// Messages escape what is not printable in a path: its names may come from a stranger.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system or a quota is full.
    #[error("{}: the disk is full{}; make room there", shown(path), more(*lacks))]
    DiskFull {
        /// What was being written.
        path: PathBuf,
        /// How much more the object needs than there is, if that is known.
        lacks: Option<Bytes>,
    },
    /// The object would not fit; nothing was written.
    #[error("{}: {needed} needed, {free} free; make room there", shown(path))]
    Space {
        /// The destination.
        path: PathBuf,
        /// What is still to be stored.
        needed: Bytes,
        /// What the file system has for us.
        free: Bytes,
    },
    /// The operating system does not allow it.
    #[error("{}: cannot {doing}: {errno}", shown(path))]
    Permission {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the operating system said.
        errno: Errno,
    },
    /// A symlink where a directory of the tree belongs; nothing is written through it.
    #[error(
        "{}: a symlink leads elsewhere where a directory of the tree belongs",
        shown(path)
    )]
    UnsafePath {
        /// The path that was to be used.
        path: PathBuf,
    },
    /// Something of another sort has the name of an entry.
    #[error("{}: {found} where {wanted} belongs", shown(path))]
    Blocked {
        /// The path of the entry.
        path: PathBuf,
        /// What is there.
        found: &'static str,
        /// What the object has there.
        wanted: &'static str,
    },
    /// Two names of the object that are one on the destination's file system.
    #[error(
        "{}: its file system takes \"{one}\" and \"{other}\" for one name; rename one at the source, or \
         choose a place that tells them apart",
        shown(path)
    )]
    Folds {
        /// The destination.
        path: PathBuf,
        /// The path of one entry in the object, escaped.
        one: String,
        /// The name of the other, in the same directory, escaped.
        other: String,
    },
    /// A part of the destination lies on another file system, so files cannot be renamed into it.
    #[error("{}: on another file system than the destination", shown(path))]
    OtherFileSystem {
        /// The directory.
        path: PathBuf,
    },
    /// Several sources of one name, which would be one file in the object.
    #[error(
        "{}: another source has the same name, `{}`",
        shown(path),
        escape(name)
    )]
    SameName {
        /// The later one.
        path: PathBuf,
        /// What both are called.
        name: Vec<u8>,
    },
    /// A source with something that is neither file, directory nor symlink.
    #[error(
        "{}: {what}; only files, directories and symlinks can be sent",
        shown(path)
    )]
    Special {
        /// Its path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A source to which a cast writes, or which one has left unfinished.
    #[error(
        "{}: the state of an unfinished cast{}; finish that cast first, or remove this directory",
        shown(state),
        object.map(|id| format!(" of object {id}")).unwrap_or_default()
    )]
    Unfinished {
        /// The directory with the cast's state, in the source.
        state: PathBuf,
        /// What it casts, if that is known.
        object: Option<ObjectId>,
    },
    /// A source that is not what it was when it was hashed.
    #[error("{}: the file changed after it was hashed", shown(path))]
    SourceChanged {
        /// The file.
        path: PathBuf,
    },
    /// A file of the destination that no longer has the bytes that were verified.
    #[error("{}: {damage}", shown(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How that is explained.
        damage: Damage,
    },
    /// A destination's path that leads to another directory than when the cast began, or to none.
    #[error(
        "{}: the directory was moved or replaced during the cast; repeat the cast",
        shown(path)
    )]
    Moved {
        /// The directory.
        path: PathBuf,
    },
    /// Another cast writes to the same place, to one around it or to one in it.
    #[error(
        "{}: {by} is writing {at}; wait until it is over, or use --wait",
        shown(path)
    )]
    Locked {
        /// The destination.
        path: PathBuf,
        /// Where the other one writes.
        at: Overlap,
        /// The other one.
        by: Box<Holder>,
    },
    /// Another node of the same cast writes there: two names lead to one place.
    #[error(
        "{}: {} another destination of this cast; name each place once",
        shown(path),
        at.relation()
    )]
    Twin {
        /// The destination.
        path: PathBuf,
        /// Where the other one writes.
        at: Overlap,
        /// The other node.
        node: u32,
    },
    /// A destination that does not lie where this host's owner allows one.
    #[error(
        "{}: this agent reads and writes only beneath {}",
        shown(path),
        listed(roots)
    )]
    Outside {
        /// The destination.
        path: PathBuf,
        /// Beneath which directories one may lie.
        roots: Vec<PathBuf>,
    },
    /// A destination, or a source, that does not lie where the one who names it may read and write.
    #[error(
        "{}: {} may read and write only beneath {} here",
        shown(path),
        escape(who.as_bytes()),
        listed(roots)
    )]
    NotGranted {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        who: String,
        /// Beneath which directories it may lie.
        roots: Vec<PathBuf>,
    },
    /// A destination or a source within what casts keep for themselves.
    #[error("{}: {} belongs to casts and their agents", shown(path), STATE_DIR)]
    Reserved {
        /// The path.
        path: PathBuf,
    },
    /// It was ended before its time.
    #[error("nobody waits for it any more")]
    Stopped,
    /// A symlink on the way to a destination that is confined.
    #[error(
        "{}: a symlink; this agent follows none beneath {}",
        shown(path),
        shown(root)
    )]
    Linked {
        /// The symlink.
        path: PathBuf,
        /// The directory that confines.
        root: PathBuf,
    },
    /// A manifest of something else than a destination was claimed for.
    #[error("{}: the object differs from its description", shown(path))]
    Mismatch {
        /// The destination.
        path: PathBuf,
    },
    /// What was found when all was in place and the state was gone: it cannot be mended in this
    /// cast.
    #[error("{0}")]
    TooLate(Box<Self>),
    /// An object cannot be put in place before all of it is there.
    #[error("{missing} blocks are missing")]
    Incomplete {
        /// How many blocks.
        missing: u32,
    },
    /// A block that the object does not have, or not of that length.
    #[error("block {block}: {len} bytes instead of {expected}")]
    BlockLen {
        /// The block.
        block: BlockId,
        /// The length given.
        len: usize,
        /// The length the block has; 0 if there is no such block.
        expected: u32,
    },
    /// A block that is not here (yet).
    #[error("block {block} is not here")]
    Absent {
        /// The block.
        block: BlockId,
    },
    /// The object cannot be described, or its description is not acceptable.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Anything else the operating system said.
    #[error("{}: cannot {doing}: {errno}", shown(path))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the operating system said.
        errno: Errno,
    },
}

/// Why a file does not have the bytes that were verified and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its inode, size or times are not what they were: another process wrote to it or replaced it.
    #[error("another process changed the file while the cast ran")]
    Changed,
    /// No process touched it, and it reads differently all the same.
    #[error("the disk returned other bytes than before")]
    Disk,
}

impl Error {
    /// Sorts what the operating system said when `doing` something to `path`.
    pub(crate) fn new(path: impl Into<PathBuf>, doing: &'static str, errno: Errno) -> Self {
        let path = path.into();
        match errno {
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull { path, lacks: None },
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Permission { path, doing, errno },
            Errno::LOOP | Errno::XDEV => Self::UnsafePath { path },
            _ => Self::Io { path, doing, errno },
        }
    }

    /// [`Self::new`] for `map_err`, which takes the path only when it is needed.
    pub(crate) fn at<P: Into<PathBuf>>(
        path: impl FnOnce() -> P,
        doing: &'static str,
    ) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::new(path(), doing, errno)
    }

    pub(crate) fn too_late(self) -> Self {
        Self::TooLate(Box::new(self))
    }

    /// Whether it may be different the next time: a full disk, a failed write or sync, a file that
    /// another process changed.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::DiskFull { .. } | Self::Space { .. } | Self::Damaged { .. } => true,
            Self::Io { errno, .. } => matches!(
                *errno,
                Errno::IO
                    | Errno::NOSPC
                    | Errno::DQUOT
                    | Errno::NOMEM
                    | Errno::AGAIN
                    | Errno::TIMEDOUT
                    | Errno::STALE
                    | Errno::MFILE
                    | Errno::NFILE
            ),
            _ => false,
        }
    }

    /// Whether there is only no room.
    pub const fn lacks_room(&self) -> bool {
        matches!(self, Self::DiskFull { .. } | Self::Space { .. })
    }

    /// Whether another process holds the destination.
    pub const fn is_locked(&self) -> bool {
        matches!(self, Self::Locked { .. })
    }

    /// Whether nothing is there.
    pub(crate) const fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::Io {
                errno: Errno::NOENT | Errno::NOTDIR,
                ..
            }
        )
    }

    /// The other cast and the place it writes to, if that is what is wrong, without the advice.
    pub fn conflict(&self) -> Option<String> {
        match self {
            Self::Locked { at, by, .. } => Some(format!("{by} is writing {at}")),
            _ => None,
        }
    }

    /// The holder of the destination, if that is what is wrong.
    pub const fn locked_by(&self) -> Option<&Holder> {
        match self {
            Self::Locked { by, .. } => Some(by),
            _ => None,
        }
    }
}

/// Where another cast writes, seen from a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// To the same place.
    Same,
    /// To a tree in which the destination lies.
    Around(PathBuf),
    /// To something in the tree.
    Within(PathBuf),
}

impl Overlap {
    /// What a destination does to the one that it overlaps, before the name of that.
    pub const fn relation(&self) -> &'static str {
        match self {
            Self::Same => "leads to the same place as",
            Self::Around(_) => "lies inside",
            Self::Within(_) => "contains",
        }
    }
}

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Same => f.write_str("there"),
            Self::Around(path) => write!(f, "to {} around it", shown(path)),
            Self::Within(path) => write!(f, "to {} in it", shown(path)),
        }
    }
}

/// Why a block could not be stored.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file system or a quota is full. Nothing is lost and nothing is half: the same block can
    /// be written again when there is room.
    #[error("{}: the disk is full{}; make room there", shown(path), more(*lacks))]
    DiskFull {
        /// What was being written.
        path: PathBuf,
        /// How much more the object needs than there is, if that is known.
        lacks: Option<Bytes>,
    },
    /// The destination is of no use any more.
    #[error(transparent)]
    Failed(Error),
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        match error {
            Error::DiskFull { path, lacks } => Self::DiskFull { path, lacks },
            error => Self::Failed(error),
        }
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::DiskFull { path, lacks } => Self::DiskFull { path, lacks },
            WriteError::Failed(error) => error,
        }
    }
}

fn more(lacks: Option<Bytes>) -> String {
    lacks
        .map(|lacks| format!(", {lacks} more are needed"))
        .unwrap_or_default()
}

fn listed(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(|path| shown(path)).collect();
    shown.join(", ")
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}
