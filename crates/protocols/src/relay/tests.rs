//! What a node of a tree push does when its parent is lost, is silent, or only talks.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Member, Role};

const BLOCKS: u32 = 20;
/// The node whose part is played, the node behind it, and how many there are.
const ME: u32 = 3;
const CHILD: u32 = 4;
const MEMBERS: u32 = 5;

/// One node, its clock, and what it said last that it will do.
struct Scene {
    relay: Relay,
    now: Time,
    /// When its timer fires.
    due: Option<Time>,
}

impl Scene {
    /// A node with these blocks that wants those, behind nodes 2, 1 and 0 and before node 4.
    fn new(have: BlockSet, want: BlockSet) -> Self {
        let role = |node| match node {
            0 => Role::Source,
            ME if want.is_empty() => Role::Relay,
            _ => Role::Receiver,
        };
        let member = |node| Member {
            cluster: 0,
            role: role(node),
        };
        let setup = Setup {
            me: NodeId(ME),
            members: (0..MEMBERS).map(member).collect(),
            block_bytes: 1024,
            have,
            want,
            seed: 1,
            plan: None,
            batches: None,
        };
        let shape = Shape {
            parents: [2, 1, 0, CHILD].map(NodeId).to_vec(),
            before: 3,
            neighbours: vec![NodeId(CHILD)],
            children_max: 1,
        };
        let now = Time::from_secs_f64(100.0);
        let relay = Relay::new(setup, shape);
        let due = None;
        Self { relay, now, due }
    }

    /// A receiver without a block that has just turned to node 2.
    fn receiver() -> Self {
        let mut scene = Self::new(BlockSet::new(BLOCKS), BlockSet::full(BLOCKS));
        assert_eq!(scene.tell(Event::Start), ["call 4", "call 2"]);
        assert_eq!(scene.up(2), ["attach to 2 for 20"]);
        assert!(scene.says(2, &alive(true)).is_empty());
        scene
    }

    /// What the node does about an event, its timer and words for children and of blocks apart.
    fn tell(&mut self, event: Event<'_>) -> Vec<String> {
        let mut out = Actions::default();
        self.relay.handle(self.now, event, &mut out);
        let mut did = Vec::new();
        for action in out.drain() {
            did.push(match action {
                Action::Connect(node) => format!("call {}", node.0),
                Action::Disconnect(node) => format!("hang up on {}", node.0),
                Action::SendBlock { to, block } => format!("send {block} to {}", to.0),
                Action::SetTimer { at, .. } => {
                    self.due = Some(at);
                    continue;
                }
                Action::Send { to, body } => match postcard::from_bytes(&body).unwrap() {
                    Message::Attach { spare, failed, .. } => {
                        let needs = complement(&BlockSet::from_wire(&spare, BLOCKS).unwrap());
                        let failed = failed.map(|node| format!(", not {}", node.0));
                        let failed = failed.unwrap_or_default();
                        format!("attach to {} for {}{failed}", to.0, needs.count())
                    }
                    Message::Detach => format!("detach from {}", to.0),
                    Message::Redirect { to: other } => format!("send {} to {}", to.0, other.0),
                    Message::Change { .. } | Message::Ack { .. } | Message::Alive { .. } => {
                        continue;
                    }
                },
                other => panic!("{other:?}"),
            });
        }
        did
    }

    fn up(&mut self, peer: u32) -> Vec<String> {
        self.tell(Event::PeerUp(NodeId(peer)))
    }

    fn down(&mut self, peer: u32) -> Vec<String> {
        self.tell(Event::PeerDown(NodeId(peer)))
    }

    fn says(&mut self, from: u32, message: &Message) -> Vec<String> {
        let (from, body) = (NodeId(from), postcard::to_stdvec(message).unwrap());
        self.tell(Event::Message { from, body: &body })
    }

    fn arrives(&mut self, from: u32, block: BlockId) -> Vec<String> {
        let (from, fresh) = (NodeId(from), true);
        self.tell(Event::Arrived { from, block, fresh })
    }

    /// What it does while time passes in which no node says anything but, before each tick, `speaks`.
    fn passes(&mut self, seconds: f64, speaks: Option<(u32, bool)>) -> Vec<String> {
        let end = self.now + Duration::from_secs_f64(seconds);
        let mut did = Vec::new();
        while let Some(due) = self.due.filter(|due| *due <= end) {
            (self.now, self.due) = (due, None);
            if let Some((parent, more)) = speaks {
                did.extend(self.says(parent, &alive(more)));
            }
            did.extend(self.tell(Event::Timer(TICKER)));
        }
        self.now = end;
        did
    }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

/// A parent's word, which has all blocks.
fn alive(more: bool) -> Message {
    let above = BlockSet::new(MEMBERS).to_wire();
    let hops = 0;
    Message::Alive { more, hops, above }
}

/// A child's, which has none.
fn attach() -> Message {
    Message::Attach {
        spare: BlockSet::new(BLOCKS).to_wire(),
        failed: None,
        insist: false,
    }
}

#[test]
fn a_silent_parent_is_left() {
    let mut scene = Scene::receiver();
    // It waits itself, as far as is known.
    assert_eq!(scene.says(2, &alive(false)), nothing());
    assert_eq!(scene.passes(1.9, None), nothing());
    // A block is a word, too.
    assert_eq!(scene.arrives(2, 7), nothing());
    assert_eq!(scene.passes(1.9, None), nothing());
    assert_eq!(scene.passes(0.6, None), ["detach from 2", "call 1"]);
    // The next one hears which parent failed, and what is here already.
    assert_eq!(scene.up(1), ["attach to 1 for 19, not 2"]);
    // Who never answers is left sooner.
    assert_eq!(scene.passes(1.25, None), ["detach from 1", "call 0"]);
}

#[test]
fn a_parent_that_talks_and_gives_nothing_is_left() {
    let mut scene = Scene::receiver();
    let dry = scene.relay.patience.as_secs_f64();
    assert_eq!(scene.passes(dry - 0.1, Some((2, true))), nothing());
    assert_eq!(
        scene.passes(0.6, Some((2, true))),
        ["detach from 2", "call 1"]
    );
    // Blocks may just take long: the next has twice the time.
    assert_eq!(scene.up(1), ["attach to 1 for 20, not 2"]);
    assert_eq!(scene.passes(2.0 * dry - 0.1, Some((1, true))), nothing());
    let again = scene.passes(0.6, Some((1, true)));
    assert_eq!(again, ["detach from 1", "call 0"]);
}

#[test]
fn a_parent_that_gives_is_kept_however_slow_it_is() {
    let mut scene = Scene::receiver();
    for block in 0..BLOCKS - 1 {
        // One that gave has twice the time.
        let times = if block == 0 { 1.0 } else { 2.0 };
        let less = times * scene.relay.patience.as_secs_f64() - 0.1;
        assert_eq!(scene.passes(less, Some((2, true))), nothing());
        assert_eq!(scene.arrives(2, block), nothing());
    }
    assert_eq!(scene.arrives(2, BLOCKS - 1), ["detach from 2"]);
}

#[test]
fn a_parent_that_waits_itself_has_more_time() {
    let mut scene = Scene::receiver();
    let wait = WAIT_MAX.as_secs_f64();
    assert_eq!(scene.passes(wait - 0.1, Some((2, false))), nothing());
    assert_eq!(
        scene.passes(0.6, Some((2, false))),
        ["detach from 2", "call 1"]
    );
}

#[test]
fn a_lost_parent_is_replaced_by_the_next_and_by_the_best_in_the_end() {
    let mut scene = Scene::receiver();
    assert_eq!(scene.arrives(2, 0), nothing());
    assert_eq!(scene.down(2), ["call 1"]);
    // One that does not come up is no parent either.
    assert_eq!(scene.passes(3.5, None), ["hang up on 1", "call 0"]);
    assert_eq!(scene.up(0), ["attach to 0 for 19, not 1"]);
    assert_eq!(scene.down(0), ["call 4"]);
    // All have failed: the one whose time is over first is tried again, unless it has left.
    assert_eq!(scene.up(CHILD), ["attach to 4 for 19, not 0"]);
    assert_eq!(scene.tell(Event::Left(NodeId(2))), nothing());
    assert_eq!(scene.down(CHILD), ["call 1"]);
    assert_eq!(scene.up(1), ["attach to 1 for 19, not 4"]);
    assert_eq!(scene.arrives(1, 1), nothing());
    // Suspicion ends.
    assert_eq!(scene.passes(9.0, Some((1, false))), nothing());
    let dry = 2.0 * scene.relay.patience.as_secs_f64() + 0.5;
    assert_eq!(
        scene.passes(dry, Some((1, true))),
        ["detach from 1", "call 0"]
    );
}

#[test]
fn a_relay_has_a_parent_while_its_child_lacks_something() {
    let mut scene = Scene::new(BlockSet::new(BLOCKS), BlockSet::new(BLOCKS));
    assert_eq!(scene.tell(Event::Start), ["call 4"]);
    assert_eq!(scene.up(CHILD), nothing());
    assert_eq!(scene.passes(5.0, None), nothing());
    assert_eq!(scene.says(CHILD, &attach()), ["call 2"]);
    assert_eq!(scene.up(2), ["attach to 2 for 20"]);
    assert_eq!(scene.arrives(2, 5), ["send 5 to 4"]);
    // It is lost, and so is the next.
    assert_eq!(scene.down(2), ["call 1"]);
    assert_eq!(scene.up(1), ["attach to 1 for 19, not 2"]);
    // Who never answers is left sooner.
    assert_eq!(scene.passes(1.25, None), ["detach from 1", "call 0"]);
    assert_eq!(scene.up(0), ["attach to 0 for 19, not 1"]);
    // Without a child it needs no parent, and with the child it does again.
    assert_eq!(scene.down(CHILD), ["detach from 0"]);
    assert_eq!(scene.passes(5.0, None), nothing());
    assert_eq!(scene.up(CHILD), nothing());
    let again = scene.says(CHILD, &attach());
    assert_eq!(again, ["send 5 to 4", "attach to 0 for 19, not 1"]);
}

#[test]
fn a_relay_that_found_no_parent_looks_again() {
    let mut scene = Scene::new(BlockSet::new(BLOCKS), BlockSet::new(BLOCKS));
    scene.tell(Event::Start);
    scene.up(CHILD);
    scene.passes(5.0, None);
    assert_eq!(scene.says(CHILD, &attach()), ["call 2"]);
    assert_eq!(scene.up(2), ["attach to 2 for 20"]);
    // The child goes and comes again at once, before another parent may be looked for.
    assert_eq!(scene.down(CHILD), ["detach from 2"]);
    assert_eq!(scene.up(CHILD), nothing());
    assert_eq!(scene.says(CHILD, &attach()), nothing());
    assert_eq!(scene.passes(1.0, None), ["attach to 2 for 20"]);
}

/// The words about themselves that a node says to its child at two ticks.
fn words(scene: &mut Scene) -> Vec<(bool, u32)> {
    let mut words = Vec::new();
    for _ in 0..2 {
        let mut out = Actions::default();
        scene.now += TICK;
        scene
            .relay
            .handle(scene.now, Event::Timer(TICKER), &mut out);
        words.extend(out.drain().filter_map(|action| match action {
            Action::Send { to, body } if to == NodeId(CHILD) => match postcard::from_bytes(&body) {
                Ok(Message::Alive { more, hops, .. }) => Some((more, hops)),
                _ => None,
            },
            _ => None,
        }));
    }
    words
}

#[test]
fn a_child_hears_at_every_tick_whether_there_is_more() {
    let full = BlockSet::full(BLOCKS);
    let mut scene = Scene::new(full.clone(), full);
    scene.tell(Event::Start);
    scene.up(CHILD);
    scene.says(CHILD, &attach());
    assert_eq!(words(&mut scene), [(true, 0); 2]);
    // One that has nothing itself says that, and how far the blocks have to come.
    let mut scene = Scene::receiver();
    scene.up(CHILD);
    scene.says(CHILD, &attach());
    scene.says(2, &alive(true));
    assert_eq!(words(&mut scene), [(false, 1); 2]);
    assert_eq!(scene.arrives(2, 3), ["send 3 to 4"]);
    assert_eq!(words(&mut scene), [(true, 1); 2]);
}

#[test]
fn a_child_is_sent_a_window_and_no_more_until_it_acknowledges() {
    let blocks = 100;
    let full = BlockSet::full(blocks);
    let mut scene = Scene::new(full.clone(), full);
    scene.tell(Event::Start);
    scene.up(CHILD);
    let attach = Message::Attach {
        spare: BlockSet::new(blocks).to_wire(),
        failed: None,
        insist: false,
    };
    let mut sent = scene.says(CHILD, &attach).len() as u32;
    assert_eq!(sent, QUEUE);
    let leave = |scene: &mut Scene, sent: &mut u32| {
        for block in 0..QUEUE {
            let to = NodeId(CHILD);
            *sent += scene.tell(Event::Sent { to, block }).len() as u32;
        }
    };
    leave(&mut scene, &mut sent);
    leave(&mut scene, &mut sent);
    assert_eq!(sent, WINDOW_MIN);
    // More than was sent it cannot have: that opens nothing.
    let received = WINDOW_MIN / 2;
    sent += scene.says(CHILD, &Message::Ack { received }).len() as u32;
    sent += scene.says(CHILD, &Message::Ack { received }).len() as u32;
    assert_eq!(sent, WINDOW_MIN + WINDOW_MIN / 2);
}

#[test]
fn a_full_parent_sends_a_newcomer_on_to_its_child() {
    let full = BlockSet::full(BLOCKS);
    let mut scene = Scene::new(full.clone(), full);
    scene.tell(Event::Start);
    scene.up(CHILD);
    scene.up(2);
    assert_eq!(scene.says(CHILD, &attach()).len() as u32, QUEUE);
    assert_eq!(scene.says(2, &attach()), ["send 2 to 4"]);
    // Unless the child is the parent that failed it, or says nothing any more.
    let failed = Some(NodeId(CHILD));
    let spare = BlockSet::new(BLOCKS).to_wire();
    let insist = false;
    let attach = Message::Attach {
        spare,
        failed,
        insist,
    };
    assert_eq!(scene.says(2, &attach).len() as u32, QUEUE);
}

#[test]
fn of_two_children_the_one_that_takes_less_is_passed_on_to_the_other() {
    let full = BlockSet::full(BLOCKS);
    for slow in [2, CHILD] {
        let mut scene = Scene::new(full.clone(), full.clone());
        scene.tell(Event::Start);
        for child in [CHILD, 2] {
            scene.up(child);
            // The second says that the first has failed it, be it so or not.
            let attach = Message::Attach {
                spare: BlockSet::new(BLOCKS).to_wire(),
                failed: (child == 2).then_some(NodeId(CHILD)),
                insist: false,
            };
            assert_eq!(scene.says(child, &attach).len() as u32, QUEUE);
        }
        let mut passed_on = Vec::new();
        for tick in 1..=2 {
            assert!(passed_on.is_empty(), "after {tick} ticks");
            for child in [CHILD, 2] {
                let received = if child == slow { 0 } else { tick };
                scene.says(child, &Message::Ack { received });
            }
            passed_on = scene.passes(TICK.as_secs_f64(), None);
        }
        let other = CHILD + 2 - slow;
        assert_eq!(passed_on, [format!("send {slow} to {other}")]);
    }
}

#[test]
fn a_node_that_did_not_run_blames_no_parent() {
    let mut scene = Scene::receiver();
    // Its disk hung: no timer fired, and what its parent said is heard only now.
    scene.now += Duration::from_secs(5);
    assert_eq!(scene.tell(Event::Timer(TICKER)), nothing());
    assert_eq!(scene.passes(0.9, Some((2, true))), nothing());
    // Nor does one that is busy with what another sent.
    assert_eq!(scene.arrives(1, 4), nothing());
    assert_eq!(scene.passes(0.9, Some((2, true))), nothing());
    assert_eq!(
        scene.passes(0.6, Some((2, true))),
        ["detach from 2", "call 1"]
    );
}
