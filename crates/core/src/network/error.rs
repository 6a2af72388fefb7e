//! What can be wrong with the description of a network, and where.

use std::fmt;

use super::backlog::Backlog;
use crate::text::{escape, excerpt};
use crate::units::UnitError;

/// How many known names a message lists before it stops.
const NAMES_LISTED_MAX: usize = 12;

/// A network that cannot be: where, and what was found and expected there.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkError {
    /// Where it is.
    pub place: Place,
    /// What it is; boxed, as results carry errors through many hands.
    pub problem: Box<Problem>,
}

impl NetworkError {
    pub(super) fn new(place: Place, problem: Problem) -> Self {
        let problem = Box::new(problem);
        Self { place, problem }
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place, self.problem)
    }
}

impl std::error::Error for NetworkError {}

/// A part of the description of a network. Indices count from zero, lines and columns from one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The whole.
    Network,
    /// A key of a cluster.
    Cluster {
        /// Which cluster, in the order given.
        index: usize,
        /// Which key, as TOML calls it.
        key: &'static str,
    },
    /// A key of a node that is listed by itself.
    Node {
        /// Which of them, in the order given.
        index: usize,
        /// Which key, as TOML calls it.
        key: &'static str,
    },
    /// A key of a link.
    Link {
        /// Which link, in the order given.
        index: usize,
        /// Which key, as TOML calls it.
        key: &'static str,
    },
    /// A place in a file.
    Text {
        /// The name of the file.
        file: String,
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
        /// The key there, if it is about one.
        key: Option<String>,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network => write!(f, "network: "),
            Self::Cluster { index, key } => write!(f, "cluster {}: `{key}`: ", index + 1),
            Self::Node { index, key } => write!(f, "node {}: `{key}`: ", index + 1),
            Self::Link { index, key } => write!(f, "link {}: `{key}`: ", index + 1),
            Self::Text {
                file,
                line,
                column,
                key,
            } => {
                write!(f, "{}:{line}:{column}: ", escape(file))?;
                match key {
                    Some(key) => write!(f, "`{}`: ", excerpt(key)),
                    None => Ok(()),
                }
            }
        }
    }
}

/// What is wrong. Texts from the description are quoted safe to print.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is no TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// The text is longer than any sensible description.
    #[error("the description has {bytes} bytes, more than the {max} allowed")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// An unknown key.
    #[error("unknown key, expected {}", listed(known, "one of "))]
    UnknownKey {
        /// The keys there are.
        known: Vec<String>,
    },
    /// A key that has to be there is not.
    #[error("a {table} needs {expected}")]
    MissingKey {
        /// What lacks it.
        table: &'static str,
        /// What it needs.
        expected: &'static str,
    },
    /// A value of the wrong kind.
    #[error("expected {expected}, found {}", quoted(found))]
    Expected {
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A quantity that cannot be read.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// There is no cluster.
    #[error("a network needs at least one `[[cluster]]`")]
    NoClusters,
    /// A cluster without nodes.
    #[error("cluster {} has no nodes, expected at least one", quoted(cluster))]
    NoNodes {
        /// Its name.
        cluster: String,
    },
    /// More of something than is allowed.
    #[error("more than {max} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// A name that cannot be told apart or printed.
    #[error(
        "{} is not a name: expected 1 to 255 bytes of visible text without spaces or `*`",
        quoted(name)
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// Two clusters of one name.
    #[error("a cluster {} exists already", quoted(name))]
    DuplicateCluster {
        /// The name.
        name: String,
    },
    /// Two nodes of one name.
    #[error(
        "a node {} exists already in cluster {}",
        quoted(name),
        quoted(cluster)
    )]
    DuplicateNode {
        /// The name.
        name: String,
        /// The cluster that has it.
        cluster: String,
    },
    /// A node with the name of a cluster whose first node is another one.
    #[error(
        "node {} has the name of a cluster, which stands for that cluster's first node",
        quoted(name)
    )]
    NodeNamedLikeCluster {
        /// The name.
        name: String,
    },
    /// A name or glob that no cluster has.
    #[error(
        "no cluster matches {}: there is {}",
        quoted(pattern),
        listed(known, "")
    )]
    UnknownCluster {
        /// The name or glob.
        pattern: String,
        /// The clusters there are.
        known: Vec<String>,
    },
    /// A name or glob that no node has.
    #[error("no node matches {}: there is {}", quoted(pattern), listed(known, ""))]
    UnknownNode {
        /// The name or glob.
        pattern: String,
        /// The first of the nodes there are.
        known: Vec<String>,
    },
    /// A link from a cluster to itself.
    #[error(
        "a link joins two clusters, this one joins {} with itself: \
             set `local` and `local_delay` of the cluster instead",
        quoted(cluster)
    )]
    SelfLink {
        /// The cluster.
        cluster: String,
    },
    /// A share that is none.
    #[error("expected a share of packets from 0 to below 1, found {found}")]
    BadLoss {
        /// What was given.
        found: f64,
    },
    /// Losses in a row that cannot be.
    #[error(
        "expected runs of at least 1 lost packet, with one that passes between two runs; \
             found {burst} in a row at a loss of {loss}"
    )]
    BadBurst {
        /// The share that is lost.
        loss: f64,
        /// How many are lost in a row on average.
        burst: f64,
    },
    /// A queue that holds nothing, or marks only where it is full already.
    #[error(
        "expected at least one packet, and a threshold for marks (ecn) not above the limit (queue); \
             found ecn {}, queue {}",
        amount(*ecn),
        amount(*queue)
    )]
    BadQueue {
        /// The limit.
        queue: Option<Backlog>,
        /// The marking threshold.
        ecn: Option<Backlog>,
    },
}

fn amount(backlog: Option<Backlog>) -> String {
    backlog.map_or_else(|| "not set".to_owned(), |backlog| backlog.to_string())
}

fn quoted(text: &str) -> String {
    format!("`{}`", excerpt(text))
}

fn listed(names: &[String], lead: &str) -> String {
    let shown: Vec<_> = (names.iter().take(NAMES_LISTED_MAX))
        .map(|name| quoted(name))
        .collect();
    let tail = match names.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let lead = if names.len() > 1 { lead } else { "" };
    format!("{lead}{}{tail}", shown.join(", "))
}
