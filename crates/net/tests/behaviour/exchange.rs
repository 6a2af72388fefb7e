//! Messages and blocks between peers that behave.

use outpour_net::{Connections, SessionEvent};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_exchange_messages_and_blocks() {
    let cast = Cast::new();
    let mut nodes = cast.nodes(3);
    let objects = [
        Object::full(40, 100_000),
        Object::empty(40, 100_000),
        Object::empty(40, 100_000),
    ];
    for (node, io) in nodes.iter().zip(&objects) {
        node.session.open(1, io.clone());
        // All dial all at once: each pair must end up with one link.
        (0..3).for_each(|peer| node.session.connect(outpour_core::NodeId(peer)));
    }
    let ids: Vec<_> = nodes.iter().map(|node| node.id).collect();
    for node in &mut nodes {
        let me = node.id;
        for peer in ids.iter().filter(|id| **id != me) {
            node.up(1, *peer).await;
        }
    }
    // 0 gives every block to 1, which relays each to 2 as soon as it is there.
    for block in 0..40 {
        nodes[0].session.send_block(1, ids[1], block);
    }
    nodes[2].session.send(1, ids[0], b"hello".to_vec());
    for _ in 0..40 {
        let (from, block, fresh) = nodes[1].arrived().await;
        assert_eq!((from, fresh), (ids[0], true));
        nodes[1].session.send_block(1, ids[2], block);
    }
    for _ in 0..40 {
        let (from, _, fresh) = nodes[2].arrived().await;
        assert_eq!((from, fresh), (ids[1], true));
    }
    for _ in 0..40 {
        nodes[0]
            .find("Sent", |e| {
                matches!(e, SessionEvent::Sent { transfer: 1, .. })
            })
            .await;
    }
    let hello = nodes[0]
        .find("Message", |e| matches!(e, SessionEvent::Message { .. }))
        .await;
    assert_eq!(
        hello,
        SessionEvent::Message {
            transfer: 1,
            from: ids[2],
            body: b"hello".to_vec()
        }
    );
    assert_eq!((objects[1].have(), objects[2].have()), (40, 40));
    let stats = nodes[1].session.stats();
    assert_eq!(
        (stats.payload_in, stats.payload_out),
        (4_000_000, 4_000_000)
    );
    assert!(
        stats.wire_in > 4_000_000 && stats.wire_in < 4_080_000,
        "{stats:?}"
    );
    for node in nodes {
        assert!(
            node.seen
                .iter()
                .all(|e| !matches!(e, SessionEvent::PeerDown { .. })),
            "{:?}",
            node.seen
        );
        node.session.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_all_sizes_arrive_in_order_between_blocks() {
    let cast = Cast::new();
    let ios = [Object::full(64, 1 << 18), Object::empty(64, 1 << 18)];
    let [mut a, mut b] = pair(cast.config(0), cast.config(1), ios).await;
    let sizes = [
        0,
        1,
        15,
        16,
        17,
        16_383,
        16_384,
        16_385,
        100_000,
        outpour_net::MESSAGE_BYTES_MAX,
    ];
    for (n, size) in sizes.iter().enumerate() {
        (0..6).for_each(|k| a.session.send_block(0, b.id, (n * 6 + k) as u32));
        a.session.send(0, b.id, vec![n as u8; *size]);
    }
    for (n, size) in sizes.iter().enumerate() {
        let event = b
            .find("Message", |e| matches!(e, SessionEvent::Message { .. }))
            .await;
        let SessionEvent::Message { body, .. } = event else {
            unreachable!()
        };
        assert!(
            body.len() == *size && body.iter().all(|byte| usize::from(*byte) == n),
            "message {n}"
        );
    }
    for _ in 0..60 {
        assert!(b.arrived().await.2);
    }
    for _ in 0..60 {
        a.find("Sent", |e| matches!(e, SessionEvent::Sent { .. }))
            .await;
    }
    // What is here already comes again for nothing, and is said to be stale.
    a.session.send_block(0, b.id, 7);
    assert_eq!(b.arrived().await, (a.id, 7, false));
    assert_eq!(b.session.stats().duplicate, 1 << 18);
    a.session.shutdown().await;
    b.down(0, a.id).await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_is_up_only_when_both_have_opened_it() {
    let cast = Cast::new();
    let mut nodes = cast.nodes(2);
    let mut b = nodes.pop().unwrap();
    let mut a = nodes.pop().unwrap();
    a.session.open(0, Object::full(1, 10));
    b.session.open(0, Object::empty(1, 10));
    a.session.open(1, Object::full(1, 20));
    b.session.connect(a.id);
    a.up(0, b.id).await;
    b.up(0, a.id).await;
    // Not up: dropped, and the link lives on.
    a.session.send(1, b.id, b"too early".to_vec());
    a.session.send(0, b.id, b"in time".to_vec());
    let event = b.next().await;
    assert_eq!(
        event,
        SessionEvent::Message {
            transfer: 0,
            from: a.id,
            body: b"in time".to_vec()
        }
    );
    b.session.open(1, Object::empty(1, 20));
    a.up(1, b.id).await;
    b.up(1, a.id).await;
    a.session.send_block(1, b.id, 0);
    assert_eq!(b.arrived().await, (a.id, 0, true));
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn extra_connections_carry_blocks() {
    let cast = Cast::new();
    let (mut left, right) = (cast.config(0), cast.config(1));
    left.session.connections = Connections::Fixed(4);
    let ios = [Object::full(300, 1 << 16), Object::empty(300, 1 << 16)];
    let [mut a, mut b] = pair(left, right, ios.clone()).await;
    // Four for blocks, and the first, which is left to messages.
    connected(&a, 5).await;
    connected(&b, 5).await;
    let mut sent = 0;
    for block in 0..300 {
        if sent == 64 {
            a.find("Sent", |e| matches!(e, SessionEvent::Sent { .. }))
                .await;
            sent -= 1;
        }
        a.session.send_block(0, b.id, block);
        sent += 1;
    }
    for _ in 0..300 {
        assert!(b.arrived().await.2);
    }
    assert_eq!(ios[1].have(), 300);
    a.session.shutdown().await;
    b.down(0, a.id).await;
    assert_eq!(b.session.stats().connections, 0);
    b.session.shutdown().await;
}
