//! An agent's end of control connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, server};

use super::certificates::{configs, roots, unix_now};
use super::certified::{Certified, Serial, Subject};
use super::files::{check_replaceable, parse, read, read_any, replace};
use super::grant::Grant;
use super::revoked::{LIST_BYTES_MAX, Revoked};
use super::{new_key, pem_of, server_name, unusable};
use crate::error::Error;
use crate::identity::{credentials_error, issue_error, provider};

/// How long a certificate may be, in bytes.
const CERTIFICATE_BYTES_MAX: usize = 16 << 10;

/// An operator that has proved who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its name.
    pub name: String,
    /// The number of its certificate.
    pub serial: Serial,
    /// Where it may read and write.
    pub grant: Grant,
    /// Until when its certificate is valid.
    pub until: SystemTime,
}

/// A service's identity: takes control connections from operators. Copies are the same identity, and
/// what renews one renews all.
#[derive(Clone)]
pub struct Agent(Arc<Inner>);

struct Inner {
    /// The file of the identity.
    path: PathBuf,
    /// The file of the list of revoked operators, beside it.
    list: PathBuf,
    current: RwLock<Arc<Current>>,
    revoked: watch::Sender<Arc<Revoked>>,
    /// Held by whoever changes the identity or the list, here and in the files: what is in a file is
    /// never older than what was written there before.
    changing: Mutex<()>,
}

/// The identity as it is now.
struct Current {
    acceptor: TlsAcceptor,
    certified: Certified,
    host: String,
    operators: CertificateDer<'static>,
    agents: CertificateDer<'static>,
    /// What the file held.
    text: String,
}

impl Current {
    fn of(text: String, path: &Path) -> Result<Self, Error> {
        let (certificates, key) = parse(&text, path)?;
        let [own, operators, agents] = three(certificates, path)?;
        let certified = Certified::read(&own)?;
        let Subject::Agent(host) = certified.subject.clone() else {
            return Err(unusable(path, "it is no agent's"));
        };
        // An agent never dials with this identity; which servers it would trust does not matter.
        let (_, config) = configs(vec![own], &key, &agents, &operators)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            certified,
            host,
            operators,
            agents,
            text,
        })
    }
}

/// A key for which an agent has asked for a certificate.
pub struct Renewal {
    key: KeyPair,
    request: Vec<u8>,
    /// The identity that it renews.
    of: Arc<Current>,
}

impl Renewal {
    /// The request, to be signed by the agents' authority.
    pub fn request(&self) -> &[u8] {
        &self.request
    }
}

impl Agent {
    /// Reads what [`super::Directory::issue`] wrote, and the list of revoked operators if there is one
    /// beside it: of `agent.pem` that is `agent.pem.crl`.
    ///
    /// # Errors
    /// If a file cannot be read, may be read by others, or is not what it should be.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let current = Current::of(read(path)?, path)?;
        let list = list_of(path);
        let revoked = Revoked::load(&list, &current.operators)?;
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            list,
            current: RwLock::new(Arc::new(current)),
            revoked: watch::Sender::new(Arc::new(revoked)),
            changing: Mutex::new(()),
        })))
    }

    /// The host that it is for, as operators call it.
    pub fn host(&self) -> String {
        self.current().host.clone()
    }

    fn current(&self) -> Arc<Current> {
        let current = self.0.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        let changing = self.0.changing.lock();
        changing.unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, current: Current) {
        let mut now = self
            .0
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(current);
    }

    /// Secures a connection that came in; only an operator gets through. One that was revoked does, too:
    /// it can be told so. See [`Self::revoked`].
    ///
    /// The caller bounds how long this may take.
    ///
    /// # Errors
    /// If the peer is no operator, or the connection breaks.
    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<(server::TlsStream<TcpStream>, Caller), std::io::Error> {
        use std::io::Error as Io;
        let acceptor = self.current().acceptor.clone();
        let stream = acceptor.accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates();
        let shown = shown.and_then(|chain| chain.first());
        let shown = shown.ok_or_else(|| Io::other("it has shown no certificate"))?;
        let certified = Certified::read(shown).map_err(Io::other)?;
        let until = certified.until();
        match certified.subject {
            Subject::Operator(name, grant) => {
                let caller = Caller {
                    name,
                    grant,
                    until,
                    serial: certified.serial,
                };
                Ok((stream, caller))
            }
            Subject::Agent(_) => Err(Io::other("it is no operator")),
        }
    }

    /// Which operators do not count any more, now and whenever that changes.
    pub fn revoked(&self) -> watch::Receiver<Arc<Revoked>> {
        self.0.revoked.subscribe()
    }

    /// Takes note of a list of revoked operators and keeps it beside the identity. Returns the number of
    /// the list that holds then: everybody who is on either list is on that one.
    ///
    /// # Errors
    /// If it is no list, somebody else than the operators' authority has signed it, one of the two lists
    /// is not a continuation of the other, or it cannot be kept; in that last case it holds until the
    /// agent ends.
    pub fn adopt(&self, list: &[u8]) -> Result<u64, Error> {
        let _changing = self.changing();
        let list = Revoked::read(list, &self.current().operators)?;
        let held = self.hold(list)?;
        // One that holds already may not have been kept when it came.
        let kept = read_any(&self.0.list, LIST_BYTES_MAX)?;
        if kept.as_deref() != Some(held.der()) {
            held.save(&self.0.list)?;
        }
        Ok(held.number())
    }

    /// Lets a list hold from now on, if it is newer than the one that does; returns the one that holds.
    fn hold(&self, list: Revoked) -> Result<Arc<Revoked>, Error> {
        let held = self.0.revoked.borrow().clone();
        if held.continues(&list) {
            return Ok(held);
        }
        if !list.continues(&held) {
            let why = format!(
                "list {} of revoked operators does not continue list {}, which this agent holds: the \
                 authority's own list was lost or copied. Stop using the copy; copy this agent's {} to \
                 operator-ca.crl of the directory, and revoke again",
                list.number(),
                held.number(),
                self.0.list.display(),
            );
            return Err(credentials_error("the revocation list", why));
        }
        let list = Arc::new(list);
        self.0.revoked.send_replace(list.clone());
        Ok(list)
    }

    /// Reads the files again that others may have replaced: the identity, and the list of revoked
    /// operators. A list of another authority than the identity's does not hold; one in the file that is
    /// older than the one that holds, or gone, is replaced by that.
    ///
    /// # Errors
    /// If one of them cannot be used; then what was read before goes on to hold. The other is used all the
    /// same.
    pub fn refresh(&self) -> Result<(), Error> {
        let _changing = self.changing();
        let identity = self.refresh_identity();
        let list = self.refresh_list();
        identity.and(list)
    }

    fn refresh_identity(&self) -> Result<(), Error> {
        let current = self.current();
        let text = read(&self.0.path)?;
        if text == current.text {
            return Ok(());
        }
        let next = Current::of(text, &self.0.path)?;
        let same = next.operators == current.operators;
        self.set(next);
        if !same {
            // Whom the old authority has revoked says nothing about the operators of the new one.
            self.0.revoked.send_replace(Arc::default());
        }
        Ok(())
    }

    fn refresh_list(&self) -> Result<(), Error> {
        let held = self.0.revoked.borrow().clone();
        let kept = read_any(&self.0.list, LIST_BYTES_MAX)?;
        let held = match kept.as_deref() {
            Some(list) if list == held.der() => return Ok(()),
            None => held,
            Some(list) => {
                let operators = &self.current().operators;
                self.hold(Revoked::read_at(list, &self.0.list, operators)?)?
            }
        };
        if held.der().is_empty() || kept.as_deref() == Some(held.der()) {
            return Ok(());
        }
        held.save(&self.0.list)
    }

    /// Makes a new key, and the request for a certificate of it.
    ///
    /// # Errors
    /// If the identity's file cannot be replaced, or the system has no randomness to give.
    pub fn request(&self) -> Result<Renewal, Error> {
        // Otherwise certificates would be issued in vain, as often as somebody calls.
        check_replaceable(&self.0.path)?;
        let of = self.current();
        let host = &of.host;
        let key = new_key(host)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, host);
        let request = params.serialize_request(&key);
        let request = request.map_err(|error| issue_error(host, error))?;
        Ok(Renewal {
            request: request.der().to_vec(),
            key,
            of,
        })
    }

    /// Uses a certificate that was issued upon a request, from the next connection on, and writes it to
    /// the identity's file. An identity that somebody else has put there meanwhile is used instead, and stays.
    ///
    /// # Errors
    /// If the agents' authority has not issued it, for this host and this key, if it cannot be written, or
    /// if what the file holds by now cannot be used or is to be renewed itself. Then the file stays as it was.
    pub fn renew(&self, renewal: &Renewal, certificate: &[u8]) -> Result<(), Error> {
        if certificate.len() > CERTIFICATE_BYTES_MAX {
            return Err(credentials_error("the new certificate", "it is too long"));
        }
        let _changing = self.changing();
        self.refresh_identity()?;
        let current = self.current();
        if !Arc::ptr_eq(&renewal.of, &current) {
            // By hand, or for another operator that has called at the same time.
            if !current.certified.is_due(SystemTime::now()) {
                return Ok(());
            }
            let why = "it is for an identity that was replaced meanwhile by one that is to be renewed, too";
            return Err(credentials_error("the new certificate", why));
        }
        let unusable =
            |error: &dyn std::fmt::Display| credentials_error("the new certificate", error);
        let verifier = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots(&current.agents)?),
            provider(),
        );
        let verifier = verifier.build().map_err(|error| unusable(&error))?;
        let new = CertificateDer::from(certificate);
        let name = server_name(&current.host)?;
        let now = UnixTime::since_unix_epoch(unix_now());
        verifier
            .verify_server_cert(&new, &[], &name, &[], now)
            .map_err(|error| unusable(&error))?;
        let authorities = [&current.operators, &current.agents].map(|it| pem_of(it));
        let [operators, agents] = authorities;
        let key = renewal.key.serialize_pem();
        let text = format!("{}{key}{operators}{agents}", pem_of(&new));
        // Also whether it is of that key.
        let renewed = Current::of(text, &self.0.path)?;
        replace(&self.0.path, renewed.text.as_bytes())?;
        self.set(renewed);
        Ok(())
    }
}

/// The file of the list of revoked operators beside an identity: its whole name and `.crl`, so that no
/// two identities share one.
pub fn list_of(identity: &Path) -> PathBuf {
    let mut name = identity.as_os_str().to_owned();
    name.push(".crl");
    name.into()
}

/// Reads arbitrary text as the file of an identity; for tests.
pub(super) fn fuzz(text: &str, path: &Path) {
    if let Ok(current) = Current::of(text.to_owned(), path) {
        assert_eq!(current.text, text);
        assert!(!current.host.is_empty());
    }
}

fn three(
    certificates: Vec<CertificateDer<'static>>,
    path: &Path,
) -> Result<[CertificateDer<'static>; 3], Error> {
    certificates.try_into().map_err(|found: Vec<_>| {
        unusable(
            path,
            format!("it holds {} certificates instead of 3", found.len()),
        )
    })
}
