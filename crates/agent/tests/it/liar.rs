//! An agent that is honest but for the bytes it sends: what members and the coordinator see of it
//! is the real protocol on the real data plane.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use outpour_agent::control::{
    Admission, AgentSays, CommandSays, Greeting, read_frame, write_frame,
};
use outpour_core::manifest::Manifest;
use outpour_net::{Events, SessionId};
use outpour_protocols::coordinator::{Order, Report};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::player::{Kept, MANIFEST, OBJECT, Player, endpoint};

/// What a rogue lies about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lies {
    /// The blocks of the manifest.
    Manifest,
    /// The blocks of the object.
    Object,
}

/// The agent.
struct Rogue {
    player: Player,
    admission: Admission,
    manifest: Arc<Kept>,
    reports: mpsc::Sender<Report>,
    lied: Arc<AtomicU64>,
}

impl Rogue {
    fn on_order(&mut self, order: Order) {
        match order {
            Order::Begin { contacts } => {
                for (node, contact) in contacts.iter() {
                    self.player.meet(*node, contact.clone());
                }
                if self.admission.manifest.inline.is_some() {
                    return self.advance();
                }
                let (block, have) = (self.admission.manifest.block_bytes, self.manifest.have());
                if have.is_full() {
                    self.complete();
                }
                self.player.begin(MANIFEST, block, have, None);
            }
            Order::Met { node, contact } => self.player.meet(node, contact),
            Order::Dial { node } => self.player.session.dial_now(node),
            // It takes part as long as it can.
            Order::Left { .. } | Order::Census | Order::Foreground { .. } | Order::Finish => {}
        }
    }

    /// Once the manifest is known, claims to have all of the object.
    fn advance(&mut self) {
        if let Some(bytes) = self.manifest.bytes()
            && !self.player.has_begun(OBJECT)
        {
            let manifest = Manifest::decode(&bytes).unwrap();
            let lens = (0..manifest.blocks()).map(|block| manifest.block_len(block));
            let terms = &self.admission.terms;
            let batches = terms.batches(manifest.blocks(), manifest.block_bytes());
            let batches = batches.unwrap();
            let object = Kept::new(lens, Some(self.lied.clone()));
            let object = match batches {
                Some(batches) => object.coded(batches),
                None => object,
            };
            self.player.session.open(OBJECT, object.clone());
            self.player
                .begin(OBJECT, manifest.block_bytes(), object.have(), batches);
            self.complete();
        }
    }

    fn complete(&self) {
        let received_bytes = 0;
        let _ = self.reports.try_send(Report::Complete { received_bytes });
    }

    async fn run(mut self, mut orders: mpsc::Receiver<Order>, mut events: Events) {
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Finish) | None => break,
                    Some(order) => self.on_order(order),
                },
                Some(event) = events.recv() => {
                    self.player.on_event(event);
                    self.advance();
                }
                () = tokio::time::sleep(self.player.rest()) => {}
            }
            self.player.fire();
        }
        self.player.session.shutdown().await;
    }
}

/// Plays a rogue's part from its greeting to the end of the channel.
pub(crate) async fn play(stream: DuplexStream, lies: Lies, lied: Arc<AtomicU64>) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let endpoint = endpoint();
    write_frame(&mut writer, &Greeting::new(endpoint.key().0))
        .await
        .unwrap();
    let Ok(CommandSays::Admit(admission)) = read_frame(&mut reader).await else {
        panic!("admitted first");
    };
    let (node, members) = (admission.node, admission.terms.members.len());
    let (player, events) = Player::start(
        node,
        SessionId(admission.cast),
        endpoint,
        admission.terms.protocol.entry().name,
        members,
    );
    let addrs = player.contact().addrs;
    write_frame(&mut writer, &AgentSays::Joined { addrs })
        .await
        .unwrap();
    let (orders_in, orders) = mpsc::channel(64);
    let hearing = tokio::spawn(async move {
        while let Ok(CommandSays::Order { given, .. }) = read_frame(&mut reader).await {
            let _ = orders_in.send(given.order).await;
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
    let manifest = match &offer.inline {
        Some(encoded) => Kept::whole(encoded, offer.block_bytes as usize),
        None => Kept::new(lens, (lies == Lies::Manifest).then(|| lied.clone())),
    };
    player.session.open(MANIFEST, manifest.clone());
    let rogue = Rogue {
        player,
        admission: *admission,
        manifest,
        reports,
        lied,
    };
    rogue.run(orders, events).await;
    hearing.abort();
}
