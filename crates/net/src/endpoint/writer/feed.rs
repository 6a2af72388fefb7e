//! What one connection sends of one link: the pieces that are read or made ahead, and the one that is
//! being sent.

use std::collections::VecDeque;
use std::sync::Arc;

use outpour_core::{BatchId, BlockId, Priority};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::LinkError;
use crate::endpoint::Core;
use crate::endpoint::buffers::Block;
use crate::endpoint::limiter::Gate;
use crate::event::SessionEvent;
use crate::frame::Piece;
use crate::session::{Asked, Held, Link, Waited};

/// Blocks that are read, and packets that are made, ahead of the one that is being sent.
const AHEAD: usize = 2;

/// One link on one connection. Feeds are served by start-time fair queueing: the one with the
/// lowest start tag sends the next fragment, and tags grow with bytes over weight.
pub(super) struct Feed {
    pub(super) link: Arc<Link>,
    pub(super) gate: Gate,
    fetches: VecDeque<Fetch>,
    pub(super) current: Option<Sending>,
    /// Memory that was asked for.
    asked: Option<Asked>,
    /// When the last fragment is served, as a tag.
    finish: u64,
}

/// A block on its way from the disk, or a packet that is being made.
struct Fetch {
    transfer: u8,
    piece: Piece,
    data: oneshot::Receiver<Result<Block, String>>,
    memory: Held,
}

/// The block or packet that is being sent.
pub(super) struct Sending {
    pub(super) transfer: u8,
    pub(super) piece: Piece,
    pub(super) data: Block,
    pub(super) offset: usize,
    pub(super) memory: Held,
}

impl Sending {
    pub(super) fn left(&self) -> usize {
        debug_assert!(self.offset <= self.data.len());
        self.data.len() - self.offset
    }
}

impl Feed {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            gate: Gate::new(),
            fetches: VecDeque::new(),
            current: None,
            asked: None,
            finish: 0,
        }
    }

    // ---- whose turn it is

    /// The start tag of its next fragment, where `tag` is that of the last one served.
    pub(super) fn start(&self, tag: u64) -> u64 {
        self.finish.max(tag)
    }

    /// Counts a fragment; returns its start tag.
    pub(super) fn serve(&mut self, tag: u64, bytes: usize) -> u64 {
        debug_assert!(bytes > 0);
        let start = self.start(tag);
        let unit = u64::from(Priority::WEIGHT_MAX / self.link.session.weight().max(1));
        debug_assert!(unit > 0, "it would never have had its share");
        self.finish = start + bytes as u64 * unit;
        start
    }

    /// Whether there is something to send now.
    pub(super) fn is_ready(&self) -> bool {
        self.current.is_some() && self.link.is_open()
    }

    /// Nothing can be sent for now: unless something is to be, no time is made up for.
    pub(super) fn rest(&mut self) {
        if self.current.is_none() && self.fetches.is_empty() {
            self.gate.rest();
        }
    }

    // ---- what is sent

    /// Takes blocks and packets off the queue and has them read or made, a few ahead of the one
    /// being sent; `wake` is told when they are.
    pub(super) fn take_pieces(&mut self, core: &Arc<Core>, wake: &Arc<Notify>) {
        if self.link.is_held_off() || !self.link.is_open() {
            return;
        }
        if self.link.peering.penalty.until(Instant::now()).is_some() {
            return;
        }
        let ahead = AHEAD + usize::from(self.current.is_none());
        while self.fetches.len() < ahead {
            let Some((transfer, piece, memory)) = self.take_piece(wake) else {
                return;
            };
            let data = match piece {
                Piece::Block(block) => self.fetch(core, transfer, block, wake),
                Piece::Packet { batch, pure } => self.encode(core, transfer, batch, pure, wake),
            };
            self.fetches.push_back(Fetch {
                transfer,
                piece,
                data,
                memory,
            });
            debug_assert!(self.fetches.len() <= AHEAD + 1);
        }
    }

    /// Gives up what is held for a link that has ended.
    pub(super) fn let_go(&mut self) {
        if self.link.is_closing() {
            self.current = None;
            self.fetches.clear();
            self.asked = None;
        }
    }

    /// Takes no further pieces, and gives up the memory asked for; those that were taken are sent.
    pub(super) fn stop(&mut self) {
        self.asked = None;
    }

    /// Takes a piece off the queue if there is memory for it; if this feed has nothing else to send,
    /// asks for it.
    fn take_piece(&mut self, wake: &Arc<Notify>) -> Option<(u8, Piece, Held)> {
        let link = &self.link;
        let memory = &link.session.outgoing_memory;
        let hungry = self.current.is_none() && self.fetches.is_empty();
        // What was asked for is kept until it is used: what is given back goes to the next that
        // waits, and two nodes that do that to each other never get to use it.
        let mut given = None;
        match self.asked.take().map(Asked::given) {
            Some(Ok(held)) => given = Some(held),
            Some(Err(asked)) if hungry && link.first_piece().is_some() => {
                self.asked = Some(asked);
                return None;
            }
            Some(Err(_)) | None => {}
        }
        let taken = link.pop_piece(|transfer, piece| {
            let len = link.piece_len(transfer, piece).unwrap_or(0);
            let enough = given.take().filter(|given| given.suffices(len));
            // What is read ahead for a slow peer must not leave the others without memory.
            enough.or_else(|| memory.try_take(link, len, !hungry))
        });
        if taken.is_none()
            && hungry
            && let Some((transfer, piece)) = link.first_piece()
        {
            let len = link.piece_len(transfer, piece).unwrap_or(0);
            let place = memory.place_or_wake(link, len);
            self.asked = place.map(|place| Asked::new(place, wake.clone()));
        }
        taken
    }

    fn fetch(
        &self,
        core: &Arc<Core>,
        transfer: u8,
        block: BlockId,
        wake: &Arc<Notify>,
    ) -> oneshot::Receiver<Result<Block, String>> {
        let (answer, data) = oneshot::channel();
        let session = self.link.session.clone();
        if let Some(cached) = core.cache.find(session.serial, transfer, block) {
            let _ = answer.send(Ok(cached));
            return data;
        }
        let Some(io) = self.link.io(transfer).cloned() else {
            return data;
        };
        let (core, wake) = (core.clone(), wake.clone());
        self.link.session.crew.submit(move || {
            let read = io.block_len(block).map(|len| {
                let mut buffer = core.pool.take(len as usize);
                let read = io.read(block, &mut buffer.bytes);
                let found = buffer.bytes.len();
                match read {
                    Err(error) => Err(error.to_string()),
                    Ok(()) if found == len as usize => Ok(buffer.share()),
                    Ok(()) => Err(format!("{found} bytes were read instead of {len}")),
                }
            });
            let result = read.unwrap_or_else(|| Err("the object has no such block".into()));
            if let Ok(data) = &result
                && session.many_links()
            {
                core.cache
                    .keep(session.serial, transfer, block, data.clone());
            }
            let _ = answer.send(result);
            wake.notify_one();
        });
        data
    }

    /// Has a packet made. No other peer gets it, so it is not kept.
    fn encode(
        &self,
        core: &Arc<Core>,
        transfer: u8,
        batch: BatchId,
        pure: bool,
        wake: &Arc<Notify>,
    ) -> oneshot::Receiver<Result<Block, String>> {
        let (answer, data) = oneshot::channel();
        let Some(packets) = self.link.io(transfer).and_then(|io| io.packets()) else {
            return data;
        };
        let Some(len) = packets.packet_len(batch) else {
            let _ = answer.send(Err("the object has no such batch".into()));
            return data;
        };
        let mut buffer = core.pool.take(len as usize);
        let empty = std::mem::take(&mut buffer.bytes);
        let wake = wake.clone();
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
            wake.notify_one();
        };
        packets.encode(batch, pure, empty, Box::new(done));
        data
    }

    /// Begins with the next piece if it is here and none is being sent.
    pub(super) async fn begin(&mut self, waited: &Arc<Waited>) {
        while self.current.is_none() && !self.link.is_held_off() {
            let Some(fetch) = self.fetches.front_mut() else {
                return;
            };
            let result = match fetch.data.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return,
                Ok(result) => result,
                Err(oneshot::error::TryRecvError::Closed) => {
                    self.link.close(LinkError::Local("reading ended".into()));
                    return;
                }
            };
            let Some(fetch) = self.fetches.pop_front() else {
                return;
            };
            self.take_result(fetch, result, waited).await;
        }
    }

    async fn take_result(
        &mut self,
        fetch: Fetch,
        result: Result<Block, String>,
        waited: &Arc<Waited>,
    ) {
        let Fetch {
            transfer,
            piece,
            mut memory,
            ..
        } = fetch;
        debug_assert!(self.current.is_none(), "another piece would be lost");
        match result {
            // There was nothing left to make the packet of.
            Ok(data) if data.is_empty() => report_sent(&self.link, transfer, piece).await,
            Ok(data) => {
                memory.begin(waited);
                self.current = Some(Sending {
                    transfer,
                    piece,
                    data,
                    offset: 0,
                    memory,
                });
            }
            Err(error) => {
                let why = format!("{piece} cannot be read: {error}");
                let event = SessionEvent::ReadFailed {
                    transfer,
                    piece,
                    error,
                };
                report(&self.link, event).await;
                self.link.close(LinkError::Local(why));
                self.fetches.clear();
            }
        }
    }
}

/// Says that the last byte of a block or packet has left.
pub(super) async fn report_sent(link: &Arc<Link>, transfer: u8, piece: Piece) {
    let to = link.peer;
    let event = match piece {
        Piece::Block(block) => SessionEvent::Sent {
            transfer,
            to,
            block,
        },
        Piece::Packet { batch, .. } => SessionEvent::PacketSent {
            transfer,
            to,
            batch,
        },
    };
    report(link, event).await;
}

async fn report(link: &Arc<Link>, event: SessionEvent) {
    tokio::select! {
        room = link.session.room() => link.session.report(link, room, event),
        _ = link.closed() => {}
    }
}
