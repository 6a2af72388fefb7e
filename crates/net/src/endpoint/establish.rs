//! From a TCP connection to a trunk, or to one more connection of a trunk.
//!
//! Inside TLS, in which both sides prove that they hold their keys, the side that dialled says
//! hello, the other answers with its hello and whether it lets the peer in. Which of two endpoints
//! that dial each other gets its way is decided by one of them alone, the one with the lower digest:
//! it says `Welcome` on the connection that becomes the trunk. An endpoint that calls itself is
//! answered by the end that was called.
//!
//! The side that dialled knows whom it reached, and does not wait for answers: what it has to say on the
//! trunk follows its hello. The other side reads it once it has decided to let the peer in, and leaves it
//! unread otherwise; then, or where the peer's connection becomes the trunk, it was said in vain and is
//! said again.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use outpour_core::Rate;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::dial::Way;
use super::stream::{Conn, READ_BYTES, StreamSink, StreamSource, fill};
use super::transport::{FrameSink, FrameSource, Part};
use super::trunk::{self, Trunk};
use super::{Core, HANDSHAKE_MAX, TrunkKey, limiter};
use crate::LinkError;
use crate::frame::{
    Frame, FrameError, HEADER_BYTES, HELLO_BYTES, Hello, PREAMBLE_BYTES, Purpose, Refusal,
};
use crate::identity::KeyDigest;
use crate::record::RecordError;
use crate::session::Standing;
use crate::tls::{self, Secured, TlsError};

/// Why a connection came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("closed during the greeting")]
    Closed,
    #[error("{0}")]
    Key(#[from] crate::Error),
    #[error("{0}")]
    Refused(Refusal),
}

/// A connection after the greeting.
pub(crate) struct Greeted {
    conn: Conn,
    key: TrunkKey,
    dialled: Option<Way>,
}

/// A connection to the process that holds a peer's key; nothing was said on it yet.
pub(crate) struct Reached {
    conn: Conn,
    key: KeyDigest,
    way: Way,
}

/// Dials one address of the endpoint that holds a key; incoming data moves at this rate at most.
pub(crate) async fn reach(
    core: &Core,
    key: KeyDigest,
    addr: SocketAddr,
    incoming: Rate,
) -> Result<Reached, Failure> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    limiter::shape_early(SockRef::from(&socket), incoming);
    let start = Instant::now();
    let mut stream = socket.connect(addr).await?;
    let way = Way {
        addr,
        round_trip: start.elapsed(),
    };
    limiter::prepare(SockRef::from(&stream));
    let name = ServerName::IpAddress(addr.ip().into());
    let secured = tls::connect(&mut stream, core.key.dialling(key)?, name).await?;
    debug_assert_eq!(secured.key, key, "TLS lets in no other key");
    Ok(Reached {
        conn: conn(stream, secured).0,
        key,
        way,
    })
}

fn conn(stream: TcpStream, secured: Secured) -> (Conn, KeyDigest) {
    let Secured {
        sealer,
        inbound,
        key,
    } = secured;
    let conn = Conn {
        stream,
        sealer,
        inbound,
    };
    (conn, key)
}

impl Reached {
    /// Makes a trunk of it, over which the greeting is exchanged first. The peer may not take it: then it
    /// ends.
    ///
    /// # Errors
    /// Why there is none: a refusal of ours.
    pub(crate) async fn into_trunk(self, core: &Arc<Core>) -> Result<Arc<Trunk>, Refusal> {
        let Self { conn, key, way } = self;
        let mut greeted = Greeted {
            conn,
            key: TrunkKey {
                digest: key,
                called_by_self: false,
            },
            dialled: Some(way),
        };
        let decides = greeted.decides(core);
        match greeted.admit(core, decides.then(|| core.random())) {
            Ok((trunk, extras)) => {
                Ok(greeted.start(core, trunk, extras, Opening::Dialled { decides }))
            }
            Err(refusal) => {
                greeted.conn.end().await;
                Err(refusal)
            }
        }
    }

    /// Exchanges greetings.
    pub(crate) async fn greet(self, purpose: Purpose) -> Result<Greeted, Failure> {
        let Self {
            mut conn,
            key: digest,
            way,
        } = self;
        conn.send(&Hello { purpose }.encode()).await?;
        conn.hello().await?;
        Ok(Greeted {
            conn,
            key: TrunkKey {
                digest,
                called_by_self: false,
            },
            dialled: Some(way),
        })
    }
}

/// Secures a connection that came in, greets the peer, and makes of it what it asks for.
pub(crate) async fn accept(core: &Arc<Core>, mut stream: TcpStream) -> Result<(), Failure> {
    limiter::prepare(SockRef::from(&stream));
    let secured = tls::accept(&mut stream, core.answering.clone()).await?;
    let (mut conn, digest) = conn(stream, secured);
    let hello = match conn.hello().await {
        Ok(hello) => hello,
        Err(error) => {
            // The peer is to know which version we speak, so that it can say what is wrong.
            let purpose = Purpose::Trunk;
            conn.send(&Hello { purpose }.encode()).await?;
            conn.end().await;
            return Err(error);
        }
    };
    conn.send(&hello.encode()).await?;
    let refusal = match core.standing_in_time(digest).await {
        Standing::Stranger => Some(Refusal::NotMember),
        Standing::Barred => Some(Refusal::Barred),
        Standing::Member | Standing::Wanted => None,
    };
    if let Some(refusal) = refusal {
        return Err(conn.refuse(refusal).await);
    }
    let key = TrunkKey {
        digest,
        called_by_self: digest == core.key.digest(),
    };
    let greeted = Greeted {
        conn,
        key,
        dialled: None,
    };
    match hello.purpose {
        Purpose::Trunk => greeted.into_trunk(core).await,
        Purpose::Extra(id) => greeted.into_extra(core, id).await,
    }
}

impl Greeted {
    /// Whether this end decides which connection becomes the trunk.
    fn decides(&self, core: &Core) -> bool {
        self.key.called_by_self || core.key.digest() < self.key.digest
    }

    /// Agrees with the peer that dialled on whether this connection becomes the trunk, and runs it.
    async fn into_trunk(mut self, core: &Arc<Core>) -> Result<(), Failure> {
        debug_assert!(self.dialled.is_none());
        if self.decides(core) {
            return match self.admit(core, Some(core.random())) {
                Ok((trunk, extras)) => {
                    self.start(core, trunk, extras, Opening::Welcome);
                    Ok(())
                }
                Err(refusal) => Err(self.conn.refuse(refusal).await),
            };
        }
        self.conn.send(&Frame::Alive.encode()).await?;
        let answer = self
            .conn
            .answer(|frame| matches!(frame, Frame::Welcome { .. }))
            .await?;
        let Frame::Welcome { trunk: id } = answer else {
            return Err(Failure::Closed);
        };
        let (trunk, extras) = self.admit(core, Some(id)).map_err(Failure::Refused)?;
        self.start(core, trunk, extras, Opening::Done);
        Ok(())
    }

    /// Makes a trunk of it, with the id it is to have if that is known. One that is still alive stays
    /// instead, unless the peer decides and has taken this one.
    fn admit(
        &self,
        core: &Core,
        id: Option<u64>,
    ) -> Result<(Arc<Trunk>, mpsc::Receiver<Conn>), Refusal> {
        let taken = !self.decides(core) && self.dialled.is_none();
        debug_assert!(id.is_some() || !self.decides(core), "who decides names it");
        debug_assert!(id.is_some() || !taken, "it was taken by its name");
        let called_by_self = self.key.called_by_self;
        debug_assert!(!called_by_self || self.key.digest == core.key.digest());
        debug_assert!(!called_by_self || self.dialled.is_none());
        debug_assert!(!called_by_self || !taken, "the end that is called decides");
        let standing = core.standing(self.key.digest);
        if self.dialled.is_some() && standing != Standing::Wanted {
            return Err(Refusal::NoTrunk);
        }
        let mut trunks = core.trunks();
        let slot = trunks.entry(self.key).or_default();
        if let Some(old) = &slot.trunk
            && !taken
            && !old.is_closing()
        {
            // If it is dead, this makes it known soon.
            old.probe();
            return Err(Refusal::Busy);
        }
        let (trunk, extras) = Trunk::new(self.key, id, core.next_serial(), self.dialled);
        if let Some(old) = slot.trunk.replace(trunk.clone()) {
            debug_assert_eq!(old.key, trunk.key);
            debug_assert_ne!(old.serial, trunk.serial);
            old.close(LinkError::Network("replaced by a new trunk".into()));
        }
        Ok((trunk, extras))
    }

    fn start(
        self,
        core: &Arc<Core>,
        trunk: Arc<Trunk>,
        extras: mpsc::Receiver<Conn>,
        opening: Opening,
    ) -> Arc<Trunk> {
        let running = trunk::run(core.clone(), trunk.clone(), self.conn, extras, opening);
        core.spawn_to_end(running);
        trunk
    }

    async fn into_extra(mut self, core: &Core, id: u64) -> Result<(), Failure> {
        debug_assert!(self.dialled.is_none());
        let trunk = core
            .live_trunk(self.key)
            .filter(|trunk| trunk.id() == Some(id));
        let Some(trunk) = trunk else {
            return Err(self.conn.refuse(Refusal::NoTrunk).await);
        };
        self.conn
            .send(&Frame::Welcome { trunk: id }.encode())
            .await?;
        trunk.attach(self.conn);
        Ok(())
    }

    /// Adds a connection that we dialled for it to a trunk.
    pub(crate) async fn attach(mut self, trunk: &Trunk) -> Result<(), Failure> {
        debug_assert!(self.dialled.is_some());
        debug_assert_eq!(self.key, trunk.key, "a connection to another host");
        let id = trunk.id();
        self.conn
            .answer(|frame| matches!(frame, Frame::Welcome { trunk } if Some(*trunk) == id))
            .await?;
        trunk.attach(self.conn);
        Ok(())
    }
}

/// What is left of the greeting when a connection begins to serve its trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Nothing.
    Done,
    /// It came in, and this end takes it.
    Welcome,
    /// It was dialled, and nothing was said.
    Dialled {
        /// Whether this end decides which connection becomes the trunk.
        decides: bool,
    },
}

impl Opening {
    /// Gathers what this end has to say.
    pub(crate) fn say(self, trunk: &Trunk, sink: &mut StreamSink) -> Result<(), LinkError> {
        if let Self::Dialled { .. } = self {
            let purpose = Purpose::Trunk;
            sink.push_plain(&Hello { purpose }.encode())?;
        }
        match (self, trunk.id()) {
            (Self::Welcome | Self::Dialled { decides: true }, Some(trunk)) => {
                sink.push(Frame::Welcome { trunk }, &[])
            }
            _ => Ok(()),
        }
    }
}

/// Waits for what the peer has to say before all else on a connection that was dialled for a trunk.
///
/// # Errors
/// Why the peer does not take it for the trunk.
pub(crate) async fn answered(
    trunk: &Trunk,
    source: &mut StreamSource,
    opening: Opening,
) -> Result<(), LinkError> {
    let Opening::Dialled { decides } = opening else {
        return Ok(());
    };
    let answer = async {
        let mut hello = [0; HELLO_BYTES];
        source.exact(&mut hello[..PREAMBLE_BYTES]).await?;
        // One of another version may say nothing more that we understand.
        let preamble = hello.first_chunk().map(Hello::check_preamble);
        preamble.transpose().map_err(nonsense)?;
        source.exact(&mut hello[PREAMBLE_BYTES..]).await?;
        Hello::decode(&hello).map_err(nonsense)?;
        loop {
            match source.next()? {
                Some(Part::Frame(frame)) => return Ok(frame),
                Some(Part::Payload(_)) => debug_assert!(false, "payload before a frame"),
                None => {
                    source.receive(READ_BYTES).await?;
                }
            }
        }
    };
    let answer = match timeout(HANDSHAKE_MAX, answer).await {
        Ok(Err(LinkError::Peer(why))) => Err(LinkError::Network(why)),
        Ok(answer) => answer,
        Err(_) => {
            let why = "connected, but the greeting was not answered in time";
            Err(LinkError::Network(why.into()))
        }
    };
    match answer? {
        Frame::Alive if decides => trunk.take(None),
        Frame::Welcome { trunk: id } if !decides => trunk.take(Some(id)),
        Frame::Refuse(refusal) => return Err(LinkError::Refused(refusal)),
        _ => return Err(nonsense(FrameError::Malformed("no answer to the greeting"))),
    }
    Ok(())
}

/// What is said in a greeting and makes no sense bars nobody: it may be of another version.
fn nonsense(error: FrameError) -> LinkError {
    LinkError::Network(error.to_string())
}

impl Conn {
    async fn send(&mut self, plain: &[u8]) -> Result<(), Failure> {
        let mut out = Vec::new();
        self.sealer.seal(plain, &mut out)?;
        self.stream.write_all(&out).await?;
        Ok(())
    }

    async fn refuse(&mut self, refusal: Refusal) -> Failure {
        let sent = self.send(&Frame::Refuse(refusal).encode()).await;
        self.end().await;
        sent.err().unwrap_or(Failure::Refused(refusal))
    }

    /// Says that nothing more will come. Best effort: the connection is closed in any case.
    async fn end(&mut self) {
        let mut out = Vec::new();
        if self.sealer.close(&mut out).is_ok() && self.stream.write_all(&out).await.is_ok() {
            let _ = self.stream.shutdown().await;
        }
    }

    async fn receive(&mut self, bytes: &mut [u8]) -> Result<(), Failure> {
        let mut have = 0;
        while have < bytes.len() {
            let plain = self.inbound.plain()?;
            let len = fill(bytes, have, plain);
            self.inbound.consume(len);
            have = have.saturating_add(len);
            if len > 0 {
                continue;
            }
            self.stream.readable().await?;
            match self.stream.try_read(self.inbound.room(READ_BYTES)) {
                Ok(0) => return Err(Failure::Closed),
                Ok(len) => self.inbound.received(len),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn hello(&mut self) -> Result<Hello, Failure> {
        let mut bytes = [0; HELLO_BYTES];
        let mut preamble = [0; PREAMBLE_BYTES];
        self.receive(&mut preamble).await?;
        Hello::check_preamble(&preamble)?;
        bytes[..PREAMBLE_BYTES].copy_from_slice(&preamble);
        self.receive(&mut bytes[PREAMBLE_BYTES..]).await?;
        Ok(Hello::decode(&bytes)?)
    }

    /// The peer's answer to a greeting, if it is what `wanted` says.
    async fn answer(&mut self, wanted: impl FnOnce(&Frame) -> bool) -> Result<Frame, Failure> {
        let mut bytes = [0; HEADER_BYTES];
        self.receive(&mut bytes).await?;
        match Frame::decode(&bytes)? {
            Frame::Refuse(refusal) => Err(Failure::Refused(refusal)),
            frame if wanted(&frame) => Ok(frame),
            _ => Err(FrameError::Malformed("no answer to the greeting").into()),
        }
    }
}
