//! Test cases with real agents: `outpour cast` inside `outpour emulate`, method by method.
//!
//! Beside each measurement stands what the simulator says about the very same network, protocol
//! and seed, over TCP as agents use it. The four clusters have four nodes each; the cards of test
//! cases 7 and 8 are a fifth as fast as in the thesis, because all sixteen nodes and the network
//! share this machine.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use outpour_core::Bytes;
use outpour_sim::transport::{Tcp, Transport};
use serde::Deserialize;
use tempfile::TempDir;

use crate::catalogue::COMPARED;
use crate::dice::Dice;
use crate::method::{BITTORRENT, Method};
use crate::report::{Group, Measurement, Panel};
use crate::run::{self, BLOCK, Bounds};
use crate::setting::{Scenario, Setting, Sizes, cards, mixed_cards};
use crate::{ExperimentError, Options};

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
/// Over how many seeds the simulated time is the median: who asks whom is drawn, and for
/// BitTorrent that is worth a quarter of the time.
const SIMULATED: u64 = 7;
/// How often a cast is made again because the machine was too slow for the network.
const VOID_MAX: usize = 2;
/// BitTorrent between cards so unequal takes minutes: its object is so many times as small.
const UNEQUAL_SHARE: u64 = 10;
/// How long one cast may take before it is ended.
const CAST_MAX: Duration = Duration::from_secs(600);
/// How often it is looked whether a cast has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How much of what a command prints is read.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// Memory as a file system: seventeen copies are written, and disks are not what is measured.
const MEMORY: &str = "/dev/shm";

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
}

/// Measures everything, one cast after the other.
///
/// # Errors
/// If there is no room to work in, or this process may not make networks.
pub(crate) fn run(
    options: &Options,
    progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
) -> Result<Vec<Panel>, ExperimentError> {
    let lab = Lab::new(options)?;
    let mut panels = Vec::new();
    for (name, title, axis, places) in plots(options, lab.size)? {
        let mut groups = Vec::new();
        for place in places {
            let Place { label, setting, .. } = &place;
            let mut measurements = Vec::new();
            let wanted = |method: &&Method| {
                options.only.is_empty() || options.only.iter().any(|name| name == method.name)
            };
            for method in COMPARED.iter().filter(wanted) {
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

fn plots(options: &Options, size: Bytes) -> Result<Vec<Places>, ExperimentError> {
    let scenarios = |which: &[Scenario], delay_ms| {
        let each = |scenario: &Scenario| {
            let setting = Setting::scenario(SIZES, delay_ms, *scenario, size, options.seed)?;
            let often = Scenario::STATIC[..1].contains(scenario) && !options.short;
            Ok(Place {
                label: scenario.name().to_owned(),
                setting,
                repeats: if often { REPEATS } else { ONCE },
                unequal: false,
            })
        };
        which
            .iter()
            .map(each)
            .collect::<Result<Vec<_>, ExperimentError>>()
    };
    let first = "Emulated: four clusters of 4 nodes, 120 MB";
    let mut plots = vec![];
    if options.short {
        let places = scenarios(&Scenario::STATIC[..1], 10)?;
        plots.push(("emulated-case1", first, "scenario", places));
        return Ok(plots);
    }
    plots.push((
        "emulated-case1",
        first,
        "scenario",
        scenarios(&Scenario::ALL, 10)?,
    ));
    let third = "Emulated: the same with 100 ms round trip";
    plots.push((
        "emulated-case3",
        third,
        "scenario",
        scenarios(&Scenario::STATIC, 50)?,
    ));
    let fixed = |label: &str, toml: String, unequal| {
        Ok::<_, ExperimentError>(Place {
            label: label.to_owned(),
            setting: Setting::new(&toml, "A0", size)?,
            repeats: ONCE,
            unequal,
        })
    };
    let homogeneous = fixed("homogeneous: 20", cards(CLUSTERS, NODES, CARD_MBIT), false)?;
    let heterogeneous = fixed(
        "heterogeneous: 20 and 2",
        mixed_cards(CLUSTERS, NODES, CARD_MBIT),
        true,
    )?;
    let last = "Emulated: cards of 20 and of 2 Mbit/s";
    let places = vec![homogeneous, heterogeneous];
    plots.push(("emulated-case7-8", last, "cards, Mbit/s", places));
    Ok(plots)
}

/// The middle one; the higher of the two in the middle of an even number.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
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
struct Lab<'a> {
    options: &'a Options,
    directory: TempDir,
    source: PathBuf,
    /// The beginning of the source, for who gets less.
    part: PathBuf,
    size: Bytes,
}

/// What `outpour cast --json` says, as far as it matters here.
#[derive(Deserialize)]
struct CastReport {
    transfer_s: Option<f64>,
    #[serde(default)]
    hosts: Vec<HostReport>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct HostReport {
    host: String,
    verified: bool,
    error: Option<String>,
}

/// What `outpour emulate --report` says, as far as it matters here.
#[derive(Deserialize)]
struct EmulationReport {
    void: bool,
    reasons: Vec<String>,
}

impl<'a> Lab<'a> {
    fn new(options: &'a Options) -> Result<Self, ExperimentError> {
        let base = Path::new(MEMORY);
        let base = if base.is_dir() {
            base.to_owned()
        } else {
            std::env::temp_dir()
        };
        let directory = tempfile::Builder::new()
            .prefix("outpour-grid-")
            .tempdir_in(&base);
        let directory = directory.map_err(|e| ExperimentError::file(&base, &e))?;
        let size = Bytes(if options.short {
            24_000_000
        } else {
            120_000_000
        });
        let write = |name: &str, size: u64| {
            let path = directory.path().join(name);
            let failed = |e: std::io::Error| ExperimentError::file(&path, &e);
            let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
            let mut dice = Dice::new(options.seed);
            for _ in 0..size / 8 {
                file.write_all(&dice.next().to_le_bytes()).map_err(failed)?;
            }
            file.flush().map_err(failed)?;
            Ok::<_, ExperimentError>(path)
        };
        let (source, part) = (
            write("object", size.0)?,
            write("part", size.0 / UNEQUAL_SHARE)?,
        );
        Ok(Self {
            options,
            source,
            part,
            directory,
            size,
        })
    }

    /// Casts by a method; what is possible is the second.
    fn measure(&self, place: &Place, method: Method) -> (Measurement, Bounds) {
        let begun = Instant::now();
        let (setting, source) = self.given(place, method);
        let tcp = Transport::Tcp(Tcp { mtu: MTU });
        let seeds = self.options.seed..self.options.seed.saturating_add(SIMULATED);
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
        let mut measured = match self.repeat(&setting, source, method, place.repeats) {
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
        let (mut times, mut voids) = (Vec::new(), 0);
        for seed in (self.options.seed..).take(repeats as usize) {
            loop {
                match self.cast(setting, source, method, seed) {
                    Ok(seconds) => times.push(seconds),
                    Err(ExperimentError::Void(_)) if voids < VOID_MAX => {
                        voids += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                break;
            }
        }
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
        let copies = self.directory.path().join("copies");
        let made = self.cast_into(&copies, setting, source, method, seed);
        // The copies are many times the object: they go before the next are made.
        if copies.exists() {
            fs::remove_dir_all(&copies).map_err(|e| ExperimentError::file(&copies, &e))?;
        }
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
        let write = |name: &str, text: &str| {
            let path = self.directory.path().join(name);
            fs::write(&path, text).map_err(|e| ExperimentError::file(&path, &e))?;
            Ok::<_, ExperimentError>(path)
        };
        let network = write("network.toml", &setting.network.to_toml())?;
        let report = self.directory.path().join("emulation.json");
        let root = setting.network.name(setting.root);

        let mut command = Command::new(&self.options.program);
        // Seventeen processes share the machine: with a thread each for the network they are
        // switched less often. Outpour's runtime takes the number from here.
        command.env("TOKIO_WORKER_THREADS", "1");
        command
            .args(["emulate", "--mode", "bulk", "--mtu", &MTU.to_string()])
            .args(["--node", root, "--network"])
            .arg(&network);
        command.arg("--report").arg(&report);
        if let Some(text) = &setting.text {
            command.arg("--script").arg(write("script", text)?);
        }
        command
            .arg("--")
            .arg(&self.options.program)
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
            &format!("{:#}", BLOCK),
        ]);
        command.args(["--seed", &seed.to_string()]);

        let said = self.output(command)?;
        let report = fs::read_to_string(&report).map_err(|e| ExperimentError::file(&report, &e));
        judge(&said, report.ok().as_deref())
    }

    /// Runs a command and returns what it printed, its errors if it printed nothing else.
    fn output(&self, mut command: Command) -> Result<String, ExperimentError> {
        let path = |name| self.directory.path().join(name);
        let (out, err) = (path("out"), path("err"));
        let create = |path: &Path| File::create(path).map_err(|e| ExperimentError::file(path, &e));
        command
            .stdin(Stdio::null())
            .stdout(create(&out)?)
            .stderr(create(&err)?);
        let failed = |e: std::io::Error| ExperimentError::file(&self.options.program, &e);
        let mut child = command.spawn().map_err(failed)?;
        let deadline = Instant::now() + CAST_MAX;
        while child.try_wait().map_err(failed)?.is_none() {
            if Instant::now() >= deadline {
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                let seconds = CAST_MAX.as_secs();
                return Err(ExperimentError::Setup(format!("no end after {seconds} s")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let said = read(&out)?;
        if said.trim().is_empty() {
            let last = read(&err)?;
            let last = last.lines().last().unwrap_or("it says nothing").to_owned();
            return Err(ExperimentError::Setup(last));
        }
        Ok(said)
    }
}

fn read(path: &Path) -> Result<String, ExperimentError> {
    let failed = |e: std::io::Error| ExperimentError::file(path, &e);
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(OUTPUT_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

/// How long a transfer took, if it reached everybody in a network that was what it should be.
fn judge(said: &str, emulation: Option<&str>) -> Result<f64, ExperimentError> {
    let setup = |why: String| ExperimentError::Setup(why);
    let cast: CastReport = serde_json::from_str(said)
        .map_err(|error| setup(format!("the cast's report is none: {error}")))?;
    if let Some(error) = cast.error {
        return Err(setup(error));
    }
    if let Some(host) = cast.hosts.iter().find(|host| !host.verified) {
        let why = host.error.as_deref().unwrap_or("no reason given");
        return Err(setup(format!("{}: {why}", host.host)));
    }
    let emulation: Option<EmulationReport> =
        emulation.and_then(|text| serde_json::from_str(text).ok());
    match (emulation, cast.transfer_s) {
        (None, _) => Err(setup("the emulation leaves no report".to_owned())),
        (Some(emulation), Some(seconds)) if emulation.void => Err(ExperimentError::Void(format!(
            "void, the machine was too slow ({}); it took {seconds:.1} s",
            emulation.reasons.join("; ")
        ))),
        (Some(_), Some(seconds)) => Ok(seconds),
        (Some(_), None) => Err(setup("no transfer began".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const EMULATED: &str = r#"{"void": false, "reasons": []}"#;

    #[test]
    fn only_a_complete_cast_in_a_true_network_counts() {
        let cast = |verified: bool| {
            format!(
                r#"{{"transfer_s": 2.5, "hosts": [{{"host": "b0", "verified": {verified},
                     "error": null}}]}}"#
            )
        };
        assert_eq!(judge(&cast(true), Some(EMULATED)).unwrap(), 2.5);
        let error = |said: &str, emulation| judge(said, emulation).unwrap_err().to_string();
        assert_eq!(error(&cast(false), Some(EMULATED)), "b0: no reason given");
        assert_eq!(error(r#"{"error": "no root"}"#, Some(EMULATED)), "no root");
        assert!(error(&cast(true), None).contains("no report"));
        let void = r#"{"void": true, "reasons": ["9 ms late"]}"#;
        assert!(error(&cast(true), Some(void)).contains("9 ms late"));
        assert!(error("nonsense", Some(EMULATED)).contains("none"));
    }
}
