//! What can be wrong with a script, and on which line.

use std::fmt;

use super::{
    CHANGES_MAX, COMMANDS_MAX, COMPARISONS_MAX, ROUND_MIN, TEXT_BYTES_MAX, WORD_BYTES_MAX,
};
use crate::network::{BacklogError, Problem};
use crate::text::{escape, excerpt};
use crate::units::UnitError;

/// A script that cannot be played: where, and what was found and expected there.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptError {
    /// The name of the file.
    pub file: String,
    /// The line, counted from one.
    pub line: usize,
    /// What it is; boxed, as results carry errors through many hands.
    pub problem: Box<ScriptProblem>,
}

impl ScriptError {
    pub(super) fn new(file: &str, line: usize, problem: ScriptProblem) -> Self {
        Self {
            file: file.to_owned(),
            line,
            problem: Box::new(problem),
        }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", escape(&self.file), self.line, self.problem)
    }
}

impl std::error::Error for ScriptError {}

/// What is wrong. Texts from the script are quoted safe to print.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptProblem {
    /// The text is longer than any sensible script.
    #[error("the script has {0} bytes, more than the {TEXT_BYTES_MAX} allowed")]
    TooLong(usize),
    /// More commands than allowed.
    #[error("more than {COMMANDS_MAX} commands")]
    TooManyCommands,
    /// More names to compare than allowed.
    #[error("the expressions up to here are compared with more than {COMPARISONS_MAX} names")]
    TooManyComparisons,
    /// More changes than allowed.
    #[error("the commands up to here make more than {CHANGES_MAX} changes")]
    TooManyChanges,
    /// An unknown command.
    #[error("unknown command `{}`, expected one of {known}", excerpt(found))]
    UnknownCommand {
        /// What was found.
        found: String,
        /// The commands there are.
        known: String,
    },
    /// A command with too few or too many words.
    #[error("expected `{usage}`")]
    Usage {
        /// How the command is written.
        usage: &'static str,
    },
    /// A word or an expression that is too long or has invisible characters.
    #[error("`{}` is not a word: expected at most {WORD_BYTES_MAX} bytes of visible text", excerpt(.0))]
    BadWord(String),
    /// Something that is no regular expression.
    #[error("`{}` is not a regular expression: {reason}", excerpt(pattern))]
    BadPattern {
        /// What was found.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A quantity that cannot be read.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// An amount of waiting data that cannot be read or is nothing.
    #[error(transparent)]
    Backlog(#[from] BacklogError),
    /// A queue that holds nothing.
    #[error("expected at least one packet or byte")]
    EmptyBacklog,
    /// A share of packets that is none.
    #[error("`{}` is not a loss: expected a share from 0 to below 1, such as `0.01` or `1 %`", excerpt(.0))]
    BadLoss(String),
    /// A run of losses that cannot be.
    #[error(
        "`{}` is not a number of packets lost in a row: expected at least 1, with one that passes \
         between two runs",
        excerpt(.0)
    )]
    BadBurst(String),
    /// A second `forever`.
    #[error("everything from line {first} on is repeated by `forever` already")]
    SecondForever {
        /// Where the first is.
        first: usize,
    },
    /// A `forever` that would never pause.
    #[error(
        "`forever` repeats without a pause: what follows has to `hear` a word or `sleep` {ROUND_MIN:?}"
    )]
    Spins,
    /// A cluster that is defined where it can only be repeated.
    #[error("`defineCluster` after `forever`: clusters are defined once")]
    LateCluster,
    /// Clusters that make no network.
    #[error("{0}")]
    Network(Box<Problem>),
    /// There is neither a network nor a definition of one.
    #[error("the script defines no cluster (`defineCluster`), so it needs a network description")]
    NoClusters,
    /// A cluster that the network lacks.
    #[error("the network has no cluster `{}`", excerpt(name))]
    OtherCluster {
        /// Its name.
        name: String,
    },
    /// A cluster whose nodes are others.
    #[error("cluster `{}` has other nodes in the network", excerpt(cluster))]
    OtherNodes {
        /// Its name.
        cluster: String,
    },
    /// A cluster of the network that the script forgets.
    #[error(
        "the network has a cluster `{}`, which the script does not define",
        excerpt(name)
    )]
    MissingCluster {
        /// Its name.
        name: String,
    },
    /// An expression that no name matches.
    #[error("no {what} matches `{}`", excerpt(pattern))]
    NoMatch {
        /// What was looked for.
        what: &'static str,
        /// The expression.
        pattern: String,
    },
    /// A pair of expressions that only match the same one cluster.
    #[error(
        "`{}` and `{}` match one cluster, and no pair of different ones",
        excerpt(from),
        excerpt(to)
    )]
    NoPair {
        /// The sending side.
        from: String,
        /// The receiving side.
        to: String,
    },
    /// A command that is about sites between which data is replicated, in another world.
    #[error("`{command}` is for `outpour sim replicate` alone: nothing else has such faults")]
    OnlyOfSites {
        /// Its name.
        command: &'static str,
    },
    /// A command that only simulations carry out.
    #[error(
        "`{command}` is for simulations: in an emulated network run a program that makes such traffic"
    )]
    OnlySimulated {
        /// Its name.
        command: &'static str,
    },
    /// Something that the links inside a cluster do not have.
    #[error(
        "the links inside a cluster have a bandwidth and a delay, but no queue, mark or loss, and no traffic goes first"
    )]
    LocalSetting,
}
