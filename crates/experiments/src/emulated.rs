//! Test cases with real agents: `outpour cast` inside `outpour emulate`, method by method.
//!
//! Beside each measurement stands what the simulator says about the very same network, protocol
//! and seed, over TCP as agents use it. The four clusters have four nodes each; the cards of test
//! cases 7 and 8 are a fifth as fast as in the thesis, because all sixteen nodes and the network
//! share this machine.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use outpour_core::Bytes;
use outpour_sim::transport::{Tcp, Transport};

use crate::catalogue::COMPARED;
use crate::lab::{Lab, complete, median, read, repeat, sound};
use crate::method::{BITTORRENT, CENTRAL, MOB, Method, OPTIMAL, ROBBER};
use crate::report::{Group, Measurement, Panel};
use crate::run::{self, BLOCK, Bounds};
use crate::setting::{Scenario, Setting, Shares, Sizes, cards, mixed_cards};
use crate::{ExperimentError, GridOptions};

const SIZES: Sizes = [4, 4, 4, 4];
const CLUSTERS: usize = 4;
const NODES: u32 = 4;
/// Cards of test cases 7 and 8, Mbit/s.
const CARD_MBIT: f64 = 20.0;
/// The largest packet: that of the emulator's bulk mode.
const MTU: u32 = 9000;
/// How often a cast is made where the median counts, each time with another seed, and elsewhere.
const REPEATS: u64 = 3;
const ONCE: u64 = 1;
/// Over how many seeds the simulated time is the median, and how often BitTorrent casts, with the
/// same seeds: which node asks which is drawn, and there it is worth a quarter of the time.
const SEEDS: u64 = 7;
/// BitTorrent between cards so unequal takes minutes: its object is so many times as small.
const UNEQUAL_SHARE: u64 = 10;
/// How long one cast may take before it is ended.
const CAST_MAX: Duration = Duration::from_secs(600);
/// Where the copies are, in the lab.
const COPIES: &str = "copies";

/// The methods that are given the time of the thesis: trees of a plan are slow where links change.
const IN_FULL_TIME: &[Method] = &[MOB, ROBBER, CENTRAL, OPTIMAL];
const IN_FULL_TIME_DYNAMIC: &[Method] = &[MOB, ROBBER, CENTRAL];
/// The share of the thesis's rates that the network has then: two cores carry no more without
/// being the bottleneck.
const HALF: f64 = 0.5;

/// Which part is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Test cases 1 and 3 with a fifth of the thesis's object, which take a fifth of the time.
    Fifth,
    /// Test cases 7 and 8 with that object.
    Cards,
    /// Test case 1 with half of its object and rates, in the thesis's time.
    FullTime,
}

impl Which {
    /// How large its object is.
    fn size(self, short: bool) -> Bytes {
        match self {
            _ if short => Bytes(24_000_000),
            Self::Fifth | Self::Cards => Bytes(120_000_000),
            Self::FullTime => Bytes(300_000_000),
        }
    }
}

/// The places of one plot: name, title, axis, and what is measured.
type Places = (&'static str, &'static str, &'static str, Vec<Place>);

/// Where every method is tried.
struct Place {
    label: String,
    setting: Setting,
    /// How often, of which the median counts.
    repeats: u64,
    /// Whether cards differ tenfold.
    unequal: bool,
    methods: &'static [Method],
}

/// Measures everything, one cast after the other.
///
/// # Errors
/// If there is no room to work in, or this process may not make networks.
pub(crate) fn run(
    which: Which,
    options: &GridOptions,
    progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
) -> Result<Vec<Panel>, ExperimentError> {
    let lab = Bench::new(which, options)?;
    let mut panels = Vec::new();
    for (name, title, axis, places) in plots(which, options)? {
        let mut groups = Vec::new();
        for place in places {
            let Place { label, setting, .. } = &place;
            let mut measurements = Vec::new();
            let wanted = |method: &&Method| {
                options.only.is_empty() || options.only.iter().any(|name| name == method.name)
            };
            for method in place.methods.iter().filter(wanted) {
                let measured = lab.measure(&place, *method);
                progress(format_args!(
                    "{name}, {label}, {method}: {}",
                    in_words(&measured.0)
                ));
                measurements.push(measured);
            }
            groups.push(Group {
                label: label.clone(),
                size_bytes: setting.size.0,
                optimum_bytes_per_s: measurements.iter().find_map(|(_, bounds)| bounds.optimum),
                clairvoyant_bytes_per_s: measurements
                    .iter()
                    .find_map(|(_, bounds)| bounds.clairvoyant),
                measurements: measurements
                    .into_iter()
                    .map(|(measured, _)| measured)
                    .collect(),
            });
        }
        panels.push(Panel {
            name: name.to_owned(),
            title: title.to_owned(),
            axis: axis.to_owned(),
            logarithmic: false,
            expected: Some("as simulated".to_owned()),
            groups,
        });
    }
    Ok(panels)
}

fn plots(which: Which, options: &GridOptions) -> Result<Vec<Places>, ExperimentError> {
    if which == Which::Cards {
        return Ok(vec![between_cards(which.size(options.short))?]);
    }
    let size = which.size(options.short);
    let scenarios = |some: &[Scenario], delay_ms| {
        let each = |scenario: &Scenario| {
            let shares = match which {
                Which::Fifth | Which::Cards => Shares::of(size),
                Which::FullTime => Shares {
                    rate: HALF,
                    second: 1.0,
                },
            };
            let seed = options.seed;
            let setting = Setting::scenario(SIZES, delay_ms, *scenario, size, shares, seed)?;
            let is_static = Scenario::STATIC.contains(scenario);
            let often = [Scenario::Fast, Scenario::FastToSlow].contains(scenario)
                && which == Which::Fifth
                && !options.short;
            Ok(Place {
                label: scenario.name().to_owned(),
                setting,
                repeats: if often { REPEATS } else { ONCE },
                unequal: false,
                methods: match which {
                    Which::Fifth | Which::Cards => COMPARED,
                    Which::FullTime if is_static => IN_FULL_TIME,
                    Which::FullTime => IN_FULL_TIME_DYNAMIC,
                },
            })
        };
        some.iter()
            .map(each)
            .collect::<Result<Vec<_>, ExperimentError>>()
    };
    let (first, name) = match which {
        Which::Fifth | Which::Cards => (
            "Emulated: four clusters of 4 nodes, 120 MB",
            "emulated-case1",
        ),
        Which::FullTime => (
            "Emulated: as long as in the thesis, half of the rates, 300 MB",
            "emulated-full-time",
        ),
    };
    let mut plots = vec![];
    if options.short {
        let places = scenarios(&Scenario::STATIC[..1], 10)?;
        plots.push((name, first, "scenario", places));
        return Ok(plots);
    }
    plots.push((name, first, "scenario", scenarios(&Scenario::ALL, 10)?));
    if which == Which::FullTime {
        return Ok(plots);
    }
    let third = "Emulated: the same with 100 ms round trip";
    plots.push((
        "emulated-case3",
        third,
        "scenario",
        scenarios(&Scenario::STATIC, 50)?,
    ));
    Ok(plots)
}

/// The plot of cards that are alike, and that are not.
fn between_cards(size: Bytes) -> Result<Places, ExperimentError> {
    let fixed = |label: &str, toml: String, unequal| {
        Ok::<_, ExperimentError>(Place {
            label: label.to_owned(),
            setting: Setting::new(&toml, "A0", size)?,
            repeats: ONCE,
            unequal,
            methods: COMPARED,
        })
    };
    let homogeneous = fixed("homogeneous: 20", cards(CLUSTERS, NODES, CARD_MBIT), false)?;
    let heterogeneous = fixed(
        "heterogeneous: 20 and 2",
        mixed_cards(CLUSTERS, NODES, CARD_MBIT),
        true,
    )?;
    let title = "Emulated: cards of 20 and of 2 Mbit/s";
    let places = vec![homogeneous, heterogeneous];
    Ok(("emulated-case7-8", title, "cards, Mbit/s", places))
}

fn in_words(measured: &Measurement) -> String {
    match (measured.bytes_per_s, measured.finish_s, &measured.error) {
        (Some(rate), Some(finish), _) => format!(
            "{:.2} MB/s, {:.2} of the optimum; {:.2} times as long as simulated ({finish:.1} s)",
            rate / 1e6,
            measured.of_optimum.unwrap_or(f64::NAN),
            measured.expected_bytes_per_s.unwrap_or(f64::NAN) / rate
        ),
        (_, _, Some(error)) => error.clone(),
        _ => "nothing".to_owned(),
    }
}

/// What all measurements share.
struct Bench<'a> {
    options: &'a GridOptions,
    lab: Lab,
    source: PathBuf,
    /// The beginning of the source, for nodes that get less.
    part: PathBuf,
    size: Bytes,
}

impl<'a> Bench<'a> {
    fn new(which: Which, options: &'a GridOptions) -> Result<Self, ExperimentError> {
        let lab = Lab::new(&options.program, "outpour-grid-")?;
        let size = which.size(options.short);
        let part = Bytes(size.0 / UNEQUAL_SHARE);
        Ok(Self {
            options,
            source: lab.object("object", size, options.seed)?,
            part: lab.object("part", part, options.seed)?,
            lab,
            size,
        })
    }

    /// Casts by a method; what is possible is the second.
    fn measure(&self, place: &Place, method: Method) -> (Measurement, Bounds) {
        let begun = Instant::now();
        let (setting, source) = self.given(place, method);
        let tcp = Transport::Tcp(Tcp { mtu: MTU });
        let seeds = self.options.seed..self.options.seed.saturating_add(SEEDS);
        let simulated: Vec<_> = seeds
            .map(|seed| run::attempt(&setting, method, seed, tcp))
            .collect();
        let rates = simulated.iter().filter_map(|it| it.measurement.bytes_per_s);
        let expected = median(rates.collect());
        let bounds = simulated
            .into_iter()
            .next()
            .map(|it| it.bounds)
            .unwrap_or_default();
        let often = method == BITTORRENT && !self.options.short;
        let repeats = if often { SEEDS } else { place.repeats };
        let mut measured = match self.repeat(&setting, source, method, repeats) {
            Ok(seconds) => {
                let rate = setting.size.as_f64() / seconds;
                Measurement {
                    bytes_per_s: Some(rate),
                    of_optimum: bounds.optimum.map(|optimum| rate / optimum),
                    of_clairvoyant: bounds.clairvoyant.map(|clairvoyant| rate / clairvoyant),
                    expected_bytes_per_s: expected,
                    finish_s: Some(seconds),
                    error: None,
                    ..Measurement::failed(method.name, String::new())
                }
            }
            Err(error) => Measurement {
                expected_bytes_per_s: expected,
                ..Measurement::failed(method.name, error.to_string())
            },
        };
        measured.wall_s = begun.elapsed().as_secs_f64();
        (measured, bounds)
    }

    /// What a method has to cast where.
    fn given(&self, place: &Place, method: Method) -> (Setting, &Path) {
        let mut setting = place.setting.clone();
        if place.unequal && method == BITTORRENT {
            setting.size = Bytes(self.size.0 / UNEQUAL_SHARE);
            return (setting, &self.part);
        }
        (setting, &self.source)
    }

    /// Casts so often, and again where the machine was too slow; the median, in seconds.
    fn repeat(
        &self,
        setting: &Setting,
        source: &Path,
        method: Method,
        repeats: u64,
    ) -> Result<f64, ExperimentError> {
        let seeds = (self.options.seed..).take(repeats as usize);
        let times = repeat(seeds, |seed| self.cast(setting, source, method, seed))?;
        median(times).ok_or_else(|| ExperimentError::Setup("nothing was cast".into()))
    }

    /// Casts in an emulated network; returns how many seconds the transfer took.
    fn cast(
        &self,
        setting: &Setting,
        source: &Path,
        method: Method,
        seed: u64,
    ) -> Result<f64, ExperimentError> {
        let made = self.cast_into(&self.lab.path(COPIES), setting, source, method, seed);
        // The copies are many times the object: they go before the next are made.
        self.lab.clear(COPIES)?;
        made
    }

    fn cast_into(
        &self,
        copies: &Path,
        setting: &Setting,
        source: &Path,
        method: Method,
        seed: u64,
    ) -> Result<f64, ExperimentError> {
        let network = setting.network.to_toml();
        let network = self.lab.write("network.toml", network.as_bytes())?;
        let report = self.lab.path("emulation.json");
        let root = setting.network.name(setting.root);

        let mut command = Command::new(self.lab.program());
        // Seventeen processes share the machine: with a thread each for the network they are
        // switched less often. Outpour's runtime takes the number from here.
        command.env("TOKIO_WORKER_THREADS", "1");
        command
            .args(["emulate", "--mode", "bulk", "--mtu", &MTU.to_string()])
            .args(["--node", root, "--network"])
            .arg(&network);
        command.arg("--report").arg(&report);
        if let Some(text) = &setting.text {
            command
                .arg("--script")
                .arg(self.lab.write("script", text.as_bytes())?);
        }
        command
            .arg("--")
            .arg(self.lab.program())
            .arg("cast")
            .arg(source);
        for node in setting.network.nodes().filter(|node| *node != setting.root) {
            let name = setting.network.name(node);
            command.arg(format!("{name}:{}/{{host}}/object", copies.display()));
        }
        command
            .arg("--network")
            .arg(&network)
            .args(["--root", root, "--json", "--quiet"]);
        command.args([
            "--protocol",
            method.name,
            "--block",
            &format!("{:#}", Bytes(BLOCK.into())),
        ]);
        command.args(["--seed", &seed.to_string()]);

        let cast = complete(&self.lab.output(command, CAST_MAX)?)?;
        let seconds = cast.transfer_s.unwrap_or_default();
        sound(read(&report).ok().as_deref(), seconds)?;
        Ok(seconds)
    }
}
