//! A disk with a file system, as far as the store uses one.
//!
//! What the kernel has in memory and what is on the medium are kept apart. Of a file there are pages, of which
//! each may be newer in memory. Everything else (names, sizes, modes, times) is a list of changes that are not on
//! the medium yet, in the order in which they were made. A power cut leaves the medium, some of the pages and
//! some of the changes.

mod bytes;
mod cut;
mod names;
mod open;
mod plant;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::simulated::dice::Dice;
use crate::simulated::faults::{Fault, Met, Plan};

pub(crate) use cut::Survival;
pub(crate) use open::Open;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// How many pages a file has at most: one bit each.
const PAGES_MAX: usize = 64;
/// How many calls a run may take: one that takes more goes round in circles.
const CALLS_MAX: u64 = 200_000;
/// The root of the file system.
pub(crate) const ROOT: Inode = 0;

/// Where an inode is in the list of all; it is never used for another one.
pub(crate) type Inode = usize;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    File,
    Dir,
    Link,
}

/// What belongs to an inode and is neither its bytes nor its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    pub(crate) mtime: i64,
    pub(crate) size: u64,
}

/// A file, directory or link as it is in memory, and as it is on the medium.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) sort: Sort,
    /// Which number it shows.
    number: u64,
    pub(crate) attributes: Attributes,
    ctime: i64,
    /// How many names it has.
    pub(crate) names: u32,
    /// How many descriptors.
    opens: u32,
    parent: Inode,
    pub(crate) entries: BTreeMap<Vec<u8>, Inode>,
    pub(crate) target: Vec<u8>,
    pub(crate) data: Vec<u8>,
    /// Pages that are newer in memory; that have space; that were written to the medium once.
    dirty: u64,
    space: u64,
    medium_has: u64,
    /// A page could not be written in the background, which the next sync has to say.
    failed: bool,
    locks: Vec<(u32, bool)>,
    lease: Option<u32>,
    medium: Medium,
    /// Belongs to others: it must stay as it is.
    pub(crate) foreign: bool,
    /// The medium has other bytes than it was given.
    pub(crate) rotten: bool,
}

/// What would be there after a power cut.
#[derive(Debug, Default)]
struct Medium {
    attributes: Option<Attributes>,
    entries: BTreeMap<Vec<u8>, Inode>,
    pages: Vec<u8>,
}

/// A change that is not on the medium yet.
#[derive(Debug)]
enum Change {
    /// The inode got these; `needed` to find its data.
    Attributes {
        of: Inode,
        now: Attributes,
        needed: bool,
    },
    /// The name in the directory leads to something else now, or nowhere.
    Name {
        dir: Inode,
        name: Vec<u8>,
        to: Option<Inode>,
    },
}

impl Change {
    const fn of(&self) -> Inode {
        match self {
            Self::Attributes { of, .. } => *of,
            Self::Name { dir, .. } => *dir,
        }
    }
}

/// What the disk has been given and may not have written yet.
#[derive(Debug)]
struct Handed {
    to: Inode,
    page: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Descriptor {
    to: Inode,
    reads: bool,
    writes: bool,
    /// Opened as a path only.
    path: bool,
    past_memory: bool,
}

/// How a file system behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    /// All metadata is in one journal.
    pub(crate) journal: bool,
    /// It can reserve space.
    pub(crate) allocates: bool,
    pub(crate) leases: bool,
    /// It can be read past the page cache.
    pub(crate) direct: bool,
    /// In how many nanoseconds its clock takes a step.
    pub(crate) step_ns: u64,
    /// Space that was never written may have what was there before.
    pub(crate) stale: bool,
    /// The user of the store: 0 is root.
    pub(crate) user: u32,
    pub(crate) umask: u32,
}

pub(crate) struct Disk {
    pub(crate) nodes: Vec<Node>,
    features: Features,
    descriptors: Vec<Option<Descriptor>>,
    changes: Vec<(u64, Change)>,
    group: u64,
    handed: Vec<Handed>,
    /// Old pages, for those that come back.
    old: Vec<Vec<u8>>,
    dice: Dice,
    pub(crate) plan: Plan,
    pub(crate) met: Met,
    /// How many calls there were.
    pub(crate) calls: u64,
    /// At which call it stops.
    pub(crate) crash_at: Option<u64>,
    pub(crate) dead: bool,
    /// While so, no space is to be had.
    full_until: u64,
    /// Something was lost that had been synced, as the disk said.
    pub(crate) lied: bool,
    clock_ns: u64,
    begun: Instant,
    trace: u64,
    /// Whether each call is printed.
    pub(crate) loud: bool,
    /// What was touched that belongs to others.
    pub(crate) trespass: Option<String>,
    template: rustix::fs::Stat,
    numbers: u64,
}

/// When the clock of a disk begins, in nanoseconds since 1970.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;

impl Disk {
    pub(crate) fn new(features: Features, plan: Plan, seed: u64) -> Self {
        let mut disk = Self {
            nodes: Vec::new(),
            features,
            descriptors: Vec::new(),
            changes: Vec::new(),
            group: 0,
            handed: Vec::new(),
            old: Vec::new(),
            dice: Dice::new(seed),
            plan,
            met: Met::default(),
            calls: 0,
            crash_at: None,
            dead: false,
            full_until: 0,
            lied: false,
            clock_ns: BEGIN_NS,
            begun: Instant::now(),
            trace: 0,
            loud: false,
            trespass: None,
            template: open::template(),
            numbers: 2,
        };
        disk.add(Sort::Dir, 0o755, ROOT);
        disk
    }

    // ---- of the machine

    pub(crate) const fn user(&self) -> u32 {
        self.features.user
    }

    pub(crate) const fn has_journal(&self) -> bool {
        self.features.journal
    }

    pub(crate) fn now(&self) -> Instant {
        self.begun + Duration::from_nanos(self.clock_ns - BEGIN_NS)
    }

    /// Lets time pass.
    pub(crate) const fn pass(&mut self, time: Duration) {
        self.clock_ns += time.as_nanos() as u64;
    }

    pub(crate) const fn draw(&mut self) -> u64 {
        self.dice.word()
    }

    /// What tells this run from others that went otherwise.
    pub(crate) const fn trace(&self) -> u64 {
        self.trace
    }

    /// How many descriptors are open.
    pub(crate) fn open_descriptors(&self) -> usize {
        self.descriptors.iter().flatten().count()
    }

    /// The time that files get.
    const fn stamp(&self) -> i64 {
        (self.clock_ns - self.clock_ns % self.features.step_ns) as i64
    }

    const fn is_over(&self) -> bool {
        self.calls >= self.plan.until || self.plan.budget == 0
    }

    /// Whether no fault strikes any more, and there is room.
    pub(crate) const fn is_well(&self) -> bool {
        self.is_over() && self.full_until <= self.calls
    }

    /// Ends all faults, and makes room.
    pub(crate) const fn heal(&mut self) {
        self.plan.until = 0;
        self.plan.crashes = 0;
        self.crash_at = None;
        self.full_until = 0;
    }

    /// Whether another thread gets on now.
    pub(crate) fn goes_between(&mut self) -> bool {
        self.happens(Fault::Between)
    }

    /// Whether a fault strikes now.
    fn strikes(&mut self, fault: Fault) -> bool {
        if self.is_over() || !self.dice.once_in(self.plan.rate(fault)) {
            return false;
        }
        self.plan.budget -= 1;
        self.met.note(fault);
        true
    }

    /// Whether something happens that harms nobody.
    fn happens(&mut self, fault: Fault) -> bool {
        let happens = self.dice.once_in(self.plan.rate(fault));
        if happens {
            self.met.note(fault);
        }
        happens
    }

    // ---- calls

    /// Answers a call, unless the machine stops or a fault strikes first.
    fn call<T: std::fmt::Debug>(
        &mut self,
        name: &'static str,
        about: (Option<Inode>, &[u8]),
        can: &[Fault],
        act: impl FnOnce(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if self.dead {
            return Err(Errno::IO);
        }
        self.calls += 1;
        assert!(self.calls < CALLS_MAX, "it goes round in circles");
        self.clock_ns += self.dice.below(20_000);
        if self.crash_at.is_some_and(|at| self.calls >= at) {
            self.dead = true;
            self.say(name, about, &"the machine stops");
            return Err(Errno::IO);
        }
        self.background();
        let result = match self.fails(can) {
            Some(errno) => Err(errno),
            None => act(self),
        };
        let code = result
            .as_ref()
            .err()
            .map_or(0, |errno| errno.raw_os_error());
        self.note(name.as_bytes());
        self.note(about.1);
        self.note(&[code as u8, about.0.unwrap_or_default() as u8]);
        if self.loud {
            match &result {
                Ok(value) => self.say(name, about, value),
                Err(errno) => self.say(name, about, errno),
            }
        }
        result
    }

    fn note(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn say(&self, name: &str, about: (Option<Inode>, &[u8]), result: &dyn std::fmt::Debug) {
        if self.loud {
            let (on, text) = (about.0, String::from_utf8_lossy(about.1));
            let on = on.map_or_else(String::new, |on| format!("{on} {}", self.path_of(on)));
            eprintln!("{:5} {name} {on} {text:?} = {result:?}", self.calls);
        }
    }

    fn fails(&mut self, can: &[Fault]) -> Option<Errno> {
        for fault in can {
            let errno = match fault {
                Fault::Full if self.full_until > self.calls => Errno::NOSPC,
                Fault::Full if self.strikes(Fault::Full) => {
                    // For this call, or for a while.
                    self.full_until = self.calls + *self.dice.one(&[0, 30, 300]);
                    Errno::NOSPC
                }
                Fault::Call if self.strikes(Fault::Call) => Errno::IO,
                Fault::Interrupted if self.happens(Fault::Interrupted) => Errno::INTR,
                _ => continue,
            };
            return Some(errno);
        }
        None
    }

    /// What the kernel and the medium do of themselves.
    fn background(&mut self) {
        if self.happens(Fault::Evicted) {
            self.write_or_evict_some();
        }
        if self.plan.rate(Fault::Background) > 0 && self.strikes(Fault::Background) {
            self.fail_in_background();
        }
        if self.plan.rate(Fault::Rot) > 0 && self.strikes(Fault::Rot) {
            self.rot();
        }
    }

    // ---- nodes

    fn add(&mut self, sort: Sort, mode: u32, parent: Inode) -> Inode {
        self.numbers += 1;
        let attributes = Attributes {
            mode,
            mtime: self.stamp(),
            size: if sort == Sort::Dir { PAGE as u64 } else { 0 },
        };
        self.nodes.push(Node {
            sort,
            number: self.numbers,
            attributes,
            ctime: self.stamp(),
            names: u32::from(self.nodes.is_empty()),
            opens: 0,
            parent,
            entries: BTreeMap::new(),
            target: Vec::new(),
            data: Vec::new(),
            dirty: 0,
            space: 0,
            medium_has: 0,
            failed: false,
            locks: Vec::new(),
            lease: None,
            medium: Medium::default(),
            foreign: false,
            rotten: false,
        });
        let inode = self.nodes.len() - 1;
        self.change_attributes(inode, true);
        inode
    }

    /// Takes note that the attributes of an inode are no longer what they were.
    fn change_attributes(&mut self, of: Inode, needed: bool) {
        self.trespasses(of);
        let stamp = self.stamp();
        let node = &mut self.nodes[of];
        node.ctime = stamp;
        let now = node.attributes;
        self.changes
            .push((self.group, Change::Attributes { of, now, needed }));
    }

    fn change_name(&mut self, dir: Inode, name: &[u8], to: Option<Inode>) {
        self.trespasses_by(dir, name);
        let stamp = self.stamp();
        let node = &mut self.nodes[dir];
        match to {
            Some(to) => node.entries.insert(name.to_vec(), to),
            None => node.entries.remove(name),
        };
        node.attributes.mtime = stamp;
        node.ctime = stamp;
        let (name, now) = (name.to_vec(), node.attributes);
        self.changes
            .push((self.group, Change::Name { dir, name, to }));
        self.changes.push((
            self.group,
            Change::Attributes {
                of: dir,
                now,
                needed: false,
            },
        ));
    }

    fn trespasses(&mut self, on: Inode) {
        if self.nodes[on].foreign && self.trespass.is_none() {
            self.trespass = Some(self.path_of(on));
        }
    }

    fn trespasses_by(&mut self, dir: Inode, name: &[u8]) {
        let name_of_others = self.nodes[dir]
            .entries
            .get(name)
            .is_some_and(|found| self.nodes[*found].foreign);
        if name_of_others && self.trespass.is_none() {
            let name = String::from_utf8_lossy(name);
            self.trespass = Some(format!("{}/{name}", self.path_of(dir)));
        }
        self.trespasses(dir);
    }

    /// Where an inode is, for messages.
    pub(crate) fn path_of(&self, inode: Inode) -> String {
        if inode == ROOT {
            return String::new();
        }
        let parent = self.nodes[inode].parent;
        let mut names = self.nodes[parent].entries.iter();
        let name = names.find(|(_, to)| **to == inode);
        let name = name.map_or(&b"?"[..], |(name, _)| name);
        let name = String::from_utf8_lossy(name);
        // Names that are hashes are told apart by less.
        let name: String = name.chars().take(12).collect();
        format!("{}/{name}", self.path_of(parent))
    }

    /// What a path leads to, for those who check; no link is followed.
    pub(crate) fn find(&self, path: &[u8]) -> Option<Inode> {
        let mut parts = path
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty());
        parts.try_fold(ROOT, |at, part| self.nodes[at].entries.get(part).copied())
    }
}
