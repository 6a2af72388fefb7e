//! Nodes whose disks are simulated as well: what they are told of their disks, and what becomes of a machine that stops.
//!
//! The node decides what is to be done, as it does in an agent; here it is carried out on a [`NodeDisk`] instead of
//! files. A disk takes no time of the transfer, but it knows the time.

use outpour_core::{BlockId, BlockSet, NodeId, Time};
use outpour_protocols::node::{Input, Measures, Trouble};

use super::{Happening, World};

/// What a node has the object on. After a call in which the machine stopped, nothing is made of the answer.
pub trait NodeDisk {
    /// Opens the destination; the blocks that are there.
    ///
    /// # Errors
    /// Says in one line why it cannot be used.
    fn open(&mut self, now: Time) -> Result<BlockSet, String>;

    /// Reads and verifies a block.
    ///
    /// # Errors
    /// Says why it cannot be read, and what is wrong with the destination, if it is one.
    fn read(&mut self, now: Time, block: BlockId) -> Result<(), (String, Option<Trouble>)>;

    /// Writes a verified block.
    ///
    /// # Errors
    /// Says what is wrong with the destination.
    fn write(&mut self, now: Time, block: BlockId) -> Result<(), Trouble>;

    /// Puts everything in place.
    ///
    /// # Errors
    /// Says what is wrong with the destination.
    fn finish(&mut self, now: Time) -> Result<(), Trouble>;

    /// Sees whether the destination can be used again; the blocks that are there then.
    ///
    /// # Errors
    /// Says what is wrong with it still.
    fn recover(&mut self, now: Time, rereads: bool) -> Result<BlockSet, Trouble>;

    /// Some time has passed.
    fn pass(&mut self, now: Time);

    /// Whether the machine has stopped, and then whether it is gone as a whole, so that peers are not told.
    fn stopped(&self) -> Option<bool>;

    /// Stops the machine, as a whole or only the process.
    fn stop(&mut self, whole: bool);
}

impl World {
    /// Gives each node a disk; to be said at the start of a transfer that a coordinator attends. The sources have
    /// theirs open.
    ///
    /// # Panics
    /// If there is not one for each node.
    pub fn set_disks(&mut self, disks: Vec<Box<dyn NodeDisk>>) {
        assert_eq!(disks.len(), self.nodes.len());
        assert!(
            self.desk.is_some(),
            "a node that stopped is not started again"
        );
        for node in &mut self.nodes {
            node.closed = true;
        }
        self.disks = disks;
    }

    /// Has a node's disk do something; `None` if the machine has stopped.
    fn at_disk<T>(
        &mut self,
        node: NodeId,
        act: impl FnOnce(&mut dyn NodeDisk, Time) -> T,
    ) -> Option<T> {
        let disk = &mut self.disks[node.index()];
        if disk.stopped().is_some() {
            return None;
        }
        let done = act(&mut **disk, self.now);
        let Some(silent) = disk.stopped() else {
            return Some(done);
        };
        // What goes on just now comes to its end first.
        let life = self.nodes[node.index()].life;
        let stopped = Happening::Stopped { node, life, silent };
        self.queue.push(self.now, stopped);
        None
    }

    pub(super) fn on_stopped(&mut self, node: NodeId, life: u32, silent: bool) {
        if self.nodes[node.index()].life == life {
            self.crash(node, self.now, silent);
            self.lose_control(node, silent);
        }
    }

    /// The machine of a node is stopped by a fault.
    pub(super) fn stop_disk(&mut self, node: NodeId, whole: bool) {
        if let Some(disk) = self.disks.get_mut(node.index()) {
            disk.stop(whole);
        }
    }

    // ---- the destination

    pub(super) fn open_destination(&mut self, node: NodeId) {
        if !self.disks.is_empty() {
            let Some(opened) = self.at_disk(node, |disk, now| disk.open(now)) else {
                return;
            };
            match opened {
                Ok(have) => self.take_stock(node, have),
                Err(why) => return self.tell(node, Input::Opened(Err(why))),
            }
        }
        let found = self.found(node);
        self.tell(node, Input::Opened(Ok(Box::new(found))));
    }

    /// A node has these blocks now, whatever it had before.
    fn take_stock(&mut self, id: NodeId, have: BlockSet) {
        let object = self.object;
        let node = &mut self.nodes[id.index()];
        let mut lacks = node.want.clone();
        lacks.subtract(&have);
        node.lacks = lacks.count();
        node.finished = (node.lacks == 0).then_some(self.now);
        if !node.content.is_empty() {
            have.iter()
                .for_each(|block| node.content[block as usize] = object.content(block));
        }
        node.have = have;
        self.collect_anew(id);
        self.count_incomplete();
    }

    pub(super) fn finish_destination(&mut self, node: NodeId) {
        let mut finished = Ok(());
        if !self.disks.is_empty() {
            match self.at_disk(node, |disk, now| disk.finish(now)) {
                Some(done) => finished = done,
                None => return,
            }
        }
        self.keep_all(node);
        self.tell(node, Input::Finished(finished, &Measures::default()));
    }

    pub(super) fn recover_destination(&mut self, node: NodeId, rereads: bool) {
        if self.disks.is_empty() {
            return self.blame(node, "recovers, though nothing is wrong".to_owned());
        }
        let recovered = self.at_disk(node, |disk, now| disk.recover(now, rereads));
        if let Some(Ok(have)) = &recovered {
            self.take_stock(node, have.clone());
        }
        if let Some(recovered) = recovered {
            self.tell(node, Input::Recovered(recovered));
        }
    }

    /// A node takes no part for a while: its links end, and it accepts none.
    pub(super) fn shut(&mut self, node: NodeId) {
        if self.disks.is_empty() {
            return self.blame(node, "leaves, though nothing is wrong".to_owned());
        }
        self.nodes[node.index()].closed = true;
        for peer in self.ids().filter(|peer| *peer != node) {
            if self.ends.get(node, peer).is_some() {
                self.close(node, peer);
            }
        }
    }

    // ---- blocks

    /// Puts a verified block on the node's disk, unless it is there; whether that was done.
    pub(super) fn write_block(&mut self, node: NodeId, block: BlockId) -> bool {
        if self.disks.is_empty() || self.nodes[node.index()].have.contains(block) {
            return true;
        }
        match self.at_disk(node, |disk, now| disk.write(now, block)) {
            Some(Ok(())) => true,
            Some(Err(trouble)) => {
                let why = trouble.why.clone();
                self.tell(node, Input::Failed(why, Some(trouble)));
                false
            }
            None => false,
        }
    }

    /// Reads blocks from a node's disk that are to be sent to a peer; whether they could be read. If not, the link
    /// ends.
    pub(super) fn read_blocks(&mut self, from: NodeId, to: NodeId, blocks: &[BlockId]) -> bool {
        if self.disks.is_empty() {
            return true;
        }
        for &block in blocks {
            match self.at_disk(from, |disk, now| disk.read(now, block)) {
                Some(Ok(())) => {}
                Some(Err((why, trouble))) => {
                    let life = self.nodes[from.index()].life;
                    let failed = Happening::ReadFailed {
                        node: from,
                        life,
                        peer: to,
                        why,
                        trouble,
                    };
                    self.queue.push(self.now, failed);
                    return false;
                }
                None => return false,
            }
        }
        true
    }

    pub(super) fn on_read_failed(
        &mut self,
        (node, life): (NodeId, u32),
        peer: NodeId,
        why: String,
        trouble: Option<Trouble>,
    ) {
        if self.nodes[node.index()].life == life {
            self.tell(node, Input::Failed(why, trouble));
            self.close(node, peer);
        }
    }

    pub(super) fn pass_at_disk(&mut self, node: NodeId) {
        if !self.disks.is_empty() {
            self.at_disk(node, |disk, now| disk.pass(now));
        }
    }
}
