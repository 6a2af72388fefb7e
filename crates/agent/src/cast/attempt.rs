//! One attempt at a cast: agents are called, and either all of them have their destinations or
//! nothing is moved. With `--wait` there are as many as it takes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use outpour_core::NodeId;
use outpour_core::blocks::Want;
use outpour_core::manifest::ObjectId;
use outpour_net::{Events, Session};
use outpour_protocols::coordinator::{Contact, Given, HostState, Input, Order, Report, Stamp};
use outpour_store::Source;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::channel::{Channel, HashOrder, Heard, Invitation};
use super::{CastError, CastRequest, FAREWELL, Hosting, Origin, coordinator, session_config};
use crate::budget::Memory;
use crate::content::Blob;
use crate::control::Described;
use crate::launch::Launcher;
use crate::mailbox::{self, mailbox};
use crate::node::{Node, NodeConfig, Outcome, Part};
use crate::session::{CHANNEL, between, own_addrs};
use crate::view::Phase;

/// The shortest pause between two attempts, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// For so many other casts at most it is said that they are waited for.
const WAITED_MAX: usize = 20;
/// How much of an object's id others are told.
const ID_CHARS: usize = 8;

/// The name of a cast for those it keeps out: `model (1f3a9c2b) by ana@build1`.
pub(super) fn label(request: &CastRequest, id: ObjectId) -> String {
    let (source, more) = match &request.origin {
        Origin::Here(paths) => (paths.first(), paths.len().saturating_sub(1)),
        Origin::Host(host) => (Some(&host.path), 0),
    };
    let source = source.cloned().unwrap_or_default();
    let full = std::path::absolute(&source).unwrap_or(source);
    let mut name = full
        .file_name()
        .unwrap_or(full.as_os_str())
        .display()
        .to_string();
    if more > 0 {
        name = format!("{name} and {more} more");
    }
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
    /// How those that have the object are to read it, once that is known.
    pub(super) hash: watch::Sender<Option<HashOrder>>,
    /// Whether sources on other hosts are to send their manifests to this one.
    pub(super) wants_manifest: bool,
    pub(super) hearing: Hearing,
    orders: BTreeMap<NodeId, mailbox::Sender<Given>>,
    channels: JoinSet<()>,
}

impl Calls {
    /// Calls every host; what it shall do it is told once that is known.
    pub(super) fn start(launcher: &Arc<dyn Launcher>, request: &CastRequest) -> Self {
        let (invitation, told) = watch::channel(None::<Arc<Invitation>>);
        let (hash, to_hash) = watch::channel(None::<HashOrder>);
        let (first, members) = (request.first_agent(), request.members());
        let (heard_tx, heard) = mpsc::channel(CHANNEL);
        let mut channels = JoinSet::new();
        let mut orders = BTreeMap::new();
        for (host, spec) in request.agents().enumerate() {
            let (order_tx, order_rx) = mailbox();
            let node = NodeId(host as u32 + first);
            orders.insert(node, order_tx);
            let launcher = launcher.clone();
            let channel = Channel {
                node,
                role: members[node.index()].role,
                holds: members[node.index()].is_source().then(|| spec.path.clone()),
                archive: request.archive,
                tells: first == 0,
                hash: to_hash.clone(),
                patience: request.patience,
                invitation: told.clone(),
                heard: heard_tx.clone(),
                orders: order_rx,
            };
            channels.spawn(channel.run(async move { launcher.launch(host).await }));
        }
        Self {
            invitation,
            hash,
            wants_manifest: false,
            hearing: Hearing {
                early: VecDeque::new(),
                heard,
            },
            orders,
            channels,
        }
    }
}

/// What came from hosts.
pub(super) struct Hearing {
    /// What came while the source was read.
    early: VecDeque<Heard>,
    heard: mpsc::Receiver<Heard>,
}

impl Hearing {
    /// The next, in the order in which they came. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        match self.early.pop_front() {
            Some(heard) => Some(heard),
            None => self.heard.recv().await,
        }
    }
}

/// What a host says that has the object, before it is admitted.
pub(super) enum Said {
    Surveyed(u64),
    Hashing(u64),
    /// With its manifest, if that was asked for.
    Hashed(Box<Described>, Vec<u8>),
    /// It cannot give the object, or is lost, and why.
    Lost(String),
}

impl Calls {
    /// Tells every host what it is called for.
    pub(super) fn invite(&self, invitation: Invitation) {
        self.invitation.send_replace(Some(Arc::new(invitation)));
    }

    /// Ends all calls, once all that they were for was heard.
    pub(super) async fn end(mut self) {
        drop((self.invitation, self.hash, self.orders));
        let farewell = async { while self.channels.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }

    /// What one of the first `sources` nodes says next.
    ///
    /// # Errors
    /// If there is nobody left to say anything.
    pub(super) async fn source(&mut self, sources: usize) -> Result<(NodeId, Said), CastError> {
        loop {
            let heard = self.hearing.heard.recv().await;
            let heard = heard.ok_or(CastError::Interrupted)?;
            let heard = match heard.of_source() {
                Ok(said) => return Ok(said),
                Err(heard) => heard,
            };
            let lost = heard.lost().filter(|(node, _)| node.index() < sources);
            let lost = lost.map(|(node, error)| (node, Said::Lost(error.to_owned())));
            // Of each host at most that it is lost; that concerns the coordinator, too.
            self.hearing.early.push_back(heard);
            if let Some(lost) = lost {
                return Ok(lost);
            }
        }
    }
}

/// The part of a source on the command's own host, until the transfer begins.
struct Seat {
    config: NodeConfig,
    contact: Contact,
    session: Session,
    events: Events,
    reports: mailbox::Sender<Report>,
    orders: mailbox::Receiver<Given>,
}

impl Seat {
    fn joined(&self) -> Input {
        Input::Joined {
            node: self.config.me,
            contact: self.contact.clone(),
        }
    }

    async fn run(self) -> Outcome {
        let node = Node::new(self.config, self.session, self.reports);
        let (sender, orders) = mpsc::channel(CHANNEL);
        let mut given = self.orders;
        let giving = tokio::spawn(async move {
            while let Some(order) = given.recv().await {
                if sender.send(order).await.is_err() {
                    break;
                }
            }
        });
        let outcome = node.run(orders, self.events).await;
        giving.abort();
        outcome
    }

    /// Nothing was moved: the object is given back.
    async fn leave(self) -> Option<Source> {
        self.session.shutdown().await;
        match self.config.part {
            Part::Source { source, .. } => Some(source),
            Part::Receiver { .. } => None,
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
        source: Option<Source>,
        cancel: &mut watch::Receiver<bool>,
    ) -> Result<Option<Source>, CastError> {
        self.cast.epoch += 1;
        self.cast.coordinator = coordinator(request, &self.cast.object, self.cast.epoch);
        self.busy = None;
        self.coding.clear();
        let invitation = Arc::new(self.cast.invitation(request)?);
        self.orders = std::mem::take(&mut calls.orders);
        let (report_tx, report_rx) = mailbox();
        let mut seat = match source {
            Some(source) => Some(self.seat(request, &invitation, source, report_tx)?),
            None => None,
        };
        let first = seat.as_ref().map_or(Input::Woken, Seat::joined);
        calls.invitation.send_replace(Some(invitation));
        let mut node = None;
        let begin = || node = seat.take().map(|seat| tokio::spawn(seat.run()));
        self.run(first, begin, calls.hearing, report_rx, cancel)
            .await;
        // The farewell below is not part of the cast.
        self.took = self.cast.started.elapsed();
        // One that joined as the cast was given up was not told yet.
        for orders in std::mem::take(&mut self.orders).into_values() {
            let stamp = Stamp::last(self.cast.epoch);
            let order = Order::Finish;
            orders.send(Given { stamp, order });
        }
        // The agents were told to leave; one that does not is cut off by dropping its channel. A host
        // that was given up because nothing moves there is not waited for again.
        let nodes = self.cast.coordinator.nodes();
        let stalled = nodes.iter().filter(|host| host.stalled).count();
        drop(calls.invitation);
        let farewell = async {
            if let Some(node) = node {
                let _ = node.await;
            }
            while calls.channels.len() > stalled && calls.channels.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
        match seat {
            Some(seat) => Ok(seat.leave().await),
            None => Ok(None),
        }
    }

    /// The part of the source that is here.
    fn seat(
        &mut self,
        request: &CastRequest,
        invitation: &Invitation,
        source: Source,
        reports: mailbox::Sender<Report>,
    ) -> Result<Seat, CastError> {
        let endpoint = super::endpoint(request.listen)?;
        let terms = &self.cast.terms;
        let config = session_config(invitation.cast, NodeId(0), invitation.priority, terms);
        let (session, events) = endpoint.session(&config)?;
        let contact = Contact {
            addrs: own_addrs(endpoint.local_addr()),
            key: endpoint.key().0,
        };
        let (order_tx, orders) = mailbox();
        self.orders.insert(NodeId(0), order_tx);
        let offer = self.cast.object.manifest.clone();
        let manifest = source.manifest().clone();
        let config = NodeConfig {
            me: NodeId(0),
            want: Want::All,
            fetches_manifest: offer.inline.is_none(),
            terms: self.cast.terms.clone(),
            manifest: Blob::whole(offer, manifest.encode()),
            part: Part::Source {
                manifest: Arc::new(manifest),
                source,
            },
            wrap: None,
            memory: Memory::default(),
        };
        Ok(Seat {
            config,
            contact,
            session,
            events,
            reports,
            orders,
        })
    }

    /// Whether the attempt is to be ended as a host has to wait for another cast.
    pub(super) fn gives_way(&mut self, heard: &Heard) -> bool {
        let Some((node, by)) = heard.waiting() else {
            return false;
        };
        // Once blocks move, only a late host is concerned.
        if !self.wait || self.cast.coordinator.began_at().is_some() {
            if self.is_news(by) {
                let notice = format!("{} waits: {by}", self.name(node));
                self.notices.push(notice);
            }
            return false;
        }
        if self.busy.is_some() {
            return false;
        }
        self.busy = Some((node, by.to_owned()));
        true
    }

    /// Whether it has not been said yet that this other cast is waited for; it is now.
    fn is_news(&mut self, by: &str) -> bool {
        let news = self.waited.len() < WAITED_MAX && !self.waited.iter().any(|it| it == by);
        if news {
            self.waited.push(by.to_owned());
        }
        news
    }

    /// What messages call a node.
    fn name(&self, node: NodeId) -> &str {
        let name = self.cast.names.get(node.index());
        name.map_or("a host", String::as_str)
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
        if self.is_news(&by) {
            let notice = format!("waiting for {}: {by}", self.name(node));
            self.notices.push(notice);
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
