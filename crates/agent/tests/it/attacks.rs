//! One member of a cast is built on the public crates to do harm: it floods, drips, promises what it never
//! sends, or says far too much. By every protocol the others get what they should all the same.

use std::net::SocketAddr;
use std::time::Duration;

use outpour_agent::control::{
    Admission, AgentSays, CommandSays, Greeting, read_frame, write_frame,
};
use outpour_core::manifest::Manifest;
use outpour_core::{NodeId, Rate};
use outpour_net::fuzzing::longest_message;
use outpour_net::{Events, SessionEvent, SessionId, SessionLimits};
use outpour_protocols::coordinator::{Order, Report};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::player::{Kept, MANIFEST, OBJECT, Player, endpoint};
use crate::support::{Agent, InProcess, Scene};

const HOSTS: usize = 4;
const ROGUE: usize = 1;
/// Protocols that need no network to plan for, and one of each kind that does.
const PROTOCOLS: [&str; 9] = [
    "direct",
    "chain",
    "swarm",
    "mob",
    "robber",
    "push",
    "central",
    "coded-gossip",
    "adaptive",
];

/// What the rogue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Sends the longest messages of every kind as fast as they are taken.
    Flood,
    /// Has all of the object, it says, and sends what is asked for, a few bytes in a second.
    Drip,
    /// Is up and never says a word.
    Mute,
    /// Floods the command with reports and texts.
    Chatter,
}

/// Whom the rogue is to talk to; false once the cast is over.
fn obey(order: Option<Order>, player: &Player) -> bool {
    match order {
        Some(Order::Begin { contacts }) => {
            for (node, contact) in contacts.iter() {
                player.meet(*node, contact.clone());
                player.session.connect(*node);
            }
        }
        Some(Order::Met { node, contact }) => {
            player.meet(node, contact);
            player.session.connect(node);
        }
        Some(Order::Dial { node }) => player.session.dial_now(node),
        Some(Order::Left { .. } | Order::Census | Order::Foreground { .. }) => {}
        Some(Order::Finish) | None => return false,
    }
    true
}

/// Who is up.
#[derive(Default)]
struct Up(Vec<(u8, NodeId)>);

impl Up {
    fn note(&mut self, event: &SessionEvent) {
        match *event {
            SessionEvent::PeerUp { transfer, peer } => self.0.push((transfer, peer)),
            SessionEvent::PeerDown { transfer, peer } => {
                self.0.retain(|known| *known != (transfer, peer));
            }
            _ => {}
        }
    }
}

type Ends = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

/// Plays the rogue from its greeting to the end of the channel.
async fn play(stream: DuplexStream, attack: Attack) {
    let (mut reader, mut writer): Ends = tokio::io::split(stream);
    let endpoint = endpoint();
    let greeting = Greeting::new(endpoint.key().0);
    write_frame(&mut writer, &greeting).await.unwrap();
    let Ok(CommandSays::Admit(admission)) = read_frame(&mut reader).await else {
        return;
    };
    let protocol = admission.terms.protocol.entry().name;
    let members = admission.terms.members.len();
    let session = SessionId(admission.cast);
    let (player, events) = Player::start(admission.node, session, endpoint, protocol, members);
    let addrs = player.contact().addrs;
    let joined = AgentSays::Joined { addrs };
    write_frame(&mut writer, &joined).await.unwrap();
    let (orders_in, orders) = mpsc::channel(64);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok(CommandSays::Order { given, .. }) = read_frame(&mut reader).await {
            if orders_in.send(given.order).await.is_err() {
                return;
            }
        }
    });
    tasks.spawn(report(writer, attack, admission.node));
    misbehave(player, events, attack, &admission, orders).await;
}

async fn misbehave(
    player: Player,
    mut events: Events,
    attack: Attack,
    admission: &Admission,
    mut orders: mpsc::Receiver<Order>,
) {
    if attack == Attack::Drip {
        player.session.set_limits(SessionLimits {
            outgoing: Rate::from_bytes_per_s(500.0).unwrap(),
            incoming: Rate::UNLIMITED,
        });
    }
    let offer = &admission.manifest;
    let bytes = offer.inline.clone().unwrap_or_default();
    let manifest = Kept::whole(&bytes, offer.block_bytes as usize);
    player.session.open(MANIFEST, manifest);
    let lied = (attack == Attack::Drip).then(Default::default);
    let described = Manifest::decode(&bytes).unwrap();
    let lens = (0..described.blocks()).map(|block| described.block_len(block));
    let object = Kept::new(lens, lied);
    player.session.open(OBJECT, object);
    let mut up = Up::default();
    for round in 0_u32.. {
        tokio::select! {
            order = orders.recv() => {
                if !obey(order, &player) {
                    break;
                }
            }
            Some(event) = events.recv() => {
                up.note(&event);
                if let (SessionEvent::PeerUp { transfer, peer }, Attack::Drip) = (event, attack) {
                    (0..16).for_each(|block| player.session.send_block(transfer, peer, block));
                }
            }
            () = tokio::time::sleep(Duration::from_millis(50)), if attack == Attack::Flood => {
                // Everybody who is up is told all there is to say, again and again.
                let (tag, shape) = ((round / 3 % 16) as u8, (round % 3) as u8);
                for (transfer, peer) in &up.0 {
                    player.session.send(*transfer, *peer, longest_message(tag, shape));
                }
            }
        }
    }
    player.session.shutdown().await;
}

/// What the rogue says to the command.
async fn report(mut writer: WriteHalf<DuplexStream>, attack: Attack, me: NodeId) {
    for round in 0_u64.. {
        let said = if attack == Attack::Chatter {
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
        } else {
            Report::Preparing
        };
        let said = AgentSays::Report(said);
        if write_frame(&mut writer, &said).await.is_err() {
            return;
        }
        let pause = if attack == Attack::Chatter { 1 } else { 200 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Casts by a protocol with a rogue among the hosts; the others have true copies at the end.
async fn others_are_served(protocol: &'static str, attack: Attack) {
    let scene = Scene::with_tree(HOSTS);
    let mut request = scene.request_at(protocol, &["a0", "a1", "b0", "b1", "c0"]);
    if protocol == "chain" || protocol == "direct" || protocol == "swarm" || protocol == "push" {
        request.placement = None;
    }
    // The rogue never gets the object: it is given up after this long.
    request.patience = Duration::from_secs(20);
    let rogue = Agent::other(move |stream| play(stream, attack));
    let launcher = InProcess::new().with(ROGUE, rogue);
    let report = scene.cast_as(request, launcher).await;
    for host in (0..HOSTS).filter(|host| *host != ROGUE) {
        let verified = report.hosts[host].verified;
        assert!(verified, "{protocol} {attack:?}: {report:#?}");
        scene.assert_copy(host);
    }
    assert!(!report.hosts[ROGUE].verified, "{protocol} {attack:?}");
    for notice in &report.notices {
        assert!(
            notice.len() < 8192,
            "{protocol}: a notice of {} bytes",
            notice.len()
        );
    }
}

async fn by_every_protocol(attack: Attack) {
    let mut casts = JoinSet::new();
    for protocol in PROTOCOLS {
        casts.spawn(others_are_served(protocol, attack));
    }
    casts.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_floods_keeps_nobody_from_the_object() {
    by_every_protocol(Attack::Flood).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_drips_keeps_nobody_from_the_object() {
    by_every_protocol(Attack::Drip).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_never_says_a_word_keeps_nobody_from_the_object() {
    by_every_protocol(Attack::Mute).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_floods_the_command_keeps_nobody_from_the_object() {
    by_every_protocol(Attack::Chatter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_thousands_of_addresses_is_refused_and_the_others_are_served() {
    let scene = Scene::with_tree(HOSTS);
    let rogue = Agent::other(|stream| async {
        let (mut reader, mut writer): Ends = tokio::io::split(stream);
        let greeting = Greeting::new(endpoint().key().0);
        write_frame(&mut writer, &greeting).await.unwrap();
        let _ = read_frame::<CommandSays>(&mut reader).await;
        let addr = SocketAddr::from(([127, 0, 0, 1], 9));
        let addrs = vec![addr; 200_000];
        let _ = write_frame(&mut writer, &AgentSays::Joined { addrs }).await;
        while read_frame::<CommandSays>(&mut reader).await.is_ok() {}
    });
    let launcher = InProcess::new().with(ROGUE, rogue);
    let report = scene.cast("swarm", launcher).await;
    for (host, entry) in report.hosts.iter().enumerate() {
        assert_eq!(entry.verified, host != ROGUE, "{entry:?}");
    }
    let error = report.hosts[ROGUE].error.as_deref().unwrap_or_default();
    assert!(error.contains("says 200000 addresses"), "{error}");
}
