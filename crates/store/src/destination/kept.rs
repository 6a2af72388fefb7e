//! What is kept of entries beside their bytes: set in the end, where it differs, and what could not be
//! kept is counted.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outpour_core::manifest::{Aspect, Content, Entry, EntryId, escape};
use rustix::fs::Stat;

use super::identity::Identity;
use super::modes::open_dir_mode;
use super::write::seal;
use super::{Destination, Inner};
use crate::attributes::{Applied, Aspects, Looks};
use crate::claim::unsettled;
use crate::error::Error;
use crate::fs::{self, AsFd, OwnedFd};
use crate::place::Dir;
use crate::sys;

/// What the destination of an object could not keep, with `--archive`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKept {
    /// What.
    pub what: Aspect,
    /// Of how many entries.
    pub entries: u64,
    /// The path of the first of them in the object, escaped.
    pub example: String,
}

/// Of how many entries something could not be kept, and of which one first; the root comes before all.
#[derive(Debug, Default)]
pub(super) struct Lost(Mutex<BTreeMap<Aspect, (u64, Option<EntryId>)>>);

impl Lost {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Aspect, (u64, Option<EntryId>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All is done again.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Takes note of what an entry lost.
    pub(super) fn add(&self, entry: Option<EntryId>, aspects: Aspects) {
        for aspect in aspects.iter() {
            let mut lost = self.lock();
            let (count, first) = lost.entry(aspect).or_insert((0, entry));
            *count += 1;
            *first = entry.min(*first);
        }
    }
}

impl Destination {
    /// What could not be kept of the object's attributes, once it is complete.
    pub fn not_kept(&self) -> Vec<NotKept> {
        let running = self.running();
        let inner = running.inner();
        let lost = inner.lost.lock();
        let told = lost.iter().map(|(what, (entries, first))| NotKept {
            what: *what,
            entries: *entries,
            example: match first {
                Some(entry) => escape(&inner.manifest.path(*entry)),
                None => ".".to_owned(),
            },
        });
        told.collect()
    }
}

impl Inner {
    /// Sees to it that a file that is in place, at which `stat` was just taken, has its attributes, mode
    /// and time.
    pub(super) fn keep_file(&self, entry: &Entry<'_>, stat: &Stat) -> Result<(), Error> {
        let file = self.place.open_file(&self.manifest, entry);
        let file = file.map_err(self.gone(entry.id))?;
        let look = Error::at(|| self.path_of(entry.id), "look at the file");
        // What may have come into its place meanwhile is not ours to change.
        if Identity::of_open(&file).map_err(look)? != Identity::of(stat) {
            return Err(self.changed(entry.id));
        }
        let applied = self.keep_open(entry, entry, &file, stat)?;
        self.lost.add(Some(entry.id), applied.lost);
        Ok(())
    }

    /// Gives an open file the attributes of a file of the object. That changes its times, so it is read
    /// again at the very end.
    pub(super) fn keep_open(
        &self,
        entry: &Entry<'_>,
        file: &Entry<'_>,
        fd: &OwnedFd,
        stat: &Stat,
    ) -> Result<Applied, Error> {
        let path = || self.path_of(entry.id);
        let set = || {
            let mut applied = seal(self.keeper.as_ref(), &self.manifest, file, fd)?;
            if applied.changed {
                self.identities.note(entry.id, None);
                fs::fsync(fd)?;
            }
            if self.manifest.is_sparse(file.id) && sys::held(stat) >= stat.st_size as u64 {
                applied.lost.add(Aspect::Holes);
            }
            Ok(applied)
        };
        set().map_err(Error::at(path, "set the attributes of the file"))
    }

    /// The same of a directory.
    pub(super) fn keep_dir(
        &self,
        entry: &Entry<'_>,
        mode: u16,
        dir: &Dir<'_>,
    ) -> Result<(), Error> {
        let looks = Looks {
            mode: open_dir_mode(mode),
            mtime_ns: entry.mtime_ns,
        };
        let applied = match (&self.keeper, self.manifest.attributes(entry.id)) {
            (Some(keeper), Some(attributes)) => keeper.apply(dir.as_fd(), attributes, looks),
            _ => Ok(Applied::default()),
        };
        let path = || self.path_of(entry.id);
        let applied = applied.map_err(Error::at(path, "set the attributes of the directory"))?;
        self.lost.add(Some(entry.id), applied.lost);
        Ok(())
    }

    /// Gives the root of a tree its attributes, if a cast made it and it has not got them yet.
    pub(super) fn settle_root(&self) -> Result<(), Error> {
        let Some(keeper) = &self.keeper else {
            return Ok(());
        };
        let settle = || {
            let Some(mode) = unsettled(&self.place, &self.manifest)? else {
                return Ok(Applied::default());
            };
            let root = self.place.root();
            let Some(attributes) = self.manifest.root_attributes() else {
                fs::fchmod(root, sys::mode(mode))?;
                return Ok(Applied::default());
            };
            let mtime_ns = sys::mtime_of(&fs::fstat(root)?);
            keeper.apply(root, attributes, Looks { mode, mtime_ns })
        };
        let path = || self.place.path();
        let applied = settle().map_err(Error::at(path, "set the attributes of the directory"))?;
        self.lost.add(None, applied.lost);
        Ok(())
    }

    /// Whether a symlink in place belongs to whom it is to belong, if that is kept.
    pub(super) fn is_link_kept(&self, entry: &Entry<'_>, stat: &Stat) -> bool {
        match (&self.keeper, self.manifest.attributes(entry.id)) {
            (Some(keeper), Some(attributes)) => keeper.is_owned(stat, attributes),
            _ => true,
        }
    }

    /// Gives a staged symlink its owner and group. In its place it would be reached by its name, where
    /// another process may have put something else. Says whether it belongs to the same ones as
    /// `other` in the end.
    pub(super) fn own_link(&self, entry: &Entry<'_>, other: Option<&Stat>) -> Result<bool, Error> {
        debug_assert!(matches!(entry.content, Content::Symlink { .. }));
        let (Some(keeper), Some(attributes)) = (&self.keeper, self.manifest.attributes(entry.id))
        else {
            return Ok(false);
        };
        let (path, doing) = (|| self.path_of(entry.id), "set the owner of the symlink");
        let mut applied = Applied::default();
        let stat = self.staged_stat(entry.id)?;
        let staging = self.state.staging();
        let owners = (stat.st_uid, stat.st_gid);
        let set = keeper.own(owners, attributes, &mut applied, |user, group| {
            staging.chown(entry.id, user, group)
        });
        set.map_err(Error::at(path, doing))?;
        self.lost.add(Some(entry.id), applied.lost);
        let stat = self.staged_stat(entry.id)?;
        let same = |other: &Stat| (other.st_uid, other.st_gid) == (stat.st_uid, stat.st_gid);
        Ok(other.is_some_and(same))
    }
}
