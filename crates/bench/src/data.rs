//! Data to measure with, made on the spot from a seed, and an independent look at copies.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use outpour_core::Bytes;

/// The seed of everything that is made.
const SEED: u64 = 1;

/// Files in one directory of a tree.
const DIRECTORY_FILES: usize = 500;

/// What is made or read at once.
const BUFFER: usize = 1 << 20;

/// Small files have at least this many bytes.
const SMALL_MIN: u64 = 1_000;

/// And fewer than this many more.
const SMALL_SPAN: u64 = 9_001;

/// Pseudo-random bytes named by `name`.
fn random(name: &str) -> blake3::OutputReader {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&SEED.to_le_bytes()).update(name.as_bytes());
    hasher.finalize_xof()
}

/// Makes a file of `size` pseudo-random bytes.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn file(path: &Path, size: Bytes) -> anyhow::Result<()> {
    let mut source = random("file").take(size.0);
    let mut file = File::create(path)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = source.read(&mut buffer)?;
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
            break;
        };
        file.write_all(chunk)
            .with_context(|| path.display().to_string())?;
    }
    Ok(file.sync_all()?)
}

/// Makes a tree of `files` small files, 1 to 10 kB each; returns what they hold together.
///
/// # Errors
/// If one cannot be written.
pub(crate) fn small_files(root: &Path, files: usize) -> anyhow::Result<Bytes> {
    let mut source = random("tree");
    let mut buffer = vec![0; (SMALL_MIN + SMALL_SPAN) as usize];
    let mut total = 0;
    for n in 0..files {
        let directory = root.join(format!("{:04}", n / DIRECTORY_FILES));
        if n % DIRECTORY_FILES == 0 {
            fs::create_dir_all(&directory)?;
        }
        let mut draw = [0; 8];
        source.fill(&mut draw);
        let size = SMALL_MIN + u64::from_le_bytes(draw) % SMALL_SPAN;
        let content = buffer.get_mut(..size as usize).unwrap_or_default();
        source.fill(content);
        let path = directory.join(format!("{n:06}.bin"));
        fs::write(&path, content).with_context(|| path.display().to_string())?;
        total += size;
    }
    sync();
    Ok(Bytes(total))
}

/// Makes a file of `size` zero bytes that takes no space.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn sparse(path: &Path, size: Bytes) -> anyhow::Result<()> {
    let file = File::create(path)?;
    file.set_len(size.0)
        .with_context(|| path.display().to_string())
}

/// Makes a file of `size` zero bytes that takes all of its space, and memory for them.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn zeros(path: &Path, size: Bytes) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    let zeros = vec![0; BUFFER];
    let mut left = size.0;
    while left > 0 {
        let chunk = zeros.get(..left.min(BUFFER as u64) as usize);
        let written = file.write(chunk.unwrap_or_default());
        left -= written.with_context(|| path.display().to_string())? as u64;
    }
    Ok(())
}

/// Reads a file to its end, so that it is in the page cache.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn warm(path: &Path) -> anyhow::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BUFFER];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Waits until the disk has what was written, so that one measurement does not pay for another.
pub(crate) fn sync() {
    rustix::fs::sync();
}

/// The BLAKE3 hash of a file, by the plain hasher from its first byte to its last.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn hash(path: &Path) -> anyhow::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = file.read(&mut buffer)?;
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
            return Ok(hasher.finalize());
        };
        hasher.update(chunk);
    }
}

/// Fails unless two trees hold the same files with the same bytes.
///
/// # Errors
/// If they differ, with the first difference.
pub(crate) fn same_tree(source: &Path, copy: &Path) -> anyhow::Result<()> {
    let (ours, theirs) = (files(source)?, files(copy)?);
    ensure!(
        ours == theirs,
        "{}: {} files, but the source has {}",
        copy.display(),
        theirs.len(),
        ours.len()
    );
    for path in &ours {
        let (left, right) = (source.join(path), copy.join(path));
        let same = fs::metadata(&left)?.len() == fs::metadata(&right)?.len()
            && hash(&left)? == hash(&right)?;
        ensure!(same, "{}: differs from its source", right.display());
    }
    Ok(())
}

/// The files of a tree by relative path, sorted.
fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut pending) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else if let Ok(path) = entry.path().strip_prefix(root) {
                found.push(path.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The middle one of some measurements; zero if there are none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn trees_are_repeatable_and_a_changed_byte_is_seen() {
        let place = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| place.path().join(name));
        let total = small_files(&a, 1_001).unwrap();
        assert_eq!(small_files(&b, 1_001).unwrap(), total);
        assert!((4_000_000..7_000_000).contains(&total.0), "{total}");
        same_tree(&a, &b).unwrap();
        let path = b.join("0002/001000.bin");
        let mut bytes = fs::read(&path).unwrap();
        bytes[7] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(
            same_tree(&a, &b)
                .unwrap_err()
                .to_string()
                .contains("001000.bin")
        );
        fs::remove_file(path).unwrap();
        assert!(same_tree(&a, &b).is_err());
    }

    #[test]
    fn a_file_has_the_size_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        file(&path, Bytes(3_000_001)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 3_000_001);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(hash(&path).unwrap(), blake3::hash(&bytes));
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
