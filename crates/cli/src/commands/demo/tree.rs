//! A tree to cast, and a look at its copies that owes nothing to the code that made them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use outpour_core::text::escape;

/// How many differences between two trees are listed.
const DIFFERENCES_MAX: usize = 10;

/// Files of the full tree: how many, and the bytes of each. Together a little over 66 MB, as a
/// model comes: a few large files and many small ones.
const FULL: [(usize, usize); 4] = [(1, 40_000_000), (2, 8_000_001), (50, 200_000), (100, 4_000)];

/// Files of the short one, some 9 MB.
const SHORT: [(usize, usize); 4] = [(1, 5_000_000), (2, 1_000_001), (10, 150_000), (40, 4_000)];

/// Makes a tree of seeded random files with all that a tree may hold: directories in directories,
/// an empty one, an empty file, a program, a link.
///
/// # Errors
/// If the files cannot be written.
pub(super) fn make(root: &Path, seed: u64, short: bool) -> io::Result<()> {
    fs::create_dir(root)?;
    let groups = if short { SHORT } else { FULL };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    let mut random = hasher.finalize_xof();
    let mut buffer = vec![0; 1 << 16];
    for (group, (count, bytes)) in groups.into_iter().enumerate() {
        for n in 0..count {
            let directory = root
                .join(format!("part{group}"))
                .join(format!("{:02}", n % 40));
            fs::create_dir_all(&directory)?;
            let mut file = BufWriter::new(File::create(directory.join(format!("{n}.bin")))?);
            let mut left = bytes;
            while left > 0 {
                let chunk = buffer.get_mut(..left.min(1 << 16)).unwrap_or_default();
                random.fill(chunk);
                file.write_all(chunk)?;
                left -= chunk.len();
            }
            file.flush()?;
        }
    }
    fs::create_dir(root.join("empty"))?;
    fs::write(root.join("nothing"), "")?;
    let program = root.join("run.sh");
    fs::write(&program, "#!/bin/sh\necho hello\n")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    symlink("part0/00/0.bin", root.join("latest"))
}

/// What stands at one path of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    File {
        bytes: u64,
        mode: u32,
        hash: [u8; 32],
    },
    Link(PathBuf),
    Other,
}

/// Everything in a tree, by path.
#[derive(Debug, Default)]
pub(super) struct Listing {
    entries: BTreeMap<PathBuf, Entry>,
}

/// Reads a tree to its last byte.
///
/// # Errors
/// If something in it cannot be read.
pub(super) fn listing(root: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let found = if kind.is_dir() {
                pending.push(path.clone());
                Entry::Directory
            } else if kind.is_symlink() {
                Entry::Link(fs::read_link(&path)?)
            } else if kind.is_file() {
                let meta = entry.metadata()?;
                let mut hasher = blake3::Hasher::new();
                io::copy(&mut File::open(&path)?, &mut hasher)?;
                let hash = *hasher.finalize().as_bytes();
                Entry::File {
                    bytes: meta.len(),
                    mode: meta.permissions().mode() & 0o777,
                    hash,
                }
            } else {
                Entry::Other
            };
            let path = path.strip_prefix(root).map(Path::to_owned).unwrap_or(path);
            listing.entries.insert(path, found);
        }
    }
    Ok(listing)
}

impl Listing {
    /// How many files the tree has.
    pub(super) fn files(&self) -> usize {
        self.entries
            .values()
            .filter(|entry| matches!(entry, Entry::File { .. }))
            .count()
    }

    /// The bytes of all files together.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |entry: &Entry| match entry {
            Entry::File { bytes, .. } => *bytes,
            _ => 0,
        };
        self.entries.values().map(bytes).sum()
    }

    /// What a copy has otherwise than this tree, the first few of it.
    pub(super) fn differences(&self, copy: &Self) -> Vec<String> {
        let wrong = self.entries.iter().filter_map(|(path, entry)| {
            let shown = path.display().to_string();
            let shown = escape(&shown);
            match copy.entries.get(path) {
                Some(same) if same == entry => None,
                Some(_) => Some(format!("{shown}: differs")),
                None => Some(format!("{shown}: missing")),
            }
        });
        let extra = copy
            .entries
            .keys()
            .filter(|path| !self.entries.contains_key(*path));
        let extra =
            extra.map(|path| format!("{}: was never cast", escape(&path.display().to_string())));
        wrong.chain(extra).take(DIFFERENCES_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_tree_is_the_same_for_a_seed_and_every_change_is_seen() {
        let place = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| place.path().join(name));
        make(&a, 1, true).unwrap();
        make(&b, 1, true).unwrap();
        make(&c, 2, true).unwrap();
        let list = |root: &Path| listing(root).unwrap();
        let source = list(&a);
        assert_eq!(source.files(), 55);
        assert!(source.bytes() > 8_000_000);
        assert!(source.differences(&list(&b)).is_empty());
        assert!(source.differences(&list(&c)).len() > 1);

        let path = b.join("part1/00/0.bin");
        let mut bytes = fs::read(&path).unwrap();
        bytes[500_000] ^= 1;
        fs::write(&path, &bytes).unwrap();
        fs::remove_dir(b.join("empty")).unwrap();
        fs::write(b.join("more"), "x").unwrap();
        fs::set_permissions(b.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::remove_file(b.join("latest")).unwrap();
        symlink("elsewhere", b.join("latest")).unwrap();
        assert_eq!(
            source.differences(&list(&b)),
            [
                "empty: missing",
                "latest: differs",
                "part1/00/0.bin: differs",
                "run.sh: differs",
                "more: was never cast"
            ]
        );
    }

    #[test]
    fn the_full_tree_is_at_least_64_mb() {
        let bytes: usize = FULL.iter().map(|(count, bytes)| count * bytes).sum();
        assert!(bytes >= 64_000_000);
    }
}
