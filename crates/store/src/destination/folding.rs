//! Names that become one on the file system of a destination: by case, or by how Unicode writes them.
//!
//! Two such entries would overwrite each other. Whether a file system folds names, and which, depends on
//! its sort, on how it was made and mounted, and with ext4 on the directory. So names that might fold
//! are tried in the state directory, and only if the object has some.

use outpour_core::manifest::{Content, EntryId, Manifest, escape};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use unicase::UniCase;
use unicode_normalization::UnicodeNormalization;

use crate::error::Error;
use crate::fs::{self, AsFd, BorrowedFd};
use crate::place::Place;
use crate::state::State;
use crate::sys;

/// The directory in the state in which names are tried.
const TRIAL: &str = "names";

/// How many names are tried: a file system that folds none of so many folds none.
const NAMES_MAX: usize = 4096;

/// What Linux says of a directory that folds case.
const CASEFOLD: u32 = 0x4000_0000;

/// Refuses an object of which the place's file system would make one name of two in a directory.
pub(super) fn check(place: &Place, state: &State, manifest: &Manifest) -> Result<(), Error> {
    let groups = groups(manifest);
    if groups.is_empty() {
        return Ok(());
    }
    let make = Error::at(|| state.path(), "create a directory");
    let tried = try_names(state.dir(), manifest, &groups).map_err(make)?;
    let folding = tried.or_else(|| {
        let mut folding = groups
            .iter()
            .filter(|group| is_folding(place, manifest, group));
        // One of them is as good as the other.
        folding.find_map(|group| group.first_chunk().copied())
    });
    folding.map_or(Ok(()), |[one, other]| {
        Err(Error::Folds {
            path: place.path().to_path_buf(),
            one: manifest.path_shown(one),
            other: escape(manifest.entry(other).name),
        })
    })
}

/// Entries of one directory whose names are the same but for case and for how Unicode writes them: groups
/// of at least two.
fn groups(manifest: &Manifest) -> Vec<Vec<EntryId>> {
    let mut keys: Vec<(Option<EntryId>, u64, EntryId)> = manifest
        .entries()
        .map(|entry| (entry.parent, hash(&folded(entry.name)), entry.id))
        .collect();
    keys.sort_unstable();
    let mut left = NAMES_MAX;
    let alike = keys.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1));
    let alike = alike.filter(|group| group.len() > 1).map_while(|group| {
        let group = group.get(..left).unwrap_or(group);
        left -= group.len();
        // Hashes that are the same by chance do no harm: names are tried.
        (group.len() > 1).then(|| group.iter().map(|key| key.2).collect())
    });
    alike.collect()
}

fn hash(name: &[u8]) -> u64 {
    let hash = blake3::hash(name);
    let first = hash.as_bytes().first_chunk().copied();
    u64::from_le_bytes(first.unwrap_or_default())
}

/// A name without what any file system is known to fold: case, composed or not, characters that are
/// not seen. Bytes that are no text stay.
fn folded(name: &[u8]) -> Vec<u8> {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    let mut folded = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let seen = chunk.valid().chars().filter(|c| !is_ignored(*c));
        let text = UniCase::unicode(seen.nfd().collect::<String>()).to_folded_case();
        let text: String = text.nfd().collect();
        folded.extend_from_slice(text.as_bytes());
        folded.extend_from_slice(chunk.invalid());
    }
    folded
}

/// Characters that are there to be passed over: soft hyphens, joiners, marks of direction, selectors of
/// variants.
const fn is_ignored(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Makes files of such names, and returns two that the file system makes one of.
fn try_names(
    state: impl AsFd,
    manifest: &Manifest,
    groups: &[Vec<EntryId>],
) -> Result<Option<[EntryId; 2]>, Errno> {
    match fs::mkdirat(&state, TRIAL, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let dir = sys::open_dir(&state, TRIAL.as_bytes())?;
    let clear = || -> Result<(), Errno> {
        for name in fs::names(&dir)? {
            sys::gone_is_fine(fs::unlinkat(&dir, name, AtFlags::empty()))?;
        }
        Ok(())
    };
    let mut folds = None;
    for group in groups {
        clear()?;
        folds = try_group(dir.as_fd(), manifest, group)?;
        if folds.is_some() {
            break;
        }
    }
    clear()?;
    fs::unlinkat(&state, TRIAL, AtFlags::REMOVEDIR)?;
    Ok(folds)
}

/// Two names of a group that are one in an empty directory.
fn try_group(
    dir: BorrowedFd<'_>,
    manifest: &Manifest,
    group: &[EntryId],
) -> Result<Option<[EntryId; 2]>, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut made: Vec<(u64, EntryId)> = Vec::new();
    for id in group {
        let name = manifest.entry(*id).name;
        match fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => made.push((fs::fstat(&file)?.st_ino, *id)),
            Err(Errno::EXIST) => {
                let found = sys::lstat(dir, name)?.map(|stat| stat.st_ino);
                let first = made.iter().find(|(ino, _)| Some(*ino) == found);
                let first = first.or_else(|| made.first());
                return Ok(first.map(|(_, first)| [*first, *id]));
            }
            // A name that this file system does not take: that is said when it is used.
            Err(Errno::INVAL | Errno::ILSEQ | Errno::NAMETOOLONG | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

/// Whether the directory of a group is there and folds names, though others of the file system do not.
fn is_folding(place: &Place, manifest: &Manifest, group: &[EntryId]) -> bool {
    let Some(first) = group.first() else {
        return false;
    };
    let parent = manifest.entry(*first).parent;
    let is_dir = |id| matches!(manifest.entry(id).content, Content::Directory { .. });
    debug_assert!(parent.is_none_or(is_dir));
    let flags = place
        .dir(manifest, parent)
        .and_then(|dir| fs::ioctl_getflags(dir.as_fd()));
    flags.is_ok_and(|flags| flags.bits() & CASEFOLD != 0)
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_core::Bytes;
    use outpour_core::manifest::{BlockSize, Builder, Kind};

    use super::*;

    #[test]
    fn what_file_systems_fold_is_folded() {
        for (one, other) in [
            ("README", "ReadMe"),
            ("Stra\u{df}e", "STRASSE"),
            ("caf\u{e9}", "cafe\u{301}"),
            ("CAF\u{c9}", "cafe\u{301}"),
            ("\u{3a3}\u{3c2}", "\u{3c3}\u{3c3}"),
            ("\u{212b}", "\u{e5}"),
            ("so\u{ad}ft", "soft"),
        ] {
            let (one, other) = (folded(one.as_bytes()), folded(other.as_bytes()));
            assert_eq!(one, other);
        }
        for (one, other) in [("a", "b"), ("a", "\u{e4}"), ("\u{131}", "i"), ("a", "a ")] {
            assert_ne!(folded(one.as_bytes()), folded(other.as_bytes()));
        }
        assert_eq!(folded(b"A\xffB\xc3"), b"a\xffb\xc3");
        assert_ne!(folded(b"\xff"), folded(b"\xfe"));
    }

    #[test]
    fn only_names_of_one_directory_are_compared() {
        let file = Content::File {
            mode: 0o644,
            size: Bytes(0),
        };
        let dir = Content::Directory { mode: 0o755 };
        let mut builder = Builder::new(Kind::Tree { mode: 0o755 }).unwrap();
        for (name, content) in [(&b"A"[..], file), (b"B", dir)] {
            builder.add(name, 0, content).unwrap();
        }
        for name in [&b"X"[..], b"a", b"x"] {
            builder.add(name, 0, file).unwrap();
        }
        builder.leave().unwrap();
        for name in [&b"C"[..], b"b", b"x"] {
            builder.add(name, 0, file).unwrap();
        }
        let layout = builder.finish(BlockSize::Given(1024)).unwrap();
        let manifest = Manifest::new(layout, Vec::new()).unwrap();
        let shown = |group: Vec<EntryId>| {
            let paths = group.iter().map(|id| manifest.path_shown(*id));
            paths.collect::<Vec<_>>()
        };
        let mut found: Vec<_> = groups(&manifest).into_iter().map(shown).collect();
        found.sort_unstable();
        assert_eq!(found, [["B", "b"], ["B/X", "B/x"]]);
    }
}
