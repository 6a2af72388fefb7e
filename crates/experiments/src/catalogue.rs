//! The experiments by name, and what each of the simulated ones takes.

use outpour_core::Bytes;

use crate::emulated::Which;
use crate::method::{
    BALANCED, BITTORRENT, CENTRAL, FPFR, MAGPIE, MAX_BOTTLENECK, MOB, Method, OPTIMAL, ROBBER,
    SEMI_FLAT,
};
use crate::run::{Place, Plot};
use crate::setting::{
    Das2, Gridlab, Scenario, Setting, Shares, Sizes, cards, continents, das2, four_clusters,
    four_das2, mixed_cards,
};
use crate::{Entry, ExperimentError, GridOptions, Runner};

type Outcome<T> = Result<T, ExperimentError>;
type Plots = Outcome<Vec<Plot>>;

/// Every experiment, in the order of the thesis.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "gridlab",
        about: "eight GridLab sites, each the root once",
        setup: "the network of tables 3.1 and 3.2, 200 MB in blocks of 32 KiB, simulated. A link \
                that is dead one way only carries trees the other way; for methods that ask, which \
                need connections of both directions, it is dead. MOB, Robber and BitTorrent were \
                not part of this experiment in the thesis.",
        run: Runner::Simulated(gridlab),
    },
    Entry {
        name: "das2",
        about: "two and three DAS-2 clusters of 1 to 8 nodes",
        setup: "cards of 11.2 MB/s, an interconnect without limit, links of 65 and 57 MB/s with \
                1 ms; Amsterdam and Delft have none, so that the chain is the only tree between \
                clusters. The model knows no congestion: more nodes than fill a link do no harm.",
        run: Runner::Simulated(das2_pair),
    },
    Entry {
        name: "case1",
        about: "four clusters of 16 nodes, five scenarios",
        setup: "the network and scripts of figures 4.15 and 4.16, 600 MB in blocks of 32 KiB. In \
                `mayhem` each link has its own share of 10 % to 100 %, equal in both directions, \
                drawn from the seed.",
        run: Runner::Simulated(case1),
    },
    Entry {
        name: "case2",
        about: "clusters of 4, 12, 16 and 32 nodes, five scenarios",
        setup: "as case1.",
        run: Runner::Simulated(case2),
    },
    Entry {
        name: "case3",
        about: "test cases 1 and 2 with a delay of 50 ms",
        setup: "as case1 and case2 with 50 ms between clusters. The simulator has no losses from \
                which a long connection would recover slowly, so delay costs less than it did.",
        run: Runner::Simulated(case3),
    },
    Entry {
        name: "case4",
        about: "4 to 16 clusters on four continents",
        setup: "clusters of four nodes, a number the thesis does not give; 100 MB. Trees are \
                planned for 500 KB/s between Europe and America in both variants. Links \
                between continents, which are the limit with 8 and 12 clusters, carry nothing in \
                the first 0.62 s, as connections are made: no method gets more than 0.96 and 0.92 \
                of the optimum there. With 16 it is what leaves the root, and the first 0.62 s still \
                count: a block crosses three links between continents on its way on average, each of \
                which takes 100 ms and 65 ms more at 500 KB/s. Trees that met no queues would end at \
                0.77 of it, as some are eight such links deep; if each had the fewer blocks the deeper \
                it is, at 0.88.",
        run: Runner::Simulated(case4),
    },
    Entry {
        name: "case5",
        about: "short messages: MOB and Robber against MagPIe",
        setup: "four clusters of 16 nodes with fast links; 32 KiB to 128 MiB; up to 4 MiB the \
                median of five seeds. Connections are made anew each time, which costs every \
                method two round trips that the thesis's channels had behind them.",
        run: Runner::Simulated(case5),
    },
    Entry {
        name: "case6",
        about: "four DAS-2 clusters of 1 to 16 nodes",
        setup: "links of 65 MB/s, those of Delft 57 MB/s, which the thesis measured between some \
                of these clusters only; 29 MB/s between two nodes of a cluster. In the thesis a \
                whole node was held to that; here each pair is, which chains feel and exchanges \
                with several peers do not.",
        run: Runner::Simulated(case6),
    },
    Entry {
        name: "case7",
        about: "homogeneous clusters: 100 Mbit/s cards",
        setup: "1 GB; clusters, links between them and pairs of nodes inside carry 1 Gbit/s.",
        run: Runner::Simulated(case7),
    },
    Entry {
        name: "case8",
        about: "heterogeneous clusters: 10 and 100 Mbit/s cards",
        setup: "as case7 with 512 MB; the first half of each cluster's nodes is fast, the root too.",
        run: Runner::Simulated(case8),
    },
    Entry {
        name: "emulated",
        about: "test cases 1 and 3 at 4 x 4 nodes with real agents",
        setup: "agents in namespaces of one machine, encryption and verification on, files in \
                memory; emulation in bulk mode. Scripts run five times as fast, as the object is \
                a fifth of the thesis's. Time counts from the start of the transfer to the last file in place; for \
                fast links and fast -> slow the median of three casts with three seeds counts, for \
                BitTorrent that of seven. In fast -> slow the trees of a plan wait in the end for \
                links a tenth as fast as planned: for what these carried too little while they \
                were fast it takes ten times as long. A mark shows what the \
                simulator says of the same network and protocol over TCP with the emulator's \
                packets of 9000 bytes: with headers, handshakes, slow start, the loss that ends \
                it and the manifest's own cast, but without other losses; the median of seven \
                seeds.",
        run: Runner::Emulated(Which::Fifth),
    },
    Entry {
        name: "emulated-cards",
        about: "test cases 7 and 8 at 4 x 4 nodes with real agents",
        setup: "as emulated; cards have a fifth of the thesis's rate, as one machine carries all. \
                Each cast once. Between cards of 20 and 2 Mbit/s BitTorrent, which would take nine \
                minutes, casts a tenth of the object.",
        run: Runner::Emulated(Which::Cards),
    },
    Entry {
        name: "emulated-full-time",
        about: "test case 1 at 4 x 4 nodes with real agents, as long as in the thesis",
        setup: "as emulated, but scripts run as fast as in the thesis. The object and all rates are \
                half of the thesis's, as two cores carry no more without being the bottleneck. A \
                cast takes five times as long as in emulated, so the delay until a node notices a \
                changed link is a fifth of the share of it. Each method casts once. BitTorrent and \
                Balanced are left out, and optimal trees where links change: see emulated.",
        run: Runner::Emulated(Which::FullTime),
    },
];

/// The methods that the test cases compare.
pub(crate) const COMPARED: &[Method] = &[BITTORRENT, MOB, ROBBER, CENTRAL, BALANCED, OPTIMAL];

const EQUAL: Sizes = [16, 16, 16, 16];
const UNEQUAL: Sizes = [4, 12, 16, 32];
const SMALL: Sizes = [4, 4, 4, 4];
const SMALL_UNEQUAL: Sizes = [2, 3, 4, 7];

/// What a size is cut down to if an experiment is made short.
fn size(options: &GridOptions, megabytes: u64) -> Bytes {
    Bytes(megabytes * 1_000_000 / if options.short { 20 } else { 1 })
}

fn place(
    label: impl Into<String>,
    setting: Outcome<Setting>,
    methods: &[Method],
) -> Outcome<Place> {
    Ok(Place {
        label: label.into(),
        setting: setting?,
        methods: methods.to_vec(),
        repeats: 1,
    })
}

fn plot(
    name: &'static str,
    title: impl Into<String>,
    axis: &'static str,
    places: impl IntoIterator<Item = Outcome<Place>>,
) -> Outcome<Plot> {
    Ok(Plot {
        name,
        title: title.into(),
        axis,
        logarithmic: false,
        places: places.into_iter().collect::<Outcome<_>>()?,
    })
}

fn gridlab(options: &GridOptions) -> Plots {
    let table = Gridlab::read(options.data.as_deref())?;
    let methods = [
        SEMI_FLAT,
        MAX_BOTTLENECK,
        FPFR,
        BALANCED,
        OPTIMAL,
        BITTORRENT,
        MOB,
        ROBBER,
        CENTRAL,
    ];
    let size = size(options, 200);
    let each = |root| place(root, table.setting(root, size), &methods);
    let title = "Eight GridLab sites, 200 MB from each";
    Ok(vec![plot(
        "gridlab",
        title,
        "root",
        table.sites().map(each),
    )?])
}

fn das2_pair(options: &GridOptions) -> Plots {
    let most = if options.short { 3 } else { 8 };
    let size = size(options, 600);
    let plot = |name, title, which| {
        let each = |nodes: u32| {
            let setting = Setting::new(&das2(which, nodes), "amsterdam", size);
            place(nodes.to_string(), setting, &[BALANCED, OPTIMAL])
        };
        plot(name, title, "nodes per cluster", (1..=most).map(each))
    };
    Ok(vec![
        plot("das2-two", "Amsterdam to Leiden, 600 MB", Das2::Two)?,
        plot(
            "das2-three",
            "Amsterdam to Leiden and Delft, 600 MB",
            Das2::Three,
        )?,
    ])
}

fn scenarios(
    name: &'static str,
    title: &str,
    options: &GridOptions,
    sizes: Sizes,
    delay_ms: u32,
) -> Outcome<Plot> {
    let size = size(options, 600);
    let each = |scenario: Scenario| {
        let shares = Shares::of(size);
        let setting = Setting::scenario(sizes, delay_ms, scenario, size, shares, options.seed);
        place(scenario.name(), setting, COMPARED)
    };
    plot(name, title, "scenario", Scenario::ALL.map(each))
}

const fn sizes(options: &GridOptions) -> (Sizes, Sizes) {
    if options.short {
        (SMALL, SMALL_UNEQUAL)
    } else {
        (EQUAL, UNEQUAL)
    }
}

fn case1(options: &GridOptions) -> Plots {
    let title = "Four clusters of the same size";
    Ok(vec![scenarios(
        "case1",
        title,
        options,
        sizes(options).0,
        10,
    )?])
}

fn case2(options: &GridOptions) -> Plots {
    let title = "Four clusters of different sizes";
    Ok(vec![scenarios(
        "case2",
        title,
        options,
        sizes(options).1,
        10,
    )?])
}

fn case3(options: &GridOptions) -> Plots {
    let (equal, unequal) = sizes(options);
    let titles = [
        "Four clusters of the same size, 100 ms round trip",
        "Four clusters of different sizes, 100 ms round trip",
    ];
    Ok(vec![
        scenarios("case3-equal", titles[0], options, equal, 50)?,
        scenarios("case3-unequal", titles[1], options, unequal, 50)?,
    ])
}

/// The rate between continents, MB/s, and what it turns out to be between Europe and America if
/// planners are misinformed.
const BETWEEN_CONTINENTS: f64 = 0.5;
const MISTAKEN: f64 = 0.1;

fn case4(options: &GridOptions) -> Plots {
    let most = if options.short { 2 } else { 4 };
    let size = size(options, 100);
    let setting = |per_continent, actual| {
        let root = "eu0-0";
        let mut setting = Setting::new(&continents(per_continent, actual), root, size)?;
        if actual != BETWEEN_CONTINENTS {
            let believed = continents(per_continent, BETWEEN_CONTINENTS);
            setting.believed = Some(Setting::new(&believed, root, size)?.network);
        }
        Ok(setting)
    };
    let plot = |name, title, actual| {
        let each = |per_continent: usize| {
            let label = (4 * per_continent).to_string();
            place(label, setting(per_continent, actual), COMPARED)
        };
        plot(name, title, "clusters", (1..=most).map(each))
    };
    let right = "Clusters on four continents, 100 MB";
    let wrong = "Europe-America at a fifth of what planners believe";
    Ok(vec![
        plot("case4", right, BETWEEN_CONTINENTS)?,
        plot("case4-wrong", wrong, MISTAKEN)?,
    ])
}

/// Up to which size of a message five runs are made, of which the median counts.
const REPEATED_MAX: u64 = 4 << 20;

fn case5(options: &GridOptions) -> Plots {
    let (clusters, doublings) = if options.short {
        (SMALL, 6)
    } else {
        (EQUAL, 13)
    };
    let each = |power: u32, delay_ms| {
        let bytes = (32 << 10) << power;
        let toml = four_clusters(clusters, delay_ms, Scenario::Fast, 1.0);
        let label = match bytes >> 20 {
            0 => format!("{}K", bytes >> 10),
            mebibytes => format!("{mebibytes}M"),
        };
        let setting = Setting::new(&toml, "A0", Bytes(bytes));
        let mut place = place(label, setting, &[MOB, ROBBER, MAGPIE])?;
        place.repeats = if bytes <= REPEATED_MAX { 5 } else { 1 };
        Ok(place)
    };
    let plot = |name, title, delay_ms| {
        let places = (0..doublings).map(|power| each(power, delay_ms));
        Ok(Plot {
            logarithmic: true,
            ..plot(name, title, "bytes sent", places)?
        })
    };
    [
        ("case5-20ms", "Messages by size, 20 ms round trip", 10),
        ("case5-100ms", "Messages by size, 100 ms round trip", 50),
    ]
    .map(|(name, title, delay_ms)| plot(name, title, delay_ms))
    .into_iter()
    .collect()
}

/// Nodes per cluster, doubling from `first`.
fn doubling(options: &GridOptions, first: u32) -> impl Iterator<Item = u32> + use<> {
    let most = if options.short { 4 } else { 16 };
    std::iter::successors(Some(first), |nodes| Some(nodes * 2)).take_while(move |n| *n <= most)
}

fn case6(options: &GridOptions) -> Plots {
    let size = size(options, 600);
    let each = |nodes: u32| {
        let setting = Setting::new(&four_das2(nodes), "vu", size);
        place(nodes.to_string(), setting, COMPARED)
    };
    let title = "Four DAS-2 clusters, 600 MB";
    Ok(vec![plot(
        "case6",
        title,
        "nodes per cluster",
        doubling(options, 1).map(each),
    )?])
}

/// A plot each for two and for four clusters.
fn two_and_four(
    names: [&'static str; 2],
    kind: &str,
    options: &GridOptions,
    first: u32,
    size: Bytes,
    describe: fn(usize, u32, f64) -> String,
) -> Plots {
    let plot = |(name, clusters): (&'static str, usize)| {
        let each = |nodes: u32| {
            let setting = Setting::new(&describe(clusters, nodes, 100.0), "A", size);
            place(nodes.to_string(), setting, COMPARED)
        };
        let number = if clusters == 2 { "Two" } else { "Four" };
        let title = format!("{number} {kind} clusters, {size}");
        plot(
            name,
            title,
            "nodes per cluster",
            doubling(options, first).map(each),
        )
    };
    [(names[0], 2), (names[1], 4)]
        .into_iter()
        .map(plot)
        .collect()
}

fn case7(options: &GridOptions) -> Plots {
    let names = ["case7-two", "case7-four"];
    two_and_four(names, "homogeneous", options, 1, size(options, 1000), cards)
}

fn case8(options: &GridOptions) -> Plots {
    let names = ["case8-two", "case8-four"];
    two_and_four(
        names,
        "heterogeneous",
        options,
        2,
        size(options, 512),
        mixed_cards,
    )
}
