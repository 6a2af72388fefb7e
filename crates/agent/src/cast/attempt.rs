//! One attempt at a cast: agents are called, and either all of them have their destinations or
//! nothing is moved. With `--wait` there are as many as it takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::NodeId;
use outpour_core::manifest::ObjectId;
use outpour_protocols::coordinator::{Contact, HostState, Input, Order};
use outpour_store::Source;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::channel::{Channel, Heard, Invitation};
use super::{CastError, CastRequest, FAREWELL, Hosting, coordinator};
use crate::content::Blob;
use crate::launch::Launcher;
use crate::node::{Node, NodeConfig, Part};
use crate::session::{CHANNEL, between, own_addrs};
use crate::view::Phase;

/// The shortest pause between two attempts, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// For so many other casts at most it is said that they are waited for.
const WAITED_MAX: usize = 20;
/// How much of an object's id others are told.
const ID_CHARS: usize = 8;

/// By what those know a cast whom it keeps out: `model (1f3a9c2b) by ana@build1`.
pub(super) fn label(request: &CastRequest, id: ObjectId) -> String {
    let full = std::path::absolute(&request.source);
    let full = full.as_deref().unwrap_or(&request.source);
    let name = full.file_name().unwrap_or(full.as_os_str()).display();
    let id: String = id.to_string().chars().take(ID_CHARS).collect();
    format!("{name} ({id}) by {}", request.who)
}

/// Pauses between attempts. They grow, as the other cast may be a long one, and are drawn at
/// random, as of two casts that keep one another waiting one has to be earlier.
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(2 * PAUSE_MIN)
    }
}

impl Pauses {
    pub(super) fn next(&mut self) -> Duration {
        let most = self.0;
        self.0 = PAUSE_MAX.min(2 * most);
        between(PAUSE_MIN, most)
    }
}

/// The calls to all hosts of a cast.
pub(super) struct Calls {
    invitation: watch::Sender<Option<Arc<Invitation>>>,
    heard: mpsc::Receiver<Heard>,
    orders: BTreeMap<NodeId, mpsc::Sender<Order>>,
    channels: JoinSet<()>,
}

impl Calls {
    /// Calls every host; what it shall do it is told once that is known.
    pub(super) fn start(launcher: &Arc<dyn Launcher>, hosts: usize) -> Self {
        let (invitation, told) = watch::channel(None::<Arc<Invitation>>);
        let (heard_tx, heard) = mpsc::channel(CHANNEL);
        let mut channels = JoinSet::new();
        let mut orders = BTreeMap::new();
        for host in 0..hosts {
            let (order_tx, order_rx) = mpsc::channel(CHANNEL);
            let node = NodeId(host as u32 + 1);
            orders.insert(node, order_tx);
            let launcher = launcher.clone();
            let channel = Channel {
                node,
                invitation: told.clone(),
                heard: heard_tx.clone(),
                orders: order_rx,
            };
            channels.spawn(channel.run(async move { launcher.launch(host).await }));
        }
        Self {
            invitation,
            heard,
            orders,
            channels,
        }
    }
}

impl Hosting {
    /// Runs one attempt until every host has its verdict, or until it turns out that another cast
    /// is to be waited for. Returns the source if nothing was moved.
    pub(super) async fn attempt(
        &mut self,
        request: &CastRequest,
        mut calls: Calls,
        source: Source,
        cancel: &mut watch::Receiver<bool>,
    ) -> Result<Option<Source>, CastError> {
        self.cast.coordinator = coordinator(request, &self.cast.manifest);
        self.busy = None;
        self.coding.clear();
        let invitation = Arc::new(self.cast.invitation(request)?);
        let source_identity = invitation.source.clone();
        let (mesh, events) = self.cast.start_mesh(request, source_identity)?;
        let joined = Input::Joined {
            node: NodeId(0),
            contact: Contact {
                addrs: own_addrs(mesh.local_addr()),
                certificate: invitation.source.digest(),
            },
        };
        let (report_tx, report_rx) = mpsc::channel(CHANNEL);
        let (order_tx, order_rx) = mpsc::channel(CHANNEL);
        self.orders = std::mem::take(&mut calls.orders);
        self.orders.insert(NodeId(0), order_tx);
        let config = NodeConfig {
            me: NodeId(0),
            fetches_manifest: invitation.offer.inline.is_none(),
            terms: self.cast.terms.clone(),
            manifest: Blob::whole(invitation.offer.clone(), self.cast.encoded.clone()),
            part: Part::Source {
                manifest: self.cast.manifest.clone(),
                source,
            },
            wrap: None,
        };
        calls.invitation.send_replace(Some(invitation));
        let mut waiting = Some((config, mesh, events, report_tx, order_rx));
        let mut node = None;
        let begin = || {
            node = waiting
                .take()
                .map(|(config, mesh, events, reports, orders)| {
                    tokio::spawn(Node::new(config, mesh, reports).run(orders, events))
                });
        };
        self.run(joined, begin, calls.heard, report_rx, cancel)
            .await;
        // The farewell below is not part of the cast.
        self.took = self.cast.started.elapsed();
        // One that joined as the cast was given up was not told yet.
        for orders in std::mem::take(&mut self.orders).into_values() {
            let _ = orders.try_send(Order::Finish);
        }
        // The agents were told to leave; whoever does not is cut off by dropping its channel.
        drop(calls.invitation);
        let farewell = async {
            if let Some(node) = node {
                let _ = node.await;
            }
            while calls.channels.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
        let Some((config, mesh, ..)) = waiting else {
            return Ok(None);
        };
        mesh.shutdown().await;
        match config.part {
            Part::Source { source, .. } => Ok(Some(source)),
            Part::Receiver { .. } => Ok(None),
        }
    }

    /// Whether the attempt is to be ended as a host has to wait for another cast.
    pub(super) fn gives_way(&mut self, heard: &Heard) -> bool {
        let Some((node, by)) = heard.waiting().filter(|_| self.wait && self.busy.is_none()) else {
            return false;
        };
        // Once it moves, only who comes late is concerned.
        if self.cast.coordinator.began_at().is_some() {
            return false;
        }
        self.busy = Some((node, by.to_owned()));
        true
    }

    /// Whether what has ended is an attempt, made in vain for the sake of another cast.
    pub(super) const fn is_attempt(&self) -> bool {
        self.wait && (self.busy.is_some() || self.cast.coordinator.refused().is_some())
    }

    /// Says for which cast another attempt will be made, once for each; false if none will be.
    pub(super) fn is_busy(&mut self) -> bool {
        if !self.is_attempt() {
            return false;
        }
        let refused = || {
            let node = self.cast.coordinator.refused()?;
            let host = self.cast.coordinator.nodes().get(node.index())?;
            let (by, _advice) = host.error.as_deref()?.rsplit_once("; ")?;
            Some((node, by.to_owned()))
        };
        let Some((node, by)) = self.busy.clone().or_else(refused) else {
            return false;
        };
        let host = self.cast.names.get(node.index() - 1);
        let host = host.map_or("a host", String::as_str);
        if self.waited.len() < WAITED_MAX && !self.waited.contains(&by) {
            self.notices.push(format!("waiting for {host}: {by}"));
            self.waited.push(by);
        }
        let notices = self.notices.clone();
        self.view.send_modify(|view| {
            view.phase = Phase::Starting;
            view.notices = notices;
            for host in &mut view.hosts {
                host.state = HostState::Starting;
                host.error = None;
            }
        });
        true
    }
}
