//! What is cast, and how a copy is compared with it.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// The block size of every cast here.
pub(crate) const BLOCK: u64 = 128 << 10;
const PAGE: usize = 4096;

/// A tree, and perhaps an older version of it that is at the destination before.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) name: &'static str,
    pub(crate) new: PathBuf,
    pub(crate) old: Option<PathBuf>,
    /// What its files hold, in bytes.
    pub(crate) size: u64,
    /// What of it is copied from the old version before anything is received, in bytes.
    pub(crate) copied: u64,
}

/// What is at a destination before a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    /// The older version of the object.
    Old,
}

/// Files whose every page says whose it is.
fn write_file(path: &Path, len: u64, version: impl Fn(u64) -> u8) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let name: u32 = path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(7, |sum: u32, byte| {
            sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
        });
    let mut page: Vec<u8> = (0..PAGE).map(|n| (n * n / 7) as u8).collect();
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    for start in (0..len).step_by(PAGE) {
        page[..4].copy_from_slice(&name.to_le_bytes());
        page[4..12].copy_from_slice(&start.to_le_bytes());
        page[12] = version(start / BLOCK);
        let rest = (len - start).min(PAGE as u64) as usize;
        // The ends of short files differ, too.
        page[rest - 1] ^= version(start / BLOCK);
        file.write_all(&page[..rest]).unwrap();
        page[rest - 1] ^= version(start / BLOCK);
    }
    file.flush().unwrap();
}

impl Object {
    /// Many small files and a link.
    pub(crate) fn small(dir: &Path, files: u64) -> Self {
        let new = dir.join("small");
        for n in 0..files {
            let path = new.join(format!("{}/{n}", n % 13));
            write_file(&path, 1 + n * 7919 % 16000, |_| 1);
        }
        symlink("0/0", new.join("link")).unwrap();
        Self::of("small", new, None, 0)
    }

    pub(crate) fn large(dir: &Path, name: &'static str, len: u64) -> Self {
        let new = dir.join(name);
        write_file(&new.join("data"), len, |_| 1);
        Self::of(name, new, None, 0)
    }

    /// Large files of which every third block is as before, and small ones that are new all of them.
    pub(crate) fn update(dir: &Path, files: u64, len: u64) -> Self {
        let (new, old) = (dir.join("update"), dir.join("update-old"));
        let mut copied = 0;
        for n in 0..files {
            let name = format!("large/{n}");
            let is_kept = |block: u64| block % 3 == n % 3;
            write_file(
                &new.join(&name),
                len,
                |block| if is_kept(block) { 1 } else { 2 },
            );
            write_file(&old.join(&name), len, |_| 1);
            // What a page says of its file depends on where that is; both have to say the same.
            restamp(&new.join(&name), &old.join(&name));
            copied += (0..len / BLOCK).filter(|block| is_kept(*block)).count() as u64 * BLOCK;
        }
        for n in 0..300 {
            let name = format!("small/{n}");
            write_file(&new.join(&name), 100 + n * 37, |_| 2);
            write_file(&old.join(&name), 90 + n * 31, |_| 1);
        }
        Self::of("update", new, Some(old), copied)
    }

    fn of(name: &'static str, new: PathBuf, old: Option<PathBuf>, copied: u64) -> Self {
        let sizes = files(&new).into_iter().map(|file| size(&new.join(file)));
        let size = sizes.sum();
        Self {
            name,
            new,
            old,
            size,
            copied,
        }
    }

    /// Puts the older version at a place, if there is one; says what is there then.
    pub(crate) fn put_old(&self, copy: &Path) -> Before {
        let Some(old) = &self.old else {
            return Before::Nothing;
        };
        for name in files(old) {
            let to = copy.join(&name);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(old.join(&name), to).unwrap();
        }
        Before::Old
    }

    /// Asserts that a copy has every file of the object, with its bytes.
    #[track_caller]
    pub(crate) fn assert_whole(&self, copy: &Path, when: &str) {
        assert!(copy.is_dir(), "{when}: there is no {}", copy.display());
        for name in files(&self.new) {
            let (right, found) = (self.new.join(&name), copy.join(&name));
            assert!(
                is_same(&right, &found),
                "{when}: {} is wrong",
                found.display()
            );
        }
    }

    /// Asserts that whatever has its final name is that of the object or of what was there `before`, as a
    /// whole, and that nothing of that is gone. Says how many are of the object.
    #[track_caller]
    pub(crate) fn assert_nothing_half(&self, copy: &Path, before: Before, when: &str) -> usize {
        let mut new = 0;
        let old = self.old.as_ref().filter(|_| before == Before::Old);
        for name in files(&self.new) {
            let found = copy.join(&name);
            if is_same(&self.new.join(&name), &found) {
                new += 1;
                continue;
            }
            let exists = fs::symlink_metadata(&found).is_ok();
            let is_old = old.is_some_and(|old| is_same(&old.join(&name), &found));
            assert!(
                is_old || old.is_none() && !exists,
                "{when}: {} {}",
                found.display(),
                match exists {
                    true => format!("has its name and other bytes: {}", self.pages(copy, &name)),
                    false => "is gone".to_owned(),
                }
            );
        }
        new
    }

    /// Whose pages a file has that should be one of the versions: ranges of pages, and what each is.
    fn pages(&self, copy: &Path, name: &Path) -> String {
        let read = |path: PathBuf| fs::read(path).map_err(|error| error.to_string());
        let found = match read(copy.join(name)) {
            Ok(found) => found,
            Err(error) => return error,
        };
        let new = read(self.new.join(name)).unwrap_or_default();
        let old = self.old.as_ref().map(|old| read(old.join(name)));
        let old = old.and_then(Result::ok).unwrap_or_default();
        let mut ranges: Vec<(usize, String)> = Vec::new();
        for (number, page) in found.chunks(PAGE).enumerate() {
            let (new, old) = (new.chunks(PAGE).nth(number), old.chunks(PAGE).nth(number));
            let whose = match page {
                _ if Some(page) == new && new == old => "both".to_owned(),
                _ if Some(page) == new => "new".to_owned(),
                _ if Some(page) == old => "old".to_owned(),
                _ if page.iter().all(|byte| *byte == 0) => "zero".to_owned(),
                _ => format!("{:02x?}", page.get(..16)),
            };
            if ranges.last().is_none_or(|(_, last)| *last != whose) {
                ranges.push((number, whose));
            }
        }
        format!(
            "{} of {} or {} bytes, {ranges:?}",
            found.len(),
            new.len(),
            old.len()
        )
    }
}

/// Lets the pages of one file say that they are of another one.
fn restamp(path: &Path, of: &Path) {
    let (file, of) = (
        File::options().write(true).open(path).unwrap(),
        File::open(of).unwrap(),
    );
    let mut name = [0; 4];
    of.read_exact_at(&mut name, 0).unwrap();
    for start in (0..size(path)).step_by(PAGE) {
        file.write_all_at(&name, start).unwrap();
    }
}

fn size(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |meta| if meta.is_file() { meta.len() } else { 0 })
}

/// The files and links beneath a directory, relative to it.
fn files(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut todo) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => todo.push(entry.path()),
                false => found.push(entry.path().strip_prefix(root).unwrap().to_path_buf()),
            }
        }
    }
    found
}

/// # Panics
/// If one of them is there and cannot be read: then nothing is known of its bytes.
#[track_caller]
fn is_same(a: &Path, b: &Path) -> bool {
    let (Ok(of_a), Ok(of_b)) = (fs::symlink_metadata(a), fs::symlink_metadata(b)) else {
        return false;
    };
    if of_a.is_symlink() || of_b.is_symlink() {
        return fs::read_link(a).ok() == fs::read_link(b).ok();
    }
    if !of_a.is_file() || !of_b.is_file() || of_a.len() != of_b.len() {
        return false;
    }
    let open = |path: &Path| {
        let file = File::open(path);
        file.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (a, b) = (open(a), open(b));
    let len = of_a.len();
    let share = len.clamp(1, 1 << 20) as usize;
    let (mut of_a, mut of_b) = (vec![0; share], vec![0; share]);
    (0..len).step_by(share).all(|at| {
        let share = share.min((len - at) as usize);
        let (of_a, of_b) = (&mut of_a[..share], &mut of_b[..share]);
        a.read_exact_at(of_a, at).unwrap();
        b.read_exact_at(of_b, at).unwrap();
        of_a == of_b
    })
}
