//! Certificates of operators and agents, and the TLS configurations with which they authenticate.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::Error;
use crate::identity::{credentials_error, fill_random, provider};

/// How far the clocks of the issuer and a host may be apart.
pub(super) const SKEW: Duration = Duration::from_secs(24 * 3600);

/// TLS 1.3 configurations for both directions: no tickets, no resumption, no early data, both
/// sides verified. `servers` signs the hosts that we dial, `clients` the hosts that dial us.
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
    debug_assert_eq!(server.max_early_data_size, 0, "it can be replayed");
    debug_assert!(!server.send_half_rtt_data, "no peer has proved a key then");
    debug_assert!(!client.enable_early_data, "it can be replayed");
    Ok((client, server))
}

pub(super) fn roots(authority: &[u8]) -> Result<RootCertStore, Error> {
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
        let now = self.wall.checked_add(self.start.elapsed())?;
        Some(UnixTime::since_unix_epoch(now))
    }
}

/// Seconds since 1970, by this host's clock.
pub(super) fn unix_now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Every field of an authority's certificate.
pub(crate) fn authority_params(name: &str, validity: Duration) -> CertificateParams {
    let mut params = base_params(name, validity);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Every field of a certificate with these names; nothing is copied from a request.
pub(super) fn leaf_params(
    common: &str,
    names: Vec<SanType>,
    usage: ExtendedKeyUsagePurpose,
    validity: Duration,
) -> Result<CertificateParams, Error> {
    debug_assert!(!names.is_empty(), "a certificate names somebody");
    let mut params = base_params(common, validity);
    params.subject_alt_names = names;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // With no usage it would be good for all.
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(serial()?);
    Ok(params)
}

/// A number that no other certificate has: at most 128 bits, positive, and never shorter.
fn serial() -> Result<SerialNumber, Error> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)?;
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// A time as certificates have it.
pub(super) fn at(since_1970: Duration) -> time::OffsetDateTime {
    // The last time there is, if it is later.
    let since = since_1970.try_into().unwrap_or(time::Duration::MAX);
    rcgen::date_time_ymd(1970, 1, 1).saturating_add(since)
}

fn base_params(name: &str, validity: Duration) -> CertificateParams {
    let now = Duration::from_secs(unix_now().as_secs());
    let mut params = CertificateParams::default();
    params.not_before = at(now.saturating_sub(SKEW));
    params.not_after = at(now.saturating_add(validity));
    debug_assert!(params.not_before < params.not_after);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
