//! From a TCP connection to a link, or to one more connection of a link.
//!
//! Inside TLS, the side that dialled says hello, the other answers with its hello and whether it
//! lets the peer in. Which of two nodes that dial each other gets its way is decided by one of
//! them alone, the one with the lower number, so that there is never a moment at which the two
//! hold on to different connections: it says `Welcome` on the connection that becomes the link.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_core::NodeId;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use super::Shared;
use super::dial::Way;
use super::link::{self, Link, Origin, Start};
use super::peers::Admitted;
use crate::config::{CONNECTIONS_MAX, Connections};
use crate::frame::{
    Frame, FrameError, HEADER_BYTES, HELLO_BYTES, Hello, PREAMBLE_BYTES, Purpose, Refusal,
};
use crate::record::{RecordError, Sealer};
use crate::tls::{self, Inbound, Secured, TlsError};

/// A path whose round trip is shorter than this is filled by one connection.
const SHORT_PATH: Duration = Duration::from_millis(5);
/// How much is read at a time during the greeting.
const READ_BYTES: usize = 4096;

/// A secured connection.
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    pub(crate) sealer: Sealer,
    pub(crate) inbound: Inbound,
}

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
    #[error("it belongs to another cast")]
    OtherCast,
    #[error("{found} answers there")]
    OtherNode { found: NodeId },
    #[error("{0}")]
    Name(#[from] crate::Error),
    #[error("{}", refusal(*.0))]
    Refused(Refusal),
}

const fn refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Busy => "there is a link already",
        Refusal::NotMember => "one side does not know the other as a member",
        Refusal::Barred => "one side has barred the other",
        Refusal::NoLink => "the connection is not wanted any more",
    }
}

/// A connection after the greeting.
pub(crate) struct Greeted {
    conn: Conn,
    certificate: [u8; 32],
    hello: Hello,
    dialled: Option<Dialled>,
}

#[derive(Clone, Copy)]
struct Dialled {
    addr: SocketAddr,
    round_trip: Duration,
}

/// A connection to the process that holds a peer's certificate; nothing was said on it yet.
pub(crate) struct Reached {
    conn: Conn,
    certificate: [u8; 32],
    dialled: Dialled,
}

/// Dials one address of a peer.
pub(crate) async fn reach(
    shared: &Shared,
    peer: NodeId,
    addr: SocketAddr,
) -> Result<Reached, Failure> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    shared.limits.shape_early(SockRef::from(&socket));
    let start = Instant::now();
    let mut stream = socket.connect(addr).await?;
    let dialled = Dialled {
        addr,
        round_trip: start.elapsed(),
    };
    shared.limits.shape(SockRef::from(&stream));
    let identity = &shared.identity;
    let name = identity.name_of(peer)?;
    let secured = tls::connect(&mut stream, identity.client().clone(), name).await?;
    let Secured {
        sealer,
        inbound,
        certificate,
    } = secured;
    Ok(Reached {
        conn: Conn {
            stream,
            sealer,
            inbound,
        },
        certificate,
        dialled,
    })
}

impl Reached {
    /// Exchanges greetings.
    pub(crate) async fn greet(
        self,
        shared: &Shared,
        peer: NodeId,
        purpose: Purpose,
    ) -> Result<Greeted, Failure> {
        let Self {
            mut conn,
            certificate,
            dialled,
        } = self;
        conn.send(&shared.hello(purpose).encode()).await?;
        let hello = conn.hello(shared).await?;
        if hello.node != peer {
            return Err(Failure::OtherNode { found: hello.node });
        }
        Ok(Greeted {
            conn,
            certificate,
            hello,
            dialled: Some(dialled),
        })
    }
}

/// Secures a connection that came in, greets the peer, and makes of it what it asks for.
pub(crate) async fn accept(shared: &Arc<Shared>, mut stream: TcpStream) -> Result<(), Failure> {
    shared.limits.shape(SockRef::from(&stream));
    let secured = tls::accept(&mut stream, shared.identity.server().clone()).await?;
    let Secured {
        sealer,
        inbound,
        certificate,
    } = secured;
    let mut conn = Conn {
        stream,
        sealer,
        inbound,
    };
    let hello = match conn.hello(shared).await {
        Ok(hello) => hello,
        Err(error) => {
            // The peer is to know which version we speak, so that it can say what is wrong.
            conn.send(&shared.hello(Purpose::Link).encode()).await?;
            conn.end().await;
            return Err(error);
        }
    };
    conn.send(&shared.hello(hello.purpose).encode()).await?;
    let known = shared.peers.check_in_time(hello.node, &certificate);
    if let Err(refusal) = known.await {
        return Err(conn.refuse(refusal).await);
    }
    let greeted = Greeted {
        conn,
        certificate,
        hello,
        dialled: None,
    };
    match hello.purpose {
        Purpose::Link => greeted.into_link(shared).await,
        Purpose::Extra(id) => greeted.into_extra(shared, id).await,
    }
}

impl Greeted {
    /// Agrees with the peer on whether this connection becomes the link, and runs it.
    pub(crate) async fn into_link(mut self, shared: &Arc<Shared>) -> Result<(), Failure> {
        let ours = shared.identity.node() < self.hello.node;
        if ours {
            if self.dialled.is_some() {
                self.conn
                    .answer(|frame| matches!(frame, Frame::Alive))
                    .await?;
            }
            let id = shared.random();
            return match self.admit(shared, id, true) {
                Ok(admitted) => {
                    self.start(shared, admitted, Some(Frame::Welcome { link: id }));
                    Ok(())
                }
                Err(refusal) => {
                    if refusal == Refusal::Busy {
                        // If the link we have is dead, this makes it known soon.
                        shared.probe(self.hello.node);
                    }
                    Err(self.conn.refuse(refusal).await)
                }
            };
        }
        if self.dialled.is_none() {
            self.conn.send(&Frame::Alive.encode()).await?;
        }
        let answer = self
            .conn
            .answer(|frame| matches!(frame, Frame::Welcome { .. }))
            .await?;
        let Frame::Welcome { link: id } = answer else {
            return Err(Failure::Closed);
        };
        let admitted = self.admit(shared, id, false).map_err(Failure::Refused)?;
        self.start(shared, admitted, None);
        Ok(())
    }

    fn admit(&self, shared: &Shared, id: u64, ours: bool) -> Result<Admitted, Refusal> {
        let Hello {
            node: peer,
            incarnation,
            ..
        } = self.hello;
        let origin = Origin {
            peer,
            id,
            incarnation,
        };
        shared
            .peers
            .admit(origin, &self.certificate, ours, self.dialled.is_some())
    }

    fn start(self, shared: &Arc<Shared>, admitted: Admitted, welcome: Option<Frame>) {
        let Admitted {
            link,
            extras,
            previous,
        } = admitted;
        let more = self.dialled.map(|dialled| {
            let all = match shared.connections {
                Connections::Auto if dialled.round_trip < SHORT_PATH => 1,
                Connections::Auto => CONNECTIONS_MAX,
                Connections::Fixed(count) => count.clamp(1, CONNECTIONS_MAX),
            };
            let Dialled { addr, round_trip } = dialled;
            (Way { addr, round_trip }, all - 1)
        });
        shared.begin_link();
        let start = Start {
            link,
            conn: self.conn,
            extras,
            previous,
            welcome,
            more,
        };
        shared.spawn_to_end(link::run(shared.clone(), start));
    }

    async fn into_extra(mut self, shared: &Shared, id: u64) -> Result<(), Failure> {
        let link = shared
            .peers
            .link_by_id(self.hello.node, &self.certificate, id);
        match link {
            Ok(link) => {
                self.conn
                    .send(&Frame::Welcome { link: id }.encode())
                    .await?;
                link.attach(self.conn);
                Ok(())
            }
            Err(refusal) => Err(self.conn.refuse(refusal).await),
        }
    }

    /// Adds a connection that we dialled for it to a link.
    pub(crate) async fn attach(mut self, shared: &Shared, link: &Link) -> Result<(), Failure> {
        // As with the first connection, it is not enough that the name and the authority are right.
        shared
            .peers
            .link_by_id(link.peer, &self.certificate, link.id)
            .map_err(Failure::Refused)?;
        self.conn
            .answer(|frame| *frame == Frame::Welcome { link: link.id })
            .await?;
        link.attach(self.conn);
        Ok(())
    }
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
            let len = plain.len().min(bytes.len() - have);
            bytes[have..have + len].copy_from_slice(&plain[..len]);
            self.inbound.consume(len);
            have += len;
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

    async fn hello(&mut self, shared: &Shared) -> Result<Hello, Failure> {
        let mut bytes = [0; HELLO_BYTES];
        let mut preamble = [0; PREAMBLE_BYTES];
        self.receive(&mut preamble).await?;
        Hello::check_preamble(&preamble)?;
        bytes[..PREAMBLE_BYTES].copy_from_slice(&preamble);
        self.receive(&mut bytes[PREAMBLE_BYTES..]).await?;
        let hello = Hello::decode(&bytes)?;
        if hello.cast != shared.identity.cast() {
            return Err(Failure::OtherCast);
        }
        Ok(hello)
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
