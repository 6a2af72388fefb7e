//! The receiving half of a connection: from the socket to messages, blocks and packets.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use outpour_core::{BatchId, BlockId, Holding};
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;
use super::buffers::Buffer;
use super::limiter::Limiter;
use super::link::{InFlight, Link};
use crate::event::{MeshEvent, Room, Rooms};
use crate::frame::{Frame, HEADER_BYTES, Piece};
use crate::tls::Inbound;
use crate::{Accept, BlockIo, NEWS_MAX, Packet, PacketIo, PacketNews, Worth};

/// How much is read from the socket at a time, at first and when it keeps coming.
const READ_BYTES_MIN: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
/// A connection that brings nothing for so long is dead: the peer gives signs of life more often.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// A block or packet that has begun and does not go on for so long is given up, for it holds memory.
const STALL_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Reader {
    shared: Arc<Shared>,
    link: Arc<Link>,
    half: OwnedReadHalf,
    inbound: Inbound,
    limiter: Limiter,
    /// Whether this is the link's first connection, which carries the messages.
    first: bool,
    read_bytes: usize,
    /// What was read is paid for by then.
    paid: Option<Instant>,
    expect: Expect,
    arriving: Option<Arriving>,
}

/// What the next bytes are.
enum Expect {
    Header {
        bytes: [u8; HEADER_BYTES],
        have: usize,
    },
    Message {
        transfer: u8,
        body: Vec<u8>,
        len: usize,
        memory: Option<OwnedSemaphorePermit>,
    },
    Fragment {
        left: usize,
    },
}

impl Expect {
    const HEADER: Self = Self::Header {
        bytes: [0; HEADER_BYTES],
        have: 0,
    };
}

/// A block or packet of which a part is here.
struct Arriving {
    transfer: u8,
    piece: Piece,
    len: u32,
    got: u32,
    /// Where it goes; `None` if it is of no use.
    sink: Option<(Buffer, OwnedSemaphorePermit)>,
    progress: Instant,
}

impl Reader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        link: Arc<Link>,
        half: OwnedReadHalf,
        inbound: Inbound,
        first: bool,
    ) -> Self {
        let limiter = shared.limits.incoming();
        Self {
            shared,
            link,
            half,
            inbound,
            limiter,
            first,
            read_bytes: READ_BYTES_MIN,
            paid: None,
            expect: Expect::HEADER,
            arriving: None,
        }
    }

    /// Receives until something fails; says what.
    pub(crate) async fn run(mut self) -> String {
        loop {
            if let Err(why) = self.step().await {
                return why;
            }
        }
    }

    async fn step(&mut self) -> Result<(), String> {
        let plain = self.inbound.plain().map_err(|error| error.to_string())?;
        if plain.is_empty() {
            return self.receive().await;
        }
        let len = match &mut self.expect {
            Expect::Header { bytes, have } => {
                let len = plain.len().min(HEADER_BYTES - *have);
                bytes[*have..*have + len].copy_from_slice(&plain[..len]);
                *have += len;
                len
            }
            Expect::Message { body, len, .. } => {
                let part = plain.len().min(*len - body.len());
                body.extend_from_slice(&plain[..part]);
                part
            }
            Expect::Fragment { left } => {
                let len = plain.len().min(*left);
                if let Some(Arriving {
                    sink: Some((buffer, _)),
                    ..
                }) = &mut self.arriving
                {
                    buffer.bytes.extend_from_slice(&plain[..len]);
                }
                *left -= len;
                len
            }
        };
        self.inbound.consume(len);
        self.advance().await
    }

    /// Goes on to the next thing if the one at hand is complete.
    async fn advance(&mut self) -> Result<(), String> {
        match &mut self.expect {
            Expect::Header {
                bytes,
                have: HEADER_BYTES,
            } => {
                let frame = Frame::decode(bytes).map_err(|error| error.to_string())?;
                self.expect = Expect::HEADER;
                self.on_frame(frame).await
            }
            Expect::Message {
                transfer,
                body,
                len,
                memory,
            } if body.len() == *len => {
                let (transfer, body, memory) = (*transfer, std::mem::take(body), memory.take());
                self.expect = Expect::HEADER;
                self.deliver(transfer, body, memory).await;
                Ok(())
            }
            Expect::Fragment { left: 0 } => {
                self.expect = Expect::HEADER;
                self.on_fragment().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn on_frame(&mut self, frame: Frame) -> Result<(), String> {
        match frame {
            Frame::Alive => Ok(()),
            Frame::Ready { transfer } if self.first => match self.link.peer_ready(transfer) {
                None => Err("the peer opened a transfer twice".into()),
                Some(ours) => {
                    if ours {
                        self.shared.emit_up(&self.link, transfer).await;
                    }
                    Ok(())
                }
            },
            Frame::Message { transfer, len } if self.first && self.link.is_up(transfer) => {
                let memory = self.shared.message_memory.take(len).await;
                let len = len as usize;
                let body = Vec::with_capacity(len);
                if len == 0 {
                    self.deliver(transfer, body, memory).await;
                } else {
                    self.expect = Expect::Message {
                        transfer,
                        body,
                        len,
                        memory,
                    };
                }
                Ok(())
            }
            Frame::Fragment {
                transfer,
                piece,
                offset,
                len,
            } => self.on_piece(transfer, piece, offset, len).await,
            _ => Err("the peer sent a frame that has no place here".into()),
        }
    }

    async fn deliver(&self, transfer: u8, body: Vec<u8>, memory: Option<OwnedSemaphorePermit>) {
        let room = Room {
            _bytes: memory,
            ..self.shared.room().await
        };
        let event = MeshEvent::Message {
            transfer,
            from: self.link.peer,
            body,
        };
        self.shared.emit_in(room, self.link.serial, event);
    }

    async fn on_piece(
        &mut self,
        transfer: u8,
        piece: Piece,
        offset: u32,
        len: u32,
    ) -> Result<(), String> {
        match &self.arriving {
            None if offset == 0 => self.begin(transfer, piece).await?,
            Some(arriving)
                if arriving.transfer == transfer
                    && arriving.piece == piece
                    && arriving.got == offset => {}
            _ => return Err("the peer sent parts of blocks out of order".into()),
        }
        let Some(arriving) = &mut self.arriving else {
            return Ok(());
        };
        if len > arriving.len - arriving.got {
            return Err(self.reject(transfer, piece).await);
        }
        arriving.got += len;
        self.expect = Expect::Fragment { left: len as usize };
        Ok(())
    }

    /// Makes room for a block or packet; this is where a slow disk holds back the peer.
    async fn begin(&mut self, transfer: u8, piece: Piece) -> Result<(), String> {
        if !self.link.is_up(transfer) {
            if self.first {
                return Err("the peer sent a block of a transfer that is not open".into());
            }
            self.link.wait_up(transfer).await;
        }
        let Some(io) = self.link.io(transfer) else {
            return Err("no such transfer".into());
        };
        let Some(len) = self.link.piece_len(transfer, piece) else {
            return Err(self.reject(transfer, piece).await);
        };
        let useless = match piece {
            Piece::Block(block) => io.drops(block),
            Piece::Packet { batch, .. } => io.packets().is_none_or(|packets| !packets.wants(batch)),
        };
        let sink = if useless {
            None
        } else {
            let memory = self.shared.receive_memory.take(len).await;
            let memory = memory.ok_or_else(|| "this node ends".to_owned())?;
            Some((self.shared.pool.take(len as usize), memory))
        };
        let progress = Instant::now();
        self.arriving = Some(Arriving {
            transfer,
            piece,
            len,
            got: 0,
            sink,
            progress,
        });
        Ok(())
    }

    /// A fragment is complete; hands the block or packet over if it was the last.
    async fn on_fragment(&mut self) {
        let Some(mut arriving) = self.arriving.take() else {
            return;
        };
        if arriving.got < arriving.len {
            arriving.progress = Instant::now();
            self.arriving = Some(arriving);
            return;
        }
        let Arriving {
            transfer,
            piece,
            len,
            sink,
            ..
        } = arriving;
        let stats = &self.shared.stats;
        stats
            .payload_in
            .fetch_add(u64::from(len), Ordering::Relaxed);
        if let Piece::Packet { .. } = piece {
            stats.packets_in.fetch_add(1, Ordering::Relaxed);
        }
        let io = self.link.io(transfer).cloned();
        let coded = io.as_ref().is_some_and(|io| io.packets().is_some());
        let rooms = self.shared.rooms(if coded { 1 + NEWS_MAX } else { 1 });
        let rooms = rooms.await;
        match (sink, io) {
            (Some((buffer, memory)), Some(io)) => {
                let complete = Complete {
                    transfer,
                    buffer,
                    rooms,
                };
                let shared = self.shared.clone();
                let flight = InFlight::new(self.link.clone());
                self.shared.workers.submit(move || {
                    complete.accept(piece, &shared, &flight, &*io);
                    drop((memory, flight));
                });
            }
            _ => self.drop_useless(transfer, piece, len, rooms),
        }
    }

    /// Reports a block or packet that was of no use before it came.
    fn drop_useless(&self, transfer: u8, piece: Piece, len: u32, mut rooms: Rooms) {
        let duplicate = &self.shared.stats.duplicate;
        duplicate.fetch_add(u64::from(len), Ordering::Relaxed);
        let from = self.link.peer;
        let event = match piece {
            Piece::Block(block) => MeshEvent::Arrived {
                transfer,
                from,
                block,
                fresh: false,
            },
            Piece::Packet { batch, .. } => MeshEvent::Coded {
                transfer,
                from,
                batch,
                news: PacketNews::Taken {
                    worth: Worth::Unwanted,
                    holding: Holding::default(),
                },
            },
        };
        self.shared.emit_in(rooms.split(), self.link.serial, event);
    }

    /// The peer sent what cannot be a block or packet of the object.
    async fn reject(&self, transfer: u8, piece: Piece) -> String {
        let room = self.shared.room().await;
        self.shared.reject(&self.link, transfer, piece, room)
    }

    async fn receive(&mut self) -> Result<(), String> {
        if let Some(at) = self.paid.take() {
            sleep_until(at).await;
        }
        let room = self.inbound.room(self.limiter.portion(self.read_bytes));
        let most = room.len();
        let len = loop {
            match self.half.try_read(room) {
                Ok(0) => return Err("closed by the peer".into()),
                Ok(len) => break len,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string()),
            }
            self.limiter.pause();
            match timeout(SILENCE_MAX, self.half.readable()).await {
                Ok(ready) => ready.map_err(|error| error.to_string())?,
                Err(_) => return Err(format!("nothing heard for {} s", SILENCE_MAX.as_secs())),
            }
        };
        self.inbound.received(len);
        self.shared
            .stats
            .wire_in
            .fetch_add(len as u64, Ordering::Relaxed);
        self.paid = self.limiter.charge(len);
        if len == most {
            self.read_bytes = (2 * self.read_bytes).min(READ_BYTES_MAX);
        }
        match &self.arriving {
            Some(arriving) if arriving.progress.elapsed() > STALL_MAX => {
                Err(format!("stopped in the middle of {}", arriving.piece))
            }
            _ => Ok(()),
        }
    }
}

/// A block or packet that is all here but not verified.
struct Complete {
    transfer: u8,
    buffer: Buffer,
    rooms: Rooms,
}

impl Complete {
    /// Has it verified and stored, and reports what became of it.
    fn accept(self, piece: Piece, shared: &Shared, flight: &InFlight, io: &dyn BlockIo) {
        match (piece, io.packets()) {
            (Piece::Block(block), packets) => {
                self.accept_block(block, shared, flight.link(), io, packets);
            }
            (Piece::Packet { batch, pure }, Some(packets)) => {
                let Self {
                    transfer,
                    buffer,
                    mut rooms,
                } = self;
                let link = flight.link();
                let data = &buffer.bytes;
                let packet = Packet { batch, pure, data };
                let tell = &mut Self::tell(transfer, &mut rooms, shared, link);
                packets.take(link.peer, packet, tell);
            }
            // It would not have been let in.
            (Piece::Packet { .. }, None) => {}
        }
    }

    fn accept_block(
        mut self,
        block: BlockId,
        shared: &Shared,
        link: &Link,
        io: &dyn BlockIo,
        packets: Option<&dyn PacketIo>,
    ) {
        let transfer = self.transfer;
        let from = link.peer;
        let len = self.buffer.bytes.len() as u64;
        let arrived = |fresh| MeshEvent::Arrived {
            transfer,
            from,
            block,
            fresh,
        };
        match io.accept(block, &self.buffer.bytes) {
            Accept::Stored => {
                let data = self.buffer.share();
                if shared.many_links() {
                    shared.cache.keep(transfer, block, data.clone());
                }
                shared.emit_in(self.rooms.split(), link.serial, arrived(true));
                if let Some(packets) = packets {
                    let tell = &mut Self::tell(transfer, &mut self.rooms, shared, link);
                    packets.note_block(from, block, &data, tell);
                }
            }
            Accept::Duplicate => {
                shared.stats.duplicate.fetch_add(len, Ordering::Relaxed);
                shared.emit_in(self.rooms.split(), link.serial, arrived(false));
            }
            Accept::Wrong => {
                shared.reject(link, transfer, Piece::Block(block), self.rooms.split());
            }
            Accept::Failed(error) => {
                let event = MeshEvent::StoreFailed {
                    transfer,
                    block,
                    error,
                };
                shared.emit_in(self.rooms.split(), link.serial, event);
            }
        }
    }

    /// Reports news of batches that came through a link.
    fn tell(
        transfer: u8,
        rooms: &mut Rooms,
        shared: &Shared,
        link: &Link,
    ) -> impl FnMut(BatchId, PacketNews) {
        move |batch, news| {
            let room = rooms.split();
            if news == PacketNews::Wrong {
                let piece = Piece::Packet { batch, pure: false };
                shared.reject(link, transfer, piece, room);
                return;
            }
            let event = MeshEvent::Coded {
                transfer,
                from: link.peer,
                batch,
                news,
            };
            shared.emit_in(room, link.serial, event);
        }
    }
}
