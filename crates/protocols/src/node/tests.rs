//! What a node does about what its driver tells it.
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use super::*;
use crate::TimerId;

const PEER: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const BLOCKS: u32 = 8;
const BLOCK_BYTES: u32 = 100;

/// What protocols were told, and what they shall want next.
#[derive(Clone, Default)]
struct Log(
    Arc<Mutex<(Vec<String>, Vec<Action>)>>,
    /// The peers that count on it.
    Arc<Mutex<std::collections::BTreeSet<u32>>>,
);

impl Protocol for Log {
    fn handle(&mut self, _: Time, event: Event<'_>, out: &mut crate::Actions) {
        let mut log = self.0.lock().unwrap();
        log.0.push(format!("{event:?}"));
        log.1.drain(..).for_each(|action| out.push(action));
    }

    fn is_depended_on_by(&self, peer: NodeId) -> bool {
        self.1.lock().unwrap().contains(&peer.0)
    }
}

struct Scene {
    node: Node,
    log: Log,
    now: Time,
}

impl Scene {
    fn new(manifest: Option<BlockSet>) -> Self {
        let log = Log::default();
        let protocol = log.clone();
        let node = Node::new(Config {
            me: NodeId(0),
            members: 4,
            build: Box::new(move |_, _, _, _| Box::new(protocol.clone())),
            manifest: manifest.map(|have| (have, BLOCK_BYTES)),
            object: None,
            want: Want::All,
        });
        let now = Time::ZERO;
        Self { node, log, now }
    }

    /// A receiver that moves, of whose object these blocks are here.
    fn moving(have: BlockSet, batches: Option<Batches>) -> Self {
        let mut scene = Self::new(None);
        scene.tell(Input::Start);
        scene.tell(Input::Opened(Ok(object(have, batches))));
        scene.begin();
        scene.link(Event::PeerUp(PEER));
        scene.told();
        scene
    }

    fn begin(&mut self) -> Vec<Output> {
        let contacts = std::iter::once((PEER, Contact::default())).collect();
        self.tell(Input::Order(Box::new(Order::Begin { contacts })))
    }

    fn tell(&mut self, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        self.node.handle(self.now, input, &mut out);
        out
    }

    fn link(&mut self, event: Event<'_>) -> Vec<Output> {
        self.tell(Input::Link(Transfer::Object, event))
    }

    fn arrives(&mut self, block: BlockId) -> Vec<Output> {
        let (from, fresh) = (PEER, true);
        self.link(Event::Arrived { from, block, fresh })
    }

    fn beat(&mut self) -> Vec<Output> {
        self.tell(Input::Beat(&Measures::default()))
    }

    fn wait(&mut self, seconds: f64) {
        self.now = Time::from_secs_f64(self.now.as_secs_f64() + seconds);
    }

    /// What protocols were told since the last call.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.log.0.lock().unwrap().0)
    }

    /// Has the protocol that is told something next want this.
    fn want(&self, action: Action) {
        self.log.0.lock().unwrap().1.push(action);
    }
}

fn object(have: BlockSet, batches: Option<Batches>) -> Box<Object> {
    Box::new(Object {
        have,
        block_bytes: BLOCK_BYTES,
        size_bytes: u64::from(BLOCKS * BLOCK_BYTES),
        batches,
        block_len: Arc::new(|_| BLOCK_BYTES),
    })
}

fn all_but(block: BlockId) -> BlockSet {
    let mut have = BlockSet::full(BLOCKS);
    have.remove(block);
    have
}

fn none() -> BlockSet {
    BlockSet::new(BLOCKS)
}

fn trouble(full: bool) -> Trouble {
    let (why, passes) = ("trouble".to_owned(), true);
    Trouble { why, full, passes }
}

fn reports(outputs: &[Output]) -> Vec<&Report> {
    let reports = outputs.iter().filter_map(|output| match output {
        Output::Report(report) => Some(&**report),
        _ => None,
    });
    reports.collect()
}

fn is_complete(report: &&Report) -> bool {
    matches!(report, Report::Complete { .. })
}

fn is_failure(report: &&Report) -> bool {
    matches!(report, Report::Failed { .. })
}

#[test]
fn a_receiver_goes_from_the_manifest_to_its_verdict() {
    let mut scene = Scene::new(Some(BlockSet::new(1)));
    assert_eq!(scene.tell(Input::Start), [Output::Open(Transfer::Manifest)]);
    scene.begin();
    scene.tell(Input::Link(Transfer::Manifest, Event::PeerUp(PEER)));
    assert_eq!(scene.told(), ["Start", "PeerUp(NodeId(1))"]);
    let (from, block, fresh) = (PEER, 0, true);
    let arrived = Event::Arrived { from, block, fresh };
    let out = scene.tell(Input::Link(Transfer::Manifest, arrived));
    assert_eq!(out.last(), Some(&Output::OpenDestination));
    let out = scene.tell(Input::Opened(Ok(object(all_but(5), None))));
    assert_eq!(reports(&out), [&Report::Prepared { have_bytes: 700 }]);
    assert_eq!(out.last(), Some(&Output::Open(Transfer::Object)));
    scene.link(Event::PeerUp(PEER));
    let out = scene.arrives(5);
    assert_eq!(out.last(), Some(&Output::Finish));
    // A block that comes twice is here once, and not fresh the second time.
    assert_eq!(scene.arrives(5), []);
    assert!(scene.told().last().unwrap().contains("fresh: false"));
    let out = scene.tell(Input::Finished(Ok(()), &Measures::default()));
    let received_bytes = 200;
    let complete = Report::Complete { received_bytes };
    assert_eq!(reports(&out), [&complete]);
    assert_eq!(reports(&scene.beat()), [&complete], "again and again");
    let finish = scene.tell(Input::Order(Box::new(Order::Finish)));
    assert_eq!(finish, [Output::End(Outcome::Finished)]);
    assert_eq!(scene.beat(), []);
}

#[test]
fn a_link_that_one_transfer_closes_is_opened_again_for_the_other() {
    let mut scene = Scene::new(Some(BlockSet::full(1)));
    scene.tell(Input::Start);
    scene.tell(Input::Opened(Ok(object(none(), None))));
    // The manifest's protocol starts first.
    scene.want(Action::Connect(PEER));
    scene.begin();
    scene.want(Action::Disconnect(PEER));
    let out = scene.link(Event::PeerUp(OTHER));
    assert_eq!(out, [Output::Disconnect(PEER), Output::Connect(PEER)]);
    scene.tell(Input::Link(Transfer::Manifest, Event::PeerUp(OTHER)));
    scene.want(Action::Disconnect(PEER));
    let out = scene.tell(Input::Link(Transfer::Manifest, Event::PeerDown(OTHER)));
    assert_eq!(out, [Output::Disconnect(PEER)]);
}

#[test]
fn who_is_accused_has_left_for_every_transfer_once() {
    let mut scene = Scene::new(Some(BlockSet::full(1)));
    scene.tell(Input::Start);
    scene.tell(Input::Opened(Ok(object(none(), None))));
    scene.begin();
    scene.told();
    let offence = "lies";
    scene.want(Action::Accuse {
        peer: PEER,
        offence,
    });
    let out = scene.link(Event::PeerUp(PEER));
    assert_eq!(out[0], Output::Remove(PEER));
    assert!(matches!(reports(&out)[..], [Report::Accuse { .. }]));
    let left = "Left(NodeId(1))";
    assert_eq!(scene.told(), ["PeerUp(NodeId(1))", left, left]);
    let again = scene.tell(Input::Order(Box::new(Order::Left { node: PEER })));
    assert_eq!(again, []);
    scene.link(Event::PeerDown(PEER));
    // A link that came up before it was refused.
    scene.link(Event::PeerUp(PEER));
    assert_eq!(scene.told(), ["PeerDown(NodeId(1))"]);
}

#[test]
fn a_destination_in_trouble_leaves_the_transfer_and_comes_back() {
    let mut scene = Scene::moving(none(), None);
    scene.arrives(0);
    scene.tell(Input::Order(Box::new(Order::Left { node: OTHER })));
    scene.told();
    let out = scene.tell(Input::Failed("full".to_owned(), Some(trouble(true))));
    assert_eq!(out[0], Output::Close(Transfer::Object));
    assert!(matches!(
        reports(&out)[..],
        [Report::Paused { rereads: false, .. }]
    ));
    // What is left of the links means nothing any more.
    assert_eq!(scene.arrives(1), []);
    assert!(scene.told().is_empty());
    assert!(!scene.beat().contains(&Output::Recover { rereads: false }));
    scene.wait(1.0);
    assert!(scene.beat().contains(&Output::Recover { rereads: false }));
    // The second reason weighs more than the first.
    let out = scene.tell(Input::Recovered(Err(trouble(false))));
    assert!(matches!(reports(&out)[..], [Report::Paused { .. }]));
    scene.wait(1.0);
    assert!(scene.beat().contains(&Output::Recover { rereads: true }));
    let out = scene.tell(Input::Recovered(Ok(all_but(7))));
    assert_eq!(reports(&out), [&Report::Resumed { have_bytes: 700 }]);
    assert!(out.contains(&Output::Open(Transfer::Object)));
    assert_eq!(scene.told(), ["Start", "Left(NodeId(2))"]);
    scene.link(Event::PeerDown(PEER));
    assert!(scene.told().is_empty(), "of a link before");
}

#[test]
fn what_fails_too_often_fails_for_good() {
    let mut scene = Scene::moving(all_but(7), None);
    for _ in 0..5 {
        scene.tell(Input::Failed("damaged".to_owned(), Some(trouble(false))));
        assert!(scene.beat().contains(&Output::Recover { rereads: true }));
        scene.tell(Input::Recovered(Ok(all_but(7))));
    }
    let out = scene.tell(Input::Failed("damaged".to_owned(), Some(trouble(false))));
    assert!(matches!(reports(&out)[..], [Report::Failed { .. }]));
    assert!(reports(&scene.beat()).iter().any(is_failure));
}

#[test]
fn a_node_that_failed_is_never_complete() {
    let mut scene = Scene::moving(all_but(7), None);
    assert_eq!(scene.arrives(7).last(), Some(&Output::Finish));
    let passes = false;
    let gone = Trouble {
        passes,
        ..trouble(false)
    };
    let out = scene.tell(Input::Failed("gone".to_owned(), Some(gone)));
    assert!(reports(&out).iter().any(is_failure));
    let out = scene.tell(Input::Finished(Ok(()), &Measures::default()));
    assert_eq!(out, []);
    assert!(!reports(&scene.beat()).iter().any(is_complete));
}

#[test]
fn an_orphan_leaves_once_nothing_moves() {
    let mut scene = Scene::moving(none(), None);
    scene.tell(Input::Orphaned);
    scene.wait(2.0);
    scene.arrives(0);
    assert_eq!(scene.node.wake_at(), Some(scene.now + ORPHAN_PATIENCE));
    scene.wait(2.0);
    assert_eq!(scene.tell(Input::Woken), []);
    scene.wait(1.0);
    let (have, blocks) = (1, BLOCKS);
    let orphaned = Outcome::Orphaned { have, blocks };
    assert_eq!(scene.tell(Input::Woken), [Output::End(orphaned)]);
}

#[test]
fn a_node_whose_disk_hangs_lets_those_go_that_count_on_it_before_it_sent_them_anything() {
    let mut scene = Scene::moving(none(), None);
    scene.link(Event::PeerUp(OTHER));
    scene.log.1.lock().unwrap().insert(OTHER.0);
    assert_eq!(scene.tell(Input::Hung(true)), [Output::Disconnect(OTHER)]);
    scene.link(Event::PeerDown(OTHER));
    assert_eq!(scene.tell(Input::Hung(true)), [], "it is gone");
    // Nor may it wait for a disk that still hangs.
    scene.link(Event::PeerUp(OTHER));
    assert_eq!(scene.tell(Input::Hung(true)), [Output::Disconnect(OTHER)]);
}

#[test]
fn a_node_whose_disk_hangs_lets_its_peers_go_and_is_silent() {
    let mut scene = Scene::moving(none(), None);
    let (timer, at) = (TimerId(1), scene.now);
    scene.want(Action::SetTimer { timer, at });
    let (to, block) = (PEER, 0);
    scene.link(Event::Sent { to, block });
    scene.told();
    assert_eq!(scene.tell(Input::Hung(true)), [Output::Disconnect(PEER)]);
    assert_eq!(scene.tell(Input::Hung(true)), [], "once");
    scene.tell(Input::Woken);
    assert!(scene.told().is_empty() && scene.node.wake_at().is_none());
    scene.tell(Input::Hung(false));
    assert_eq!(scene.node.wake_at(), Some(at));
    scene.tell(Input::Woken);
    assert_eq!(scene.told(), ["Timer(TimerId(1))"]);
}

#[test]
fn packets_count_before_they_are_decoded() {
    let batches = Batches::new(BLOCKS, 4);
    let mut scene = Scene::moving(none(), batches);
    let progress = |scene: &mut Scene| match reports(&scene.beat())[..] {
        [Report::Progress { have_bytes, .. }] => *have_bytes,
        ref other => panic!("{other:?}"),
    };
    let (from, batch) = (PEER, 1);
    let rank = 3;
    let support = outpour_core::Support::first(4);
    let news = BatchNews::Taken(Worth::Innovative, Holding { rank, support });
    scene.tell(Input::Batch { from, batch, news });
    assert_eq!(progress(&mut scene), 300);
    let (fresh, wrong) = (&[4, 5, 6, 7], &[]);
    let news = BatchNews::Whole { fresh, wrong };
    scene.told();
    scene.tell(Input::Batch { from, batch, news });
    assert_eq!(progress(&mut scene), 400);
    let told = scene.told();
    assert!(told.len() == 5 && told[4].contains("Decoded"), "{told:?}");
}

#[test]
fn timers_fire_in_the_order_of_their_times() {
    let mut scene = Scene::moving(none(), None);
    for (timer, ms) in [(1, 30), (2, 20), (3, 10), (2, 40)] {
        let timer = TimerId(timer);
        let at = Time::ZERO + Duration::from_millis(ms);
        scene.want(Action::SetTimer { timer, at });
    }
    scene.link(Event::PeerUp(OTHER));
    scene.told();
    assert_eq!(scene.node.wake_at(), Some(Time::from_secs_f64(0.01)));
    scene.wait(0.03);
    scene.tell(Input::Woken);
    assert_eq!(scene.told(), ["Timer(TimerId(3))", "Timer(TimerId(1))"]);
    scene.wait(1.0);
    scene.tell(Input::Woken);
    assert_eq!(scene.told(), ["Timer(TimerId(2))"]);
    assert_eq!(scene.node.wake_at(), None);
}

#[test]
fn the_lowest_rate_of_two_transfers_holds_while_the_peer_is_up() {
    let mut scene = Scene::new(Some(BlockSet::full(1)));
    scene.tell(Input::Start);
    scene.tell(Input::Opened(Ok(object(none(), None))));
    scene.begin();
    let rate = |bytes_per_s| Rate::from_bytes_per_s(bytes_per_s).unwrap();
    let set = |bytes_per_s| Action::SetRate {
        to: PEER,
        rate: rate(bytes_per_s),
    };
    scene.want(set(5.0));
    let out = scene.link(Event::PeerUp(PEER));
    assert_eq!(out, [Output::SetRate(PEER, rate(5.0))]);
    scene.want(set(3.0));
    let out = scene.tell(Input::Link(Transfer::Manifest, Event::PeerUp(PEER)));
    assert_eq!(out, [Output::SetRate(PEER, rate(3.0))]);
    assert_eq!(scene.node.limited(), [PEER]);
    scene.told();
    scene.tell(Input::Achieved(PEER, rate(2.0)));
    scene.tell(Input::Achieved(OTHER, rate(2.0)));
    let told = scene.told();
    assert!(
        told.len() == 2 && told[0].starts_with("Achieved"),
        "{told:?}"
    );
    let out = scene.tell(Input::Link(Transfer::Manifest, Event::PeerDown(PEER)));
    assert_eq!(out, [Output::SetRate(PEER, rate(5.0))]);
    let out = scene.link(Event::PeerDown(PEER));
    assert_eq!(out, [Output::SetRate(PEER, Rate::UNLIMITED)]);
    assert_eq!(scene.node.limited(), []);
}
