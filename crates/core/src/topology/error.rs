//! What can be wrong with a topology, and where.

use super::{DELAY_MAX, SITES_MAX};
use crate::network::{Link, Problem, link_fault};
use crate::text::excerpt;

/// A topology that cannot be. Texts from the outside are quoted safe to print.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// No host.
    #[error("a topology needs at least one host")]
    NoHosts,
    /// More of something than is allowed.
    #[error("more than {max} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// A number that a shape cannot have.
    #[error("{what}: expected {expected}, found {found}")]
    Count {
        /// What the number is of.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What was given.
        found: u32,
    },
    /// A wire with an end that is not there, or from a vertex to itself.
    #[error("wire {}: expected two different vertices of the topology", index + 1)]
    BadWire {
        /// Which wire, in the order given, from zero.
        index: usize,
    },
    /// A link that cannot be.
    #[error("{what}: `{key}`: {problem}")]
    Link {
        /// Of what.
        what: String,
        /// Which of its properties, as TOML calls it.
        key: &'static str,
        /// What is wrong with it.
        problem: Box<Problem>,
    },
    /// A link over which nothing ever passes, where all have to.
    #[error("{what}: `rate`: expected more than zero")]
    Dead {
        /// Of what.
        what: String,
    },
    /// A delay beyond all sense.
    #[error("{what}: `delay`: expected at most {} s", DELAY_MAX.as_secs())]
    Delay {
        /// Of what.
        what: String,
    },
    /// A host that another does not reach.
    #[error("no way leads from `{}` to `{}`", excerpt(from), excerpt(to))]
    Apart {
        /// The host that sends.
        from: String,
        /// The host that should receive.
        to: String,
    },
    /// A table of links that cannot be read.
    #[error("{}:{line}: {problem}", excerpt(file))]
    Csv {
        /// The name of the table.
        file: String,
        /// Which line, from one.
        line: usize,
        /// What is wrong with it.
        problem: CsvProblem,
    },
}

/// What is wrong with a line of a table of links.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvProblem {
    /// The text is longer than any sensible table.
    #[error("the table has {bytes} bytes, more than the {max} allowed")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// Another first line, or none.
    #[error("expected the header `{expected}`, found `{}`", excerpt(found))]
    Header {
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// Too few or too many columns.
    #[error("expected 3 columns, found {found}")]
    Columns {
        /// How many there are.
        found: usize,
    },
    /// Text where a site belongs.
    #[error(
        "`{column}`: expected the number of a site below {SITES_MAX}, found `{}`",
        excerpt(found)
    )]
    Site {
        /// Which column.
        column: &'static str,
        /// What is there.
        found: String,
    },
    /// A site joined with itself.
    #[error("a link joins two sites, this one joins {site} with itself")]
    SelfLink {
        /// The site.
        site: u32,
    },
    /// Two links between the same sites.
    #[error("sites {a} and {b} are joined in line {first} already")]
    Twice {
        /// One site.
        a: u32,
        /// The other.
        b: u32,
        /// Where they are joined for the first time.
        first: usize,
    },
    /// Text where a delay belongs.
    #[error(
        "`delay_ms`: expected milliseconds from 0 to {max}, found `{}`",
        excerpt(found)
    )]
    Delay {
        /// What is there.
        found: String,
        /// How much there may be.
        max: u32,
    },
    /// A site that no link names, although a higher number is used.
    #[error("site {site} has no link, although sites are numbered from 0 to {last}")]
    Missing {
        /// The site.
        site: u32,
        /// The highest number in use.
        last: u32,
    },
    /// Two sites that are joined with each other, but not with the first.
    #[error("no way leads from site 0 to sites {a} and {b}")]
    Apart {
        /// One site.
        a: u32,
        /// The other.
        b: u32,
    },
    /// No link at all.
    #[error("the table has no links")]
    Empty,
}

/// Checks a link; `what` says of what it is.
pub(super) fn check_link(link: &Link, what: impl Fn() -> String) -> Result<(), TopologyError> {
    if let Some((key, problem)) = link_fault(link) {
        let (what, problem) = (what(), Box::new(problem));
        return Err(TopologyError::Link { what, key, problem });
    }
    if link.delay > DELAY_MAX {
        return Err(TopologyError::Delay { what: what() });
    }
    Ok(())
}

/// Checks a link that many wires of a shape share.
pub(super) fn check_live(link: &Link, what: &str) -> Result<(), TopologyError> {
    if link.rate.is_zero() {
        let what = what.to_owned();
        return Err(TopologyError::Dead { what });
    }
    check_link(link, || what.to_owned())
}
