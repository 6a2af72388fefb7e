//! Holds the agent against the contract of drivers, with real links over loopback sockets.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use outpour_conformance::{Accusation, BATCH_BLOCKS, BLOCK_BYTES, BLOCKS, Driver, Play, Wish};
use outpour_core::blocks::Want;
use outpour_core::manifest::BlockSize;
use outpour_net::{Endpoint, EndpointConfig, EndpointKey, SessionConfig, SessionId};
use outpour_protocols::coordinator::{self, Contact, Given, Order, Report, Stamp};
use outpour_store::{BuildOptions, DestinationOptions, build};
use outpour_terms::{Coding, Terms};
use tokio::runtime::Runtime;

use super::*;
use crate::content;

/// No case takes so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Orders that wait.
const CHANNEL: usize = 1024;

struct Agent;

/// One node, from the coordinator's side.
struct Host {
    id: NodeId,
    contact: Contact,
    orders: mpsc::Sender<Given>,
    reports: mailbox::Receiver<Report>,
    node: JoinHandle<Outcome>,
}

impl Driver for Agent {
    fn drive(&self, play: &Play) -> Result<Vec<Accusation>, String> {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let hosts = runtime.block_on(async { start(play, dir.path()) });
        let begun = std::time::Instant::now();
        while !play.is_over() {
            let rest = PATIENCE.saturating_sub(begun.elapsed());
            if rest.is_zero() {
                return Err(format!("no end in {PATIENCE:?}"));
            }
            play.wait(rest);
            while let Some(Wish::Expel(node)) = play.next_wish() {
                for host in hosts.iter().filter(|host| host.id != node) {
                    host.orders.try_send(given(Order::Left { node })).unwrap();
                }
            }
        }
        Ok(runtime.block_on(dismiss(hosts)))
    }
}

/// Starts all nodes and tells them to begin.
fn start(play: &Play, dir: &Path) -> Vec<Host> {
    let cast = SessionId::random().unwrap();
    let right = object(&dir.join("right"), 1);
    let wrong = object(&dir.join("wrong"), 2);
    let mut terms = Terms::new(play.protocol(), play.members(), 1);
    terms.block_bytes = BLOCK_BYTES;
    terms.coding = play.case().coded.then_some(Coding {
        batch_blocks: BATCH_BLOCKS,
        encoders: 1,
    });
    let terms = Arc::new(terms);
    let offer = content::offer(&right.0.encode(), 1);
    let hosts: Vec<Host> = (0..)
        .map(NodeId)
        .zip(play.case().parts)
        .map(|(id, part)| {
            let part = match part {
                outpour_conformance::Part::Source => source(&dir.join("right")),
                outpour_conformance::Part::Liar => source(&dir.join("wrong")),
                outpour_conformance::Part::Receiver => receiver(&dir.join(format!("copy{id}"))),
            };
            let config = NodeConfig {
                me: id,
                want: Want::All,
                terms: terms.clone(),
                manifest: Blob::offered(offer.clone()).unwrap(),
                fetches_manifest: false,
                part,
                wrap: None,
                memory: Memory::default(),
            };
            host(cast, config)
        })
        .collect();
    debug_assert_ne!(right.0.id(), wrong.0.id());
    let contacts: coordinator::Contacts =
        hosts.iter().map(|it| (it.id, it.contact.clone())).collect();
    for host in &hosts {
        let contacts = contacts.clone();
        host.orders
            .try_send(given(Order::Begin { contacts }))
            .unwrap();
    }
    hosts
}

fn given(order: Order) -> Given {
    let stamp = Stamp::default();
    Given { stamp, order }
}

fn host(cast: SessionId, config: NodeConfig) -> Host {
    let id = config.me;
    let key = EndpointKey::generate().unwrap();
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let endpoint = Endpoint::start(EndpointConfig::new(key, listen)).unwrap();
    let (session, events) = endpoint.session(&SessionConfig::new(cast, id)).unwrap();
    let contact = Contact {
        addrs: vec![endpoint.local_addr()],
        key: endpoint.key().0,
    };
    let (orders, order_rx) = mpsc::channel(CHANNEL);
    let (report_tx, reports) = mailbox::mailbox();
    let node = Node::new(config, session, report_tx).run(order_rx, events);
    Host {
        id,
        contact,
        orders,
        reports,
        node: tokio::spawn(node),
    }
}

/// Ends all nodes; what they had to say about one another.
async fn dismiss(hosts: Vec<Host>) -> Vec<Accusation> {
    for host in &hosts {
        host.orders.try_send(given(Order::Finish)).unwrap();
    }
    let mut told = Vec::new();
    for mut host in hosts {
        assert_eq!(host.node.await.unwrap(), Outcome::Finished);
        while let Some(report) = host.reports.try_recv() {
            match report {
                Report::Accuse { peer, .. } => told.push(Accusation { by: host.id, peer }),
                Report::Failed { error } => panic!("{} failed: {error}", host.id),
                _ => {}
            }
        }
    }
    told
}

/// Makes an object of the shape of all cases, whose bytes follow from a seed.
fn object(path: &Path, seed: u64) -> (Arc<Manifest>, Source) {
    let mut bytes = vec![0; (BLOCKS * BLOCK_BYTES) as usize];
    let mut noise = blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof();
    noise.fill(&mut bytes);
    std::fs::write(path, bytes).unwrap();
    opened(path)
}

fn opened(path: &Path) -> (Arc<Manifest>, Source) {
    let options = BuildOptions {
        block: BlockSize::Given(BLOCK_BYTES),
        ..BuildOptions::default()
    };
    let (manifest, source) = build(path, &options, &|_| {}).unwrap();
    assert_eq!(manifest.blocks(), BLOCKS);
    (Arc::new(manifest), source)
}

fn source(path: &Path) -> Part {
    let (manifest, source) = opened(path);
    Part::Source { manifest, source }
}

fn receiver(path: &Path) -> Part {
    let path = path.to_owned();
    let open = move |manifest| {
        let opened = Destination::open(&path, manifest, DestinationOptions::default());
        opened.map_err(|error| error.to_string())
    };
    Part::Receiver {
        open: Box::new(open),
        work: Arc::default(),
    }
}

#[test]
fn the_agent_keeps_the_contract() {
    let broken = outpour_conformance::run(&Agent);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
