//! What is done with arbitrary bytes as what a peer sends, to find out whether it is borne; for tests.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use outpour_core::manifest::BLOCKS_MAX;
use outpour_core::{BlockId, BlockSet, MESSAGE_BYTES_MAX, NodeId};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::frame::{Frame, Hello, Join, Piece, Purpose};
use crate::{
    Accept, BlockIo, Connections, Endpoint, EndpointConfig, EndpointKey, Member, SessionConfig,
    SessionEvent, SessionId, tls,
};

pub use crate::frame::fuzz as frames;
pub use crate::record::fuzz as records;
pub use crate::trust::{trust_certificates, trust_files};

const BLOCKS: u32 = 40;
const BLOCK_BYTES: u32 = 3000;
/// Only an endpoint that hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(8);

/// An endpoint that is one of a session of two, and the member of it that says anything.
struct Stage {
    runtime: Runtime,
    endpoint: Endpoint,
    key: EndpointKey,
}

/// An object in memory that knows what its blocks should be.
struct Object(Mutex<BlockSet>);

fn right(block: BlockId) -> u8 {
    (block * 7 + 1) as u8
}

impl Object {
    fn have(&self) -> MutexGuard<'_, BlockSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockIo for Object {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        (block < BLOCKS).then_some(BLOCK_BYTES)
    }

    fn has(&self, block: BlockId) -> bool {
        self.have().contains(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        buf.clear();
        buf.resize(BLOCK_BYTES as usize, right(block));
        Ok(())
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        assert_eq!(
            data.len(),
            BLOCK_BYTES as usize,
            "a block of another length"
        );
        if data.iter().any(|byte| *byte != right(block)) {
            return Accept::Wrong;
        }
        match self.have().insert(block) {
            true => Accept::Stored,
            false => Accept::Duplicate,
        }
    }
}

impl Stage {
    fn new() -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .ok()?;
        let [own, key] = [EndpointKey::generate().ok()?, EndpointKey::generate().ok()?];
        let config = EndpointConfig::new(own, (Ipv4Addr::LOCALHOST, 0).into());
        let endpoint = runtime.block_on(async { Endpoint::start(config) }).ok()?;
        Some(Self {
            runtime,
            endpoint,
            key,
        })
    }
}

/// A member's bytes after the handshake, on the endpoint that really runs: its greeting, that it joins a session,
/// and then frames as the input tells, or any bytes. What is told of is stored, is right and is told once, no more is heard
/// than was said, and the connection comes to an end.
pub fn endpoint(bytes: &[u8]) {
    static STAGE: OnceLock<Option<Stage>> = OnceLock::new();
    let Some(stage) = STAGE.get_or_init(Stage::new) else {
        return;
    };
    let played = stage.runtime.block_on(async {
        let play = play(stage, said(bytes));
        tokio::time::timeout(PATIENCE, play).await
    });
    assert!(played.is_ok(), "the endpoint hangs");
}

/// What the member says: the input taken apart into frames.
fn said(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    let mut byte = || match rest {
        [byte, more @ ..] => {
            rest = more;
            Some(*byte)
        }
        [] => None,
    };
    while let Some(op) = byte() {
        let (a, b) = (byte().unwrap_or(0), byte().unwrap_or(0));
        let channel = u16::from(op >> 5 == 7) + 1;
        let transfer = u8::from(op >> 5 == 6);
        let fragment = |block: u8, offset: u32, len: u32| Frame::Fragment {
            channel,
            transfer,
            piece: match op & 16 {
                0 => Piece::Block(block.into()),
                _ => Piece::Packet {
                    batch: block.into(),
                    pure: true,
                },
            },
            offset,
            len,
        };
        let (frame, payload) = match op & 15 {
            0 | 1 => (Frame::Ready { channel, transfer }, Vec::new()),
            2 | 3 => {
                let len = u32::from(b);
                let frame = Frame::Message {
                    channel,
                    transfer,
                    len,
                };
                (frame, vec![a; len as usize])
            }
            // A whole block, right if `b` is even.
            4..=6 => {
                let right = right(a.into()).wrapping_add(b % 2);
                let frame = fragment(a, 0, BLOCK_BYTES);
                (frame, vec![right; BLOCK_BYTES as usize])
            }
            // A part of one.
            7 | 8 => {
                let (offset, len) = (u32::from(b >> 4) * 1000, u32::from(b & 15) * 250 + 250);
                (
                    fragment(a, offset, len),
                    vec![right(a.into()); len as usize],
                )
            }
            9 => (Frame::Pause { channel }, Vec::new()),
            10 => (Frame::Resume { channel }, Vec::new()),
            11 => (Frame::Leave { channel }, Vec::new()),
            12 => {
                let join = Join {
                    session: SessionId([a; 16]),
                    from: NodeId(1),
                    to: NodeId(u32::from(b)),
                };
                let channel = channel + 1;
                (Frame::Join { channel }, join.encode().to_vec())
            }
            13 => (Frame::Alive, Vec::new()),
            // Any header, with no payload or one that is too short.
            _ => {
                let mut header = fragment(a, 0, 1).encode();
                for _ in 0..4 {
                    let at = usize::from(byte().unwrap_or(0)) % header.len();
                    header[at] = byte().unwrap_or(0);
                }
                out.extend(header);
                out.extend(vec![a; usize::from(b)]);
                continue;
            }
        };
        out.extend(frame.encode());
        out.extend(payload);
    }
    out
}

async fn play(stage: &Stage, said: Vec<u8>) {
    let Ok(id) = SessionId::random() else {
        return;
    };
    let mut config = SessionConfig::new(id, NodeId(0));
    config.connections = Connections::Fixed(1);
    let Ok((session, mut events)) = stage.endpoint.session(&config) else {
        return;
    };
    let object = Arc::new(Object(Mutex::new(BlockSet::new(BLOCKS))));
    session.open(0, object.clone());
    let peer = NodeId(1);
    let member = Member {
        addrs: Vec::new(),
        key: stage.key.digest(),
    };
    session.set_member(peer, member);
    // The session ends with the talk.
    let talk = talk(stage, id, &said);
    let count = async {
        let mut fresh = BlockSet::new(BLOCKS);
        let mut messages = 0;
        while let Some(event) = events.recv().await {
            match event {
                SessionEvent::Arrived {
                    block, fresh: true, ..
                } => {
                    assert!(fresh.insert(block), "block {block} came twice");
                }
                SessionEvent::Message { body, .. } => messages += body.len(),
                SessionEvent::Sent { .. } => unreachable!("nothing was sent"),
                _ => {}
            }
        }
        assert!(messages <= said.len(), "more was heard than said");
        fresh
    };
    let end = async {
        talk.await;
        session.shutdown().await;
    };
    let (fresh, ()) = tokio::join!(count, end);
    // What came last may be stored and not be told of any more.
    assert!(fresh.is_subset(&object.have()));
}

/// Says it all, and waits until the other side has had enough, or its end.
async fn talk(stage: &Stage, session: SessionId, said: &[u8]) {
    let addr = stage.endpoint.local_addr();
    let Ok(mut stream) = TcpStream::connect(addr).await else {
        return;
    };
    let Ok(config) = stage.key.dialling(stage.endpoint.key()) else {
        return;
    };
    let name = ServerName::IpAddress(addr.ip().into());
    let Ok(mut secured) = tls::connect(&mut stream, config, name).await else {
        return;
    };
    let join = Join {
        session,
        from: NodeId(1),
        to: NodeId(0),
    };
    let hello = Hello {
        purpose: Purpose::Trunk,
    };
    let mut plain = hello.encode().to_vec();
    // Who decides lets the trunk come up.
    if stage.key.digest() < stage.endpoint.key() {
        plain.extend(Frame::Welcome { trunk: 9 }.encode());
    }
    plain.extend(Frame::Join { channel: 1 }.encode());
    plain.extend(join.encode());
    plain.extend(said);
    let mut wire = Vec::new();
    let sealed = secured.sealer.seal(&plain, &mut wire);
    if sealed.is_err() {
        return;
    }
    let (mut read, mut write) = stream.split();
    let write = async {
        let _ = write.write_all(&wire).await;
        let _ = write.shutdown().await;
    };
    let read = async {
        let mut heard = [0; 4096];
        while matches!(read.read(&mut heard).await, Ok(1..)) {}
    };
    tokio::join!(write, read);
}

/// A message of a protocol that is as long as may be: behind a tag that says which, a list of numbers, a set
/// of the largest object, or runs without end, by the shape.
pub fn longest_message(tag: u8, shape: u8) -> Vec<u8> {
    let mut body = vec![tag];
    match shape {
        // A list of many numbers.
        0 => {
            body.extend([0xff, 0xff, 0xff, 0x00]);
            body.resize(MESSAGE_BYTES_MAX, 1);
        }
        // A set of the largest object.
        1 => {
            body.extend([1, 0x80, 0x80, 0x40]);
            body.resize(body.len() + BLOCKS_MAX as usize / 8, 0x55);
        }
        // Runs without end.
        _ => {
            body.extend([0, 0xff, 0xff, 0x7f]);
            body.resize(MESSAGE_BYTES_MAX, 1);
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_longer_than_may_be() {
        for round in 0..48 {
            let body = longest_message((round / 3) as u8, (round % 3) as u8);
            assert!(body.len() > 1 << 20 && body.len() <= MESSAGE_BYTES_MAX);
        }
    }
}
