//! Pushes an object between two endpoints over loopback and compares with a plain TCP copy.
//!
//! ```text
//! cargo run --release -p outpour-net --example loopback [-- GIB [BLOCK_KIB [CONNECTIONS]]]
//! ```
//!
//! Both move the same bytes from one buffer in memory to another. The endpoint encrypts, decrypts and
//! verifies each block by BLAKE3; the plain copy does nothing of the kind. The sender has the
//! file's part of the work done by a copy from memory, as from the page cache.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_core::{BlockId, NodeId};
use outpour_net::{
    Accept, BlockIo, Connections, Endpoint, EndpointConfig, EndpointKey, Events, Member,
    SessionConfig, SessionEvent, SessionId,
};

/// An object that repeats a few different blocks.
struct Repeating {
    blocks: u32,
    data: Vec<Vec<u8>>,
    hashes: Vec<blake3::Hash>,
    source: bool,
}

impl Repeating {
    fn new(blocks: u32, block_bytes: usize, source: bool) -> Self {
        let count = ((64 << 20) / block_bytes).max(1);
        let data: Vec<Vec<u8>> = (0..count)
            .map(|k| {
                (0..block_bytes)
                    .map(|i| ((i * 31 + k * 7) >> 3) as u8)
                    .collect()
            })
            .collect();
        let hashes = data.iter().map(|block| blake3::hash(block)).collect();
        Self {
            blocks,
            data,
            hashes,
            source,
        }
    }
}

impl BlockIo for Repeating {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        (block < self.blocks).then(|| self.data[0].len() as u32)
    }
    fn has(&self, _: BlockId) -> bool {
        self.source
    }
    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        buf.clear();
        buf.extend_from_slice(&self.data[block as usize % self.data.len()]);
        Ok(())
    }
    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        if blake3::hash(data) == self.hashes[block as usize % self.hashes.len()] {
            Accept::Stored
        } else {
            Accept::Wrong
        }
    }
}

fn plain_copy(bytes: u64) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 256 << 10];
        let mut got = 0;
        while let len @ 1.. = stream.read(&mut buffer).unwrap() {
            got += len as u64;
        }
        assert_eq!(got, bytes);
    });
    let mut stream = TcpStream::connect(addr).unwrap();
    let source = vec![7; 64 << 20];
    let mut buffer = vec![0; 256 << 10];
    let start = Instant::now();
    for chunk in source
        .chunks(256 << 10)
        .cycle()
        .take((bytes / (256 << 10)) as usize)
    {
        // What reading from the page cache costs a plain copy.
        buffer.copy_from_slice(chunk);
        stream.write_all(&buffer).unwrap();
    }
    drop(stream);
    receiver.join().unwrap();
    start.elapsed()
}

async fn mesh_copy(objects: [Arc<Repeating>; 2], connections: u8) -> Duration {
    let [source, sink] = objects;
    let blocks = source.blocks;
    let id = SessionId::random().unwrap();
    let start = |node: u32| {
        let key = EndpointKey::generate().unwrap();
        let endpoint = EndpointConfig::new(key, ([127, 0, 0, 1], 0).into());
        let endpoint = Endpoint::start(endpoint).unwrap();
        let mut config = SessionConfig::new(id, NodeId(node));
        config.connections = Connections::Fixed(connections);
        let (session, events) = endpoint.session(&config).unwrap();
        let member = Member {
            addrs: vec![endpoint.local_addr()],
            key: endpoint.key(),
        };
        (session, events, member)
    };
    let (a, mut a_events, a_member) = start(0);
    let (b, mut b_events, b_member) = start(1);
    a.set_member(NodeId(1), b_member);
    b.set_member(NodeId(0), a_member);
    a.open(0, source);
    b.open(0, sink);
    a.connect(NodeId(1));
    wait_up(&mut a_events).await;
    let begin = Instant::now();
    let sender = tokio::spawn(async move {
        let first = blocks.min(64);
        (0..first).for_each(|block| a.send_block(0, NodeId(1), block));
        let (mut next, mut sent) = (first, 0);
        while sent < blocks {
            if let Some(SessionEvent::Sent { .. }) = a_events.recv().await {
                sent += 1;
                if next < blocks {
                    a.send_block(0, NodeId(1), next);
                    next += 1;
                }
            }
        }
        a
    });
    let mut arrived = 0;
    while arrived < blocks {
        match b_events.recv().await {
            Some(SessionEvent::Arrived { fresh: true, .. }) => arrived += 1,
            Some(SessionEvent::PeerUp { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    let elapsed = begin.elapsed();
    sender.await.unwrap().shutdown().await;
    b.shutdown().await;
    elapsed
}

/// Processor time of this process so far, in seconds.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

async fn wait_up(events: &mut Events) {
    while !matches!(events.recv().await, Some(SessionEvent::PeerUp { .. })) {}
}

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .map(|arg| arg.parse().unwrap())
        .collect();
    let bytes = numbers.first().copied().unwrap_or(4) << 30;
    let block_bytes = numbers.get(1).map_or(1 << 20, |kib| kib << 10);
    let connections = numbers.get(2).map_or(1, |count| *count as u8);
    let blocks = (bytes / block_bytes) as u32;
    let objects =
        [true, false].map(|source| Arc::new(Repeating::new(blocks, block_bytes as usize, source)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    println!(
        "{} GiB in blocks of {} KiB, {connections} connection(s)",
        bytes >> 30,
        block_bytes >> 10
    );
    for _ in 0..3 {
        let cpu = cpu_s();
        let plain = plain_copy(bytes).as_secs_f64();
        let plain_cpu = cpu_s() - cpu;
        let mesh = runtime.block_on(mesh_copy(objects.clone(), connections));
        let mesh = mesh.as_secs_f64();
        let mesh_cpu = cpu_s() - cpu - plain_cpu;
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        println!(
            "plain TCP {:.2} GB/s ({:.2} per core), encrypted and verified {:.2} GB/s ({:.2} per \
             core), ratio {:.2} ({:.2})",
            rate(plain),
            rate(plain_cpu),
            rate(mesh),
            rate(mesh_cpu),
            plain / mesh,
            plain_cpu / mesh_cpu,
        );
    }
}
