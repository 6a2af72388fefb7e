//! Names: made, removed, changed and listed; and what belongs to inodes besides bytes.

use rustix::fs::{Access, Mode, Timestamps};
use rustix::io::Errno;

use super::{Disk, Inode, Sort};
use crate::simulated::faults::Fault;

/// What a call that makes something may say.
const MAKES: [Fault; 2] = [Fault::Call, Fault::Full];
const FAILS: [Fault; 1] = [Fault::Call];

impl Disk {
    pub(crate) fn make_dir(&mut self, dir: u32, path: &[u8], mode: Mode) -> Result<(), Errno> {
        let from = self.inode(dir)?;
        self.call("mkdir", (Some(from), path), &MAKES, |disk| {
            let mode = mode.bits() & 0o7777 & !disk.features.umask;
            let made = disk.make(from, path, Sort::Dir, mode)?;
            disk.nodes[made].names = 1;
            Ok(())
        })
    }

    pub(crate) fn make_link(&mut self, dir: u32, path: &[u8], to: &[u8]) -> Result<(), Errno> {
        let from = self.inode(dir)?;
        self.call("symlink", (Some(from), path), &MAKES, |disk| {
            let made = disk.make(from, path, Sort::Link, 0o777)?;
            disk.nodes[made].target = to.to_vec();
            Ok(())
        })
    }

    fn make(&mut self, from: Inode, path: &[u8], sort: Sort, mode: u32) -> Result<Inode, Errno> {
        let way = self.walk(from, path, false, false)?;
        let name = way.name.ok_or(Errno::EXIST)?;
        if way.to.is_some() {
            return Err(Errno::EXIST);
        }
        self.may(way.dir, 3)?;
        self.is_there(way.dir)?;
        self.group += 1;
        let made = self.add(sort, mode, way.dir);
        self.nodes[made].names = 1;
        self.change_name(way.dir, name, Some(made));
        Ok(made)
    }

    pub(crate) fn read_link(&mut self, dir: u32, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let from = self.inode(dir)?;
        self.call("readlink", (Some(from), path), &FAILS, |disk| {
            let found = disk.walk(from, path, false, false)?.to;
            let node = &disk.nodes[found.ok_or(Errno::NOENT)?];
            match node.sort {
                Sort::Link => Ok(node.target.clone()),
                _ => Err(Errno::INVAL),
            }
        })
    }

    pub(crate) fn unlink(&mut self, dir: u32, path: &[u8], is_dir: bool) -> Result<(), Errno> {
        let from = self.inode(dir)?;
        let name = if is_dir { "rmdir" } else { "unlink" };
        self.call(name, (Some(from), path), &FAILS, |disk| {
            let way = disk.walk(from, path, false, false)?;
            let found = way.to.ok_or(Errno::NOENT)?;
            let name = way.name.ok_or(Errno::INVAL)?;
            let node = &disk.nodes[found];
            match (node.sort, is_dir) {
                (Sort::Dir, false) => return Err(Errno::ISDIR),
                (Sort::File | Sort::Link, true) => return Err(Errno::NOTDIR),
                (Sort::Dir, true) if !node.entries.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
            disk.may(way.dir, 3)?;
            disk.group += 1;
            disk.change_name(way.dir, name, None);
            disk.one_name_less(found);
            Ok(())
        })
    }

    fn one_name_less(&mut self, inode: Inode) {
        let stamp = self.stamp();
        let node = &mut self.nodes[inode];
        node.names -= 1;
        node.ctime = stamp;
        if node.names == 0 && node.opens == 0 {
            self.forget_inode(inode);
        }
    }

    pub(crate) fn rename(
        &mut self,
        (from, name): (u32, &[u8]),
        (to, new): (u32, &[u8]),
        replace: bool,
    ) -> Result<(), Errno> {
        let (from, to) = (self.inode(from)?, self.inode(to)?);
        let about = if self.loud {
            let shown = (String::from_utf8_lossy(name), String::from_utf8_lossy(new));
            format!("{} -> {}/{}", shown.0, self.path_of(to), shown.1).into_bytes()
        } else {
            new.to_vec()
        };
        self.call("rename", (Some(from), &about), &MAKES, |disk| {
            let old_way = disk.walk(from, name, false, false)?;
            let moved = old_way.to.ok_or(Errno::NOENT)?;
            let new_way = disk.walk(to, new, false, false)?;
            let name = old_way.name.ok_or(Errno::INVAL)?;
            let new = new_way.name.ok_or(Errno::INVAL)?;
            disk.may(old_way.dir, 3)?;
            disk.may(new_way.dir, 3)?;
            disk.is_there(new_way.dir)?;
            assert!(
                disk.nodes[moved].sort != Sort::Dir,
                "the store moves no directories"
            );
            if let Some(there) = new_way.to {
                if !replace {
                    return Err(Errno::EXIST);
                }
                if disk.nodes[there].sort == Sort::Dir {
                    return Err(Errno::ISDIR);
                }
                if there == moved {
                    return Ok(());
                }
            }
            disk.group += 1;
            disk.change_name(old_way.dir, name, None);
            disk.change_name(new_way.dir, new, Some(moved));
            disk.nodes[moved].parent = new_way.dir;
            disk.nodes[moved].ctime = disk.stamp();
            if let Some(there) = new_way.to {
                disk.one_name_less(there);
            }
            Ok(())
        })
    }

    pub(crate) fn names(&mut self, dir: u32) -> Result<Vec<Vec<u8>>, Errno> {
        let inode = self.inode(dir)?;
        self.call("list", (Some(inode), b""), &FAILS, |disk| {
            disk.may(inode, 5)?;
            let mut names: Vec<_> = disk.nodes[inode].entries.keys().cloned().collect();
            // In no order.
            if names.len() > 1 {
                let first = disk.dice.below(names.len() as u64) as usize;
                names.rotate_left(first);
            }
            Ok(names)
        })
    }

    pub(crate) fn access(&mut self, dir: u32, path: &[u8], access: Access) -> Result<(), Errno> {
        let from = self.inode(dir)?;
        self.call("access", (Some(from), path), &FAILS, |disk| {
            let found = disk.walk(from, path, true, false)?.to;
            disk.may(found.ok_or(Errno::NOENT)?, access.bits() & 7)
        })
    }

    pub(crate) fn chmod(&mut self, fd: u32, mode: Mode, as_path: bool) -> Result<(), Errno> {
        let open = self.descriptor_of(fd)?;
        if open.path && !as_path {
            return Err(Errno::BADF);
        }
        let inode = open.to;
        self.call("chmod", (Some(inode), b""), &FAILS, |disk| {
            disk.set_mode(inode, mode);
            Ok(())
        })
    }

    pub(crate) fn chmod_at(&mut self, dir: u32, path: &[u8], mode: Mode) -> Result<(), Errno> {
        let from = self.inode(dir)?;
        self.call("chmod", (Some(from), path), &FAILS, |disk| {
            let found = disk.walk(from, path, true, false)?.to;
            disk.set_mode(found.ok_or(Errno::NOENT)?, mode);
            Ok(())
        })
    }

    fn set_mode(&mut self, inode: Inode, mode: Mode) {
        self.group += 1;
        self.nodes[inode].attributes.mode = mode.bits() & 0o7777;
        self.change_attributes(inode, false);
    }

    pub(crate) fn set_times(&mut self, fd: u32, times: &Timestamps) -> Result<(), Errno> {
        let inode = self.inode(fd)?;
        self.call("utimes", (Some(inode), b""), &FAILS, |disk| {
            disk.set_mtime(inode, times);
            Ok(())
        })
    }

    pub(crate) fn set_times_at(
        &mut self,
        dir: u32,
        path: &[u8],
        times: &Timestamps,
    ) -> Result<(), Errno> {
        let from = self.inode(dir)?;
        self.call("utimes", (Some(from), path), &FAILS, |disk| {
            let found = disk.walk(from, path, false, false)?.to;
            disk.set_mtime(found.ok_or(Errno::NOENT)?, times);
            Ok(())
        })
    }

    fn set_mtime(&mut self, inode: Inode, times: &Timestamps) {
        self.group += 1;
        let time = &times.last_modification;
        self.nodes[inode].attributes.mtime = time.tv_sec * 1_000_000_000 + time.tv_nsec;
        self.change_attributes(inode, false);
    }
}
