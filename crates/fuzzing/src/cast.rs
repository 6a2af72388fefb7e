//! Input for what nodes, agents and coordinators of a cast say to each other: terms, reports, series.

use std::time::Duration;

use outpour_core::{BlockSet, NodeId, Rate, Time};
use outpour_protocols::coordinator::{
    Config, Contact, Coordinator, HostState, Input as Happened, Output, Participant, Report,
};
use outpour_protocols::registry::find;
use outpour_protocols::series::{AHEAD_MAX, Effect, Multicast, Series, SeriesTimer, Signal};
use outpour_protocols::{Actions, Event, MESSAGE_BYTES_MAX, Role, SEND_QUEUE_MAX, TimerId};
use outpour_terms::Terms;

use crate::input::Input;

/// Terms that are let through come back as they were, and the protocol can be built by them.
pub(crate) fn terms(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let me = NodeId(u32::from(input.byte()));
    let blocks = u32::from(input.byte());
    let Ok(terms) = postcard::from_bytes::<Terms>(input.rest()) else {
        return;
    };
    let once = postcard::to_stdvec(&terms).expect("plain data encodes");
    let back: Terms = postcard::from_bytes(&once).expect("what was encoded");
    // By its bytes, as a number that is none is not equal to itself.
    assert_eq!(postcard::to_stdvec(&back).as_deref(), Ok(&once[..]));
    if terms.check(me).is_err() || terms.members.len() > 64 {
        return;
    }
    let Ok(batches) = terms.batches(blocks, terms.block_bytes) else {
        return;
    };
    let have = match terms.members[me.index()].is_source() {
        true => BlockSet::full(blocks),
        false => BlockSet::new(blocks),
    };
    let want = match terms.members[me.index()].role {
        Role::Relay => BlockSet::new(blocks),
        _ => BlockSet::full(blocks),
    };
    let setup = terms.setup(me, have, want, terms.block_bytes, batches);
    let mut node = terms.protocol.build(setup);
    let mut actions = Actions::default();
    node.handle(Time::ZERO, Event::Start, &mut actions);
    for peer in (0..terms.members.len() as u32)
        .map(NodeId)
        .filter(|it| *it != me)
    {
        node.handle(Time::ZERO, Event::PeerUp(peer), &mut actions);
    }
    assert!(actions.drain().count() < 100_000, "actions without end");
}

const NODES: u32 = 5;

/// Whatever agents report, the coordinator gives each host one verdict: no host is verified that did not say
/// that it is complete.
pub(crate) fn coordinator(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let roles = [
        Role::Source,
        Role::Source,
        Role::Relay,
        Role::Receiver,
        Role::Receiver,
    ];
    let nodes = roles.iter().enumerate().map(|(node, role)| Participant {
        name: format!("node{node}"),
        role: *role,
    });
    let mut coordinator = Coordinator::new(Config {
        epoch: 1,
        nodes: nodes.collect(),
        size_bytes: 1000,
        entries: 3,
        patience: Duration::from_secs(60),
    });
    let mut now = Time::ZERO;
    let mut complete = [false; NODES as usize];
    let mut verdicts = [HostState::Starting; NODES as usize];
    while !input.is_empty() {
        let op = input.byte();
        let node = NodeId(u32::from(op >> 4) % (NODES + 1));
        let happened = match op & 15 {
            0 => Happened::Joined {
                node,
                contact: Contact::default(),
            },
            1 => Happened::Claiming { node },
            2 => Happened::Waiting { node },
            3 => Happened::Refused {
                node,
                error: "refused".into(),
            },
            4 => Happened::Lost {
                node,
                error: "lost".into(),
            },
            5 | 6 => {
                now += Duration::from_millis(100) * u32::from(input.byte());
                Happened::Woken
            }
            7 => Happened::Report {
                node,
                report: Report::Preparing,
            },
            8 => Happened::Report {
                node,
                report: Report::Prepared { have_bytes: 0 },
            },
            _ => match input.value::<Report>() {
                Some(report) => Happened::Report { node, report },
                None => continue,
            },
        };
        if let Happened::Report {
            node,
            report: Report::Complete { .. },
        } = &happened
            && let Some(complete) = complete.get_mut(node.index())
        {
            *complete = true;
        }
        let ended = coordinator.has_ended();
        let outputs = coordinator.handle(now, happened);
        assert!(outputs.len() < 1000, "{} outputs", outputs.len());
        let ends = outputs.contains(&Output::Ended);
        assert_eq!(coordinator.has_ended(), ended || ends);
        for ((host, complete), verdict) in
            coordinator.nodes().iter().zip(complete).zip(&mut verdicts)
        {
            assert!(complete || host.state != HostState::Verified, "{host:?}");
            assert!(
                !verdict.is_final() || host.state == *verdict,
                "a verdict is final"
            );
            *verdict = host.state;
        }
    }
    let outputs = coordinator.cancel(now, "cancelled");
    assert!(coordinator.has_ended() && outputs.len() < 1000);
}

const MEMBERS: u32 = 4;
const SERIES_BLOCKS: u32 = 40;

/// Whatever other members say in a series, a member sends blocks that it has to members that are up, and
/// is not led further ahead than it may be.
pub(crate) fn series(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let me = NodeId(0);
    let protocol = ["robber", "mob", "swarm", "chain"][usize::from(input.byte() % 4)];
    let protocol = find(protocol).expect("a protocol there is").by_default();
    let mut series = Series::new(protocol, me, vec![0, 0, 1, 1], 7);
    let mut driver = SeriesDriver::default();
    let mut now = Time::ZERO;
    let mut out = Vec::new();
    while !input.is_empty() {
        let op = input.byte();
        let peer = NodeId(1 + u32::from(op >> 4) % (MEMBERS - 1));
        let up = driver.up[peer.index()];
        now += Duration::from_millis(1 + u64::from(op));
        match op & 15 {
            0 | 1 if !up && !driver.left[peer.index()] => {
                driver.up[peer.index()] = true;
                series.handle(now, Signal::PeerUp(peer), &mut out);
            }
            2 if up => {
                driver.down(peer);
                series.handle(now, Signal::PeerDown(peer), &mut out);
            }
            3 if !driver.left[peer.index()] && input.byte() < 64 => driver.accused.push(peer),
            4 => {
                let have = match input.byte() % 3 {
                    0 => BlockSet::full(SERIES_BLOCKS),
                    1 => BlockSet::new(SERIES_BLOCKS),
                    _ => {
                        let mut have = BlockSet::new(SERIES_BLOCKS);
                        have.insert_range(0..10);
                        have
                    }
                };
                let roots = if have.is_full() { vec![me] } else { vec![] };
                let multicast = Multicast {
                    have: have.clone(),
                    roots,
                    block_bytes: 1024,
                    plan: None,
                };
                if series.begin(now, multicast, &mut out).is_ok() {
                    driver.have.push(have);
                }
            }
            5 => {
                let operation = driver.have.len().saturating_sub(1) as u32;
                let timer = TimerId(u32::from(input.byte() % 4));
                series.handle(
                    now,
                    Signal::Timer(SeriesTimer { operation, timer }),
                    &mut out,
                );
            }
            6 if up && !driver.have.is_empty() => {
                let operation = u32::from(input.byte()) % driver.have.len() as u32;
                let block = u32::from(input.byte()) % SERIES_BLOCKS;
                let fresh = driver.have[operation as usize].insert(block);
                let (from, running) = (peer, operation >= driver.flushed);
                if running {
                    series.handle(
                        now,
                        Signal::Arrived {
                            from,
                            operation,
                            block,
                            fresh,
                        },
                        &mut out,
                    );
                }
            }
            7 => {
                if let Some((operation, block)) = driver.queued[peer.index()].pop() {
                    series.handle(
                        now,
                        Signal::Sent {
                            to: peer,
                            operation,
                            block,
                        },
                        &mut out,
                    );
                }
            }
            8 if up => {
                let rate = Rate::from_bytes_per_s(f64::from(input.short())).unwrap_or(Rate::ZERO);
                series.handle(now, Signal::Achieved { to: peer, rate }, &mut out);
            }
            // A message of an operation, wrapped as series wrap it.
            9..=12 if up => {
                let (operation, len) = (input.byte() % 16, input.byte() % 64);
                let inner = input.take(len.into());
                let mut body = vec![0, operation, inner.len() as u8];
                body.extend(inner);
                series.handle(
                    now,
                    Signal::Message {
                        from: peer,
                        body: &body,
                    },
                    &mut out,
                );
            }
            13..=15 if up => {
                let len = usize::from(input.byte());
                let body = input.take(len);
                series.handle(now, Signal::Message { from: peer, body }, &mut out);
            }
            _ => {}
        }
        driver.carry_out(&mut out);
        for peer in std::mem::take(&mut driver.accused) {
            if !std::mem::replace(&mut driver.left[peer.index()], true) {
                driver.down(peer);
                series.handle(now, Signal::Left(peer), &mut out);
                driver.carry_out(&mut out);
            }
        }
        assert!(series.begun() - driver.flushed <= AHEAD_MAX);
    }
}

/// The other side of a series: who is up, what is here, what is queued.
#[derive(Default)]
struct SeriesDriver {
    up: [bool; MEMBERS as usize],
    left: [bool; MEMBERS as usize],
    accused: Vec<NodeId>,
    have: Vec<BlockSet>,
    queued: [Vec<(u32, u32)>; MEMBERS as usize],
    flushed: u32,
}

impl SeriesDriver {
    fn down(&mut self, peer: NodeId) {
        self.up[peer.index()] = false;
        self.queued[peer.index()].clear();
    }

    fn carry_out(&mut self, out: &mut Vec<Effect>) {
        assert!(out.len() < 10_000, "effects without end");
        for effect in out.drain(..) {
            match effect {
                Effect::Send { to, body } => {
                    assert!(self.up[to.index()], "a message to {to}, which is not up");
                    assert!(body.len() <= MESSAGE_BYTES_MAX);
                }
                Effect::SendBlock {
                    to,
                    operation,
                    block,
                } => {
                    assert!(self.up[to.index()], "a block to {to}, which is not up");
                    assert!(self.have[operation as usize].contains(block));
                    let queued = &mut self.queued[to.index()];
                    queued.push((operation, block));
                    assert!(queued.len() <= SEND_QUEUE_MAX * AHEAD_MAX as usize);
                }
                Effect::Accuse { peer, .. } => self.accused.push(peer),
                Effect::Flushed { operation } => {
                    assert_eq!(operation, self.flushed, "flushed in order");
                    self.flushed += 1;
                }
                Effect::Received { operation } => {
                    assert!(self.have[operation as usize].is_full());
                }
                Effect::Connect(_)
                | Effect::Disconnect(_)
                | Effect::SetRate { .. }
                | Effect::SetTimer { .. } => {}
            }
        }
    }
}
