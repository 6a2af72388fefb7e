//! Coded objects on real files that hand each other packets, without a network in between.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use outpour_core::Holding;
use outpour_core::manifest::{BlockSize, Manifest};
use outpour_store::{BuildOptions, Destination, Source};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::content::{DestinationIo, SourceIo};

const BLOCK: u32 = 4 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// A tree with a large file, blocks that end early, and small files packed together.
struct Scene {
    dir: tempfile::TempDir,
    manifest: Arc<Manifest>,
}

/// A node's coded object.
struct Peer {
    id: NodeId,
    io: CodedIo,
    path: PathBuf,
    batches: Batches,
    /// Kept to put the files in place.
    destination: Option<Arc<Destination>>,
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("large"), noise(1, 150_001)).unwrap();
        std::fs::write(source.join("other"), noise(2, 20_000)).unwrap();
        for n in 0..40 {
            let len = 100 + 37 * n as usize;
            std::fs::write(source.join(format!("small{n}")), noise(n, len)).unwrap();
        }
        let manifest = Arc::new(build(&source).0);
        Self { dir, manifest }
    }

    fn source(&self, batch_blocks: u16) -> Peer {
        let path = self.dir.path().join("source");
        let (manifest, source) = build(&path);
        let io = SourceIo {
            manifest: Arc::new(manifest),
            source,
        };
        let have = BlockSet::full(self.manifest.blocks());
        self.peer(0, batch_blocks, Arc::new(io), &have, path)
    }

    fn receiver(&self, id: u32, batch_blocks: u16) -> Peer {
        let path = self.dir.path().join(format!("copy{id}"));
        let begun = Instant::now();
        let destination = loop {
            let options = outpour_store::DestinationOptions::default();
            match Destination::open(&path, self.manifest.clone(), options) {
                // A program that another test starts holds our locks until it runs.
                Err(error) if error.is_locked() && begun.elapsed() < PATIENCE => {
                    std::thread::yield_now();
                }
                opened => break Arc::new(opened.unwrap()),
            }
        };
        let io = DestinationIo::new(self.manifest.clone(), destination.clone());
        let have = io.have();
        let peer = self.peer(id, batch_blocks, Arc::new(io), &have, path);
        Peer {
            destination: Some(destination),
            ..peer
        }
    }

    fn peer(
        &self,
        id: u32,
        batch_blocks: u16,
        io: Arc<dyn BlockIo>,
        have: &BlockSet,
        path: PathBuf,
    ) -> Peer {
        let batches = Batches::new(self.manifest.blocks(), batch_blocks).unwrap();
        Peer {
            id: NodeId(id),
            io: CodedIo::new(io, batches, have, 1, BATCHES_MAX).unwrap(),
            path,
            batches,
            destination: None,
        }
    }
}

/// So many batches have packets at once.
const BATCHES_MAX: u32 = 16;

fn build(path: &Path) -> (Manifest, Source) {
    let options = BuildOptions {
        block: BlockSize::Given(BLOCK),
        ..BuildOptions::default()
    };
    outpour_store::build(path, &options, &|_| {}).unwrap()
}

impl Peer {
    /// A packet as it would be sent; empty if there is nothing to make it of.
    fn packet(&self, batch: BatchId, pure: bool) -> Vec<u8> {
        let (answer, made) = mpsc::channel();
        let done = move |bytes| answer.send(bytes).unwrap();
        self.io.encode(batch, pure, Vec::new(), Box::new(done));
        made.recv_timeout(PATIENCE).unwrap().unwrap()
    }

    fn take(&self, from: &Self, batch: BatchId, pure: bool, data: &[u8]) -> Vec<PacketNews> {
        assert_eq!(data.len(), self.io.packet_len(batch).unwrap() as usize);
        let mut news = Vec::new();
        let packet = Packet { batch, pure, data };
        let tell = &mut |of, what| {
            assert_eq!(of, batch);
            news.push(what);
        };
        self.io.take(from.id, packet, tell);
        assert!(news.len() <= outpour_net::NEWS_MAX, "{news:?}");
        news
    }

    /// Sends a packet; returns its result there.
    fn send(&self, to: &Self, batch: BatchId, pure: bool) -> Vec<PacketNews> {
        to.take(self, batch, pure, &self.packet(batch, pure))
    }

    /// Sends a block; returns its result there.
    fn send_block(&self, to: &Self, block: BlockId) -> Vec<PacketNews> {
        let mut data = Vec::new();
        self.io.read(block, &mut data).unwrap();
        let mut news = Vec::new();
        if to.io.accept(block, &data) == Accept::Stored {
            let tell = &mut |_, what| news.push(what);
            to.io.note_block(self.id, block, &data, tell);
        }
        news
    }

    fn assert_copy_of(&self, source: &Self) {
        self.destination.as_ref().unwrap().finish().unwrap();
        let diff = std::process::Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([&source.path, &self.path])
            .status();
        assert!(diff.unwrap().success(), "{} differs", self.path.display());
    }
}

fn worth(news: &[PacketNews]) -> Worth {
    match news.first() {
        Some(PacketNews::Taken { worth, .. }) => *worth,
        _ => panic!("{news:?}"),
    }
}

fn holding(news: &[PacketNews]) -> Holding {
    match news.first() {
        Some(PacketNews::Taken { holding, .. }) => *holding,
        _ => panic!("{news:?}"),
    }
}

fn rank(news: &[PacketNews]) -> u16 {
    holding(news).rank
}

/// What a batch came to, if that was told.
fn end(news: &[PacketNews]) -> Option<&PacketNews> {
    news.iter()
        .find(|news| !matches!(news, PacketNews::Taken { .. } | PacketNews::Dropped))
}

#[test]
fn batches_of_any_size_pass_through_a_relay_that_never_decodes() {
    for batch_blocks in [1, 7, 64, 256] {
        let scene = Scene::new();
        let source = scene.source(batch_blocks);
        let (relay, last) = (
            scene.receiver(1, batch_blocks),
            scene.receiver(2, batch_blocks),
        );
        let mut seen = std::collections::HashSet::new();
        for batch in 0..source.batches.count() {
            let k = source.batches.rank_of(batch);
            let mut sent = 0;
            let whole = loop {
                assert!(
                    sent < 2 * k + 20,
                    "batch {batch}: {sent} packets of {k} blocks"
                );
                sent += 1;
                // The relay stops one short of being able to decode, where it can.
                if rank_of(&relay, batch) + 1 < k || k == 1 && rank_of(&relay, batch) == 0 {
                    source.send(&relay, batch, true);
                }
                let through = if sent % 8 == 0 { &source } else { &relay };
                let data = through.packet(batch, false);
                // Over few blocks of a small field vectors repeat.
                assert!(k < 4 || seen.insert(data[..usize::from(k)].to_vec()));
                let news = last.take(through, batch, false, &data);
                if let Some(end) = end(&news) {
                    break end.clone();
                }
            };
            let fresh = source.batches.range(batch).collect();
            let wrong = vec![];
            assert_eq!(whole, PacketNews::Whole { fresh, wrong });
            assert!(!last.io.wants(batch));
            let late = source.send(&last, batch, true);
            assert_eq!(late, [PacketNews::Dropped]);
        }
        last.assert_copy_of(&source);
    }
}

/// The dimension of what a node has of a batch.
fn rank_of(peer: &Peer, batch: BatchId) -> u16 {
    let Some(entry) = peer
        .io
        .core
        .window
        .live(batch, peer.io.core.shape(batch).unwrap())
    else {
        return peer.batches.rank_of(batch);
    };
    let basis = lock(&entry).basis(false, 0, &*peer.io.core.io, &peer.io.core.pool);
    basis.map_or(0, |basis| basis.unwrap().len() as u16)
}

#[test]
fn blocks_and_packets_in_any_order_make_a_batch_whole() {
    for seed in 0..20 {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let scene = Scene::new();
        let source = scene.source(16);
        let receiver = scene.receiver(1, 16);
        for batch in 0..source.batches.count() {
            let mut blocks: Vec<BlockId> = source.batches.range(batch).collect();
            let mut fresh = Vec::new();
            let mut by_block = Vec::new();
            let wrong = loop {
                let take_block = dice.next_u32() % 3 == 0 && !blocks.is_empty();
                let news = if take_block {
                    let block = blocks.swap_remove(dice.next_u32() as usize % blocks.len());
                    by_block.push(block);
                    source.send_block(&receiver, block)
                } else {
                    source.send(&receiver, batch, false)
                };
                if let Some(PacketNews::Whole { fresh: new, wrong }) = end(&news) {
                    fresh.extend(new);
                    break wrong.clone();
                }
            };
            assert!(wrong.is_empty());
            // Each block came once: as itself or by decoding.
            fresh.extend(by_block);
            fresh.sort_unstable();
            assert_eq!(
                fresh,
                source.batches.range(batch).collect::<Vec<_>>(),
                "seed {seed}"
            );
        }
        receiver.assert_copy_of(&source);
    }
}

#[test]
fn what_a_node_has_of_a_batch_is_told_with_each_piece() {
    let scene = Scene::new();
    let source = scene.source(16);
    let [relay, receiver] = [1, 2].map(|id| scene.receiver(id, 16));
    let start = source.batches.range(1).start;
    // The batch is looked at first when its first block is on disk already.
    for (rank, place) in [(1, 3), (2, 8)] {
        let news = source.send_block(&relay, start + place);
        assert_eq!(worth(&news), Worth::Innovative);
        assert_eq!(holding(&news).rank, rank);
    }
    let both = [3, 8].map(|place| 1 << place).iter().sum();
    let both = Support::from_words([both, 0, 0, 0]);
    let news = relay.send(&receiver, 1, false);
    // One combination of both, unless a coefficient happens to be 0.
    assert_eq!(holding(&news).rank, 1);
    assert!(holding(&news).support.is_subset(both));
    while rank(&relay.send(&receiver, 1, false)) < 2 {}
    let news = relay.send(&receiver, 1, false);
    assert_eq!(worth(&news), Worth::Dependent);
    let (rank, support) = (2, both);
    assert_eq!(holding(&news), Holding { rank, support });
}

#[test]
fn what_is_here_from_before_counts() {
    let scene = Scene::new();
    let source = scene.source(8);
    {
        let receiver = scene.receiver(1, 8);
        for block in (0..source.batches.blocks()).step_by(3) {
            source.send_block(&receiver, block);
        }
    }
    let receiver = scene.receiver(1, 8);
    for batch in 0..source.batches.count() {
        let all = source.batches.range(batch);
        let here = all.clone().filter(|block| block % 3 == 0).count() as u16;
        let lacking: Vec<BlockId> = all.filter(|block| block % 3 != 0).collect();
        let mut news = source.send(&receiver, batch, true);
        if worth(&news) == Worth::Innovative {
            assert_eq!(rank(&news), here + 1);
        }
        while end(&news).is_none() {
            news = source.send(&receiver, batch, true);
        }
        let (fresh, wrong) = (lacking, vec![]);
        assert_eq!(end(&news), Some(&PacketNews::Whole { fresh, wrong }));
    }
    receiver.assert_copy_of(&source);
}

/// Sends packets of a batch until it is decoded to something.
fn fill(from: &Peer, to: &Peer, batch: BatchId) -> PacketNews {
    loop {
        if let Some(end) = end(&from.send(to, batch, true)) {
            return end.clone();
        }
    }
}

/// Coefficients are random: a block that was left out of the wrong packet comes out right, once in
/// 256 times.
#[test]
fn who_made_a_wrong_packet_is_named_and_nobody_else() {
    assert!((0..10).any(|_| is_who_made_a_wrong_packet_named(&Scene::new())));
}

/// False if the draw was of no use.
fn is_who_made_a_wrong_packet_named(scene: &Scene) -> bool {
    let source = scene.source(8);
    let (liar, relay, honest) = (
        scene.receiver(1, 8),
        scene.receiver(2, 8),
        scene.receiver(3, 8),
    );
    let receiver = scene.receiver(4, 8);
    let lie = |pure: bool, batch| {
        let mut data = source.packet(batch, true);
        // The first byte behind the coefficients: even the shortest block has it.
        data[usize::from(source.batches.rank_of(batch))] ^= 1;
        let news = receiver.take(&liar, batch, pure, &data);
        assert_eq!(worth(&news), Worth::Innovative);
    };
    // The honest ones have a block or two; what they make of these is right.
    for block in 0..2 {
        source.send_block(&honest, block);
    }
    lie(true, 0);
    honest.send(&receiver, 0, true);
    source.send(&receiver, 0, true);
    // A relay passes on what it was sent wrong, and does not claim that it is verified.
    let mut data = source.packet(0, true);
    data[20] ^= 7;
    relay.take(&liar, 0, false, &data);
    relay.send(&receiver, 0, false);
    if is_any_right(&fill(&source, &receiver, 0)) {
        return false;
    }
    assert!(!receiver.io.wants(0));
    assert_eq!(source.send(&receiver, 0, true), [PacketNews::Dropped]);
    // Nothing of it is passed on, but blocks that come.
    assert!(receiver.packet(0, false).is_empty() && receiver.packet(0, true).is_empty());
    let mut news = Vec::new();
    for block in 0..8 {
        assert_eq!(news, [], "blocks of a spoiled batch are nothing but blocks");
        news = source.send_block(&receiver, block);
        assert!(!receiver.packet(0, true).is_empty());
    }
    let (fresh, wrong) = (vec![], vec![liar.id]);
    assert_eq!(end(&news), Some(&PacketNews::Whole { fresh, wrong }));
    assert!(receiver.io.core.window.is_whole(0));

    // A wrong packet that does not claim anything spoils as much, and proves nothing.
    lie(false, 1);
    if is_any_right(&fill(&source, &receiver, 1)) {
        return false;
    }
    let mut news = Vec::new();
    for block in 8..16 {
        news = source.send_block(&receiver, block);
    }
    let (fresh, wrong) = (vec![], vec![]);
    assert_eq!(end(&news), Some(&PacketNews::Whole { fresh, wrong }));
    for batch in 2..source.batches.count() {
        fill(&source, &receiver, batch);
    }
    receiver.assert_copy_of(&source);
    true
}

/// Whether a batch that was spoiled has a block that is right.
fn is_any_right(spoiled: &PacketNews) -> bool {
    let PacketNews::Spoiled { fresh } = spoiled else {
        panic!("{spoiled:?}");
    };
    !fresh.is_empty()
}

#[test]
fn a_block_that_came_right_is_kept_though_its_batch_is_spoiled() {
    let scene = Scene::new();
    let source = scene.source(8);
    let (liar, receiver) = (scene.receiver(1, 8), scene.receiver(2, 8));
    source.send_block(&receiver, 3);
    // This one has only one source, so one block alone comes out wrong.
    let k = 8;
    let unit = |block: BlockId, flip: u8| {
        let mut data = vec![0; receiver.io.packet_len(0).unwrap() as usize];
        data[block as usize] = 1;
        let mut bytes = Vec::new();
        source.io.read(block, &mut bytes).unwrap();
        data[k..k + bytes.len()].copy_from_slice(&bytes);
        data[k] ^= flip;
        data
    };
    let mut news = Vec::new();
    for block in [0, 1, 2, 4, 5, 6, 7] {
        news = receiver.take(&liar, 0, true, &unit(block, u8::from(block == 5)));
    }
    let fresh = vec![0, 1, 2, 4, 6, 7];
    assert_eq!(end(&news), Some(&PacketNews::Spoiled { fresh }));
    let news = source.send_block(&receiver, 5);
    let (fresh, wrong) = (vec![], vec![liar.id]);
    assert_eq!(end(&news), Some(&PacketNews::Whole { fresh, wrong }));
}

#[test]
fn worthless_and_impossible_packets_change_nothing() {
    let scene = Scene::new();
    let source = scene.source(8);
    let receiver = scene.receiver(1, 8);
    let len = receiver.io.packet_len(0).unwrap() as usize;
    assert_eq!(receiver.io.packet_len(source.batches.count()), None);
    assert!(!receiver.io.wants(u32::MAX));
    let news = receiver.take(&source, 0, true, &vec![0; len]);
    assert_eq!((worth(&news), rank(&news)), (Worth::Zero, 0));
    let packet = source.packet(0, true);
    assert_eq!(
        worth(&receiver.take(&source, 0, true, &packet)),
        Worth::Innovative
    );
    assert_eq!(
        worth(&receiver.take(&source, 0, true, &packet)),
        Worth::Dependent
    );
    let counts = receiver.io.counters().read();
    assert_eq!((counts.dependent, counts.zero), (1, 1));
    // The data plane lets through neither; it would not matter.
    for (batch, data) in [(0, &packet[..3]), (u32::MAX, &packet[..])] {
        let packet = Packet {
            batch,
            pure: true,
            data,
        };
        let tell = &mut |_, news| assert_eq!(news, PacketNews::Dropped);
        receiver.io.take(source.id, packet, tell);
    }
    assert!(
        receiver.packet(1, false).is_empty(),
        "there is nothing to make it of"
    );
    assert_eq!(rank_of(&receiver, 0), 1);
}

#[test]
fn packets_of_more_batches_than_there_is_room_for_are_refused() {
    let scene = Scene::new();
    let source = scene.source(2);
    assert!(source.batches.count() > BATCHES_MAX);
    let receiver = scene.receiver(1, 2);
    for batch in 0..BATCHES_MAX {
        assert_eq!(
            worth(&source.send(&receiver, batch, true)),
            Worth::Innovative
        );
    }
    assert!(!receiver.io.wants(BATCHES_MAX) && receiver.io.wants(0));
    assert_eq!(
        source.send(&receiver, BATCHES_MAX, true),
        [PacketNews::Dropped]
    );
    // A block is taken all the same, and counts.
    let blocks = source.batches.range(BATCHES_MAX);
    let news = source.send_block(&receiver, blocks.start);
    assert_eq!((worth(&news), rank(&news)), (Worth::Innovative, 1));
    let news = source.send_block(&receiver, blocks.start + 1);
    assert!(matches!(end(&news), Some(PacketNews::Whole { .. })));
    fill(&source, &receiver, 0);
    assert!(receiver.io.wants(BATCHES_MAX + 1));
}

#[test]
fn a_packet_made_ahead_has_what_came_since() {
    let scene = Scene::new();
    let source = scene.source(32);
    let (relay, last) = (scene.receiver(1, 32), scene.receiver(2, 32));
    let mut innovative = 0;
    for block in 0..32 {
        source.send_block(&relay, block);
        // Packets are made ahead between these.
        let news = last.take(&relay, 0, false, &relay.packet(0, false));
        innovative += u32::from(worth(&news) == Worth::Innovative);
        assert!(rank(&news) <= block as u16 + 1);
    }
    // A packet without the newest block would be dependent whenever it is the one that arrived.
    assert!(innovative >= 28, "{innovative}");
}
