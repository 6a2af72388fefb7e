//! What the thesis says it found: the only figures here that no run produced.
//!
//! Its plots are not available to be read as numbers, so these are the numbers in its text.

/// What the thesis says about one experiment.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// The experiment.
    pub name: &'static str,
    /// Where it says so.
    pub place: &'static str,
    /// What it says, in our words.
    pub says: &'static str,
}

/// The thesis, read off its text, by experiment.
pub const FINDINGS: &[Finding] = &[
    Finding {
        name: "gridlab",
        place: "§3.2.3, figure 3.11",
        says: "Balanced beats semi-flat, max-bottleneck and FPFR trees at every root; FPFR is at \
               times below a single tree; Balanced does not always reach the optimum, which took \
               20 minutes per root to compute.",
    },
    Finding {
        name: "das2",
        place: "§3.2.3, figure 3.12",
        says: "11.2 MB/s with one node per cluster; almost linear up to six: 62 MB/s between two \
               clusters (link 65 MB/s), 57 MB/s over three (second link 57 MB/s). More than six \
               only congest the link.",
    },
    Finding {
        name: "case1",
        place: "§4.6.2, figure 4.17",
        says: "BitTorrent is always the slowest. MOB and Robber are like Balanced in the static \
               scenarios and better in all dynamic ones, near the maximum. In `slow -> fast` \
               Balanced stays at what it has with slow links; in `mayhem` it keeps 29 % of its \
               throughput with fast links, MOB and Robber about 52 %, where links have 55 % on \
               average.",
    },
    Finding {
        name: "case2",
        place: "§4.6.2, figure 4.18",
        says: "MOB and Robber do a little worse than with equal clusters, like Balanced in the \
               static scenarios and better in the dynamic ones.",
    },
    Finding {
        name: "case3",
        place: "§4.6.2, figures 4.19 and 4.20",
        says: "With 50 ms instead of 10 ms, equal clusters lose on average 11 % (BitTorrent), 2 % \
               (MOB), 1 % (Robber), 7 % (Balanced); unequal ones up to 40 %, 9 %, 8 %, 12 %.",
    },
    Finding {
        name: "case4",
        place: "§4.6.2, figure 4.22",
        says: "With more clusters MOB, Robber and Balanced get faster, BitTorrent does not; Robber \
               pulls away from MOB; Balanced wins. With Europe-America links at 100 KB/s that are \
               taken for 500 KB/s, Balanced plummets and MOB and Robber adapt. The optimum could \
               be computed up to 8 clusters, with 41 trees.",
    },
    Finding {
        name: "case5",
        place: "§4.6.2, figure 4.23",
        says: "MagPIe wins for short messages, MOB and Robber reach at least half of it there and \
               overtake it near 512 KB (20 ms round trip) or 4 MB (100 ms). MagPIe stays below \
               3 MB/s, MOB and Robber reach 13 MB/s with 128 MB.",
    },
    Finding {
        name: "case6",
        place: "§4.6.3, figure 4.24",
        says: "MOB and Balanced use the nodes' cards in parallel until the network inside the \
               clusters is the bottleneck: Balanced, with chains there, reaches 26 MB/s, MOB \
               29 MB/s, a little less with 8 or 16 nodes. BitTorrent keeps up with two nodes per \
               cluster only.",
    },
    Finding {
        name: "case7",
        place: "§4.6.3, figure 4.25",
        says: "MOB, Robber and Balanced add up the cards until the links of 1 Gbit/s are full, \
               near 120 MB/s; BitTorrent falls off as nodes are added.",
    },
    Finding {
        name: "case8",
        place: "§4.6.3, figure 4.26",
        says: "MOB is held to N x 10 Mbit/s with N nodes per cluster. Robber and Balanced use the \
               fast cards and come near the optimum, Balanced a little nearer. BitTorrent keeps up \
               only between two clusters of 2 to 8 nodes; else it falls to 10 Mbit/s.",
    },
    Finding {
        name: "emulated",
        place: "§4.6.1",
        says: "All test cases were run with real programs in an emulated network; there was no \
               simulator to compare with.",
    },
    Finding {
        name: "emulated-cards",
        place: "§4.6.1",
        says: "See case7 and case8; run with real programs as well.",
    },
    Finding {
        name: "emulated-full-time",
        place: "§4.6.2, figure 4.17",
        says: "See case1: MOB and Robber are near the maximum in all dynamic scenarios. Sixteen \
               nodes a cluster there, four here.",
    },
];

/// The methods of table 4.2, in its order.
pub const METHODS: [&str; 4] = ["balanced", "bittorrent", "mob", "robber"];

/// Table 4.2: how well each of [`METHODS`] suits a case; `+` good, `o` mediocre, `-` bad.
pub const SUITABILITY: &[(&str, [&str; 4])] = &[
    ("Individual hosts", ["+", "+", "+", "+"]),
    ("Clusters of the same size", ["+", "-", "+", "+"]),
    ("Clusters of different sizes", ["+", "-", "+", "+"]),
    ("Homogeneous clusters", ["+", "-", "+", "+"]),
    ("Heterogeneous clusters", ["+", "-", "-", "+"]),
    ("Large number of clusters", ["o", "-", "o", "+"]),
    ("Heterogeneous wide-area bandwidth", ["+", "+", "+", "+"]),
    ("Fluctuating wide-area bandwidth", ["-", "+", "+", "+"]),
    ("Ease of deployment", ["-", "+", "+", "+"]),
];

/// What the thesis says about an experiment.
pub fn finding(name: &str) -> Option<&'static Finding> {
    FINDINGS.iter().find(|finding| finding.name == name)
}
