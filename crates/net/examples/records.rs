//! What moving bulk data through TLS takes of a processor, in both directions on one core: by the record layer of
//! this crate and by rustls's unbuffered connections.
//!
//! ```text
//! cargo run --release -p outpour-net --example records
//! ```

#![allow(clippy::unwrap_used, unreachable_pub, unused_imports, dead_code)]

use std::sync::Arc;
use std::time::Duration;

use rustls::client::UnbufferedClientConnection;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, ConnectionTrafficSecrets, RootCertStore, ServerConfig};

#[path = "../src/record.rs"]
mod record;

use record::{Keys, Opener, Rekey, Sealer};

/// A block on its way: a header, and fragments of 64 KiB.
const HEADER: usize = 16;
const FRAGMENT: usize = 64 << 10;
/// What is sealed for one write, and then opened as it is read.
const FRAGMENTS: usize = 4;
const ROUNDS: usize = 5;
const BYTES: usize = 256 << 20;

/// Keys that never change.
struct Fixed;

fn secrets() -> ConnectionTrafficSecrets {
    ConnectionTrafficSecrets::Aes256Gcm {
        key: AeadKey::from([7; 32]),
        iv: Iv::new([9; 12]),
    }
}

impl Rekey for Fixed {
    fn next_tx(&mut self) -> Result<ConnectionTrafficSecrets, rustls::Error> {
        Ok(secrets())
    }

    fn next_rx(&mut self) -> Result<ConnectionTrafficSecrets, rustls::Error> {
        Ok(secrets())
    }
}

/// Processor time of this thread: what else the machine does makes it wait, not slower.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = text.split_whitespace().next().unwrap();
    Duration::from_nanos(nanos.parse().unwrap())
}

fn ours(data: &[u8]) -> Duration {
    let mut sealer = Sealer::new(0, &secrets(), Keys::new(Fixed)).unwrap();
    let mut opener = Opener::new(0, &secrets(), Keys::new(Fixed)).unwrap();
    let (mut wire, mut block) = (Vec::new(), Vec::with_capacity(data.len()));
    let start = used();
    for _ in 0..BYTES / (FRAGMENTS * FRAGMENT) {
        wire.clear();
        for fragment in data.chunks(FRAGMENT) {
            sealer.seal(&[1; HEADER], &mut wire).unwrap();
            sealer.seal(fragment, &mut wire).unwrap();
        }
        block.clear();
        let mut at = 0;
        while let Some(record) = opener.open(&mut wire[at..]).unwrap() {
            if record.plain.len() > HEADER {
                block.extend_from_slice(&wire[at..][record.plain]);
            }
            at += record.len;
        }
        assert!(block == data);
    }
    used() - start
}

/// One step of a connection: what is to be sent, and what came.
macro_rules! step {
    ($side:expr, $wire:expr, $out:expr, $took:expr) => {{
        let UnbufferedStatus {
            mut discard, state, ..
        } = $side.process_tls_records($wire);
        let more = match state.unwrap() {
            ConnectionState::EncodeTlsData(mut encode) => {
                let at = $out.len();
                if let Err(EncodeError::InsufficientSize(need)) = encode.encode(&mut []) {
                    $out.resize(at + need.required_size, 0);
                }
                let written = encode.encode(&mut $out[at..]).unwrap();
                $out.truncate(at + written);
                true
            }
            ConnectionState::TransmitTlsData(transmit) => {
                transmit.done();
                true
            }
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.unwrap();
                    discard += record.discard;
                    $took(record.payload);
                }
                true
            }
            _ => false,
        };
        (discard, more)
    }};
}

fn pair() -> (UnbufferedClientConnection, UnbufferedServerConnection) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate: CertificateDer<'static> = certificate.self_signed(&key).unwrap().into();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let name = "localhost".try_into().unwrap();
    let mut client = UnbufferedClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = UnbufferedServerConnection::new(Arc::new(server)).unwrap();
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let (discard, _) = step!(client, &mut to_client, to_server, |_: &[u8]| {});
        to_client.drain(..discard);
        let (discard, _) = step!(server, &mut to_server, to_client, |_: &[u8]| {});
        to_server.drain(..discard);
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    (client, server)
}

fn unbuffered(data: &[u8]) -> Duration {
    let (mut client, mut server) = pair();
    let (mut wire, mut block) = (
        vec![0; data.len() + (1 << 16)],
        Vec::with_capacity(data.len()),
    );
    let start = used();
    for _ in 0..BYTES / (FRAGMENTS * FRAGMENT) {
        let mut len = 0;
        let UnbufferedStatus { state, .. } = client.process_tls_records(&mut []);
        let ConnectionState::WriteTraffic(mut traffic) = state.unwrap() else {
            panic!("it cannot write");
        };
        for fragment in data.chunks(FRAGMENT) {
            len += traffic.encrypt(&[1; HEADER], &mut wire[len..]).unwrap();
            len += traffic.encrypt(fragment, &mut wire[len..]).unwrap();
        }
        block.clear();
        let (mut at, mut out) = (0, Vec::new());
        while at < len {
            let (discard, _) = step!(server, &mut wire[at..len], out, |payload: &[u8]| {
                if payload.len() > HEADER {
                    block.extend_from_slice(payload);
                }
            });
            at += discard;
        }
        assert!(block == data);
    }
    used() - start
}

fn main() {
    let data: Vec<u8> = (0..FRAGMENTS * FRAGMENT)
        .map(|at| ((at * 31) >> 3) as u8)
        .collect();
    let mut all = [Vec::new(), Vec::new()];
    // In turns, so that what else the machine does meets both.
    for _ in 0..ROUNDS {
        all[0].push(ours(&data));
        all[1].push(unbuffered(&data));
    }
    for (name, mut times) in ["record layer of outpour-net", "rustls, unbuffered"]
        .into_iter()
        .zip(all)
    {
        times.sort();
        let rate = |time: &Duration| BYTES as f64 / 1e6 / time.as_secs_f64();
        println!(
            "{name}: {:.0} MB/s of one core (median of {ROUNDS}; {:.0} to {:.0})",
            rate(&times[ROUNDS / 2]),
            rate(&times[ROUNDS - 1]),
            rate(&times[0]),
        );
    }
}
