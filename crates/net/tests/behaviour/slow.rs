//! Members that take their time: none holds memory for long while others wait for it.

use std::sync::Arc;
use std::time::Duration;

use outpour_core::{Bytes, NodeId};
use outpour_net::frame::{Frame, HEADER_BYTES, Piece};
use outpour_net::{MESSAGE_BYTES_MAX, SessionEvent};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use crate::hostile::{welcomed, welcomed_on};
use crate::support::*;

/// A byte now and then: a sign of life, and no more.
const DRIP: Duration = Duration::from_millis(200);

/// Drips bytes into a frame that has begun, until the connection ends.
async fn drip(mut stream: Tls, frame: Frame) {
    let _ = stream.write_all(&frame.encode()).await;
    while stream.write_all(&[0]).await.is_ok() && stream.flush().await.is_ok() {
        tokio::time::sleep(DRIP).await;
    }
}

const READY: Frame = Frame::Ready {
    channel: 1,
    transfer: 0,
};

/// Two nodes, of which the second may hold little, with transfer 0 up between them.
async fn tight(ios: [Arc<Object>; 2], memory: u64) -> [Node; 2] {
    let cast = Cast::new();
    let mut tight = cast.config(1);
    tight.endpoint.memory = Bytes(memory);
    pair(cast.config(0), tight, ios).await
}

/// Others that are members of the same cast as a node.
fn strangers(node: &Node, count: u32) -> Vec<Stranger> {
    let cast = Cast {
        id: node.session.id(),
    };
    (0..count).map(|n| Stranger::new(&cast, 100 + n)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_drips_blocks_gives_way_to_who_sends_them() {
    const BLOCK: u32 = 1 << 20;
    // Three blocks on their way in fit.
    let [mut a, mut b] = tight([Object::full(40, BLOCK), Object::empty(40, BLOCK)], 8 << 20).await;
    let mut dripping = JoinSet::new();
    for (stranger, block) in strangers(&b, 5).iter().zip(20..) {
        let mut stream = welcomed(&b, stranger).await;
        stream.write_all(&READY.encode()).await.unwrap();
        b.up(0, stranger.node).await;
        let fragment = Frame::Fragment {
            channel: 1,
            transfer: 0,
            piece: Piece::Block(block),
            offset: 0,
            len: 60_000,
        };
        dripping.spawn(drip(stream, fragment));
    }
    // All that fit are held before the first of ours is sent.
    let held = async {
        while b.endpoint.usage().memory.0 < 3 << 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.unwrap();
    for block in 0..20 {
        a.session.send_block(0, b.id, block);
    }
    for block in 0..20 {
        assert_eq!(b.arrived().await, (a.id, block, true));
    }
    let down = |event: &SessionEvent| matches!(event, SessionEvent::PeerDown { .. });
    assert!(!a.seen.iter().any(down) && a.events.try_recv().is_none_or(|event| !down(&event)));
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_drips_messages_gives_way_to_who_sends_them() {
    let [a, mut b] = tight([Object::full(1, 1), Object::empty(1, 1)], 8 << 20).await;
    let mut dripping = JoinSet::new();
    for stranger in strangers(&b, 6) {
        let mut stream = welcomed(&b, &stranger).await;
        stream.write_all(&READY.encode()).await.unwrap();
        b.up(0, stranger.node).await;
        let message = Frame::Message {
            channel: 1,
            transfer: 0,
            len: MESSAGE_BYTES_MAX as u32,
        };
        dripping.spawn(drip(stream, message));
    }
    let held = async {
        while b.endpoint.usage().memory.0 < 3 * MESSAGE_BYTES_MAX as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.unwrap();
    for number in 0..6 {
        a.session.send(0, b.id, vec![number; MESSAGE_BYTES_MAX]);
        let message = |event: &SessionEvent| matches!(event, SessionEvent::Message { from, .. } if *from == a.id);
        let SessionEvent::Message { body, .. } = b.find("Message", message).await else {
            unreachable!();
        };
        assert_eq!(body, vec![number; MESSAGE_BYTES_MAX]);
    }
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_gives_way_to_who_does() {
    const BLOCK: u32 = 16 << 20;
    // One block on its way out fits.
    let object = Object::full(8, BLOCK);
    let [mut a, b] = tight([Object::empty(8, BLOCK), object], 32 << 20).await;
    let mut idle = Vec::new();
    for stranger in strangers(&b, 2) {
        let socket = TcpSocket::new_v4().unwrap();
        // So little that a block cannot hide in the socket.
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let stream = socket.connect(b.addr()).await.unwrap();
        let mut stream = welcomed_on(stream, &b, &stranger).await;
        stream.write_all(&READY.encode()).await.unwrap();
        idle.push((stranger.node, stream));
    }
    let mut b = b;
    for (node, _) in &idle {
        b.up(0, *node).await;
        b.session.send_block(0, *node, 0);
        b.session.send_block(0, *node, 1);
    }
    let held = async {
        while b.endpoint.usage().memory.0 < 8 << 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.unwrap();
    // They read a little, which shows that they live.
    let mut reading = JoinSet::new();
    for (_, mut stream) in idle {
        reading.spawn(async move {
            use tokio::io::AsyncReadExt;
            let mut header = [0; HEADER_BYTES];
            while stream.read_exact(&mut header).await.is_ok() {
                let alive = stream.write_all(&Frame::Alive.encode()).await;
                if alive.is_err() || stream.flush().await.is_err() {
                    return;
                }
                tokio::time::sleep(DRIP).await;
            }
        });
    }
    for block in 2..4 {
        b.session.send_block(0, a.id, block);
    }
    for block in 2..4 {
        assert_eq!(a.arrived().await, (b.id, block, true));
    }
    let parted = |event: &SessionEvent| matches!(event, SessionEvent::PeerDown { peer, .. } if *peer != NodeId(0));
    b.find("PeerDown", parted).await;
    a.session.shutdown().await;
    b.session.shutdown().await;
}
