//! A trust directory: what its authorities issue, renew and revoke, and the record of that.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, Issuer, KeyPair,
    PKCS_ED25519, PublicKeyData,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};

use super::certificates::{authority_params, leaf_params};
use super::certified::{Certified, Lifetime, Serial, Subject};
use super::files::{self, create, read, replace};
use super::grant::Grant;
use super::record::{self, Issued, Kind};
use super::revoked::{LIST_BYTES_MAX, Revoked};
use super::{new_key, server_name, unusable, years};
use crate::error::Error;
use crate::identity::{credentials_error, issue_error};

/// Authorities are valid for so long.
const AUTHORITY_YEARS: u32 = 10;
// No certificate outlives a fresh authority.
const _: () = assert!(Lifetime::DAYS_MAX < AUTHORITY_YEARS * 365);

/// The operator that a new directory has.
const FIRST_OPERATOR: &str = "operator";

/// How long a request for a certificate may be, in bytes.
pub const REQUEST_BYTES_MAX: usize = 4 << 10;

/// The two authorities of a trust directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Operator,
    Agent,
}

impl Role {
    const BOTH: [Self; 2] = [Self::Operator, Self::Agent];

    const fn stem(self) -> &'static str {
        match self {
            Self::Operator => "operator-ca",
            Self::Agent => "agent-ca",
        }
    }

    const fn usage(self) -> ExtendedKeyUsagePurpose {
        match self {
            Self::Operator => ExtendedKeyUsagePurpose::ClientAuth,
            Self::Agent => ExtendedKeyUsagePurpose::ServerAuth,
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::Operator => Kind::Operator,
            Self::Agent => Kind::Agent,
        }
    }

    /// Every field of the authority's certificate; the same each time but for the dates, so that
    /// the key alone brings the issuer back.
    fn params(self) -> CertificateParams {
        authority_params(&format!("Outpour {}", self.stem()), years(AUTHORITY_YEARS))
    }
}

/// What came of revoking a name.
#[derive(Debug)]
pub struct Revocation {
    /// The certificates of that name that were issued, those included that were revoked before or, of
    /// operators, have expired within 30 days.
    pub certificates: Vec<Issued>,
    /// The list of revoked operators as agents are told it; `None` if no operator was revoked.
    pub for_agents: Option<Revoked>,
}

/// A trust directory.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    /// How long ago what it issues was issued, by its own account.
    age: Duration,
}

impl Directory {
    /// The trust directory at `path`, with whatever is in it.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            age: Duration::ZERO,
        }
    }

    /// The same, but what it issues is as old as this. For tests of what becomes due.
    #[doc(hidden)]
    #[must_use]
    pub fn aged(self, age: Duration) -> Self {
        Self { age, ..self }
    }

    /// Makes two new authorities and an operator that may do everything.
    ///
    /// # Errors
    /// If the directory holds an authority already, or cannot be written.
    pub fn init(&self) -> Result<(), Error> {
        make(&self.path)?;
        let _locked = self.lock()?;
        for role in Role::BOTH {
            let path = self.key(role);
            if path.exists() {
                return Err(Error::Exists { path });
            }
        }
        for role in Role::BOTH {
            let pair = new_key(role.stem())?;
            let issued = role.params().self_signed(&pair);
            let certificate = issued.map_err(|error| issue_error(role.stem(), error))?;
            create(&self.key(role), &pair.serialize_pem())?;
            create(&self.authority(role), &certificate.pem())?;
        }
        let first = Grant::default();
        let text = self.sign_operator(FIRST_OPERATOR, &first, Lifetime::default())?;
        create(&self.operator(), &text)
    }

    /// Issues the identity of the agent on `host` and writes it to `out`, for that host alone.
    ///
    /// # Errors
    /// If `host` is neither a DNS name nor an address, if the directory is not usable, or if `out`
    /// exists.
    pub fn issue(&self, host: &str, lifetime: Lifetime, out: &Path) -> Result<(), Error> {
        server_name(host)?;
        let authorities =
            read(&self.authority(Role::Operator))? + &read(&self.authority(Role::Agent))?;
        let _locked = self.lock()?;
        if out.exists() {
            let path = out.to_owned();
            return Err(Error::Exists { path });
        }
        let pair = new_key(host)?;
        let certificate = self.sign(Role::Agent, host, agent_params(host, lifetime)?, &pair)?;
        let own = certificate.pem() + &pair.serialize_pem();
        create(out, &format!("{own}{authorities}"))
    }

    /// Issues the identity of an operator and writes it into the directory `out`, which is a trust
    /// directory without authorities then. An identity of the same operator there is replaced.
    ///
    /// # Errors
    /// If the name is none, if this directory is not usable, or if `out` cannot be written or has
    /// another operator.
    pub fn issue_operator(
        &self,
        name: &str,
        grant: &Grant,
        lifetime: Lifetime,
        out: &Path,
    ) -> Result<(), Error> {
        let _locked = self.lock()?;
        // Nothing is made for a name that is none, or by a directory that cannot sign.
        grant.certified(name)?;
        self.issuer(Role::Operator)?;
        make(out)?;
        let to = Self::at(out);
        let theirs = to.operator();
        if theirs.exists() {
            match own(&theirs)?.subject {
                Subject::Operator(other, _) if other == name => {}
                _ => return Err(Error::Exists { path: theirs }),
            }
        }
        let agents = read(&self.authority(Role::Agent))?;
        let known = to.authority(Role::Agent);
        if !known.exists() {
            create(&known, &agents)?;
        } else if read(&known)? != agents {
            return Err(Error::Exists { path: known });
        }
        let revoked = self.revoked(Role::Agent)?;
        if !revoked.is_empty() && to.path != self.path {
            revoked.save(&to.list(Role::Agent))?;
        }
        let text = self.sign_operator(name, grant, lifetime)?;
        replace(&theirs, text.as_bytes())
    }

    /// What the newest certificate of an operator grants that is on record; `None` if there is none. What
    /// the operator itself has in its directory counts for nothing.
    ///
    /// # Errors
    /// If the directory is not usable.
    pub fn granted(&self, name: &str) -> Result<Option<Grant>, Error> {
        let mut all = record::load(&self.record())?.into_iter().rev();
        let newest = all.find(|it| it.kind == Kind::Operator && it.name == name);
        Ok(newest.map(|issued| issued.grant))
    }

    /// Issues the operator of this directory a new certificate like the one it has, if that is `due`;
    /// whether it did. Without the operators' authority it cannot.
    ///
    /// # Errors
    /// If the operator was revoked, or the directory is not usable.
    pub fn renew_operator(&self, due: impl Fn(&Certified) -> bool) -> Result<bool, Error> {
        if !self.has(Role::Operator) || !due(&own(&self.operator())?) {
            return Ok(false);
        }
        let _locked = self.lock()?;
        // Another process may have been faster.
        let old = own(&self.operator())?;
        if !due(&old) {
            return Ok(false);
        }
        let Subject::Operator(name, grant) = &old.subject else {
            return Err(unusable(&self.operator(), "it is no operator's"));
        };
        if self.revoked(Role::Operator)?.has(&old.serial) {
            return Err(unusable(&self.operator(), "it was revoked"));
        }
        let text = self.sign_operator(name, grant, old.lifetime())?;
        replace(&self.operator(), text.as_bytes())?;
        Ok(true)
    }

    /// Signs what the agent on `host` has asked for, in place of the certificate that it has shown.
    ///
    /// # Errors
    /// If the request is none, or the directory is not usable.
    pub(super) fn renew_agent(
        &self,
        host: &str,
        lifetime: Lifetime,
        request: &[u8],
    ) -> Result<Vec<u8>, Error> {
        if request.len() > REQUEST_BYTES_MAX {
            return Err(issue_error(host, "the request is too long"));
        }
        // Its signature proves that the agent has the key. Nothing else of it counts.
        let request = CertificateSigningRequestDer::from(request);
        let request = CertificateSigningRequestParams::from_der(&request)
            .map_err(|error| issue_error(host, error))?;
        if request.public_key.algorithm() != &PKCS_ED25519 {
            return Err(issue_error(host, "the request is of another sort of key"));
        }
        let _locked = self.lock()?;
        let params = agent_params(host, lifetime)?;
        let certificate = self.sign(Role::Agent, host, params, &request.public_key)?;
        Ok(certificate.der().to_vec())
    }

    /// Revokes every certificate of an operator or a host, of both if both have this name.
    ///
    /// # Errors
    /// If no certificate of that name is known, or the directory is not usable.
    pub fn revoke(&self, name: &str) -> Result<Revocation, Error> {
        let _locked = self.lock()?;
        let mut certificates = record::load(&self.record())?;
        certificates.retain(|issued| issued.name == name);
        if certificates.is_empty() {
            let why = format!("no certificate of {name} was issued, or all expired long ago");
            return Err(unusable(&self.record(), why));
        }
        let mut for_agents = None;
        for role in Role::BOTH {
            let of_role = certificates.iter().filter(|it| it.kind == role.kind());
            let serials: Vec<Serial> = of_role.map(|it| it.serial.clone()).collect();
            if serials.is_empty() {
                continue;
            }
            let list = self.extend_list(role, &serials)?;
            if role == Role::Operator {
                for_agents = Some(list);
            }
        }
        Ok(Revocation {
            certificates,
            for_agents,
        })
    }

    /// The list with these certificates on it. It gets a new number only for new ones.
    fn extend_list(&self, role: Role, serials: &[Serial]) -> Result<Revoked, Error> {
        let list = self.revoked(role)?;
        if serials.iter().all(|serial| list.has(serial)) {
            return Ok(list);
        }
        let authority = self.certificate(role)?;
        let next = list.with(serials, &self.issuer(role)?, &authority)?;
        debug_assert!(next.number() > list.number());
        next.save(&self.list(role))?;
        Ok(next)
    }

    /// The certificates that were issued and have not expired, each with whether it was revoked.
    ///
    /// # Errors
    /// If the directory is not usable.
    pub fn issued(&self) -> Result<Vec<(Issued, bool)>, Error> {
        let mut all = record::load(&self.record())?;
        all.retain(Issued::is_valid);
        all.sort_by(|a, b| (a.kind, &a.name, a.until()).cmp(&(b.kind, &b.name, b.until())));
        let lists = [self.revoked(Role::Operator)?, self.revoked(Role::Agent)?];
        let with = |issued: Issued| {
            let revoked = lists.iter().any(|list| list.has(&issued.serial));
            (issued, revoked)
        };
        Ok(all.into_iter().map(with).collect())
    }

    /// The hosts that have an agent with a certificate that counts.
    ///
    /// # Errors
    /// If the directory is not usable.
    pub fn hosts(&self) -> Result<Vec<String>, Error> {
        let issued = self.issued()?.into_iter();
        let agents = issued.filter(|(issued, revoked)| issued.kind == Kind::Agent && !revoked);
        let mut hosts: Vec<String> = agents.map(|(issued, _)| issued.name).collect();
        hosts.dedup();
        Ok(hosts)
    }

    /// The list of revoked operators as agents are told it; `None` if none was.
    ///
    /// # Errors
    /// If the directory is not usable.
    pub fn revoked_operators(&self) -> Result<Option<Revoked>, Error> {
        if !self.authority(Role::Operator).exists() {
            return Ok(None);
        }
        let list = self.revoked(Role::Operator)?;
        Ok((!list.is_empty()).then_some(list))
    }

    /// Which certificates of an authority were revoked, as far as this directory knows.
    pub(super) fn revoked(&self, role: Role) -> Result<Revoked, Error> {
        let list = self.list(role);
        match files::read_any(&list, LIST_BYTES_MAX)? {
            Some(der) => Revoked::read_at(&der, &list, &self.certificate(role)?),
            None => Ok(Revoked::default()),
        }
    }

    /// Whether it holds the key of an authority.
    pub(super) fn has(&self, role: Role) -> bool {
        self.key(role).exists()
    }

    /// The certificate of an authority.
    pub(super) fn certificate(&self, role: Role) -> Result<CertificateDer<'static>, Error> {
        let path = self.authority(role);
        let text = read(&path)?;
        CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| unusable(&path, error))
    }

    fn sign_operator(
        &self,
        name: &str,
        grant: &Grant,
        lifetime: Lifetime,
    ) -> Result<String, Error> {
        let usage = Role::Operator.usage();
        let params = leaf_params(name, grant.certified(name)?, usage, lifetime.duration())?;
        let pair = new_key(name)?;
        let certificate = self.sign(Role::Operator, name, params, &pair)?;
        Ok(certificate.pem() + &pair.serialize_pem())
    }

    /// Issues a certificate and records it; what is not recorded could not be revoked. The caller holds
    /// the lock.
    fn sign(
        &self,
        role: Role,
        name: &str,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<rcgen::Certificate, Error> {
        let age = self.age.try_into().unwrap_or(time::Duration::MAX);
        params.not_before = params.not_before.saturating_sub(age);
        params.not_after = params.not_after.saturating_sub(age);
        let signed = params.signed_by(key, &self.issuer(role)?);
        let signed = signed.map_err(|error| issue_error(name, error))?;
        record::add(&self.record(), Issued::of(&Certified::read(signed.der())?))?;
        Ok(signed)
    }

    fn issuer(&self, role: Role) -> Result<Issuer<'static, KeyPair>, Error> {
        let path = self.key(role);
        let key = KeyPair::from_pem(&read(&path)?)
            .map_err(|error| credentials_error(&path.display().to_string(), error))?;
        Ok(Issuer::new(role.params(), key))
    }

    /// Keeps other processes from changing the directory.
    fn lock(&self) -> Result<File, Error> {
        let file = |error| Error::File {
            path: self.path.clone(),
            error,
        };
        let dir = File::open(&self.path).map_err(file)?;
        dir.lock().map_err(file)?;
        Ok(dir)
    }

    pub(super) fn operator(&self) -> PathBuf {
        self.path.join("operator.pem")
    }

    fn authority(&self, role: Role) -> PathBuf {
        self.path.join(role.stem()).with_extension("pem")
    }

    fn key(&self, role: Role) -> PathBuf {
        self.path.join(role.stem()).with_extension("key")
    }

    fn list(&self, role: Role) -> PathBuf {
        self.path.join(role.stem()).with_extension("crl")
    }

    fn record(&self) -> PathBuf {
        self.path.join("issued.jsonl")
    }
}

fn agent_params(host: &str, lifetime: Lifetime) -> Result<CertificateParams, Error> {
    let names = CertificateParams::new([host.to_owned()]);
    let names = names
        .map_err(|error| issue_error(host, error))?
        .subject_alt_names;
    debug_assert_eq!(names.len(), 1, "a certificate names one host");
    leaf_params(host, names, Role::Agent.usage(), lifetime.duration())
}

/// What the first certificate of an identity says.
fn own(path: &Path) -> Result<Certified, Error> {
    let (certificates, _) = files::load(path)?;
    let own = certificates.first();
    let own = own.ok_or_else(|| unusable(path, "it holds no certificate"))?;
    Certified::read(own)
}

/// Makes a directory for identities, unless it is there.
fn make(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Error::File {
        path: path.to_owned(),
        error,
    })?;
    debug_assert!(fs::metadata(path).is_ok_and(|it| it.is_dir()));
    Ok(())
}
