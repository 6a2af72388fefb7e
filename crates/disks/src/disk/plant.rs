//! What is on a disk before a run.

use super::{Disk, Inode, Sort};
use crate::simulated::object::{Item, What};

impl Disk {
    /// Puts something into a directory, to be settled later; `foreign` if it must stay as it is.
    pub(crate) fn plant(&mut self, dir: Inode, item: &Item, foreign: bool) -> Inode {
        let (sort, mode) = match &item.what {
            What::File { mode, .. } => (Sort::File, *mode),
            What::Dir { mode, .. } => (Sort::Dir, *mode),
            What::Link { .. } => (Sort::Link, 0o777),
        };
        let made = self.add(sort, mode.into(), dir);
        self.nodes[made].names = 1;
        self.change_name(dir, &item.name, Some(made));
        match &item.what {
            What::File { data, .. } => {
                self.set_len(made, data.len() as u64);
                let node = &mut self.nodes[made];
                node.data.clone_from(data);
                let pages = data.len().div_ceil(super::PAGE);
                node.dirty = (1 << pages) - 1;
                node.space = node.dirty;
            }
            What::Dir { items, .. } => {
                for item in items {
                    self.plant(made, item, foreign);
                }
            }
            What::Link { target } => self.nodes[made].target.clone_from(target),
        }
        self.nodes[made].attributes.mtime = item.mtime;
        self.change_attributes(made, true);
        self.nodes[made].foreign = foreign;
        made
    }
}
