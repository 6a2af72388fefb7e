//! How soon two endpoints that meet have said to each other what they have to say.

use outpour_core::NodeId;
use outpour_net::SessionEvent;
use outpour_net::frame::{Frame, HELLO_BYTES, Hello, JOIN_BYTES, Join, Purpose, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::hostile::{join, raw, read_frame, trunk};
use crate::support::*;

const HELLO: Hello = Hello {
    purpose: Purpose::Trunk,
};

/// Which of two endpoints decides is as good as drawn: so often at most until it was either.
const DRAWS: u32 = 64;

/// All that a caller has to say until a transfer is up, without waiting for an answer.
fn flight(target: &Node, caller: &Stranger) -> Vec<u8> {
    let mut all = HELLO.encode().to_vec();
    if caller.digest() < target.endpoint.key() {
        all.extend(Frame::Welcome { trunk: 7 }.encode());
    }
    all.extend(Frame::Join { channel: 1 }.encode());
    all.extend(caller.join(target.id));
    all.extend(raw(3, 0, 0, 0, 0));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dials_says_everything_before_it_is_answered() {
    let cast = Cast::new();
    let mut seen = [false; 2];
    for _ in 0..DRAWS {
        let a = cast.start(0);
        a.session.open(0, Object::full(1, 1));
        a.session.open(2, Object::full(1, 1));
        let peer = Stranger::new(&cast, 1);
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        a.session.set_member(peer.node, peer.member(addr));
        a.session.connect(peer.node);
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = peer.accept(stream).await;
        let said = async {
            let mut hello = [0; HELLO_BYTES];
            stream.read_exact(&mut hello).await.unwrap();
            assert_eq!(Hello::decode(&hello), Ok(HELLO));
            let decides = a.endpoint.key() < peer.digest();
            if decides {
                let welcome = read_frame(&mut stream).await;
                assert!(matches!(welcome, Frame::Welcome { .. }), "{welcome:?}");
            }
            seen[usize::from(decides)] = true;
            assert_eq!(read_frame(&mut stream).await, Frame::Join { channel: 1 });
            let mut body = [0; JOIN_BYTES];
            stream.read_exact(&mut body).await.unwrap();
            assert_eq!(Join::decode(&body).to, peer.node);
            for transfer in [0, 2] {
                let ready = Frame::Ready {
                    channel: 1,
                    transfer,
                };
                assert_eq!(read_frame(&mut stream).await, ready);
            }
        };
        timeout(PATIENCE, said).await.expect("it waits for answers");
        a.session.shutdown().await;
        if seen == [true; 2] {
            return;
        }
    }
    panic!("always the same end decides: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_hello_counts_once_its_sender_is_let_in() {
    let cast = Cast::new();
    for node in 1..8 {
        let mut a = cast.start(0);
        a.session.open(0, Object::full(1, 1));
        let caller = Stranger::new(&cast, node);
        let mut stream = caller.dial(a.addr()).await;
        let all = flight(&a, &caller);
        stream.write_all(&all).await.unwrap();
        // Our hello says that theirs was read; what follows it waits.
        stream.read_exact(&mut [0; HELLO_BYTES]).await.unwrap();
        a.session.set_member(caller.node, caller.member(loopback()));
        a.up(0, caller.node).await;
        a.session.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_the_hello_of_a_stranger_comes_to_nothing() {
    let cast = Cast::new();
    let mut a = cast.start(0);
    a.session.open(0, Object::full(1, 1));
    for node in 1..4 {
        let caller = Stranger::new(&cast, node);
        let mut stream = caller.dial(a.addr()).await;
        let mut all = flight(&a, &caller);
        all.extend(raw(4, 0, 4, 0, 0));
        all.extend(b"word");
        stream.write_all(&all).await.unwrap();
        stream.read_exact(&mut [0; HELLO_BYTES]).await.unwrap();
        let refused = timeout(PATIENCE, read_frame(&mut stream)).await.unwrap();
        assert_eq!(refused, Frame::Refuse(Refusal::NotMember));
    }
    assert_eq!(a.endpoint.usage().connections, 0);
    a.session.shutdown().await;
    assert!(a.events.recv().await.is_none(), "nothing ever came up");
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_that_comes_before_a_session_knows_the_member_is_kept() {
    let (cast, other) = (Cast::new(), Cast::new());
    let mut a = cast.start(0);
    let mut b = other.join(0, &a.endpoint);
    a.session.open(0, Object::full(1, 1));
    b.session.open(0, Object::full(1, 1));
    let caller = Stranger::new(&cast, 1);
    a.session.set_member(caller.node, caller.member(loopback()));
    let mut stream = trunk(&a, &caller).await;
    // The other session is asked first, and does not know the caller.
    let there = Join {
        session: other.id,
        from: caller.node,
        to: b.id,
    };
    join(&mut stream, 1, &there.encode()).await;
    stream.write_all(&raw(3, 0, 0, 0, 0)).await.unwrap();
    stream.write_all(&raw(3, 0, 0, 0, 0)).await.unwrap();
    join(&mut stream, 2, &caller.join(a.id)).await;
    let mut ready = raw(3, 0, 0, 0, 0);
    ready[2] = 2;
    stream.write_all(&ready).await.unwrap();
    // What was said before that was read.
    a.up(0, caller.node).await;
    b.session.set_member(caller.node, caller.member(loopback()));
    b.up(0, caller.node).await;
    // It is not said again.
    let (transfer, body) = (0, b"word".to_vec());
    stream.write_all(&raw(4, 0, 4, 0, 0)).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let from = caller.node;
    assert_eq!(
        b.next().await,
        SessionEvent::Message {
            transfer,
            from,
            body
        }
    );
    a.session.shutdown().await;
    b.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_hears_nothing_says_so_in_time() {
    let cast = Cast::new();
    let mut a = cast.start(0);
    a.session.open(0, Object::full(1, 1));
    let peer = Stranger::new(&cast, 1);
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    a.session.set_member(peer.node, peer.member(addr));
    a.session.connect(peer.node);
    let silent = tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            kept.push(peer.accept(stream).await);
        }
    });
    let why = a.unreachable(NodeId(1)).await;
    assert!(
        why.contains("not answer") || why.contains("not answered"),
        "{why}"
    );
    assert!(a.seen.is_empty(), "{:?}", a.seen);
    silent.abort();
    a.session.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_dial_each_other_at_once_share_one_connection() {
    for _ in 0..16 {
        let cast = Cast::new();
        let mut nodes = cast.nodes(2);
        let mut b = nodes.pop().unwrap();
        let mut a = nodes.pop().unwrap();
        a.session.open(0, Object::full(1, 1));
        b.session.open(0, Object::full(1, 1));
        a.session.dial_now(b.id);
        b.session.dial_now(a.id);
        a.up(0, b.id).await;
        b.up(0, a.id).await;
        a.session.send(0, b.id, b"there".to_vec());
        let wanted = |e: &SessionEvent| matches!(e, SessionEvent::Message { .. });
        b.find("Message", wanted).await;
        assert_eq!(a.session.stats().connections, 1);
        assert_eq!(b.session.stats().connections, 1);
        a.session.shutdown().await;
        b.session.shutdown().await;
    }
}
