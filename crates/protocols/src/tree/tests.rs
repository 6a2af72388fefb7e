//! What a node of trees does when the node above it is lost, is silent, or only talks.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Member, Role};

const BLOCKS: u32 = 20;
/// The last of a line of four nodes.
const ME: u32 = 3;

/// One node, its clock, and when its timer fires.
struct Scene {
    tree: TreePush,
    now: Time,
    due: Option<Time>,
}

impl Scene {
    /// A receiver without a block that node 2 has just begun to serve.
    fn new() -> Self {
        let line = [(0, 1), (1, 2), (2, ME)];
        let edges = line.map(|(from, to)| (NodeId(from), NodeId(to))).to_vec();
        let rate = Rate::from_bytes_per_s(1e6).unwrap();
        let plan = Plan {
            roots: vec![NodeId(0)],
            trees: vec![Tree { rate, edges }],
        };
        let member = |node| Member {
            cluster: node,
            role: Role::source_if(node == 0),
        };
        let setup = Setup {
            me: NodeId(ME),
            members: (0..=ME).map(member).collect(),
            block_bytes: 1024,
            have: BlockSet::new(BLOCKS),
            want: BlockSet::full(BLOCKS),
            seed: 1,
            plan: Some(Arc::new(plan)),
            batches: None,
        };
        let mut scene = Self {
            tree: TreePush::new(setup, Pushing::Free),
            now: Time::from_secs_f64(100.0),
            due: None,
        };
        assert_eq!(scene.tell(Event::Start), ["call 2"]);
        assert_eq!(scene.up(2), ["attach to 2"]);
        assert!(scene.says(2, 5).is_empty());
        scene
    }

    /// What the node does about an event, timers and what is mended apart.
    fn tell(&mut self, event: Event<'_>) -> Vec<String> {
        let mut out = Actions::default();
        self.tree.handle(self.now, event, &mut out);
        let mut did = Vec::new();
        for action in out.drain() {
            did.push(match action {
                Action::Connect(node) => format!("call {}", node.0),
                Action::Disconnect(node) => format!("hang up on {}", node.0),
                Action::SetTimer { at, .. } => {
                    self.due = Some(at);
                    continue;
                }
                Action::Send { to, body } => match postcard::from_bytes(&body).unwrap() {
                    Message::Attach { .. } => format!("attach to {}", to.0),
                    Message::Detach { .. } => format!("detach from {}", to.0),
                    Message::Skip { block } => format!("skip {block} at {}", to.0),
                    Message::Alive { .. } | Message::Mend(_) => continue,
                },
                other => panic!("{other:?}"),
            });
        }
        did
    }

    fn up(&mut self, peer: u32) -> Vec<String> {
        self.tell(Event::PeerUp(NodeId(peer)))
    }

    fn arrives(&mut self, from: u32, block: BlockId) -> Vec<String> {
        let fresh = !self.tree.have.contains(block);
        let from = NodeId(from);
        self.tell(Event::Arrived { from, block, fresh })
    }

    /// A node says that it has so many blocks to send.
    fn says(&mut self, from: u32, owed: u32) -> Vec<String> {
        let (from, body) = (
            NodeId(from),
            postcard::to_stdvec(&Message::Alive { owed }).unwrap(),
        );
        self.tell(Event::Message { from, body: &body })
    }

    /// What it does while time passes in which a node says before each tick what it owes.
    fn passes(&mut self, seconds: f64, speaks: Option<(u32, u32)>) -> Vec<String> {
        let end = self.now + Duration::from_secs_f64(seconds);
        let mut did = Vec::new();
        while let Some(due) = self.due.filter(|due| *due <= end) {
            (self.now, self.due) = (due, None);
            if let Some((from, owed)) = speaks {
                did.extend(self.says(from, owed));
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

#[test]
fn a_silent_parent_is_bypassed() {
    let mut scene = Scene::new();
    assert_eq!(scene.passes(0.9, None), nothing());
    assert_eq!(scene.arrives(2, 0), nothing());
    assert_eq!(scene.passes(1.9, None), nothing());
    assert_eq!(scene.passes(0.6, None), ["detach from 2", "call 1"]);
    assert_eq!(scene.up(1), ["attach to 1"]);
}

#[test]
fn a_parent_that_talks_and_never_delivers_is_bypassed() {
    let mut scene = Scene::new();
    assert_eq!(scene.passes(0.9, Some((2, 5))), nothing());
    let said = scene.passes(0.6, Some((2, 5)));
    // Whom it calls besides is a matter of mending.
    assert_eq!(said[..2], ["detach from 2", "call 1"]);
}

#[test]
fn a_parent_that_delivers_or_has_nothing_itself_is_kept() {
    let mut scene = Scene::new();
    for block in 0..3 {
        assert_eq!(scene.passes(0.9, Some((2, 5))), nothing());
        assert_eq!(scene.arrives(2, block), nothing());
    }
    let said = scene.passes(60.0, Some((2, 0)));
    assert!(!said.contains(&"detach from 2".to_owned()), "{said:?}");
}

#[test]
fn a_lost_parent_is_replaced_until_it_is_back() {
    let mut scene = Scene::new();
    assert_eq!(scene.arrives(2, 0), nothing());
    assert_eq!(scene.tell(Event::PeerDown(NodeId(2))), ["call 1"]);
    assert_eq!(scene.up(1), ["attach to 1"]);
    assert_eq!(scene.arrives(1, 1), nothing());
    // The next one above it, if that goes, too.
    assert_eq!(scene.tell(Event::PeerDown(NodeId(1))), ["call 0"]);
    assert_eq!(scene.up(0), ["attach to 0"]);
    assert_eq!(scene.up(2), ["detach from 0", "attach to 2"]);
    assert_eq!(scene.arrives(2, 2), nothing());
}

#[test]
fn what_came_from_elsewhere_is_not_sent_again() {
    let mut scene = Scene::new();
    scene.up(1);
    assert_eq!(scene.arrives(1, 7), ["skip 7 at 2"]);
    assert_eq!(scene.arrives(2, 8), nothing());
    // It is here already: whoever sends it knows that it did.
    assert_eq!(scene.arrives(2, 7), nothing());
}
