//! What an agent may say to the command: an agent is a stranger's program as far as the command can know,
//! and what one says must cost neither the command nor the other hosts more than a little.

use outpour_core::MESSAGE_BYTES_MAX;
use outpour_core::manifest::NAME_BYTES_MAX;
use outpour_probe::message::Outcome;
use outpour_protocols::coordinator::Report;
use tokio::io::AsyncRead;

use crate::control::{AgentSays, ControlError, PART_BYTES, read_frame_within};

/// How many addresses a host may have: all of them go to every other host.
pub(crate) const ADDRESSES_MAX: usize = 32;
/// How long a text is that is for people; what is longer is cut.
const TEXT_BYTES_MAX: usize = 1024;
/// How long what an agent says may be: the sets of a census, or the hashes of a manifest.
const SAYS_BYTES_MAX: usize = MESSAGE_BYTES_MAX + PART_BYTES;
/// Routers on the way to a peer.
const HOPS_MAX: usize = 255;
/// Peers of one measurement.
const PEERS_MAX: usize = 1 << 16;

/// Reads what an agent says; texts come cut.
///
/// # Errors
/// As [`read_frame_within`], and [`ControlError::Excess`] if there is more of something than may be.
pub(crate) async fn hear(
    reader: &mut (impl AsyncRead + Unpin + ?Sized),
) -> Result<AgentSays, ControlError> {
    let mut says: AgentSays = read_frame_within(reader, SAYS_BYTES_MAX).await?;
    check(&says)?;
    texts(&mut says).for_each(cut);
    Ok(says)
}

fn check(says: &AgentSays) -> Result<(), ControlError> {
    let at_most = |what, found, max| match found <= max {
        true => Ok(()),
        false => Err(ControlError::Excess { what, found, max }),
    };
    match says {
        AgentSays::Joined { addrs } => at_most("addresses", addrs.len(), ADDRESSES_MAX),
        AgentSays::Hashed(described) => {
            let name = described.file_name.as_ref().map_or(0, Vec::len);
            at_most("bytes of a file's name", name, NAME_BYTES_MAX)
        }
        AgentSays::Part(part) => at_most("bytes of a part", part.len(), PART_BYTES),
        AgentSays::Measured(report) => match &report.outcome {
            Ok(Outcome::Rate { peers }) => at_most("peers", peers.len(), PEERS_MAX),
            Ok(Outcome::Hops { hops }) => at_most("hops", hops.len(), HOPS_MAX),
            Ok(_) | Err(_) => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The texts for people in what an agent says.
fn texts(says: &mut AgentSays) -> impl Iterator<Item = &mut String> {
    let text = match says {
        AgentSays::Looked { unable, .. } => unable.as_mut(),
        AgentSays::Waiting { by: text }
        | AgentSays::Twin { relation: text, .. }
        | AgentSays::Refused { error: text }
        | AgentSays::Unable { error: text } => Some(text),
        AgentSays::Report(
            Report::Paused { why: text, .. }
            | Report::Failed { error: text }
            | Report::Refused { error: text }
            | Report::Accuse { offence: text, .. }
            | Report::NotKept { example: text, .. }
            | Report::Unreachable { error: text, .. },
        ) => Some(text),
        AgentSays::Measured(report) => return Texts::of(&mut report.outcome),
        _ => None,
    };
    Texts::One(text)
}

/// One text, or one for each peer.
enum Texts<'a> {
    One(Option<&'a mut String>),
    Peers(std::slice::IterMut<'a, (outpour_core::NodeId, Result<f64, String>)>),
}

impl<'a> Texts<'a> {
    fn of(outcome: &'a mut Result<Outcome, String>) -> Self {
        match outcome {
            Err(text) => Self::One(Some(text)),
            Ok(Outcome::Rate { peers }) => Self::Peers(peers.iter_mut()),
            Ok(_) => Self::One(None),
        }
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a mut String;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::One(text) => text.take(),
            Self::Peers(peers) => peers.find_map(|(_, result)| result.as_mut().err()),
        }
    }
}

fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let mut ends = (0..=TEXT_BYTES_MAX).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::SocketAddr;

    use outpour_core::NodeId;
    use outpour_core::manifest::Aspect;
    use outpour_probe::message::ProbeReport;

    use super::*;
    use crate::control::write_frame;

    async fn heard(says: &AgentSays) -> Result<AgentSays, ControlError> {
        let mut wire = Vec::new();
        write_frame(&mut wire, says).await.unwrap();
        hear(&mut wire.as_slice()).await
    }

    fn joined(addresses: usize) -> AgentSays {
        let addr = SocketAddr::from(([10, 0, 0, 1], 4400));
        AgentSays::Joined {
            addrs: vec![addr; addresses],
        }
    }

    #[tokio::test]
    async fn a_host_with_thousands_of_addresses_is_refused_and_says_why() {
        assert_eq!(
            heard(&joined(ADDRESSES_MAX)).await.unwrap(),
            joined(ADDRESSES_MAX)
        );
        for count in [ADDRESSES_MAX + 1, 5000] {
            let error = heard(&joined(count)).await.unwrap_err().to_string();
            assert!(error.contains(&format!("{count} addresses")), "{error}");
        }
    }

    #[tokio::test]
    async fn texts_are_cut_wherever_they_are() {
        let text = || "\u{1F4A9}".repeat(200_000);
        let reported = |report| AgentSays::Report(report);
        let measured = |outcome| AgentSays::Measured(ProbeReport { id: 1, outcome });
        let peer = NodeId(1);
        let all = [
            AgentSays::Waiting { by: text() },
            AgentSays::Refused { error: text() },
            AgentSays::Unable { error: text() },
            AgentSays::Twin {
                node: peer,
                relation: text(),
            },
            AgentSays::Looked {
                have_bytes: 0,
                unable: Some(text()),
            },
            reported(Report::Paused {
                why: text(),
                rereads: false,
            }),
            reported(Report::Failed { error: text() }),
            reported(Report::Refused { error: text() }),
            reported(Report::NotKept {
                what: Aspect::Owner,
                entries: 1,
                example: text(),
            }),
            reported(Report::Accuse {
                peer,
                offence: text(),
            }),
            reported(Report::Unreachable {
                peer,
                error: text(),
            }),
            measured(Err(text())),
            measured(Ok(Outcome::Rate {
                peers: vec![(peer, Ok(1.0)), (peer, Err(text())), (peer, Err(text()))],
            })),
        ];
        for says in all {
            let mut heard = heard(&says).await.unwrap();
            let lengths: Vec<usize> = texts(&mut heard).map(|text| text.len()).collect();
            let short = |length: &usize| *length <= TEXT_BYTES_MAX + 3;
            assert!(
                !lengths.is_empty() && lengths.iter().all(short),
                "{lengths:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_frame_of_an_agent_is_no_longer_than_anything_it_may_say() {
        let part = AgentSays::Part(vec![0; PART_BYTES + 1]);
        let error = heard(&part).await.unwrap_err();
        assert!(matches!(error, ControlError::Excess { .. }), "{error}");
        let mut long = ((SAYS_BYTES_MAX + 1) as u32).to_be_bytes().to_vec();
        long.resize(SAYS_BYTES_MAX + 5, 0);
        let error = hear(&mut long.as_slice()).await.unwrap_err();
        assert!(matches!(error, ControlError::Nonsense(_)), "{error}");
    }
}
