//! Identities of agents that run as a service and of their operators.
//!
//! A trust directory holds two authorities: one signs operators, the other signs agents, and a
//! role is nothing but which of them signed. An operator's certificate has its name, and where it may
//! read and write; an agent obeys every holder of one within that, and can prove to an operator only
//! that it is the host it is named for: it can neither command another agent nor pose as one.
//!
//! ```text
//! operator-ca.pem   certificate of the operators' authority
//! operator-ca.key   its key
//! operator-ca.crl   which operators it has revoked
//! agent-ca.pem      certificate of the agents' authority
//! agent-ca.key      its key
//! agent-ca.crl      which agents it has revoked
//! operator.pem      certificate and key of this directory's operator
//! issued.jsonl      what was issued and has not expired
//! ```
//!
//! An operator needs two of these, `operator.pem` and `agent-ca.pem`: such a directory is one, too.
//! What an agent needs is one file: its certificate and key, and both authorities' certificates. Files
//! with keys are readable by their owner only, and appear whole or not at all. None is overwritten but
//! by what renews it.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod agent;
mod certificates;
mod certified;
mod directory;
mod files;
#[allow(clippy::arithmetic_side_effects, reason = "a test, which may panic")]
mod fuzz;
mod grant;
mod operator;
mod record;
mod revoked;
mod signing;

use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PKCS_ED25519};
use rustls::pki_types::ServerName;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub use self::agent::{Agent, Caller, Renewal, list_of};
pub use self::certified::{Certified, Lifetime, Serial, Subject};
pub use self::directory::{Directory, REQUEST_BYTES_MAX, Revocation};
pub use self::fuzz::{trust_certificates, trust_files};
pub use self::grant::{GRANT_MAX, Grant, OPERATOR_BYTES_MAX};
pub use self::operator::Operator;
pub use self::record::{Issued, Kind};
pub use self::revoked::{LIST_BYTES_MAX, Revoked};
pub use self::signing::{PublicKey, SIGNATURE_BYTES, Signer};
use crate::error::Error;
use crate::identity::{credentials_error, issue_error};

/// Whether [`Operator::connect`] failed because the peer speaks no TLS, so that it did not even come to
/// who it is.
pub fn is_no_tls(error: &std::io::Error) -> bool {
    let inner = error.get_ref();
    let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

/// A time as people and programs read it, to the second: `2026-01-31T23:59:59Z`.
pub fn shown(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let time = time.replace_nanosecond(0).unwrap_or(time);
    // Years of more than four digits have no such form.
    time.format(&Rfc3339).unwrap_or_else(|_| "never".to_owned())
}

fn years(years: u32) -> Duration {
    Duration::from_secs(365 * 24 * 3600).saturating_mul(years)
}

fn new_key(name: &str) -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(|error| issue_error(name, error))
}

fn server_name(host: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| issue_error(host, "it is neither a DNS name nor an IP address"))
}

/// A certificate as text.
fn pem_of(certificate: &[u8]) -> String {
    let encoded = pem::Pem::new("CERTIFICATE", certificate);
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&encoded, config)
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> Error {
    credentials_error(&path.display().to_string(), why)
}
