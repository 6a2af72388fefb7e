//! Peers that fail: they lie, die, cannot read, or come back.

use outpour_core::NodeId;
use outpour_net::{Piece, SessionEvent};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_are_rejected_and_the_sender_is_banned() {
    let cast = Cast::new();
    // The sender's object has other blocks: shifted by one.
    let ios = [Object::shifted(8, 70_000), Object::empty(8, 70_000)];
    let [mut a, mut b] = pair(cast.config(0), cast.config(1), ios.clone()).await;
    a.session.send_block(0, b.id, 5);
    let rejected = b
        .find("Rejected", |e| matches!(e, SessionEvent::Rejected { .. }))
        .await;
    assert_eq!(
        rejected,
        SessionEvent::Rejected {
            transfer: 0,
            from: a.id,
            block: 5
        }
    );
    b.down(0, a.id).await;
    a.down(0, b.id).await;
    assert_eq!((ios[1].have(), b.session.stats().rejected_blocks), (0, 1));
    // It keeps knocking and is told why it is not let in; being introduced again changes nothing.
    b.session.set_member(a.id, a.member());
    a.session.dial_now(b.id);
    let why = a.unreachable(b.id).await;
    assert!(why.contains("cut off"), "{why}");
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_cannot_be_read_ends_the_link() {
    let cast = Cast::new();
    // The sender believes to have what it cannot read.
    let ios = [Object::empty(8, 70_000), Object::empty(8, 70_000)];
    let [mut a, mut b] = pair(cast.config(0), cast.config(1), ios).await;
    a.session.send_block(0, b.id, 3);
    let failed = a
        .find("ReadFailed", |e| {
            matches!(e, SessionEvent::ReadFailed { .. })
        })
        .await;
    let error = "the medium is damaged".to_owned();
    assert_eq!(
        failed,
        SessionEvent::ReadFailed {
            transfer: 0,
            piece: Piece::Block(3),
            error
        }
    );
    a.down(0, b.id).await;
    b.down(0, a.id).await;
    assert_eq!(b.session.stats().payload_in, 0);
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_is_not_the_senders_fault() {
    let cast = Cast::new();
    let ios = [Object::full(8, 70_000), Object::empty(8, 70_000)];
    let [mut a, mut b] = pair(cast.config(0), cast.config(1), ios.clone()).await;
    ios[1].fail(true);
    a.session.send_block(0, b.id, 3);
    let failed = b
        .find("StoreFailed", |e| {
            matches!(e, SessionEvent::StoreFailed { .. })
        })
        .await;
    let error = "no space left on device".to_owned();
    assert_eq!(
        failed,
        SessionEvent::StoreFailed {
            transfer: 0,
            block: 3,
            error
        }
    );
    ios[1].fail(false);
    a.session.send_block(0, b.id, 3);
    assert_eq!(b.arrived().await, (a.id, 3, true));
    for _ in 0..2 {
        a.find("Sent", |e| matches!(e, SessionEvent::Sent { .. }))
            .await;
    }
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_peer_goes_down_and_its_successor_comes_up() {
    let cast = Cast::new();
    let ios = [Object::full(4, 1 << 20), Object::empty(4, 1 << 20)];
    let [mut a, b] = pair(cast.config(0), cast.config(1), ios).await;
    let b_id = b.id;
    drop(b);
    a.down(0, b_id).await;
    // Nothing listens there.
    a.unreachable(b_id).await;
    let mut b = cast.start(1);
    b.session.open(0, Object::empty(4, 1 << 20));
    introduce(std::slice::from_ref(&a));
    a.session.set_member(b_id, b.member());
    b.session.set_member(a.id, a.member());
    a.up(0, b_id).await;
    b.up(0, a.id).await;
    a.session.send_block(0, b_id, 2);
    assert_eq!(b.arrived().await, (a.id, 2, true));
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_meant_for_a_broken_link_is_not_sent_on_the_next() {
    let cast = Cast::new();
    let ios = [Object::full(4, 1000), Object::empty(4, 1000)];
    let [mut a, mut b] = pair(cast.config(0), cast.config(1), ios).await;
    // The link breaks and is made anew, and a's user has not heard of it yet.
    b.session.disconnect(a.id);
    b.down(0, a.id).await;
    b.session.connect(a.id);
    b.up(0, a.id).await;
    a.session.send(0, b.id, b"stale".to_vec());
    a.session.send_block(0, b.id, 1);
    a.down(0, b.id).await;
    a.session.send(0, b.id, b"stale too".to_vec());
    a.up(0, b.id).await;
    a.session.send(0, b.id, b"fresh".to_vec());
    a.session.send_block(0, b.id, 2);
    let event = b
        .find("Message", |e| matches!(e, SessionEvent::Message { .. }))
        .await;
    assert_eq!(
        event,
        SessionEvent::Message {
            transfer: 0,
            from: a.id,
            body: b"fresh".to_vec()
        }
    );
    assert_eq!(b.arrived().await, (a.id, 2, true));
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_sent_is_answered_or_the_link_goes_down() {
    let cast = Cast::new();
    let ios = [Object::full(64, 1 << 18), Object::empty(64, 1 << 18)];
    let [mut a, mut b] = pair(cast.config(0), cast.config(1), ios).await;
    (0..64).for_each(|block| a.session.send_block(0, b.id, block));
    b.arrived().await;
    b.session.disconnect(a.id);
    let mut sent = 0;
    loop {
        match a.next().await {
            SessionEvent::Sent { .. } => sent += 1,
            SessionEvent::PeerDown { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert!((1..=64).contains(&sent));
    // Nothing of that link comes any more.
    a.session.disconnect(b.id);
    a.session.shutdown().await;
    while let Some(event) = a.events.recv().await {
        assert!(!matches!(event, SessionEvent::Sent { .. }), "{event:?}");
    }
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_member_is_disconnected_and_refused() {
    let cast = Cast::new();
    let ios = [Object::full(4, 1000), Object::empty(4, 1000)];
    let [mut a, mut b] = pair(cast.config(0), cast.config(1), ios).await;
    a.session.remove_member(b.id);
    a.down(0, b.id).await;
    b.down(0, a.id).await;
    b.session.dial_now(a.id);
    assert!(b.unreachable(a.id).await.contains("cut off"));
    // The node that removed does not dial either, whatever it is asked.
    a.session.connect(b.id);
    a.session.dial_now(NodeId(1));
    a.session.shutdown().await;
    b.session.shutdown().await;
    assert!(a.seen.is_empty(), "{:?}", a.seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_is_found_behind_dead_addresses() {
    let cast = Cast::new();
    let mut nodes = cast.nodes(2);
    let mut b = nodes.pop().unwrap();
    let mut a = nodes.pop().unwrap();
    a.session.open(0, Object::full(1, 1));
    b.session.open(0, Object::full(1, 1));
    let stranger = std::net::TcpListener::bind(loopback()).unwrap();
    let closed = std::net::TcpListener::bind(loopback()).unwrap();
    let mut member = b.member();
    // One refuses, one never answers, one leads to ourselves.
    member.addrs.insert(0, closed.local_addr().unwrap());
    member.addrs.insert(1, stranger.local_addr().unwrap());
    member.addrs.insert(2, a.addr());
    drop(closed);
    a.session.set_member(b.id, member);
    a.session.connect(b.id);
    a.up(0, b.id).await;
    b.up(0, a.id).await;
    a.session.shutdown().await;
    b.session.shutdown().await;
}
