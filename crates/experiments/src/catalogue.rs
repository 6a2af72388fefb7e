//! The experiments by name, and what each of the simulated ones takes.

use outpour_core::Bytes;

use crate::method::{
    BALANCED, BITTORRENT, FPFR, MAGPIE, MAX_BOTTLENECK, MOB, Method, OPTIMAL, ROBBER, SEMI_FLAT,
};
use crate::run::{Place, Plot};
use crate::setting::{
    Das2, Gridlab, Scenario, Setting, Sizes, cards, continents, das2, four_clusters, four_das2,
    mixed_cards,
};
use crate::{Entry, ExperimentError, Options, Runner};

type Outcome<T> = Result<T, ExperimentError>;
type Plots = Outcome<Vec<Plot>>;

/// Every experiment, in the order of the thesis.
pub const ENTRIES: &[Entry] = &[
    simulated(
        "gridlab",
        "eight GridLab sites, each the root once",
        gridlab,
    ),
    simulated(
        "das2",
        "two and three DAS-2 clusters of 1 to 8 nodes",
        das2_pair,
    ),
    simulated("case1", "four clusters of 16 nodes, five scenarios", case1),
    simulated(
        "case2",
        "clusters of 4, 12, 16 and 32 nodes, five scenarios",
        case2,
    ),
    simulated("case3", "test cases 1 and 2 with a delay of 50 ms", case3),
    simulated("case4", "4 to 16 clusters on four continents", case4),
    simulated(
        "case5",
        "short messages: MOB and Robber against MagPIe",
        case5,
    ),
    simulated("case6", "four DAS-2 clusters of 1 to 16 nodes", case6),
    simulated("case7", "homogeneous clusters: 100 Mbit/s cards", case7),
    simulated(
        "case8",
        "heterogeneous clusters: 10 and 100 Mbit/s cards",
        case8,
    ),
    Entry {
        name: "emulated",
        about: "test cases 1, 3, 7 and 8 at 4 x 4 nodes with real agents",
        run: Runner::Emulated,
    },
];

const fn simulated(name: &'static str, about: &'static str, plots: fn(&Options) -> Plots) -> Entry {
    Entry {
        name,
        about,
        run: Runner::Simulated(plots),
    }
}

/// The methods that the test cases compare.
pub(crate) const COMPARED: &[Method] = &[BITTORRENT, MOB, ROBBER, BALANCED, OPTIMAL];

const EQUAL: Sizes = [16, 16, 16, 16];
const UNEQUAL: Sizes = [4, 12, 16, 32];
const SMALL: Sizes = [4, 4, 4, 4];
const SMALL_UNEQUAL: Sizes = [2, 3, 4, 7];

/// What a size is cut down to if an experiment is made short.
fn size(options: &Options, megabytes: u64) -> Bytes {
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

fn gridlab(options: &Options) -> Plots {
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

fn das2_pair(options: &Options) -> Plots {
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
    options: &Options,
    sizes: Sizes,
    delay_ms: u32,
) -> Outcome<Plot> {
    let size = size(options, 600);
    let each = |scenario: Scenario| {
        let setting = Setting::scenario(sizes, delay_ms, scenario, size, options.seed);
        place(scenario.name(), setting, COMPARED)
    };
    plot(name, title, "scenario", Scenario::ALL.map(each))
}

const fn sizes(options: &Options) -> (Sizes, Sizes) {
    if options.short {
        (SMALL, SMALL_UNEQUAL)
    } else {
        (EQUAL, UNEQUAL)
    }
}

fn case1(options: &Options) -> Plots {
    let title = "Four clusters of the same size";
    Ok(vec![scenarios(
        "case1",
        title,
        options,
        sizes(options).0,
        10,
    )?])
}

fn case2(options: &Options) -> Plots {
    let title = "Four clusters of different sizes";
    Ok(vec![scenarios(
        "case2",
        title,
        options,
        sizes(options).1,
        10,
    )?])
}

fn case3(options: &Options) -> Plots {
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

fn case4(options: &Options) -> Plots {
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

fn case5(options: &Options) -> Plots {
    let (clusters, doublings) = if options.short {
        (SMALL, 6)
    } else {
        (EQUAL, 13)
    };
    let each = |power: u32, delay_ms| {
        let bytes = (32 << 10) << power;
        let toml = four_clusters(clusters, delay_ms, Scenario::Fast);
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
fn doubling(options: &Options, first: u32) -> impl Iterator<Item = u32> + use<> {
    let most = if options.short { 4 } else { 16 };
    std::iter::successors(Some(first), |nodes| Some(nodes * 2)).take_while(move |n| *n <= most)
}

fn case6(options: &Options) -> Plots {
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
    options: &Options,
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

fn case7(options: &Options) -> Plots {
    let names = ["case7-two", "case7-four"];
    two_and_four(names, "homogeneous", options, 1, size(options, 1000), cards)
}

fn case8(options: &Options) -> Plots {
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
