//! What must hold in every run: small checkers, each for one property.

use std::fmt;

use outpour_core::{NodeId, Time};

/// How many violations are kept; the first is what matters.
const VIOLATIONS_MAX: usize = 16;

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Time,
    /// By whom, if by a single node.
    pub node: Option<NodeId>,
    /// What.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "at {}, node {}: {}", self.at, node.0, self.what),
            None => write!(f, "at {}: {}", self.at, self.what),
        }
    }
}

/// What was found wrong in a run.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    violations: Vec<Violation>,
}

impl Audit {
    pub(crate) fn violation(&mut self, at: Time, node: Option<NodeId>, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { at, node, what });
        }
    }

    /// What was found wrong, in order; only the first few are kept.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }
}
