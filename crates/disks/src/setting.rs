//! What a run begins with: where things are, how a disk behaves, what is on it, how the store works.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::check::Before;
use super::dice::Dice;
use super::disk::{Disk, Features, Inode, ROOT};
use super::faults::Fault;
use super::object::{Item, Object, What};
use crate::claim::{Claim, Intent, Shape};
use crate::destination::{Destination, DestinationOptions, Keep};
use crate::{Error, Roots};

/// Where everything is.
pub(crate) const HOME: &[u8] = b"/home/data";
/// Where the object goes.
pub(crate) const TO: &[u8] = b"/home/data/to";
/// What spoils bytes or says what is not so.
pub(crate) const TROUBLE: [Fault; 8] = [
    Fault::Call,
    Fault::Full,
    Fault::Sync,
    Fault::SyncFull,
    Fault::Background,
    Fault::Lie,
    Fault::Rot,
    Fault::Misread,
];

/// [`TO`].
pub(crate) fn path() -> &'static Path {
    Path::new("/home/data/to")
}

/// The root beneath which it is.
pub(crate) fn roots() -> Result<Roots, Error> {
    Roots::open(&[PathBuf::from("/home/data")])
}

/// Opens the destination on this thread's disk, beneath the root if it is `confined`.
pub(crate) fn open(
    object: &Object,
    options: &DestinationOptions,
    confined: bool,
) -> Result<Destination, Error> {
    let intent = Intent {
        object: object.manifest.id(),
        shape: Shape::of(&object.manifest),
        label: "cast".to_owned(),
        party: None,
    };
    let roots = confined.then(roots).transpose()?;
    Claim::take(path(), roots.as_ref(), intent)?.open(object.manifest.clone(), options.clone())
}

/// The directory of the state of what goes there.
pub(crate) fn state(object: &Object) -> Vec<u8> {
    match object.is_tree() {
        true => [TO, b"/.outpour"].concat(),
        false => [HOME, b"/.outpour"].concat(),
    }
}

pub(crate) fn features(dice: &mut Dice) -> Features {
    Features {
        journal: dice.once_in(2),
        allocates: !dice.once_in(4),
        leases: !dice.once_in(3),
        direct: dice.once_in(2),
        step_ns: *dice.one(&[1, 4_000_000, 1_000_000_000]),
        stale: dice.once_in(2),
        user: *dice.one(&[0, 1000]),
        umask: *dice.one(&[0o022, 0o077, 0]),
    }
}

pub(crate) fn options(dice: &mut Dice) -> DestinationOptions {
    DestinationOptions {
        threads: std::num::NonZero::<usize>::MIN,
        sync_bytes: *dice.one(&[1, 4000, u64::MAX]),
        sync_files: *dice.one(&[1, 10, usize::MAX]),
        sync_after: *dice.one(&[
            Duration::ZERO,
            Duration::from_millis(5),
            Duration::from_secs(1 << 30),
        ]),
        work: Arc::default(),
        verify_after: dice.once_in(4),
        keep: match dice.once_in(12) {
            true => Keep::Blocks,
            false => Keep::Files,
        },
    }
}

fn dir(name: &[u8]) -> Item {
    Item {
        name: name.to_vec(),
        mtime: 1,
        what: What::Dir {
            mode: 0o755,
            items: Vec::new(),
        },
    }
}

fn file(name: &[u8]) -> Item {
    Item {
        name: name.to_vec(),
        mtime: 2,
        what: What::File {
            mode: 0o644,
            data: b"of others".to_vec(),
        },
    }
}

/// Makes the directories above, and files of others in them; returns both, the outer one first.
fn ground(disk: &mut Disk) -> (Inode, Inode) {
    let home = disk.plant(ROOT, &dir(b"home"), false);
    let data = disk.plant(home, &dir(b"data"), false);
    disk.plant(home, &file(b"other"), true);
    disk.plant(data, &file(b"other"), true);
    (home, data)
}

/// Puts a whole object on the disk.
pub(crate) fn supply(disk: &mut Disk, object: &Object) {
    let (_, data) = ground(disk);
    if object.is_tree() {
        let to = disk.plant(data, &dir(b"to"), false);
        for item in &object.items {
            disk.plant(to, item, false);
        }
    } else if let Some(item) = object.items.first() {
        disk.plant(data, item, false);
    }
    disk.settle();
}

/// Where that is.
pub(crate) fn supplied(object: &Object) -> PathBuf {
    match object.items.first() {
        Some(item) if !object.is_tree() => {
            let name = OsStr::from_bytes(&item.name);
            path().with_file_name(name)
        }
        _ => path().to_path_buf(),
    }
}

/// Puts on the disk what is there before a cast.
pub(crate) fn furnish(disk: &mut Disk, object: &Object, dice: &mut Dice) -> Before {
    let (home, data) = ground(disk);
    if dice.once_in(2) {
        let there = match dice.once_in(2) {
            true => object.items.clone(),
            false => object.other(dice).items,
        };
        if object.is_tree() {
            let to = disk.plant(data, &dir(b"to"), false);
            for item in there {
                if !dice.once_in(3) && fits(&item, object) {
                    disk.plant(to, &item, false);
                }
            }
            disk.plant(to, &file(b"zz"), true);
        } else if let Some(item) = there.first() {
            let name = b"to".to_vec();
            disk.plant(
                data,
                &Item {
                    name,
                    ..item.clone()
                },
                false,
            );
        }
    }
    disk.settle();
    disk.nodes[home].foreign = true;
    places(disk, object)
}

/// Whether what is there does not stand in the way.
fn fits(item: &Item, object: &Object) -> bool {
    let is_dir = |item: &Item| matches!(item.what, What::Dir { .. });
    let mut items = object.items.iter();
    let wanted = items.find(|wanted| wanted.name == item.name);
    wanted.is_none_or(|wanted| is_dir(wanted) == is_dir(item))
}

/// The inode of each entry.
pub(crate) fn places(disk: &Disk, object: &Object) -> Before {
    let entries = 0..object.entries.len();
    entries
        .map(|entry| disk.find(&[TO, &object.path(entry)].concat()))
        .collect()
}
