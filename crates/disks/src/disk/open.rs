//! Descriptors, and what paths lead to.

use rustix::fs::{FlockOperation, Mode, OFlags, Stat, StatVfs, StatVfsMountFlags};
use rustix::io::Errno;

use super::{Descriptor, Disk, Inode, PAGE, ROOT, Sort};
use crate::simulated::faults::Fault;

/// How many links a path may lead through.
const LINKS_MAX: u32 = 8;
/// What the store takes for an ext4, and for a file system of which it knows nothing.
const EXT: i64 = 0xef53;
const OTHER: i64 = 0x9123_683e;
/// How many pages the disk says that it has.
const PAGES: u64 = 1 << 20;

const FILE_BITS: u32 = 0o100_000;
const DIR_BITS: u32 = 0o040_000;
const LINK_BITS: u32 = 0o120_000;

thread_local! {
    /// One of the host, as it cannot be made otherwise.
    static TEMPLATE: Stat = rustix::fs::stat("/").expect("there is a root");
}

/// What there is to know of a file, to be filled in.
pub(super) fn template() -> Stat {
    TEMPLATE.with(|stat| *stat)
}

/// What is to be opened, and how.
pub(crate) struct Open<'a> {
    dir: Option<u32>,
    path: &'a [u8],
    flags: OFlags,
    mode: Mode,
    /// Whether nothing outside of the directory may be reached, and no link may be on the way.
    pub(crate) confined: bool,
}

impl<'a> Open<'a> {
    pub(crate) const fn at(dir: Option<u32>, path: &'a [u8], flags: OFlags, mode: Mode) -> Self {
        Self {
            dir,
            path,
            flags,
            mode,
            confined: false,
        }
    }
}

/// Where a path leads.
pub(super) struct Way<'a> {
    pub(super) dir: Inode,
    /// The last name; none if the path ends in a directory by itself.
    pub(super) name: Option<&'a [u8]>,
    pub(super) to: Option<Inode>,
}

impl Disk {
    pub(crate) fn open(&mut self, open: Open<'_>) -> Result<u32, Errno> {
        let dir = open.dir.and_then(|dir| self.inode(dir).ok());
        let creates = open.flags.contains(OFlags::CREATE);
        let can: &[Fault] = match creates {
            true => &[Fault::Call, Fault::Full],
            false => &[Fault::Call],
        };
        self.call("open", (dir, open.path), can, |disk| disk.open_now(&open))
    }

    fn open_now(&mut self, open: &Open<'_>) -> Result<u32, Errno> {
        let flags = open.flags;
        let follow = !flags.contains(OFlags::NOFOLLOW);
        let from = self.from(open.dir)?;
        let way = self.walk(from, open.path, follow, open.confined)?;
        let to = match way.to {
            Some(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => return Err(Errno::EXIST),
            Some(to) => to,
            None if flags.contains(OFlags::CREATE) => {
                let name = way.name.ok_or(Errno::ISDIR)?;
                self.may(way.dir, 3)?;
                self.is_there(way.dir)?;
                self.group += 1;
                let mode = open.mode.bits() & 0o7777 & !self.features.umask;
                let made = self.add(Sort::File, mode, way.dir);
                self.nodes[made].names = 1;
                self.change_name(way.dir, name, Some(made));
                return Ok(self.descriptor(made, flags));
            }
            None => return Err(Errno::NOENT),
        };
        let path_only = flags.contains(OFlags::PATH);
        let (reads, writes) = access(flags);
        match self.nodes[to].sort {
            Sort::Link if !path_only || flags.contains(OFlags::DIRECTORY) => {
                return Err(Errno::LOOP);
            }
            Sort::File if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            Sort::Dir if writes => return Err(Errno::ISDIR),
            _ => {}
        }
        if flags.contains(OFlags::DIRECT) && !self.features.direct {
            return Err(Errno::INVAL);
        }
        if !path_only {
            self.may(to, u32::from(reads) << 2 | u32::from(writes) << 1)?;
            // A thread that syncs lets it go for whoever waits.
            self.nodes[to].lease = None;
            if flags.contains(OFlags::TRUNC) {
                self.set_len(to, 0);
            }
        }
        Ok(self.descriptor(to, flags))
    }

    fn descriptor(&mut self, to: Inode, flags: OFlags) -> u32 {
        let (reads, writes) = access(flags);
        let path = flags.contains(OFlags::PATH);
        self.put(Descriptor {
            to,
            reads: reads && !path,
            writes: writes && !path,
            path,
            past_memory: flags.contains(OFlags::DIRECT),
        })
    }

    fn put(&mut self, descriptor: Descriptor) -> u32 {
        self.nodes[descriptor.to].opens += 1;
        let free = self.descriptors.iter().position(Option::is_none);
        let at = free.unwrap_or(self.descriptors.len());
        if at == self.descriptors.len() {
            self.descriptors.push(None);
        }
        self.descriptors[at] = Some(descriptor);
        at as u32
    }

    pub(crate) fn duplicate(&mut self, fd: u32) -> Result<u32, Errno> {
        let to = self.inode(fd)?;
        self.call("duplicate", (Some(to), b""), &[], |disk| {
            let old = disk.descriptor_of(fd)?;
            let copy = Descriptor { ..*old };
            Ok(disk.put(copy))
        })
    }

    pub(crate) fn close(&mut self, fd: u32) {
        let Some(closed) = self.descriptors.get_mut(fd as usize).and_then(Option::take) else {
            return;
        };
        let node = &mut self.nodes[closed.to];
        node.opens -= 1;
        node.locks.retain(|(holder, _)| *holder != fd);
        if node.lease == Some(fd) {
            node.lease = None;
        }
        if node.opens == 0 && node.names == 0 {
            self.forget_inode(closed.to);
        }
    }

    /// Lets go of an inode that nobody can reach any more, but for what a power cut may bring back.
    pub(super) fn forget_inode(&mut self, inode: Inode) {
        let node = &mut self.nodes[inode];
        let data = std::mem::take(&mut node.data);
        node.dirty = 0;
        node.space = 0;
        for page in data.chunks(PAGE).filter(|_| self.features.stale) {
            self.old.push(page.to_vec());
        }
    }

    pub(super) fn descriptor_of(&self, fd: u32) -> Result<&Descriptor, Errno> {
        let slot = self.descriptors.get(fd as usize);
        slot.and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    pub(super) fn inode(&self, fd: u32) -> Result<Inode, Errno> {
        self.descriptor_of(fd).map(|open| open.to)
    }

    pub(super) fn from(&self, dir: Option<u32>) -> Result<Inode, Errno> {
        dir.map_or(Ok(ROOT), |dir| self.inode(dir))
    }

    // ---- paths

    /// Whether the user may do with an inode what the bits say, as those of a mode.
    pub(super) fn may(&self, inode: Inode, bits: u32) -> Result<(), Errno> {
        let own = self.nodes[inode].attributes.mode >> 6 & 7;
        match self.features.user == 0 || own & bits == bits {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    }

    /// A directory without a name takes no new ones.
    pub(super) fn is_there(&self, dir: Inode) -> Result<(), Errno> {
        match self.nodes[dir].names {
            0 => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    /// Goes a path from a directory on. The last link on it is followed if `follow` is set.
    pub(super) fn walk<'a>(
        &self,
        from: Inode,
        path: &'a [u8],
        follow: bool,
        confined: bool,
    ) -> Result<Way<'a>, Errno> {
        if path.is_empty() {
            // Only the descriptor itself, if it is of a link.
            return match self.nodes[from].sort {
                Sort::Link => Ok(Way {
                    dir: self.nodes[from].parent,
                    name: None,
                    to: Some(from),
                }),
                _ => Err(Errno::NOENT),
            };
        }
        if confined && path.starts_with(b"/") {
            return Err(Errno::XDEV);
        }
        let mut at = if path.starts_with(b"/") { ROOT } else { from };
        let mut way = Way {
            dir: at,
            name: None,
            to: Some(at),
        };
        let mut parts = path
            .split(|byte| *byte == b'/')
            .filter(|part| !matches!(*part, b"" | b"."))
            .peekable();
        while let Some(part) = parts.next() {
            if self.nodes[at].sort != Sort::Dir {
                return Err(Errno::NOTDIR);
            }
            self.may(at, 1)?;
            if part == b".." {
                if confined && at == from {
                    return Err(Errno::XDEV);
                }
                at = self.nodes[at].parent;
                way = Way {
                    dir: at,
                    name: None,
                    to: Some(at),
                };
                continue;
            }
            let found = self.nodes[at].entries.get(part).copied();
            let last = parts.peek().is_none();
            let found = match found {
                Some(link) if self.nodes[link].sort == Sort::Link && (!last || follow) => {
                    if confined {
                        return Err(Errno::LOOP);
                    }
                    self.follow(at, link, LINKS_MAX)?
                }
                found => found,
            };
            way = Way {
                dir: at,
                name: Some(part),
                to: found,
            };
            match found {
                Some(next) => at = next,
                None if last => return Ok(way),
                None => return Err(Errno::NOENT),
            }
        }
        Ok(way)
    }

    /// Where a link in a directory leads.
    fn follow(&self, dir: Inode, link: Inode, links: u32) -> Result<Option<Inode>, Errno> {
        if links == 0 {
            return Err(Errno::LOOP);
        }
        let target = &self.nodes[link].target;
        let way = self.walk(dir, target, false, false)?;
        match way.to {
            Some(next) if self.nodes[next].sort == Sort::Link => {
                self.follow(way.dir, next, links - 1)
            }
            found => Ok(found),
        }
    }

    // ---- what is known

    pub(crate) fn stat(&mut self, fd: u32) -> Result<Stat, Errno> {
        let inode = self.inode(fd)?;
        self.look(inode, b"")
    }

    pub(crate) fn stat_at(
        &mut self,
        dir: Option<u32>,
        path: &[u8],
        follow: bool,
    ) -> Result<Stat, Errno> {
        let from = self.from(dir)?;
        let to = self.walk(from, path, follow, false).map(|way| way.to);
        match to {
            Ok(Some(inode)) => self.look(inode, path),
            Ok(None) => self.look_in_vain(from, path, Errno::NOENT),
            Err(errno) => self.look_in_vain(from, path, errno),
        }
    }

    fn look(&mut self, inode: Inode, path: &[u8]) -> Result<Stat, Errno> {
        let can = [Fault::Call];
        let seen = self.call("stat", (Some(inode), path), &can, |disk| {
            let node = &disk.nodes[inode];
            let kind = match node.sort {
                Sort::File => FILE_BITS,
                Sort::Dir => DIR_BITS,
                Sort::Link => LINK_BITS,
            };
            let blocks = node.space.count_ones() * (PAGE as u32 / 512);
            Ok((kind | node.attributes.mode, blocks, node.ctime))
        });
        let (mode, blocks, ctime) = seen?;
        let (node, mut stat) = (&self.nodes[inode], self.template);
        let seconds = |time: i64| time.div_euclid(1_000_000_000);
        let rest = |time: i64| time.rem_euclid(1_000_000_000) as u64;
        stat.st_dev = 7;
        stat.st_ino = node.number;
        stat.st_nlink = node.names.into();
        stat.st_mode = mode;
        stat.st_uid = self.features.user;
        stat.st_size = match node.sort {
            Sort::File => node.data.len() as i64,
            Sort::Link => node.target.len() as i64,
            Sort::Dir => PAGE as i64,
        };
        stat.st_blocks = blocks.into();
        stat.st_mtime = seconds(node.attributes.mtime);
        stat.st_mtime_nsec = rest(node.attributes.mtime);
        stat.st_ctime = seconds(ctime);
        stat.st_ctime_nsec = rest(ctime);
        Ok(stat)
    }

    fn look_in_vain(&mut self, from: Inode, path: &[u8], errno: Errno) -> Result<Stat, Errno> {
        let can = [Fault::Call];
        let result: Result<(), Errno> = self.call("stat", (Some(from), path), &can, |_| Err(errno));
        Err(result.err().unwrap_or(errno))
    }

    pub(crate) fn kind(&mut self, fd: u32) -> Result<i64, Errno> {
        let inode = self.inode(fd)?;
        self.call("statfs", (Some(inode), b""), &[Fault::Call], |_| Ok(()))?;
        Ok(if self.features.journal { EXT } else { OTHER })
    }

    pub(crate) fn stat_vfs(&mut self, fd: u32) -> Result<StatVfs, Errno> {
        let inode = self.inode(fd)?;
        self.call("statvfs", (Some(inode), b""), &[Fault::Call], |_| Ok(()))?;
        let free = if self.full_until > self.calls {
            0
        } else {
            PAGES
        };
        Ok(StatVfs {
            f_bsize: PAGE as u64,
            f_frsize: PAGE as u64,
            f_blocks: PAGES,
            f_bfree: free,
            f_bavail: free,
            f_files: PAGES,
            f_ffree: free,
            f_favail: free,
            f_fsid: 0,
            f_flag: StatVfsMountFlags::empty(),
            f_namemax: 255,
        })
    }

    // ---- locks and leases

    pub(crate) fn lock(&mut self, fd: u32, operation: FlockOperation) -> Result<(), Errno> {
        let inode = self.inode(fd)?;
        let can = [Fault::Interrupted];
        let waits = operation == FlockOperation::LockExclusive;
        let can = if waits { &can[..] } else { &[] };
        self.call("lock", (Some(inode), b""), can, |disk| {
            let node = &mut disk.nodes[inode];
            let alone = match operation {
                FlockOperation::Unlock => {
                    node.locks.retain(|(holder, _)| *holder != fd);
                    return Ok(());
                }
                FlockOperation::LockExclusive | FlockOperation::NonBlockingLockExclusive => true,
                _ => false,
            };
            let others = node.locks.iter().filter(|(holder, _)| *holder != fd);
            let mut taken = others.map(|(_, other)| alone || *other);
            if taken.any(|taken| taken) {
                assert!(!waits, "it waits for a lock that it has itself");
                return Err(Errno::WOULDBLOCK);
            }
            node.locks.retain(|(holder, _)| *holder != fd);
            node.locks.push((fd, alone));
            Ok(())
        })
    }

    pub(crate) fn lease(&mut self, fd: u32) -> Result<(), Errno> {
        let inode = self.inode(fd)?;
        self.call("lease", (Some(inode), b""), &[], |disk| {
            let leases = disk.features.leases;
            let node = &mut disk.nodes[inode];
            if !leases || node.opens > 1 || node.lease.is_some() {
                return Err(Errno::AGAIN);
            }
            node.lease = Some(fd);
            Ok(())
        })
    }

    pub(crate) fn is_leased(&self, fd: u32) -> Result<bool, Errno> {
        let inode = self.inode(fd)?;
        Ok(self.nodes[inode].lease == Some(fd))
    }

    pub(crate) fn release(&mut self, fd: u32) -> Result<(), Errno> {
        let inode = self.inode(fd)?;
        let lease = &mut self.nodes[inode].lease;
        match *lease == Some(fd) {
            true => *lease = None,
            false => return Err(Errno::AGAIN),
        }
        Ok(())
    }
}

/// Whether a file is opened for reading, and for writing.
const fn access(flags: OFlags) -> (bool, bool) {
    if flags.contains(OFlags::RDWR) {
        (true, true)
    } else if flags.contains(OFlags::WRONLY) {
        (false, true)
    } else {
        (true, false)
    }
}
