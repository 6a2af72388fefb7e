//! `outpour plan`: trees for a transfer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Instant;

use outpour_core::network::{Change, Network};
use outpour_core::script::Timeline;
use outpour_core::separation::left;
use outpour_core::text::escape;
use outpour_core::{Bytes, NodeId, Time};
use outpour_planner::multicast::json::Document;
use outpour_planner::multicast::{self, Method, Planned, Route, svg};
use outpour_planner::{clairvoyant, limit_over};
use serde::Serialize;

use super::sim;
use crate::args::plan::{ALL, PlanMulticastArgs};
use crate::out::{self, Failure};
use crate::report::{seconds, table};

/// How many trees are printed for people; the rest is summed up.
const TREES_SHOWN_MAX: usize = 24;

/// How much of what is used up is named.
const USED_UP_SHOWN_MAX: usize = 12;

/// A plan within this of the optimum is the optimum, relative.
const ROUNDING: f64 = 1e-6;

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed {
    #[serde(flatten)]
    plan: Option<Document>,
    /// One per method, if all were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    plans: Vec<Document>,
    #[serde(flatten)]
    least: Option<Least>,
}

/// The least time for an object of a size.
#[derive(Serialize)]
struct Least {
    size_bytes: u64,
    /// By any method.
    limit_s: f64,
    /// By the best plan in every situation, without sending ahead.
    clairvoyant_s: f64,
}

/// Plans a multicast.
///
/// # Errors
/// If the network, the script or the command line is wrong, some node cannot be reached, or a file
/// cannot be written.
pub(super) fn multicast(args: &PlanMulticastArgs) -> Result<(), Failure> {
    let (network, script) = network(args)?;
    let (network, changes) = begun(network, script.clone());
    let planned = multicast_over(args, &network, changes);
    match &planned {
        Ok(seconds) => sim::tell_of_silence(script, Some(*seconds)),
        Err(Failure::Failed(_)) => sim::tell_of_silence(script, None),
        Err(_) => {}
    }
    planned.map(drop)
}

/// Plans on the network as it is when a transfer begins. Returns how far into the script it was
/// looked, in seconds.
fn multicast_over(
    args: &PlanMulticastArgs,
    network: &Network,
    changes: impl Iterator<Item = (Time, Vec<Change>)>,
) -> Result<f64, Failure> {
    let roots = &sim::nodes(network, "--root", &args.roots)?;
    let mut documents = Vec::new();
    let mut text = String::new();
    match args.method.as_str() {
        ALL => {
            for option in [("--svg", &args.svg), ("--output", &args.output)] {
                if option.1.is_some() {
                    let line = format!("{} applies to one plan: choose it with --method", option.0);
                    return Err(Failure::Usage(line));
                }
            }
            let mut rows =
                vec![["METHOD", "THROUGHPUT", "OF OPTIMUM", "TREES", "TIME"].map(str::to_owned)];
            for method in Method::ALL {
                let (planned, document) = plan(network, roots, method)?;
                rows.push([
                    method.name().to_owned(),
                    planned.throughput.to_string(),
                    format!("{:.1} %", (1.0 - planned.gap()) * 100.0),
                    planned.routes.len().to_string(),
                    seconds(document.solve_s),
                ]);
                documents.push(document);
            }
            text.push_str(&table(&rows));
        }
        name => {
            let method: Method = name
                .parse()
                .map_err(|error: multicast::UnknownMethod| Failure::Usage(error.to_string()))?;
            let (planned, document) = plan(network, roots, method)?;
            if let Some(path) = &args.svg {
                write(path, &svg::draw(network, &planned))?;
            }
            if let Some(path) = &args.output {
                let json = serde_json::to_string_pretty(&document);
                let json = json.map_err(|error| Failure::from_error(&error))?;
                write(path, &(json + "\n"))?;
            }
            text = for_people(network, &planned, &document);
            documents.push(document);
        }
    }
    let least = match args.size {
        Some(size) => Some(least(network, roots, size, changes)?),
        None => None,
    };
    let end_s = least.as_ref().map_or(0.0, |least| least.limit_s);
    if args.show.json {
        let all = args.method == ALL;
        out::json(&Printed {
            plan: if all { None } else { documents.pop() },
            plans: documents,
            least,
        });
    } else if !args.show.quiet {
        if let (Some(least), Some(size)) = (&least, args.size) {
            let _ = write!(text, "\n\n{size} takes at least {}", seconds(least.limit_s));
            if args.script.is_some() {
                let adapts = seconds(least.clairvoyant_s);
                let _ = write!(text, ", and {adapts} with the best plan of every moment");
            }
        }
        out::result(text);
    }
    Ok(end_s)
}

/// The network as it is described, and what the script makes of it.
fn network(args: &PlanMulticastArgs) -> Result<(Network, Option<Timeline>), Failure> {
    let described = args.network.as_deref().map(sim::network).transpose()?;
    let Some(path) = &args.script else {
        let missing = || Failure::Usage("--network or --script is needed".to_owned());
        return Ok((described.ok_or_else(missing)?, None));
    };
    let script = sim::script(path)?;
    let fail = |error| Failure::from_error(&error);
    let network = match described {
        Some(network) => network,
        None => script.network(None).map_err(fail)?,
    };
    let timeline = script.timeline(&network).map_err(fail)?;
    Ok((network, Some(timeline)))
}

/// The network when a transfer begins, and what changes from then on.
fn begun(
    mut network: Network,
    script: Option<Timeline>,
) -> (Network, impl Iterator<Item = (Time, Vec<Change>)>) {
    // Other traffic goes first.
    let changes = script.into_iter().flatten();
    let (begun, changes) = left(&network, None, changes);
    network = begun;
    let mut changes = changes.peekable();
    while let Some((_, changes)) = changes.next_if(|(time, _)| *time == Time::ZERO) {
        for change in changes {
            network.apply(&change);
        }
    }
    (network, changes)
}

fn plan(
    network: &Network,
    roots: &[NodeId],
    method: Method,
) -> Result<(Planned, Document), Failure> {
    let began = Instant::now();
    let planned =
        multicast::plan(network, roots, method).map_err(|error| Failure::from_error(&error))?;
    let solve_s = began.elapsed().as_secs_f64();
    if let Some(notice) = &planned.fallback {
        out::complain(notice);
    }
    let document = Document::new(network, &planned, solve_s);
    Ok((planned, document))
}

fn least(
    network: &Network,
    roots: &[NodeId],
    size: Bytes,
    changes: impl Iterator<Item = (Time, Vec<Change>)>,
) -> Result<Least, Failure> {
    // A script may go on for ever, and is needed twice.
    let mut seen = Vec::new();
    let changes = changes.inspect(|change| seen.push(change.clone()));
    let adapts = clairvoyant(network, roots, size, changes);
    let adapts = adapts.map_err(|error| Failure::from_error(&error))?;
    let limit = limit_over(network, roots, size, seen);
    let limit = limit.map_err(|error| Failure::from_error(&error))?;
    Ok(Least {
        size_bytes: size.0,
        limit_s: limit.seconds,
        // Only the limit counts delays.
        clairvoyant_s: adapts.seconds.max(limit.seconds),
    })
}

fn for_people(network: &Network, planned: &Planned, document: &Document) -> String {
    let mut rows = vec![["RATE", "TREE"].map(str::to_owned)];
    let shown = planned.routes.iter().take(TREES_SHOWN_MAX);
    rows.extend(shown.map(|route| [route.rate.to_string(), branches(network, route)]));
    let mut text = table(&rows);
    let more = planned.routes.len().saturating_sub(TREES_SHOWN_MAX);
    if more > 0 {
        let _ = write!(text, "\n... and {more} more trees");
    }
    if !document.saturated.is_empty() {
        let shown = document.saturated.iter().take(USED_UP_SHOWN_MAX);
        let shown: Vec<_> = shown.map(|what| escape(what).into_owned()).collect();
        let more = document.saturated.len() - shown.len();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let _ = write!(text, "\n\nused up: {}{more}", shown.join(", "));
    }
    let optimum = match (planned.gap() <= ROUNDING, planned.exact) {
        (true, true) => "the optimum".to_owned(),
        (_, true) => format!(
            "{:.1} % below the optimum of {}",
            planned.gap() * 100.0,
            planned.optimum
        ),
        (_, false) => format!("no plan exceeds {}", planned.optimum),
    };
    let (trees, solved) = (planned.plan.trees.len(), seconds(document.solve_s));
    let _ = write!(
        text,
        "\n\n{} from {}: {}, {optimum}; {trees} {} over {} nodes, found in {solved}",
        planned.method,
        escape(&document.roots.join(", ")),
        planned.throughput,
        if trees == 1 { "tree" } else { "trees" },
        network.node_count(),
    );
    text
}

/// A tree as the paths it is made of: `A > B > D, B > C`.
fn branches(network: &Network, route: &Route) -> String {
    let mut children: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (from, to) in &route.edges {
        children.entry(*from).or_default().push(*to);
    }
    if route.edges.is_empty() {
        return "inside the clusters that have it".to_owned();
    }
    let entered: BTreeSet<_> = route.edges.iter().map(|(_, to)| *to).collect();
    let mut paths = Vec::new();
    let mut begun = BTreeSet::new();
    let mut waiting: Vec<_> = children.keys().rev().copied().collect();
    waiting.retain(|place| !entered.contains(place));
    while let Some(from) = waiting.pop() {
        if !begun.insert(from) {
            continue;
        }
        for child in children.get(&from).into_iter().flatten() {
            let mut path = vec![from, *child];
            let mut at = *child;
            while let Some(next) = children.get(&at).and_then(|next| next.first()) {
                if children[&at].len() > 1 {
                    waiting.push(at);
                    break;
                }
                path.push(*next);
                at = *next;
            }
            let names: Vec<_> = path.iter().map(|place| place.name(network)).collect();
            paths.push(names.join(" > "));
        }
    }
    escape(&paths.join(", ")).into_owned()
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| {
        let shown = path.display().to_string();
        Failure::Failed(format!("{}: cannot write: {error}", escape(&shown)))
    })
}
