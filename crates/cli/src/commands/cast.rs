//! `outpour cast`: reaches the hosts, shows how it goes, reports how it ended.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outpour_agent::cast::{self, CastRequest, HostSpec};
use outpour_agent::launch::Launcher;
use outpour_agent::view::{CastReport, CastView, HostState, HostView, Phase};
use outpour_core::text::escape;
use outpour_emu::Client;
use outpour_terms::Asked;
use outpour_terms::placement::Placement;
use tokio::sync::watch;

use super::{block_on, everywhere, sim};
use crate::args::CastArgs;
use crate::display::{Display, Record};
use crate::hosts::{self, Destination};
use crate::launch::{self, Reaper};
use crate::out::{self, Failure};
use crate::signals::Ends;
use crate::{placing, report};

/// Runs the command.
///
/// # Errors
/// If the hosts make no sense, the source cannot be read, or some host did not verify.
pub fn run(args: CastArgs) -> Result<(), Failure> {
    let hosts = hosts::collect(&args.destinations, &args.hosts)?;
    readable(&args.source)?;
    let request = request(&args, &hosts)?;
    let record = args.progress.as_deref().map(Record::create).transpose()?;
    let report = block_on(async {
        let reaper = Reaper::default();
        let launcher = launch::to(&hosts, &args.reach, &reaper)?;
        let watchers = Watchers {
            quiet: args.output.quiet,
            script: Client::inside(),
            record,
        };
        watched(request, launcher, &reaper, interrupts(), watchers).await
    })?;
    if args.output.json {
        out::json(&report);
    } else if !args.output.quiet {
        out::result(report::cast(&report));
    }
    if report.verified() {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}

/// What was meant by what was typed.
///
/// # Errors
/// If a file the command line names cannot be read, or is not about these hosts.
pub(super) fn request(args: &CastArgs, hosts: &[Destination]) -> Result<CastRequest, Failure> {
    let limit = args.moving.limit();
    args.moving
        .check_plan(args.plan.is_some(), args.network.is_some())?;
    let network = args.network.as_deref().map(sim::network).transpose()?;
    let root = args.root.as_deref();
    let nodes = network.as_ref();
    let nodes = nodes.map(|network| placing::nodes(network, root, hosts));
    let nodes = nodes.transpose()?;
    let placed = network.as_ref().zip(nodes.as_deref());
    let placement = placed.map(|(network, nodes)| Placement::new(network, nodes, limit));
    let placement = placement.transpose();
    let plan = args.plan.as_deref();
    let plan = plan
        .map(|path| placing::plan(path, placed, hosts))
        .transpose()?;
    Ok(CastRequest {
        placement: placement.map_err(|error| Failure::from_error(&error))?,
        source: args.source.clone(),
        hosts: hosts
            .iter()
            .map(|host| HostSpec {
                name: host.name.clone(),
                path: host.path.clone(),
                cluster: host.cluster.clone(),
            })
            .collect(),
        asked: Asked {
            plan,
            ..args.moving.asked()?
        },
        who: who(),
        wait: args.wait,
        verify_after: args.verify_after,
        patience: args.patience,
        listen: everywhere(),
    })
}

/// Who casts, as others may read it: `ana@build1`.
fn who() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(std::env::var_os);
    let user = user.map(|user| user.to_string_lossy().into_owned());
    let user = user.filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid()));
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}

/// Refuses a source that is not there before anybody is called.
fn readable(source: &Path) -> Result<(), Failure> {
    match std::fs::metadata(source) {
        Ok(_) => Ok(()),
        Err(error) => {
            let source = source.display().to_string();
            Err(Failure::Failed(format!(
                "{}: cannot read the source: {error}",
                escape(&source)
            )))
        }
    }
}

/// Tells the script of the emulated network around us when the transfer begins and when it is over.
async fn tell(script: Client, mut seen: watch::Receiver<CastView>) {
    let script = Arc::new(script);
    let say = |word: &'static str| {
        let script = Arc::clone(&script);
        tokio::task::spawn_blocking(move || {
            // A script need not hear either word.
            if let Err(error) = script.tell(word, Duration::ZERO) {
                tracing::debug!(%error, word, "the emulation did not hear");
            }
        })
    };
    let begun = seen.wait_for(|view| matches!(view.phase, Phase::Moving | Phase::Done));
    if begun.await.is_ok() {
        let _ = say("start").await;
        // The view's sender goes away with the cast.
        while seen.changed().await.is_ok() {}
        let _ = say("reset").await;
    }
}

/// Who follows a cast while it runs.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// Whether the display is to say errors only.
    pub(super) quiet: bool,
    /// The script of the emulated network around us.
    pub(super) script: Option<Client>,
    /// Writes down how it goes.
    pub(super) record: Option<Record>,
}

/// Runs a cast under a display until every host has its verdict and every child is gone, or ends
/// it in order when `interrupted` turns true.
///
/// # Errors
/// If the cast could not begin.
pub(super) async fn watched(
    request: CastRequest,
    launcher: Arc<dyn Launcher>,
    reaper: &Reaper,
    interrupted: watch::Receiver<bool>,
    watchers: Watchers,
) -> Result<CastReport, Failure> {
    let (view, seen) = watch::channel(first_view(&request));
    let script = watchers.script;
    let telling = script.map(|script| tokio::spawn(tell(script, seen.clone())));
    let record = watchers.record;
    let recording = record.map(|record| tokio::spawn(record.run(seen.clone())));
    let display = Display::new(request.hosts.len(), watchers.quiet);
    let display = tokio::spawn(display.run(seen));
    let ended = cast::run(request, launcher, view, interrupted).await;
    reaper.settle().await;
    // They end with the view's sender, having said what there was to say.
    let _ = display.await;
    for other in [telling, recording].into_iter().flatten() {
        let _ = other.await;
    }
    ended.map_err(|error| Failure::from_error(&error))
}

/// What is shown before anything is known.
fn first_view(request: &CastRequest) -> CastView {
    let host = |host: &HostSpec| HostView {
        name: host.name.clone(),
        state: HostState::Starting,
        have_bytes: 0,
        resumed_bytes: 0,
        received_bytes: 0,
        rate_bytes_per_s: 0.0,
        idle: Duration::ZERO,
        error: None,
    };
    CastView {
        phase: Phase::Hashing,
        hashed_bytes: 0,
        size_bytes: 0,
        protocol: String::new(),
        why: String::new(),
        elapsed: Duration::ZERO,
        limit_s: None,
        hosts: request.hosts.iter().map(host).collect(),
        notices: Vec::new(),
    }
}

/// Turns true with the first interrupt; the second ends the program at once.
pub(super) fn interrupts() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        let Ok(mut ends) = Ends::listen() else {
            // Without handlers a signal ends the program at once, and with it every agent. The
            // sender has to stay all the same: without one nobody could wait for it.
            return sender.closed().await;
        };
        loop {
            ends.next().await;
            if sender.send_replace(true) {
                std::process::exit(1);
            }
            out::complain("interrupted; ending the agents");
        }
    });
    receiver
}
