//! A member of a cast that does harm on purpose, built on the same crates as the agent: so it can be
//! measured what it costs the others. It takes nobody's place but that of the agent it stands for.

mod kept;
mod part;

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use outpour_agent::control::{
    Admission, AgentSays, CommandSays, Greeting, read_frame, write_frame,
};
use outpour_cli::out::Failure;
use outpour_core::manifest::Manifest;
use outpour_core::text::{chain, escape};
use outpour_core::{BlockSet, NodeId, Rate};
use outpour_net::fuzzing::longest_message;
use outpour_net::{
    Endpoint, EndpointConfig, EndpointKey, Events, KeyDigest, Member, Session, SessionConfig,
    SessionEvent, SessionId, SessionLimits,
};
use outpour_protocols::coordinator::{Contact, Order, Report};
use tokio::io::{Stdin, Stdout};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use kept::Kept;
use part::Part;

/// Names a node and what it does, as in `n4=flood`. It means nothing outside of an emulation.
const ROGUE: &str = "OUTPOUR_ROGUE";

const MANIFEST: u8 = 0;
const OBJECT: u8 = 1;
/// What `drip` sends, over all peers: too little to deliver a block, and enough to look alive.
const DRIP_BYTES_PER_S: f64 = 500.0;
/// A round of `flood` comes so often.
const FLOOD_EVERY: Duration = Duration::from_millis(50);
/// How often a rogue gives a sign of life, and how often `chatter` says something.
const ALIVE_EVERY: Duration = Duration::from_millis(200);
const CHATTER_EVERY: Duration = Duration::from_millis(1);

/// What a rogue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Sends the longest messages of every kind to everybody, as fast as they are taken.
    Flood,
    /// Says that it has all of the object, and sends what it is asked for a few bytes in a second.
    Drip,
    /// Is up and never says a word.
    Mute,
    /// Floods the command with reports and texts.
    Chatter,
    /// Says that it has all of the object, and sends nothing of it.
    Claim,
    /// Takes part, asks and takes work as the others do, and sends nothing on.
    Hoard,
}

const ATTACKS: [(&str, Attack); 6] = [
    ("flood", Attack::Flood),
    ("drip", Attack::Drip),
    ("mute", Attack::Mute),
    ("chatter", Attack::Chatter),
    ("claim", Attack::Claim),
    ("hoard", Attack::Hoard),
];

impl Attack {
    /// Whether it says of itself that it has all of the object.
    const fn boasts(self) -> bool {
        matches!(self, Self::Drip | Self::Claim)
    }

    /// Whether it takes part by the protocol of the cast.
    const fn takes_part(self) -> bool {
        matches!(self, Self::Drip | Self::Claim | Self::Hoard)
    }
}

/// What the agent of this process does instead of its work, if it is to.
///
/// # Errors
/// If the environment asks for something that is not there to be done.
pub(crate) fn asked_for() -> Result<Option<Attack>, Failure> {
    let own = outpour_cli::own_node();
    let (Some(own), Some(asked)) = (own, std::env::var_os(ROGUE)) else {
        return Ok(None);
    };
    let asked = asked.to_string_lossy();
    let (node, attack) = parse(&asked).ok_or_else(|| {
        let names: Vec<&str> = ATTACKS.iter().map(|(name, _)| *name).collect();
        Failure::Usage(format!(
            "{ROGUE} is `{}`: expected a node and one of {}, as in n4=flood",
            escape(&asked),
            names.join(", ")
        ))
    })?;
    Ok((node == own).then_some(attack))
}

fn parse(asked: &str) -> Option<(&str, Attack)> {
    let (node, name) = asked.split_once('=')?;
    let mut all = ATTACKS.iter();
    let (_, attack) = all.find(|(known, _)| *known == name)?;
    Some((node, *attack))
}

/// Plays the rogue on standard input and output, from its greeting to the end of the channel.
///
/// # Errors
/// If there are no threads, or the channel does not begin as one.
pub(crate) fn run(attack: Attack) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("rogue: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let played = runtime.block_on(play(attack));
    // A thread still waits for more input.
    runtime.shutdown_background();
    played.map_err(|error| failed(&chain(&*error)))
}

type Broken = Box<dyn std::error::Error + Send + Sync>;

async fn play(attack: Attack) -> Result<(), Broken> {
    let (mut reader, mut writer) = (tokio::io::stdin(), tokio::io::stdout());
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let endpoint = Endpoint::start(EndpointConfig::new(EndpointKey::generate()?, everywhere))?;
    write_frame(&mut writer, &Greeting::new(endpoint.key().0)).await?;
    let admission = loop {
        match read_frame(&mut reader).await? {
            CommandSays::Admit(admission) => break admission,
            CommandSays::Waits => {}
            _ => return Err("it is only there to be admitted".into()),
        }
    };
    let config = SessionConfig::new(SessionId(admission.cast), admission.node);
    let (session, events) = endpoint.session(&config)?;
    let addrs = own_addrs(endpoint.local_addr().port());
    write_frame(&mut writer, &AgentSays::Joined { addrs }).await?;
    let (orders_in, orders) = mpsc::channel(64);
    let mut tasks = JoinSet::new();
    tasks.spawn(hear(reader, orders_in));
    tasks.spawn(report(writer, attack, admission.node));
    let mut rogue = Rogue::new(session, attack, &admission);
    rogue.misbehave(events, orders).await;
    rogue.session.shutdown().await;
    Ok(())
}

/// Where the others reach this node.
fn own_addrs(port: u16) -> Vec<SocketAddr> {
    let own = outpour_cli::own_node().unwrap_or_default();
    let found = (own.as_str(), port).to_socket_addrs();
    found.into_iter().flatten().collect()
}

async fn hear(mut reader: Stdin, orders: mpsc::Sender<Order>) {
    while let Ok(CommandSays::Order { given, .. }) = read_frame(&mut reader).await {
        if orders.send(given.order).await.is_err() {
            return;
        }
    }
}

/// What the rogue says to the command.
async fn report(mut writer: Stdout, attack: Attack, me: NodeId) {
    for round in 0_u64.. {
        let (said, pause) = match attack {
            Attack::Chatter => (chatter(round, me), CHATTER_EVERY),
            _ => (Report::Preparing, ALIVE_EVERY),
        };
        let said = AgentSays::Report(said);
        if write_frame(&mut writer, &said).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

fn chatter(round: u64, me: NodeId) -> Report {
    let text = || "\u{1b}[31m\u{202e}".repeat(50_000);
    match round % 4 {
        0 => Report::Accuse {
            peer: NodeId((round % 9) as u32),
            offence: text(),
        },
        1 => Report::Unreachable {
            peer: NodeId(u32::MAX),
            error: text(),
        },
        2 => Report::Prepared {
            have_bytes: u64::MAX,
        },
        _ => Report::Accuse {
            peer: me,
            offence: String::new(),
        },
    }
}

/// A node that is up, without stages: its transfers begin when it is told whom it is with.
struct Rogue {
    session: Session,
    attack: Attack,
    me: NodeId,
    /// Its part by the protocol, if it takes one.
    part: Option<Part>,
    up: Vec<(u8, NodeId)>,
}

impl Rogue {
    fn new(session: Session, attack: Attack, admission: &Admission) -> Self {
        if attack == Attack::Drip {
            session.set_limits(SessionLimits {
                outgoing: Rate::from_bytes_per_s(DRIP_BYTES_PER_S).unwrap_or(Rate::ZERO),
                incoming: Rate::UNLIMITED,
            });
        }
        let mut rogue = Self {
            session,
            attack,
            me: admission.node,
            part: None,
            up: Vec::new(),
        };
        rogue.open(admission);
        rogue
    }

    /// Opens what the command described with the admission; what would have to be fetched first it is
    /// mute about.
    fn open(&mut self, admission: &Admission) {
        let offer = &admission.manifest;
        let Some(bytes) = offer.inline.as_deref() else {
            return;
        };
        let Ok(manifest) = Manifest::decode(bytes) else {
            return;
        };
        let whole = Kept::whole(bytes, offer.block_bytes as usize);
        self.session.open(MANIFEST, Arc::new(whole));
        let blocks = manifest.blocks();
        let batches = admission.terms.batches(blocks, manifest.block_bytes());
        let batches = batches.ok().flatten();
        let lens = (0..blocks).map(|block| manifest.block_len(block));
        let object = Kept::new(lens.collect(), self.attack.boasts(), batches);
        self.session.open(OBJECT, Arc::new(object));
        if self.attack.takes_part() {
            let have = match self.attack.boasts() {
                true => BlockSet::full(blocks),
                false => BlockSet::new(blocks),
            };
            let (me, want) = (admission.node, BlockSet::full(blocks));
            let terms = &admission.terms;
            let setup = terms.setup(me, have, want, manifest.block_bytes(), batches);
            let protocol = terms.protocol.build(setup);
            self.part = Some(Part::new(protocol, self.attack == Attack::Drip));
        }
    }

    async fn misbehave(&mut self, mut events: Events, mut orders: mpsc::Receiver<Order>) {
        let mut flood = tokio::time::interval(FLOOD_EVERY);
        for round in 0_u32.. {
            let rest = self.part.as_ref().map(Part::rest);
            tokio::select! {
                order = orders.recv() => {
                    if !self.obey(order) {
                        return;
                    }
                }
                Some(event) = events.recv() => {
                    self.note(&event);
                    if let Some(part) = &mut self.part {
                        part.on_event(&self.session, event);
                    }
                }
                () = tokio::time::sleep(rest.unwrap_or_default()), if rest.is_some() => {
                    if let Some(part) = &mut self.part {
                        part.fire(&self.session);
                    }
                }
                _ = flood.tick(), if self.attack == Attack::Flood => self.flood(round),
            }
        }
    }

    /// Everybody who is up is told all there is to say.
    fn flood(&self, round: u32) {
        let (tag, shape) = ((round / 3 % 16) as u8, (round % 3) as u8);
        for (transfer, peer) in &self.up {
            self.session
                .send(*transfer, *peer, longest_message(tag, shape));
        }
    }

    /// Whom it is to talk to; false once the cast is over.
    fn obey(&mut self, order: Option<Order>) -> bool {
        match order {
            Some(Order::Begin { contacts }) => {
                for (node, contact) in contacts.iter() {
                    self.meet(*node, contact.clone());
                }
                if let Some(part) = &mut self.part {
                    part.begin(&self.session, &self.up);
                }
            }
            Some(Order::Met { node, contact }) => self.meet(node, contact),
            Some(Order::Dial { node }) => self.session.dial_now(node),
            Some(Order::Left { .. } | Order::Census | Order::Foreground { .. }) => {}
            Some(Order::Finish) | None => return false,
        }
        true
    }

    fn meet(&self, node: NodeId, contact: Contact) {
        if node == self.me {
            return;
        }
        let member = Member {
            addrs: contact.addrs,
            key: KeyDigest(contact.key),
        };
        self.session.set_member(node, member);
        // Who takes part connects as the protocol says.
        if !self.attack.takes_part() {
            self.session.connect(node);
        }
    }

    fn note(&mut self, event: &SessionEvent) {
        match *event {
            SessionEvent::PeerUp { transfer, peer } => self.up.push((transfer, peer)),
            SessionEvent::PeerDown { transfer, peer } => {
                self.up.retain(|known| *known != (transfer, peer));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rogue_is_one_node_that_does_one_thing() {
        for (name, attack) in ATTACKS {
            assert_eq!(parse(&format!("n4={name}")), Some(("n4", attack)));
        }
        for wrong in ["n4", "n4=", "flood", "n4=Flood", "n4=flood=1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
