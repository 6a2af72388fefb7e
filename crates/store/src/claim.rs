//! One writer per destination: what a cast holds while it writes there.
//!
//! A tree takes the lock of its root for itself. A file shares the lock of its directory with other
//! files and takes one of its own name for itself. So two files go side by side into one directory;
//! the same name, or a tree around it, has to wait.
//!
//! Nested trees are found by searching: an agent that has its own lock checks whether a directory
//! above is held and, once it knows the tree's contents, whether one below is. Both lock first and
//! check then, so of two that begin at once at least one sees the other.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outpour_core::manifest::{Content, Kind, Manifest, NAME_BYTES_MAX, ObjectId, STATE_DIR};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::destination::{Destination, DestinationOptions, Keep};
use crate::error::{Error, Overlap};
use crate::fs::{self, AsFd, BorrowedFd, OwnedFd};
use crate::lock::{Holder, LOCK, Lock, Party, Taken, held};
use crate::place::Place;
use crate::roots::{Made, Reached, Roots, UNSETTLED, reach_file, reach_tree, sync_above};
use crate::state::{State, private_dir};
use crate::sys;

/// What is done when one looks whether a directory is held.
const LOOK: &str = "check whether another cast writes to the directory";
pub(crate) const LOOK_ABOVE: &str = "check whether another cast writes to the directories above";

/// How often a destination is reached anew that others remove meanwhile.
const TRIES: usize = 100;

/// What an object is, as far as it matters for where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A directory with everything in it.
    Tree,
    /// One file of this name.
    File(Vec<u8>),
}

impl Shape {
    /// Of an object that is known.
    pub fn of(manifest: &Manifest) -> Self {
        match manifest.kind() {
            Kind::Tree { .. } => Self::Tree,
            Kind::File => {
                let name = manifest.entries().next().map(|entry| entry.name.to_vec());
                Self::File(name.unwrap_or_default())
            }
        }
    }

    /// A name may come from a stranger, before the manifest does that would be checked.
    fn is_sound(&self) -> bool {
        match self {
            Self::Tree => true,
            Self::File(name) => {
                !name.is_empty()
                    && name.len() <= NAME_BYTES_MAX
                    && !matches!(name.as_slice(), b"." | b"..")
                    && name != STATE_DIR.as_bytes()
                    && !name.iter().any(|byte| *byte == b'/' || *byte == 0)
            }
        }
    }
}

/// The cast that wants to write, and what.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The object.
    pub object: ObjectId,
    /// What it is.
    pub shape: Shape,
    /// By what others shall know the cast.
    pub label: String,
    /// Which node of which cast it is, so that others of the same cast know it.
    pub party: Option<Party>,
}

impl Intent {
    /// Of what holds a place, tells the other nodes of the same cast from other casts.
    fn sort(&self, error: Error) -> Error {
        match (error, self.party) {
            (Error::Locked { path, at, by }, Some(own)) => match by.party {
                Some(other) if other.cast == own.cast && other.node != own.node => Error::Twin {
                    path,
                    at,
                    node: other.node,
                },
                _ => Error::Locked { path, at, by },
            },
            (error, _) => error,
        }
    }
}

/// A destination with one writer. Dropping it lets go, and removes the directories that
/// were made for it, if they are empty.
#[derive(Debug)]
pub struct Claim {
    place: Place,
    hold: Hold,
    intent: Intent,
    /// Whether no other cast writes below, as far as this object goes there.
    alone: bool,
}

impl Claim {
    /// Takes the place `path`, whose directories are made if they are missing, for an object. With
    /// `roots` it must lie beneath one of them, and no symlink may be on the way.
    ///
    /// # Errors
    /// [`Error::Locked`] if another cast writes there or to a tree above it, which may be over the
    /// next moment; [`Error::Twin`] if that is another node of the same cast; other errors if the
    /// place cannot be had at all.
    pub fn take(
        path: impl AsRef<Path>,
        roots: Option<&Roots>,
        intent: Intent,
    ) -> Result<Self, Error> {
        let path = path.as_ref();
        if !intent.shape.is_sound() {
            let path = path.to_path_buf();
            return Err(Error::Mismatch { path });
        }
        let mut tries = 1..TRIES;
        loop {
            let reached = match &intent.shape {
                Shape::Tree => reach_tree(path, roots),
                Shape::File(name) => reach_file(path, roots, name),
            };
            let claimed = reached.and_then(|reached| Self::at(reached, &intent));
            match claimed {
                // A cast that let go removed the directories that were made for it.
                Err(Error::Io {
                    errno: Errno::NOENT,
                    ..
                }) if tries.next().is_some() => {}
                claimed => return claimed.map_err(|error| intent.sort(error)),
            }
        }
    }

    fn at(reached: Reached, intent: &Intent) -> Result<Self, Error> {
        let Reached {
            root,
            path,
            file_name,
            way,
            made,
        } = reached;
        debug_assert_eq!(
            file_name.is_some(),
            matches!(intent.shape, Shape::File(_)),
            "only a file has a name of its own here"
        );
        let place = Place::at(root, path, file_name).reached_by(way);
        let claim = Self {
            hold: Hold::take(&place, made, intent)?,
            alone: matches!(intent.shape, Shape::File(_)),
            place,
            intent: intent.clone(),
        };
        claim.hold.name(&Holder {
            object: Some(intent.object),
            label: intent.label.clone(),
            party: intent.party,
        });
        claim.look_above()?;
        Ok(claim)
    }

    /// Checks whether another cast writes to a directory above this one.
    fn look_above(&self) -> Result<(), Error> {
        debug_assert!(
            self.hold.is_held(),
            "of two that look first neither sees the other"
        );
        let look = Error::at(|| self.place.path(), LOOK_ABOVE);
        match held_above(self.place.root()) {
            Ok(None) => Ok(()),
            Ok(Some((levels, by))) => {
                let path = self.place.path();
                let above = path
                    .ancestors()
                    .nth(levels)
                    .unwrap_or_else(|| Path::new("/"));
                Err(self.locked(Overlap::Around(above.to_path_buf()), by))
            }
            // Where we may not look, we could not have kept others out either.
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(look(errno)),
        }
    }

    /// Checks whether another cast writes to a directory of the object.
    ///
    /// # Errors
    /// As of [`Self::take`] if so; [`Error::Mismatch`] if the
    /// object is not the one for which the place was claimed.
    pub fn survey(&mut self, manifest: &Manifest) -> Result<(), Error> {
        if manifest.id() != self.intent.object || Shape::of(manifest) != self.intent.shape {
            let path = self.place.path().to_path_buf();
            return Err(Error::Mismatch { path });
        }
        if self.alone {
            return Ok(());
        }
        debug_assert!(self.hold.is_held());
        debug_assert!(
            self.place.file_name().is_none(),
            "with a file nothing is below"
        );
        for entry in manifest.entries() {
            if !matches!(entry.content, Content::Directory { .. }) {
                continue;
            }
            let within = || self.place.path_of(manifest, entry.id);
            // What else may be there is found out when the object is put there.
            let dir = sys::if_reachable(self.place.dir(manifest, Some(entry.id)))
                .map_err(Error::at(within, LOOK))?;
            let Some(dir) = dir else {
                continue;
            };
            let by = held_in(dir.as_fd(), true).map_err(Error::at(within, LOOK))?;
            if let Some(by) = by {
                let error = self.locked(Overlap::Within(within()), by);
                return Err(self.intent.sort(error));
            }
        }
        self.alone = true;
        Ok(())
    }

    fn locked(&self, at: Overlap, by: Holder) -> Error {
        Error::Locked {
            path: self.place.path().to_path_buf(),
            at,
            by: by.into(),
        }
    }

    /// Prepares the place to take the object, and finds out what of it is there already. See
    /// [`Destination::open`].
    ///
    /// # Errors
    /// As [`Self::survey`] and [`Destination::open`].
    pub fn open(
        mut self,
        manifest: Arc<Manifest>,
        options: DestinationOptions,
    ) -> Result<Destination, Error> {
        self.survey(&manifest)?;
        debug_assert!(self.alone);
        // With attributes, the root gets all of them in the end.
        if !(manifest.is_archive() && options.keep == Keep::Files) {
            settle_mode(&self.place, &manifest).map_err(Error::at(
                || self.place.path(),
                "set the mode of the directory",
            ))?;
        }
        let state = State::open(&self.place, self.hold, &manifest)?;
        Destination::at(self.place, state, manifest, options)
    }
}

/// The mode that the root of a tree is to get, if a cast made it and it has not got one yet: another root
/// is the user's. We must be able to use it in any case.
pub(crate) fn unsettled(place: &Place, manifest: &Manifest) -> Result<Option<u16>, Errno> {
    let Kind::Tree { mode } = manifest.kind() else {
        return Ok(None);
    };
    let stat = fs::fstat(place.root())?;
    let ours = stat.st_uid == fs::euid();
    let made = ours && stat.st_mode & 0o1777 == UNSETTLED.bits();
    Ok(made.then_some(mode | 0o700))
}

fn settle_mode(place: &Place, manifest: &Manifest) -> Result<(), Errno> {
    match unsettled(place, manifest)? {
        Some(mode) => fs::fchmod(place.root(), sys::mode(mode)),
        None => Ok(()),
    }
}

/// The locks of a claim.
#[derive(Debug)]
pub(crate) struct Hold {
    root: OwnedFd,
    /// `<root>/.outpour`.
    base: OwnedFd,
    /// The locks and their names, the one that was taken first first.
    locks: Mutex<Vec<(String, Lock)>>,
    /// Removed after the locks are: then it may be empty.
    made: Mutex<Made>,
}

impl Hold {
    fn take(place: &Place, made: Made, intent: &Intent) -> Result<Self, Error> {
        let path = place.path().join(STATE_DIR);
        let root = fs::fcntl_dupfd_cloexec(place.root(), 0)
            .map_err(Error::at(|| place.path(), "use the directory"))?;
        let base = private_dir(&root, STATE_DIR.as_bytes(), &path)?;
        let hold = Self {
            root,
            base,
            locks: Mutex::default(),
            made: Mutex::new(made),
        };
        let own = match &intent.shape {
            Shape::Tree => None,
            Shape::File(_) => Some(name_lock(place.file_name().unwrap_or_default())),
        };
        hold.lock(LOCK, own.is_none(), place)?;
        if let Some(own) = &own {
            hold.lock(own, true, place)?;
        }
        debug_assert_eq!(hold.locks().len(), 1 + usize::from(own.is_some()));
        Ok(hold)
    }

    fn lock(&self, name: &str, alone: bool, place: &Place) -> Result<(), Error> {
        debug_assert!(self.locks().iter().all(|(other, _)| other != name));
        debug_assert_eq!(
            self.is_held(),
            name != LOCK,
            "the lock of the directory comes first"
        );
        let path = place.path().join(STATE_DIR);
        match Lock::named(&self.base, name, &path, alone)? {
            Taken::Mine(lock) => {
                self.locks().push((name.to_owned(), lock));
                Ok(())
            }
            // It is not our directory any more; there is another one, or none.
            Taken::Gone => Err(Error::new(path, "use the directory", Errno::NOENT)),
            Taken::Busy => Err(Error::Locked {
                path: match place.file_name() {
                    Some(file) if name != LOCK => place.path().join(OsStr::from_bytes(file)),
                    _ => place.path().to_path_buf(),
                },
                at: Overlap::Same,
                by: who(&self.base, name).into(),
            }),
        }
    }

    fn locks(&self) -> MutexGuard<'_, Vec<(String, Lock)>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was not let go.
    pub(crate) fn is_held(&self) -> bool {
        !self.locks().is_empty()
    }

    pub(crate) fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// Names the holder, in the lock that is not shared.
    fn name(&self, holder: &Holder) {
        debug_assert!(self.is_held());
        if let Some((_, lock)) = self.locks().last() {
            lock.name_holder(holder);
        }
    }

    /// Syncs the names of the directories that lead to the state. Who made them does not matter: an agent
    /// that was killed has synced none.
    pub(crate) fn sync_way(&self) -> Result<(), Errno> {
        fs::fsync(&self.base)?;
        fs::fsync(&self.root)?;
        sync_above(self.root.as_fd())
    }

    /// Syncs the names of the directories that were made on the way.
    pub(crate) fn sync_dirs(&self) -> Result<(), Errno> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.sync()
    }

    /// Leaves the directories that were made on the way, even if they are empty.
    pub(crate) fn keep_dirs(&self) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.keep();
    }

    /// Lets go.
    pub(crate) fn release(&self) {
        let mut locks = self.locks();
        if locks.is_empty() {
            return;
        }
        debug_assert_eq!(locks[0].0, LOCK, "it is let go last");
        while let Some((name, lock)) = locks.pop() {
            lock.remove(&self.base, &name);
        }
        // It is not empty if another cast came, or if something has to be kept.
        let _ = sys::remove_dir(&self.root, STATE_DIR.as_bytes(), &self.base);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release();
    }
}

/// The lock of a file's name.
fn name_lock(name: &[u8]) -> String {
    format!("{LOCK}-{}", blake3::hash(name).to_hex())
}

/// The holder of the lock `name`; that of a directory may be held by casts of files into it.
fn who(base: &OwnedFd, name: &str) -> Holder {
    // Whose it is matters to people only.
    let holder = |name: &str| held(base, name, false).ok().flatten();
    if let Some(alone) = holder(name) {
        return alone;
    }
    let names = fs::names(base).unwrap_or_default();
    let names = names
        .iter()
        .filter_map(|name| std::str::from_utf8(name).ok());
    let mut files = names.filter(|name| name.starts_with(LOCK) && *name != LOCK);
    files.find_map(holder).unwrap_or_default()
}

/// The holder of a directory: for a tree, or, if `files` count, for files in it, too. Only locks of
/// our user, of root or of the directory's owner count: others could keep us out of what is ours.
pub(crate) fn held_in(dir: BorrowedFd<'_>, files: bool) -> Result<Option<Holder>, Errno> {
    let Some(base) = sys::if_reachable(sys::open_dir(dir, STATE_DIR.as_bytes()))? else {
        return Ok(None);
    };
    let owner = fs::fstat(&base)?.st_uid;
    let us = fs::euid();
    if ![us, 0, fs::fstat(dir)?.st_uid].contains(&owner) {
        return Ok(None);
    }
    let holder = held(&base, LOCK, files)?;
    Ok(holder.map(|holder| if files { who(&base, LOCK) } else { holder }))
}

/// The holder of `dir` or of a directory above it for a tree, and how many levels above that is.
pub(crate) fn held_around(dir: BorrowedFd<'_>) -> Result<Option<(usize, Holder)>, Errno> {
    match held_in(dir, false)? {
        Some(by) => Ok(Some((0, by))),
        None => held_above(dir),
    }
}

/// The holder of a directory above `dir` for a tree, and how many levels above that is.
fn held_above(dir: BorrowedFd<'_>) -> Result<Option<(usize, Holder)>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let up = |dir: BorrowedFd<'_>| fs::openat(dir, "..", flags, Mode::empty());
    let identity = |dir: BorrowedFd<'_>| fs::fstat(dir).map(|stat| (stat.st_dev, stat.st_ino));
    let mut below = identity(dir)?;
    let mut at = up(dir)?;
    for levels in 1.. {
        let here = identity(at.as_fd())?;
        if here == below {
            break;
        }
        if let Some(by) = held_in(at.as_fd(), false)? {
            return Ok(Some((levels, by)));
        }
        below = here;
        at = up(at.as_fd())?;
    }
    Ok(None)
}
