//! Changes a limit while data moves, and says how close to it the rate is one second later.
//!
//! ```text
//! cargo run --release -p outpour-net --example rates
//! ```
//!
//! Each limit is set in turn, of the host, of the session and towards the peer. What is counted
//! from the end of the first second to the end of the second is what was sent on the wire.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::{BlockId, NodeId, Rate};
use outpour_net::{
    Accept, BlockIo, Endpoint, EndpointConfig, EndpointKey, Events, Limits, Member, Session,
    SessionConfig, SessionEvent, SessionId, SessionLimits,
};

const BLOCK: usize = 256 << 10;
const SECOND: Duration = Duration::from_secs(1);

/// An object of zeros that is never whole.
struct Zeros;

impl BlockIo for Zeros {
    fn block_len(&self, _: BlockId) -> Option<u32> {
        Some(BLOCK as u32)
    }
    fn has(&self, _: BlockId) -> bool {
        false
    }
    fn read(&self, _: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        buf.clear();
        buf.resize(BLOCK, 0);
        Ok(())
    }
    fn accept(&self, _: BlockId, _: &[u8]) -> Accept {
        Accept::Stored
    }
}

fn rate(mbyte: f64) -> Rate {
    Rate::from_bytes_per_s(mbyte * 1e6).unwrap()
}

/// Keeps blocks on their way for as long as the session lives.
async fn send(session: Arc<Session>, mut events: Events) {
    while let Some(event) = events.recv().await {
        match event {
            SessionEvent::PeerUp { peer, .. } => {
                (0..64).for_each(|block| session.send_block(0, peer, block));
            }
            SessionEvent::Sent { to, block, .. } => session.send_block(0, to, block),
            _ => {}
        }
    }
}

/// How much of a limit is reached in the second second after it was set.
async fn achieved(session: &Session, limit: Rate) -> f64 {
    tokio::time::sleep(SECOND).await;
    let (begin, from) = (std::time::Instant::now(), session.stats().wire_out);
    tokio::time::sleep(SECOND).await;
    let bytes = session.stats().wire_out - from;
    bytes as f64 / begin.elapsed().as_secs_f64() / limit.bytes_per_s()
}

#[tokio::main]
async fn main() {
    let id = SessionId::random().unwrap();
    let start = |node: u32| {
        let key = EndpointKey::generate().unwrap();
        let endpoint = EndpointConfig::new(key, ([127, 0, 0, 1], 0).into());
        let endpoint = Endpoint::start(endpoint).unwrap();
        let (session, events) = endpoint
            .session(&SessionConfig::new(id, NodeId(node)))
            .unwrap();
        session.open(0, Arc::new(Zeros));
        let member = Member {
            addrs: vec![endpoint.local_addr()],
            key: endpoint.key(),
        };
        (endpoint, Arc::new(session), events, member)
    };
    let (host, sender, events, known) = start(0);
    let (_other, receiver, mut arrivals, member) = start(1);
    sender.set_member(NodeId(1), member);
    receiver.set_member(NodeId(0), known);
    sender.connect(NodeId(1));
    tokio::spawn(send(sender.clone(), events));
    tokio::spawn(async move { while arrivals.recv().await.is_some() {} });
    let host_limit = |outgoing| {
        host.set_limits(Limits {
            outgoing,
            ..Limits::default()
        });
    };
    let session_limit = |outgoing| {
        sender.set_limits(SessionLimits {
            outgoing,
            ..SessionLimits::default()
        });
    };
    let peer_limit = |rate| sender.set_peer_rate(NodeId(1), rate);
    let limits: [(&str, &dyn Fn(Rate)); 3] = [
        ("the host", &host_limit),
        ("the session", &session_limit),
        ("the peer", &peer_limit),
    ];
    for (what, set) in limits {
        for mbyte in [10.0, 40.0, 5.0, 20.0, 80.0] {
            set(rate(mbyte));
            let share = achieved(&sender, rate(mbyte)).await;
            println!("limit of {what}: {mbyte} MB/s, {share:.3} of it reached");
        }
        set(Rate::UNLIMITED);
    }
}
