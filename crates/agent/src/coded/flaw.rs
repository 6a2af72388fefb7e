//! An agent that passes on wrong packets on purpose, so that it can be seen what the others make of
//! it. In all else it is the agent that ships: what it takes, keeps, says and asks for.

use std::sync::{Arc, Mutex, PoisonError};

use outpour_net::Encoded;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::fresh;

/// What an agent does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flaw {
    wrong_packets: f64,
}

impl Flaw {
    /// That share of the packets it sends is wrong; `None` unless it is above 0 and at most 1.
    pub fn wrong_packets(share: f64) -> Option<Self> {
        let wrong_packets = Some(share).filter(|share| *share > 0.0 && *share <= 1.0)?;
        Some(Self { wrong_packets })
    }
}

/// Makes the packets of a transfer wrong that have to be.
pub(super) struct Spoiler {
    flaw: Flaw,
    dice: Mutex<Pcg64Mcg>,
}

impl Spoiler {
    pub(super) fn new(flaw: Flaw) -> Arc<Self> {
        let dice = Mutex::new(Pcg64Mcg::seed_from_u64(fresh()));
        Arc::new(Self { flaw, dice })
    }

    /// Takes a packet on its way to who asked for it.
    pub(super) fn between(self: &Arc<Self>, done: Encoded) -> Encoded {
        let spoiler = self.clone();
        Box::new(move |made| {
            done(made.map(|mut packet| {
                spoiler.pass(&mut packet);
                packet
            }));
        })
    }

    fn pass(&self, packet: &mut [u8]) {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let drawn = dice.next_u64() as f64 / 2.0_f64.powi(64);
        if drawn < self.flaw.wrong_packets && !packet.is_empty() {
            // Any byte will do: of a coefficient as well as of what it is said to have made.
            let at = dice.next_u64() % packet.len() as u64;
            let by = 1 + dice.next_u32() % 255;
            packet[at as usize] ^= by as u8;
        }
    }
}
