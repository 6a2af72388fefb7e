//! Several sessions on one endpoint: what they share, how, and what they cannot do to one another.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::{BlockId, Bytes, NodeId, Priority, Rate};
use outpour_net::frame::{Frame, Refusal};
use outpour_net::{
    Accept, BlockIo, Connections, Endpoint, Error, Limits, SESSIONS_MAX, SessionConfig,
    SessionEvent, SessionLimits,
};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::hostile::{join, parted, raw, read_frame, welcomed};
use crate::support::*;

fn endpoint() -> Endpoint {
    Endpoint::start(endpoint_config()).unwrap()
}

/// A cast between two endpoints, with transfer 0 up.
async fn pair_on(endpoints: [&Endpoint; 2], priority: Priority, ios: [Io; 2]) -> [Node; 2] {
    let cast = Cast::new();
    let [left, right] = [0, 1].map(|node| {
        let mut config = cast.session(node);
        config.priority = priority;
        Node::join(endpoints[node as usize], &config)
    });
    let mut nodes = [left, right];
    introduce(&nodes);
    for (node, io) in nodes.iter().zip(ios) {
        node.session.open(0, io);
    }
    let [a, b] = &mut nodes;
    a.session.connect(b.id);
    a.up(0, b.id).await;
    b.up(0, a.id).await;
    nodes
}

type Io = Arc<Object>;

fn object(blocks: u32, len: u32) -> [Io; 2] {
    [Object::full(blocks, len), Object::empty(blocks, len)]
}

/// Sends so many blocks, and always has the next ones queued.
async fn keep_sending(mut node: Node, to: NodeId, blocks: u32) -> Node {
    let ahead = 200;
    (0..ahead).for_each(|block| node.session.send_block(0, to, block));
    for block in ahead..blocks {
        node.find("Sent", |event| matches!(event, SessionEvent::Sent { .. }))
            .await;
        node.session.send_block(0, to, block);
    }
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_between_two_endpoints_share_a_connection() {
    let (left, right) = (endpoint(), endpoint());
    let mut casts = Vec::new();
    for _ in 0..3 {
        let priority = Priority::Normal;
        casts.push(pair_on([&left, &right], priority, object(8, 70_000)).await);
    }
    let used = left.usage();
    assert_eq!((used.sessions, used.links, used.connections), (3, 3, 1));
    assert_eq!(right.usage().connections, 1);
    // Each moves its own, and one that ends ends alone.
    for [a, b] in &mut casts {
        for block in 0..8 {
            a.session.send_block(0, b.id, block);
            a.session.send(0, b.id, vec![block as u8]);
        }
    }
    let [mut a, mut b] = casts.pop().unwrap();
    a.session.disconnect(b.id);
    a.down(0, b.id).await;
    b.down(0, a.id).await;
    for [_, b] in &mut casts {
        for _ in 0..8 {
            assert!(b.arrived().await.2);
        }
        assert!(
            !b.seen
                .iter()
                .any(|e| matches!(e, SessionEvent::PeerDown { .. }))
        );
    }
    // The same two hosts meet again on the connection that is there.
    b.session.connect(a.id);
    a.up(0, b.id).await;
    assert_eq!(left.usage().connections, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_gives_everything_back() {
    let (left, right) = (endpoint(), endpoint());
    let [a, mut b] = pair_on([&left, &right], Priority::Low, object(64, 1 << 18)).await;
    let ios = object(64, 1 << 18);
    ios[1].hold(true);
    let [c, d] = pair_on([&left, &right], Priority::High, ios.clone()).await;
    (0..64).for_each(|block| c.session.send_block(0, d.id, block));
    // In the middle of everything, with memory in use at both ends.
    while right.usage().memory == Bytes::ZERO || left.usage().memory == Bytes::ZERO {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ios[1].hold(false);
    c.session.shutdown().await;
    d.session.shutdown().await;
    let settled = async {
        for endpoint in [&left, &right] {
            while endpoint.usage().memory > Bytes::ZERO || endpoint.usage().links > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    let (before, after) = (left.usage(), right.usage());
    assert!(
        timeout(PATIENCE, settled).await.is_ok(),
        "{before:?} {after:?}"
    );
    assert_eq!((left.usage().sessions, left.usage().connections), (1, 1));
    // The other one goes on over the same connection.
    a.session.send_block(0, b.id, 5);
    assert_eq!(b.arrived().await, (a.id, 5, true));
    a.session.shutdown().await;
    b.down(0, a.id).await;
    b.session.shutdown().await;
    let closed = async {
        while left.usage().connections + right.usage().connections > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        timeout(PATIENCE, closed).await.is_ok(),
        "{:?}",
        left.usage()
    );
    left.shutdown().await;
    right.shutdown().await;
}

/// An object that costs next to nothing to read, so that only limits hold it back.
struct Zeros;

impl BlockIo for Zeros {
    fn block_len(&self, _: BlockId) -> Option<u32> {
        Some(1 << 18)
    }

    fn has(&self, _: BlockId) -> bool {
        false
    }

    fn read(&self, _: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        buf.clear();
        buf.resize(1 << 18, 0);
        Ok(())
    }

    fn accept(&self, _: BlockId, _: &[u8]) -> Accept {
        Accept::Stored
    }
}

/// The shares that three sessions of these endpoints get while all of them always have something
/// to send.
async fn shares(left: Endpoint, rights: [&Endpoint; 3]) -> [f64; 3] {
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for (priority, right) in Priority::ALL.into_iter().zip(rights) {
        let ios = object(1, 1);
        let [mut a, mut b] = pair_on([&left, right], priority, ios).await;
        for node in [&a, &b] {
            node.session.open(1, Arc::new(Zeros));
        }
        a.up(1, b.id).await;
        b.up(1, a.id).await;
        senders.push((a, b.id));
        receivers.push(b);
    }
    for (node, to) in &senders {
        (0..400).for_each(|block| node.session.send_block(1, *to, block));
    }
    let draining = receivers.into_iter().map(|node| {
        tokio::spawn(async move {
            let mut node = node;
            loop {
                node.next().await;
            }
        })
    });
    let draining: Vec<_> = draining.collect();
    let sent = || {
        let sent = senders
            .iter()
            .map(|(node, _)| node.session.stats().payload_out as f64);
        sent.collect::<Vec<f64>>()
    };
    let reach = async |bytes: f64| {
        while sent().iter().sum::<f64>() < bytes {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        sent()
    };
    // What left before all had begun does not count.
    let begin = reach(2e6).await;
    let end = reach(begin.iter().sum::<f64>() + 12e6).await;
    draining.iter().for_each(tokio::task::JoinHandle::abort);
    let moved: Vec<f64> = end
        .iter()
        .zip(&begin)
        .map(|(end, begin)| end - begin)
        .collect();
    let all: f64 = moved.iter().sum();
    [0, 1, 2].map(|n| moved[n] / all)
}

fn assert_weights(shares: [f64; 3]) {
    for (share, weight) in shares.into_iter().zip([1.0, 4.0, 16.0]) {
        let right = weight / 21.0;
        assert!((0.9..1.1).contains(&(share / right)), "{shares:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hosts_limit_is_shared_by_weight() {
    let mut config = endpoint_config();
    // Slow enough for a busy machine: what the limit does not hold back is not shared by it.
    config.limits.outgoing = Rate::from_bytes_per_s(4e6).unwrap();
    let (one, other) = (endpoint(), endpoint());
    // Over one connection, and over several.
    let left = Endpoint::start(config.clone()).unwrap();
    assert_weights(shares(left, [&one, &one, &one]).await);
    let left = Endpoint::start(config).unwrap();
    assert_weights(shares(left, [&one, &other, &one]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_does_not_use_the_others_get() {
    let mut config = endpoint_config();
    config.limits.outgoing = Rate::from_bytes_per_s(16e6).unwrap();
    let (left, right) = (Endpoint::start(config).unwrap(), endpoint());
    let [_idle, _too] = pair_on([&left, &right], Priority::High, object(4, 10)).await;
    let [slow, sink] = pair_on([&left, &right], Priority::High, object(4000, 1 << 15)).await;
    let limits = SessionLimits {
        outgoing: Rate::from_bytes_per_s(1e6).unwrap(),
        ..SessionLimits::default()
    };
    slow.session.set_limits(limits);
    let [fast, mut end] = pair_on([&left, &right], Priority::Low, object(4000, 1 << 15)).await;
    let (to, also) = (sink.id, end.id);
    let sending = [
        tokio::spawn(keep_sending(slow, to, 4000)),
        tokio::spawn(keep_sending(fast, also, 4000)),
    ];
    let mut other = sink;
    while end.session.stats().payload_in < 12_000_000 {
        while other.events.try_recv().is_some() || end.events.try_recv().is_some() {}
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // A sixteenth of the rate is what the slow one may have, far less than its weight.
    let slow = other.session.stats().payload_in as f64;
    assert!((0.2e6..1.8e6).contains(&slow), "{slow}");
    sending.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_store_hangs_does_not_stop_the_others() {
    let mut config = endpoint_config();
    config.memory = Bytes(8 << 20);
    let (left, right) = (endpoint(), Endpoint::start(config).unwrap());
    let ios = object(200, 1 << 18);
    ios[1].hold(true);
    let [hung, stuck] = pair_on([&left, &right], Priority::High, ios.clone()).await;
    let [mut a, mut b] = pair_on([&left, &right], Priority::Low, object(64, 1 << 18)).await;
    (0..200).for_each(|block| hung.session.send_block(0, stuck.id, block));
    while right.usage().memory < Bytes(1 << 20) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (0..64).for_each(|block| a.session.send_block(0, b.id, block));
    for _ in 0..64 {
        assert!(b.arrived().await.2);
        a.find("Sent", |e| matches!(e, SessionEvent::Sent { .. }))
            .await;
    }
    assert_eq!(ios[1].have(), 0);
    ios[1].hold(false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_one_session_cannot_speak_in_another() {
    let shared = endpoint();
    let (cast, other) = (Cast::new(), Cast::new());
    let (mut a, b) = (cast.join(0, &shared), other.join(0, &shared));
    a.session.open(0, Object::empty(4, 100));
    b.session.open(0, Object::empty(4, 100));
    let friend = Stranger::new(&other, 1);
    b.session.set_member(friend.node, friend.member(loopback()));
    let member = Stranger::new(&cast, 1);
    let mut stream = welcomed(&a, &member).await;
    // It knows the other session's name, and by which number its member goes.
    let forged = Stranger::new(&other, 1);
    join(&mut stream, 2, &forged.join(b.id)).await;
    let why = Refusal::NotMember;
    assert_eq!(
        read_frame(&mut stream).await,
        Frame::Decline { channel: 2, why }
    );
    // A session that is not here is declined in the same way.
    let nowhere = Stranger::new(&Cast::new(), 1);
    join(&mut stream, 3, &nowhere.join(NodeId(0))).await;
    assert_eq!(
        read_frame(&mut stream).await,
        Frame::Decline { channel: 3, why }
    );
    // What it says on a channel that was declined is not heard.
    for bytes in [raw(3, 0, 0, 0, 0), raw(4, 0, 4, 0, 0)] {
        let mut bytes = bytes;
        bytes[2] = 2;
        stream.write_all(&bytes).await.unwrap();
    }
    stream.write_all(b"word").await.unwrap();
    stream.write_all(&raw(3, 0, 0, 0, 0)).await.unwrap();
    a.up(0, member.node).await;
    assert!(a.seen.is_empty(), "{:?}", a.seen);
    let mut events = b.events;
    assert!(events.try_recv().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_breaks_the_rules_of_one_session_keeps_the_other() {
    let shared = endpoint();
    let (cast, other) = (Cast::new(), Cast::new());
    let (mut a, mut b) = (cast.join(0, &shared), other.join(0, &shared));
    a.session.open(0, Object::empty(4, 100));
    b.session.open(0, Object::empty(4, 100));
    let member = Stranger::new(&cast, 1);
    b.session.set_member(NodeId(1), member.member(loopback()));
    let mut stream = welcomed(&a, &member).await;
    let also = outpour_net::frame::Join {
        session: other.id,
        from: NodeId(1),
        to: b.id,
    };
    join(&mut stream, 2, &also.encode()).await;
    assert_eq!(read_frame(&mut stream).await, Frame::Join { channel: 2 });
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut [0; outpour_net::frame::JOIN_BYTES])
        .await
        .unwrap();
    let ready = Frame::Ready {
        channel: 2,
        transfer: 0,
    };
    assert_eq!(read_frame(&mut stream).await, ready);
    stream.write_all(&ready.encode()).await.unwrap();
    b.up(0, member.node).await;
    // A transfer that is not open.
    stream.write_all(&raw(4, 5, 0, 0, 0)).await.unwrap();
    a.cut_off(member.node).await;
    timeout(PATIENCE, parted(&mut stream)).await.unwrap();
    let message = Frame::Message {
        channel: 2,
        transfer: 0,
        len: 4,
    };
    stream.write_all(&message.encode()).await.unwrap();
    stream.write_all(b"word").await.unwrap();
    let (transfer, from, body) = (0, member.node, b"word".to_vec());
    let heard = SessionEvent::Message {
        transfer,
        from,
        body,
    };
    assert_eq!(b.next().await, heard);
    // In the first session it is not let in again.
    join(&mut stream, 3, &member.join(a.id)).await;
    let why = Refusal::Barred;
    assert_eq!(
        read_frame(&mut stream).await,
        Frame::Decline { channel: 3, why }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_beyond_the_bound_is_refused_and_the_others_live() {
    let shared = endpoint();
    let cast = Cast::new();
    let first = cast.join(0, &shared);
    let taken = shared.session(&cast.session(0));
    assert!(matches!(taken, Err(Error::Taken { node: NodeId(0) })));
    let others: Vec<_> = (1..SESSIONS_MAX)
        .map(|_| {
            shared
                .session(&SessionConfig::new(Cast::new().id, NodeId(0)))
                .unwrap()
        })
        .collect();
    let Err(error) = shared.session(&Cast::new().session(0)) else {
        panic!("one too many");
    };
    assert!(
        matches!(error, Error::Full { max: SESSIONS_MAX }),
        "{error}"
    );
    assert_eq!(error.to_string().lines().count(), 1);
    assert_eq!(shared.usage().sessions, SESSIONS_MAX);
    drop(others);
    assert!(shared.session(&Cast::new().session(0)).is_ok());
    let mut peer = cast.start(1);
    for node in [&first, &peer] {
        node.session.open(0, Object::full(1, 1));
    }
    peer.session.set_member(first.id, first.member());
    first.session.set_member(peer.id, peer.member());
    peer.session.connect(first.id);
    peer.up(0, first.id).await;
}

/// As a host is that is two destinations of a cast.
#[tokio::test(flavor = "multi_thread")]
async fn two_members_may_be_on_one_endpoint() {
    let shared = endpoint();
    let cast = Cast::new();
    let mut nodes: Vec<Node> = (0..3).map(|node| cast.join(node, &shared)).collect();
    introduce(&nodes);
    for node in &nodes {
        let io = match node.id.0 {
            0 => Object::full(8, 70_000),
            _ => Object::empty(8, 70_000),
        };
        node.session.open(0, io);
        // All call all at once: each pair must end up with one link.
        (0..3).for_each(|peer| node.session.connect(NodeId(peer)));
    }
    for node in 0..3 {
        for peer in (0..3).filter(|peer| *peer != node) {
            nodes[node as usize].up(0, NodeId(peer)).await;
        }
    }
    (0..8).for_each(|block| nodes[0].session.send_block(0, NodeId(1), block));
    for _ in 0..8 {
        let (from, block, _) = nodes[1].arrived().await;
        assert_eq!(from, NodeId(0));
        nodes[1].session.send_block(0, NodeId(2), block);
    }
    for _ in 0..8 {
        assert_eq!(nodes[2].arrived().await.0, NodeId(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_may_change_while_data_moves() {
    let (left, right) = (endpoint(), endpoint());
    let ios = object(4000, 1 << 16);
    let [a, mut b] = pair_on([&left, &right], Priority::Normal, ios).await;
    // At this rate nothing ever arrives.
    a.session.set_peer_rate(b.id, Rate::ZERO);
    let to = b.id;
    (0..64).for_each(|block| a.session.send_block(0, to, block));
    assert_eq!(a.session.achieved(to).outgoing, Rate::ZERO);
    a.session.set_peer_rate(b.id, Rate::UNLIMITED);
    b.arrived().await;
    for outgoing in [Rate::from_bytes_per_s(1.0).unwrap(), Rate::UNLIMITED] {
        left.set_limits(Limits {
            outgoing,
            ..Limits::default()
        });
    }
    for _ in 1..64 {
        b.arrived().await;
    }
    let achieved = async {
        while b.session.achieved(a.id).incoming.is_zero() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(PATIENCE, achieved).await.is_ok());
}

/// The kernel waits after each segment as the rate was when it sent it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_at_a_tiny_limit_holds_nothing_up_once_the_limit_is_raised() {
    let (left, right) = (endpoint(), endpoint());
    let ios = object(64, 1 << 16);
    let [a, mut b] = pair_on([&left, &right], Priority::Normal, ios).await;
    let set = |outgoing| {
        left.set_limits(Limits {
            outgoing,
            ..Limits::default()
        });
    };
    let to = b.id;
    // The kernel does not pace the first segments of a connection.
    for block in 0..32 {
        a.session.send_block(0, to, block);
        b.arrived().await;
    }
    let before = b.session.stats().wire_in;
    // A sign of life that passes first delays what follows by a few seconds at this rate.
    set(Rate::from_bytes_per_s(16.0).unwrap());
    (32..64).for_each(|block| a.session.send_block(0, to, block));
    let begun = async {
        while b.session.stats().wire_in < before + 4096 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(PATIENCE, begun).await.is_ok());
    set(Rate::UNLIMITED);
    for _ in 32..64 {
        b.arrived().await;
    }
    assert!(b.seen.is_empty(), "{:?}", b.seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_that_wants_most_connections_decides() {
    let (left, right) = (endpoint(), endpoint());
    let cast = Cast::new();
    let mut config = cast.session(0);
    config.connections = Connections::Fixed(3);
    let [_a, _b] = pair_on([&left, &right], Priority::Normal, object(1, 1)).await;
    assert_eq!(left.usage().connections, 1);
    let (a, b) = (Node::join(&left, &config), cast.join(1, &right));
    a.session.set_member(b.id, b.member());
    b.session.set_member(a.id, a.member());
    a.session.connect(b.id);
    let grown = async {
        // Three for blocks, and one for messages.
        while left.usage().connections < 4 || right.usage().connections < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, grown).await.is_ok(), "{:?}", left.usage());
}
