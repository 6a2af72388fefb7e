//! What carries frames between two endpoints, one direction each. TCP with TLS is one such thing
//! ([`super::stream`]); what sessions do with frames knows nothing of it.

use std::future::Future;

use outpour_core::Rate;

use crate::LinkError;
use crate::frame::Frame;

/// What comes from a peer: headers, each followed by its payload in one or more parts.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    Frame(Frame),
    /// The next bytes of the payload of the frame before, not empty.
    Payload(&'a [u8]),
}

/// What was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) bytes: usize,
    /// Whether it had to be waited for.
    pub(crate) waited: bool,
}

/// Frames from a peer, reliable and in order.
pub(crate) trait FrameSource: Send + 'static {
    /// What comes next of that which is here; `None` if more has to be received first.
    ///
    /// # Errors
    /// If it cannot be what a peer sends.
    fn next(&mut self) -> Result<Option<Part<'_>>, LinkError>;

    /// Waits for more, and takes at most about `most` bytes. Cancel-safe.
    ///
    /// # Errors
    /// If the connection has ended.
    fn receive(&mut self, most: usize) -> impl Future<Output = Result<Received, LinkError>> + Send;
}

/// Frames to a peer, reliable and in order.
pub(crate) trait FrameSink: Send + 'static {
    /// Gathers a frame.
    ///
    /// # Errors
    /// If the connection can carry no more.
    fn push(&mut self, frame: Frame, payload: &[u8]) -> Result<(), LinkError>;

    /// Bytes that are gathered and not sent yet.
    fn gathered(&self) -> usize;

    /// How many bytes to gather before they are sent: what the path takes in some milliseconds.
    fn portion(&self) -> usize;

    /// Sends what is gathered; says how many bytes that was.
    ///
    /// # Errors
    /// If the connection has ended.
    fn flush(&mut self) -> impl Future<Output = Result<usize, LinkError>> + Send;

    /// Shapes the connection for what may go out and come in over it.
    fn shape(&mut self, outgoing: Rate, incoming: Rate);
}
