//! A node that sends wrong packets: what it costs the others, and which nodes they accuse.

use super::cast::{CAST_MAX, COPIES, Cast, Progress, right_copies};
use super::report::Trial;
use super::stage::Stage;
use super::{node, receivers};
use crate::ExperimentError;
use crate::lab::{Lab, complete_but, median, sound};

/// What the series are called.
pub(crate) const HONEST: &str = "all honest";
pub(crate) const LYING: &str = "one of ten lies";
pub(crate) const HONEST_SIMULATED: &str = "simulated, all honest";
pub(crate) const LYING_SIMULATED: &str = "simulated, one of ten lies";
/// The share of wrong packets.
pub(crate) const WRONG: f64 = 0.05;

/// A node was accused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accusation {
    pub(crate) at_s: f64,
    pub(crate) peer: String,
}

/// One run, as it went for all but one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// When the last of the others had everything.
    pub(crate) others_s: f64,
    /// When all nodes had, if the liar did at all: a convicted node is served last.
    pub(crate) all_s: Option<f64>,
    pub(crate) accusations: Vec<Accusation>,
    /// How many of the others have no copy of the source, byte by byte; a simulation has no bytes.
    pub(crate) wrong_copies: usize,
}

/// The runs together: medians of times, the slowest naming, and all that must not be. Where all
/// are honest none may be accused.
pub(crate) fn judge(mut trial: Trial, runs: &[Run], liar: Option<&str>) -> Trial {
    trial.finish_s = median(runs.iter().map(|run| run.others_s).collect());
    let all: Option<Vec<f64>> = runs.iter().map(|run| run.all_s).collect();
    if let Some(all) = all.and_then(median) {
        trial.set("with_liar_s", all);
    }
    let is_liar = |accusation: &&Accusation| Some(accusation.peer.as_str()) == liar;
    let accused = runs.iter().flat_map(|run| &run.accusations);
    let wrongly = accused.filter(|it| !is_liar(it)).count();
    trial.set("wrongly_accused", wrongly as f64);
    let wrong: usize = runs.iter().map(|run| run.wrong_copies).sum();
    trial.set("wrong_copies", wrong as f64);
    trial.set("casts", runs.len() as f64);
    if liar.is_some() {
        let named = |run: &Run| {
            let mut right = run.accusations.iter().filter(is_liar);
            right.next().map_or(f64::INFINITY, |it| it.at_s)
        };
        // Not set if a run ended before any node could show it.
        trial.set("named_s", runs.iter().map(named).fold(0.0, f64::max));
    }
    trial
}

/// Which node a notice accuses, if it does: it begins with that node and ends with the accuser.
fn accused(notice: &str) -> Option<&str> {
    let accuses = notice.ends_with(')') && notice.contains(" (reported by ");
    notice.split(' ').next().filter(|_| accuses)
}

fn accusations(progress: &Progress) -> Vec<Accusation> {
    let began = progress.began_s().unwrap_or_default();
    let lines = progress.lines().iter();
    lines
        .flat_map(|line| {
            let names = line.notices.iter().filter_map(|notice| accused(notice));
            names.map(move |peer| Accusation {
                at_s: line.elapsed_s - began,
                peer: peer.to_owned(),
            })
        })
        .collect()
}

impl Cast<'_> {
    /// Casts, and looks at all nodes but one, which may be lying.
    pub(crate) fn beware(&self, lab: &Lab, suspect: usize) -> Result<Run, ExperimentError> {
        let stage = Stage::open(lab, self.network, self.mode)?;
        let (mut cast, mut progress) = self.begin(lab, &stage)?;
        cast.wait(CAST_MAX, |_| progress.look())?;
        progress.look()?;
        let said = cast.said();
        let emulation = stage.close()?;
        let suspect = node(suspect);
        let report = complete_but(&said?, &suspect)?;
        let offset = report.finish_s.unwrap_or_default() - report.transfer_s.unwrap_or_default();
        let all_s = report.transfer_s;
        let all_s = all_s.filter(|_| report.hosts.iter().all(|host| host.verified));
        let others = report.hosts.iter().filter(|host| host.host != suspect);
        let others_s = others.filter_map(|host| host.finish_s).fold(0.0, f64::max) - offset;
        sound(emulation.as_deref(), others_s)?;
        let others = receivers(self.nodes).filter(|name| *name != suspect);
        let copies = others.map(|name| lab.path(COPIES).join(name).join("object"));
        let copies: Vec<_> = copies.collect();
        let wrong_copies = copies.len() - right_copies(&copies, self.source);
        lab.clear(COPIES)?;
        Ok(Run {
            others_s,
            all_s,
            accusations: accusations(&progress),
            wrong_copies,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(others_s: f64, accused: &[(f64, &str)]) -> Run {
        let accusation = |(at_s, peer): &(f64, &str)| Accusation {
            at_s: *at_s,
            peer: (*peer).to_owned(),
        };
        Run {
            others_s,
            all_s: Some(others_s + 1.0),
            accusations: accused.iter().map(accusation).collect(),
            wrong_copies: 0,
        }
    }

    #[test]
    fn notices_that_accuse_are_told_from_others() {
        assert_eq!(
            accused("n4 sent wrong packets of batch 3 (reported by n2)"),
            Some("n4")
        );
        assert_eq!(
            accused("n4 cannot reach n2: one side has cut off the other"),
            None
        );
    }

    #[test]
    fn the_slowest_naming_counts_and_every_wrong_accusation() {
        let trial = || Trial::new(LYING, None);
        let right = run(2.0, &[(0.5, "n4"), (0.6, "n4")]);
        let late = run(4.0, &[(0.1, "n3"), (1.5, "n4")]);
        let all = judge(
            trial(),
            &[right.clone(), late, run(3.0, &[(0.2, "n4")])],
            Some("n4"),
        );
        assert_eq!(
            (all.finish_s, all.value("with_liar_s")),
            (Some(3.0), Some(4.0))
        );
        assert_eq!(
            (all.value("named_s"), all.value("wrongly_accused")),
            (Some(1.5), Some(1.0))
        );
        let honest = judge(trial(), std::slice::from_ref(&right), None);
        assert_eq!(honest.value("wrongly_accused"), Some(2.0));
        let unnamed = judge(trial(), &[right, run(1.0, &[])], Some("n4"));
        assert_eq!(unnamed.value("named_s"), None);
    }
}
