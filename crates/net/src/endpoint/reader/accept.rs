//! What becomes of a block or packet that is all here.

use outpour_core::{BatchId, BlockId};

use std::sync::atomic::Ordering;

use crate::endpoint::Core;
use crate::endpoint::buffers::Buffer;
use crate::event::{Rooms, SessionEvent};
use crate::frame::Piece;
use crate::session::{InFlight, Link};
use crate::{Accept, BlockIo, Packet, PacketIo, PacketNews};

/// A block or packet that is all here but not verified.
pub(super) struct Complete {
    pub(super) transfer: u8,
    pub(super) buffer: Buffer,
    pub(super) rooms: Rooms,
}

impl Complete {
    /// Has it verified and stored, and reports what became of it.
    pub(super) fn accept(self, piece: Piece, core: &Core, flight: &InFlight, io: &dyn BlockIo) {
        match (piece, io.packets()) {
            (Piece::Block(block), packets) => {
                self.accept_block(block, core, flight.link(), io, packets);
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
                let tell = &mut Self::tell(transfer, &mut rooms, link);
                packets.take(link.peer, packet, tell);
            }
            (Piece::Packet { .. }, None) => {
                debug_assert!(false, "it has no length, so it was not let in");
            }
        }
    }

    fn accept_block(
        mut self,
        block: BlockId,
        core: &Core,
        link: &Link,
        io: &dyn BlockIo,
        packets: Option<&dyn PacketIo>,
    ) {
        let session = &link.session;
        let transfer = self.transfer;
        let from = link.peer;
        let len = self.buffer.bytes.len() as u64;
        let arrived = |fresh| SessionEvent::Arrived {
            transfer,
            from,
            block,
            fresh,
        };
        match io.accept(block, &self.buffer.bytes) {
            Accept::Stored => {
                let data = self.buffer.share();
                if session.many_links() {
                    core.cache
                        .keep(session.serial, transfer, block, data.clone());
                }
                session.report(link, self.rooms.split(), arrived(true));
                if let Some(packets) = packets {
                    let tell = &mut Self::tell(transfer, &mut self.rooms, link);
                    packets.note_block(from, block, &data, tell);
                }
            }
            Accept::Duplicate => {
                session.stats.duplicate.fetch_add(len, Ordering::Relaxed);
                session.report(link, self.rooms.split(), arrived(false));
            }
            Accept::Wrong => {
                session.reject(link, transfer, Piece::Block(block), self.rooms.split());
            }
            Accept::Failed(error) => {
                let event = SessionEvent::StoreFailed {
                    transfer,
                    block,
                    error,
                };
                session.report(link, self.rooms.split(), event);
            }
        }
    }

    /// Reports news of batches that came through a link.
    fn tell(transfer: u8, rooms: &mut Rooms, link: &Link) -> impl FnMut(BatchId, PacketNews) {
        move |batch, news| {
            let room = rooms.split();
            if news == PacketNews::Wrong {
                let piece = Piece::Packet { batch, pure: false };
                link.session.reject(link, transfer, piece, room);
                return;
            }
            let event = SessionEvent::Coded {
                transfer,
                from: link.peer,
                batch,
                news,
            };
            link.session.report(link, room, event);
        }
    }
}
