//! The object of a coded transfer: packets are made of what is here, and kept until they can be
//! decoded.
//!
//! Blocks go to and come from the object's [`BlockIo`] as in any transfer. Beside it, packets are
//! collected for a bounded number of batches at a time; at full rank a batch is decoded, and its
//! blocks are verified and stored like blocks that came as themselves. Packets to be sent are made
//! by threads of their own.

mod basis;
mod buffers;
mod encoders;
mod live;
pub(crate) mod speed;
mod whole;
mod window;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outpour_core::{BatchId, Batches, BlockId, BlockSet, NodeId, Support, Worth};
use outpour_net::{Accept, BlockIo, Encoded, Packet, PacketIo, PacketNews, Tell};
use outpour_protocols::collector::{Next, Packets, holding_of};
use outpour_protocols::coordinator::CodingCounts;
use outpour_system::clock::thread_time;
use rand_core::RngCore;

use basis::Basis;
use buffers::Pool;
use encoders::{Encoders, Ready, Request};
use live::{Kept, Live, Shape};
use whole::BatchCache;
use window::Window;

/// A batch has so many blocks for each packet that is made ahead of it.
const BLOCKS_PER_READY: usize = 8;

/// What coding took at one node, since its start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Packets that came and were worth nothing.
    dependent: AtomicU64,
    zero: AtomicU64,
    /// Packets made.
    made: AtomicU64,
    encode_ns: AtomicU64,
    decode_ns: AtomicU64,
}

/// See the module.
pub(crate) struct CodedIo {
    core: Arc<Core>,
    encoders: Encoders,
}

/// What the threads share.
struct Core {
    io: Arc<dyn BlockIo>,
    batches: Batches,
    /// The longest block of each batch.
    lens: Vec<u32>,
    window: Window,
    cache: BatchCache,
    pool: Arc<Pool>,
    counters: Arc<Counters>,
}

impl CodedIo {
    /// An object of which the blocks in `have` are here, with so many threads that make packets;
    /// packets of `kept` batches are kept at once.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn new(
        io: Arc<dyn BlockIo>,
        batches: Batches,
        have: &BlockSet,
        encoders: usize,
        kept: u32,
    ) -> io::Result<Self> {
        let mut whole = BlockSet::new(batches.count());
        let mut lens = Vec::with_capacity(batches.count() as usize);
        for batch in 0..batches.count() {
            let range = batches.range(batch);
            if have.contains_range(range.clone()) {
                whole.insert(batch);
            }
            let longest = range.filter_map(|block| io.block_len(block)).max();
            lens.push(longest.unwrap_or(0));
        }
        let core = Arc::new(Core {
            io,
            batches,
            lens,
            window: Window::new(whole, kept as usize),
            cache: BatchCache::default(),
            pool: Arc::default(),
            counters: Arc::default(),
        });
        let encoders = Encoders::start(encoders.max(1), &core)?;
        Ok(Self { core, encoders })
    }

    /// What coding took so far.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        self.core.counters.clone()
    }
}

impl BlockIo for CodedIo {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.core.io.block_len(block)
    }

    fn has(&self, block: BlockId) -> bool {
        self.core.io.has(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        self.core.io.read(block, buf)
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        self.core.io.accept(block, data)
    }

    fn packets(&self) -> Option<&dyn PacketIo> {
        Some(self)
    }
}

impl PacketIo for CodedIo {
    fn packet_len(&self, batch: BatchId) -> Option<u32> {
        let shape = self.core.shape(batch)?;
        Some((shape.k + shape.len) as u32)
    }

    fn wants(&self, batch: BatchId) -> bool {
        self.core.window.takes(batch)
    }

    fn encode(&self, batch: BatchId, pure: bool, buf: Vec<u8>, done: Encoded) {
        let request = Request {
            batch,
            pure,
            buf,
            done,
        };
        self.encoders.ask(request, &self.core.pool);
    }

    fn take(&self, from: NodeId, packet: Packet<'_>, tell: &mut Tell<'_>) {
        self.core.take(from, packet, tell);
    }

    fn note_block(&self, _: NodeId, block: BlockId, data: &[u8], tell: &mut Tell<'_>) {
        self.core.note_block(block, data, tell);
    }
}

impl Core {
    fn shape(&self, batch: BatchId) -> Option<Shape> {
        let len = *self.lens.get(batch as usize)?;
        let range = self.batches.range(batch);
        Some(Shape {
            first: range.start,
            k: range.len(),
            len: len as usize,
        })
    }

    // ---- arrivals

    fn take(&self, from: NodeId, packet: Packet<'_>, tell: &mut Tell<'_>) {
        let batch = packet.batch;
        let Some(shape) = self.shape(batch) else {
            return;
        };
        let Some(entry) = self.window.live(batch, shape) else {
            return tell(batch, PacketNews::Dropped);
        };
        let mut live = lock(&entry);
        let taken = live.take_packet(from, packet, &*self.io, &self.pool);
        match taken.as_ref().and_then(|taken| taken.told) {
            Some((worth, holding)) => {
                self.count(worth);
                tell(batch, PacketNews::Taken { worth, holding });
            }
            None => tell(batch, PacketNews::Dropped),
        }
        let next = taken.map_or(Next::Nothing, |taken| taken.next);
        self.go_on(batch, &entry, live, next, tell);
    }

    fn note_block(&self, block: BlockId, data: &[u8], tell: &mut Tell<'_>) {
        let batch = self.batches.batch_of(block);
        let Some(shape) = self.shape(batch) else {
            return;
        };
        let Some(entry) = self.window.live(batch, shape) else {
            return self.note_unkept(batch, shape, tell);
        };
        let mut live = lock(&entry);
        let taken = live.take_block(block, data, &*self.io, &self.pool);
        if let Some((worth, holding)) = taken.told {
            tell(batch, PacketNews::Taken { worth, holding });
        }
        self.go_on(batch, &entry, live, taken.next, tell);
    }

    /// Notes a block of a batch for which there is no room: it is on disk, which will do.
    fn note_unkept(&self, batch: BatchId, shape: Shape, tell: &mut Tell<'_>) {
        if self.window.is_whole(batch) {
            return;
        }
        let places = shape.blocks().enumerate();
        let here = places.filter(|(_, block)| self.io.has(*block));
        let support: Support = here.map(|(place, _)| place).collect();
        if usize::from(support.len()) < shape.k {
            let (worth, holding) = (Worth::Innovative, holding_of(support));
            return tell(batch, PacketNews::Taken { worth, holding });
        }
        self.window.finish(batch);
        let (fresh, wrong) = (Vec::new(), Vec::new());
        tell(batch, PacketNews::Whole { fresh, wrong });
    }

    /// Does what has become possible. Told while `live` is locked, so that news of a batch come in
    /// the order in which things happened to it.
    fn go_on(
        &self,
        batch: BatchId,
        entry: &Mutex<Live>,
        live: MutexGuard<'_, Live>,
        next: Next<Kept>,
        tell: &mut Tell<'_>,
    ) {
        let Some(shape) = self.shape(batch) else {
            return;
        };
        match next {
            Next::Nothing => {}
            Next::Whole(evidence) => {
                self.conclude(batch, shape, Vec::new(), evidence.as_deref(), tell);
            }
            Next::Decode(packets) => {
                // What else comes of the batch meanwhile need not wait.
                drop(live);
                self.decode(batch, shape, entry, &packets, tell);
            }
        }
    }

    fn decode(
        &self,
        batch: BatchId,
        shape: Shape,
        entry: &Mutex<Live>,
        packets: &Packets<Kept>,
        tell: &mut Tell<'_>,
    ) {
        let begun = thread_time();
        let decoded = live::decode(packets, shape, &*self.io, &self.pool);
        took(&self.counters.decode_ns, begun);
        let mut live = lock(entry);
        let mut decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return tell(batch, PacketNews::Failed(error)),
        };
        let next = live.settle(&decoded);
        if let Some(blocks) = decoded.blocks.take() {
            self.cache.keep(batch, Arc::new(blocks));
        }
        let fresh = decoded.fresh;
        if let Next::Whole(evidence) = next {
            self.conclude(batch, shape, fresh, evidence.as_deref(), tell);
        } else {
            self.window.shut(batch);
            tell(batch, PacketNews::Spoiled { fresh });
        }
    }

    /// A batch is whole: finds out whose packets were wrong, if any were.
    fn conclude(
        &self,
        batch: BatchId,
        shape: Shape,
        fresh: Vec<BlockId>,
        evidence: Option<&Packets<Kept>>,
        tell: &mut Tell<'_>,
    ) {
        let wrong = evidence.map_or_else(Vec::new, |packets| {
            match self
                .cache
                .blocks(batch, shape.blocks(), &*self.io, &self.pool)
            {
                Ok(blocks) => live::wrong(packets, shape, &blocks),
                // No node is accused without proof.
                Err(_) => Vec::new(),
            }
        });
        self.window.finish(batch);
        tell(batch, PacketNews::Whole { fresh, wrong });
    }

    fn count(&self, worth: Worth) {
        let counter = match worth {
            Worth::Dependent => &self.counters.dependent,
            Worth::Zero => &self.counters.zero,
            Worth::Innovative => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    // ---- what is made

    /// What packets of a batch are made of, and whether that is all of it. Of packets that are here
    /// the first few are left out.
    fn basis(&self, batch: BatchId, pure: bool, skip: usize) -> io::Result<(Basis, bool)> {
        let Some(shape) = self.shape(batch) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if let Some(entry) = self.window.live(batch, shape) {
            if let Some(basis) = lock(&entry).basis(pure, skip, &*self.io, &self.pool) {
                return basis.map(|basis| (basis, false));
            }
        } else if !self.window.is_whole(batch) {
            return live::verified(shape, &*self.io, &self.pool).map(|basis| (basis, false));
        }
        let blocks = self
            .cache
            .blocks(batch, shape.blocks(), &*self.io, &self.pool)?;
        let blocks = blocks.iter().cloned().enumerate().collect();
        Ok((Basis::Blocks(blocks), true))
    }

    /// Gives every node a packet of the batch that all of them ask for.
    fn answer(&self, requests: Vec<Request>, ready: Vec<Ready>, dice: &mut impl RngCore) {
        let begun = thread_time();
        let mut ready = ready.into_iter();
        let mut left = Vec::new();
        for request in requests {
            let (batch, pure) = (request.batch, request.pure);
            let made = ready.find_map(|ready| self.freshen(batch, pure, ready, dice));
            match made {
                Some(bytes) => {
                    self.pool.give(request.buf);
                    (request.done)(Ok(bytes));
                }
                None => left.push(request),
            }
        }
        let Some(first) = left.first() else {
            return took(&self.counters.encode_ns, begun);
        };
        let (batch, pure) = (first.batch, first.pure);
        let (bufs, dones): (Vec<_>, Vec<_>) = left
            .into_iter()
            .map(|request| (request.buf, request.done))
            .unzip();
        let made = self.make(batch, pure, bufs, dice);
        took(&self.counters.encode_ns, begun);
        match made {
            Ok((packets, _)) => {
                for (done, packet) in dones.into_iter().zip(packets) {
                    done(Ok(packet));
                }
            }
            Err(error) => {
                for done in dones {
                    done(Err(io::Error::new(error.kind(), error.to_string())));
                }
            }
        }
    }

    /// Makes packets ahead; none if they could go stale, or there is nothing to make them of.
    fn prepare(
        &self,
        batch: BatchId,
        pure: bool,
        count: usize,
        dice: &mut impl RngCore,
    ) -> Vec<Ready> {
        // What is verified but not all may be of another choice when it is sent.
        if pure && !self.window.is_whole(batch) {
            return Vec::new();
        }
        // What is left over when the next batch comes is made in vain: that must stay little.
        let k = self.shape(batch).map_or(0, |shape| shape.k);
        let count = count.min(k / BLOCKS_PER_READY);
        if count == 0 {
            return Vec::new();
        }
        let begun = thread_time();
        let bufs = (0..count).map(|_| self.pool.take(0).into_bytes()).collect();
        let made = self.make(batch, pure, bufs, dice);
        took(&self.counters.encode_ns, begun);
        let Ok((packets, made_of)) = made else {
            return Vec::new();
        };
        let packets = packets.into_iter().filter(|bytes| !bytes.is_empty());
        packets.map(|bytes| Ready { bytes, made_of }).collect()
    }

    /// Makes a packet of each buffer, or empties them if there is nothing to make packets of; says
    /// of how many packets, `None` if of the whole batch.
    fn make(
        &self,
        batch: BatchId,
        pure: bool,
        mut bufs: Vec<Vec<u8>>,
        dice: &mut impl RngCore,
    ) -> io::Result<(Vec<Vec<u8>>, Option<usize>)> {
        let (basis, whole) = self.basis(batch, pure, 0)?;
        let Some(shape) = self.shape(batch).filter(|_| basis.len() > 0) else {
            bufs.iter_mut().for_each(Vec::clear);
            return Ok((bufs, None));
        };
        for buf in &mut bufs {
            buf.resize(shape.k + shape.len, 0);
        }
        basis.make(shape.k, dice, &mut bufs);
        let made = bufs.len() as u64;
        self.counters.made.fetch_add(made, Ordering::Relaxed);
        Ok((bufs, (!whole).then_some(basis.len())))
    }

    /// Brings a packet that was made ahead up to date; `None` if it must not be sent any more.
    fn freshen(
        &self,
        batch: BatchId,
        pure: bool,
        mut ready: Ready,
        dice: &mut impl RngCore,
    ) -> Option<Vec<u8>> {
        let k = self.shape(batch)?.k;
        let Some(made_of) = ready.made_of else {
            return Some(ready.bytes);
        };
        match self.basis(batch, pure, made_of) {
            Ok((basis @ Basis::Packets(..), false)) => {
                basis.stir(k, dice, &mut ready.bytes);
                Some(ready.bytes)
            }
            _ => None,
        }
    }
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    live.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts what this thread worked since it had worked for `begun`.
fn took(counter: &AtomicU64, begun: Duration) {
    let worked = thread_time().saturating_sub(begun);
    counter.fetch_add(worked.as_nanos() as u64, Ordering::Relaxed);
}

/// A number that no other thread, process or node draws: coefficients need not be secret, but new.
fn fresh() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Counters {
    /// What they are now; the caller knows the rest.
    pub(crate) fn read(&self) -> CodingCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CodingCounts {
            made: get(&self.made),
            dependent: get(&self.dependent),
            zero: get(&self.zero),
            encode: Duration::from_nanos(get(&self.encode_ns)),
            decode: Duration::from_nanos(get(&self.decode_ns)),
            ..CodingCounts::default()
        }
    }
}

#[cfg(test)]
mod tests;
