//! Packets of a coded transfer: made when their turn comes, taken once, never kept.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use outpour_core::{BatchId, BlockId, Holding, NodeId, Support, Worth};
use outpour_net::frame::{Frame, HEADER_BYTES};
use outpour_net::{
    Accept, BlockIo, Encoded, Packet, PacketIo, PacketNews, Piece, SessionEvent, Tell,
};
use tokio::io::AsyncWriteExt;

use crate::hostile::welcomed;
use crate::support::*;

const BATCHES: u32 = 3;
const LEN: u32 = 100_000;

/// A coded object whose packets are numbered as they are made.
struct Coded {
    blocks: Arc<Object>,
    made: AtomicU32,
    /// The number in each packet that came, and the batch.
    came: Mutex<Vec<(BatchId, u32)>>,
    /// Whether there is any use for packets.
    hungry: AtomicBool,
    /// The batch that cannot be encoded, and the one of which there is nothing.
    broken: BatchId,
    empty: BatchId,
}

impl Coded {
    fn new(blocks: Arc<Object>) -> Arc<Self> {
        Arc::new(Self {
            blocks,
            made: AtomicU32::new(0),
            came: Mutex::default(),
            hungry: AtomicBool::new(true),
            broken: u32::MAX,
            empty: u32::MAX,
        })
    }
}

impl BlockIo for Coded {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.blocks.block_len(block)
    }

    fn has(&self, block: BlockId) -> bool {
        self.blocks.has(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        self.blocks.read(block, buf)
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        self.blocks.accept(block, data)
    }

    fn packets(&self) -> Option<&dyn PacketIo> {
        Some(self)
    }
}

impl PacketIo for Coded {
    fn packet_len(&self, batch: BatchId) -> Option<u32> {
        (batch < BATCHES).then_some(LEN)
    }

    fn wants(&self, _: BatchId) -> bool {
        self.hungry.load(Ordering::SeqCst)
    }

    fn encode(&self, batch: BatchId, pure: bool, mut buf: Vec<u8>, done: Encoded) {
        assert!(buf.is_empty() && buf.capacity() >= LEN as usize);
        if batch == self.broken {
            return done(Err(io::Error::other("the medium is damaged")));
        }
        if batch != self.empty {
            let number = self.made.fetch_add(1, Ordering::SeqCst);
            buf.extend(number.to_le_bytes());
            buf.extend(pattern(batch + u32::from(pure), LEN - 4));
        }
        done(Ok(buf));
    }

    fn take(&self, _: NodeId, packet: Packet<'_>, tell: &mut Tell<'_>) {
        let Packet { batch, pure, data } = packet;
        let (number, rest) = data.split_first_chunk().unwrap();
        if rest != pattern(batch + u32::from(pure), LEN - 4) {
            return tell(batch, PacketNews::Wrong);
        }
        let mut came = self.came.lock().unwrap();
        came.push((batch, u32::from_le_bytes(*number)));
        let rank = came.len() as u16;
        let worth = Worth::Innovative;
        let support = Support::first(rank);
        let holding = Holding { rank, support };
        tell(batch, PacketNews::Taken { worth, holding });
        let (fresh, wrong) = (vec![7], vec![]);
        tell(batch, PacketNews::Whole { fresh, wrong });
    }

    fn note_block(&self, _: NodeId, block: BlockId, data: &[u8], tell: &mut Tell<'_>) {
        assert_eq!(data, pattern(block, data.len() as u32));
        let (worth, holding) = (Worth::Dependent, Holding::default());
        tell(block / 4, PacketNews::Taken { worth, holding });
    }
}

/// Two nodes with transfer 0 up between them.
async fn pair(ios: [Arc<dyn BlockIo>; 2]) -> [Node; 2] {
    let cast = Cast::new();
    let mut nodes = cast.nodes(2);
    for (node, io) in nodes.iter().zip(ios) {
        node.session.open(0, io);
    }
    let mut b = nodes.pop().unwrap();
    let mut a = nodes.pop().unwrap();
    a.session.connect(b.id);
    a.up(0, b.id).await;
    b.up(0, a.id).await;
    [a, b]
}

async fn news(node: &mut Node) -> (BatchId, PacketNews) {
    let event = node.find("Coded", |e| matches!(e, SessionEvent::Coded { .. }));
    match event.await {
        SessionEvent::Coded { batch, news, .. } => (batch, news),
        _ => unreachable!(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_packet_is_made_for_one_send_and_taken_once() {
    let ios = [Object::full(9, 500), Object::empty(9, 500)].map(Coded::new);
    let [from, to] = ios.clone();
    let [mut a, mut b] = pair([from, to]).await;
    for batch in [0, 1, 0, 2, 0] {
        a.session.send_packet(0, b.id, batch, batch == 1);
    }
    let mut ranks = Vec::new();
    for _ in 0..5 {
        let (batch, taken) = news(&mut b).await;
        let PacketNews::Taken { worth, holding } = taken else {
            panic!("{taken:?}");
        };
        assert_eq!(worth, Worth::Innovative);
        ranks.push(holding.rank);
        // The object may tell of two things in one call.
        let whole = |e: &SessionEvent| match e {
            SessionEvent::Coded {
                batch: of, news, ..
            } => *of == batch && matches!(news, PacketNews::Whole { .. }),
            _ => false,
        };
        b.find("Whole", whole).await;
    }
    for _ in 0..5 {
        let sent = |e: &SessionEvent| matches!(e, SessionEvent::PacketSent { transfer: 0, .. });
        a.find("PacketSent", sent).await;
    }
    ranks.sort_unstable();
    assert_eq!(ranks, [1, 2, 3, 4, 5]);
    let mut came = ios[1].came.lock().unwrap().clone();
    came.sort_unstable_by_key(|(_, number)| *number);
    assert_eq!(came, [(0, 0), (1, 1), (0, 2), (2, 3), (0, 4)]);
    let (sent, received) = (a.session.stats(), b.session.stats());
    assert_eq!((sent.packets_out, received.packets_in), (5, 5));
    assert_eq!(
        (sent.payload_out, received.payload_in),
        (5 * u64::from(LEN), 5 * u64::from(LEN))
    );
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_no_use_are_dropped_unread_and_told() {
    let ios = [Object::full(9, 500), Object::empty(9, 500)].map(Coded::new);
    ios[1].hungry.store(false, Ordering::SeqCst);
    let [from, to] = ios.clone();
    let [a, mut b] = pair([from, to]).await;
    a.session.send_packet(0, b.id, 1, false);
    assert_eq!(news(&mut b).await, (1, PacketNews::Dropped));
    assert!(ios[1].came.lock().unwrap().is_empty());
    assert_eq!(b.session.stats().duplicate, u64::from(LEN));
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_block_is_told_to_the_packets_after_it_arrived() {
    let ios = [Object::full(9, 500), Object::empty(9, 500)].map(Coded::new);
    let [from, to] = ios;
    let [a, mut b] = pair([from, to]).await;
    a.session.send_block(0, b.id, 8);
    let first = b.next().await;
    assert!(
        matches!(
            first,
            SessionEvent::Arrived {
                block: 8,
                fresh: true,
                ..
            }
        ),
        "{first:?}"
    );
    assert_eq!(news(&mut b).await.0, 2);
    // One that is here is none.
    a.session.send_block(0, b.id, 8);
    assert!(!b.arrived().await.2);
    assert!(b.seen.is_empty());
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_of_nothing_is_answered_and_one_that_fails_ends_the_link() {
    let object = Coded {
        broken: 1,
        empty: 2,
        ..Arc::into_inner(Coded::new(Object::full(9, 500))).unwrap()
    };
    let other = Coded::new(Object::empty(9, 500));
    let [mut a, mut b] = pair([Arc::new(object), other.clone()]).await;
    a.session.send_packet(0, b.id, 2, true);
    a.session.send_packet(0, b.id, 0, false);
    for batch in [2, 0] {
        let sent = a.find("PacketSent", |e| {
            matches!(e, SessionEvent::PacketSent { .. })
        });
        let expected = SessionEvent::PacketSent {
            transfer: 0,
            to: b.id,
            batch,
        };
        assert_eq!(sent.await, expected);
    }
    assert_eq!(news(&mut b).await.0, 0);
    assert_eq!(other.came.lock().unwrap().len(), 1);
    a.session.send_packet(0, b.id, 1, false);
    let failed = a.find("ReadFailed", |e| {
        matches!(e, SessionEvent::ReadFailed { .. })
    });
    let piece = Piece::Packet {
        batch: 1,
        pure: false,
    };
    let error = "the medium is damaged".to_owned();
    let expected = SessionEvent::ReadFailed {
        transfer: 0,
        piece,
        error,
    };
    assert_eq!(failed.await, expected);
    a.down(0, b.id).await;
    b.down(0, a.id).await;
    a.session.shutdown().await;
    b.session.shutdown().await;
}

/// Bytes in which a stranger sends a packet.
fn fragments(batch: BatchId, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut offset = 0;
    for part in data.chunks(60_000) {
        let frame = Frame::Fragment {
            channel: 1,
            transfer: 0,
            piece: Piece::Packet { batch, pure: false },
            offset,
            len: part.len() as u32,
        };
        bytes.extend(frame.encode());
        bytes.extend(part);
        offset += part.len() as u32;
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_that_cannot_be_cut_their_sender_off() {
    let wrong = vec![0; LEN as usize];
    let long = vec![0; LEN as usize + 1];
    let cases: [(bool, BatchId, &[u8]); 4] = [
        (true, BATCHES, &wrong[..10]),
        (true, 1, &wrong),
        (true, 1, &long),
        (false, 0, &wrong[..10]),
    ];
    for (coded, batch, data) in cases {
        let cast = Cast::new();
        let mut a = cast.start(0);
        let object = Object::empty(9, 500);
        match coded {
            true => a.session.open(0, Coded::new(object)),
            false => a.session.open(0, object),
        }
        let stranger = Stranger::new(&cast, 1);
        let mut stream = welcomed(&a, &stranger).await;
        let ready = Frame::Ready {
            channel: 1,
            transfer: 0,
        }
        .encode();
        stream.write_all(&ready).await.unwrap();
        a.up(0, stranger.node).await;
        stream.write_all(&fragments(batch, data)).await.unwrap();
        let expected = SessionEvent::RejectedPacket {
            transfer: 0,
            from: stranger.node,
            batch,
        };
        assert_eq!(a.next().await, expected, "{coded} {batch}");
        a.down(0, stranger.node).await;
        assert_eq!(a.session.stats().rejected_packets, 1);
        a.session.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_cannot_go_on_as_a_block() {
    let cast = Cast::new();
    let mut a = cast.start(0);
    a.session.open(0, Coded::new(Object::empty(9, 500)));
    let stranger = Stranger::new(&cast, 1);
    let mut stream = welcomed(&a, &stranger).await;
    let ready = Frame::Ready {
        channel: 1,
        transfer: 0,
    }
    .encode();
    stream.write_all(&ready).await.unwrap();
    a.up(0, stranger.node).await;
    let first = fragments(1, &[7; 100]);
    stream.write_all(&first).await.unwrap();
    let mut second: [u8; HEADER_BYTES] = *first.first_chunk().unwrap();
    assert_eq!(second[0], 7);
    second[0] = 5;
    second[12..].copy_from_slice(&100_u32.to_le_bytes());
    stream.write_all(&second).await.unwrap();
    a.cut_off(stranger.node).await;
    a.down(0, stranger.node).await;
    assert!(a.seen.is_empty(), "{:?}", a.seen);
    a.session.shutdown().await;
}
