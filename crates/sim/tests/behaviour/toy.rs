//! A new coded protocol takes a file like this one, and a line that names it.

use std::collections::BTreeSet;

use outpour_core::manifest::BlockSize;
use outpour_core::{BatchId, Batches, BlockSet, Bytes, NodeId, Time};
use outpour_protocols::promise::{Promise, Supply};
use outpour_protocols::registry::{CodingTraits, EncodedOptions, Entry, PlanFrom};
use outpour_protocols::{Action, Actions, Coded, Event, Protocol, SEND_QUEUE_MAX, Setup};
use outpour_sim::cast::{CastConfig, simulate};
use outpour_sim::fuzz::{FuzzConfig, fuzz};
use outpour_terms::Asked;
use serde::{Deserialize, Serialize};

use super::star;

/// The line.
static TOY: Entry = Entry {
    name: "toy",
    about: "sources send all nodes packets of one batch after the other",
    baseline: true,
    plan: PlanFrom::Nowhere,
    selective: false,
    coding: Some(CodingTraits {
        live_batches: 2,
        batch_blocks: |_| 16,
    }),
    block_size: |_| BlockSize::AtMost(32 << 10),
    takes: |options| options.read::<Spare>().is_some(),
    promise: Promise {
        supply: Supply::Source,
        ahead: 64,
        turn: 64,
        ..Promise::NEVER
    },
    build: |setup, options| Box::new(Toy::new(setup, options.read().unwrap_or_default())),
};

/// So many packets are sent beyond those that are missing.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Spare(u8);

/// Send me so many packets of this batch, or its blocks one by one, as packets of it were wrong.
#[derive(Serialize, Deserialize)]
struct Want {
    batch: BatchId,
    packets: Option<u16>,
}

struct Toy {
    sources: Vec<NodeId>,
    spare: u16,
    batches: Batches,
    have: BlockSet,
    /// Sources that are up: the first is asked.
    up: BTreeSet<NodeId>,
    /// The one that was asked last.
    asked: Option<NodeId>,
    /// What is here of each batch.
    ranks: Vec<u16>,
    /// Pieces that were asked for and have not come.
    awaited: u32,
    /// Batches of which packets were wrong.
    spoiled: BTreeSet<BatchId>,
}

impl Toy {
    fn new(setup: Setup, spare: Spare) -> Self {
        let batches = setup.batches.expect("this protocol is coded");
        let others = setup.members.iter().zip((0..).map(NodeId));
        let others = others.filter(|(member, node)| member.is_source() && *node != setup.me);
        let here = |batch| {
            let blocks = batches.range(batch);
            blocks.filter(|block| setup.have.contains(*block)).count() as u16
        };
        Self {
            sources: others.map(|(_, node)| node).collect(),
            spare: u16::from(spare.0),
            batches,
            ranks: (0..batches.count()).map(here).collect(),
            have: setup.have,
            up: BTreeSet::new(),
            asked: None,
            awaited: 0,
            spoiled: BTreeSet::new(),
        }
    }

    /// Asks for the first batch of which something is missing, unless something is on its way.
    fn ask(&mut self, out: &mut Actions) {
        let Some(source) = self.up.first().filter(|_| self.awaited == 0) else {
            return;
        };
        for batch in 0..self.batches.count() {
            let blocks = self.batches.range(batch);
            let lacks = blocks.clone().filter(|block| !self.have.contains(*block));
            let lacks = lacks.count() as u32;
            let spoiled = self.spoiled.contains(&batch);
            let missing = blocks.len() as u16 - self.ranks[batch as usize];
            if lacks == 0 || (missing == 0 && !spoiled) {
                continue;
            }
            let packets = (!spoiled).then_some((missing + self.spare).min(SEND_QUEUE_MAX as u16));
            self.awaited = packets.map_or_else(|| blocks.len() as u32, u32::from);
            self.asked = Some(*source);
            return out.send(*source, &Want { batch, packets });
        }
    }

    fn serve(&self, to: NodeId, want: &Want, out: &mut Actions) {
        let batch = want.batch;
        if batch >= self.batches.count() || !self.have.contains_range(self.batches.range(batch)) {
            return;
        }
        match want.packets {
            Some(packets) => (0..packets).for_each(|_| {
                let pure = true;
                out.push(Action::SendPacket { to, batch, pure });
            }),
            None => self.batches.range(batch).for_each(|block| {
                out.push(Action::SendBlock { to, block });
            }),
        }
    }

    fn came(&mut self, out: &mut Actions) {
        self.awaited = self.awaited.saturating_sub(1);
        self.ask(out);
    }
}

impl Protocol for Toy {
    fn handle(&mut self, _: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Start if !self.have.is_full() => {
                let sources = self.sources.iter();
                sources.for_each(|node| out.push(Action::Connect(*node)));
            }
            Event::PeerUp(peer) if self.sources.contains(&peer) => {
                self.up.insert(peer);
                self.ask(out);
            }
            Event::PeerDown(peer) => {
                let asked = self.asked == Some(peer);
                if self.up.remove(&peer) && !self.have.is_full() {
                    out.push(Action::Connect(peer));
                }
                if asked {
                    self.awaited = 0;
                    self.ask(out);
                }
            }
            Event::Message { from, body } => match postcard::from_bytes(body) {
                Ok(want) => self.serve(from, &want, out),
                Err(_) => {
                    let offence = "says what makes no sense";
                    out.push(Action::Accuse {
                        peer: from,
                        offence,
                    });
                }
            },
            Event::Arrived { block, fresh, .. } => {
                self.have.insert(block);
                if !fresh {
                    self.came(out);
                }
            }
            Event::Coded(Coded::Packet { batch, holding, .. }) => {
                self.ranks[batch as usize] = holding.rank;
                if usize::from(holding.rank) == self.batches.range(batch).len() {
                    // What else comes of it is not worth telling.
                    self.awaited = 0;
                }
                self.came(out);
            }
            Event::Coded(Coded::Spoiled { batch }) => {
                self.spoiled.insert(batch);
                self.ask(out);
            }
            _ => {}
        }
    }
}

#[test]
fn a_new_coded_protocol_is_a_file_and_a_line() {
    let config = CastConfig {
        asked: Asked {
            protocol: Some(&TOY),
            options: vec![("toy", EncodedOptions::of(&Spare(1)))],
            ..Asked::default()
        },
        ..CastConfig::new(star(5), NodeId(0), Bytes(8 << 20))
    };
    let report = simulate(config).unwrap();
    assert!((1.0..1.1).contains(&(report.ratio / 4.0)), "{report:?}");
    assert_eq!(report.coding.unwrap().batch_blocks, 16);
}

#[test]
fn options_of_another_protocol_are_refused() {
    let mut config = CastConfig::new(star(5), NodeId(0), Bytes(8 << 20));
    config.asked.protocol = Some(&TOY);
    config.asked.options = vec![("toy", EncodedOptions::of(&"many"))];
    let error = simulate(config).unwrap_err().to_string();
    assert_eq!(error, "these are no options of protocol `toy`");
}

#[test]
fn the_fuzzer_takes_it_as_it_is() {
    let report = fuzz(FuzzConfig {
        first: 0,
        seeds: 400,
        threads: 0,
        protocol: Some(&TOY),
    });
    assert!(report.failures.is_empty(), "{:?}", report.failures);
}
