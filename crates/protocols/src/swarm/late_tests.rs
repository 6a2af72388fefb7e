//! What becomes of requests that are not answered, and of blocks that are asked for twice.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::Role;

const BLOCKS: u32 = 20;

/// One node of a swarm, its clock, and who says each quarter of a second that it is alive.
struct Scene {
    swarm: Swarm,
    now: Time,
    talkers: Vec<u32>,
}

/// What it said to peers, by peer.
#[derive(Default)]
struct Said {
    alive: Vec<u32>,
    asked: Vec<(u32, BlockId)>,
    cancelled: Vec<(u32, BlockId)>,
    sent: Vec<(u32, BlockId)>,
}

impl Said {
    fn asked_of(&self, peer: u32) -> BTreeSet<BlockId> {
        of(&self.asked, peer)
    }

    fn cancelled_at(&self, peer: u32) -> BTreeSet<BlockId> {
        of(&self.cancelled, peer)
    }
}

fn of(list: &[(u32, BlockId)], peer: u32) -> BTreeSet<BlockId> {
    let theirs = list.iter().filter(|(node, _)| *node == peer);
    theirs.map(|(_, block)| *block).collect()
}

impl Scene {
    /// Node 0 of three, none of which is a source, with these blocks.
    fn new(have: BlockSet) -> Self {
        let member = Member {
            cluster: 0,
            role: Role::Receiver,
        };
        let setup = Setup {
            me: NodeId(0),
            members: vec![member; 3],
            block_bytes: 1024,
            want: BlockSet::full(have.len()),
            have,
            seed: 1,
            plan: None,
            batches: None,
        };
        let mut scene = Self {
            swarm: Swarm::new(Kind::Swarm, setup),
            now: Time::from_secs_f64(100.0),
            talkers: Vec::new(),
        };
        scene.tell(Event::Start);
        scene
    }

    fn tell(&mut self, event: Event<'_>) -> Said {
        let mut out = Actions::default();
        self.swarm.handle(self.now, event, &mut out);
        let mut said = Said::default();
        for action in out.drain() {
            match action {
                Action::SendBlock { to, block } => said.sent.push((to.0, block)),
                Action::Send { to, body } => match postcard::from_bytes(&body).unwrap() {
                    Message::Request { blocks } => {
                        said.asked.extend(blocks.iter().map(|block| (to.0, *block)));
                    }
                    Message::Alive => said.alive.push(to.0),
                    Message::Cancel { blocks } => {
                        said.cancelled
                            .extend(blocks.iter().map(|block| (to.0, *block)));
                    }
                    _ => {}
                },
                Action::Accuse { peer, offence } => panic!("{peer} {offence}"),
                _ => {}
            }
        }
        said
    }

    fn hear(&mut self, from: u32, message: &Message) -> Said {
        let (from, body) = (NodeId(from), postcard::to_stdvec(message).unwrap());
        self.tell(Event::Message { from, body: &body })
    }

    /// A neighbour comes that has everything.
    fn meet(&mut self, peer: u32) -> Said {
        self.meet_with(peer, &BlockSet::full(self.swarm.have.len()))
    }

    /// A neighbour comes that has these blocks.
    fn meet_with(&mut self, peer: u32, have: &BlockSet) -> Said {
        self.tell(Event::PeerUp(NodeId(peer)));
        let want = BlockSet::full(have.len()).to_wire();
        let (have, seeding) = (have.to_wire(), false);
        let message = Message::Bitfield {
            have,
            want,
            seeding,
        };
        self.hear(peer, &message)
    }

    fn arrives(&mut self, from: u32, block: BlockId) -> Said {
        let (from, fresh) = (NodeId(from), !self.swarm.have.contains(block));
        self.tell(Event::Arrived { from, block, fresh })
    }

    /// Time passes.
    fn passes(&mut self, seconds: f64) -> Said {
        let end = self.now + Duration::from_secs_f64(seconds);
        let mut all = Said::default();
        while self.now + TICK <= end {
            self.now += TICK;
            for talker in self.talkers.clone() {
                self.hear(talker, &Message::Alive);
            }
            let said = self.tell(Event::Timer(TICKER));
            all.alive.extend(said.alive);
            all.asked.extend(said.asked);
            all.cancelled.extend(said.cancelled);
        }
        self.now = end;
        all
    }
}

#[test]
fn a_silent_neighbour_loses_its_requests() {
    let mut scene = Scene::new(BlockSet::new(BLOCKS));
    let all = scene.meet(1).asked_of(1);
    assert_eq!(all.len() as u32, BLOCKS);
    assert!(scene.passes(1.9).cancelled.is_empty());
    assert_eq!(scene.passes(0.4).cancelled_at(1), all);
    // For a while it is asked for nothing, and another is for all.
    assert_eq!(scene.meet(2).asked_of(2), all);
}

#[test]
fn a_neighbour_that_talks_and_never_delivers_loses_its_requests() {
    let mut scene = Scene::new(BlockSet::new(BLOCKS));
    let all = scene.meet(1).asked_of(1);
    scene.talkers = vec![1];
    let said = scene.passes(9.9);
    assert!(said.asked.is_empty() && said.cancelled.is_empty());
    assert_eq!(scene.passes(0.4).cancelled_at(1), all);
    let asked = scene.meet(2);
    assert_eq!(asked.asked_of(2), all);
    assert!(asked.asked_of(1).is_empty(), "it is asked again at once");
}

#[test]
fn a_neighbour_that_used_to_be_quick_has_less_time() {
    let mut scene = Scene::new(BlockSet::new(2 * BLOCKS));
    let mut under_way = scene.meet(1).asked_of(1);
    assert!(!under_way.is_empty());
    scene.talkers = vec![1];
    scene.passes(0.1);
    let first = under_way.pop_first().unwrap();
    under_way.extend(scene.arrives(1, first).asked_of(1));
    assert!(scene.passes(1.9).cancelled.is_empty());
    assert_eq!(scene.passes(0.4).cancelled_at(1), under_way);
}

#[test]
fn a_neighbour_that_delivers_keeps_its_requests() {
    let mut scene = Scene::new(BlockSet::new(BLOCKS));
    let all = scene.meet(1).asked_of(1);
    for block in all {
        // Whether it says something else or not.
        assert!(scene.passes(1.9).cancelled.is_empty());
        assert!(scene.arrives(1, block).cancelled.is_empty());
    }
}

#[test]
fn what_is_asked_for_twice_is_cancelled_where_it_is_late() {
    let mut scene = Scene::new(BlockSet::new(BLOCKS));
    let all = scene.meet(1).asked_of(1);
    scene.passes(0.5);
    for block in all.iter().take(8) {
        scene.arrives(1, *block);
    }
    // Longer than the first ones took.
    scene.passes(1.0);
    // Nothing is left to ask for, so the second is asked for a few of those that the first owes.
    let twice = scene.meet(2).asked_of(2);
    assert_eq!(twice.len(), download::AGAIN_MAX);
    assert!(twice.is_subset(&all));
    let mut twice = twice.into_iter();
    for (from, late) in [(2, 1), (1, 2)] {
        let block = twice.next().unwrap();
        let said = scene.arrives(from, block);
        assert_eq!(said.cancelled, [(late, block)]);
    }
    // What is asked of one only is cancelled nowhere.
    let of_one = all.into_iter().find(|block| {
        let owed = |peer| {
            let peer = scene.swarm.neighbours.get(NodeId(peer)).unwrap();
            peer.asked.iter().any(|it| it.block == *block)
        };
        owed(1) && !owed(2)
    });
    assert!(scene.arrives(1, of_one.unwrap()).cancelled.is_empty());
}

#[test]
fn what_comes_from_elsewhere_is_cancelled() {
    let mut scene = Scene::new(BlockSet::new(BLOCKS));
    let all = scene.meet(1).asked_of(1);
    scene.meet_with(2, &BlockSet::new(BLOCKS));
    // Unasked: given by a node that was to give something else, perhaps.
    for block in all {
        assert_eq!(scene.arrives(2, block).cancelled, [(1, block)]);
    }
    assert!(scene.swarm.have.is_full());
}

#[test]
fn what_was_cancelled_is_not_sent() {
    let blocks = 100;
    let mut scene = Scene::new(BlockSet::full(blocks));
    scene.meet_with(1, &BlockSet::new(blocks));
    let all: Vec<BlockId> = (0..blocks).collect();
    let said = scene.hear(
        1,
        &Message::Request {
            blocks: all.clone(),
        },
    );
    let with_driver = of(&said.sent, 1);
    assert!(!with_driver.is_empty());
    assert!(with_driver.len() < 50, "all of it is with the driver");
    // All but the last block.
    let last = blocks - 1;
    assert!(!with_driver.contains(&last));
    let taken_back = all[..last as usize].to_vec();
    scene.hear(1, &Message::Cancel { blocks: taken_back });
    let mut then = Vec::new();
    for block in with_driver {
        let to = NodeId(1);
        then.extend(scene.tell(Event::Sent { to, block }).sent);
    }
    assert_eq!(then, [(1, last)]);
}

#[test]
fn what_a_lost_neighbour_owes_is_asked_of_another() {
    let mut scene = Scene::new(BlockSet::new(BLOCKS));
    let all = scene.meet(1).asked_of(1);
    assert!(scene.meet(2).asked.is_empty());
    let first = all.first().copied().unwrap();
    scene.arrives(1, first);
    let said = scene.tell(Event::PeerDown(NodeId(1)));
    let rest = all.into_iter().filter(|block| *block != first);
    assert_eq!(said.asked_of(2), rest.collect());
}

#[test]
fn a_neighbour_is_asked_for_what_it_said_it_has() {
    let mut scene = Scene::new(BlockSet::new(BLOCKS));
    let mut some = BlockSet::new(BLOCKS);
    some.insert_range(3..7);
    some.insert(11);
    let said = scene.meet_with(1, &some);
    assert_eq!(said.asked_of(1), some.iter().collect());
    let blocks = vec![0, 3, 19];
    let said = scene.hear(1, &Message::Have { blocks });
    assert_eq!(said.asked_of(1), BTreeSet::from([0, 19]));
    // What it refuses it does not have.
    let blocks = vec![0];
    let said = scene.hear(1, &Message::Refuse { blocks });
    assert!(said.asked.is_empty());
    assert_eq!(scene.meet(2).asked_of(2).first(), Some(&0));
}

#[test]
fn a_neighbour_that_waits_hears_that_it_is_not_forgotten() {
    let mut scene = Scene::new(BlockSet::full(BLOCKS));
    scene.meet_with(1, &BlockSet::new(BLOCKS));
    scene.meet_with(2, &BlockSet::new(BLOCKS));
    scene.hear(1, &Message::Request { blocks: vec![4] });
    // Often enough for who takes two seconds of silence for the end.
    assert_eq!(scene.passes(2.0).alive, [1; 4]);
    let (to, block) = (NodeId(1), 4);
    scene.tell(Event::Sent { to, block });
    assert!(scene.passes(2.0).alive.is_empty());
}

#[test]
fn the_first_to_answer_is_not_asked_for_all_that_others_have() {
    let mut scene = Scene::new(BlockSet::new(400));
    let mut due: VecDeque<BlockId> = scene.meet(1).asked_of(1).into_iter().collect();
    let at_first = due.len();
    scene.meet(2);
    // A burst, which says nothing of how fast it is.
    let came = 12;
    for _ in 0..came {
        scene.now += Duration::from_micros(20);
        let block = due.pop_front().unwrap();
        due.extend(scene.arrives(1, block).asked_of(1));
    }
    assert!(due.len() <= at_first + came, "{} are due", due.len());
    // Once it went on for long it is known to be fast.
    for _ in 0..60 {
        scene.now += Duration::from_micros(200);
        let block = due.pop_front().unwrap();
        due.extend(scene.arrives(1, block).asked_of(1));
    }
    assert!(due.len() > 3 * at_first, "{} are due", due.len());
}
