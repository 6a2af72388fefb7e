//! Frames over TCP and TLS.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::time::{Duration, Instant};

use outpour_core::Rate;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::limiter;
use super::portion::Portion;
use super::transport::{FrameSink, FrameSource, Part, Received};
use crate::LinkError;
use crate::frame::{Frame, HEADER_BYTES};
use crate::record::{OVERHEAD, PLAIN_MAX, RecordError, Sealer};
use crate::tls::Inbound;

/// A connection that brings nothing for so long is dead: the peer gives signs of life more often.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// What was sealed for one write stays allocated up to this.
const KEPT_BYTES: usize = 512 << 10;

/// How much is read at a time during the greeting.
pub(super) const READ_BYTES: usize = 4096;

// The header of a frame is a record of its own.
const _: () = assert!(HEADER_BYTES <= PLAIN_MAX);

/// A secured connection.
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    pub(crate) sealer: Sealer,
    pub(crate) inbound: Inbound,
}

impl Conn {
    pub(crate) fn split(self) -> (StreamSource, StreamSink) {
        let (read, write) = self.stream.into_split();
        let source = StreamSource {
            half: read,
            inbound: self.inbound,
            header: [0; HEADER_BYTES],
            have: 0,
            left: 0,
            taken: 0,
        };
        let sink = StreamSink {
            half: write,
            sealer: self.sealer,
            portion: Portion::start(),
            out: Vec::new(),
            shaped: (Rate::UNLIMITED, Rate::UNLIMITED),
        };
        (source, sink)
    }
}

impl From<RecordError> for LinkError {
    fn from(error: RecordError) -> Self {
        // Bytes that change on the way are not the peer's fault.
        Self::Network(error.to_string())
    }
}

impl From<std::io::Error> for LinkError {
    fn from(error: std::io::Error) -> Self {
        Self::Network(error.to_string())
    }
}

/// The receiving half.
pub(crate) struct StreamSource {
    half: OwnedReadHalf,
    inbound: Inbound,
    header: [u8; HEADER_BYTES],
    have: usize,
    /// Payload of the current frame that did not come yet.
    left: usize,
    /// What was given out last and is done with at the next call.
    taken: usize,
}

impl FrameSource for StreamSource {
    fn next(&mut self) -> Result<Option<Part<'_>>, LinkError> {
        debug_assert!(self.have < HEADER_BYTES);
        debug_assert!(
            self.left == 0 || self.have == 0,
            "a header begins before the payload is over"
        );
        self.inbound.consume(std::mem::take(&mut self.taken));
        if self.left > 0 {
            let plain = self.inbound.plain()?;
            let len = plain.len().min(self.left);
            self.left = self.left.saturating_sub(len);
            self.taken = len;
            let payload = plain.get(..len).filter(|payload| !payload.is_empty());
            return Ok(payload.map(Part::Payload));
        }
        while self.have < HEADER_BYTES {
            let plain = self.inbound.plain()?;
            let len = fill(&mut self.header, self.have, plain);
            if len == 0 {
                return Ok(None);
            }
            self.have = self.have.saturating_add(len);
            self.inbound.consume(len);
        }
        self.have = 0;
        let frame =
            Frame::decode(&self.header).map_err(|error| LinkError::Peer(error.to_string()))?;
        self.left = frame.payload_len();
        Ok(Some(Part::Frame(frame)))
    }

    async fn receive(&mut self, most: usize) -> Result<Received, LinkError> {
        debug_assert_eq!(self.taken, 0, "what is still used would be overwritten");
        let room = self.inbound.room(most);
        let mut waited = false;
        let bytes = loop {
            match self.half.try_read(room) {
                Ok(0) => return Err(LinkError::Network("closed by the peer".into())),
                Ok(len) => break len,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            waited = true;
            match timeout(SILENCE_MAX, self.half.readable()).await {
                Ok(ready) => ready?,
                Err(_) => {
                    let why = format!("nothing heard for {} s", SILENCE_MAX.as_secs());
                    return Err(LinkError::Network(why));
                }
            }
        };
        self.inbound.received(bytes);
        Ok(Received { bytes, waited })
    }
}

impl StreamSource {
    /// Receives bytes that are no frame, before the first one.
    ///
    /// # Errors
    /// If the connection has ended.
    pub(super) async fn exact(&mut self, bytes: &mut [u8]) -> Result<(), LinkError> {
        debug_assert_eq!((self.have, self.left, self.taken), (0, 0, 0));
        let mut have = 0;
        while have < bytes.len() {
            let plain = self.inbound.plain()?;
            let len = fill(bytes, have, plain);
            self.inbound.consume(len);
            have = have.saturating_add(len);
            if len == 0 {
                self.receive(READ_BYTES).await?;
            }
        }
        Ok(())
    }
}

/// The sending half.
pub(crate) struct StreamSink {
    half: OwnedWriteHalf,
    sealer: Sealer,
    portion: Portion,
    /// Sealed and ready for the socket.
    out: Vec<u8>,
    /// For what rates the socket is shaped.
    shaped: (Rate, Rate),
}

impl StreamSink {
    /// Gathers bytes that are no frame.
    ///
    /// # Errors
    /// If a key is used up.
    pub(super) fn push_plain(&mut self, plain: &[u8]) -> Result<(), LinkError> {
        Ok(self.sealer.seal(plain, &mut self.out)?)
    }
}

impl FrameSink for StreamSink {
    fn push(&mut self, frame: Frame, payload: &[u8]) -> Result<(), LinkError> {
        debug_assert_eq!(frame.payload_len(), payload.len());
        debug_assert_eq!(
            Frame::decode(&frame.encode()),
            Ok(frame),
            "the peer would cut us off"
        );
        self.sealer.seal(&frame.encode(), &mut self.out)?;
        Ok(self.sealer.seal(payload, &mut self.out)?)
    }

    fn gathered(&self) -> usize {
        self.out.len()
    }

    fn portion(&self) -> usize {
        self.portion.bytes()
    }

    async fn flush(&mut self) -> Result<usize, LinkError> {
        debug_assert!(!self.out.is_empty());
        let begun = Instant::now();
        self.half.write_all(&self.out).await?;
        let len = self.out.len();
        if self.portion.wrote(len, begun.elapsed()) {
            let socket = SockRef::from(self.half.as_ref());
            // Without it messages come later, that is all.
            let _ = socket.set_tcp_notsent_lowat(self.portion.unsent());
        }
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES);
        Ok(len)
    }

    fn shape(&mut self, outgoing: Rate, incoming: Rate) {
        let rates = (outgoing, incoming);
        if self.shaped != rates {
            limiter::shape(SockRef::from(self.half.as_ref()), self.shaped, rates);
            self.shaped = rates;
        }
    }
}

/// Copies as much as fits to where `have` bytes are already; how much that was.
pub(super) fn fill(bytes: &mut [u8], have: usize, plain: &[u8]) -> usize {
    let room = bytes.get_mut(have..).unwrap_or_default().iter_mut();
    let copied = room.zip(plain).map(|(to, from)| *to = *from);
    copied.count()
}

/// About how many bytes a frame with `len` bytes of payload takes on the wire.
pub(crate) const fn wire_len(len: usize) -> usize {
    let records = len.div_ceil(PLAIN_MAX).saturating_mul(OVERHEAD);
    len.saturating_add(records)
        .saturating_add(HEADER_BYTES + OVERHEAD)
}
