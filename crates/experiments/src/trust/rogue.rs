//! One rogue of ten members: what each attack costs the other nine, by every protocol.
//!
//! What it is compared with is the same cast to the nine without the rogue, in the same network and in
//! turn with it.

use std::path::PathBuf;

use super::members::{BAD, NETWORK, Times, middle, object, order, protocols};
use super::report::Row;
use super::site::Site;
use super::{Context, Found};
use crate::ExperimentError;
use crate::lab::Lab;

/// The variable that makes an agent a rogue.
const ROGUE: &str = "OUTPOUR_ROGUE";
pub(super) const ATTACKS: [&str; 6] = ["flood", "drip", "mute", "chatter", "claim", "hoard"];
/// How much longer the others may take.
const LONGER_MAX: f64 = 0.2;

/// Everything that the casts share.
struct Bench<'a> {
    context: &'a Context<'a>,
    lab: Lab,
    source: PathBuf,
}

pub(super) fn run(context: &Context<'_>) -> Result<Found, ExperimentError> {
    let options = context.options;
    let lab = Lab::new(&options.program, "outpour-trust-")?;
    let (source, size) = object(&lab, options)?;
    let bench = Bench {
        source,
        lab,
        context,
    };
    let attacks = options.chosen(&ATTACKS);
    let mut found = Found::default();
    found.notes.push(format!(
        "{size} to ten hosts at 20 Mbit/s; without: to the nine that are honest; medians of {}",
        options.rounds()
    ));
    for protocol in protocols(options) {
        bench.protocol(protocol, &attacks, &mut found)?;
    }
    Ok(found)
}

impl Bench<'_> {
    /// All attacks on one protocol, in turn with none.
    fn protocol(
        &self,
        protocol: &str,
        attacks: &[&str],
        found: &mut Found,
    ) -> Result<(), ExperimentError> {
        let site = Site::open(&self.lab, NETWORK)?;
        let mut honest = Times::new();
        let mut attacked: Vec<(&str, Times)> =
            attacks.iter().map(|name| (*name, Times::new())).collect();
        for round in 0..self.context.options.rounds() {
            honest.push(self.cast(&site, protocol, None, round));
            // What has failed once is not tried again.
            let tried = |it: &&mut (&str, Times)| it.1.iter().all(Result::is_ok);
            for (attack, times) in attacked.iter_mut().filter(tried) {
                times.push(self.cast(&site, protocol, Some(attack), round));
            }
        }
        if let Some(void) = site.close()? {
            found.notes.push(format!("{protocol}: {void}"));
        }
        let honest = middle(honest);
        for (attack, times) in attacked {
            let what = format!("{protocol}, {attack}");
            let row = match (&honest, middle(times)) {
                (Ok(without), Ok(with)) => Row::longer(what, *without, with, LONGER_MAX),
                (Err(error), _) => Row::failed(what, error),
                (_, Err(error)) => Row::failed(what, &error),
            };
            (self.context.progress)(format_args!("{}", row.in_words()));
            found.rows.push(row);
        }
        Ok(())
    }

    /// One cast; when the last of the honest hosts had everything.
    fn cast(
        &self,
        site: &Site<'_>,
        protocol: &str,
        attack: Option<&str>,
        round: u64,
    ) -> Result<f64, ExperimentError> {
        let environment = attack.map(|attack| (ROGUE, format!("{BAD}={attack}")));
        let seed = self.context.options.seed + round;
        let mut order = order(site, &self.source, protocol, seed);
        order.hosts.retain(|host| attack.is_some() || host != BAD);
        order.environment = environment.into_iter().collect();
        let taken = site.cast(&order, attack.map(|_| BAD));
        let shown = match &taken {
            Ok(seconds) => format!("{seconds:.2} s"),
            Err(error) => error.to_string(),
        };
        let attack = attack.unwrap_or("honest");
        (self.context.progress)(format_args!("  {protocol}, {attack}: {shown}"));
        taken
    }
}
