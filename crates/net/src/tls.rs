//! Mutual TLS 1.3 on one TCP connection, from the first byte to traffic keys.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, ConnectionTrafficSecrets, ExtractedSecrets, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::identity::KeyDigest;
use crate::record::{Keys, Opener, RECORD_MAX, RecordError, Rekey, Sealer};

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
    #[error("TLS: the peer sent too much before it proved its key")]
    TooMuch,
    /// A listener that is crowded ends connections without a word.
    #[error(
        "closed during the TLS handshake; the peer may have too many connections that do not authenticate"
    )]
    Closed,
    #[error("TLS: the peer shows no key")]
    Nobody,
}

/// A connection with an authenticated peer.
pub(crate) struct Secured {
    pub(crate) sealer: Sealer,
    pub(crate) inbound: Inbound,
    /// Digest of the peer's key.
    pub(crate) key: KeyDigest,
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
    /// Whether something is to be sent that was not encoded yet.
    fn wants_write(&self) -> bool;
    fn key(&self) -> Option<KeyDigest>;
    fn secrets(self) -> Result<(ExtractedSecrets, Arc<Keys>), rustls::Error>;
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
            fn wants_write(&self) -> bool {
                CommonState::wants_write(self)
            }
            fn key(&self) -> Option<KeyDigest> {
                self.peer_certificates()?
                    .first()
                    .map(|key| KeyDigest::of(key))
            }
            fn secrets(self) -> Result<(ExtractedSecrets, Arc<Keys>), rustls::Error> {
                let (secrets, kernel) = self.dangerous_into_kernel_connection()?;
                Ok((secrets, Keys::new(kernel)))
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
                // Tell the peer why, as far as it still listens. What it sent must not be looked at once
                // more: the same error has been dealt with.
                while side.wants_write() {
                    if step(&mut side, &mut wire, &mut out, &mut early).is_err() {
                        break;
                    }
                }
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
                match stream.read_buf(&mut wire).await {
                    Ok(0) => return Err(TlsError::Closed),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        return Err(TlsError::Closed);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Step::Ready => break,
            Step::Closed => return Err(TlsError::Closed),
        }
    }
    let key = side.key().ok_or(TlsError::Nobody)?;
    let (secrets, keys) = side.secrets()?;
    let (sequence, tx) = secrets.tx;
    let sealer = Sealer::new(sequence, &tx, keys.clone())?;
    let (sequence, rx) = secrets.rx;
    let opener = Opener::new(sequence, &rx, keys)?;
    Ok(Secured {
        sealer,
        inbound: Inbound::new(opener, &early, &wire),
        key,
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
                out.resize(at.saturating_add(need.required_size), 0);
            }
            let room = out.get_mut(at..).unwrap_or_default();
            let written = encode.encode(room).map_err(io::Error::other)?;
            out.truncate(at.saturating_add(written));
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
                discard = discard.saturating_add(record.discard);
            }
            Step::Again
        }
        ConnectionState::BlockedHandshake => Step::Receive,
        ConnectionState::WriteTraffic(_) => Step::Ready,
        _ => Step::Closed,
    };
    // More than there is would be a fault of rustls.
    wire.drain(..discard.min(wire.len()));
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
        let inbound = Self {
            opener,
            raw,
            plain: 0..early.len(),
            sealed,
        };
        inbound.check();
        inbound
    }

    fn check(&self) {
        debug_assert!(self.plain.start <= self.plain.end);
        debug_assert!(self.plain.end <= self.sealed.start, "read and still sealed");
        debug_assert!(self.sealed.start <= self.sealed.end);
        debug_assert!(self.sealed.end <= self.raw.len());
    }

    /// The plaintext that can be read now, at most a record; empty if more must be received first.
    pub(crate) fn plain(&mut self) -> Result<&[u8], RecordError> {
        while self.plain.is_empty() {
            let sealed = self.raw.get_mut(self.sealed.clone()).unwrap_or_default();
            let Some(record) = self.opener.open(sealed)? else {
                break;
            };
            let start = self.sealed.start;
            // Within `raw`, which is far shorter than any number can say.
            self.plain =
                start.saturating_add(record.plain.start)..start.saturating_add(record.plain.end);
            self.sealed.start = start.saturating_add(record.len);
        }
        self.check();
        Ok(self.raw.get(self.plain.clone()).unwrap_or_default())
    }

    /// Marks the first `len` bytes of [`Self::plain`] as read.
    pub(crate) fn consume(&mut self, len: usize) {
        self.plain.start = self.plain.start.saturating_add(len);
        self.check();
    }

    /// Room for what the socket has, once [`Self::plain`] is empty: at least what the record at
    /// hand lacks, and about `len` bytes.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        debug_assert!(self.plain.is_empty());
        debug_assert!(len > 0, "no room looks like the end of the connection");
        let held = self.sealed.len();
        debug_assert!(held < RECORD_MAX, "a whole record was left sealed");
        self.raw.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..held;
        self.plain = 0..0;
        let want = held.saturating_add(len).max(RECORD_MAX);
        if self.raw.len() < want {
            self.raw.resize(want, 0);
        }
        self.check();
        self.raw.get_mut(held..want).unwrap_or_default()
    }

    /// Notes that the socket has put `len` bytes into [`Self::room`].
    pub(crate) fn received(&mut self, len: usize) {
        debug_assert!(self.plain.is_empty(), "received before all was read");
        self.sealed.end = self.sealed.end.saturating_add(len);
        self.check();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::net::TcpListener;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::identity::EndpointKey;

    fn keys() -> [EndpointKey; 2] {
        [0, 1].map(|_| EndpointKey::generate().unwrap())
    }

    fn name() -> ServerName<'static> {
        ServerName::try_from("127.0.0.1").unwrap()
    }

    async fn sockets() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap());
        let (dialled, accepted) = tokio::join!(dialled, listener.accept());
        [dialled.unwrap(), accepted.unwrap().0]
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| ((i * 31) >> 4) as u8).collect()
    }

    async fn send(secured: &mut Secured, stream: &mut TcpStream, plain: &[u8]) {
        let mut out = Vec::new();
        secured.sealer.seal(plain, &mut out).unwrap();
        stream.write_all(&out).await.unwrap();
    }

    async fn receive(secured: &mut Secured, stream: &mut TcpStream, len: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < len {
            let plain = secured.inbound.plain().unwrap();
            if plain.is_empty() {
                let got = stream.read(secured.inbound.room(1000)).await.unwrap();
                assert_ne!(got, 0);
                secured.inbound.received(got);
            } else {
                all.extend_from_slice(plain);
                let len = plain.len();
                secured.inbound.consume(len);
            }
        }
        all
    }

    /// One alert, which is fatal.
    async fn is_told(stream: &mut TcpStream) {
        let mut told = Vec::new();
        stream.read_to_end(&mut told).await.unwrap();
        let alert = told.len() - 7;
        assert_eq!(told[alert..alert + 6], [21, 3, 3, 0, 2, 2], "{told:?}");
        // What else there is was said before.
        assert!(told[..alert].first() != Some(&21), "{told:?}");
    }

    #[tokio::test]
    async fn nonsense_in_a_handshake_is_an_error_and_the_peer_is_told_once() {
        let [alice, bob] = keys();
        let nonsense = [b'z'; 300];
        let [mut left, mut right] = sockets().await;
        left.write_all(&nonsense).await.unwrap();
        let accepted = accept(&mut right, bob.answering().unwrap()).await;
        assert!(accepted.is_err());
        drop(right);
        is_told(&mut left).await;

        let [mut left, mut right] = sockets().await;
        right.write_all(&nonsense).await.unwrap();
        let dialled = connect(&mut left, alice.dialling(bob.digest()).unwrap(), name()).await;
        assert!(dialled.is_err());
        left.shutdown().await.unwrap();
        is_told(&mut right).await;
    }

    #[tokio::test]
    async fn both_sides_learn_who_the_other_is_and_change_keys_on_the_way() {
        let [alice, bob] = keys();
        let [mut left, mut right] = sockets().await;
        let (dialled, accepted) = tokio::join!(
            connect(&mut left, alice.dialling(bob.digest()).unwrap(), name()),
            accept(&mut right, bob.answering().unwrap())
        );
        let (mut a, mut b) = (dialled.unwrap(), accepted.unwrap());
        assert_eq!((a.key, b.key), (bob.digest(), alice.digest()));
        a.sealer.rekey_every(2);
        b.sealer.rekey_every(3);
        let data = pattern(200_000);
        send(&mut a, &mut left, &data).await;
        assert!(receive(&mut b, &mut right, data.len()).await == data);
        send(&mut b, &mut right, &data).await;
        assert!(receive(&mut a, &mut left, data.len()).await == data);
    }

    #[tokio::test]
    async fn a_stock_server_follows_our_keys_and_we_follow_its() {
        let [alice, bob] = keys();
        let [mut left, right] = sockets().await;
        let (dialled, accepted) = tokio::join!(
            connect(&mut left, alice.dialling(bob.digest()).unwrap(), name()),
            TlsAcceptor::from(bob.answering().unwrap()).accept(right)
        );
        let (mut ours, mut stock) = (dialled.unwrap(), accepted.unwrap());
        ours.sealer.rekey_every(2);
        let data = pattern(150_000);
        let mut got = vec![0; data.len()];
        tokio::join!(send(&mut ours, &mut left, &data), async {
            stock.read_exact(&mut got).await.unwrap();
        });
        assert!(got == data);
        // Its updates ask for ours in return.
        for _ in 0..3 {
            stock.get_mut().1.refresh_traffic_keys().unwrap();
            stock.write_all(&data[..40_000]).await.unwrap();
            stock.flush().await.unwrap();
            assert!(receive(&mut ours, &mut left, 40_000).await == data[..40_000]);
            send(&mut ours, &mut left, b"word").await;
            let mut word = [0; 4];
            stock.read_exact(&mut word).await.unwrap();
            assert_eq!(&word, b"word");
        }
    }

    #[tokio::test]
    async fn a_stock_client_follows_our_keys_and_we_follow_its() {
        let [alice, bob] = keys();
        let [left, mut right] = sockets().await;
        let (dialled, accepted) = tokio::join!(
            TlsConnector::from(alice.dialling(bob.digest()).unwrap()).connect(name(), left),
            accept(&mut right, bob.answering().unwrap())
        );
        let (mut stock, mut ours) = (dialled.unwrap(), accepted.unwrap());
        ours.sealer.rekey_every(1);
        let data = pattern(150_000);
        let mut got = vec![0; data.len()];
        tokio::join!(send(&mut ours, &mut right, &data), async {
            stock.read_exact(&mut got).await.unwrap();
        });
        assert!(got == data);
        stock.get_mut().1.refresh_traffic_keys().unwrap();
        stock.write_all(&data[..40_000]).await.unwrap();
        stock.flush().await.unwrap();
        assert!(receive(&mut ours, &mut right, 40_000).await == data[..40_000]);
    }

    #[tokio::test]
    async fn what_says_too_much_before_it_is_known_is_cut_off() {
        let [_, bob] = keys();
        let [mut left, mut right] = sockets().await;
        // A handshake record that never completes its message.
        let flood = async {
            let mut record = vec![22, 3, 1, 0x40, 0];
            record.extend([1, 0xff, 0xff, 0xff]);
            record.resize(5 + 0x4000, 0);
            while left.write_all(&record).await.is_ok() {}
        };
        let (result, ()) = tokio::join!(
            async {
                let result = accept(&mut right, bob.answering().unwrap()).await;
                drop(right);
                result
            },
            flood
        );
        assert!(matches!(result, Err(TlsError::TooMuch | TlsError::Tls(_))));
    }
}
