//! Being inside an emulated network: every node is a namespace of this machine, which
//! `outpour exec` enters and whose script `outpour tell` talks to.

use std::ffi::OsString;

use outpour_agent::coded::Flaw;
use outpour_core::text::escape;

use crate::out::Failure;

/// Set to the state directory of the emulation that this process runs in.
pub(crate) const STATE: &str = "OUTPOUR_EMULATION";

/// Set to the node of the emulation that this process runs on.
pub(crate) const NODE: &str = "OUTPOUR_NODE";

/// Names a node and a share, as in `n4=0.05`: the agent there sends that share of its packets wrong,
/// so that it can be seen what the others make of it. It means nothing outside of an emulation.
pub(crate) const WRONG_PACKETS: &str = "OUTPOUR_WRONG_PACKETS";

/// The state directory, if this process runs inside an emulation.
pub(crate) fn state() -> Option<OsString> {
    std::env::var_os(STATE).filter(|state| !state.is_empty())
}

/// The node that this process runs on, if it runs inside an emulation.
pub(crate) fn own_node() -> Option<String> {
    state()?;
    std::env::var(NODE).ok().filter(|node| !node.is_empty())
}

/// What the agent on this node is to do wrong.
///
/// # Errors
/// If the environment asks for something that is not there to be done.
pub(crate) fn flaw() -> Result<Option<Flaw>, Failure> {
    let (Some(own), Some(asked)) = (own_node(), std::env::var_os(WRONG_PACKETS)) else {
        return Ok(None);
    };
    let asked = asked.to_string_lossy();
    let (node, flaw) = parse_flaw(&asked).ok_or_else(|| {
        let asked = escape(&asked);
        Failure::Usage(format!(
            "{WRONG_PACKETS} is `{asked}`: expected a node and a share up to 1, as in n4=0.05"
        ))
    })?;
    Ok((node == own).then_some(flaw))
}

fn parse_flaw(asked: &str) -> Option<(&str, Flaw)> {
    let (node, share) = asked.split_once('=')?;
    let flaw = Flaw::wrong_packets(share.parse().ok()?)?;
    Some((node, flaw))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_flaw_is_of_one_node_and_some_packets() {
        let one = Flaw::wrong_packets(0.05).unwrap();
        assert_eq!(parse_flaw("n4=0.05"), Some(("n4", one)));
        for wrong in ["n4", "n4=", "n4=0", "n4=1.5", "n4=NaN", "n4=5 %"] {
            assert_eq!(parse_flaw(wrong), None, "{wrong}");
        }
    }
}
