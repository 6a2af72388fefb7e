//! Nothing is left when a session or an endpoint has ended.

use std::fs;
use std::time::Duration;

use outpour_core::{Bytes, Rate};
use outpour_net::Connections;

use crate::support::*;

/// How many sockets of this host have a local or remote port, in any living state.
fn sockets(port: u16) -> usize {
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = format!(":{port:04X}");
    let lives = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ours = fields[1].ends_with(&port) || fields[2].ends_with(&port);
        // 01 established, 08 close-wait, 0A listen: what only a descriptor of ours keeps alive.
        ours && ["01", "08", "0A"].contains(&fields[3])
    };
    table.lines().skip(1).filter(lives).count()
}

#[test]
fn shutdown_leaves_no_task_and_no_socket() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let cast = Cast::new();
        let (mut left, right) = (cast.config(0), cast.config(1));
        left.session.connections = Connections::Fixed(3);
        let ios = [Object::full(64, 1 << 18), Object::empty(64, 1 << 18)];
        let [a, mut b] = pair(left, right, ios.clone()).await;
        let ports = [a.addr().port(), b.addr().port()];
        // In the middle of everything: blocks in flight, a store that hangs, a dial that fails.
        ios[1].hold(true);
        (0..64).for_each(|block| a.session.send_block(0, b.id, block));
        a.session.connect(outpour_core::NodeId(99));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(ports.iter().all(|port| sockets(*port) > 0));
        ios[1].hold(false);
        a.endpoint.shutdown().await;
        drop(a.session);
        // The events end, too, once those that wait are taken.
        b.down(0, a.id).await;
        b.session.shutdown().await;
        b.endpoint.shutdown().await;
        while b.events.recv().await.is_some() {}
        // Tasks have done everything when shutdown returns; the runtime still has to count them out.
        let tasks = || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
        };
        let counted = tokio::time::timeout(PATIENCE, async {
            while tasks() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(counted.await.is_ok(), "{} tasks are left", tasks());
        assert_eq!(ports.map(sockets), [0, 0]);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_for_nobody_who_waits_for_memory() {
    let cast = Cast::new();
    let mut config = cast.config(0);
    // A quarter of it is for blocks on their way out: one at a time, of all links together.
    config.endpoint.memory = Bytes(4 << 20);
    config.endpoint.limits.outgoing = Rate::from_bytes_per_s(1e6).unwrap();
    let a = Node::start(config);
    let others: Vec<Node> = (1..4).map(|node| cast.start(node)).collect();
    let all: Vec<&Node> = std::iter::once(&a).chain(&others).collect();
    for one in &all {
        for other in all.iter().filter(|other| other.id != one.id) {
            one.session.set_member(other.id, other.member());
        }
    }
    a.session.open(0, Object::full(64, 1 << 20));
    let mut up = a;
    for mut other in others {
        other.session.open(0, Object::empty(64, 1 << 20));
        up.session.connect(other.id);
        up.up(0, other.id).await;
        (0..64).for_each(|block| up.session.send_block(0, other.id, block));
        tokio::spawn(async move { while other.events.recv().await.is_some() {} });
    }
    // A writer that goes round is interrupted by its signs of life, every three seconds at best.
    let ended = tokio::time::timeout(Duration::from_secs(5), up.session.shutdown());
    assert!(ended.await.is_ok(), "a writer goes on without end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_is_closed_ends_at_both_ends_and_can_begin_anew() {
    let cast = Cast::new();
    let ios = [Object::full(8, 1000), Object::empty(8, 1000)];
    let [mut a, mut b] = pair(cast.config(0), cast.config(1), ios.clone()).await;
    // Another transfer loses its link, too, and gets a new one at once.
    for (node, io) in [(&a, &ios[0]), (&b, &ios[1])] {
        node.session.open(1, io.clone());
    }
    a.up(1, b.id).await;
    b.up(1, a.id).await;
    a.session.close(0);
    a.down(0, b.id).await;
    b.down(0, a.id).await;
    a.up(1, b.id).await;
    b.up(1, a.id).await;
    // Closed: nothing goes either way, and no node is accused of anything.
    a.session.send_block(0, b.id, 3);
    b.session.send(0, a.id, vec![1]);
    a.session.send_block(1, b.id, 4);
    assert_eq!(b.arrived().await, (a.id, 4, true));
    assert!(
        !std::iter::from_fn(|| a.events.try_recv()).any(|event| {
            matches!(event, outpour_net::SessionEvent::PeerUp { transfer: 0, .. })
        })
    );
    a.session.open(0, ios[0].clone());
    a.up(0, b.id).await;
    b.up(0, a.id).await;
    a.session.send_block(0, b.id, 5);
    assert_eq!(b.arrived().await, (a.id, 5, true));
    a.session.shutdown().await;
    b.session.shutdown().await;
}
