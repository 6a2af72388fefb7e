//! Clusters and the links between them: [Burger §3.2.3 and §4.6].

use std::fmt::Write;

use outpour_core::Bytes;

use super::Setting;
use crate::ExperimentError;
use crate::dice::Dice;

/// Nodes in clusters A, B, C and D.
pub(crate) type Sizes = [u32; 4];

/// The links between four clusters [Burger figure 4.16] and their rates in MB/s; none: that of the
/// links that are fast or slow.
const LINKS: [(&str, &str, Option<f64>); 6] = [
    ("A", "B", Some(10.0)),
    ("A", "C", Some(3.0)),
    ("B", "D", Some(2.0)),
    ("C", "D", Some(6.0)),
    ("A", "D", None),
    ("B", "C", None),
];
const FAST: f64 = 8.0;
const SLOW: f64 = 0.8;

/// How long mayhem goes on before it repeats itself: longer than any run lasts.
const MAYHEM_STEPS: usize = 240;

/// The shares that rates and seconds have of those in the thesis, where 600 MB are cast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) rate: f64,
    pub(crate) second: f64,
}

impl Shares {
    /// Those of an object of another size in the same network.
    pub(crate) fn of(size: Bytes) -> Self {
        Self {
            rate: 1.0,
            second: size.as_f64() / 600e6,
        }
    }
}

/// What happens to the links between four clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    Fast,
    Slow,
    FastToSlow,
    SlowToFast,
    Mayhem,
}

impl Scenario {
    pub(crate) const ALL: [Self; 5] = [
        Self::Fast,
        Self::Slow,
        Self::FastToSlow,
        Self::SlowToFast,
        Self::Mayhem,
    ];

    /// Those in which nothing changes.
    pub(crate) const STATIC: [Self; 2] = [Self::Fast, Self::Slow];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast links",
            Self::Slow => "slow links",
            Self::FastToSlow => "fast -> slow",
            Self::SlowToFast => "slow -> fast",
            Self::Mayhem => "mayhem",
        }
    }

    const fn first(self) -> f64 {
        match self {
            Self::Fast | Self::FastToSlow | Self::Mayhem => FAST,
            Self::Slow | Self::SlowToFast => SLOW,
        }
    }

    /// The script for such shares of the thesis's rates and seconds.
    pub(crate) fn script(self, seed: u64, shares: Shares) -> Option<String> {
        let turn = |rate: f64| {
            let rate = rate * shares.rate;
            let mut text = format!("hear start\nsleep {:.3} sec\n", 30.0 * shares.second);
            for (a, b, _) in LINKS.iter().filter(|(_, _, rate)| rate.is_none()) {
                set(&mut text, a, b, rate);
            }
            text
        };
        match self {
            Self::Fast | Self::Slow => None,
            Self::FastToSlow => Some(turn(SLOW)),
            Self::SlowToFast => Some(turn(FAST)),
            Self::Mayhem => Some(mayhem(seed, shares)),
        }
    }
}

fn set(script: &mut String, a: &str, b: &str, rate: f64) {
    let _ = writeln!(script, "setBandwidth {a} {b} {rate:.4} MB/s");
    let _ = writeln!(script, "setBandwidth {b} {a} {rate:.4} MB/s");
}

/// Every five seconds each link gets between 10 % and 100 % of its nominal rate.
fn mayhem(seed: u64, shares: Shares) -> String {
    let mut dice = Dice::new(seed);
    let mut text = "hear start\nforever\n".to_owned();
    for _ in 0..MAYHEM_STEPS {
        let _ = writeln!(text, "sleep {:.3} sec", 5.0 * shares.second);
        for (a, b, rate) in LINKS {
            let share = shares.rate * (0.1 + 0.9 * dice.share());
            set(&mut text, a, b, rate.unwrap_or(FAST) * share);
        }
    }
    text
}

/// The four clusters of test cases 1, 2, 3 and 5, described in TOML.
pub(crate) fn four_clusters(sizes: Sizes, delay_ms: u32, scenario: Scenario, share: f64) -> String {
    let card = format!("{} MB/s", 100.0 * share);
    let mut toml = String::new();
    for (name, nodes) in ["A", "B", "C", "D"].iter().zip(sizes) {
        cluster(
            &mut toml,
            name,
            nodes,
            &[(card.as_str(), "node"), (&card, "")],
        );
    }
    let _ = write!(
        toml,
        "\n[[link]]\nfrom = \"*\"\nto = \"*\"\ndelay = \"{delay_ms} ms\"\n"
    );
    for (a, b, rate) in LINKS {
        let rate = rate.unwrap_or_else(|| scenario.first());
        link(&mut toml, a, b, rate * share);
    }
    toml
}

/// A cluster with capacities of its nodes and of itself, equal in both directions.
fn cluster(toml: &mut String, name: &str, nodes: u32, capacities: &[(&str, &str)]) {
    let _ = write!(toml, "\n[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\n");
    for (rate, of) in capacities {
        let _ = match *of {
            "node" => write!(toml, "node_out = \"{rate}\"\nnode_in = \"{rate}\"\n"),
            "local" => write!(toml, "interconnect = true\nlocal = \"{rate}\"\n"),
            _ => write!(toml, "out = \"{rate}\"\nin = \"{rate}\"\n"),
        };
    }
}

fn link(toml: &mut String, a: &str, b: &str, rate: f64) {
    let _ = write!(
        toml,
        "\n[[link]]\nfrom = \"{a}\"\nto = \"{b}\"\nrate = \"{rate} MB/s\"\nboth = true\n"
    );
}

/// Test case 4: so many clusters on each of four continents [Burger figure 4.21]. How many nodes
/// a cluster has is not said there; four make 64 at sixteen clusters, as many as elsewhere.
pub(crate) fn continents(per_continent: usize, europe_america: f64) -> String {
    const NODES: u32 = 4;
    const CONTINENTS: [&str; 4] = ["eu", "us", "as", "af"];
    let mut toml = String::new();
    for continent in CONTINENTS {
        for index in 0..per_continent {
            let name = format!("{continent}{index}-");
            cluster(
                &mut toml,
                &name,
                NODES,
                &[("100 MB/s", "node"), ("100 MB/s", "")],
            );
        }
    }
    let mut pair = |a: &str, b: &str, rate: f64, delay: u32| {
        let _ = write!(
            toml,
            "\n[[link]]\nfrom = \"{a}*\"\nto = \"{b}*\"\nrate = \"{rate} MB/s\"\n\
             delay = \"{delay} ms\"\n"
        );
    };
    pair("", "", 0.5, 100);
    for continent in CONTINENTS {
        pair(continent, continent, 5.0, 10);
    }
    pair("eu", "us", europe_america, 100);
    pair("us", "eu", europe_america, 100);
    toml
}

/// The clusters of [Burger §3.2.3] between which Balanced Multicasting was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Das2 {
    /// Amsterdam and Leiden.
    Two,
    /// And Delft, behind Leiden.
    Three,
}

/// A node's Fast Ethernet card as it was measured there.
const CARD: &str = "11.2 MB/s";

/// Two or three clusters of the DAS-2: wide-area links as pathChirp saw them, Fast Ethernet cards
/// for other clusters, Myrinet inside. What Amsterdam and Delft have between them is not said, but
/// that the chain over Leiden was chosen; here they have nothing.
pub(crate) fn das2(which: Das2, nodes: u32) -> String {
    let mut toml = String::new();
    let names: &[&str] = match which {
        Das2::Two => &["amsterdam", "leiden"],
        Das2::Three => &["amsterdam", "leiden", "delft"],
    };
    for name in names {
        cluster(
            &mut toml,
            name,
            nodes,
            &[(CARD, "node"), ("unlimited", "local")],
        );
    }
    link(&mut toml, "amsterdam", "leiden", 65.0);
    if which == Das2::Three {
        link(&mut toml, "leiden", "delft", 57.0);
    }
    toml.push_str("\n[[link]]\nfrom = \"leiden\"\nto = \"*\"\ndelay = \"1 ms\"\nboth = true\n");
    toml
}

/// Test case 6: four clusters of the DAS-2. Links beyond those known from [Burger §3.2.3] are set
/// alike; inside a cluster a pair of nodes moves what the thesis found to be the limit there.
pub(crate) fn four_das2(nodes: u32) -> String {
    let names = ["vu", "uva", "leiden", "delft"];
    let mut toml = String::new();
    for name in names {
        cluster(
            &mut toml,
            name,
            nodes,
            &[(CARD, "node"), ("29 MB/s", "local")],
        );
    }
    toml.push_str(
        "\n[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"65 MB/s\"\ndelay = \"1 ms\"\n\
         \n[[link]]\nfrom = \"delft\"\nto = \"*\"\nrate = \"57 MB/s\"\nboth = true\n",
    );
    toml
}

/// Test case 7: clusters whose nodes have cards of so many Mbit/s for other clusters, and an
/// interconnect; ten cards fill a link between clusters.
pub(crate) fn cards(clusters: usize, nodes: u32, card_mbit: f64) -> String {
    let mut toml = String::new();
    let (card, wide) = (
        format!("{card_mbit} Mbit/s"),
        format!("{} Mbit/s", 10.0 * card_mbit),
    );
    for name in ["A", "B", "C", "D"].iter().take(clusters) {
        let capacities = [(card.as_str(), "node"), (&wide, ""), (&wide, "local")];
        cluster(&mut toml, name, nodes, &capacities);
    }
    let _ = write!(
        toml,
        "\n[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"{wide}\"\ndelay = \"5 ms\"\n"
    );
    toml
}

/// Test case 8: as test case 7, but the second half of each cluster's nodes has a tenth.
pub(crate) fn mixed_cards(clusters: usize, nodes: u32, card_mbit: f64) -> String {
    let mut toml = cards(clusters, nodes, card_mbit);
    for name in ["A", "B", "C", "D"].iter().take(clusters) {
        for index in nodes / 2..nodes {
            let slow = card_mbit / 10.0;
            let _ = write!(
                toml,
                "\n[[node]]\nname = \"{name}{index}\"\nout = \"{slow} Mbit/s\"\n\
                 in = \"{slow} Mbit/s\"\n"
            );
        }
    }
    toml
}

impl Setting {
    /// Four clusters in a scenario; a shorter multicast sees the same changes, sooner.
    pub(crate) fn scenario(
        sizes: Sizes,
        delay_ms: u32,
        scenario: Scenario,
        size: Bytes,
        shares: Shares,
        seed: u64,
    ) -> Result<Self, ExperimentError> {
        let toml = four_clusters(sizes, delay_ms, scenario, shares.rate);
        let setting = Self::new(&toml, "A0", size)?;
        match scenario.script(seed, shares) {
            Some(script) => setting.changing(script),
            None => Ok(setting),
        }
    }
}
