//! The way to a destination or a source: walked and made by descriptors, and, where the host's owner says so,
//! beneath certain directories only.
//!
//! The owner's directories are opened once. From there on no path leads anywhere: each directory is
//! opened or made by its name in the one before, and no symlink is followed. Without such
//! directories the path means what the user wrote, links included; but what is missing is made by
//! its name in an open directory there, too, so that no other user can redirect its creation.

mod existing;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use outpour_core::manifest::{MODE_MASK, STATE_DIR};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::claim::{LOOK_ABOVE, held_around};
use crate::confine::confined;
use crate::error::{Error, Overlap};
use crate::fs::{self, AsFd, BorrowedFd, OwnedFd};
use crate::sys;

pub(crate) use existing::{Existing, existing};

/// How often a directory is looked for and made, if it comes and goes meanwhile.
const TRIES: usize = 8;

/// The mode of a tree's root that has not got its own yet: ours alone, and the sticky bit says that
/// it was made for a cast. No manifest has that bit, and it outlives the agent.
pub(crate) const UNSETTLED: Mode = Mode::RWXU.union(Mode::SVTX);

const _: () = assert!(UNSETTLED.bits() & !(MODE_MASK as u32) != 0);

/// To pass through a directory takes no permission to read it.
const PASSING: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const READING: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// The directories beneath which destinations may lie.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    open: Arc<[(PathBuf, OwnedFd)]>,
    granted: Option<Granted>,
}

/// What one of those whom the host serves may use of its roots.
#[derive(Clone, Debug)]
struct Granted {
    who: String,
    directories: Vec<PathBuf>,
}

impl Roots {
    /// Opens directories, once and for all: what takes their place later does not count.
    ///
    /// # Errors
    /// If one is not there, or is no directory.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Error> {
        let open = |path: &PathBuf| {
            let dir = fs::open(path, PASSING, Mode::empty())
                .map_err(Error::at(|| path, "open the directory"))?;
            Ok((path.clone(), dir))
        };
        let open: Result<Vec<_>, Error> = paths.iter().map(open).collect();
        Ok(Self {
            open: open?.into(),
            granted: None,
        })
    }

    /// The same directories for `who`, who may use only what lies beneath `directories`, too. Nothing
    /// beneath the roots is reached through a symlink, so what the path says is where it leads.
    #[must_use]
    pub fn granted_to(&self, who: &str, directories: &[PathBuf]) -> Self {
        Self {
            open: self.open.clone(),
            granted: Some(Granted {
                who: who.to_owned(),
                directories: directories.to_vec(),
            }),
        }
    }

    /// The directory in which a destination lies, and the way from there.
    fn find<'a>(&self, path: &'a Path) -> Result<(&Path, &OwnedFd, &'a Path), Error> {
        // Lexical, so `..` must not be there to undo a prefix.
        let plain = path.components().all(|part| part != Component::ParentDir);
        let beneath = |root: &&(PathBuf, OwnedFd)| path.starts_with(&root.0);
        let longest = self.open.iter().filter(beneath);
        let longest = longest.max_by_key(|(root, _)| root.components().count());
        let found = longest
            .filter(|_| plain && path.is_absolute())
            .and_then(|(root, dir)| Some((root.as_path(), dir, path.strip_prefix(root).ok()?)))
            .ok_or_else(|| Error::Outside {
                path: path.to_path_buf(),
                roots: self.open.iter().map(|(root, _)| root.clone()).collect(),
            })?;
        // There others' casts have what is staged, and the agent what it remembers of coordinators.
        let ours = |part: Component<'_>| part.as_os_str().as_bytes() == STATE_DIR.as_bytes();
        if found.2.components().any(ours) {
            let path = path.to_path_buf();
            return Err(Error::Reserved { path });
        }
        match &self.granted {
            Some(granted) if !granted.directories.iter().any(|dir| path.starts_with(dir)) => {
                Err(Error::NotGranted {
                    path: path.to_path_buf(),
                    who: granted.who.clone(),
                    roots: granted.directories.clone(),
                })
            }
            _ => Ok(found),
        }
    }
}

/// What is at a path that is to be read: the directory that it leads to, or the one that its file is
/// in and the name of the file there.
pub(crate) struct Found {
    pub(crate) dir: OwnedFd,
    pub(crate) path: PathBuf,
    pub(crate) file_name: Option<Vec<u8>>,
}

/// Finds what is at `path`, which has to lie beneath one of `roots`; no link leads there.
pub(crate) fn find(path: &Path, roots: &Roots) -> Result<Found, Error> {
    let (root, dir, rest) = roots.find(path)?;
    debug_assert!(rest.is_relative());
    debug_assert!(
        rest.components().all(|part| part != Component::ParentDir),
        "a way out"
    );
    let open = |rest: &Path, flags| {
        let rest = match rest.as_os_str().as_bytes() {
            b"" => b".",
            rest => rest,
        };
        confined(dir, rest, flags).map_err(|errno| match errno {
            Errno::LOOP => Error::Linked {
                path: path.to_path_buf(),
                root: root.to_path_buf(),
            },
            errno => Error::new(path, "read the source", errno),
        })
    };
    let looked = open(rest, OFlags::PATH | OFlags::CLOEXEC)?;
    let stat = fs::fstat(&looked).map_err(Error::at(|| path, "read the source"))?;
    let name = rest
        .file_name()
        .filter(|_| sys::type_of(&stat) != FileType::Directory);
    let (to, dir) = match (name, rest.parent(), path.parent()) {
        (Some(_), Some(beneath), Some(dir)) => (beneath, dir),
        _ => (rest, path),
    };
    Ok(Found {
        dir: open(to, READING)?,
        path: dir.to_path_buf(),
        file_name: name.map(|name| name.as_bytes().to_vec()),
    })
}

/// A destination's root directory.
pub(crate) struct Reached {
    pub(crate) root: OwnedFd,
    pub(crate) path: PathBuf,
    /// The name of the file, if the object is one.
    pub(crate) file_name: Option<Vec<u8>>,
    /// How it was found.
    pub(crate) way: Way,
    /// What was made on the way.
    pub(crate) made: Made,
}

/// The way to a destination's root directory, to be gone again.
#[derive(Debug)]
pub(crate) struct Way {
    /// The directory that confines it, and where it begins.
    from: Option<OwnedFd>,
    /// From there, or as the user wrote it.
    path: PathBuf,
}

impl Way {
    /// Whether it still leads to `dir`. A descriptor goes along with a directory that is moved.
    ///
    /// # Errors
    /// If that cannot be found out.
    pub(crate) fn leads_to(&self, dir: BorrowedFd<'_>) -> Result<bool, Errno> {
        let found = match &self.from {
            Some(from) => confined(from, self.path.as_os_str().as_bytes(), PASSING),
            None => fs::open(&self.path, PASSING, Mode::empty()),
        };
        match found {
            Ok(found) => Ok(identity(&fs::fstat(found)?) == identity(&fs::fstat(dir)?)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// Directories that were made for a destination; what of them is empty in the end is removed.
#[derive(Debug, Default)]
pub(crate) struct Made(Vec<(OwnedFd, OsString, (u64, u64))>);

impl Made {
    /// Leaves the directories where they are.
    pub(crate) fn keep(&mut self) {
        self.0.clear();
    }
}

impl Made {
    /// Makes the names of the directories last.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.0
            .iter()
            .try_for_each(|(parent, ..)| sync_names(parent))
    }
}

/// Makes the names of a directory and of all that it lies in last, up to the root of its file system:
/// what made them may have been killed before it did that.
pub(crate) fn sync_above(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut below = fs::fstat(dir)?;
    let mut at = fs::openat(dir, "..", PASSING, Mode::empty())?;
    loop {
        let here = fs::fstat(&at)?;
        if here.st_dev != below.st_dev || here.st_ino == below.st_ino {
            return Ok(());
        }
        sync_names(&at)?;
        below = here;
        at = fs::openat(&at, "..", PASSING, Mode::empty())?;
    }
}

/// Makes the names in a directory last that is open as a path only.
fn sync_names(dir: &OwnedFd) -> Result<(), Errno> {
    match fs::openat(dir, ".", READING, Mode::empty()) {
        Ok(dir) => fs::fsync(&dir),
        // A directory that takes names and shows none.
        Err(Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for (parent, name, made) in self.0.drain(..).rev() {
            let found = sys::lstat(&parent, name.as_bytes()).ok().flatten();
            let same = found.is_some_and(|stat| identity(&stat) == made);
            if !same || fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR).is_err() {
                return;
            }
        }
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The directory of a tree that goes to `path`, made if it is missing: then it is ours alone.
pub(crate) fn reach_tree(path: &Path, roots: Option<&Roots>) -> Result<Reached, Error> {
    let (mut walk, rest) = Walk::start(path, roots)?;
    let mut parts = rest.components().peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        let mode = if last { UNSETTLED } else { walk.usual() };
        walk.step(part, mode)?;
    }
    walk.arrive(None)
}

/// The directory of a file that goes to `path`: to that name, unless a directory is there or the
/// path ends in a slash; then it goes inside under its own name.
pub(crate) fn reach_file(
    path: &Path,
    roots: Option<&Roots>,
    own_name: &[u8],
) -> Result<Reached, Error> {
    debug_assert!(!own_name.is_empty());
    debug_assert!(!own_name.contains(&b'/'));
    let (mut walk, rest) = Walk::start(path, roots)?;
    let slash = path.as_os_str().as_bytes().ends_with(b"/");
    let name = rest.file_name().filter(|_| !slash);
    let dirs = match name {
        Some(_) => rest.parent().unwrap_or_else(|| Path::new("")),
        None => rest,
    };
    for part in dirs.components() {
        walk.step(part, walk.usual())?;
    }
    match name {
        Some(name) if !walk.leads_to_dir(name)? => walk.arrive(Some(name.as_bytes())),
        Some(name) => {
            walk.step(Component::Normal(name), walk.usual())?;
            walk.arrive(Some(own_name))
        }
        None => walk.arrive(Some(own_name)),
    }
}

/// On the way to a destination.
struct Walk<'a> {
    at: OwnedFd,
    path: PathBuf,
    /// Where it leads to.
    goal: PathBuf,
    /// What confines the way.
    root: Option<&'a Path>,
    /// The same, open.
    from: Option<&'a OwnedFd>,
    made: Made,
}

impl<'a> Walk<'a> {
    /// Where the way begins, and how it goes on.
    fn start<'b>(path: &'b Path, roots: Option<&'a Roots>) -> Result<(Self, &'b Path), Error> {
        let (root, from, rest) = match roots {
            Some(roots) => {
                let (root, dir, rest) = roots.find(path)?;
                (Some(root), Some(dir), rest)
            }
            None => (None, None, path),
        };
        debug_assert!(root.is_none() || rest.is_relative());
        let at = match from {
            // A copy of the descriptor, not of the path.
            Some(dir) => fs::openat(dir, ".", PASSING, Mode::empty()),
            None => fs::open(".", PASSING, Mode::empty()),
        };
        let start = root.unwrap_or_else(|| Path::new(""));
        let at = at.map_err(Error::at(|| start, "open the directory"))?;
        let walk = Self {
            at,
            path: start.to_path_buf(),
            goal: path.to_path_buf(),
            root,
            from,
            made: Made::default(),
        };
        Ok((walk, rest))
    }

    /// The mode of a directory that is only on the way: what the umask leaves.
    fn usual(&self) -> Mode {
        sys::mode(0o777)
    }

    /// Goes on to the directory of a name, which is made with a mode if it is missing.
    fn step(&mut self, part: Component<'_>, mode: Mode) -> Result<(), Error> {
        debug_assert!(
            self.root.is_none() || matches!(part, Component::Normal(_) | Component::CurDir),
            "a step out of the root"
        );
        self.path.push(part);
        let name = match part {
            Component::CurDir => return Ok(()),
            part => part.as_os_str(),
        };
        for _ in 0..TRIES {
            match self.open(name, PASSING) {
                Ok(dir) => {
                    self.at = dir;
                    return Ok(());
                }
                Err(Errno::NOENT) => self.look_around()?,
                Err(errno) => return Err(self.refused(name, errno)),
            }
            match fs::mkdirat(&self.at, name, mode) {
                Ok(()) => return self.enter_made(name),
                // Another process was faster, or it is a link that leads nowhere.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(Error::new(&self.path, "create the directory", errno)),
            }
        }
        Err(self.refused(name, Errno::NOTDIR))
    }

    /// Checks whether another cast writes to a tree around a directory that is about to be made. That
    /// cast may need the directory, too, and would lose it when it is not needed here.
    fn look_around(&self) -> Result<(), Error> {
        match held_around(self.at.as_fd()) {
            Ok(Some((levels, by))) => {
                // The path ends in the directory that is missing.
                let around = self.path.ancestors().nth(1 + levels);
                let around = around.unwrap_or_else(|| Path::new("/"));
                Err(Error::Locked {
                    path: self.goal.clone(),
                    at: Overlap::Around(around.to_path_buf()),
                    by: by.into(),
                })
            }
            // Where we may not look, we could not have kept others out either.
            Ok(None) | Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(Error::new(&self.path, LOOK_ABOVE, errno)),
        }
    }

    /// Goes on to a directory that was made just now, if it is still the one that is there.
    fn enter_made(&mut self, name: &OsStr) -> Result<(), Error> {
        let dir = match confined(&self.at, name.as_bytes(), PASSING) {
            Ok(dir) => dir,
            Err(errno) => return Err(self.refused(name, errno)),
        };
        let stat = fs::fstat(&dir).map_err(Error::at(|| &self.path, "examine the directory"))?;
        let parent = std::mem::replace(&mut self.at, dir);
        if stat.st_uid == fs::euid() {
            debug_assert_eq!(self.path.file_name(), Some(name));
            let made = (parent, name.to_os_string(), identity(&stat));
            self.made.0.push(made);
        }
        Ok(())
    }

    fn open(&self, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.root.is_some() {
            confined(&self.at, name.as_bytes(), flags)
        } else {
            fs::openat(&self.at, name, flags, Mode::empty())
        }
    }

    /// Whether a name is that of a directory here, as far as links may be followed.
    fn leads_to_dir(&self, name: &OsStr) -> Result<bool, Error> {
        let path = || self.path.join(name);
        let flags = match self.root {
            Some(_) => AtFlags::SYMLINK_NOFOLLOW,
            None => AtFlags::empty(),
        };
        match fs::statat(&self.at, name, flags).map(|stat| sys::type_of(&stat)) {
            Ok(FileType::Symlink) => Err(self.linked(path())),
            Ok(found) => Ok(found == FileType::Directory),
            Err(_) if self.root.is_none() => Ok(false),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(Error::new(path(), "examine the existing files", errno)),
        }
    }

    /// Why it does not go on to a name; the path leads there already.
    fn refused(&self, name: &OsStr, errno: Errno) -> Error {
        let found = sys::lstat(&self.at, name.as_bytes()).ok().flatten();
        let found = found.map(|stat| sys::type_of(&stat));
        match errno {
            Errno::LOOP => self.linked(self.path.clone()),
            Errno::NOTDIR => Error::Blocked {
                path: self.path.clone(),
                found: found.map_or("something else", sys::noun),
                wanted: "a directory",
            },
            errno => Error::new(&self.path, "open the directory", errno),
        }
    }

    fn linked(&self, path: PathBuf) -> Error {
        match self.root {
            Some(root) => Error::Linked {
                path,
                root: root.to_path_buf(),
            },
            None => Error::UnsafePath { path },
        }
    }

    fn arrive(self, file_name: Option<&[u8]>) -> Result<Reached, Error> {
        debug_assert!(self.root.is_none_or(|root| self.path.starts_with(root)));
        let root = fs::openat(self.at.as_fd(), ".", READING, Mode::empty())
            .map_err(Error::at(|| &self.path, "open the directory"))?;
        let way = self
            .way()
            .map_err(Error::at(|| &self.path, "open the directory"))?;
        Ok(Reached {
            root,
            path: or_here(&self.path),
            file_name: file_name.map(<[u8]>::to_vec),
            way,
            made: self.made,
        })
    }

    /// The way so far.
    fn way(&self) -> Result<Way, Errno> {
        let from = self
            .from
            .map(|dir| fs::fcntl_dupfd_cloexec(dir, 0))
            .transpose()?;
        let path = self.root.and_then(|root| self.path.strip_prefix(root).ok());
        Ok(Way {
            from,
            path: or_here(path.unwrap_or(&self.path)),
        })
    }
}

/// A path that says where it leads to even if that is here.
fn or_here(path: &Path) -> PathBuf {
    let here = path.as_os_str().is_empty();
    if here { ".".into() } else { path.to_path_buf() }
}
