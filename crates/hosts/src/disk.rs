//! A simulated host as the simulated network asks for it.

use std::cell::RefCell;
use std::rc::Rc;

use outpour_core::{BlockId, BlockSet, Time};
use outpour_disks::simulated::{Host, Wrong};
use outpour_protocols::node::Trouble;
use outpour_sim::world::NodeDisk;

/// The disk of a node for the time of a cast.
pub(crate) struct HostDisk {
    host: Rc<RefCell<Host>>,
    is_source: bool,
    /// How far its clock has come.
    clock: Time,
}

impl HostDisk {
    pub(crate) fn new(host: &Rc<RefCell<Host>>, is_source: bool) -> Self {
        Self {
            host: host.clone(),
            is_source,
            clock: Time::ZERO,
        }
    }
}

/// As an agent tells its node.
fn trouble(wrong: Wrong) -> Trouble {
    let Wrong { why, full, passes } = wrong;
    Trouble { why, full, passes }
}

impl NodeDisk for HostDisk {
    fn open(&mut self, now: Time) -> Result<BlockSet, String> {
        self.clock = now;
        let opened = self.host.borrow_mut().open();
        opened.map_err(|wrong| wrong.why)
    }

    fn read(&mut self, _now: Time, block: BlockId) -> Result<(), (String, Option<Trouble>)> {
        let read = self.host.borrow_mut().read(block);
        read.map_err(|wrong| {
            let why = wrong.why.clone();
            // A source has no destination with which anything could be wrong.
            (why, (!self.is_source).then(|| trouble(wrong)))
        })
    }

    fn write(&mut self, _now: Time, block: BlockId) -> Result<(), Trouble> {
        self.host.borrow_mut().write(block).map_err(trouble)
    }

    fn finish(&mut self, _now: Time) -> Result<(), Trouble> {
        self.host.borrow_mut().finish().map_err(trouble)
    }

    fn recover(&mut self, _now: Time, rereads: bool) -> Result<BlockSet, Trouble> {
        self.host.borrow_mut().recover(rereads).map_err(trouble)
    }

    fn pass(&mut self, now: Time) {
        let time = now.since(self.clock);
        self.clock = now;
        self.host.borrow_mut().pass(time);
    }

    fn stopped(&self) -> Option<bool> {
        self.host.borrow().stopped()
    }

    fn stop(&mut self, whole: bool) {
        self.host.borrow_mut().stop(whole);
    }
}
