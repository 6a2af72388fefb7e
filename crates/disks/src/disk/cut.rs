//! What is left after the machine stopped.

use std::collections::BTreeMap;

use super::bytes::page_of;
use super::{Change, Disk, Handed, Inode, PAGE, ROOT, Sort};
use crate::simulated::dice::Dice;
use crate::simulated::faults::Fault;

/// What a disk writes at a time for certain.
const SECTOR: usize = 512;
/// Of how many changes of an inode some survive, if not all or none do.
const OF_EACH: u64 = 8;

/// What survives of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    /// All: only the process ended.
    Process,
    /// Nothing.
    None,
    /// All changes, and no pages; or the other way round.
    Changes,
    Pages,
    /// Whatever is drawn.
    Some,
}

impl Survival {
    /// What survives some stop, most often all.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        *dice.one(&[
            Self::Process,
            Self::Process,
            Self::Process,
            Self::None,
            Self::Changes,
            Self::Pages,
            Self::Some,
            Self::Some,
            Self::Some,
        ])
    }
}

impl Disk {
    /// Goes on after the machine stopped, or the process.
    pub(crate) fn revive(&mut self, survival: Survival) {
        self.dead = false;
        self.crash_at = None;
        if survival == Survival::Process {
            self.met.note(Fault::Kill);
            return;
        }
        self.met.note(Fault::Cut);
        self.note_loss(survival);
        self.lose_changes(survival);
        self.lose_pages(survival);
        self.reload();
        self.check_fs();
    }

    fn note_loss(&self, survival: Survival) {
        if self.loud {
            let dirty = self.nodes.iter().map(|node| node.dirty.count_ones());
            let (dirty, changes) = (dirty.sum::<u32>(), self.changes.len());
            eprintln!("      {survival:?} survives of {changes} changes and {dirty} pages");
        }
    }

    // ---- names and attributes

    fn lose_changes(&mut self, survival: Survival) {
        let changes = std::mem::take(&mut self.changes);
        // Of each inode, or of all together, the first so many changes are on the medium.
        let mut dice = Dice::new(self.dice.word());
        let keep = |dice: &mut Dice, all: u64| match survival {
            Survival::Process | Survival::Changes => u64::MAX,
            Survival::None | Survival::Pages => 0,
            Survival::Some => {
                let some = dice.below(all + 1);
                *dice.one(&[0, u64::MAX, some])
            }
        };
        let mut left: BTreeMap<(Inode, bool), u64> = BTreeMap::new();
        let first = keep(&mut dice, changes.len() as u64);
        let journal = self.features.journal;
        // What was done by one call is in a journal as a whole.
        let end = changes.get(first as usize).map(|(group, _)| *group);
        for (group, change) in changes {
            let stays = if journal {
                end.is_none_or(|end| group < end)
            } else {
                let is_name = matches!(change, Change::Name { .. });
                let left = left
                    .entry((change.of(), is_name))
                    .or_insert_with(|| keep(&mut dice, OF_EACH));
                let stays = *left > 0;
                *left = left.saturating_sub(1);
                stays
            };
            match stays {
                true => self.apply(change),
                false => self.met.note(Fault::LostChange),
            }
        }
    }

    // ---- pages

    fn lose_pages(&mut self, survival: Survival) {
        // What is in memory only may have been given to the disk just now.
        for inode in 0..self.nodes.len() {
            while self.nodes[inode].dirty != 0 {
                let page = self.nodes[inode].dirty.trailing_zeros() as usize;
                self.hand(inode, page);
            }
        }
        let often = *self.dice.one(&[1, 2, 2, 4]);
        for handed in std::mem::take(&mut self.handed) {
            let keep = match survival {
                Survival::Process | Survival::Pages => true,
                Survival::None | Survival::Changes => false,
                Survival::Some => self.dice.once_in(often),
            };
            if keep {
                self.put_on_medium(handed.to, handed.page, &handed.bytes);
            } else {
                self.tear(survival, &handed);
            }
        }
    }

    /// Writes some of the sectors of a page, or none.
    fn tear(&mut self, survival: Survival, handed: &Handed) {
        let Handed { to, page, bytes } = handed;
        let medium_has = self.nodes[*to].medium_has >> page & 1 == 1;
        let mut old = page_of(&self.nodes[*to].medium.pages, *page);
        if !medium_has && self.features.stale && self.dice.once_in(self.plan.rate(Fault::Stale)) {
            self.met.note(Fault::Stale);
            match self.old.is_empty() || self.dice.once_in(2) {
                true => self.dice.fill(&mut old),
                false => {
                    let page = self.dice.one(&self.old).clone();
                    old[..page.len()].copy_from_slice(&page);
                }
            }
            self.put_on_medium(*to, *page, &old);
        }
        if survival != Survival::Some || self.dice.once_in(2) {
            self.met.note(Fault::LostPage);
            return;
        }
        self.met.note(Fault::TornPage);
        // A run of sectors from the start, or any.
        let sectors = match self.dice.once_in(2) {
            true => (1 << self.dice.below(8)) - 1,
            false => self.dice.word(),
        };
        for at in (0..PAGE).step_by(SECTOR) {
            if sectors >> (at / SECTOR) & 1 == 1 {
                old[at..at + SECTOR].copy_from_slice(&bytes[at..at + SECTOR]);
            }
        }
        self.put_on_medium(*to, *page, &old);
    }

    // ---- the next start

    /// Memory has what the medium has.
    fn reload(&mut self) {
        for node in &mut self.nodes {
            let medium = &node.medium;
            node.entries.clone_from(&medium.entries);
            node.data.clear();
            node.dirty = 0;
            node.failed = false;
            node.names = 0;
            if let Some(attributes) = medium.attributes {
                node.attributes = attributes;
                if node.sort == Sort::File {
                    node.data.extend(&medium.pages);
                    node.data.resize(attributes.size as usize, 0);
                }
            }
        }
    }

    /// Removes names that lead nowhere, as a check of the file system does, and counts names.
    fn check_fs(&mut self) {
        self.nodes[ROOT].names = 1;
        let mut todo = vec![ROOT];
        while let Some(dir) = todo.pop() {
            let mut entries = std::mem::take(&mut self.nodes[dir].entries);
            entries.retain(|_, to| self.nodes[*to].medium.attributes.is_some());
            for to in entries.values() {
                let node = &mut self.nodes[*to];
                node.names += 1;
                node.parent = dir;
                if node.sort == Sort::Dir {
                    todo.push(*to);
                }
            }
            self.nodes[dir].medium.entries.clone_from(&entries);
            self.nodes[dir].entries = entries;
        }
        for inode in 0..self.nodes.len() {
            if self.nodes[inode].names == 0 {
                self.forget_inode(inode);
                self.nodes[inode].entries.clear();
                self.nodes[inode].medium = super::Medium::default();
            }
        }
    }

    /// Puts everything on the medium, as before a run.
    pub(crate) fn settle(&mut self) {
        for (_, change) in std::mem::take(&mut self.changes) {
            self.apply(change);
        }
        for inode in 0..self.nodes.len() {
            while self.nodes[inode].dirty != 0 {
                let page = self.nodes[inode].dirty.trailing_zeros() as usize;
                self.hand(inode, page);
            }
        }
        self.flush();
    }
}
