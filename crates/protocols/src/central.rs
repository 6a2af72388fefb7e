//! `central`: one node decides for all which blocks each sends to which, twice a second anew.
//!
//! The first source hosts the [controller](outpour_controller), which knows the network. It brings one
//! copy of each block to each site, whose nodes pass it on among themselves. All nodes
//! report to it what they got and what they achieve, and each is told how its *lanes* change: which
//! blocks it sends to which node, and how fast [BDS §4, §5]. Blocks and messages between other nodes
//! never pass the leader.
//!
//! - *Lead*: the sender leads; the recipient reports everything it has, and from then on what is new.
//! - *Home*: the sender takes part in the team of its site's receivers.
//! - *Order*: how the recipient's lanes change. A node goes on with its lanes until it is told
//!   otherwise, so no transfer waits for a decision.
//!
//! A node without a leader helps itself [BDS §5.3]: it becomes part of a [team](crate::robber), which
//! those that it can reach join for its sake, and leaves it when a leader gives it an order again. One that
//! got nothing although there was a leader stays for as long as it will trust in that leader afterwards.
//! Nothing that is here or on its way is given up for either.
//!
//! Several sources are ranked by their numbers. If none leads that a source can reach, it takes over,
//! in a higher epoch than any that it heard of; the others wait longer. Nodes obey the highest epoch.

mod agent;
mod aid;
mod leading;
mod message;
mod peer;
mod planned;
mod room;

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_controller::Change;
use outpour_core::network::Network;
use outpour_core::{BlockId, BlockSet, NodeId, Separation, Time, Traffic};
use serde::{Deserialize, Serialize};

use crate::peers::Peers;
use crate::promise::Promise;
use crate::registry::{EncodedOptions, Entry, PlanFrom, USUAL_BLOCKS};
use crate::team::Kind;
use crate::{Action, Actions, Event, Protocol, Role, SEND_QUEUE_MAX, Setup, TimerId};
use agent::Agent;
use aid::Aid;
use leading::Leading;
use message::{Achieved, Message, Report};
use peer::{Cause, Peer};
use planned::Planned;

/// The registry's line.
pub const ENTRY: Entry = Entry {
    name: "central",
    about: "one node decides twice a second, from the described network and what all report",
    baseline: false,
    plan: PlanFrom::Network {
        describe: CentralOptions::describe,
        first: Some("optimal"),
    },
    selective: true,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes: |options| {
        let options = options.read::<CentralOptions>();
        options.is_some_and(|options| options.is_sound())
    },
    // What is late is ordered again, and what a team asked for may be on its way by order.
    promise: Promise {
        copies: 1,
        ahead: agent::WINDOW_MAX as u32,
        ..Promise::per_turn(2 * agent::WINDOW_MAX as u32, 0)
    },
    build: |setup, options| {
        let options = options.read().unwrap_or_default();
        Box::new(Central::new(setup, options)) as Box<dyn Protocol>
    },
};

/// How long decisions hold by default: a compromise between how soon a block can be passed on and
/// how much is decided.
const CYCLE: Duration = Duration::from_millis(500);
/// How often clocks are looked at.
const TICK: Duration = Duration::from_millis(500);
/// How long a node waits for a leader before it helps itself.
const AID_AFTER: Duration = Duration::from_secs(3);
/// How long a node that gets nothing trusts in its leader: twice as long each time, up to the second.
const STARVES_AFTER: Duration = Duration::from_secs(10);
const STARVES_AFTER_MAX: Duration = Duration::from_secs(160);
/// How long a source waits for another one to lead, for each that ranks before it. It doubles each
/// time it took over, so that two that cannot hear each other do not take turns for ever.
const LEAD_AFTER: Duration = Duration::from_secs(4);
const LEAD_AFTER_MAX: Duration = Duration::from_secs(60);

/// To how many other sites connections are made before anything is to be sent there.
const CALLED_ABROAD_MAX: usize = 16;

const TICKER: TimerId = TimerId(0);
const REPORTER: TimerId = TimerId(1);
const DECIDER: TimerId = TimerId(2);
/// Timers of teams have numbers from here on.
const TEAM_TIMERS: u32 = 16;

/// In which the first source leads that has not heard of any other leader.
const FIRST_EPOCH: u64 = 1;
/// No cast has so many leaders.
const EPOCH_MAX: u64 = 1 << 40;

const NONSENSE: &str = "sent an invalid message";
const WRONG_EPOCH: &str = "named an impossible epoch";

/// What the nodes have to know of the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CentralOptions {
    /// The members' network as TOML; nothing if none was described, and then nobody leads.
    network: String,
    /// The node of each member.
    nodes: Vec<NodeId>,
    /// How long decisions hold, in milliseconds; zero for the default.
    cycle_ms: u32,
    /// How room is left for latency-sensitive traffic; `None` if none has to be.
    separation: Option<Separation>,
}

impl CentralOptions {
    /// Options for a network, in which each member is at one of the nodes.
    fn describe(
        network: &Network,
        nodes: &[NodeId],
        separation: Option<Separation>,
    ) -> EncodedOptions {
        EncodedOptions::of(&Self {
            network: network.to_toml(),
            nodes: nodes.to_vec(),
            cycle_ms: 0,
            separation,
        })
    }

    fn cycle(&self) -> Duration {
        match self.cycle_ms {
            0 => CYCLE,
            ms => Duration::from_millis(ms.into()),
        }
    }

    /// The network, if there is one and all members are in it.
    fn network(&self) -> Option<Network> {
        let network = Network::from_toml(&self.network, "network of the cast").ok()?;
        let mut nodes = self.nodes.clone();
        nodes.sort_unstable();
        nodes.dedup();
        let distinct = nodes.len() == self.nodes.len();
        let known = nodes
            .last()
            .is_some_and(|last| last.0 < network.node_count());
        (distinct && known).then_some(network)
    }

    fn is_sound(&self) -> bool {
        let range = outpour_controller::CYCLE_MIN..=outpour_controller::CYCLE_MAX;
        let none = self.network.is_empty() && self.nodes.is_empty();
        let rule = self.separation.is_none_or(|rule| rule.checked().is_ok());
        rule && range.contains(&self.cycle()) && (none || self.network().is_some())
    }
}

/// One node's part.
struct Central {
    setup: Setup,
    options: CentralOptions,
    have: BlockSet,
    /// What is wanted here and not here.
    lacking: BlockSet,
    peers: Peers<Peer>,
    /// Members that left or broke the protocol.
    gone: Vec<bool>,
    /// The nodes that this node calls.
    called: Vec<bool>,
    agent: Agent,
    /// Its part in the plan, until that ends.
    planned: Option<Planned>,
    /// The team that this node is part of.
    aid: Option<Aid>,
    /// How many teams it has been part of.
    teams: u32,
    leading: Option<Leading>,
    /// Whether it would be in vain to lead: nothing can be decided.
    helpless: bool,
    /// The highest epoch that was heard of.
    epoch: u64,
    lead_after: Duration,
    /// When the last block came.
    gained: Time,
    /// Whether that was too long ago, and how long that is.
    starves: bool,
    patience: Duration,
    /// Others help it until then, even if a leader gives it orders.
    helped_until: Time,
    /// The network, if room is to be left on its links, and what was last measured of latency-sensitive traffic.
    shared: Option<Network>,
    traffic: Vec<Traffic>,
    ticking: bool,
}

impl Central {
    fn new(setup: Setup, options: CentralOptions) -> Self {
        let members = setup.members.len();
        let mut lacking = setup.want.clone();
        lacking.subtract(&setup.have);
        let fits = options.separation.is_some() && options.nodes.len() == members;
        Self {
            have: setup.have.clone(),
            lacking,
            peers: Peers::default(),
            gone: vec![false; members],
            called: vec![false; members],
            agent: Agent::new(members, setup.block_bytes, options.separation.is_some()),
            planned: Planned::new(&setup),
            aid: None,
            teams: 0,
            leading: None,
            helpless: false,
            epoch: 0,
            lead_after: LEAD_AFTER,
            gained: Time::ZERO,
            starves: false,
            patience: STARVES_AFTER,
            helped_until: Time::ZERO,
            shared: fits.then(|| options.network()).flatten(),
            traffic: Vec::new(),
            ticking: false,
            options,
            setup,
        }
    }

    /// What holds between any two events.
    fn check(&self) {
        let me = self.setup.me;
        debug_assert!(!self.peers.contains(me), "a node is its own peer");
        debug_assert!(!self.called[me.index()], "a node calls itself");
        for (node, peer) in self.peers.iter() {
            debug_assert!(peer.queued.len() <= SEND_QUEUE_MAX, "{node}'s queue");
            debug_assert!(peer.waiting.len() <= SEND_QUEUE_MAX, "{node} asks too much");
            debug_assert!(
                peer.team.is_none_or(|(_, number)| number > 0),
                "teams have numbers from 1 on"
            );
        }
        let leads = |leading: &Leading| leading.epoch() <= self.epoch;
        debug_assert!(self.leading.as_ref().is_none_or(leads));
        self.agent.check(&self.have, &self.setup);
        debug_assert!(self.planned.is_none() || self.aid.is_none());
        debug_assert!(self.planned.is_none() || !self.agent.has_lanes());
        if let Some(aid) = &self.aid {
            aid.check(&self.peers);
        }
        debug_assert!(self.lacking.count() <= self.have.missing());
        let waits = !self.lacking.is_empty() || self.agent.has_lanes();
        debug_assert!(self.ticking || !waits, "it would wait for ever");
    }

    fn members(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.setup.members.len() as u32).map(NodeId)
    }

    /// Whether this node wants nothing itself.
    fn is_relay(&self) -> bool {
        self.setup.want.is_empty()
    }

    fn is_source(&self, node: NodeId) -> bool {
        self.setup.members[node.index()].is_source()
    }

    fn start(&mut self, now: Time, out: &mut Actions) {
        self.leave_room(out);
        self.agent.lost = Some(now);
        self.gained = now;
        for node in self.members() {
            if node != self.setup.me && self.is_source(node) {
                self.call(node, out);
            }
        }
        match self.planned {
            Some(_) => self.by_plan(now, Event::Start, out),
            None => self.call_abroad(out),
        }
        self.consider_leading(now, out);
        self.go_home(now, out);
        self.tick_on(now, out);
    }

    /// The first receiver of each site calls those of other sites, as lanes between them are the likeliest:
    /// their first blocks need not wait for a handshake over the wide area.
    fn call_abroad(&mut self, out: &mut Actions) {
        let mut firsts: BTreeMap<u32, NodeId> = BTreeMap::new();
        for (node, member) in self.members().zip(&self.setup.members) {
            if member.role == Role::Receiver {
                firsts.entry(member.cluster).or_insert(node);
            }
        }
        let me = self.setup.me;
        if firsts.values().any(|first| *first == me) {
            let others = firsts.into_values().filter(|first| *first > me);
            let others: Vec<NodeId> = others.take(CALLED_ABROAD_MAX).collect();
            others.into_iter().for_each(|node| self.call(node, out));
        }
    }

    /// Whether a node and this one pass on to each other what comes into their site. Sources send only by
    /// order, or those who could get it from others would take up what they can send.
    fn is_mate(&self, node: NodeId) -> bool {
        let me = self.setup.me;
        let site = |node: NodeId| self.setup.members[node.index()].cluster;
        node != me && site(node) == site(me) && !self.is_source(node) && !self.is_source(me)
    }

    fn call(&mut self, node: NodeId, out: &mut Actions) {
        debug_assert!(node != self.setup.me, "a node calls itself");
        if !self.gone[node.index()] && !std::mem::replace(&mut self.called[node.index()], true) {
            out.push(Action::Connect(node));
        }
    }

    fn accuse(&mut self, peer: NodeId, offence: &'static str, out: &mut Actions) {
        self.gone[peer.index()] = true;
        out.push(Action::Accuse { peer, offence });
    }

    fn tick_on(&mut self, now: Time, out: &mut Actions) {
        if !self.ticking {
            self.ticking = true;
            let at = now + TICK;
            out.push(Action::SetTimer { timer: TICKER, at });
        }
    }

    // ---- peers

    fn on_up(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        debug_assert!(!self.peers.contains(node), "{node} is up twice");
        let peer = Peer::new(self.have.len());
        self.peers.insert(node, peer);
        out.send(node, &Message::Hello);
        if let Some(leading) = &self.leading {
            let epoch = leading.epoch();
            out.send(node, &Message::Lead { epoch });
        }
        if self.setup.plan.is_some() && self.planned.is_none() {
            out.send(node, &Message::Unplanned);
        }
        if let Some(Aid {
            number,
            kind,
            needy,
            ..
        }) = self.aid
        {
            let team = number;
            if needy {
                out.send(node, &Message::Needy { team });
            } else if kind == Kind::Mates && self.is_mate(node) {
                out.send(node, &Message::Home { team });
            }
        }
        self.agent.came(node, out);
        self.tell_traffic(node, out);
        self.by_plan(now, Event::PeerUp(node), out);
        self.presume(now, node, out);
    }

    /// The first source leads from its start on: who meets it and knows of no other leader reports at once,
    /// or would lose a round trip until it is told.
    fn presume(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        let first = self.members().find(|member| self.is_source(*member));
        let fresh = self.epoch == 0 && self.agent.leader().is_none();
        if fresh && first == Some(node) && !self.is_source(self.setup.me) {
            self.agent.presume(node, FIRST_EPOCH);
            self.report(now, out);
        }
    }

    fn on_down(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        if self.peers.remove(node).is_none() {
            return;
        }
        if self.called[node.index()] && !self.gone[node.index()] {
            out.push(Action::Connect(node));
        }
        self.team_lost(now, node, out);
        self.by_plan(now, Event::PeerDown(node), out);
        self.agent.went(now, node);
        self.report_soon(now, out);
        if self.leading.is_some() {
            self.lead(now, out, |leading| leading.lost(now, node));
        }
        self.tick_on(now, out);
    }

    fn on_gone(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        self.gone[node.index()] = true;
        if std::mem::take(&mut self.called[node.index()]) {
            out.push(Action::Disconnect(node));
        }
        self.on_down(now, node, out);
        self.agent.give_up(node);
        self.report_soon(now, out);
        self.by_plan(now, Event::Left(node), out);
        self.team(now, Event::Left(node), out);
    }

    // ---- blocks

    fn on_block(
        &mut self,
        now: Time,
        from: NodeId,
        block: BlockId,
        fresh: bool,
        out: &mut Actions,
    ) {
        if fresh && self.have.insert(block) {
            self.gained = now;
            self.starves = false;
            self.lacking.remove(block);
            self.agent.gained(block);
            self.report_soon(now, out);
            for node in self.agent.waiting_for(block) {
                self.pump(now, node, out);
            }
        }
        self.by_plan(now, Event::Arrived { from, block, fresh }, out);
        self.team(now, Event::Arrived { from, block, fresh }, out);
        if self.lacking.is_empty() && !self.is_relay() {
            self.is_helped(out);
        }
    }

    fn on_sent(&mut self, now: Time, to: NodeId, block: BlockId, out: &mut Actions) {
        let Some(peer) = self.peers.get_mut(to) else {
            return;
        };
        let at = peer.queued.iter().position(|(queued, _)| *queued == block);
        debug_assert!(at.is_some(), "block {block} was not queued for {to}");
        let sent = at.and_then(|at| peer.queued.remove(at));
        peer.give_waiting(to, out);
        self.agent.keep_no_more(to, peer, out);
        match sent {
            Some((_, Cause::Team)) => self.team(now, Event::Sent { to, block }, out),
            Some((_, Cause::Plan)) => self.by_plan(now, Event::Sent { to, block }, out),
            _ => {}
        }
        self.pump(now, to, out);
    }

    /// Hands the driver what is next in the lane to a node.
    fn pump(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        if let Some(peer) = self.peers.get_mut(node) {
            if peer.heard {
                let block_bytes = self.setup.block_bytes;
                self.agent.pump(node, peer, &self.have, block_bytes, out);
            }
        } else if self.agent.has_lane(node) {
            self.agent.miss(now, node);
            self.call(node, out);
        }
    }

    // ---- leaders

    /// Leads, if it is time and this is a source.
    fn consider_leading(&mut self, now: Time, out: &mut Actions) {
        let me = self.setup.me;
        if self.leading.is_some() || self.helpless || !self.is_source(me) || !self.have.is_full() {
            return;
        }
        let Some(lost) = self.agent.lost else {
            return;
        };
        let sources = self.members().filter(|node| self.is_source(*node));
        let before = sources.take_while(|node| *node != me);
        let before = before.filter(|node| !self.gone[node.index()]).count() as u32;
        let first = before == 0 && self.epoch == 0;
        // Where none is in need there is nothing to decide.
        let needed = self.peers.iter().any(|(_, peer)| peer.needy);
        if !first && !needed {
            return;
        }
        let patience = if first {
            Duration::ZERO
        } else {
            self.lead_after * (before + 1)
        };
        if now.since(lost) < patience {
            return;
        }
        let epoch = self.next_epoch();
        let by_plan = first && self.planned.is_some();
        let leading = Leading::new(now, epoch, &self.options, &self.setup, by_plan);
        self.helpless = leading.is_none();
        self.leading = leading;
        if self.leading.is_none() {
            return;
        }
        if !first {
            self.lead_after = (self.lead_after * 2).min(LEAD_AFTER_MAX);
        }
        self.epoch = epoch;
        self.agent.obey(me, epoch);
        out.send_all(self.peers.pick(|_| true), &Message::Lead { epoch });
        self.tell_leading(now, out);
        self.report(now, out);
    }

    /// The lowest epoch above all that were heard of that no other source may take.
    fn next_epoch(&self) -> u64 {
        let sources = self.members().filter(|node| self.is_source(*node));
        let sources: Vec<NodeId> = sources.collect();
        let rank = sources.iter().position(|node| *node == self.setup.me);
        let (rank, count) = (rank.unwrap_or(0) as u64, sources.len().max(1) as u64);
        let epoch = self.epoch + (rank + count - self.epoch % count) % count + 1;
        debug_assert!(epoch > self.epoch && (epoch - 1) % count == rank);
        epoch
    }

    /// Does something as the leader, and carries out what comes of it.
    fn lead(&mut self, now: Time, out: &mut Actions, act: impl FnOnce(&mut Leading)) {
        let Some(mut leading) = self.leading.take() else {
            return;
        };
        act(&mut leading);
        let orders = leading.decide(now);
        let asks = leading.take_asks();
        if let Some(at) = leading.wake_at() {
            let timer = DECIDER;
            out.push(Action::SetTimer { timer, at });
        }
        let (me, epoch) = (self.setup.me, leading.epoch());
        let (deposed, planned) = (leading.is_deposed(), leading.goes_by_plan());
        if !planned {
            self.end_plan(now, out);
        }
        self.leading = Some(leading).filter(|_| !deposed);
        if deposed {
            self.agent.abandon(now);
            return;
        }
        let asked = asks.into_iter().filter(|node| self.peers.contains(*node));
        out.send_all(asked, &Message::Lead { epoch });
        for (to, whole, changes) in orders {
            if to == me {
                self.on_order(now, me, epoch, whole, changes, out);
            } else if self.peers.contains(to) {
                let order = Message::Order {
                    epoch,
                    whole,
                    changes,
                };
                out.send(to, &order);
            }
        }
    }

    fn on_lead(&mut self, now: Time, from: NodeId, epoch: u64, out: &mut Actions) {
        if !self.is_source(from) {
            return self.accuse(from, "leads and is no source", out);
        }
        if epoch == 0 || epoch > EPOCH_MAX {
            return self.accuse(from, WRONG_EPOCH, out);
        }
        if epoch < self.epoch {
            // It should know that it is not the last.
            Agent::tell_epoch(from, self.epoch, out);
            return;
        }
        self.epoch = epoch;
        if self.leading.take().is_some() {
            self.agent.abandon(now);
        }
        if self.agent.was_presumed(from, epoch) {
            return;
        }
        self.agent.obey(from, epoch);
        self.report(now, out);
    }

    fn on_order(
        &mut self,
        now: Time,
        from: NodeId,
        epoch: u64,
        whole: bool,
        changes: Vec<Change>,
        out: &mut Actions,
    ) {
        if !self.agent.obeys(from, epoch) {
            return;
        }
        let (me, members, blocks) = (self.setup.me, self.gone.len() as u32, self.have.len());
        if !agent::are_sound(&changes, me, members, blocks) {
            return self.accuse(from, "gave an impossible order", out);
        }
        self.agent.hear(now);
        if !changes.is_empty() {
            self.end_plan(now, out);
        }
        // A relay is in need for the sake of others.
        let needy = self.aid.as_ref().is_some_and(|aid| aid.needy) && !self.is_relay();
        if needy && !self.starves && now >= self.helped_until {
            self.end_need(now, out);
        }
        self.tick_on(now, out);
        let touched = self.agent.order(now, whole, changes, &self.peers, out);
        for node in touched {
            if self.gone[node.index()] {
                self.agent.give_up(node);
            } else {
                self.pump(now, node, out);
            }
        }
        self.report_soon(now, out);
    }

    fn report_soon(&mut self, now: Time, out: &mut Actions) {
        if let Some(at) = self.agent.report_at(now) {
            let timer = REPORTER;
            out.push(Action::SetTimer { timer, at });
        }
    }

    /// Tells the leader what is new.
    fn report(&mut self, now: Time, out: &mut Actions) {
        let Some(leader) = self.agent.leader() else {
            return;
        };
        if leader == self.setup.me {
            let report = self.agent.report(&self.have, &self.setup.want);
            self.on_report(now, leader, &report, out);
        } else if self.peers.contains(leader) {
            let report = self.agent.report(&self.have, &self.setup.want);
            out.send(leader, &Message::Report(report));
        }
    }

    fn on_report(&mut self, now: Time, from: NodeId, report: &Report, out: &mut Actions) {
        let blocks = self.have.len();
        let want = match &report.want {
            Some(want) => BlockSet::from_wire(want, blocks),
            None => Some(BlockSet::full(blocks)),
        };
        let gained = BlockSet::from_wire(&report.gained, blocks);
        let (Some(gained), Some(want)) = (gained, want) else {
            return self.accuse(from, "named blocks the object lacks", out);
        };
        let members = self.gone.len() as u32;
        let achieved = report.achieved.iter().map(|lane| &lane.to);
        let mut named = achieved.chain(&report.severed);
        if named.any(|node| node.0 >= members) {
            return self.accuse(from, "named members that there are not", out);
        }
        if report.epoch > EPOCH_MAX {
            return self.accuse(from, WRONG_EPOCH, out);
        }
        self.epoch = self.epoch.max(report.epoch);
        self.lead(now, out, |leading| {
            leading.report(now, from, report, &gained, want)
        });
    }

    // ---- clocks and messages

    fn on_tick(&mut self, now: Time, out: &mut Actions) {
        self.ticking = false;
        let unreachable = self
            .agent
            .unreachable(now, |node| self.peers.contains(node));
        if unreachable {
            self.report_soon(now, out);
        }
        self.agent.take_down(&self.peers, out);
        if !self.lacking.is_empty() || self.is_source(self.setup.me) {
            self.agent.watch(now, AID_AFTER);
        }
        self.consider_leading(now, out);
        let waited = self
            .agent
            .lost
            .is_some_and(|lost| now.since(lost) >= AID_AFTER);
        // Nobody has to reach the leader while the plan brings blocks.
        let brings = self.planned.is_some() && now.since(self.gained) < AID_AFTER;
        let waited = waited && !brings;
        // A leader may know nothing of what is amiss, as where nodes of a site do not reach each other.
        if !self.starves && now.since(self.gained) >= self.patience {
            self.starves = true;
            self.patience = (self.patience * 2).min(STARVES_AFTER_MAX);
            // Help lasts as long as the next wait. If it ended with the next order, it would bring a few
            // blocks, and each wait for more would be longer.
            self.helped_until = now + self.patience;
        }
        if (waited || self.starves) && !self.lacking.is_empty() && self.leading.is_none() {
            self.need(now, out);
        }
        if !self.lacking.is_empty() || self.agent.has_lanes() || self.robs() {
            self.tick_on(now, out);
        }
    }

    fn on_message(&mut self, now: Time, from: NodeId, body: &[u8], out: &mut Actions) {
        let Ok(message) = postcard::from_bytes(body) else {
            return self.accuse(from, NONSENSE, out);
        };
        let Some(peer) = self.peers.get_mut(from) else {
            return;
        };
        if !std::mem::replace(&mut peer.heard, true) {
            self.pump(now, from, out);
        }
        match message {
            Message::Hello => {}
            Message::Lead { epoch } => self.on_lead(now, from, epoch, out),
            Message::Report(report) => self.on_report(now, from, &report, out),
            Message::Order {
                epoch,
                whole,
                changes,
            } => {
                self.on_order(now, from, epoch, whole, changes, out);
            }
            Message::Traffic { traffic } => self.on_traffic(from, traffic, out),
            Message::Unplanned => self.on_unplanned(now, out),
            Message::Planned { body } => {
                self.by_plan(now, Event::Message { from, body: &body }, out);
            }
            Message::Home { team } => self.on_home(now, from, team, out),
            Message::Needy { team } => self.on_needy(now, from, team, out),
            Message::Helped => {
                if let Some(peer) = self.peers.get_mut(from) {
                    peer.needy = false;
                }
            }
            Message::Joined { team, yours } => self.on_joined(now, from, team, yours, out),
            Message::Parted => self.on_parted(now, from, out),
            Message::Team { yours, body } => self.on_team(now, from, yours, &body, out),
        }
    }
}

impl Protocol for Central {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Coded(_) => {}
            Event::Start => self.start(now, out),
            Event::Foreground(traffic) => self.on_foreground(now, traffic, out),
            Event::PeerUp(peer) => self.on_up(now, peer, out),
            Event::PeerDown(peer) => self.on_down(now, peer, out),
            Event::Left(peer) => self.on_gone(now, peer, out),
            Event::Message { from, body } => self.on_message(now, from, body, out),
            Event::Arrived { from, block, fresh } => self.on_block(now, from, block, fresh, out),
            Event::Rejected { from, .. } => {
                self.gone[from.index()] = true;
                self.by_plan(now, event, out);
                self.team(now, event, out);
            }
            Event::Sent { to, block } => self.on_sent(now, to, block, out),
            Event::Achieved { to, rate } => {
                self.agent.achieved(now, to, rate, self.peers.get(to));
                self.report_soon(now, out);
            }
            Event::Timer(TICKER) => self.on_tick(now, out),
            Event::Timer(REPORTER) => {
                self.agent.report_due();
                self.report(now, out);
            }
            Event::Timer(DECIDER) => self.lead(now, out, |_| {}),
            Event::Timer(timer) => {
                if !self.plan_timer(now, timer, out) {
                    self.team_timer(now, timer, out);
                }
            }
        }
        self.check();
    }
}

#[cfg(test)]
mod tests;
