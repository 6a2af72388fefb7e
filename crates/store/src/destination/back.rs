//! Reads everything back from the disk, past the page cache.

use outpour_core::manifest::{Content, Entry};
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use super::{Inner, Whereabouts};
use crate::error::{Damage, Error};
use crate::fs::{self, OwnedFd};
use crate::{sys, work};

/// Where reads that bypass the page cache begin and end in files and in memory.
const ALIGN: u64 = 4096;

/// How much is read at a time.
const PIECE: u64 = 1 << 20;

const _: () = assert!(ALIGN.is_power_of_two());
const _: () = assert!(PIECE.is_multiple_of(ALIGN));

impl Inner {
    /// Reads every file in its place from the disk and compares it with the manifest.
    pub(super) fn read_back(&self) -> Result<(), Error> {
        let files = self.manifest.entries();
        let files = files.filter(|entry| self.manifest.is_file(entry.id));
        let copies = self.copies().into_iter();
        let files: Vec<_> = files
            .map(|entry| (entry, entry))
            .chain(copies.map(|(copy, file)| (self.manifest.entry(copy), file)))
            .collect();
        work::spread(self.options.threads, &files, |(entry, file), buf| {
            self.read_file_back(entry, file, buf)
        })
    }

    /// Reads the file of an entry, which has to be a certain file of the object.
    fn read_file_back(
        &self,
        entry: &Entry<'_>,
        file: &Entry<'_>,
        buf: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let Content::File { size, .. } = file.content else {
            return Ok(());
        };
        debug_assert!(
            size.0 == 0 || self.whereabouts(file.id) == Whereabouts::Placed,
            "what is staged is not what was asked for"
        );
        let fd = self.open_past_cache(entry).map_err(self.gone(entry.id))?;
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        while at < size.0 {
            let piece = PIECE.min((size.0 - at).next_multiple_of(ALIGN));
            // Room to begin at an aligned address.
            sys::resize(buf, (piece + ALIGN) as usize);
            let start = buf.as_ptr().align_offset(ALIGN as usize);
            let piece = &mut buf[start..start + piece as usize];
            debug_assert_eq!(piece.as_ptr().addr() % ALIGN as usize, 0);
            debug_assert_eq!(piece.len() % ALIGN as usize, 0);
            let read = sys::pread_once(&fd, piece, at)
                .map_err(Error::at(|| self.path_of(entry.id), "read the file"))?;
            if read == 0 {
                break;
            }
            hasher.update(&piece[..read]);
            at += read as u64;
            self.options.work.add(read as u64);
        }
        if at == size.0 && self.manifest.file_hash(file.id) == Some(hasher.finalize()) {
            return Ok(());
        }
        Err(Error::Damaged {
            path: self.path_of(entry.id),
            damage: Damage::Disk,
        })
    }

    /// Opens a file in its place so that reading it reads the disk. File systems that cannot bypass
    /// the page cache are asked to forget what is in it.
    fn open_past_cache(&self, entry: &Entry<'_>) -> Result<OwnedFd, Errno> {
        let dir = self.place.dir(&self.manifest, entry.parent)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = self.place.name(entry);
        let fd = match fs::openat(&dir, name, flags | OFlags::DIRECT, Mode::empty()) {
            Err(Errno::INVAL) => fs::openat(&dir, name, flags, Mode::empty()),
            result => result,
        }?;
        // Some file systems take the flag and read through the page cache all the same.
        fs::fadvise(&fd, 0, None, Advice::DontNeed)?;
        Ok(fd)
    }
}
