//! The sending half of a connection: messages first, then blocks and packets, fragment by fragment.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use outpour_core::{BatchId, BlockId};
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::buffers::Block;
use super::limiter::Limiter;
use super::link::Link;
use super::portion::Portion;
use crate::event::MeshEvent;
use crate::frame::{FRAGMENT_BYTES_MAX, Frame, HEADER_BYTES, Piece};
use crate::record::{OVERHEAD, PLAIN_MAX, Sealer};

/// Messages are gathered up to so much before they are written.
const MESSAGES_BYTES: usize = 256 << 10;
/// Blocks that are read, and packets that are made, ahead of the one that is being sent.
const AHEAD: usize = 2;
/// A connection that has nothing to send says so this often.
const ALIVE_EVERY: Duration = Duration::from_secs(3);

pub(crate) struct Writer {
    shared: Arc<Shared>,
    link: Arc<Link>,
    half: OwnedWriteHalf,
    sealer: Sealer,
    limiter: Limiter,
    portion: Portion,
    /// Whether this is the link's first connection, which carries the messages.
    first: bool,
    /// Sealed and ready for the socket.
    out: Vec<u8>,
    fetches: VecDeque<Fetch>,
    current: Option<Sending>,
    /// Memory that was waited for. It is kept until the next look at the queue: what is given back
    /// goes to the next who waits, and two who do that to each other never get to use it.
    reserved: Option<OwnedSemaphorePermit>,
    /// A fragment of this length may be sent from then on.
    granted: Option<(Instant, usize)>,
    /// Blocks and packets whose last byte is in `out`.
    complete: Vec<(u8, Piece)>,
    wrote: Instant,
}

/// A block on its way from the disk, or a packet that is being made.
struct Fetch {
    transfer: u8,
    piece: Piece,
    data: oneshot::Receiver<Result<Block, String>>,
    memory: OwnedSemaphorePermit,
}

/// The block or packet that is being sent.
struct Sending {
    transfer: u8,
    piece: Piece,
    data: Block,
    offset: usize,
    _memory: OwnedSemaphorePermit,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        link: Arc<Link>,
        half: OwnedWriteHalf,
        sealer: Sealer,
        first: bool,
        welcome: Option<Frame>,
    ) -> Self {
        let limiter = shared.limits.outgoing();
        let mut writer = Self {
            shared,
            link,
            half,
            sealer,
            limiter,
            portion: Portion::start(),
            first,
            out: Vec::new(),
            fetches: VecDeque::new(),
            current: None,
            reserved: None,
            granted: None,
            complete: Vec::new(),
            wrote: Instant::now(),
        };
        if let Some(frame) = welcome {
            // Sealing a header into memory cannot fail before a key is used up.
            let _ = writer.seal_control(frame, &[]);
        }
        writer
    }

    /// Sends until something fails; says what.
    pub(crate) async fn run(mut self) -> String {
        loop {
            if let Err(why) = self.step().await {
                return why;
            }
        }
    }

    async fn step(&mut self) -> Result<(), String> {
        if self.first {
            self.announce().await?;
            self.take_messages()?;
            if self.link.probing.swap(false, Ordering::Relaxed) {
                self.seal_control(Frame::Alive, &[])?;
            }
        }
        self.take_pieces();
        self.fill().await?;
        if self.out.is_empty() {
            self.wait().await
        } else {
            self.flush().await
        }
    }

    /// Says which transfers were opened since we last looked.
    async fn announce(&mut self) -> Result<(), String> {
        let opened = self.shared.opened.load(Ordering::SeqCst);
        let news = opened & !self.link.announced();
        if news == 0 {
            return Ok(());
        }
        for (transfer, io) in self.shared.opened(news) {
            if self.link.announce(transfer, io) {
                self.shared.emit_up(&self.link, transfer).await;
            }
            self.seal_control(Frame::Ready { transfer }, &[])?;
        }
        Ok(())
    }

    fn take_messages(&mut self) -> Result<(), String> {
        while self.out.len() < MESSAGES_BYTES
            && let Some((transfer, body)) = self.link.pop_message()
        {
            let frame = Frame::Message {
                transfer,
                len: body.len() as u32,
            };
            self.seal_control(frame, &body)?;
        }
        Ok(())
    }

    /// Seals what does not wait for the rate limit, but counts.
    fn seal_control(&mut self, frame: Frame, payload: &[u8]) -> Result<(), String> {
        self.limiter.charge(wire_len(payload.len()));
        self.seal(frame, payload)
    }

    fn seal(&mut self, frame: Frame, payload: &[u8]) -> Result<(), String> {
        let header = frame.encode();
        let sealed = self.sealer.seal(&header, &mut self.out);
        sealed
            .and_then(|()| self.sealer.seal(payload, &mut self.out))
            .map_err(|e| e.to_string())
    }

    /// Takes blocks and packets off the queue and has them read or made, a few ahead of the one
    /// being sent.
    fn take_pieces(&mut self) {
        let ahead = AHEAD + usize::from(self.current.is_none());
        let mut reserved = self.reserved.take();
        let before = self.fetches.len();
        while self.fetches.len() < ahead {
            let memory = &self.shared.send_memory;
            // What is read ahead for a slow peer must not leave the others without memory.
            let first = self.current.is_none() && self.fetches.is_empty();
            let taken = self.link.pop_piece(|transfer, piece| {
                let len = self.link.piece_len(transfer, piece).unwrap_or(0);
                match reserved.take().filter(|it| memory.suffices(it, len)) {
                    Some(reserved) => Some(reserved),
                    None if first => memory.try_take(len),
                    None => memory.try_take_spare(len),
                }
            });
            let Some((transfer, piece, memory)) = taken else {
                break;
            };
            let data = match piece {
                Piece::Block(block) => self.fetch(transfer, block),
                Piece::Packet { batch, pure } => self.encode(transfer, batch, pure),
            };
            self.fetches.push_back(Fetch {
                transfer,
                piece,
                data,
                memory,
            });
        }
        // One wake-up may stand for many pieces: pass it on to another connection.
        if self.fetches.len() > before && self.link.first_piece().is_some() {
            self.link.wake_pieces.notify_one();
        }
    }

    fn fetch(&self, transfer: u8, block: BlockId) -> oneshot::Receiver<Result<Block, String>> {
        let (answer, data) = oneshot::channel();
        if let Some(cached) = self.shared.cache.find(transfer, block) {
            let _ = answer.send(Ok(cached));
            return data;
        }
        let Some(io) = self.link.io(transfer).cloned() else {
            return data;
        };
        let shared = self.shared.clone();
        self.shared.workers.submit(move || {
            let Some(len) = io.block_len(block) else {
                let _ = answer.send(Err("the object has no such block".into()));
                return;
            };
            let mut buffer = shared.pool.take(len as usize);
            let read = io
                .read(block, &mut buffer.bytes)
                .map_err(|error| error.to_string());
            let found = buffer.bytes.len();
            let result = read.and_then(|()| match found == len as usize {
                true => Ok(buffer.share()),
                false => Err(format!("{found} bytes were read instead of {len}")),
            });
            if let Ok(data) = &result
                && shared.many_links()
            {
                shared.cache.keep(transfer, block, data.clone());
            }
            let _ = answer.send(result);
        });
        data
    }

    /// Has a packet made. It is nobody else's, so it is not kept.
    fn encode(
        &self,
        transfer: u8,
        batch: BatchId,
        pure: bool,
    ) -> oneshot::Receiver<Result<Block, String>> {
        let (answer, data) = oneshot::channel();
        let Some(packets) = self.link.io(transfer).and_then(|io| io.packets()) else {
            return data;
        };
        let Some(len) = packets.packet_len(batch) else {
            let _ = answer.send(Err("the object has no such batch".into()));
            return data;
        };
        let mut buffer = self.shared.pool.take(len as usize);
        let empty = std::mem::take(&mut buffer.bytes);
        let done = move |made: std::io::Result<Vec<u8>>| {
            let result = made.map_err(|error| error.to_string()).and_then(|bytes| {
                let found = bytes.len();
                buffer.bytes = bytes;
                match found == 0 || found == len as usize {
                    true => Ok(buffer.share()),
                    false => Err(format!("{found} bytes were made instead of {len}")),
                }
            });
            let _ = answer.send(result);
        };
        packets.encode(batch, pure, empty, Box::new(done));
        data
    }

    /// Seals fragments until there is enough for one write, or the next has to wait.
    async fn fill(&mut self) -> Result<(), String> {
        while self.out.len() < self.portion.bytes() {
            if self.current.is_none() {
                let Some(fetch) = self.fetches.front_mut() else {
                    break;
                };
                match fetch.data.try_recv() {
                    Err(oneshot::error::TryRecvError::Empty) => break,
                    Ok(result) => self.begin(result).await?,
                    Err(oneshot::error::TryRecvError::Closed) => return Err("reading ended".into()),
                }
            }
            let Some(current) = &self.current else { break };
            let left = current.data.len() - current.offset;
            let most = self.portion.bytes().min(FRAGMENT_BYTES_MAX as usize);
            let len = left.min(self.limiter.portion(most));
            let len = match self.granted {
                Some((at, _)) if at > Instant::now() => break,
                Some((_, len)) => len,
                None => match self.limiter.reserve(wire_len(len)) {
                    Some(at) => {
                        self.granted = Some((at, len));
                        break;
                    }
                    None => len,
                },
            };
            self.granted = None;
            self.seal_fragment(len)?;
        }
        Ok(())
    }

    async fn begin(&mut self, result: Result<Block, String>) -> Result<(), String> {
        let Some(fetch) = self.fetches.pop_front() else {
            return Ok(());
        };
        let Fetch {
            transfer,
            piece,
            memory,
            ..
        } = fetch;
        match result {
            // There was nothing left to make the packet of.
            Ok(data) if data.is_empty() => {
                self.report_sent(transfer, piece).await;
                Ok(())
            }
            Ok(data) => {
                self.current = Some(Sending {
                    transfer,
                    piece,
                    data,
                    offset: 0,
                    _memory: memory,
                });
                Ok(())
            }
            Err(error) => {
                let why = format!("{piece} cannot be read: {error}");
                let event = MeshEvent::ReadFailed {
                    transfer,
                    piece,
                    error,
                };
                self.shared.emit(self.link.serial, event).await;
                Err(why)
            }
        }
    }

    fn seal_fragment(&mut self, len: usize) -> Result<(), String> {
        let Some(mut current) = self.current.take() else {
            return Ok(());
        };
        let end = current.offset + len;
        let frame = Frame::Fragment {
            transfer: current.transfer,
            piece: current.piece,
            offset: current.offset as u32,
            len: len as u32,
        };
        self.seal(frame, &current.data[current.offset..end])?;
        self.shared
            .stats
            .payload_out
            .fetch_add(len as u64, Ordering::Relaxed);
        current.offset = end;
        if end == current.data.len() {
            if let Piece::Packet { .. } = current.piece {
                let packets = &self.shared.stats.packets_out;
                packets.fetch_add(1, Ordering::Relaxed);
            }
            self.complete.push((current.transfer, current.piece));
        } else {
            self.current = Some(current);
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        self.half
            .write_all(&self.out)
            .await
            .map_err(|error| error.to_string())?;
        if self.portion.wrote(self.out.len(), begun.elapsed()) {
            let socket = SockRef::from(self.half.as_ref());
            // Without it messages come later, that is all.
            let _ = socket.set_tcp_notsent_lowat(self.portion.unsent());
        }
        self.shared
            .stats
            .wire_out
            .fetch_add(self.out.len() as u64, Ordering::Relaxed);
        self.out.clear();
        self.out.shrink_to(2 * MESSAGES_BYTES);
        self.wrote = Instant::now();
        for (transfer, piece) in std::mem::take(&mut self.complete) {
            self.report_sent(transfer, piece).await;
        }
        Ok(())
    }

    async fn report_sent(&self, transfer: u8, piece: Piece) {
        let to = self.link.peer;
        let event = match piece {
            Piece::Block(block) => MeshEvent::Sent {
                transfer,
                to,
                block,
            },
            Piece::Packet { batch, .. } => MeshEvent::PacketSent {
                transfer,
                to,
                batch,
            },
        };
        self.shared.emit(self.link.serial, event).await;
    }

    /// Waits until there may be something to send.
    async fn wait(&mut self) -> Result<(), String> {
        let room = self.fetches.len() < AHEAD;
        let alive_at = self.wrote + ALIVE_EVERY;
        let granted = self.granted.map_or(alive_at, |(at, _)| at.min(alive_at));
        let hungry = self.fetches.is_empty() && self.current.is_none();
        if hungry {
            self.limiter.pause();
        }
        let memory = match self.link.first_piece() {
            Some((transfer, piece)) if hungry => {
                Some(self.link.piece_len(transfer, piece).unwrap_or(0))
            }
            _ => None,
        };
        let read = self.fetches.front_mut().filter(|_| self.current.is_none());
        tokio::select! {
            () = self.link.wake.notified(), if self.first => {}
            () = self.link.wake_pieces.notified(), if room && memory.is_none() => {}
            taken = self.shared.send_memory.take(memory.unwrap_or(0)), if memory.is_some() => {
                self.reserved = Some(taken.ok_or("this node ends")?);
            }
            result = async {
                match read {
                    Some(fetch) => (&mut fetch.data).await,
                    None => pending().await,
                }
            } => {
                let result = result.map_err(|_| "reading ended".to_owned())?;
                self.begin(result).await?;
            }
            () = sleep_until(granted) => {
                if granted == alive_at {
                    self.seal_control(Frame::Alive, &[])?;
                }
            }
        }
        Ok(())
    }
}

/// About how many bytes a frame with `len` bytes of payload takes on the wire.
const fn wire_len(len: usize) -> usize {
    HEADER_BYTES + OVERHEAD + len + len.div_ceil(PLAIN_MAX) * OVERHEAD
}
