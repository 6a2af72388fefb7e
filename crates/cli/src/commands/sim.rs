//! `outpour sim`: the protocols in virtual time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use outpour::place;
use outpour_core::network::{Cluster, Network};
use outpour_core::script::{RESET, START, Script, Timeline};
use outpour_core::text::escape;
use outpour_core::{Bytes, NodeId, Rate, Time};
use outpour_sim::cast::{CastConfig, CastError, SimReport, simulate_over, trace_over};
use outpour_sim::fuzz::{FuzzConfig, FuzzReport};
use outpour_sim::transport::{Tcp, Transport};
use outpour_terms::Asked;

use crate::args::{SimCastArgs, SimFuzzArgs, SimTransport};
use crate::out::{self, Failure};
use crate::report::{seconds, table};

/// How many node names a message lists.
const NAMES_MAX: usize = 8;

/// How far into a script it is looked for what it waits for, if nothing says how far it got.
const SOON: Duration = Duration::from_secs(24 * 3600);

/// Simulates a cast.
///
/// # Errors
/// If the network cannot be read, or the cast makes no sense on it or does not end.
pub(super) fn cast(args: &SimCastArgs) -> Result<(), Failure> {
    let config = config(args)?;
    tell_of_queues(&config.network);
    let transport = match args.transport {
        SimTransport::Ideal => Transport::Ideal,
        SimTransport::Tcp => Transport::Tcp(Tcp { mtu: args.mtu }),
    };
    let sink = args.trace.as_deref().map(trace_file).transpose()?;
    let script = config.script.as_ref();
    // That it does not fit the network is for the simulation to say.
    let timeline = script.and_then(|script| script.timeline(&config.network).ok());
    let simulated = match sink {
        Some(sink) => trace_over(transport, config, Some(sink)).map(|(report, _)| report),
        None => simulate_over(transport, config),
    };
    match &simulated {
        Ok(report) => tell_of_silence(timeline, Some(report.finish_s)),
        Err(CastError::Stuck { .. } | CastError::Limit(_)) => tell_of_silence(timeline, None),
        Err(_) => {}
    }
    let report = simulated.map_err(|error| Failure::from_error(&error))?;
    if args.output.json {
        out::json(&report);
    } else if !args.output.quiet {
        out::result(for_people(args, &report));
    }
    Ok(())
}

/// Says which word the script, if there is one, still waits for when a transfer is over, because
/// nothing sends it. If there was no end, any that it would soon wait for may be the reason.
pub(super) fn tell_of_silence(script: Option<Timeline>, end_s: Option<f64>) {
    let end = end_s.map_or(Ok(SOON), Duration::try_from_secs_f64);
    let end = end.map_or(Time::MAX, |end| Time::ZERO + end);
    if let Some(word) = script.and_then(|script| script.unheard(end)) {
        let remedy = format!("transfers send `{START}` and `{RESET}`");
        out::complain(still_waits(&word, &remedy));
    }
}

/// Says that the queues of nodes count for nothing where there are no packets, if a network has
/// such: what is read and not heeded would mislead.
pub(super) fn tell_of_queues(network: &Network) {
    let has = |cluster: &Cluster| cluster.node_queue.is_some() || cluster.node_ecn.is_some();
    if network.clusters().iter().any(has) {
        out::complain("`node_queue` and `node_ecn` count in emulations only, not here");
    }
}

/// The message about a script that waits for a word in vain; `remedy` says what could send it.
pub(super) fn still_waits(word: &str, remedy: &str) -> String {
    let word = escape(word);
    format!("the script still waits for `{word}`, which was never sent: {remedy}")
}

/// The file that a trace goes to.
fn trace_file(path: &Path) -> Result<Box<dyn Write + Send>, Failure> {
    let file = File::create(path).map_err(|error| {
        let shown = escape(&path.display().to_string()).into_owned();
        Failure::Failed(format!("{shown}: cannot write the trace: {error}"))
    })?;
    Ok(Box::new(BufWriter::new(file)))
}

/// What the arguments mean.
pub(super) fn config(args: &SimCastArgs) -> Result<CastConfig, Failure> {
    let script = args.script.as_deref().map(script).transpose()?;
    let described = args.network.as_deref().map(network).transpose()?;
    let network = match (described, &script) {
        (Some(network), _) => network,
        (None, Some(script)) => script.network(None).map_err(|e| Failure::from_error(&e))?,
        (None, None) => return Err(Failure::Usage("--network or --script is needed".to_owned())),
    };
    let roots = nodes(&network, "--root", &args.roots)?;
    let relays = nodes(&network, "--relay", &args.relays)?;
    if let Some(both) = relays.iter().find(|relay| roots.contains(relay)) {
        let name = escape(network.name(*both));
        let fault = format!("--relay {name}: the node has the object");
        return Err(Failure::Usage(fault));
    }
    if roots.len() + relays.len() == network.node_count() as usize {
        let option = match relays.is_empty() {
            true => "--root",
            false => "--relay",
        };
        let fault = format!("{option}: no node is left that is to get the object");
        return Err(Failure::Usage(fault));
    }
    args.moving.check_plan(args.plan.is_some(), true)?;
    let plan = args.plan.as_deref();
    let plan = plan.map(|path| place::plan_of_network(path, &network, &roots));
    let asked = Asked {
        plan: plan.transpose()?,
        ..args.moving.asked()?
    };
    let checked = outpour_terms::check_asked(&asked, !relays.is_empty());
    checked.map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(CastConfig {
        asked,
        coding_speed: args.coding_speed,
        believed: args
            .plan_network
            .as_deref()
            .map(self::network)
            .transpose()?,
        script,
        sources: roots,
        relays,
        ..CastConfig::new(network, NodeId(0), args.size)
    })
}

/// The nodes of these names, given by an option; each once.
///
/// # Errors
/// If there is no such node, or one is named twice.
pub(super) fn nodes(
    network: &Network,
    option: &str,
    names: &[String],
) -> Result<Vec<NodeId>, Failure> {
    let mut nodes = Vec::with_capacity(names.len());
    for name in names {
        let node = node(network, option, name)?;
        if nodes.contains(&node) {
            let name = escape(name);
            return Err(Failure::Usage(format!(
                "{option} {name}: the node is named twice"
            )));
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// The node of that name, given by an option.
pub(super) fn node(network: &Network, option: &str, name: &str) -> Result<NodeId, Failure> {
    network.node(name).ok_or_else(|| {
        let names: Vec<_> = network
            .nodes()
            .take(NAMES_MAX)
            .map(|node| network.name(node))
            .collect();
        let more = if network.node_count() as usize > NAMES_MAX {
            ", ..."
        } else {
            ""
        };
        let names = escape(&names.join(", ")).into_owned();
        let name = escape(name);
        Failure::Usage(format!(
            "{option} {name}: no such node; there are {names}{more}"
        ))
    })
}

/// Reads a network.
///
/// # Errors
/// If the file cannot be read or is no network.
pub fn network(path: &Path) -> Result<Network, Failure> {
    let (shown, text) = text(path, "network", outpour_core::network::TEXT_BYTES_MAX)?;
    Network::from_toml(&text, &shown).map_err(|error| Failure::Failed(error.to_string()))
}

/// Reads a script.
///
/// # Errors
/// If the file cannot be read or is no script.
pub(super) fn script(path: &Path) -> Result<Script, Failure> {
    let (shown, text) = text(path, "script", outpour_core::script::TEXT_BYTES_MAX)?;
    Script::parse(&text, &shown).map_err(|error| Failure::Failed(error.to_string()))
}

/// Reads the text of a file, or standard input for `-`; returns also its name for messages.
pub(super) fn text(path: &Path, what: &str, bytes_max: usize) -> Result<(String, String), Failure> {
    let is_piped = path == Path::new("-");
    let shown = match is_piped {
        true => "standard input".to_owned(),
        false => escape(&path.display().to_string()).into_owned(),
    };
    let fail = |why| Failure::Failed(format!("{shown}: cannot read the {what}: {why}"));
    let mut text = String::new();
    let most = bytes_max as u64 + 1;
    let read = match is_piped {
        true => std::io::stdin().lock().take(most).read_to_string(&mut text),
        false => File::open(path).and_then(|file| file.take(most).read_to_string(&mut text)),
    };
    read.map_err(|error| fail(error.to_string()))?;
    if text.len() > bytes_max {
        return Err(fail(format!(
            "it is larger than {:#}",
            Bytes(bytes_max as u64)
        )));
    }
    Ok((shown, text))
}

/// How the time compares with the least that the network allows.
fn limit(report: &SimReport) -> String {
    match report.limit_s > 0.0 {
        true => format!(
            "{:.2} x the limit of {}",
            report.ratio,
            seconds(report.limit_s)
        ),
        false => "which no rate of the network limits".to_owned(),
    }
}

fn for_people(args: &SimCastArgs, report: &SimReport) -> String {
    let mut rows = vec![["NODE", "TIME"].map(str::to_owned)];
    rows.extend(report.nodes.iter().map(|node| {
        let time = node.finish_s.map_or_else(|| "-".to_owned(), seconds);
        [escape(&node.node).into_owned(), time]
    }));
    let mut text = format!(
        "{}\n\n{} by {} in {}, {}; {} between clusters",
        table(&rows),
        args.size,
        report.protocol,
        seconds(report.finish_s),
        limit(report),
        Bytes(report.wan_bytes),
    );
    if report.wan_repeats > 0 {
        let _ = write!(text, ", {} blocks of it again", report.wan_repeats);
    }
    if let Some(why) = &report.why {
        let _ = write!(text, "; {} because {why}", report.protocol);
    }
    if let Some(coding) = &report.coding {
        let speed = coding.speed_bytes_per_s.and_then(Rate::from_bytes_per_s);
        let _ = write!(
            text,
            "; coding {} blocks together kept a core busy for at most {}, {:.0} % of the time, at \
             {} (--coding-speed)",
            coding.batch_blocks,
            seconds(coding.busy_s),
            100.0 * coding.busy_share,
            speed.unwrap_or(Rate::UNLIMITED),
        );
    }
    if let Some(clairvoyant_s) = report.clairvoyant_s {
        let _ = write!(
            text,
            "; knowing the script in advance, it takes {}",
            seconds(clairvoyant_s)
        );
    }
    text
}

/// Runs random cases.
///
/// # Errors
/// If one of them goes wrong; each is printed with the command that repeats it.
pub(super) fn fuzz(args: &SimFuzzArgs) -> Result<(), Failure> {
    let report = outpour_sim::fuzz::fuzz(FuzzConfig {
        first: args.seed,
        seeds: args.seeds,
        threads: args.threads,
        protocol: None,
    });
    if args.output.json {
        out::json(&report);
    } else if !args.output.quiet {
        out::result(fuzzed(&report));
    }
    if report.failures.is_empty() {
        return Ok(());
    }
    for failure in &report.failures {
        out::complain(format!(
            "seed {}, {}: {}; repeat it with: {}",
            failure.seed,
            failure.protocol,
            escape(&failure.what),
            failure.command
        ));
    }
    Err(Failure::Reported)
}

fn fuzzed(report: &FuzzReport) -> String {
    let counts = |counts: &BTreeMap<&'static str, u64>| {
        let shown = counts.iter().map(|(name, count)| format!("{name} {count}"));
        shown.collect::<Vec<_>>().join(", ")
    };
    format!(
        "runs of each protocol: {}\nruns that met each fault: {}\n{} runs lost a node while another \
         was behind, {} had several sources, {} had nodes that want a part, {} had changing rates, \
         {} had two transfers\n{} of {} seeds failed, in {}",
        counts(&report.protocols),
        counts(&report.faults),
        report.losses,
        report.sources,
        report.wants,
        report.rates,
        report.two,
        report.failures.len(),
        report.seeds,
        seconds(report.took_s),
    )
}
