//! Mutual TLS 1.3 on one TCP connection, from the first byte to traffic keys.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, ConnectionTrafficSecrets, ExtractedSecrets, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::identity::certificate_digest;
use crate::record::{Opener, RECORD_MAX, RecordError, Rekey, Sealer, SharedRekey};

/// How much a peer may send before it is authenticated.
const HANDSHAKE_MAX: usize = 2 * RECORD_MAX;

/// Why a connection could not be secured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("TLS: the peer sent too much before it proved who it is")]
    TooMuch,
    #[error("closed during the TLS handshake")]
    Closed,
    #[error("TLS: the peer has no certificate")]
    Nobody,
}

/// A connection whose peer has proved who it is.
pub(crate) struct Secured {
    pub(crate) sealer: Sealer,
    pub(crate) inbound: Inbound,
    /// Digest of the peer's certificate.
    pub(crate) certificate: [u8; 32],
}

/// Secures a connection we dialled.
pub(crate) async fn connect(
    stream: &mut TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Secured, TlsError> {
    shake(stream, UnbufferedClientConnection::new(config, name)?).await
}

/// Secures a connection we accepted.
pub(crate) async fn accept(
    stream: &mut TcpStream,
    config: Arc<ServerConfig>,
) -> Result<Secured, TlsError> {
    shake(stream, UnbufferedServerConnection::new(config)?).await
}

/// What client and server connections of rustls have in common.
trait Side: Sized + Send {
    type Data: Send;
    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn certificate(&self) -> Option<[u8; 32]>;
    fn secrets(self) -> Result<(ExtractedSecrets, SharedRekey), rustls::Error>;
}

macro_rules! side {
    ($connection:ty, $data:ty) => {
        impl Side for $connection {
            type Data = $data;
            fn process<'c, 'i>(
                &'c mut self,
                wire: &'i mut [u8],
            ) -> UnbufferedStatus<'c, 'i, $data> {
                self.process_tls_records(wire)
            }
            fn certificate(&self) -> Option<[u8; 32]> {
                self.peer_certificates()?
                    .first()
                    .map(|der| certificate_digest(der))
            }
            fn secrets(self) -> Result<(ExtractedSecrets, SharedRekey), rustls::Error> {
                let (secrets, kernel) = self.dangerous_into_kernel_connection()?;
                Ok((secrets, Arc::new(Mutex::new(kernel))))
            }
        }
        impl Rekey for KernelConnection<$data> {
            fn next_tx(&mut self) -> Result<ConnectionTrafficSecrets, rustls::Error> {
                self.update_tx_secret().map(|(_, secrets)| secrets)
            }
            fn next_rx(&mut self) -> Result<ConnectionTrafficSecrets, rustls::Error> {
                self.update_rx_secret().map(|(_, secrets)| secrets)
            }
        }
    };
}

side!(UnbufferedClientConnection, ClientConnectionData);
side!(UnbufferedServerConnection, ServerConnectionData);

/// What rustls wants next.
enum Step {
    Again,
    Send,
    Receive,
    Ready,
    Closed,
}

async fn shake<S: Side>(stream: &mut TcpStream, mut side: S) -> Result<Secured, TlsError> {
    let mut wire = Vec::with_capacity(4096);
    let mut out = Vec::new();
    let mut early = Vec::new();
    loop {
        let step = match step(&mut side, &mut wire, &mut out, &mut early) {
            Ok(step) => step,
            Err(error) => {
                // Tell the peer why, as far as it still listens.
                while matches!(
                    step(&mut side, &mut wire, &mut out, &mut early),
                    Ok(Step::Again)
                ) {}
                let _ = stream.write_all(&out).await;
                return Err(error);
            }
        };
        match step {
            Step::Again => {}
            Step::Send => {
                stream.write_all(&out).await?;
                out.clear();
            }
            Step::Receive => {
                if wire.len() >= HANDSHAKE_MAX {
                    return Err(TlsError::TooMuch);
                }
                if stream.read_buf(&mut wire).await? == 0 {
                    return Err(TlsError::Closed);
                }
            }
            Step::Ready => break,
            Step::Closed => return Err(TlsError::Closed),
        }
    }
    let certificate = side.certificate().ok_or(TlsError::Nobody)?;
    let (secrets, rekey) = side.secrets()?;
    let (sequence, tx) = secrets.tx;
    let sealer = Sealer::new(sequence, &tx, rekey.clone())?;
    let (sequence, rx) = secrets.rx;
    let opener = Opener::new(sequence, &rx, rekey)?;
    Ok(Secured {
        sealer,
        inbound: Inbound::new(opener, &early, &wire),
        certificate,
    })
}

/// Lets rustls take one step; what is to be sent is appended to `out`, data that came with the end
/// of the handshake to `early`.
fn step<S: Side>(
    side: &mut S,
    wire: &mut Vec<u8>,
    out: &mut Vec<u8>,
    early: &mut Vec<u8>,
) -> Result<Step, TlsError> {
    let UnbufferedStatus { mut discard, state } = side.process(wire);
    let step = match state? {
        ConnectionState::EncodeTlsData(mut encode) => {
            let at = out.len();
            if let Err(EncodeError::InsufficientSize(need)) = encode.encode(&mut []) {
                out.resize(at + need.required_size, 0);
            }
            let written = encode.encode(&mut out[at..]).map_err(io::Error::other)?;
            out.truncate(at + written);
            Step::Again
        }
        ConnectionState::TransmitTlsData(transmit) => {
            transmit.done();
            Step::Send
        }
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                early.extend_from_slice(record.payload);
                discard += record.discard;
            }
            Step::Again
        }
        ConnectionState::BlockedHandshake => Step::Receive,
        ConnectionState::WriteTraffic(_) => Step::Ready,
        _ => Step::Closed,
    };
    wire.drain(..discard);
    if early.len() > HANDSHAKE_MAX {
        return Err(TlsError::TooMuch);
    }
    Ok(step)
}

/// What came from the socket: decrypted where it lies, read in order.
pub(crate) struct Inbound {
    opener: Opener,
    raw: Vec<u8>,
    /// Where the plaintext of the current record lies that was not read yet.
    plain: Range<usize>,
    /// What lies behind the current record and is still encrypted.
    sealed: Range<usize>,
}

impl Inbound {
    fn new(opener: Opener, early: &[u8], wire: &[u8]) -> Self {
        let mut raw = [early, wire].concat();
        let sealed = early.len()..raw.len();
        raw.resize(raw.len().max(RECORD_MAX), 0);
        Self {
            opener,
            raw,
            plain: 0..early.len(),
            sealed,
        }
    }

    /// The plaintext that can be read now, at most a record; empty if more must be received first.
    pub(crate) fn plain(&mut self) -> Result<&[u8], RecordError> {
        while self.plain.is_empty() {
            let Some(record) = self.opener.open(&mut self.raw[self.sealed.clone()])? else {
                break;
            };
            let start = self.sealed.start;
            self.plain = start + record.plain.start..start + record.plain.end;
            self.sealed.start += record.len;
        }
        Ok(&self.raw[self.plain.clone()])
    }

    /// Marks the first `len` bytes of [`Self::plain`] as read.
    pub(crate) fn consume(&mut self, len: usize) {
        self.plain.start += len;
        debug_assert!(self.plain.start <= self.plain.end);
    }

    /// Room for what the socket has, once [`Self::plain`] is empty: at least what the record at
    /// hand lacks, and about `len` bytes.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        debug_assert!(self.plain.is_empty());
        let held = self.sealed.len();
        self.raw.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..held;
        self.plain = 0..0;
        let want = (held + len).max(RECORD_MAX);
        if self.raw.len() < want {
            self.raw.resize(want, 0);
        }
        &mut self.raw[held..want]
    }

    /// Notes that the socket has put `len` bytes into [`Self::room`].
    pub(crate) fn received(&mut self, len: usize) {
        self.sealed.end += len;
    }
}
