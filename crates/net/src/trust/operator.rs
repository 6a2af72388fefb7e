//! An operator's end of a control connection.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client};

use super::certificates::configs;
use super::certified::{Certified, Subject};
use super::directory::{Directory, Role};
use super::revoked::Revoked;
use super::{files, server_name, shown, unusable};
use crate::error::Error;

/// An operator's identity: gives orders to agents.
#[derive(Clone)]
pub struct Operator {
    connector: TlsConnector,
    directory: Directory,
    /// Agents that do not count any more.
    revoked: Arc<Revoked>,
}

impl Operator {
    /// Reads the operator of a trust directory. Where a third of its certificate's life or less is left
    /// and the directory holds its authority, the certificate is renewed first.
    ///
    /// # Errors
    /// If the directory is not usable, or the certificate has expired.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        let directory = Directory::at(dir);
        let now = SystemTime::now();
        let renewed = directory.renew_operator(|own| own.is_due(now));
        let path = directory.operator();
        let (certificates, key) = files::load(&path)?;
        let own = certificates.into_iter().next();
        let own = own.ok_or_else(|| unusable(&path, "it holds no certificate"))?;
        let certified = Certified::read(&own)?;
        if certified.until() < now {
            // Why it was not renewed says more than that it should have been.
            renewed?;
            let until = shown(certified.until());
            return Err(unusable(
                &path,
                format!("it expired at {until}; whoever holds the authority issues a new one"),
            ));
        }
        if let Err(error) = renewed {
            tracing::warn!(%error, "the operator's certificate is not renewed");
        }
        let agents = directory.certificate(Role::Agent)?;
        let revoked = directory.revoked(Role::Agent)?;
        let (config, _) = configs(vec![own], &key, &agents, &agents)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            directory,
            revoked: Arc::new(revoked),
        })
    }

    /// Secures a connection to the agent on `host`; only that agent gets through. Returns what its
    /// certificate says, too.
    ///
    /// # Errors
    /// If `host` is neither a DNS name nor an address, if the peer is not its agent, was revoked or
    /// refuses this operator, or if the connection breaks.
    pub async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<(client::TlsStream<TcpStream>, Certified), std::io::Error> {
        use std::io::Error as Io;
        let name = server_name(host).map_err(Io::other)?;
        let stream = self.connector.connect(name, stream).await?;
        let shown = stream.get_ref().1.peer_certificates();
        let shown = shown.and_then(|chain| chain.first());
        let shown = shown.ok_or_else(|| Io::other("it has shown no certificate"))?;
        let agent = Certified::read(shown).map_err(Io::other)?;
        if self.revoked.has(&agent.serial) {
            return Err(Io::other("its identity was revoked"));
        }
        Ok((stream, agent))
    }

    /// Whether this operator can give agents new certificates.
    pub fn renews(&self) -> bool {
        self.directory.has(Role::Agent)
    }

    /// Signs the request of an agent that has shown this certificate: the new one is for the same host and
    /// for as long.
    ///
    /// # Errors
    /// If the certificate is no agent's, the request is none, or the directory is not usable.
    pub fn renew(&self, agent: &Certified, request: &[u8]) -> Result<Vec<u8>, Error> {
        match &agent.subject {
            Subject::Agent(host) => self.directory.renew_agent(host, agent.lifetime(), request),
            Subject::Operator(..) => Err(unusable(Path::new("the identity"), "it is no agent's")),
        }
    }
}
