//! Casts of several nodes in one process, and objects that live in memory.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use outpour_core::{BlockId, BlockSet, NodeId};
use outpour_net::frame::{JOIN_BYTES, Join};
use outpour_net::{
    Accept, BlockIo, Connections, Endpoint, EndpointConfig, EndpointKey, Events, KeyDigest, Member,
    Session, SessionConfig, SessionEvent, SessionId,
};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Nothing in these tests takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An object whose block `b` is a pattern only `b` has.
pub(crate) struct Object {
    blocks: u32,
    len: u32,
    state: Mutex<BlockSet>,
    /// While true, `accept` waits.
    held: Mutex<bool>,
    released: Condvar,
    /// Whether `accept` fails.
    failing: AtomicBool,
    /// The blocks read are those of the pattern moved by this many.
    shift: u32,
}

pub(crate) fn pattern(block: BlockId, len: u32) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(block * 97) >> 13) as u8)
        .collect()
}

impl Object {
    pub(crate) fn full(blocks: u32, len: u32) -> Arc<Self> {
        Self::new(BlockSet::full(blocks), len, 0)
    }

    /// An object whose blocks are not those of the pattern.
    pub(crate) fn shifted(blocks: u32, len: u32) -> Arc<Self> {
        Self::new(BlockSet::full(blocks), len, 1)
    }

    pub(crate) fn empty(blocks: u32, len: u32) -> Arc<Self> {
        Self::new(BlockSet::new(blocks), len, 0)
    }

    fn new(have: BlockSet, len: u32, shift: u32) -> Arc<Self> {
        Arc::new(Self {
            blocks: have.len(),
            len,
            state: Mutex::new(have),
            held: Mutex::new(false),
            released: Condvar::new(),
            failing: AtomicBool::new(false),
            shift,
        })
    }

    pub(crate) fn have(&self) -> u32 {
        self.state.lock().unwrap().count()
    }

    pub(crate) fn fail(&self, fail: bool) {
        self.failing.store(fail, Ordering::SeqCst);
    }

    pub(crate) fn hold(&self, hold: bool) {
        *self.held.lock().unwrap() = hold;
        self.released.notify_all();
    }
}

impl BlockIo for Object {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        (block < self.blocks).then_some(self.len)
    }

    fn has(&self, block: BlockId) -> bool {
        self.state.lock().unwrap().contains(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        if !self.has(block) {
            return Err(io::Error::other("the medium is damaged"));
        }
        *buf = pattern(block + self.shift, self.len);
        Ok(())
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |held| *held).unwrap());
        if data != pattern(block, self.len) {
            return Accept::Wrong;
        }
        if self.failing.load(Ordering::SeqCst) {
            return Accept::Failed("no space left on device".into());
        }
        if self.state.lock().unwrap().insert(block) {
            Accept::Stored
        } else {
            Accept::Duplicate
        }
    }
}

/// What a node is started with.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) endpoint: EndpointConfig,
    pub(crate) session: SessionConfig,
}

/// What can be said about a node before it starts.
pub(crate) struct Cast {
    pub(crate) id: SessionId,
}

impl Cast {
    pub(crate) fn new() -> Self {
        Self {
            id: SessionId::random().unwrap(),
        }
    }

    /// A member's part in it, over one connection.
    pub(crate) fn session(&self, node: u32) -> SessionConfig {
        let mut config = SessionConfig::new(self.id, NodeId(node));
        config.connections = Connections::Fixed(1);
        config
    }

    pub(crate) fn config(&self, node: u32) -> Config {
        Config {
            endpoint: endpoint_config(),
            session: self.session(node),
        }
    }

    pub(crate) fn start(&self, node: u32) -> Node {
        Node::start(self.config(node))
    }

    /// Starts a node on an endpoint that others use, too.
    pub(crate) fn join(&self, node: u32, endpoint: &Endpoint) -> Node {
        Node::join(endpoint, &self.session(node))
    }

    /// `count` nodes that know each other.
    pub(crate) fn nodes(&self, count: u32) -> Vec<Node> {
        let nodes: Vec<_> = (0..count).map(|node| self.start(node)).collect();
        introduce(&nodes);
        nodes
    }
}

pub(crate) fn endpoint_config() -> EndpointConfig {
    EndpointConfig::new(EndpointKey::generate().unwrap(), loopback())
}

pub(crate) fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(crate) fn introduce(nodes: &[Node]) {
    for a in nodes {
        for b in nodes.iter().filter(|b| b.id != a.id) {
            a.session.set_member(b.id, b.member());
        }
    }
}

/// A member with its events.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) session: Session,
    pub(crate) events: Events,
    pub(crate) endpoint: Endpoint,
    /// Events that were taken while looking for others.
    pub(crate) seen: VecDeque<SessionEvent>,
}

impl Node {
    pub(crate) fn start(config: Config) -> Self {
        let endpoint = Endpoint::start(config.endpoint).unwrap();
        Self::join(&endpoint, &config.session)
    }

    pub(crate) fn join(endpoint: &Endpoint, config: &SessionConfig) -> Self {
        let (session, events) = endpoint.session(config).unwrap();
        Self {
            id: config.node,
            session,
            events,
            endpoint: endpoint.clone(),
            seen: VecDeque::new(),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    pub(crate) fn member(&self) -> Member {
        Member {
            addrs: vec![self.addr()],
            key: self.endpoint.key(),
        }
    }

    /// The next event, seen or new.
    pub(crate) async fn next(&mut self) -> SessionEvent {
        if let Some(event) = self.seen.pop_front() {
            return event;
        }
        let event = timeout(PATIENCE, self.events.recv()).await;
        event
            .unwrap_or_else(|_| panic!("{}: no event", self.id))
            .expect("the session runs")
    }

    /// The next event that `wanted` says yes to; the others stay in `seen`.
    pub(crate) async fn find(
        &mut self,
        what: &str,
        wanted: impl Fn(&SessionEvent) -> bool,
    ) -> SessionEvent {
        if let Some(at) = self.seen.iter().position(&wanted) {
            return self.seen.remove(at).unwrap();
        }
        loop {
            let event = timeout(PATIENCE, self.events.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("{}: no {what}: {:?}", self.id, self.seen));
            let event = event.expect("the session runs");
            if wanted(&event) {
                return event;
            }
            self.seen.push_back(event);
        }
    }

    pub(crate) async fn up(&mut self, transfer: u8, peer: NodeId) {
        self.find("PeerUp", |e| *e == SessionEvent::PeerUp { transfer, peer })
            .await;
    }

    pub(crate) async fn down(&mut self, transfer: u8, peer: NodeId) {
        self.find("PeerDown", |e| {
            *e == SessionEvent::PeerDown { transfer, peer }
        })
        .await;
    }

    /// What a peer did that was cut off for it.
    pub(crate) async fn cut_off(&mut self, of: NodeId) -> String {
        let wanted =
            |e: &SessionEvent| matches!(e, SessionEvent::CutOff { peer, .. } if *peer == of);
        match self.find("CutOff", wanted).await {
            SessionEvent::CutOff { why, .. } => why,
            _ => unreachable!(),
        }
    }

    pub(crate) async fn unreachable(&mut self, of: NodeId) -> String {
        let wanted =
            |e: &SessionEvent| matches!(e, SessionEvent::Unreachable { peer, .. } if *peer == of);
        match self.find("Unreachable", wanted).await {
            SessionEvent::Unreachable { why, .. } => why,
            _ => unreachable!(),
        }
    }

    pub(crate) async fn arrived(&mut self) -> (NodeId, BlockId, bool) {
        match self
            .find("Arrived", |e| matches!(e, SessionEvent::Arrived { .. }))
            .await
        {
            SessionEvent::Arrived {
                from, block, fresh, ..
            } => (from, block, fresh),
            _ => unreachable!(),
        }
    }
}

/// Waits until a node has at least so many connections. No event says so: it is looked at again and again.
pub(crate) async fn connected(node: &Node, count: u64) {
    let grown = async {
        while node.session.stats().connections < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = timeout(PATIENCE, grown).await.is_ok();
    assert!(in_time, "{}: {:?}", node.id, node.session.stats());
}

/// Two nodes, 0 and 1, with transfer 0 up between them.
pub(crate) async fn pair(a: Config, b: Config, ios: [Arc<Object>; 2]) -> [Node; 2] {
    let mut nodes = [Node::start(a), Node::start(b)];
    introduce(&nodes);
    for (node, io) in nodes.iter().zip(ios) {
        node.session.open(0, io);
    }
    let [a, b] = &mut nodes;
    a.session.connect(b.id);
    a.up(0, b.id).await;
    b.up(0, a.id).await;
    nodes
}

pub(crate) type Tls = tokio_rustls::client::TlsStream<TcpStream>;
pub(crate) type ServerTls = tokio_rustls::server::TlsStream<TcpStream>;

/// A member of a cast that speaks through a stock TLS stack and says what it likes.
pub(crate) struct Stranger {
    pub(crate) node: NodeId,
    session: SessionId,
    key: Arc<CertifiedKey>,
}

impl Stranger {
    pub(crate) fn new(cast: &Cast, node: u32) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let key = provider().key_provider.load_private_key(der).unwrap();
        let shown = CertificateDer::from(key.public_key().unwrap().to_vec());
        Self {
            node: NodeId(node),
            session: cast.id,
            key: Arc::new(CertifiedKey::new(vec![shown], key)),
        }
    }

    pub(crate) fn digest(&self) -> KeyDigest {
        KeyDigest::of(&self.key.cert[0])
    }

    pub(crate) fn member(&self, addr: SocketAddr) -> Member {
        Member {
            addrs: vec![addr],
            key: self.digest(),
        }
    }

    /// The payload with which it joins the session with a member.
    pub(crate) fn join(&self, to: NodeId) -> [u8; JOIN_BYTES] {
        let (session, from) = (self.session, self.node);
        Join { session, from, to }.encode()
    }

    pub(crate) async fn dial(&self, addr: SocketAddr) -> Tls {
        self.secure(TcpStream::connect(addr).await.unwrap()).await
    }

    /// Authenticates on a connection that it has made.
    pub(crate) async fn secure(&self, stream: TcpStream) -> Tls {
        let resolver = AlwaysResolvesClientRawPublicKeys::new(self.key.clone());
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_client_cert_resolver(Arc::new(resolver));
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = "127.0.0.1".try_into().unwrap();
        connector.connect(name, stream).await.unwrap()
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> ServerTls {
        self.try_accept(stream).await.unwrap()
    }

    /// The same, for a caller that may find that this is not the peer it wanted.
    pub(crate) async fn try_accept(&self, stream: TcpStream) -> io::Result<ServerTls> {
        let resolver = AlwaysResolvesServerRawPublicKeys::new(self.key.clone());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(Arc::new(Anybody))
            .with_cert_resolver(Arc::new(resolver));
        config.send_tls13_tickets = 0;
        tokio_rustls::TlsAcceptor::from(Arc::new(config))
            .accept(stream)
            .await
    }
}

/// Takes every peer for the one it says it is.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        unreachable!("TLS 1.3 only")
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        unreachable!("TLS 1.3 only")
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
