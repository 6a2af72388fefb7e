//! Being inside an emulated network: every node is a namespace of this machine, which
//! `outpour exec` enters and whose script `outpour tell` talks to.

use std::ffi::OsString;

/// Set to the state directory of the emulation that this process runs in.
pub(crate) const STATE: &str = "OUTPOUR_EMULATION";

/// Set to the node of the emulation that this process runs on.
pub(crate) const NODE: &str = "OUTPOUR_NODE";

/// The state directory, if this process runs inside an emulation.
pub(crate) fn state() -> Option<OsString> {
    std::env::var_os(STATE).filter(|state| !state.is_empty())
}

/// The node that this process runs on, if it runs inside an emulation.
pub fn own_node() -> Option<String> {
    state()?;
    std::env::var(NODE).ok().filter(|node| !node.is_empty())
}
