//! `auto`: choosing a protocol when the user named none, and saying why.

use std::time::Duration;

use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate};

use outpour_protocols::registry::Entry;
use outpour_protocols::{central, chain, direct, gossip, robber, swarm, tree};

use crate::batching::Batching;

/// What is known before a cast begins.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// How many nodes have the object.
    pub sources: usize,
    /// How many nodes are to receive.
    pub receivers: usize,
    /// What the object has.
    pub size: Bytes,
    /// How many blocks the object has if it is not coded.
    pub blocks: u32,
    /// How many it has if it is.
    pub coded_blocks: u32,
    /// How many clusters the nodes are in, the sources' included.
    pub clusters: usize,
    /// Whether the capacities of the network are known, so that a plan can be made.
    pub network: bool,
    /// What is known of nodes and the paths between them.
    pub paths: Paths,
    /// Whether some nodes only pass blocks on.
    pub relays: bool,
    /// Whether the user expects hosts to fail or to come and go.
    pub unreliable: bool,
    /// How the object would be coded, if it can be.
    pub batching: Option<Batching>,
}

/// What is known of nodes and the paths between them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Paths {
    /// Every node has the same limits.
    pub alike: bool,
    /// Some nodes can receive faster than others.
    pub uneven: bool,
    /// Packets get lost.
    pub lossy: bool,
    /// What is on its way to a node at most: its rate times the longest way there, as far as they
    /// are known.
    pub flight: Bytes,
    /// Some link between clusters carries less than a node.
    pub narrow: bool,
    /// What reaches the cluster that gets least, if links between clusters are the limit of all of them
    /// and not what belongs to nodes.
    pub links: Option<Rate>,
}

impl Paths {
    /// Nodes of which nothing is known but that all have the same limit, if they have one.
    pub const fn limited(limit: Rate) -> Self {
        Self {
            alike: !limit.is_unlimited(),
            uneven: false,
            lossy: false,
            flight: Bytes::ZERO,
            narrow: false,
            links: None,
        }
    }

    /// What a description says.
    pub fn of(network: &Network) -> Self {
        let own = |node| {
            let out = network.capacity(Resource::NodeOut(node));
            (out, network.capacity(Resource::NodeIn(node)))
        };
        let clusters = network.clusters();
        // Limits between clusters belong to no node.
        let shared = clusters.len() > 1
            && (!network.rules().is_empty()
                || clusters.iter().any(|cluster| {
                    !cluster.cluster_out.is_unlimited() || !cluster.cluster_in.is_unlimited()
                }));
        let first = own(NodeId(0));
        let ids = || (0..clusters.len() as u32).map(ClusterId);
        let pairs = ids().flat_map(|from| ids().map(move |to| (from, to)));
        let links = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| network.link(from, to))
            .filter(|link| !link.rate.is_zero());
        let mut paths = Self {
            alike: !shared && network.nodes().all(|node| own(node) == first),
            uneven: network.nodes().any(|node| own(node).1 != first.1),
            lossy: false,
            flight: Bytes::ZERO,
            narrow: false,
            links: link_limit(network),
        };
        // What a node that passes on as much as it receives has at most.
        let through = network.nodes().map(|node| {
            let (out, into) = own(node);
            out.min(into)
        });
        let through = through.fold(Rate::ZERO, Rate::max);
        for cluster in clusters {
            paths.flight = paths.flight.max(on_the_way(through, cluster.local_delay));
        }
        for link in links {
            paths.lossy |= link.loss > 0.0;
            paths.narrow |= link.rate < through;
            let rate = through.min(link.rate);
            paths.flight = paths.flight.max(on_the_way(rate, link.delay));
        }
        paths
    }
}

/// How much faster nodes are than what links bring to their cluster and take from it, where links count
/// as the limit.
const CARDS_FASTER: f64 = 2.0;

/// See [`Paths::links`].
fn link_limit(network: &Network) -> Option<Rate> {
    let count = network.clusters().len() as u32;
    let capacity = |resource| network.capacity(resource).bytes_per_s();
    let mut least: Option<f64> = None;
    for cluster in (0..count).map(ClusterId) {
        let others = || (0..count).map(ClusterId).filter(|other| *other != cluster);
        let into: f64 = others()
            .map(|it| capacity(Resource::Link(it, cluster)))
            .sum();
        let out: f64 = others()
            .map(|it| capacity(Resource::Link(cluster, it)))
            .sum();
        let into = into.min(capacity(Resource::ClusterIn(cluster)));
        let out = out.min(capacity(Resource::ClusterOut(cluster)));
        let cards = network.nodes_of(cluster).map(|node| {
            let own = capacity(Resource::NodeOut(node));
            own.min(capacity(Resource::NodeIn(node)))
        });
        let cards = cards.fold(f64::INFINITY, f64::min);
        let bound = into.max(out) * CARDS_FASTER <= cards;
        // One with open links is as fast as its nodes.
        if !bound || into.max(out).is_infinite() {
            return None;
        }
        // Nothing reaches a cluster that only sends.
        if into > 0.0 {
            least = Some(least.map_or(into, |least| least.min(into)));
        }
    }
    least.and_then(Rate::from_bytes_per_s)
}

/// What is on a way of that length at that rate: nothing where it takes no time, whatever the rate.
fn on_the_way(rate: Rate, delay: Duration) -> Bytes {
    Bytes((rate.bytes_per_s() * delay.as_secs_f64()) as u64)
}

/// The highest rate at which a node of a network sends to others: what its processor has to keep up
/// with if it codes.
pub fn fastest(network: &Network) -> Rate {
    let rate = |node: NodeId| {
        let cluster = network.cluster_of(node);
        let own = network.capacity(Resource::NodeOut(node));
        own.min(network.capacity(Resource::ClusterOut(cluster)))
    };
    network.nodes().map(rate).fold(Rate::ZERO, Rate::max)
}

/// A protocol and the reason for it, as shown to the user.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The protocol.
    pub entry: &'static Entry,
    /// Why, in one clause.
    pub why: String,
}

/// A line of so few nodes is not worth a mesh, whatever their rates.
const SHORT_LINE: usize = 3;
/// A chain takes one block time per hop longer than one copy; with this many blocks per hop that
/// is at most 2 %.
const BLOCKS_PER_HOP: u32 = 50;

/// Coding pays only where no more is on its way to a node than so much for each of the others, of
/// so many at most: gossips offer before they send, so a neighbour gives one piece in a round trip.
///
/// What coded gossip takes over what a swarm takes, at 15 Mbit/s to 1 Gbit/s, in blocks of 64 KiB,
/// simulated over TCP. Of eight nodes with a rate times delay of 93 KB and less 0.99 to 1.02, 100 to
/// 187 KB 1.04 to 1.15, 250 KB 1.17 to 1.34, 500 KB 2.3; of twenty with 250 KB and less 0.83 to 1.05,
/// 375 KB 0.90, 500 KB 1.09, 625 KB 1.2 to 1.7.
const FLIGHT_FOR_EACH: u64 = 12 << 10;
const FLIGHT_FOR_MAX: usize = 20;
/// Coding pays only in batches of so many blocks: of fewer, each node has to get too large a part
/// before it can go on.
const BATCH_MIN: u16 = 8;
/// And only if there are so many batches that nodes can be at different ones.
const BATCHES_MIN: u32 = 4;

/// Chooses the protocol that comes closest to the limit in this situation.
pub fn choose(situation: Situation) -> Choice {
    let Situation {
        sources,
        receivers,
        blocks,
        clusters,
        network,
        ..
    } = situation;
    let same_limit = situation.paths.alike;
    if situation.relays {
        return by_relays(&situation);
    }
    if let Some(why) = situation.coding_pays() {
        let entry = &gossip::CODED;
        return Choice { entry, why };
    }
    if sources + receivers > 2 && clusters > 1 {
        return between_clusters(&situation);
    }
    if sources > 1 {
        return from_several(sources, network);
    }
    let long_enough = u64::from(blocks) >= receivers as u64 * u64::from(BLOCKS_PER_HOP);
    let (entry, why) = if receivers <= 1 {
        (&direct::ENTRY, "one receiver needs no relay".into())
    } else if (receivers <= SHORT_LINE || same_limit) && long_enough {
        let hop_cost = 100.0 * receivers as f64 / f64::from(blocks);
        let alike = if same_limit {
            "all nodes have the same limit"
        } else {
            "few receivers"
        };
        (
            &chain::ENTRY,
            format!("{alike}, and {receivers} hops add only {hop_cost:.1} %"),
        )
    } else if same_limit || receivers <= SHORT_LINE {
        let why = format!("{blocks} blocks are too few to fill a line of {receivers} hops");
        (&swarm::ENTRY, why)
    } else {
        let why =
            "the nodes' rates may differ, and in a mesh a slow one does not hold up the others"
                .into();
        (&swarm::ENTRY, why)
    };
    Choice { entry, why }
}

impl Situation {
    /// Why coding pays, if it does.
    ///
    /// Packets are new to every node that lacks anything, so it does not matter which node got what:
    /// not that some are slower, not that some fail with blocks that only they had.
    ///
    /// 100 MB to nineteen receivers at 15 Mbit/s of which three have half the rate, the others'
    /// time over the least of one copy, simulated: 1.06, in a swarm 1.12; over TCP 1.12 to 1.16, in
    /// a swarm 1.16 to 1.21. With real agents in an emulated network these others take 61.3 s and
    /// all 116.1, in a swarm 62.0 and 117.6, in a chain 61.3 and 126.1. Two clusters of ten that
    /// are joined by a link which loses one packet in a hundred take 61.0 s there, a swarm 61.5,
    /// `optimal` 61.6, `robber` 68.1; if that link is 50 ms long 66.0 s, a swarm 67.9, `optimal` 141.9. With three of nineteen lost half way all take 1.06, simulated,
    /// a swarm 1.07. Where only what these three send differs a swarm is the faster one (64.0 and
    /// 68.8 s, emulated), and where all are alike and last a line costs least, without coding.
    fn coding_pays(&self) -> Option<String> {
        let paths = &self.paths;
        let batching = self.batching?;
        let one_place = self.clusters <= 1 || paths.lossy;
        let short = self.coded_blocks < u32::from(batching.blocks) * BATCHES_MIN;
        let others = self.receivers.min(FLIGHT_FOR_MAX) as u64;
        let far = paths.flight.0 > others * FLIGHT_FOR_EACH;
        if self.receivers <= SHORT_LINE || far || short || !one_place {
            return None;
        }
        // Without a rate it is not known whether processors keep up with it.
        if batching.best.is_none() || batching.blocks < BATCH_MIN {
            return None;
        }
        let why = if paths.lossy {
            "packets get lost, and with coding any other packet replaces them"
        } else if self.unreliable {
            "hosts may fail, and with coding no host has what the others cannot replace"
        } else if paths.uneven {
            "some nodes receive faster, and with coding every node has something new for them"
        } else {
            return None;
        };
        Some(why.to_owned())
    }
}

/// Chooses where some nodes only pass blocks on.
///
/// Where a link between clusters carries less than a node `central` takes 0.44 to 0.84 of the time of a
/// swarm, which takes most blocks over such links more than once: three to eight clusters, one to four relays,
/// 60 MB to 1 GB, simulated. Where only cards are the limit it takes 1.03 to 1.07.
fn by_relays(situation: &Situation) -> Choice {
    let paths = &situation.paths;
    if paths.narrow && !paths.lossy {
        let why =
            "there are relays, and links between clusters that carry less than a node".to_owned();
        let entry = &central::ENTRY;
        return Choice { entry, why };
    }
    // It asks no node to wait for another that may be slower.
    let why = "there are relays".to_owned();
    let entry = &swarm::ENTRY;
    Choice { entry, why }
}

/// Chooses where several nodes have the object, and each receiver can get it from all of them.
fn from_several(sources: usize, network: bool) -> Choice {
    if network {
        let why =
            format!("the network of the {sources} sources is known, so trees can use them all");
        let entry = &tree::OPTIMAL;
        return Choice { entry, why };
    }
    let why = format!("{sources} sources were named, and a mesh uses the full rate of each");
    let entry = &swarm::ENTRY;
    Choice { entry, why }
}

/// Between more clusters than this decisions leave much of the network idle: 0.97 of the optimum is reached
/// with four, 0.70 with eight (`case4`), where trees reach 0.99 and 0.93.
const LED_CLUSTERS_MAX: usize = 4;
/// In less time links hardly change, and a leader's first and last decisions cost a part of it: 4 x 4 nodes
/// get 16 MB in 1.36 s by `central` and in 1.12 s by `optimal`, 60 MB in 3.99 and 3.88 s, simulated.
const LED_MIN: Duration = Duration::from_secs(4);

/// Chooses between clusters, where what passes twice costs most.
///
/// Where links are the limit `central` takes 1.00 to 1.03 of the time of `optimal` if none changes, and 0.42
/// to 0.83 with scripts that change them, simulated with four clusters (`case1` to `case3`). Where cards are
/// the limit it begins with the same trees (`case6` to `case8`: 1.00), and the rates of cards do not change.
fn between_clusters(situation: &Situation) -> Choice {
    let clusters = situation.clusters;
    if !situation.network {
        let why =
            format!("{clusters} clusters, each of which needs a block only once from outside");
        let entry = &robber::ENTRY;
        return Choice { entry, why };
    }
    let paths = &situation.paths;
    let long = |links: Rate| links.bytes_per_s() * LED_MIN.as_secs_f64() <= situation.size.as_f64();
    if clusters <= LED_CLUSTERS_MAX && !paths.lossy && paths.links.is_some_and(long) {
        let why = format!(
            "links between the {clusters} clusters are the limit, and what is decided follows them if they change"
        );
        let entry = &central::ENTRY;
        return Choice { entry, why };
    }
    let why = format!("the network of the {clusters} clusters is known, so trees can fill it");
    let entry = &tree::OPTIMAL;
    Choice { entry, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap_or_default()
    }

    /// Twenty nodes at 15 Mbit/s and 1526 blocks, of which nothing is special.
    fn usual() -> Situation {
        let limit = rate("15 Mbit/s");
        Situation {
            sources: 1,
            receivers: 19,
            size: Bytes(100_000_000),
            blocks: 1526,
            coded_blocks: 1526,
            clusters: 1,
            network: false,
            paths: Paths::limited(limit),
            relays: false,
            unreliable: false,
            batching: Some(Batching::new(64, rate("10 GB/s"), limit)),
        }
    }

    fn chosen(receivers: usize, blocks: u32, alike: bool) -> &'static str {
        let paths = Paths {
            alike,
            ..Paths::default()
        };
        name(Situation {
            receivers,
            blocks,
            coded_blocks: blocks,
            paths,
            ..usual()
        })
    }

    fn name(situation: Situation) -> &'static str {
        choose(situation).entry.name
    }

    fn described(toml: &str) -> Situation {
        let network = Network::from_toml(toml, "net.toml");
        let paths = network.map(|network| Paths::of(&network));
        Situation {
            network: true,
            paths: paths.unwrap_or_default(),
            ..usual()
        }
    }

    const STAR: &str = "[[cluster]]
        name = \"A\"
        nodes = 20
        node_out = \"15 Mbit/s\"
        node_in = \"15 Mbit/s\"
        ";

    #[test]
    fn links_that_may_change_are_followed_where_they_are_the_limit() {
        let sites = |count: usize, cards: &str, link: &str| {
            let site = |site: usize| {
                let site = format!("{}", (b'A' + site as u8) as char);
                let star = STAR.replace("\"A\"", &format!("\"{site}\""));
                star.replace("15 Mbit/s", cards)
            };
            let toml: String = (0..count).map(site).collect();
            let link = format!("[[link]]\nfrom = \"*\"\nto = \"*\"\n{link}\n");
            Situation {
                clusters: count,
                ..described(&format!("{toml}{link}"))
            }
        };
        for (count, cards, link, expected) in [
            (2, "20 MB/s", "rate = \"4 MB/s\"", "central"),
            (4, "20 MB/s", "rate = \"3 MB/s\"", "central"),
            // Cards are the limit, or nearly.
            (4, "20 MB/s", "rate = \"4 MB/s\"", "optimal"),
            (5, "20 MB/s", "rate = \"1 MB/s\"", "optimal"),
            (
                2,
                "20 MB/s",
                "rate = \"4 MB/s\"\nloss = 0.01\ndelay = \"200 ms\"",
                "optimal",
            ),
            (2, "1 GB/s", "rate = \"26 MB/s\"", "optimal"),
            (2, "1 GB/s", "rate = \"25 MB/s\"", "central"),
            (2, "1 GB/s", "delay = \"1 ms\"", "optimal"),
        ] {
            assert_eq!(
                name(sites(count, cards, link)),
                expected,
                "{count}: {cards}, {link}"
            );
        }
        let one_way = "rate = \"4 MB/s\"\n[[link]]\nfrom = \"B\"\nto = \"A\"\nrate = \"0 MB/s\"";
        assert_eq!(name(sites(2, "20 MB/s", one_way)), "central");
    }

    #[test]
    fn relays_are_led_where_a_link_is_narrow() {
        let relays = |situation: Situation| {
            name(Situation {
                relays: true,
                ..situation
            })
        };
        assert_eq!(relays(usual()), "swarm");
        assert_eq!(relays(described(STAR)), "swarm");
        let site = STAR.replace("\"A\"", "\"B\"");
        let between = |link: &str| Situation {
            clusters: 2,
            ..described(&format!(
                "{STAR}{site}[[link]]\nfrom = \"A\"\nto = \"B\"\n{link}\n"
            ))
        };
        for (link, expected) in [
            ("", "swarm"),
            ("rate = \"15 Mbit/s\"", "swarm"),
            ("rate = \"14 Mbit/s\"", "central"),
            ("rate = \"14 Mbit/s\"\nloss = 0.01", "swarm"),
        ] {
            assert_eq!(relays(between(link)), expected, "{link}");
        }
    }

    #[test]
    fn nodes_that_are_alike_and_last_need_no_coding() {
        assert_eq!(name(usual()), "chain");
        assert_eq!(name(described(STAR)), "chain");
        assert!(described(STAR).paths.alike);
    }

    #[test]
    fn coding_pays_where_nodes_differ_or_fail() {
        let slow = "[[node]]\nname = \"A3\"\nout = \"1 MB/s\"\nin = \"1 MB/s\"\n";
        let slow = choose(described(&format!("{STAR}{slow}")));
        assert_eq!(slow.entry.name, "coded-gossip");
        assert!(slow.why.contains("receive faster"), "{}", slow.why);
        let fails = choose(Situation {
            unreliable: true,
            ..usual()
        });
        assert_eq!(fails.entry.name, "coded-gossip");
        assert!(fails.why.contains("may fail"), "{}", fails.why);
        // Where only what they send differs, a swarm was measured to be faster.
        let out = "[[node]]\nname = \"A3\"\nout = \"1 MB/s\"\n";
        assert_eq!(name(described(&format!("{STAR}{out}"))), "swarm");
    }

    #[test]
    fn coding_pays_where_packets_get_lost_on_short_ways() {
        let link = |more: &str| {
            let other = STAR.replace("\"A\"", "\"B\"");
            let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"9 MB/s\"\n";
            Situation {
                clusters: 2,
                ..described(&format!("{STAR}{other}{link}{more}"))
            }
        };
        assert_eq!(name(link("loss = 0.01")), "coded-gossip");
        assert_eq!(name(link("")), "optimal");
        assert_eq!(name(link("loss = 0.01\ndelay = \"50 ms\"")), "coded-gossip");
        assert_eq!(name(link("loss = 0.01\ndelay = \"200 ms\"")), "optimal");
    }

    #[test]
    fn coding_does_not_pay_where_much_is_on_its_way() {
        let at = |rate: &str, delay: &str, receivers: usize| {
            let fast = STAR.replace("15 Mbit/s", rate);
            let toml = format!("{fast}local_delay = \"{delay}\"\n");
            let situation = described(&toml);
            assert!(situation.paths.alike, "{toml}");
            name(Situation {
                receivers,
                unreliable: true,
                ..situation
            })
        };
        for (rate, delay, receivers, pays) in [
            ("1 Gbit/s", "0 ms", 7, true),
            ("1 Gbit/s", "0.5 ms", 7, true),
            ("1 Gbit/s", "2 ms", 7, false),
            ("1 Gbit/s", "1.5 ms", 19, true),
            ("1 Gbit/s", "5 ms", 19, false),
            ("100 Mbit/s", "5 ms", 7, true),
            ("100 Mbit/s", "20 ms", 7, false),
            ("15 Mbit/s", "100 ms", 19, true),
            ("15 Mbit/s", "200 ms", 500, false),
        ] {
            let coded = at(rate, delay, receivers) == "coded-gossip";
            assert_eq!(coded, pays, "{rate}, {delay}, {receivers}");
        }
    }

    #[test]
    fn nothing_is_on_a_way_that_takes_no_time() {
        let unlimited = "[[cluster]]\nname = \"A\"\nnodes = 3\n";
        assert_eq!(described(unlimited).paths.flight, Bytes::ZERO);
        let long = described(&format!("{unlimited}local_delay = \"1 ms\"\n"));
        assert_eq!(long.paths.flight, Bytes(u64::MAX));
    }

    #[test]
    fn coding_stays_within_what_processors_can_do() {
        let with = |limit, batching| Situation {
            unreliable: true,
            paths: Paths::limited(limit),
            batching,
            ..usual()
        };
        let speed = rate("10 GB/s");
        for (limit, expected) in [("1 Gbit/s", "coded-gossip"), ("10 Gbit/s", "chain")] {
            let limit = rate(limit);
            let batching = Batching::new(64, speed, limit);
            assert_eq!(name(with(limit, Some(batching))), expected);
        }
        let unlimited = Batching::new(64, speed, Rate::UNLIMITED);
        assert_eq!(name(with(Rate::UNLIMITED, Some(unlimited))), "swarm");
        // Nor does a short object have enough batches.
        assert_ne!(
            name(Situation {
                coded_blocks: 200,
                ..with(rate("15 Mbit/s"), usual().batching)
            }),
            "coded-gossip"
        );
    }

    #[test]
    fn the_fastest_node_sets_the_rate_that_coding_has_to_keep_up_with() {
        let fast = "[[node]]\nname = \"A3\"\nout = \"20 MB/s\"\n";
        let network = Network::from_toml(&format!("{STAR}{fast}"), "net.toml");
        assert_eq!(network.map(|it| fastest(&it)).ok(), Some(rate("20 MB/s")));
    }

    #[test]
    fn several_sources_are_all_used() {
        let two = |situation| {
            name(Situation {
                sources: 2,
                receivers: 1,
                ..situation
            })
        };
        assert_eq!(two(usual()), "swarm");
        assert_eq!(two(described(STAR)), "optimal");
    }

    #[test]
    fn the_choice_follows_what_is_known() {
        assert_eq!(chosen(1, 1000, false), "direct");
        assert_eq!(chosen(19, 1526, true), "chain");
        assert_eq!(chosen(19, 1526, false), "swarm");
        assert_eq!(chosen(3, 1526, false), "chain");
        assert_eq!(chosen(500, 1526, true), "swarm");
        assert_eq!(chosen(2, 3, true), "swarm");
    }
}
