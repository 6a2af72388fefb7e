//! Lists of revoked certificates (RFC 5280): numbered, and signed by the authority that issued
//! them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rcgen::{CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevokedCertParams};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use super::certificates::{at, unix_now};
use super::certified::Serial;
use super::files::{read_any, replace};
use super::unusable;
use crate::error::Error;
use crate::identity::{credentials_error, issue_error};

/// How long a list may be: some 25,000 certificates.
pub const LIST_BYTES_MAX: usize = 1 << 20;
/// A list is never out of date; the form asks for the time of the next.
const NEXT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Which certificates of an authority do not count any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Each list has a higher number than those before; zero is before the first.
    number: u64,
    /// Since when, in seconds since 1970.
    serials: BTreeMap<Serial, u64>,
    der: Vec<u8>,
}

impl Revoked {
    /// Reads a list that the authority of this certificate has signed.
    ///
    /// # Errors
    /// If it is too long, is no list, or somebody else has signed it.
    pub(super) fn read(der: &[u8], authority: &[u8]) -> Result<Self, Error> {
        let list = list(der)?;
        let (_, authority) =
            X509Certificate::from_der(authority).map_err(|error| unreadable(&error))?;
        list.verify_signature(authority.public_key())
            .map_err(|_| unreadable(&"another authority has signed it"))?;
        Self::of(&list, der)
    }

    /// Reads a list, whoever has signed it; for tests.
    pub(super) fn parse(der: &[u8]) -> Result<Self, Error> {
        Self::of(&list(der)?, der)
    }

    /// What a list says.
    fn of(list: &CertificateRevocationList<'_>, der: &[u8]) -> Result<Self, Error> {
        let number = list
            .crl_number()
            .and_then(|number| u64::try_from(number).ok());
        let entries = list.iter_revoked_certificates().map(|entry| {
            let since = entry
                .revocation_date
                .timestamp()
                .try_into()
                .unwrap_or_default();
            (Serial::of(entry.serial()), since)
        });
        Ok(Self {
            number: number.ok_or_else(|| unreadable(&"it has no number"))?,
            serials: entries.collect(),
            der: der.to_vec(),
        })
    }

    /// Reads the list of a file; where there is none, nothing is revoked.
    pub(super) fn load(path: &Path, authority: &[u8]) -> Result<Self, Error> {
        match read_any(path, LIST_BYTES_MAX)? {
            Some(der) => Self::read_at(&der, path, authority),
            None => Ok(Self::default()),
        }
    }

    /// Reads what such a file holds.
    pub(super) fn read_at(der: &[u8], path: &Path, authority: &[u8]) -> Result<Self, Error> {
        Self::read(der, authority).map_err(|error| match error {
            Error::Credentials { why, .. } => unusable(path, why),
            error => error,
        })
    }

    /// Writes it to a file, as it was signed.
    pub(super) fn save(&self, path: &Path) -> Result<(), Error> {
        debug_assert!(!self.der.is_empty(), "there is a list");
        replace(path, &self.der)
    }

    /// The next list, with these certificates besides.
    pub(super) fn with(
        &self,
        serials: &[Serial],
        issuer: &Issuer<'_, KeyPair>,
        authority: &[u8],
    ) -> Result<Self, Error> {
        let now = unix_now().as_secs();
        let number = self.number.checked_add(1);
        let number =
            number.ok_or_else(|| issue_error("the revocation list", "its numbers are used up"))?;
        let mut all = self.serials.clone();
        for serial in serials {
            all.entry(serial.clone()).or_insert(now);
        }
        let entries = all.iter().map(|(serial, since)| RevokedCertParams {
            serial_number: serial.bytes().into(),
            revocation_time: at(Duration::from_secs(*since)),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: at(unix_now()),
            next_update: at(unix_now().saturating_add(NEXT)),
            crl_number: number.into(),
            issuing_distribution_point: None,
            revoked_certs: entries.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(issuer);
        let list = list.map_err(|error| issue_error("the revocation list", error))?;
        let next = Self::read(list.der(), authority)?;
        debug_assert_eq!(next.number, number);
        Ok(next)
    }

    /// Whether this list is the other one, or a later one with everything that is on the other. Two
    /// copies of an authority give out lists of which that is not true, and so does an authority that
    /// has lost its own.
    pub(super) fn continues(&self, other: &Self) -> bool {
        let keeps = || other.serials.keys().all(|serial| self.has(serial));
        self.der == other.der || (self.number > other.number && keeps())
    }

    /// Whether a certificate is on the list.
    pub fn has(&self, serial: &Serial) -> bool {
        self.serials.contains_key(serial)
    }

    /// The number of the list; zero if there is none.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// How many certificates are on it.
    pub fn len(&self) -> usize {
        self.serials.len()
    }

    /// Whether none is on it.
    pub fn is_empty(&self) -> bool {
        self.serials.is_empty()
    }

    /// The signed list; empty if there is none.
    pub fn der(&self) -> &[u8] {
        &self.der
    }
}

fn unreadable(why: &dyn std::fmt::Display) -> Error {
    credentials_error("the revocation list", why)
}

/// Takes a list apart.
fn list(der: &[u8]) -> Result<CertificateRevocationList<'_>, Error> {
    if der.len() > LIST_BYTES_MAX {
        return Err(unreadable(&"it is too long"));
    }
    let (rest, list) =
        CertificateRevocationList::from_der(der).map_err(|error| unreadable(&error))?;
    match rest {
        [] => Ok(list),
        _ => Err(unreadable(&"something follows it")),
    }
}
