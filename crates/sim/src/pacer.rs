//! Orders about rates, as a scheduler that sees all nodes might give them while a transfer runs.

use std::collections::{BTreeMap, BTreeSet};

use outpour_core::{NodeId, Rate, Time};
use outpour_protocols::{Action, Actions, Event, Protocol, TimerId};

/// From a time on a node sends a peer no faster than so much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateOrder {
    /// Since when.
    pub at: Time,
    /// Which node is to keep it.
    pub from: NodeId,
    /// Towards which node.
    pub to: NodeId,
    /// Unlimited takes the rate away.
    pub rate: Rate,
}

/// No protocol has so many timers.
const TIMER: TimerId = TimerId(u32::MAX);

/// A protocol, and the orders that it keeps without knowing of them.
pub(crate) struct Pacer {
    protocol: Box<dyn Protocol>,
    /// Those to come, the next last.
    orders: Vec<RateOrder>,
    rates: BTreeMap<NodeId, Rate>,
    up: BTreeSet<NodeId>,
}

impl Pacer {
    /// A node's protocol with what it is ordered, in any order.
    pub(crate) fn new(protocol: Box<dyn Protocol>, mut orders: Vec<RateOrder>) -> Self {
        orders.sort_by_key(|order| std::cmp::Reverse(order.at));
        Self {
            protocol,
            orders,
            rates: BTreeMap::new(),
            up: BTreeSet::new(),
        }
    }

    /// Keeps the orders that are due, and waits for the next.
    fn obey(&mut self, now: Time, out: &mut Actions) {
        while let Some(order) = self.orders.pop_if(|order| order.at <= now) {
            let (to, rate) = (order.to, order.rate);
            self.rates.insert(to, rate);
            if self.up.contains(&to) {
                out.push(Action::SetRate { to, rate });
            }
        }
        if let Some(next) = self.orders.last() {
            let (timer, at) = (TIMER, next.at);
            out.push(Action::SetTimer { timer, at });
        }
    }
}

impl Protocol for Pacer {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Timer(TIMER) => return self.obey(now, out),
            Event::Start => self.obey(now, out),
            Event::PeerUp(to) => {
                self.up.insert(to);
                if let Some(&rate) = self.rates.get(&to) {
                    out.push(Action::SetRate { to, rate });
                }
            }
            Event::PeerDown(peer) => {
                self.up.remove(&peer);
            }
            _ => {}
        }
        self.protocol.handle(now, event, out);
    }

    fn is_depended_on_by(&self, peer: NodeId) -> bool {
        self.protocol.is_depended_on_by(peer)
    }
}
