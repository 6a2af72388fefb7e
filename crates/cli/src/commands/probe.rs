//! `outpour probe`: measures the network between hosts.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use outpour::launch::Reaper;
use outpour::{Destination, agent, place};
use outpour_agent::probe::{self, PathReport, ProbeHost, ProbeReport, ProbeRequest, Progress};
use outpour_core::Rate;
use outpour_core::text::escape;
use outpour_probe::forecast::Forecast;
use outpour_probe::history::History;
use outpour_probe::schedule::Wanted;
use serde::Serialize;
use tokio::sync::watch;

use super::block_on;
use super::cast::interrupts;
use crate::args::probe::ProbeArgs;
use crate::emulation;
use crate::hosts;
use crate::out::{self, Failure};
use crate::reach;
use crate::report::{seconds, table};

/// What is printed as JSON.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a ProbeReport,
    /// The network in TOML.
    network: String,
    /// What figures will be next time, by name; empty without a history.
    forecasts: Vec<Next>,
}

#[derive(Serialize)]
struct Next {
    figure: String,
    #[serde(flatten)]
    forecast: Forecast,
}

/// Runs the command.
///
/// # Errors
/// If the hosts make no sense, nothing can be measured, a file cannot be written, or some host
/// took no part.
pub(super) fn run(args: &ProbeArgs) -> Result<(), Failure> {
    let hosts = hosts::collect_hosts(&args.destinations, &args.hosts)?;
    let mut history = match &args.history {
        Some(path) => History::load(path).map_err(|error| Failure::from_error(&error))?,
        None => History::default(),
    };
    let request = request(args, &hosts)?;
    let report = block_on(async {
        let reaper = Reaper::default();
        let launcher = reach::asked(&args.reach)?.launcher(&hosts, &reaper)?;
        let (progress, seen) = watch::channel(Progress::default());
        let display = tokio::spawn(display(seen, args.show.quiet));
        let ended = probe::run(request, launcher, progress, interrupts()).await;
        reaper.settle().await;
        let _ = display.await;
        ended.map_err(|error| Failure::from_error(&error))
    })?;
    let forecasts = match &args.history {
        Some(path) => remember(&mut history, &report, path)?,
        None => Vec::new(),
    };
    let network = report.network.as_ref().map(|network| network.to_toml());
    let network = network.unwrap_or_default();
    if let Some(path) = &args.output {
        std::fs::write(path, &network).map_err(|error| {
            let path = path.display().to_string();
            Failure::Failed(format!(
                "{}: cannot write the network: {error}",
                escape(&path)
            ))
        })?;
    }
    if args.show.json {
        out::json(&Document {
            report: &report,
            network,
            forecasts,
        });
    } else if !args.show.quiet {
        out::result(for_people(&report, &forecasts));
        if args.output.is_none() {
            out::result(format!("\n{network}"));
        }
    }
    let failed: Vec<_> = report
        .nodes
        .iter()
        .filter(|node| node.error.is_some())
        .collect();
    for node in &failed {
        let (name, error) = (
            escape(&node.node),
            node.error.as_deref().unwrap_or_default(),
        );
        out::complain(format!("{name}: {}", escape(error)));
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}

fn request(args: &ProbeArgs, hosts: &[Destination]) -> Result<ProbeRequest, Failure> {
    let named = |host: &Destination| ProbeHost {
        name: host.node.clone().unwrap_or_else(|| host.host.clone()),
        cluster: host.cluster.clone(),
    };
    let own = if args.others_only {
        None
    } else {
        let name = args.name.clone();
        let name = name.or_else(emulation::own_node).or_else(place::host_name);
        let name = name.ok_or_else(|| {
            Failure::Usage("this host has no name; give it one with --name".to_owned())
        })?;
        let cluster = args.cluster.clone();
        Some(ProbeHost { name, cluster })
    };
    // A list of all hosts may well have this one in it.
    if let Some(own) = &own
        && hosts.iter().any(|host| named(host).name == own.name)
    {
        return Err(Failure::Usage(format!(
            "{} is this host, which is measured without being named; leave it out, call this host \
             something else with --name, or use --others-only",
            escape(&own.name)
        )));
    }
    Ok(ProbeRequest {
        own,
        hosts: hosts.iter().map(named).collect(),
        time: args.time,
        wanted: Wanted {
            packets: !args.no_packets,
            hops: !args.no_hops,
        },
        connections: args.connections,
        listen: agent::everywhere(),
    })
}

/// Adds the measurements to the history and saves it; forecasts the next ones.
fn remember(
    history: &mut History,
    report: &ProbeReport,
    path: &Path,
) -> Result<Vec<Next>, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0.0, |now| now.as_secs_f64());
    let mut forecasts = Vec::new();
    for (figure, value) in report.figures() {
        history.add(&figure, now, value);
        let forecast = history.forecast(&figure);
        forecasts.extend(forecast.map(|forecast| Next { figure, forecast }));
    }
    history
        .save(path)
        .map_err(|error| Failure::from_error(&error))?;
    Ok(forecasts)
}

/// Says what is going on, a line per measurement.
async fn display(mut seen: watch::Receiver<Progress>, quiet: bool) {
    use std::io::{IsTerminal, Write};
    let live = !quiet && std::io::stderr().is_terminal();
    while seen.changed().await.is_ok() {
        let Progress { done, all, now } = seen.borrow_and_update().clone();
        if live {
            let _ = write!(std::io::stderr(), "\r\x1b[K{done}/{all}  {}", escape(&now));
        }
    }
    if live {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn for_people(report: &ProbeReport, forecasts: &[Next]) -> String {
    let rate = |rate: Option<f64>| match rate.and_then(Rate::from_bytes_per_s) {
        Some(rate) => rate.to_string(),
        None => "-".to_owned(),
    };
    let heading = [
        "FROM",
        "TO",
        "ROUND TRIP",
        "RATE",
        "CAPACITY",
        "FREE",
        "HOPS",
        "NOTE",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(report.paths.iter().map(|path: &PathReport| {
        let hops = path.hops.as_ref().map(|hops| hops.len().to_string());
        [
            escape(&path.from).into_owned(),
            escape(&path.to).into_owned(),
            path.round_trip_s.map_or_else(|| "-".to_owned(), seconds),
            rate(path.rate_bytes_per_s),
            rate(path.capacity_bytes_per_s),
            rate(path.available_bytes_per_s),
            hops.unwrap_or_else(|| "-".to_owned()),
            escape(&path.errors.join("; ")).into_owned(),
        ]
    }));
    let mut text = table(&rows);
    if !report.rates.is_empty() {
        let mut rows = vec![["TOGETHER", "", "RATE"].map(str::to_owned)];
        rows.extend(report.rates.iter().map(|one| {
            let of = escape(&one.of).into_owned();
            [of, one.what.to_owned(), rate(Some(one.rate_bytes_per_s))]
        }));
        text = format!("{text}\n\n{}", table(&rows));
    }
    if !report.shared_links.is_empty() {
        let mut rows = vec![["SHARED LINK", "", "PATHS"].map(str::to_owned)];
        rows.extend(report.shared_links.iter().map(|link| {
            let paths: Vec<String> = link.paths.iter().map(|[a, b]| format!("{a}-{b}")).collect();
            let paths = escape(&paths.join(" ")).into_owned();
            [link.from.to_string(), link.to.to_string(), paths]
        }));
        text = format!("{text}\n\n{}", table(&rows));
    }
    if !forecasts.is_empty() {
        let figures = forecasts.len();
        text = format!("{text}\n\n{figures} figures have a forecast; see --json");
    }
    text
}
