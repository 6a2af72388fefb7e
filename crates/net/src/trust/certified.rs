//! What a certificate says, once its signature has been verified.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::FromDer;

use super::certificates::SKEW;
use super::grant::Grant;
use crate::error::Error;
use crate::identity::{credentials_error, issue_error};

/// The number of a certificate, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Serial(String);

/// The longest number of a certificate, in digits (RFC 5280, section 4.1.2.2).
const SERIAL_DIGITS_MAX: usize = 2 * 20;

impl TryFrom<String> for Serial {
    type Error = &'static str;

    /// Only the one way in which it is written: another would be another certificate's.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_short = text == "0" || !text.starts_with('0');
        match text.bytes().all(is_digit)
            && is_short
            && (1..=SERIAL_DIGITS_MAX).contains(&text.len())
        {
            true => Ok(Self(text)),
            false => Err("it has the number of no certificate"),
        }
    }
}

impl Serial {
    pub(super) fn of(number: &BigUint) -> Self {
        Self(format!("{number:x}"))
    }

    /// The number, first the most significant byte.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let number = BigUint::parse_bytes(self.0.as_bytes(), 16);
        number.unwrap_or_default().to_bytes_be()
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// For how long a certificate is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime(Duration);

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Lifetime {
    /// The most days; no certificate outlives a fresh authority.
    pub const DAYS_MAX: u32 = 730;
    /// A host that no operator calls for a third of its certificate's life has to be given a new one
    /// by hand, so this outlasts holidays.
    pub const DAYS_USUAL: u32 = 30;

    /// So many days, from 1 to [`Self::DAYS_MAX`].
    ///
    /// # Errors
    /// If they are none or too many.
    pub fn days(days: u32) -> Result<Self, Error> {
        match days {
            1..=Self::DAYS_MAX => Ok(Self(DAY.saturating_mul(days))),
            _ => {
                let most = Self::DAYS_MAX;
                let why = format!("it can be valid for 1 to {most} days");
                Err(issue_error("an identity", why))
            }
        }
    }

    pub(super) const fn duration(self) -> Duration {
        self.0
    }
}

impl Default for Lifetime {
    fn default() -> Self {
        Self(DAY.saturating_mul(Self::DAYS_USUAL))
    }
}

/// Whose a certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An operator's, and what it may do.
    Operator(String, Grant),
    /// That of the agent on a host.
    Agent(String),
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// Its number.
    pub serial: Serial,
    /// Whose it is.
    pub subject: Subject,
    from: Duration,
    until: Duration,
}

impl Certified {
    /// Reads a certificate; whoever calls has verified its signature, or owns it.
    pub(super) fn read(der: &[u8]) -> Result<Self, Error> {
        let unusable = |why: &str| credentials_error("the certificate", why);
        let (_, parsed) = X509Certificate::from_der(der)
            .map_err(|error| credentials_error("the certificate", error))?;
        let names = parsed
            .subject_alternative_name()
            .map_err(|error| credentials_error("the certificate", error))?
            .ok_or_else(|| unusable("it names nobody"))?;
        let subject = subject(&names.value.general_names).map_err(unusable)?;
        let seconds = |time: i64| Duration::from_secs(time.try_into().unwrap_or_default());
        Ok(Self {
            serial: Serial::of(&parsed.tbs_certificate.serial),
            subject,
            from: seconds(parsed.validity().not_before.timestamp()),
            until: seconds(parsed.validity().not_after.timestamp()),
        })
    }

    /// For how long it was issued.
    pub fn lifetime(&self) -> Lifetime {
        Lifetime(self.until.saturating_sub(self.from).saturating_sub(SKEW))
    }

    /// Until when it is valid.
    pub fn until(&self) -> SystemTime {
        // No certificate can name a time that clocks cannot.
        UNIX_EPOCH.checked_add(self.until).unwrap_or(UNIX_EPOCH)
    }

    /// Whether it is to be renewed: a third of its life or less is left.
    pub fn is_due(&self, now: SystemTime) -> bool {
        let left = self.until().duration_since(now).unwrap_or_default();
        left.saturating_mul(3) <= self.lifetime().0
    }
}

fn subject(names: &[GeneralName<'_>]) -> Result<Subject, &'static str> {
    const OTHER: &str = "it has a name that this release does not know";
    match names {
        [GeneralName::DNSName(host)] => Ok(Subject::Agent((*host).to_owned())),
        [GeneralName::IPAddress(bytes)] => {
            let four: Result<[u8; 4], _> = (*bytes).try_into();
            let six: Result<[u8; 16], _> = (*bytes).try_into();
            let address = four.map(IpAddr::from).or_else(|_| six.map(IpAddr::from));
            Ok(Subject::Agent(address.map_err(|_| OTHER)?.to_string()))
        }
        names => {
            let texts: Option<Vec<&str>> = names
                .iter()
                .map(|name| match name {
                    GeneralName::URI(text) => Some(*text),
                    _ => None,
                })
                .collect();
            let (name, grant) = Grant::read(texts.ok_or(OTHER)?.into_iter())?;
            Ok(Subject::Operator(name, grant))
        }
    }
}
