//! Authentication: each endpoint has one key pair for as long as it lives, and TLS 1.3 configurations in
//! which both sides prove that they hold theirs.
//!
//! A key is shown as it is (RFC 7250), without a certificate: no authority vouches for it. The
//! coordinator of a session announces the digest of each member's key, and nothing else makes a host a
//! member.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::fmt;
use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Random name of a session, the same at all its members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// A name that was never used.
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn random() -> Result<Self, Error> {
        let mut id = [0; 16];
        fill_random(&mut id)?;
        Ok(Self(id))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// BLAKE3 of an endpoint's public key (a SubjectPublicKeyInfo in DER): by it peers know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyDigest(pub [u8; 32]);

impl KeyDigest {
    /// The digest of a public key.
    pub fn of(public_key: &[u8]) -> Self {
        Self(*blake3::hash(public_key).as_bytes())
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyDigest({self})")
    }
}

/// The key pair of an endpoint, made where it is used; it never leaves the process.
#[derive(Clone)]
pub struct EndpointKey {
    certified: Arc<CertifiedKey>,
    digest: KeyDigest,
}

impl EndpointKey {
    /// Makes a new Ed25519 key pair.
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn generate() -> Result<Self, Error> {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| issue_error("an endpoint", "no randomness from the system"))?;
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.as_ref().to_vec()));
        let unusable = |error| credentials_error("a new key", error);
        let key = provider()
            .key_provider
            .load_private_key(der)
            .map_err(unusable)?;
        let public = key.public_key().map(|public| public.to_vec());
        let public =
            public.ok_or_else(|| credentials_error("a new key", "it has no public half"))?;
        let digest = KeyDigest::of(&public);
        let shown = vec![CertificateDer::from(public)];
        Ok(Self {
            certified: Arc::new(CertifiedKey::new(shown, key)),
            digest,
        })
    }

    /// The digest of the public half, by which peers are to know this endpoint.
    pub const fn digest(&self) -> KeyDigest {
        self.digest
    }

    /// How this endpoint dials the one that holds the key of this digest, and no other.
    pub(crate) fn dialling(&self, expected: KeyDigest) -> Result<Arc<ClientConfig>, Error> {
        let provider = provider();
        let verifier = Verifier::new(&provider, Some(expected));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| credentials_error("the key", error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                self.certified.clone(),
            )));
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        // The traffic keys go to our own record layer.
        config.enable_secret_extraction = true;
        debug_assert!(!config.enable_early_data, "early data can be replayed");
        debug_assert!(config.client_auth_cert_resolver.only_raw_public_keys());
        debug_assert!(config.client_auth_cert_resolver.has_certs());
        Ok(Arc::new(config))
    }

    /// How this endpoint answers: any key is heard; only the digest says whose it is.
    pub(crate) fn answering(&self) -> Result<Arc<ServerConfig>, Error> {
        let provider = provider();
        let verifier = Verifier::new(&provider, None);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| credentials_error("the key", error))?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                self.certified.clone(),
            )));
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.enable_secret_extraction = true;
        debug_assert_eq!(config.max_early_data_size, 0, "it can be replayed");
        debug_assert!(!config.send_half_rtt_data, "no peer has proved a key then");
        debug_assert!(config.cert_resolver.only_raw_public_keys());
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for EndpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointKey")
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// Has the peer prove that it holds the key it shows, and that this is the expected one if one is.
#[derive(Debug)]
struct Verifier {
    expected: Option<KeyDigest>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(provider: &CryptoProvider, expected: Option<KeyDigest>) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        Self {
            expected,
            algorithms,
        }
    }

    fn signed(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(shown.as_ref()),
            signature,
            &self.algorithms,
        )
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // Both are public, so the comparison need not take constant time.
        if self.expected == Some(KeyDigest::of(shown)) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General(
                "another key than the expected one answers".into(),
            ))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// AES-128-GCM first: with AES instructions nothing is faster.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring::cipher_suite;
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..rustls::crypto::ring::default_provider()
    })
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), Error> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| issue_error("a number", "no randomness from the system"))
}

pub(crate) fn issue_error(name: &str, why: impl fmt::Display) -> Error {
    Error::Issue {
        name: name.to_owned(),
        why: why.to_string(),
    }
}

pub(crate) fn credentials_error(what: &str, why: impl fmt::Display) -> Error {
    Error::Credentials {
        what: what.to_owned(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn ids_and_keys_are_never_the_same_and_never_printed() {
        assert_ne!(SessionId::random().unwrap(), SessionId::random().unwrap());
        let (key, other) = (
            EndpointKey::generate().unwrap(),
            EndpointKey::generate().unwrap(),
        );
        assert_ne!(key.digest(), other.digest());
        let shown = format!("EndpointKey {{ digest: {:?}, .. }}", key.digest());
        assert_eq!(format!("{key:?}"), shown);
    }

    #[test]
    fn a_key_is_expected_in_all_its_bits() {
        let shown = CertificateDer::from(b"some key".to_vec());
        let name = ServerName::try_from("peer").unwrap();
        let verify = |expected| {
            let verifier = Verifier::new(&provider(), Some(expected));
            verifier.verify_server_cert(&shown, &[], &name, &[], UnixTime::now())
        };
        let right = KeyDigest::of(&shown);
        assert!(verify(right).is_ok());
        for byte in 0..32 {
            let mut almost = right;
            almost.0[byte] ^= 1 << (byte % 8);
            assert!(verify(almost).is_err(), "byte {byte}");
        }
    }
}
