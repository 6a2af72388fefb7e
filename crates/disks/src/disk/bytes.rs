//! Bytes of files: read, written, synced, and dropped from memory.

use rustix::io::Errno;

use super::{Change, Disk, Handed, Inode, PAGE, PAGES_MAX, Sort};
use crate::simulated::dice::Dice;
use crate::simulated::faults::Fault;

impl Disk {
    pub(crate) fn read(&mut self, fd: u32, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let open = self.descriptor_of(fd)?;
        if !open.reads {
            return Err(Errno::BADF);
        }
        let (inode, past_memory) = (open.to, open.past_memory);
        let can = [Fault::Call, Fault::Interrupted];
        self.call("read", (Some(inode), b""), &can, |disk| {
            if past_memory {
                disk.hand_all(inode);
                disk.evict_all(inode);
            }
            let data = &disk.nodes[inode].data;
            let rest = data.get(offset as usize..).unwrap_or_default();
            let mut len = rest.len().min(buf.len());
            buf[..len].copy_from_slice(&rest[..len]);
            // What is read past memory comes in whole pages, but for the last.
            if len > 1 && !past_memory && disk.happens(Fault::Short) {
                len = disk.dice.between(1, len as u64 - 1) as usize;
            }
            if len > 0 && disk.strikes(Fault::Misread) {
                flip(&mut buf[..len], &mut disk.dice);
            }
            Ok(len)
        })
    }

    pub(crate) fn write(&mut self, fd: u32, data: &[u8], offset: u64) -> Result<usize, Errno> {
        let open = self.descriptor_of(fd)?;
        if !open.writes {
            return Err(Errno::BADF);
        }
        let inode = open.to;
        let can = [Fault::Call, Fault::Full, Fault::Interrupted];
        let about = if self.loud {
            format!("{} bytes at {offset}", data.len()).into_bytes()
        } else {
            Vec::new()
        };
        self.call("write", (Some(inode), &about), &can, |disk| {
            let mut len = data.len();
            if len > 1 && disk.happens(Fault::Short) {
                len = disk.dice.between(1, len as u64 - 1) as usize;
            }
            let (start, end) = (offset as usize, offset as usize + len);
            disk.group += 1;
            let stamp = disk.stamp();
            let node = &mut disk.nodes[inode];
            let grows = end > node.data.len();
            if grows {
                node.data.resize(end, 0);
                node.attributes.size = end as u64;
            }
            node.data[start..end].copy_from_slice(&data[..len]);
            let pages = bits(start, end);
            // Space that was reserved becomes space with data, which is metadata, too.
            let fresh = pages & !node.medium_has & !node.dirty != 0;
            node.dirty |= pages;
            node.space |= pages;
            node.attributes.mtime = stamp;
            disk.change_attributes(inode, grows || fresh);
            Ok(len)
        })
    }

    pub(crate) fn truncate(&mut self, fd: u32, len: u64) -> Result<(), Errno> {
        let inode = self.inode(fd)?;
        self.call("truncate", (Some(inode), b""), &[Fault::Call], |disk| {
            disk.set_len(inode, len);
            Ok(())
        })
    }

    pub(super) fn set_len(&mut self, inode: Inode, len: u64) {
        self.group += 1;
        let stamp = self.stamp();
        let node = &mut self.nodes[inode];
        let (old, new) = (node.data.len(), len as usize);
        node.data.resize(new, 0);
        node.attributes.size = len;
        node.attributes.mtime = stamp;
        if new < old {
            let kept = bits(0, new);
            node.dirty &= kept;
            node.space &= kept;
            // The end of the last page is cleared.
            if !new.is_multiple_of(PAGE) {
                node.dirty |= bits(new, new + 1);
            }
            self.handed
                .retain(|handed| handed.to != inode || kept >> handed.page & 1 == 1);
        }
        self.change_attributes(inode, true);
    }

    pub(crate) fn allocate(&mut self, fd: u32, len: u64) -> Result<(), Errno> {
        let inode = self.inode(fd)?;
        if !self.features.allocates {
            return Err(Errno::OPNOTSUPP);
        }
        let can = [Fault::Call, Fault::Full];
        self.call("allocate", (Some(inode), b""), &can, |disk| {
            disk.group += 1;
            let node = &mut disk.nodes[inode];
            let len = node.data.len().max(len as usize);
            node.data.resize(len, 0);
            node.attributes.size = len as u64;
            node.space |= bits(0, len);
            disk.change_attributes(inode, true);
            Ok(())
        })
    }

    /// Drops from memory what is not newer there.
    pub(crate) fn forget(&mut self, fd: u32) -> Result<(), Errno> {
        let inode = self.inode(fd)?;
        self.call("forget", (Some(inode), b""), &[], |disk| {
            disk.evict_all(inode);
            Ok(())
        })
    }

    // ---- syncing

    pub(crate) fn sync(&mut self, fd: u32, data_only: bool) -> Result<(), Errno> {
        let inode = self.inode(fd)?;
        let name = if data_only { "fdatasync" } else { "fsync" };
        self.call(name, (Some(inode), b""), &[], |disk| {
            disk.clock_ns += disk.dice.below(5_000_000);
            if std::mem::take(&mut disk.nodes[inode].failed) {
                return Err(Errno::IO);
            }
            for (fault, errno) in [(Fault::Sync, Errno::IO), (Fault::SyncFull, Errno::NOSPC)] {
                if disk.strikes(fault) {
                    disk.drop_pages(inode);
                    return Err(errno);
                }
            }
            disk.hand_all(inode);
            if disk.strikes(Fault::Lie) {
                disk.lied = true;
                return Ok(());
            }
            disk.commit(inode, data_only);
            disk.flush();
            Ok(())
        })
    }

    /// Puts on the medium what a sync of an inode puts there of names and attributes.
    fn commit(&mut self, inode: Inode, data_only: bool) {
        let counts = |change: &Change| match change {
            Change::Attributes { needed, .. } => *needed || !data_only,
            Change::Name { .. } => true,
        };
        let own = |change: &Change| change.of() == inode;
        if !self
            .changes
            .iter()
            .any(|(_, change)| own(change) && counts(change))
        {
            return;
        }
        let journal = self.features.journal;
        for (group, change) in std::mem::take(&mut self.changes) {
            match journal || own(&change) {
                true => self.apply(change),
                false => self.changes.push((group, change)),
            }
        }
        self.commit_links(inode);
    }

    /// There is no call that syncs a link, so its directory does.
    fn commit_links(&mut self, dir: Inode) {
        let entries = self.nodes[dir].medium.entries.values();
        let links = entries.filter(|to| self.nodes[**to].sort == Sort::Link);
        for link in links.copied().collect::<Vec<_>>() {
            let attributes = self.nodes[link].attributes;
            self.nodes[link].medium.attributes = Some(attributes);
            self.changes.retain(|(_, change)| change.of() != link);
        }
    }

    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::Attributes { of, now, .. } => {
                let medium = &mut self.nodes[of].medium;
                let shrinks = medium.attributes.is_some_and(|old| now.size < old.size);
                medium.attributes = Some(now);
                // What is cut off reads as zeros if the file grows again.
                if shrinks && medium.pages.len() > now.size as usize {
                    medium.pages[now.size as usize..].fill(0);
                }
            }
            Change::Name { dir, name, to } => {
                let medium = &mut self.nodes[dir].medium;
                match to {
                    Some(to) => medium.entries.insert(name, to),
                    None => medium.entries.remove(&name),
                };
            }
        }
    }

    pub(crate) fn write_back(&mut self, fd: u32, waits: bool) -> Result<(), Errno> {
        let inode = self.inode(fd)?;
        self.call("write back", (Some(inode), b""), &[], |disk| {
            if waits && std::mem::take(&mut disk.nodes[inode].failed) {
                return Err(Errno::IO);
            }
            if waits && disk.strikes(Fault::Sync) {
                disk.drop_pages(inode);
                return Err(Errno::IO);
            }
            if waits || disk.dice.once_in(2) {
                disk.hand_all(inode);
            }
            Ok(())
        })
    }

    /// Gives the disk what is newer in memory.
    fn hand_all(&mut self, inode: Inode) {
        while self.nodes[inode].dirty != 0 {
            let page = self.nodes[inode].dirty.trailing_zeros() as usize;
            self.hand(inode, page);
        }
    }

    pub(super) fn hand(&mut self, inode: Inode, page: usize) {
        let node = &mut self.nodes[inode];
        debug_assert!(node.dirty >> page & 1 == 1);
        node.dirty &= !(1 << page);
        let bytes = page_of(&node.data, page);
        self.handed.push(Handed {
            to: inode,
            page,
            bytes,
        });
    }

    /// The disk writes all that it was given.
    pub(super) fn flush(&mut self) {
        for handed in std::mem::take(&mut self.handed) {
            self.put_on_medium(handed.to, handed.page, &handed.bytes);
        }
    }

    pub(super) fn put_on_medium(&mut self, inode: Inode, page: usize, bytes: &[u8]) {
        let node = &mut self.nodes[inode];
        let (start, end) = (page * PAGE, page * PAGE + bytes.len());
        if node.medium.pages.len() < end {
            node.medium.pages.resize(end, 0);
        }
        node.medium.pages[start..end].copy_from_slice(bytes);
        node.medium_has |= 1 << page;
    }

    /// As Linux does when they cannot be written: memory has them still, and calls them written.
    fn drop_pages(&mut self, inode: Inode) {
        let keep = self.dice.word() & self.dice.word();
        for page in 0..PAGES_MAX {
            if self.nodes[inode].dirty >> page & 1 == 1 && keep >> page & 1 == 1 {
                self.hand(inode, page);
            }
        }
        self.nodes[inode].dirty = 0;
    }

    // ---- what happens by itself

    /// Writes a page that is newer in memory, or drops some that are not.
    pub(super) fn write_or_evict_some(&mut self) {
        let Some(inode) = self.any_node(|node| !node.data.is_empty()) else {
            return;
        };
        let dirty = self.nodes[inode].dirty;
        if dirty != 0 && self.dice.once_in(2) {
            self.hand(inode, dirty.trailing_zeros() as usize);
        } else {
            self.evict_all(inode);
        }
    }

    /// A page is dropped that could not be written; the next sync says so.
    pub(super) fn fail_in_background(&mut self) {
        if let Some(inode) = self.any_node(|node| node.dirty != 0) {
            let node = &mut self.nodes[inode];
            node.dirty &= node.dirty - 1;
            node.failed = true;
        }
    }

    /// A bit of some file changes on the medium.
    pub(super) fn rot(&mut self) {
        let on_medium = |node: &super::Node| !node.medium.pages.is_empty() && !node.foreign;
        let Some(inode) = self.any_node(on_medium) else {
            return;
        };
        let node = &mut self.nodes[inode];
        flip(&mut node.medium.pages, &mut self.dice);
        node.rotten = true;
        if self.loud {
            eprintln!("      a bit of {} flips", self.path_of(inode));
        }
        if self.dice.once_in(2) {
            self.evict_all(inode);
        }
    }

    fn any_node(&mut self, is_it: impl Fn(&super::Node) -> bool) -> Option<Inode> {
        let first = self.dice.below(self.nodes.len() as u64) as usize;
        let all = self.nodes.len();
        (0..all)
            .map(|nth| (first + nth) % all)
            .find(|inode| is_it(&self.nodes[*inode]))
    }

    pub(super) fn evict_all(&mut self, inode: Inode) {
        let Self { nodes, handed, .. } = self;
        let node = &mut nodes[inode];
        for page in 0..node.data.len().div_ceil(PAGE) {
            if node.dirty >> page & 1 == 1 {
                continue;
            }
            let given = handed.iter().rev();
            let mut given = given.filter(|handed| handed.to == inode && handed.page == page);
            let bytes = match given.next() {
                Some(handed) => handed.bytes.clone(),
                None => page_of(&node.medium.pages, page),
            };
            let (start, end) = (page * PAGE, ((page + 1) * PAGE).min(node.data.len()));
            node.data[start..end].copy_from_slice(&bytes[..end - start]);
        }
    }
}

/// A page of a file, filled up with zeros.
pub(super) fn page_of(data: &[u8], page: usize) -> Vec<u8> {
    let rest = data.get(page * PAGE..).unwrap_or_default();
    let mut bytes = rest[..rest.len().min(PAGE)].to_vec();
    bytes.resize(PAGE, 0);
    bytes
}

/// The pages of a range of bytes.
fn bits(start: usize, end: usize) -> u64 {
    assert!(end <= PAGES_MAX * PAGE, "a file is too long for this disk");
    let below = |pages: usize| match pages {
        PAGES_MAX => u64::MAX,
        pages => (1 << pages) - 1,
    };
    below(end.div_ceil(PAGE)) & !below(start / PAGE)
}

fn flip(bytes: &mut [u8], dice: &mut Dice) {
    let at = dice.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << dice.below(8);
}
