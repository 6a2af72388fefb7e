//! Casts of several nodes in one process, and objects that live in memory.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use outpour_core::{BlockId, BlockSet, NodeId};
use outpour_net::frame::{Hello, Purpose};
use outpour_net::{
    Accept, BlockIo, CastAuthority, CastId, Connections, Events, Member, Mesh, MeshConfig,
    MeshEvent, NodeIdentity, NodeKey, certificate_digest,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
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

/// What can be said about a node before it starts.
pub(crate) struct Cast {
    pub(crate) authority: CastAuthority,
}

impl Cast {
    pub(crate) fn new() -> Self {
        Self {
            authority: CastAuthority::new().unwrap(),
        }
    }

    pub(crate) fn identity(&self, node: u32) -> NodeIdentity {
        let key = NodeKey::generate().unwrap();
        let node = NodeId(node);
        let certificate = self.authority.issue(node, &key.public_key()).unwrap();
        let authority = self.authority.certificate();
        NodeIdentity::new(&key, self.authority.cast(), node, &certificate, authority).unwrap()
    }

    pub(crate) fn config(&self, node: u32) -> MeshConfig {
        let mut config = MeshConfig::new(self.identity(node), loopback());
        config.connections = Connections::Fixed(1);
        config
    }

    pub(crate) fn start(&self, node: u32) -> Node {
        Node::start(self.config(node))
    }

    /// `count` nodes that know each other.
    pub(crate) fn nodes(&self, count: u32) -> Vec<Node> {
        let nodes: Vec<_> = (0..count).map(|node| self.start(node)).collect();
        introduce(&nodes);
        nodes
    }
}

pub(crate) fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(crate) fn introduce(nodes: &[Node]) {
    for a in nodes {
        for b in nodes.iter().filter(|b| b.id != a.id) {
            a.mesh.set_member(b.id, b.member());
        }
    }
}

/// A mesh with its events.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) mesh: Mesh,
    pub(crate) events: Events,
    pub(crate) digest: [u8; 32],
    /// Events that were taken while looking for others.
    pub(crate) seen: VecDeque<MeshEvent>,
}

impl Node {
    pub(crate) fn start(config: MeshConfig) -> Self {
        let (id, digest) = (config.identity.node(), config.identity.digest());
        let (mesh, events) = Mesh::start(config).unwrap();
        Self {
            id,
            mesh,
            events,
            digest,
            seen: VecDeque::new(),
        }
    }

    pub(crate) fn member(&self) -> Member {
        Member {
            addrs: vec![self.mesh.local_addr()],
            certificate: self.digest,
        }
    }

    /// The next event, seen or new.
    pub(crate) async fn next(&mut self) -> MeshEvent {
        if let Some(event) = self.seen.pop_front() {
            return event;
        }
        let event = timeout(PATIENCE, self.events.recv()).await;
        event
            .unwrap_or_else(|_| panic!("{}: no event", self.id))
            .expect("the mesh runs")
    }

    /// The next event that `wanted` says yes to; the others stay in `seen`.
    pub(crate) async fn find(
        &mut self,
        what: &str,
        wanted: impl Fn(&MeshEvent) -> bool,
    ) -> MeshEvent {
        if let Some(at) = self.seen.iter().position(&wanted) {
            return self.seen.remove(at).unwrap();
        }
        loop {
            let event = timeout(PATIENCE, self.events.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("{}: no {what}: {:?}", self.id, self.seen));
            let event = event.expect("the mesh runs");
            if wanted(&event) {
                return event;
            }
            self.seen.push_back(event);
        }
    }

    pub(crate) async fn up(&mut self, transfer: u8, peer: NodeId) {
        self.find("PeerUp", |e| *e == MeshEvent::PeerUp { transfer, peer })
            .await;
    }

    pub(crate) async fn down(&mut self, transfer: u8, peer: NodeId) {
        self.find("PeerDown", |e| *e == MeshEvent::PeerDown { transfer, peer })
            .await;
    }

    pub(crate) async fn unreachable(&mut self, of: NodeId) -> String {
        let wanted =
            |e: &MeshEvent| matches!(e, MeshEvent::Unreachable { peer, .. } if *peer == of);
        match self.find("Unreachable", wanted).await {
            MeshEvent::Unreachable { why, .. } => why,
            _ => unreachable!(),
        }
    }

    pub(crate) async fn arrived(&mut self) -> (NodeId, BlockId, bool) {
        match self
            .find("Arrived", |e| matches!(e, MeshEvent::Arrived { .. }))
            .await
        {
            MeshEvent::Arrived {
                from, block, fresh, ..
            } => (from, block, fresh),
            _ => unreachable!(),
        }
    }
}

/// Two nodes, 0 and 1, with transfer 0 up between them.
pub(crate) async fn pair(a: MeshConfig, b: MeshConfig, ios: [Arc<Object>; 2]) -> [Node; 2] {
    let mut nodes = [Node::start(a), Node::start(b)];
    introduce(&nodes);
    for (node, io) in nodes.iter().zip(ios) {
        node.mesh.open(0, io);
    }
    let [a, b] = &mut nodes;
    a.mesh.connect(b.id);
    a.up(0, b.id).await;
    b.up(0, a.id).await;
    nodes
}

pub(crate) type Tls = tokio_rustls::client::TlsStream<TcpStream>;
pub(crate) type ServerTls = tokio_rustls::server::TlsStream<TcpStream>;

/// A member of a cast that speaks through a stock TLS stack and says what it likes.
pub(crate) struct Stranger {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    cast: CastId,
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
    roots: RootCertStore,
}

impl Stranger {
    pub(crate) fn new(cast: &Cast, node: u32) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let public = pair.public_key_raw().try_into().unwrap();
        let node = NodeId(node);
        let certificate = cast.authority.issue(node, &public).unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(cast.authority.certificate().to_vec().into())
            .unwrap();
        Self {
            node,
            incarnation: 1,
            cast: cast.authority.cast(),
            chain: vec![certificate.into()],
            key: pair.serialize_der(),
            roots,
        }
    }

    pub(crate) fn member(&self, addr: SocketAddr) -> Member {
        Member {
            addrs: vec![addr],
            certificate: certificate_digest(&self.chain[0]),
        }
    }

    pub(crate) fn hello(&self, purpose: Purpose) -> Hello {
        let Self {
            node,
            cast,
            incarnation,
            ..
        } = *self;
        Hello {
            purpose,
            node,
            cast,
            incarnation,
        }
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }

    pub(crate) async fn dial(&self, addr: SocketAddr, peer: NodeId) -> Tls {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(self.chain.clone(), self.key())
            .unwrap();
        let name = format!("{peer}.{}.outpour", self.cast).try_into().unwrap();
        let stream = TcpStream::connect(addr).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.unwrap()
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> ServerTls {
        self.try_accept(stream).await.unwrap()
    }

    /// The same, for a caller who may find that this is not whom it wanted.
    pub(crate) async fn try_accept(&self, stream: TcpStream) -> io::Result<ServerTls> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key())
            .unwrap();
        config.send_tls13_tickets = 0;
        tokio_rustls::TlsAcceptor::from(Arc::new(config))
            .accept(stream)
            .await
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
