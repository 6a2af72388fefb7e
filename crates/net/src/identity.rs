//! Who is who in one cast: an authority that lives as long as the cast, a key pair per node that
//! never leaves it, and the TLS configuration in which both sides prove who they are.
//!
//! A peer is let in when its chain leads to the cast's authority, its name is the one expected,
//! *and* the digest of its certificate is the one the coordinator told us: the chain alone makes
//! nobody a member.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outpour_core::NodeId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SignatureAlgorithm,
};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How far the clocks of the coordinator and a node may be apart.
const SKEW: Duration = Duration::from_secs(24 * 3600);
/// How long a cast may go on. The authority's key dies with the coordinator, and who is not or no
/// longer a member is refused whatever the certificate says, so this only has to end some time.
const CAST_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Random name of a cast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CastId(pub [u8; 16]);

impl CastId {
    /// A name nobody has used.
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn random() -> Result<Self, Error> {
        let mut id = [0; 16];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut id)
            .map_err(|_| issue_error("a cast", "no randomness from the system"))?;
        Ok(Self(id))
    }

    fn host_name(self, node: NodeId) -> String {
        format!("{node}.{self}.outpour")
    }
}

impl fmt::Display for CastId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CastId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CastId({self})")
    }
}

/// BLAKE3 of a certificate: by it the members of a cast are known to each other.
pub fn certificate_digest(der: &[u8]) -> [u8; 32] {
    *blake3::hash(der).as_bytes()
}

/// The key pair of a node, made where it is used.
pub struct NodeKey {
    pair: KeyPair,
}

impl NodeKey {
    /// Makes a new Ed25519 key pair.
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn generate() -> Result<Self, Error> {
        let pair = KeyPair::generate_for(&PKCS_ED25519)
            .map_err(|error| issue_error("a new key", error))?;
        Ok(Self { pair })
    }

    /// The public half: 32 bytes, to be sent to the coordinator.
    pub fn public_key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(self.pair.public_key_raw());
        key
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeKey").finish_non_exhaustive()
    }
}

/// A public key as it came from a node; anything but its 32 bytes is the issuer's.
pub(crate) struct PublicKey<'a>(pub(crate) &'a [u8; 32]);

impl PublicKeyData for PublicKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

/// The authority of one cast; lives in the coordinator's memory only.
pub struct CastAuthority {
    cast: CastId,
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl CastAuthority {
    /// Makes the authority of a new cast.
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn new() -> Result<Self, Error> {
        let cast = CastId::random()?;
        let name = format!("{cast}.outpour");
        let pair =
            KeyPair::generate_for(&PKCS_ED25519).map_err(|error| issue_error(&name, error))?;
        let params = authority_params(&name, CAST_MAX);
        let der = params
            .self_signed(&pair)
            .map_err(|error| issue_error(&name, error))?;
        let der = der.der().to_vec();
        Ok(Self {
            cast,
            der,
            issuer: Issuer::new(params, pair),
        })
    }

    /// The cast.
    pub const fn cast(&self) -> CastId {
        self.cast
    }

    /// DER of the authority's own certificate, to be handed to every node.
    pub fn certificate(&self) -> &[u8] {
        &self.der
    }

    /// Issues the certificate of a node for its public key; returns the DER.
    ///
    /// # Errors
    /// If signing fails.
    pub fn issue(&self, node: NodeId, public_key: &[u8; 32]) -> Result<Vec<u8>, Error> {
        let name = self.cast.host_name(node);
        let usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let params = leaf_params(&name, usages, CAST_MAX)?;
        let certificate = params
            .signed_by(&PublicKey(public_key), &self.issuer)
            .map_err(|error| issue_error(&name, error))?;
        Ok(certificate.der().to_vec())
    }
}

impl fmt::Debug for CastAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CastAuthority")
            .field("cast", &self.cast)
            .finish_non_exhaustive()
    }
}

/// A node of a cast with the means to prove it.
#[derive(Clone)]
pub struct NodeIdentity {
    cast: CastId,
    node: NodeId,
    digest: [u8; 32],
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl NodeIdentity {
    /// Joins a node's own key with what the coordinator sent it: the cast, its number, and the DER
    /// of its certificate and of the authority's.
    ///
    /// # Errors
    /// If the certificates are malformed, or do not belong to the key.
    pub fn new(
        key: &NodeKey,
        cast: CastId,
        node: NodeId,
        certificate: &[u8],
        authority: &[u8],
    ) -> Result<Self, Error> {
        let digest = certificate_digest(certificate);
        let chain = vec![CertificateDer::from(certificate.to_vec())];
        let (mut client, mut server) =
            configs(chain, &key.pair.serialize_der(), authority, authority)?;
        // The traffic keys go to our own record layer.
        client.enable_secret_extraction = true;
        server.enable_secret_extraction = true;
        Ok(Self {
            cast,
            node,
            digest,
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }

    /// Which cast this is for.
    pub const fn cast(&self) -> CastId {
        self.cast
    }

    /// Which node this is.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// BLAKE3 of the certificate, by which peers know this node.
    pub const fn digest(&self) -> [u8; 32] {
        self.digest
    }

    pub(crate) const fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    pub(crate) const fn server(&self) -> &Arc<ServerConfig> {
        &self.server
    }

    pub(crate) fn name_of(&self, peer: NodeId) -> Result<ServerName<'static>, Error> {
        let name = self.cast.host_name(peer);
        ServerName::try_from(name.clone()).map_err(|error| credentials_error(&name, error))
    }
}

impl fmt::Debug for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIdentity")
            .field("cast", &self.cast)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// TLS 1.3 configurations for both directions: no tickets, no resumption, no early data, both
/// sides verified. `servers` is who signs those we dial, `clients` who signs those who dial us.
pub(crate) fn configs(
    chain: Vec<CertificateDer<'static>>,
    key_pkcs8: &[u8],
    servers: &[u8],
    clients: &[u8],
) -> Result<(ClientConfig, ServerConfig), Error> {
    let unusable = |error: rustls::Error| credentials_error("the certificate", error);
    let provider = provider();
    let time: Arc<dyn TimeProvider> = Arc::new(SteadyClock::start());
    let key = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key_pkcs8.to_vec()));

    let mut client = ClientConfig::builder_with_details(provider.clone(), time.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .with_root_certificates(roots(servers)?)
        .with_client_auth_cert(chain.clone(), key())
        .map_err(unusable)?;
    client.resumption = Resumption::disabled();

    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(clients)?), provider.clone())
            .build()
            .map_err(|error| credentials_error("the authority", error))?;
    let mut server = ServerConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key())
        .map_err(unusable)?;
    server.send_tls13_tickets = 0;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    Ok((client, server))
}

/// AES-128-GCM first: with AES instructions nothing is faster.
fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring::cipher_suite;
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..rustls::crypto::ring::default_provider()
    })
}

fn roots(authority: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(authority.to_vec()))
        .map_err(|error| credentials_error("the authority", error))?;
    Ok(roots)
}

/// The wall clock at the start plus the time that really passed since, so that a clock that is
/// set while we run makes no certificate invalid.
#[derive(Debug)]
struct SteadyClock {
    wall: Duration,
    start: std::time::Instant,
}

impl SteadyClock {
    fn start() -> Self {
        Self {
            wall: unix_now(),
            start: std::time::Instant::now(),
        }
    }
}

impl TimeProvider for SteadyClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.wall + self.start.elapsed()))
    }
}

fn unix_now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Every field of an authority's certificate.
pub(crate) fn authority_params(name: &str, validity: Duration) -> CertificateParams {
    let mut params = base_params(name, validity);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Every field of a certificate for `name`; nothing is copied from a request.
pub(crate) fn leaf_params(
    name: &str,
    usages: Vec<ExtendedKeyUsagePurpose>,
    validity: Duration,
) -> Result<CertificateParams, Error> {
    let names = CertificateParams::new([name.to_owned()])
        .map_err(|error| issue_error(name, error))?
        .subject_alt_names;
    let mut params = base_params(name, validity);
    params.subject_alt_names = names;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages;
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn base_params(name: &str, validity: Duration) -> CertificateParams {
    let now = rcgen::date_time_ymd(1970, 1, 1) + unix_now();
    let mut params = CertificateParams::default();
    params.not_before = now - SKEW;
    params.not_after = now + validity;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Sixteen random hexadecimal digits.
pub(crate) fn random_hex() -> Result<String, Error> {
    let CastId(id) = CastId::random()?;
    Ok(id[..8].iter().map(|byte| format!("{byte:02x}")).collect())
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
    fn an_identity_joins_a_key_and_the_certificate_issued_for_it() {
        let authority = CastAuthority::new().unwrap();
        let (key, other) = (NodeKey::generate().unwrap(), NodeKey::generate().unwrap());
        let der = authority.issue(NodeId(3), &key.public_key()).unwrap();
        let cast = authority.cast();
        let own = NodeIdentity::new(&key, cast, NodeId(3), &der, authority.certificate()).unwrap();
        assert_eq!(own.digest(), certificate_digest(&der));
        let foreign = NodeIdentity::new(&other, cast, NodeId(3), &der, authority.certificate());
        assert!(
            matches!(foreign, Err(Error::Credentials { .. })),
            "{foreign:?}"
        );
        let cut = NodeIdentity::new(&key, cast, NodeId(3), &der[..20], authority.certificate());
        assert!(matches!(cut, Err(Error::Credentials { .. })));
        let rootless = NodeIdentity::new(&key, cast, NodeId(3), &der, b"no certificate");
        assert!(matches!(rootless, Err(Error::Credentials { .. })));
    }

    #[test]
    fn casts_and_keys_are_never_the_same_and_never_printed() {
        assert_ne!(CastId::random().unwrap(), CastId::random().unwrap());
        let key = NodeKey::generate().unwrap();
        assert_ne!(key.public_key(), NodeKey::generate().unwrap().public_key());
        assert_eq!(format!("{key:?}"), "NodeKey { .. }");
    }
}
