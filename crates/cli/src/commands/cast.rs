//! `outpour cast`: says what was typed to the library, shows how it goes, reports how it ended.

use std::sync::Arc;
use std::time::Duration;

use outpour::{Cast, CastReport, Destination, Event, Events, Phase, Running, Signer};
use outpour_core::text::escape;
use outpour_emu::Client;
use tokio::sync::watch;

use super::{block_on, sim, traffic};
use crate::args::{CastArgs, Output, is_elsewhere};
use crate::display::{Display, Record};
use crate::hosts;
use crate::out::{self, Failure};
use crate::signals::Ends;
use crate::{emulation, reach, report};

/// Runs the command.
///
/// # Errors
/// If the hosts make no sense, the source cannot be read, or some host did not verify.
pub fn run(args: CastArgs) -> Result<(), Failure> {
    let hosts = hosts::collect(args.sources().1, &args.hosts)?;
    let cast = cast(&args, hosts)?.reach(reach::asked(&args.reach)?);
    if args.dry_run {
        return dry_run(cast, args.output);
    }
    let record = args.progress.as_deref().map(Record::create).transpose()?;
    let report = block_on(async {
        let watchers = Watchers {
            quiet: args.output.quiet,
            script: Client::inside(),
            record,
        };
        // Before the first agent is started, so that none is left behind.
        let interrupted = interrupts();
        match cast.start() {
            Ok(cast) => watched(cast, interrupted, watchers).await,
            Err(error) => {
                if let Some(record) = watchers.record {
                    record.fail(&error);
                }
                Err(error.into())
            }
        }
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

/// Says what the cast would come to.
fn dry_run(cast: Cast, output: Output) -> Result<(), Failure> {
    let looked = block_on(async {
        let mut interrupted = interrupts();
        tokio::select! {
            looked = cast.dry_run() => Ok(looked?),
            Ok(_) = interrupted.wait_for(|interrupted| *interrupted) => {
                Err(Failure::Failed("interrupted".to_owned()))
            }
        }
    })?;
    if output.json {
        out::json(&looked);
    } else if !output.quiet {
        out::result(report::dry_run(&looked));
    }
    if output.quiet {
        let failing = looked
            .hosts
            .iter()
            .filter_map(|host| Some((&host.host, host.error.as_ref()?)));
        failing.for_each(|(host, error)| out::complain(format!("{host}: {}", escape(error))));
    }
    match looked.all_answered() {
        true => Ok(()),
        false => Err(Failure::Reported),
    }
}

/// What was meant by what was typed.
///
/// # Errors
/// If the network cannot be read, or there is no such protocol.
pub(super) fn cast(args: &CastArgs, hosts: Vec<Destination>) -> Result<Cast, Failure> {
    let cast = match args.sources().0.as_slice() {
        [holder] if is_elsewhere(holder) => Cast::of(holder),
        [first, more @ ..] => more.iter().fold(Cast::new(first), Cast::also),
        [] => return Err(Failure::Usage("no source".to_owned())),
    };
    let cast = args.from.iter().fold(cast, Cast::also_from);
    let mut cast = args.relays.iter().fold(cast, Cast::through);
    cast = cast
        .to_all(hosts)
        .asked(args.moving.asked()?)
        .priority(args.priority)
        .wait(args.wait)
        .archive(args.archive)
        .verify_after(args.verify_after)
        .patience(args.patience);
    let network = args.network.as_deref().map(sim::network).transpose()?;
    if let Some(rule) = args.moving.separation() {
        let network = network.as_ref();
        let traffic = network.map(|network| traffic::follow(args.traffic.as_deref(), network));
        // Without a network it is refused by what plans on one.
        if let Some(traffic) = traffic.transpose()? {
            cast = cast.separate(rule, traffic);
        }
    } else if args.traffic.is_some() {
        let why = "--traffic says what room to leave, and needs a rule: --threshold or --peak";
        return Err(Failure::Usage(why.to_owned()));
    }
    if let Some(network) = network {
        cast = cast.network(network);
    }
    if let Some(root) = &args.root {
        cast = cast.root(root);
    }
    if let Some(file) = &args.sign {
        let signer = Signer::load(file);
        cast = cast.sign(signer.map_err(|error| Failure::Failed(format!("--sign {error}")))?);
    }
    if let Some(node) = emulation::own_node() {
        cast = cast.own_name(node);
    }
    if let Some(plan) = &args.plan {
        cast = cast.plan(plan);
    }
    Ok(cast)
}

/// Tells the script of the emulated network around us when the transfer begins and when it is over.
async fn tell(script: Client, mut events: Events) {
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
    let mut begun = false;
    while let Some(Event::Progress(progress)) = events.next().await {
        if !begun && matches!(progress.phase, Phase::Moving | Phase::Done) {
            begun = true;
            let _ = say("start").await;
        }
    }
    if begun {
        let _ = say("reset").await;
    }
}

/// The followers of a cast while it runs.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// Whether the display is to say errors only.
    pub(super) quiet: bool,
    /// The script of the emulated network around us.
    pub(super) script: Option<Client>,
    /// Writes down how it goes.
    pub(super) record: Option<Record>,
}

/// Follows a cast under a display until every host has its verdict and every child is gone, or ends
/// it in order when `interrupted` turns true.
///
/// # Errors
/// If the cast could not begin.
pub(super) async fn watched(
    cast: Running,
    mut interrupted: watch::Receiver<bool>,
    watchers: Watchers,
) -> Result<CastReport, Failure> {
    let script = watchers.script;
    let telling = script.map(|script| tokio::spawn(tell(script, cast.events())));
    let record = watchers.record;
    let recording = record.map(|record| tokio::spawn(record.run(cast.events())));
    let display = tokio::spawn(Display::new(watchers.quiet).run(cast.events()));
    let interrupter = cast.interrupter();
    let ending = tokio::spawn(async move {
        if interrupted
            .wait_for(|interrupted| *interrupted)
            .await
            .is_ok()
        {
            interrupter.interrupt();
        }
    });
    let ended = cast.finish().await;
    ending.abort();
    // They end with the events, having said what there was to say.
    let _ = display.await;
    for other in [telling, recording].into_iter().flatten() {
        let _ = other.await;
    }
    Ok(ended?)
}

/// Turns true with the first interrupt; the second ends the program at once.
pub(super) fn interrupts() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        let Ok(mut ends) = Ends::listen() else {
            // Without handlers a signal ends the program at once, and with it every agent. The
            // sender has to stay all the same: without one no task could wait for it.
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
