//! Scripts that change a network while it is in use: the language of [Burger §4.6.1, figure 4.15].
//!
//! The same script drives the simulator and the emulator. It is a list of commands, one a line:
//!
//! ```text
//! # nodes, then their cluster
//! defineCluster a0 a1 A
//! defineCluster b0 b1 B
//! setAllCapacityIn 100 MB/s      # of every node; likewise setAllCapacityOut
//! setCapacityIn A|B 100 MB/s     # of clusters or, where none matches, of nodes; setCapacityOut
//! setDelay .* .* 10 ms           # one way, between clusters
//! setBandwidth A B 10 MB/s
//! setQueue A B 100 packets       # or bytes
//! setEcn A B 30 packets
//! setLoss A B 1 % 4              # in runs of 4 on average; one by one if left out
//! forever                        # repeats everything below
//! hear start                     # waits for the word
//! sleep 30 sec
//! setBandwidth A B 0.8 MB/s
//! tell slow                      # sends a word to observers
//! hear reset
//! ```
//!
//! Where replication between sites is simulated, see [`Script::timeline_of_sites`], there is more:
//!
//! ```text
//! setForeground A B 3 MB/s       # latency-sensitive traffic on a link, which goes first
//! lose a0|b1                     # nodes that are out of reach from now on ...
//! restore a0|b1                  # ... and that are back with all they had
//! loseController                 # nobody decides any more ...
//! restoreController              # ... and somebody does again
//! ```
//!
//! Names are regular expressions that have to match the whole name. A pair of expressions is about
//! all pairs of different clusters; only a pair that names the same one cluster twice, without any
//! expression, is about the links inside it. What a script says nothing about has no limit and no
//! delay, or stays as the network it is applied to has it.
//!
//! A word that was sent before the script waits for it counts. Where no application sends words, as in
//! the simulator, a transfer begins at the first `hear start`, or at the beginning of a script without
//! one, and no other word is sent until it is over: see [`Timeline`].

mod error;
mod names;
mod parse;
mod player;

use std::time::Duration;

use crate::network::{Backlog, Change, Cluster, Members, Place};
use crate::{Network, Rate};

pub use error::{ScriptError, ScriptProblem};
pub use player::{Player, Timeline};

/// How long a script may be.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// How many commands a script may have.
pub const COMMANDS_MAX: usize = 100_000;

/// How many names all expressions of a script together may be compared with.
pub const COMPARISONS_MAX: usize = 20_000_000;

/// How many changes one pass through a script may make.
pub const CHANGES_MAX: usize = 4_000_000;

/// How long an expression or a word to hear or tell may be.
pub const WORD_BYTES_MAX: usize = 255;

/// How long one round of `forever` has to sleep at least, unless it hears a word.
pub const ROUND_MIN: Duration = Duration::from_millis(1);

/// The word at which a transfer begins.
pub const START: &str = "start";

/// The word that says that a transfer is over.
pub const RESET: &str = "reset";

/// A script, read but not yet about any network.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    file: String,
    clusters: Vec<Defined>,
    lines: Vec<Line>,
    /// Which line a round of `forever` begins with.
    repeat_from: Option<usize>,
}

/// What a player does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Change the network.
    Change(Change),
    /// Let that much time pass.
    Sleep(Duration),
    /// Wait for the word.
    Hear(String),
    /// Say the word.
    Tell(String),
    /// Nothing, for ever.
    End,
}

/// A cluster as the script defines it.
#[derive(Clone, Debug, PartialEq)]
struct Defined {
    line: usize,
    name: String,
    nodes: Vec<String>,
}

/// One command and where it stands, counted from one.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    number: usize,
    command: Command,
}

#[derive(Clone, Debug, PartialEq)]
enum Command {
    AllCapacity(Side, Rate),
    Capacity(Side, String, Rate),
    Pair(String, String, Setting),
    Servers(String, bool),
    Controller(bool),
    Sleep(Duration),
    Hear(String),
    Tell(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    In,
    Out,
}

/// What is set for a pair of clusters.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    Rate(Rate),
    Delay(Duration),
    Queue(Backlog),
    Ecn(Backlog),
    Loss { share: f64, burst: f64 },
    Foreground(Rate),
}

impl Command {
    /// What is wrong with it in a network that is emulated.
    const fn not_emulated(&self) -> Option<ScriptProblem> {
        match self {
            Self::Pair(_, _, Setting::Foreground(_)) => Some(ScriptProblem::OnlySimulated {
                command: "setForeground",
            }),
            _ => None,
        }
    }

    /// The name of a command that only sites between which data is replicated know.
    const fn only_of_sites(&self) -> Option<&'static str> {
        match self {
            Self::Servers(_, false) => Some("lose"),
            Self::Servers(_, true) => Some("restore"),
            Self::Controller(false) => Some("loseController"),
            Self::Controller(true) => Some("restoreController"),
            _ => None,
        }
    }
}

impl Script {
    /// Reads a script; `file` is its name in messages.
    ///
    /// # Errors
    /// Names the line, what was found there and what was expected.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScriptError> {
        parse::parse(text, file)
    }

    /// The network at the start: after everything before the first `sleep` or `hear`.
    ///
    /// Without `base` it consists of the clusters the script defines; clusters it defines although
    /// there is a `base` have to be those of the base.
    ///
    /// # Errors
    /// Names the line that does not fit the network, or that there is none.
    pub fn network(&self, base: Option<&Network>) -> Result<Network, ScriptError> {
        let mut network = match base {
            Some(base) => {
                self.check_clusters(base)?;
                base.clone()
            }
            None => self.define_network()?,
        };
        self.check_clusters(&network)?;
        let mut player = Player::new(self, &network)?;
        while let Step::Change(change) = player.next() {
            network.apply(&change);
        }
        Ok(network)
    }

    /// Plays the script on `network` from its beginning.
    ///
    /// # Errors
    /// As [`Script::timeline`], and names the line with traffic that nothing here would make.
    pub fn player(&self, network: &Network) -> Result<Player, ScriptError> {
        for line in &self.lines {
            if let Some(problem) = line.command.not_emulated() {
                return self.error(line.number, problem);
            }
        }
        self.player_of_casts(network)
    }

    fn player_of_casts(&self, network: &Network) -> Result<Player, ScriptError> {
        for line in &self.lines {
            if let Some(command) = line.command.only_of_sites() {
                return self.error(line.number, ScriptProblem::OnlyOfSites { command });
            }
        }
        self.check_clusters(network)?;
        Player::new(self, network)
    }

    /// What changes when, as seen by a transfer over `network` during which no word is sent, with
    /// latency-sensitive traffic.
    ///
    /// # Errors
    /// Names the line with an expression that matches nothing, whose clusters are not those of
    /// the network, or with a command that only [`Script::timeline_of_sites`] knows.
    pub fn timeline(&self, network: &Network) -> Result<Timeline, ScriptError> {
        Ok(Timeline::new(
            self.player_of_casts(network)?,
            self.hears(START),
        ))
    }

    /// The same where data is replicated between sites: with latency-sensitive traffic, and with
    /// servers and a controller that are lost and come back.
    ///
    /// # Errors
    /// Names the line with an expression that matches nothing, or whose clusters are not those of
    /// the network.
    pub fn timeline_of_sites(&self, network: &Network) -> Result<Timeline, ScriptError> {
        self.check_clusters(network)?;
        let player = Player::new(self, network)?;
        Ok(Timeline::new(player, self.hears(START)))
    }

    /// Whether the script loses servers or the controller, and on which line it first does.
    pub fn loses(&self) -> Option<usize> {
        let loses = |line: &&Line| {
            matches!(
                line.command,
                Command::Servers(_, false) | Command::Controller(false)
            )
        };
        self.lines.iter().find(loses).map(|line| line.number)
    }

    /// Whether the script waits for `word` anywhere.
    pub fn hears(&self, word: &str) -> bool {
        self.words().any(|heard| heard == word)
    }

    /// The words the script waits for, in order, as often as they occur.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match &line.command {
            Command::Hear(word) => Some(word.as_str()),
            _ => None,
        })
    }

    /// Whether the script defines clusters of its own.
    pub fn defines_clusters(&self) -> bool {
        !self.clusters.is_empty()
    }

    /// The name of its file, for messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    fn error<T>(&self, line: usize, problem: ScriptProblem) -> Result<T, ScriptError> {
        Err(ScriptError::new(&self.file, line, problem))
    }

    fn define_network(&self) -> Result<Network, ScriptError> {
        let clusters: Vec<_> = (self.clusters.iter())
            .map(|cluster| Cluster::new(&cluster.name, Members::Names(cluster.nodes.clone())))
            .collect();
        if clusters.is_empty() {
            return self.error(1, ScriptProblem::NoClusters);
        }
        Network::new(clusters, Vec::new()).or_else(|error| {
            let line = match error.place {
                Place::Cluster { index, .. } => self.clusters.get(index).map(|of| of.line),
                _ => None,
            };
            self.error(line.unwrap_or(1), ScriptProblem::Network(error.problem))
        })
    }

    /// Whether the clusters of the script, if it defines any, are those of `network`.
    fn check_clusters(&self, network: &Network) -> Result<(), ScriptError> {
        let Some(last) = self.clusters.last() else {
            return Ok(());
        };
        for defined in &self.clusters {
            let name = || defined.name.clone();
            let known = network
                .clusters()
                .iter()
                .position(|c| c.name == defined.name);
            let Some(index) = known else {
                return self.error(defined.line, ScriptProblem::OtherCluster { name: name() });
            };
            let nodes = network.nodes_of(crate::network::ClusterId(index as u32));
            let mut there: Vec<&str> = nodes.map(|node| network.name(node)).collect();
            let mut here: Vec<&str> = defined.nodes.iter().map(String::as_str).collect();
            there.sort_unstable();
            here.sort_unstable();
            if there != here {
                return self.error(defined.line, ScriptProblem::OtherNodes { cluster: name() });
            }
        }
        let missing = (network.clusters().iter())
            .find(|cluster| self.clusters.iter().all(|c| c.name != cluster.name));
        match missing {
            None => Ok(()),
            Some(cluster) => {
                let name = cluster.name.clone();
                self.error(last.line, ScriptProblem::MissingCluster { name })
            }
        }
    }
}

#[cfg(test)]
mod tests;
