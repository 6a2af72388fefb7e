//! An agent that sends wrong packets on purpose, so that it can be seen what the others make of it.
//! In all else it is the agent that ships: what it takes, keeps, says and asks for.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use outpour_agent::Wrap;
use outpour_cli::out::Failure;
use outpour_core::text::escape;
use outpour_core::{BatchId, BlockId, NodeId};
use outpour_net::{Accept, BlockIo, Encoded, Packet, PacketIo, PacketNews, Tell};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Names a node and a share, as in `n4=0.05`: the agent there sends that share of its packets with a
/// wrong byte. It means nothing outside of an emulation.
const WRONG_PACKETS: &str = "OUTPOUR_WRONG_PACKETS";

/// What makes the agent of this process lie, if it is to.
///
/// # Errors
/// If the environment asks for something that is not there to be done.
pub(crate) fn asked_for() -> Result<Option<Wrap>, Failure> {
    let own = outpour_cli::own_node();
    let (Some(own), Some(asked)) = (own, std::env::var_os(WRONG_PACKETS)) else {
        return Ok(None);
    };
    let asked = asked.to_string_lossy();
    let (node, share) = parse(&asked).ok_or_else(|| {
        let asked = escape(&asked);
        Failure::Usage(format!(
            "{WRONG_PACKETS} is `{asked}`: expected a node and a share up to 1, as in n4=0.05"
        ))
    })?;
    Ok((node == own).then(|| wrap(share)))
}

/// A node, and a share above 0 and at most 1.
fn parse(asked: &str) -> Option<(&str, f64)> {
    let (node, share) = asked.split_once('=')?;
    let share: f64 = share.parse().ok()?;
    (share > 0.0 && share <= 1.0).then_some((node, share))
}

fn wrap(share: f64) -> Wrap {
    let dice = Arc::new(Mutex::new(Pcg64Mcg::seed_from_u64(fresh())));
    Wrap::new(move |object| match object.packets() {
        None => object,
        Some(_) => Arc::new(Liar {
            object,
            spoiler: Spoiler {
                share,
                dice: dice.clone(),
            },
        }),
    })
}

/// A number that no other process draws.
fn fresh() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A coded object, of whose packets some are wrong.
struct Liar {
    object: Arc<dyn BlockIo>,
    spoiler: Spoiler,
}

impl BlockIo for Liar {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.object.block_len(block)
    }

    fn has(&self, block: BlockId) -> bool {
        self.object.has(block)
    }

    fn drops(&self, block: BlockId) -> bool {
        self.object.drops(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        self.object.read(block, buf)
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        self.object.accept(block, data)
    }

    fn packets(&self) -> Option<&dyn PacketIo> {
        self.object.packets().map(|_| self as &dyn PacketIo)
    }
}

impl PacketIo for Liar {
    fn packet_len(&self, batch: BatchId) -> Option<u32> {
        self.object.packets()?.packet_len(batch)
    }

    fn wants(&self, batch: BatchId) -> bool {
        let packets = self.object.packets();
        packets.is_some_and(|packets| packets.wants(batch))
    }

    fn encode(&self, batch: BatchId, pure: bool, buf: Vec<u8>, done: Encoded) {
        match self.object.packets() {
            Some(packets) => packets.encode(batch, pure, buf, self.spoiler.before(done)),
            None => done(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn take(&self, from: NodeId, packet: Packet<'_>, tell: &mut Tell<'_>) {
        if let Some(packets) = self.object.packets() {
            return packets.take(from, packet, tell);
        }
        tell(packet.batch, PacketNews::Dropped);
    }

    fn note_block(&self, from: NodeId, block: BlockId, data: &[u8], tell: &mut Tell<'_>) {
        if let Some(packets) = self.object.packets() {
            packets.note_block(from, block, data, tell);
        }
    }
}

/// Makes packets wrong that have to be.
#[derive(Clone)]
struct Spoiler {
    share: f64,
    dice: Arc<Mutex<Pcg64Mcg>>,
}

impl Spoiler {
    /// Takes a packet on its way to the node that asked for it.
    fn before(&self, done: Encoded) -> Encoded {
        let spoiler = self.clone();
        Box::new(move |made| {
            done(made.map(|mut packet| {
                spoiler.spoil(&mut packet);
                packet
            }));
        })
    }

    fn spoil(&self, packet: &mut [u8]) {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let drawn = dice.next_u64() as f64 / 2.0_f64.powi(64);
        if drawn >= self.share || packet.is_empty() {
            return;
        }
        // Any byte will do: of a coefficient as well as of what it is said to have made.
        let at = (dice.next_u64() % packet.len() as u64) as usize;
        let by = (1 + dice.next_u32() % 255) as u8;
        if let Some(byte) = packet.get_mut(at) {
            *byte ^= by;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_lie_is_of_one_node_and_some_packets() {
        assert_eq!(parse("n4=0.05"), Some(("n4", 0.05)));
        for wrong in ["n4", "n4=", "n4=0", "n4=1.5", "n4=NaN", "n4=5 %"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_share_of_packets_has_one_wrong_byte() {
        let spoiler = Spoiler {
            share: 0.25,
            dice: Arc::new(Mutex::new(Pcg64Mcg::seed_from_u64(1))),
        };
        let wrong_bytes = |_| {
            let mut packet = [7; 64];
            spoiler.spoil(&mut packet);
            packet.iter().filter(|byte| **byte != 7).count()
        };
        let wrong: Vec<usize> = (0..1000).map(wrong_bytes).collect();
        assert!(wrong.iter().all(|count| *count <= 1));
        let share = wrong.iter().sum::<usize>();
        assert!((200..300).contains(&share), "{share} of 1000");
    }
}
