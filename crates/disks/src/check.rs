//! What must be at a destination whatever happens, and in the end.

use outpour_core::BlockSet;

use crate::destination::Destination;
use crate::simulated::disk::{Disk, Inode, Sort};
use crate::simulated::faults::Met;
use crate::simulated::object::{Object, What};

/// What was at the destination at first: the inode of each entry, by its index.
pub(crate) type Before = Vec<Option<Inode>>;

/// Nothing was touched that belongs to others.
pub(crate) fn others(disk: &Disk) -> Result<(), String> {
    match &disk.trespass {
        Some(path) => Err(format!("{path} was touched, which is not the cast's")),
        None => Ok(()),
    }
}

/// Nothing is at a final name but what belongs there, or what was there before.
pub(crate) fn places(
    disk: &Disk,
    to: &[u8],
    object: &Object,
    before: &Before,
) -> Result<(), String> {
    for (index, item) in object.entries.iter().enumerate() {
        let path = [to, &object.path(index)].concat();
        let Some(inode) = disk.find(&path) else {
            continue;
        };
        if before[index] == Some(inode) {
            continue;
        }
        let node = &disk.nodes[inode];
        let right = match (&item.what, node.sort) {
            (What::File { data, .. }, Sort::File) => node.data == *data || node.rotten,
            (What::Link { target }, Sort::Link) => node.target == *target,
            (What::Dir { .. }, Sort::Dir) => true,
            _ => false,
        };
        if !right {
            let path = String::from_utf8_lossy(&path);
            return Err(format!("{path} has its name and is not what belongs there"));
        }
    }
    Ok(())
}

/// Everything is there as the manifest says; modes as they are while it is in use, or `exact`.
pub(crate) fn complete(disk: &Disk, to: &[u8], object: &Object, exact: bool) -> Result<(), String> {
    let open = |bits: u32| if exact || disk.user() == 0 { 0 } else { bits };
    for (index, item) in object.entries.iter().enumerate() {
        let path = [to, &object.path(index)].concat();
        let shown = String::from_utf8_lossy(&path);
        let inode = disk.find(&path);
        let node = inode.map(|inode| &disk.nodes[inode]);
        let node = node.ok_or_else(|| format!("{shown} is missing"))?;
        let (right, mode) = match (&item.what, node.sort) {
            (What::File { data, mode }, Sort::File) => {
                let right = node.data == *data || node.rotten;
                (right, Some((u32::from(*mode), open(0o400))))
            }
            (What::Dir { mode, .. }, Sort::Dir) => (true, Some((u32::from(*mode), open(0o500)))),
            (What::Link { target }, Sort::Link) => (node.target == *target, None),
            _ => (false, None),
        };
        if !right {
            return Err(format!("{shown} is not what belongs there"));
        }
        let has = node.attributes.mode;
        if let Some((mode, open)) = mode
            && has != mode
            && has != mode | open
        {
            return Err(format!("{shown} has the mode {has:o}, not {mode:o}"));
        }
        if node.attributes.mtime != item.mtime {
            let (has, wanted) = (node.attributes.mtime, item.mtime);
            return Err(format!("{shown} has the time {has}, not {wanted}"));
        }
    }
    Ok(())
}

/// Reads a block that is said to be here: it is right, or that it is not is said.
pub(crate) fn block(
    destination: &Destination,
    object: &Object,
    block: u32,
) -> Result<Result<(), crate::Error>, String> {
    let mut buf = Vec::new();
    match destination.read(block, &mut buf) {
        Ok(()) if buf == object.block(block) => Ok(Ok(())),
        Ok(()) => Err(format!("block {block} is served and wrong")),
        Err(error) => Ok(Err(error)),
    }
}

/// All that was made to last is here still.
pub(crate) fn kept(have: &BlockSet, must: &BlockSet, met: &Met) -> Result<(), String> {
    match must.iter().find(|block| !have.contains(*block)) {
        Some(block) => {
            let (have, must) = (have.ranges(), must.ranges());
            let (have, must): (Vec<_>, Vec<_>) = (have.collect(), must.collect());
            Err(format!(
                "block {block} was kept and is gone: {have:?} of {must:?} after {met:?}"
            ))
        }
        None => Ok(()),
    }
}
