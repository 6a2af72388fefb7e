//! What nodes do by the plan that a cast begins with, where there is one.
//!
//! Where cards and not links are the limit, and nothing is known to change, a plan of trees costs no hop a
//! decision. The leader watches how all get on. As soon as one falls behind the plan or wants less than
//! everything, it ends the plan, and orders take over from where the trees have come. A node that has
//! no leader ends it as well: who ends its part tells all, and the plan is no more.

use std::collections::VecDeque;
use std::time::Duration;

use outpour_core::{Plan, Rate, Time};

use super::leading::Leading;
use super::{Cause, Central, Message};
use crate::tree;
use crate::{Action, Actions, Event, Protocol, Setup, TimerId};

/// Timers of the plan have numbers from here on, so many.
const PLAN_TIMERS: u32 = 8;
const TIMERS: u32 = 4;
const _: () = assert!(PLAN_TIMERS + TIMERS <= super::TEAM_TIMERS);

/// How long progress is measured, at least; and for how many blocks, or it says little.
const MEASURED: Duration = Duration::from_secs(3);
const MEASURED_BLOCKS: f64 = 16.0;
/// So often in that time it is noted what members have, at most.
const NOTES: u32 = 6;
/// Who got less than this share of what is planned is behind. Where all goes well over TCP, nodes get 0.86 to
/// 0.90 of it on average, and less at times.
const SHARE_MIN: f64 = 0.75;
/// What may be on its way or unreported.
const SLACK_BLOCKS: f64 = 2.0;

/// A node's part in the plan.
pub(super) struct Planned {
    push: Box<dyn Protocol>,
}

impl Planned {
    /// The part of a node that wants everything; others have none, and their leader ends the plan.
    pub(super) fn new(setup: &Setup) -> Option<Self> {
        let planned = setup.plan.is_some() && setup.want.is_full();
        planned.then(|| Self {
            push: tree::part(setup.clone()),
        })
    }
}

impl Central {
    /// Tells this node's part in the plan something, and does what it wants.
    pub(super) fn by_plan(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        let Some(planned) = &mut self.planned else {
            return;
        };
        let mut actions = Actions::default();
        planned.push.handle(now, event, &mut actions);
        for action in actions.drain() {
            match action {
                Action::Connect(node) => self.call(node, out),
                Action::Send { to, body } => out.send(to, &Message::Planned { body }),
                Action::SendBlock { to, block } => {
                    if let Some(peer) = self.peers.get_mut(to) {
                        // No lane is to send it again.
                        peer.given.insert(block);
                        peer.queued.push_back((block, Cause::Plan));
                        out.push(Action::SendBlock { to, block });
                    }
                }
                Action::SetTimer { timer, at } => {
                    debug_assert!(timer.0 < TIMERS, "a plan has few timers");
                    let timer = TimerId(PLAN_TIMERS + timer.0);
                    out.push(Action::SetTimer { timer, at });
                }
                Action::Accuse { peer, offence } => self.accuse(peer, offence, out),
                Action::SetRate { .. } => out.push(action),
                // Who leaves is parted from anyway.
                Action::Disconnect(_) | Action::SendPacket { .. } => {}
            }
        }
    }

    /// Whether a timer is the plan's; tells it.
    pub(super) fn plan_timer(&mut self, now: Time, timer: TimerId, out: &mut Actions) -> bool {
        let timer = timer.0.checked_sub(PLAN_TIMERS);
        let Some(timer) = timer.filter(|timer| *timer < TIMERS) else {
            return false;
        };
        self.by_plan(now, Event::Timer(TimerId(timer)), out);
        true
    }

    /// A peer's part has ended: so does this node's, and its leader's for all.
    pub(super) fn on_unplanned(&mut self, now: Time, out: &mut Actions) {
        self.end_plan(now, out);
        if self.leading.as_ref().is_some_and(Leading::goes_by_plan) {
            self.lead(now, out, Leading::end_plan);
        }
    }

    /// Ends this node's part in the plan, and with it the plan: from now on it goes by orders, and with its
    /// mates.
    pub(super) fn end_plan(&mut self, now: Time, out: &mut Actions) {
        if self.planned.take().is_none() {
            return;
        }
        let rate = Rate::UNLIMITED;
        for (to, peer) in self.peers.iter_mut() {
            peer.forget_plan();
            out.push(Action::SetRate { to, rate });
        }
        out.send_all(self.peers.pick(|_| true), &Message::Unplanned);
        self.call_abroad(out);
        self.go_home(now, out);
    }
}

/// At the leader: how members get on by the plan.
#[derive(Debug)]
pub(super) struct Watch {
    /// See [`tree::flows`].
    flows: Vec<(f64, f64)>,
    window: Duration,
    /// When a member was first known to have got something.
    began: Option<Time>,
    /// What each member had, oldest first; `None` for those that were not there.
    seen: VecDeque<(Time, Vec<Option<u32>>)>,
    /// When to look next.
    pub(super) next: Time,
}

impl Watch {
    pub(super) fn new(now: Time, plan: &Plan, block_bytes: u32) -> Self {
        let flows = tree::flows(plan, block_bytes);
        let rate: f64 = flows.iter().map(|(rate, _)| rate).sum();
        let window = Duration::try_from_secs_f64(MEASURED_BLOCKS / rate);
        Self {
            flows,
            window: window.unwrap_or(MEASURED).max(MEASURED),
            began: None,
            seen: VecDeque::new(),
            next: now,
        }
    }

    /// How many blocks come to every node in a time, as planned.
    fn due(&self, from: Time, to: Time) -> f64 {
        let Some(began) = self.began else { return 0.0 };
        let passed = |time: Time| time.since(began).as_secs_f64();
        let (from, to) = (passed(from), passed(to));
        let due = |(rate, lag): &(f64, f64)| rate * (to - from.max(*lag)).max(0.0);
        self.flows.iter().map(due).sum()
    }

    /// Notes what members have now, of so many blocks; whether one is behind.
    pub(super) fn is_behind(&mut self, now: Time, held: Vec<Option<u32>>, blocks: u32) -> bool {
        // The last that is old enough is what is compared with.
        while self.seen.len() > 1 && now.since(self.seen[1].0) >= self.window {
            self.seen.pop_front();
        }
        if held.iter().flatten().any(|held| (1..blocks).contains(held)) {
            self.began.get_or_insert(now);
        }
        let behind = self.seen.front().is_some_and(|(then, before)| {
            let due = self.due(*then, now);
            let slow = |(held, before): (&Option<u32>, &Option<u32>)| {
                let (Some(held), Some(before)) = (held, before) else {
                    return false;
                };
                let (gained, lacked) = (held.saturating_sub(*before), blocks - before);
                let due = due.min(f64::from(lacked)) - SLACK_BLOCKS;
                let slow = f64::from(gained) < SHARE_MIN * due;
                slow || (gained == 0 && lacked > 0)
            };
            now.since(*then) >= self.window && held.iter().zip(before).any(slow)
        });
        let noted = self.seen.back().map(|(last, _)| now.since(*last));
        if noted.is_none_or(|since| since >= self.window / NOTES) {
            self.seen.push_back((now, held));
        }
        debug_assert!(
            self.seen.len() <= NOTES as usize + 2,
            "older ones are dropped"
        );
        behind
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_core::NodeId;
    use outpour_core::plan::Tree;

    use super::*;

    const BLOCK: u32 = 1000;
    const BLOCKS: u32 = 1000;

    /// Trees of so many bytes per second, each a line of three nodes.
    fn watch(rates: &[f64]) -> Watch {
        let tree = |rate: &f64| Tree {
            rate: Rate::from_bytes_per_s(*rate).unwrap(),
            edges: vec![(NodeId(0), NodeId(1)), (NodeId(1), NodeId(2))],
        };
        let plan = Plan {
            roots: vec![NodeId(0)],
            trees: rates.iter().map(tree).collect(),
        };
        Watch::new(Time::ZERO, &plan, BLOCK)
    }

    /// When somebody is behind, looking twice a second for half a minute; `held` after so many seconds.
    fn behind(mut watch: Watch, held: impl Fn(f64) -> Vec<Option<u32>>) -> Option<f64> {
        let mut times = (0..60).map(|half| f64::from(half) / 2.0);
        times.find(|at| watch.is_behind(Time::from_secs_f64(*at), held(*at), BLOCKS))
    }

    #[test]
    fn who_keeps_up_is_not_behind() {
        let all = Some(BLOCKS);
        // A second until the first block is there, and one node comes later.
        let held = |at: f64| {
            let got = |since: f64| ((at - since).max(0.0) * 40.0).min(1000.0) as u32;
            vec![all, Some(got(1.0)), (at >= 3.0).then(|| got(3.0))]
        };
        assert_eq!(behind(watch(&[30e3, 10e3]), held), None);
        // The object is through.
        let held = |at: f64| vec![all, Some((at * 400.0).min(1000.0) as u32), all];
        assert_eq!(behind(watch(&[400e3]), held), None);
    }

    #[test]
    fn who_gets_too_little_is_behind() {
        let held = |share: f64| {
            move |at: f64| {
                // From the tenth second on one gets less.
                let slow = (at.min(10.0) + (at - 10.0).max(0.0) * share) * 40.0;
                let got = |blocks: f64| Some((blocks as u32).min(BLOCKS));
                vec![Some(BLOCKS), got(at * 40.0), got(slow)]
            }
        };
        assert_eq!(behind(watch(&[40e3]), held(0.8)), None);
        let found = behind(watch(&[40e3]), held(0.6)).unwrap();
        assert!((10.0..=13.5).contains(&found), "{found} s");
        let found = behind(watch(&[40e3]), held(0.0)).unwrap();
        assert!((10.0..=12.0).contains(&found), "{found} s");
        // Nothing at all comes from the beginning.
        let held = |_| vec![Some(BLOCKS), Some(0), Some(0)];
        assert_eq!(behind(watch(&[40e3]), held), Some(3.0));
    }

    #[test]
    fn a_slow_tree_is_not_waited_for_before_its_first_block_can_be_there() {
        // Its blocks take four seconds each way, and it brings a fifth.
        let rates = [1000.0, 250.0];
        let held = |at: f64| {
            let got = at.mul_add(1.0, (at - 8.0).max(0.0) * 0.25);
            vec![Some(BLOCKS), Some(got as u32), Some(got as u32)]
        };
        assert_eq!(behind(watch(&rates), held), None);
        let held = |at: f64| vec![Some(BLOCKS), Some(at as u32), Some((at * 0.6) as u32)];
        assert!(behind(watch(&rates), held).is_some());
    }
}
