//! A script at work on a network: step by step, or as a list of changes in time.

use std::sync::Arc;
use std::time::Duration;

use super::error::{ScriptError, ScriptProblem};
use super::names::{Names, is_plain};
use super::{CHANGES_MAX, Command, RESET, START, Script, Setting, Side, Step};
use crate::network::{Change, ClusterId, Network, Resource};
use crate::{NodeId, Rate, Time};

/// Plays a script step by step.
#[derive(Clone, Debug)]
pub struct Player {
    acts: Arc<[Act]>,
    repeat_from: Option<usize>,
    /// The act that comes next, and how many of its changes were made already.
    at: usize,
    made: usize,
}

/// A command with its names resolved.
#[derive(Clone, Debug)]
enum Act {
    Capacities(Box<[Resource]>, Rate),
    Pairs(Arc<[ClusterId]>, Arc<[ClusterId]>, Setting),
    Local(ClusterId, Setting),
    Servers(Box<[NodeId]>, bool),
    Controller(bool),
    Sleep(Duration),
    Hear(String),
    Tell(String),
}

impl Player {
    pub(super) fn new(script: &Script, network: &Network) -> Result<Self, ScriptError> {
        let mut names = Names::of(network);
        let mut changes_left = CHANGES_MAX;
        let mut acts = Vec::with_capacity(script.lines.len());
        for line in &script.lines {
            let act = resolve(&line.command, &mut names, network)
                .and_then(|act| {
                    let left = changes_left.checked_sub(act.changes());
                    changes_left = left.ok_or(ScriptProblem::TooManyChanges)?;
                    Ok(act)
                })
                .map_err(|problem| ScriptError::new(&script.file, line.number, problem))?;
            acts.push(act);
        }
        Ok(Self {
            acts: acts.into(),
            repeat_from: script.repeat_from,
            at: 0,
            made: 0,
        })
    }

    /// What comes next; [`Step::End`] again and again once the script is over.
    // Not an iterator: a script that is over is a state to rest in, not the lack of a step.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Step {
        loop {
            let Some(act) = self.acts.get(self.at) else {
                match self.repeat_from {
                    Some(from) if from < self.acts.len() => self.at = from,
                    _ => return Step::End,
                }
                continue;
            };
            if let Some(change) = act.change(&mut self.made) {
                return Step::Change(change);
            }
            self.made = 0;
            self.at += 1;
            match act {
                Act::Sleep(time) => return Step::Sleep(*time),
                Act::Hear(word) => return Step::Hear(word.clone()),
                Act::Tell(word) => return Step::Tell(word.clone()),
                Act::Capacities(..)
                | Act::Pairs(..)
                | Act::Local(..)
                | Act::Servers(..)
                | Act::Controller(_) => {}
            }
        }
    }
}

impl Act {
    /// How many changes it makes, those it skips counted too.
    fn changes(&self) -> usize {
        match self {
            Self::Capacities(resources, _) => resources.len(),
            Self::Pairs(from, to, _) => from.len() * to.len(),
            Self::Servers(nodes, _) => nodes.len(),
            Self::Local(..) | Self::Controller(_) => 1,
            _ => 0,
        }
    }

    /// The next of its changes after `made` of them, which it counts on.
    fn change(&self, made: &mut usize) -> Option<Change> {
        match self {
            Self::Capacities(resources, rate) => {
                let (resource, rate) = (*resources.get(*made)?, *rate);
                *made += 1;
                Some(Change::Capacity { resource, rate })
            }
            Self::Pairs(from, to, setting) => loop {
                let a = from.get(*made / to.len())?;
                let b = to[*made % to.len()];
                *made += 1;
                if *a != b {
                    return Some(setting.of(*a, b));
                }
            },
            Self::Servers(nodes, there) => {
                let (node, there) = (*nodes.get(*made)?, *there);
                *made += 1;
                Some(Change::Server { node, there })
            }
            Self::Controller(there) if *made == 0 => {
                *made = 1;
                Some(Change::Controller { there: *there })
            }
            Self::Local(cluster, setting) if *made == 0 => {
                *made = 1;
                Some(setting.of(*cluster, *cluster))
            }
            _ => None,
        }
    }
}

impl Setting {
    fn of(self, from: ClusterId, to: ClusterId) -> Change {
        match self {
            Self::Rate(rate) => {
                let resource = Resource::Link(from, to);
                Change::Capacity { resource, rate }
            }
            Self::Delay(delay) => Change::Delay { from, to, delay },
            Self::Queue(limit) => Change::Queue { from, to, limit },
            Self::Foreground(rate) => Change::Foreground { from, to, rate },
            Self::Ecn(above) => Change::Ecn { from, to, above },
            Self::Loss { share, burst } => Change::Loss {
                from,
                to,
                share,
                burst,
            },
        }
    }
}

fn resolve(
    command: &Command,
    names: &mut Names<'_>,
    network: &Network,
) -> Result<Act, ScriptProblem> {
    Ok(match command {
        Command::AllCapacity(side, rate) => {
            let of = |node| match side {
                Side::In => Resource::NodeIn(node),
                Side::Out => Resource::NodeOut(node),
            };
            Act::Capacities(network.nodes().map(of).collect(), *rate)
        }
        Command::Capacity(side, pattern, rate) => {
            Act::Capacities(capacities(*side, pattern, names)?, *rate)
        }
        Command::Pair(from, to, setting) => pairs(from, to, *setting, names)?,
        Command::Servers(pattern, there) => {
            let nodes = names.nodes(pattern)?;
            if nodes.is_empty() {
                return no_match("node", pattern);
            }
            Act::Servers(nodes.to_vec().into(), *there)
        }
        Command::Controller(there) => Act::Controller(*there),
        Command::Sleep(time) => Act::Sleep(*time),
        Command::Hear(word) => Act::Hear(word.clone()),
        Command::Tell(word) => Act::Tell(word.clone()),
    })
}

/// The clusters an expression matches or, if there are none, the nodes.
fn capacities(
    side: Side,
    pattern: &str,
    names: &mut Names<'_>,
) -> Result<Box<[Resource]>, ScriptProblem> {
    let clusters = names.clusters(pattern)?;
    if !clusters.is_empty() {
        let of = |cluster: &ClusterId| match side {
            Side::In => Resource::ClusterIn(*cluster),
            Side::Out => Resource::ClusterOut(*cluster),
        };
        return Ok(clusters.iter().map(of).collect());
    }
    let nodes = names.nodes(pattern)?;
    if nodes.is_empty() {
        return no_match("cluster or node", pattern);
    }
    Ok((nodes.iter())
        .map(|node| match side {
            Side::In => Resource::NodeIn(*node),
            Side::Out => Resource::NodeOut(*node),
        })
        .collect())
}

fn pairs(
    from: &str,
    to: &str,
    setting: Setting,
    names: &mut Names<'_>,
) -> Result<Act, ScriptProblem> {
    let (senders, receivers) = (names.clusters(from)?, names.clusters(to)?);
    for (found, pattern) in [(&senders, from), (&receivers, to)] {
        if found.is_empty() {
            return no_match("cluster", pattern);
        }
    }
    if let ([one], [other]) = (&*senders, &*receivers)
        && one == other
    {
        if from != to || !is_plain(from) {
            let (from, to) = (from.to_owned(), to.to_owned());
            return Err(ScriptProblem::NoPair { from, to });
        }
        return match setting {
            Setting::Rate(_) | Setting::Delay(_) => Ok(Act::Local(*one, setting)),
            _ => Err(ScriptProblem::LocalSetting),
        };
    }
    Ok(Act::Pairs(senders, receivers, setting))
}

fn no_match<T>(what: &'static str, pattern: &str) -> Result<T, ScriptProblem> {
    let pattern = pattern.to_owned();
    Err(ScriptProblem::NoMatch { what, pattern })
}

/// What changes when, counted from the start of a transfer during which no word is sent.
///
/// The transfer begins at the first `hear start`, or at the beginning of a script without one;
/// everything before is played at once, and comes as the first changes at time zero. From then on
/// the script sleeps as it says, and rests for ever at the next word it wants to hear. Moments
/// without changes are left out. The list never ends if the script is a `forever` of sleeps.
#[derive(Clone, Debug)]
pub struct Timeline {
    player: Player,
    now: Time,
    started: bool,
    over: bool,
    /// The word it rests at.
    rests_at: Option<String>,
}

impl Timeline {
    pub(super) fn new(mut player: Player, waits_for_start: bool) -> Self {
        // Rounds without changes pass unseen, so there is no end to wait for.
        let repeats = player.repeat_from.and_then(|from| player.acts.get(from..));
        if repeats.is_some_and(|acts| acts.iter().all(|act| act.changes() == 0)) {
            player.repeat_from = None;
        }
        Self {
            player,
            now: Time::ZERO,
            started: !waits_for_start,
            over: false,
            rests_at: None,
        }
    }

    /// The word the script waits for at that time, and for ever: neither a transfer nor any other
    /// program sends it.
    pub fn unheard(mut self, at: Time) -> Option<String> {
        while self.now <= at && self.next().is_some() {}
        let word = self.rests_at.filter(|_| self.now <= at)?;
        (word != START && word != RESET).then_some(word)
    }
}

impl Iterator for Timeline {
    type Item = (Time, Vec<Change>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut changes = Vec::new();
        while !self.over {
            let now = self.now;
            match self.player.next() {
                Step::Change(change) => changes.push(change),
                Step::Tell(_) => {}
                Step::Hear(word) if !self.started => self.started = word == START,
                Step::Sleep(time) if self.started => {
                    self.now += time;
                    self.over = self.now == Time::MAX;
                    if !changes.is_empty() && self.now != now {
                        return Some((now, changes));
                    }
                }
                Step::Sleep(_) => {}
                Step::Hear(word) => {
                    self.rests_at = Some(word);
                    self.over = true;
                }
                Step::End => self.over = true,
            }
        }
        (!changes.is_empty()).then_some((self.now, changes))
    }
}
