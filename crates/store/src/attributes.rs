//! Reads the attributes of entries from a source, and sets them at a destination.

use std::collections::BTreeMap;

use outpour_core::manifest::{
    ACCESS_ACL, Acl, Aspect, Attributes, DEFAULT_ACL, Manifest, SPECIAL_MASK, Xattr, is_kept,
};
use rustix::fs::{FileType, Gid, SeekFrom, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use crate::fs::{self, AsFd};
use crate::owners::Owners;
use crate::sys;

/// How often an attribute is read that another process makes longer meanwhile.
const TRIES: usize = 16;

/// How many entries an access control list has that says no more than a mode.
const MODE_ENTRIES: usize = 3;

// ---- the source

/// What is kept of an open entry that was looked at just now.
pub(crate) fn read(fd: impl AsFd, stat: &Stat) -> Result<Attributes, Errno> {
    let (directory, file) = match sys::type_of(stat) {
        FileType::Directory => (true, false),
        FileType::RegularFile => (false, true),
        _ => (false, false),
    };
    let mut xattrs = Vec::new();
    for name in list(&fd)?.unwrap_or_default() {
        if is_kept(&name, directory)
            // It may have been removed just now.
            && let Some(value) = get(&fd, &name)?
        {
            xattrs.push(Xattr { name, value });
        }
    }
    xattrs.sort_unstable();
    Ok(Attributes {
        special: match directory {
            true => stat.st_mode as u16 & SPECIAL_MASK,
            false => 0,
        },
        data_bytes: match file {
            true => data_bytes(&fd, stat)?,
            false => None,
        },
        xattrs,
        ..owner(stat)
    })
}

/// What is kept of a symlink: whose it is.
pub(crate) fn owner(stat: &Stat) -> Attributes {
    Attributes {
        owner: stat.st_uid,
        group: stat.st_gid,
        ..Attributes::default()
    }
}

/// How many bytes of a file are not in holes; nothing if it has none.
fn data_bytes(fd: impl AsFd, stat: &Stat) -> Result<Option<u64>, Errno> {
    let size = stat.st_size as u64;
    if sys::held(stat) >= size {
        return Ok(None);
    }
    let (mut at, mut data) = (0, 0);
    while at < size {
        let start = match fs::seek(&fd, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole follows.
            Err(Errno::NXIO) => break,
            // A file system that does not know.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let end = fs::seek(&fd, SeekFrom::Hole(start))?.min(size);
        if end <= start {
            break;
        }
        data += end - start;
        at = end;
    }
    Ok((data < size).then_some(data))
}

/// The names of all extended attributes; nothing where the file system has none.
fn list(fd: impl AsFd) -> Result<Option<Vec<Vec<u8>>>, Errno> {
    for _ in 0..TRIES {
        let len = match fs::flistxattr_query(&fd) {
            Ok(0) => return Ok(Some(Vec::new())),
            Ok(len) => len,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let mut names = vec![0; len];
        match fs::flistxattr(&fd, names.as_mut_slice()) {
            Ok(read) => {
                names.truncate(read);
                let names = names.split(|byte| *byte == 0);
                let names = names.filter(|name| !name.is_empty());
                return Ok(Some(names.map(<[u8]>::to_vec).collect()));
            }
            Err(Errno::RANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::AGAIN)
}

/// The value of an extended attribute; nothing if there is none.
fn get(fd: impl AsFd, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    for _ in 0..TRIES {
        let len = match fs::fgetxattr_query(&fd, name) {
            Ok(len) => len,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        // One more, as an empty buffer would ask for the length again.
        let mut value = vec![0; len + 1];
        match fs::fgetxattr(&fd, name, value.as_mut_slice()) {
            Ok(read) => {
                value.truncate(read);
                return Ok(Some(value));
            }
            Err(Errno::NODATA) => return Ok(None),
            Err(Errno::RANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::AGAIN)
}

// ---- the destination

/// Aspects of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aspects(u16);

impl Aspects {
    pub(crate) const ALL: [Aspect; 9] = [
        Aspect::Owner,
        Aspect::Group,
        Aspect::Mode,
        Aspect::Time,
        Aspect::SpecialBits,
        Aspect::AccessLists,
        Aspect::ExtendedAttributes,
        Aspect::HardLinks,
        Aspect::Holes,
    ];

    pub(crate) const fn add(&mut self, aspect: Aspect) {
        self.0 |= 1 << aspect as u8;
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Aspect> {
        Self::ALL
            .into_iter()
            .filter(move |aspect| self.0 >> *aspect as u8 & 1 == 1)
    }
}

/// What came of setting the attributes of an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Applied {
    /// What could not be set.
    pub(crate) lost: Aspects,
    /// Whether anything was set.
    pub(crate) changed: bool,
}

/// What an entry is to have beside its attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    /// Permission bits.
    pub(crate) mode: u16,
    /// Modification time as [`sys::mtime_of`].
    pub(crate) mtime_ns: i64,
}

/// Sets the attributes of an object's entries.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Numbers of owners at the source that are others here.
    users: BTreeMap<u32, u32>,
    groups: BTreeMap<u32, u32>,
}

impl Keeper {
    /// For an object, if its attributes are to be kept.
    pub(crate) fn of(manifest: &Manifest) -> Option<Self> {
        manifest.is_archive().then(|| {
            let (users, groups) = (Owners::users(), Owners::groups());
            let other = |owners: &Owners, (id, name): (u32, &[u8])| {
                let number = owners.number(id, name);
                (number != id).then_some((id, number))
            };
            let named = manifest.user_names();
            let users = named.filter_map(|it| other(&users, it)).collect();
            let named = manifest.group_names();
            let groups = named.filter_map(|it| other(&groups, it)).collect();
            Self { users, groups }
        })
    }

    /// Whether an open file has all that it is to have, as far as we could set it: that belongs to
    /// someone else only root can.
    ///
    /// # Errors
    /// Of the operating system.
    pub(crate) fn has_all(
        &self,
        fd: impl AsFd,
        attributes: &Attributes,
        looks: Looks,
    ) -> Result<bool, Errno> {
        let stat = fs::fstat(&fd)?;
        let owned = self.is_owned(&stat, attributes) || fs::euid() != 0;
        if !owned
            || sys::full_mode_of(&stat) != attributes.special | looks.mode
            || sys::mtime_of(&stat) != looks.mtime_ns
        {
            return Ok(false);
        }
        let mut found = read(&fd, &stat)?.xattrs;
        let wanted = attributes.xattrs.iter();
        let wanted: Vec<Xattr> = wanted.filter_map(|it| self.here(it, looks.mode)).collect();
        found.sort_unstable();
        Ok(found == wanted)
    }

    fn user(&self, id: u32) -> u32 {
        self.users.get(&id).copied().unwrap_or(id)
    }

    fn group(&self, id: u32) -> u32 {
        self.groups.get(&id).copied().unwrap_or(id)
    }

    /// Whether an entry that was looked at belongs to whom it is to belong.
    pub(crate) fn is_owned(&self, stat: &Stat, attributes: &Attributes) -> bool {
        stat.st_uid == self.user(attributes.owner) && stat.st_gid == self.group(attributes.group)
    }

    /// Gives an open file or directory its attributes, mode and time; sets only what differs.
    ///
    /// The order matters: the owner first, as a change of that takes bits of a mode away, and so do
    /// access control lists; attributes before the mode, which may forbid them; the time last.
    ///
    /// # Errors
    /// Of the operating system, unless it says that it cannot or may not.
    pub(crate) fn apply(
        &self,
        fd: impl AsFd,
        attributes: &Attributes,
        looks: Looks,
    ) -> Result<Applied, Errno> {
        let mut applied = Applied::default();
        let stat = fs::fstat(&fd)?;
        let owners = (stat.st_uid, stat.st_gid);
        self.own(owners, attributes, &mut applied, |user, group| {
            fs::fchown(&fd, user, group)
        })?;
        self.set_xattrs(&fd, &stat, attributes, looks.mode, &mut applied)?;
        set_mode(&fd, attributes.special | looks.mode, &mut applied)?;
        if sys::mtime_of(&fs::fstat(&fd)?) != looks.mtime_ns {
            let set = fs::futimens(&fd, &sys::mtime(looks.mtime_ns));
            applied.note(Aspect::Time, set)?;
            if sys::mtime_of(&fs::fstat(&fd)?) != looks.mtime_ns {
                // Some file systems know no fractions of a second.
                applied.lost.add(Aspect::Time);
            }
        }
        Ok(applied)
    }

    /// Gives an entry that belongs to some user and group its owner and group by `chown`.
    pub(crate) fn own(
        &self,
        (user, group): (u32, u32),
        attributes: &Attributes,
        applied: &mut Applied,
        chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut set = |aspect, user: Option<u32>, group: Option<u32>| {
            let done = chown(user.map(Uid::from_raw), group.map(Gid::from_raw));
            applied.note(aspect, done)
        };
        // The group first: the owner may not be ours to change it afterwards.
        let (wanted_user, wanted_group) =
            (self.user(attributes.owner), self.group(attributes.group));
        if group != wanted_group {
            set(Aspect::Group, None, Some(wanted_group))?;
        }
        if user != wanted_user {
            set(Aspect::Owner, Some(wanted_user), None)?;
        }
        Ok(())
    }

    /// Sets the extended attributes that differ, and removes those that the source does not have.
    fn set_xattrs(
        &self,
        fd: impl AsFd,
        stat: &Stat,
        attributes: &Attributes,
        mode: u16,
        applied: &mut Applied,
    ) -> Result<(), Errno> {
        let wanted: Vec<Xattr> = attributes
            .xattrs
            .iter()
            .filter_map(|xattr| self.here(xattr, mode))
            .collect();
        let Some(found) = list(&fd)? else {
            for xattr in &wanted {
                applied.lost.add(aspect_of(&xattr.name));
            }
            return Ok(());
        };
        let directory = sys::type_of(stat) == FileType::Directory;
        let excess = found
            .iter()
            .filter(|name| is_kept(name, directory))
            .filter(|name| wanted.iter().all(|xattr| xattr.name != **name));
        let mut writable = false;
        for name in excess {
            allow_writing(&fd, &mut writable, applied)?;
            let removed = match fs::fremovexattr(&fd, name.as_slice()) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            };
            applied.note(aspect_of(name), removed)?;
        }
        for xattr in &wanted {
            if found.contains(&xattr.name) && get(&fd, &xattr.name)?.as_ref() == Some(&xattr.value)
            {
                continue;
            }
            allow_writing(&fd, &mut writable, applied)?;
            let (name, value) = (xattr.name.as_slice(), xattr.value.as_slice());
            let set = fs::fsetxattr(&fd, name, value, XattrFlags::empty());
            applied.note(aspect_of(name), set)?;
        }
        Ok(())
    }

    /// An attribute as it is here: access control lists name other numbers, and agree with the mode.
    fn here(&self, xattr: &Xattr, mode: u16) -> Option<Xattr> {
        if !xattr.is_acl() {
            return Some(xattr.clone());
        }
        let acl = Acl::decode(&xattr.value)?;
        let mut acl = acl.renumbered(|id| self.user(id), |id| self.group(id));
        if xattr.name == ACCESS_ACL {
            if acl.entries().len() == MODE_ENTRIES {
                // The kernel makes a mode of it, and keeps no list.
                return None;
            }
            acl = acl.with_mode(mode);
        }
        Some(Xattr {
            name: xattr.name.clone(),
            value: acl.encode(),
        })
    }
}

impl Applied {
    /// Takes note of what came of setting an aspect.
    fn note(&mut self, aspect: Aspect, done: Result<(), Errno>) -> Result<(), Errno> {
        match done {
            Ok(()) => self.changed = true,
            // We may not, the file system has no such thing, or not so much of it: an extended attribute that
            // is too long for a file system means no space on some.
            Err(
                Errno::PERM
                | Errno::ACCESS
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::INVAL
                | Errno::OVERFLOW
                | Errno::TOOBIG
                | Errno::RANGE
                | Errno::NOSPC,
            ) => self.lost.add(aspect),
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}

fn aspect_of(xattr: &[u8]) -> Aspect {
    match xattr {
        ACCESS_ACL | DEFAULT_ACL => Aspect::AccessLists,
        _ => Aspect::ExtendedAttributes,
    }
}

/// Lets the owner write to an entry, if that is us and its mode forbids it: attributes of users can be
/// set by those alone who could. The mode is set afterwards.
fn allow_writing(fd: impl AsFd, writable: &mut bool, applied: &mut Applied) -> Result<(), Errno> {
    if std::mem::replace(writable, true) || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let stat = fs::fstat(&fd)?;
    let mode = sys::full_mode_of(&stat);
    if mode & 0o200 == 0 && stat.st_uid == rustix::process::geteuid().as_raw() {
        fs::fchmod(&fd, sys::full_mode(mode | 0o200))?;
        applied.changed = true;
    }
    Ok(())
}

/// Sets a mode, and finds out whether the kernel took setgid away from it.
fn set_mode(fd: impl AsFd, mode: u16, applied: &mut Applied) -> Result<(), Errno> {
    if sys::full_mode_of(&fs::fstat(&fd)?) == mode {
        return Ok(());
    }
    let set = fs::fchmod(&fd, sys::full_mode(mode));
    applied.note(Aspect::Mode, set)?;
    if mode & SPECIAL_MASK & !sys::full_mode_of(&fs::fstat(&fd)?) != 0 {
        applied.lost.add(Aspect::SpecialBits);
    }
    Ok(())
}
