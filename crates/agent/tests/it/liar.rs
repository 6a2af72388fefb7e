//! An agent that is honest but for the bytes it sends: what members and the coordinator see of it
//! is the real protocol on the real data plane.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outpour_agent::control::{
    Admission, AgentSays, CommandSays, Greeting, read_frame, write_frame,
};
use outpour_core::manifest::Manifest;
use outpour_core::{BlockId, BlockSet, NodeId, Time};
use outpour_net::{
    Accept, BlockIo, CastId, Events, Member, Mesh, MeshConfig, MeshEvent, NodeIdentity, NodeKey,
};
use outpour_protocols::coordinator::{Contact, Order, Report};
use outpour_protocols::{Action, Actions, Event, Protocol, Setup, TimerId, registry};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::support::LOOPBACK;

const MANIFEST: u8 = 0;
const OBJECT: u8 = 1;

/// What a rogue lies about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lies {
    /// The blocks of the manifest.
    Manifest,
    /// The blocks of the object.
    Object,
}

/// An object kept as it comes; or, if it is lied about, wrong bytes of the right length for all of
/// it from the start.
struct Kept {
    lens: Vec<u32>,
    blocks: Mutex<(BlockSet, BTreeMap<BlockId, Vec<u8>>)>,
    lied: Option<Arc<AtomicU64>>,
}

impl Kept {
    fn new(lens: impl Iterator<Item = u32>, lied: Option<Arc<AtomicU64>>) -> Arc<Self> {
        let lens: Vec<u32> = lens.collect();
        let have = match lied {
            Some(_) => BlockSet::full(lens.len() as u32),
            None => BlockSet::new(lens.len() as u32),
        };
        Arc::new(Self {
            lens,
            blocks: Mutex::new((have, BTreeMap::new())),
            lied,
        })
    }

    fn have(&self) -> BlockSet {
        self.blocks.lock().unwrap().0.clone()
    }

    /// The whole object, once every block has come.
    fn bytes(&self) -> Option<Vec<u8>> {
        let blocks = self.blocks.lock().unwrap();
        let whole = blocks.1.len() == self.lens.len();
        whole.then(|| blocks.1.values().flatten().copied().collect())
    }
}

impl BlockIo for Kept {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.lens.get(block as usize).copied()
    }

    fn has(&self, block: BlockId) -> bool {
        self.blocks.lock().unwrap().0.contains(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        buf.clear();
        if let Some(lied) = &self.lied {
            buf.resize(self.lens[block as usize] as usize, 0xa5);
            lied.fetch_add(1, Ordering::Relaxed);
        } else {
            buf.extend(&self.blocks.lock().unwrap().1[&block]);
        }
        Ok(())
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        let mut blocks = self.blocks.lock().unwrap();
        blocks.1.insert(block, data.to_vec());
        if blocks.0.insert(block) {
            Accept::Stored
        } else {
            Accept::Duplicate
        }
    }
}

/// The real protocol of one transfer.
struct Part {
    transfer: u8,
    protocol: Box<dyn Protocol>,
    timers: BTreeMap<TimerId, Time>,
}

impl Part {
    fn handle(&mut self, mesh: &Mesh, now: Time, event: Event<'_>) {
        let mut actions = Actions::default();
        self.protocol.handle(now, event, &mut actions);
        for action in actions.drain() {
            match action {
                Action::Connect(peer) => mesh.connect(peer),
                Action::Disconnect(peer) => mesh.disconnect(peer),
                Action::Send { to, body } => mesh.send(self.transfer, to, body),
                Action::SendBlock { to, block } => mesh.send_block(self.transfer, to, block),
                Action::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                }
                Action::Accuse { .. } => {}
            }
        }
    }
}

/// The agent.
struct Rogue {
    admission: Admission,
    mesh: Mesh,
    origin: Instant,
    manifest: Arc<Kept>,
    parts: Vec<Part>,
    reports: mpsc::Sender<Report>,
    lied: Arc<AtomicU64>,
}

impl Rogue {
    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    fn begin(&mut self, transfer: u8, block_bytes: u32, have: BlockSet) {
        let clusters = self.admission.clusters.iter().enumerate();
        let members = clusters.map(|(node, cluster)| outpour_protocols::Member {
            cluster: *cluster,
            source: node == 0,
        });
        let setup = Setup {
            me: self.admission.node,
            members: members.collect(),
            block_bytes,
            have,
            seed: self.admission.seed,
        };
        let entry = registry::find(&self.admission.protocol).unwrap();
        let mut part = Part {
            transfer,
            protocol: (entry.build)(setup),
            timers: BTreeMap::new(),
        };
        part.handle(&self.mesh, self.now(), Event::Start);
        self.parts.push(part);
    }

    fn pass(&mut self, transfer: u8, event: Event<'_>) {
        let now = self.now();
        if let Some(part) = self.parts.get_mut(usize::from(transfer)) {
            part.handle(&self.mesh, now, event);
        }
    }

    fn fire(&mut self) {
        let now = self.now();
        for part in &mut self.parts {
            let due = part.timers.iter().filter(|(_, at)| **at <= now);
            let due: Vec<TimerId> = due.map(|(timer, _)| *timer).collect();
            for timer in due {
                part.timers.remove(&timer);
                part.handle(&self.mesh, now, Event::Timer(timer));
            }
        }
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Begin { contacts } => {
                for (node, contact) in contacts {
                    self.meet(node, contact);
                }
                let (block, have) = (self.admission.manifest.block_bytes, self.manifest.have());
                if have.is_full() {
                    self.complete();
                }
                self.begin(MANIFEST, block, have);
            }
            Order::Met { node, contact } => self.meet(node, contact),
            Order::Dial { node } => self.mesh.dial_now(node),
            // It takes part as long as it can.
            Order::Left { .. } | Order::Finish => {}
        }
    }

    fn meet(&self, node: NodeId, contact: Contact) {
        if node != self.admission.node {
            let member = Member {
                addrs: contact.addrs,
                certificate: contact.certificate,
            };
            self.mesh.set_member(node, member);
        }
    }

    fn on_event(&mut self, event: MeshEvent) {
        match event {
            MeshEvent::PeerUp { transfer, peer } => self.pass(transfer, Event::PeerUp(peer)),
            MeshEvent::PeerDown { transfer, peer } => self.pass(transfer, Event::PeerDown(peer)),
            MeshEvent::Message {
                transfer,
                from,
                body,
            } => self.pass(transfer, Event::Message { from, body: &body }),
            MeshEvent::Arrived {
                transfer,
                from,
                block,
                fresh,
            } => {
                self.pass(transfer, Event::Arrived { from, block, fresh });
                self.advance();
            }
            MeshEvent::Sent {
                transfer,
                to,
                block,
            } => self.pass(transfer, Event::Sent { to, block }),
            _ => {}
        }
    }

    /// Once the manifest is known, claims to have all of the object.
    fn advance(&mut self) {
        if let (Some(bytes), [_]) = (self.manifest.bytes(), self.parts.as_slice()) {
            let manifest = Manifest::decode(&bytes).unwrap();
            let lens = (0..manifest.blocks()).map(|block| manifest.block_len(block));
            let object = Kept::new(lens, Some(self.lied.clone()));
            self.mesh.open(OBJECT, object.clone());
            self.begin(OBJECT, manifest.block_bytes(), object.have());
            self.complete();
        }
    }

    fn complete(&self) {
        let received_bytes = 0;
        let _ = self.reports.try_send(Report::Complete { received_bytes });
    }

    async fn run(mut self, mut orders: mpsc::Receiver<Order>, mut events: Events) {
        loop {
            let timers = self.parts.iter().flat_map(|part| part.timers.values());
            let next = timers.min().map_or(Duration::from_secs(1), |at| {
                at.since(Time::ZERO).saturating_sub(self.origin.elapsed())
            });
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Finish) | None => break,
                    Some(order) => self.on_order(order),
                },
                Some(event) = events.recv() => self.on_event(event),
                () = tokio::time::sleep(next) => {}
            }
            self.fire();
        }
        self.mesh.shutdown().await;
    }
}

/// Plays a rogue's part from its greeting to the end of the channel.
pub(crate) async fn play(stream: DuplexStream, lies: Lies, lied: Arc<AtomicU64>) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let key = NodeKey::generate().unwrap();
    write_frame(&mut writer, &Greeting::new(key.public_key()))
        .await
        .unwrap();
    let Ok(CommandSays::Admit(admission)) = read_frame(&mut reader).await else {
        panic!("admitted first");
    };
    let identity = NodeIdentity::new(
        &key,
        CastId(admission.cast),
        admission.node,
        &admission.certificate,
        &admission.authority,
    );
    let config = MeshConfig::new(identity.unwrap(), SocketAddr::new(LOOPBACK, 0));
    let (mesh, events) = Mesh::start(config).unwrap();
    let addrs = vec![mesh.local_addr()];
    write_frame(&mut writer, &AgentSays::Joined { addrs })
        .await
        .unwrap();
    let (orders_in, orders) = mpsc::channel(64);
    let hearing = tokio::spawn(async move {
        while let Ok(CommandSays::Order(order)) = read_frame(&mut reader).await {
            let _ = orders_in.send(order).await;
        }
    });
    let (reports, mut reports_out) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Some(report) = reports_out.recv().await {
            let _ = write_frame(&mut writer, &AgentSays::Report(report)).await;
        }
    });
    let offer = &admission.manifest;
    let starts = (0..offer.len).step_by(offer.block_bytes as usize);
    let lens = starts.map(|start| offer.block_bytes.min(offer.len - start));
    let manifest = Kept::new(lens, (lies == Lies::Manifest).then(|| lied.clone()));
    mesh.open(MANIFEST, manifest.clone());
    let rogue = Rogue {
        admission: *admission,
        mesh,
        origin: Instant::now(),
        manifest,
        parts: Vec::new(),
        reports,
        lied,
    };
    rogue.run(orders, events).await;
    hearing.abort();
}
