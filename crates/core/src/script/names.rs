//! Which nodes and clusters the expressions of a script mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex_lite::{Regex, RegexBuilder};

use super::COMPARISONS_MAX;
use super::error::ScriptProblem;
use crate::NodeId;
use crate::network::{ClusterId, Network};

/// How large a compiled expression may become.
const PATTERN_BYTES_MAX: usize = 256 << 10;

/// What makes a word an expression rather than a name.
const SPECIAL: &str = r"\.+*?()|[]{}^$";

/// Whether `word` is a plain name.
pub(super) fn is_plain(word: &str) -> bool {
    !word.contains(|c| SPECIAL.contains(c))
}

/// Refuses what is no regular expression.
pub(super) fn check_pattern(pattern: &str) -> Result<(), ScriptProblem> {
    if is_plain(pattern) {
        return Ok(());
    }
    // Alone first: `a)|(b` would only make sense inside the brackets that come next.
    compile(pattern, pattern)?;
    whole(pattern).map(drop)
}

fn whole(pattern: &str) -> Result<Regex, ScriptProblem> {
    compile(&format!("^(?:{pattern})$"), pattern)
}

fn compile(text: &str, shown: &str) -> Result<Regex, ScriptProblem> {
    RegexBuilder::new(text)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| ScriptProblem::BadPattern {
            pattern: shown.to_owned(),
            reason: error.to_string(),
        })
}

/// The names of a network, and what was found among them already.
pub(super) struct Names<'a> {
    network: &'a Network,
    comparisons_left: usize,
    clusters: BTreeMap<String, Arc<[ClusterId]>>,
    nodes: BTreeMap<String, Arc<[NodeId]>>,
}

impl<'a> Names<'a> {
    pub(super) fn of(network: &'a Network) -> Self {
        Self {
            network,
            comparisons_left: COMPARISONS_MAX,
            clusters: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// The clusters an expression matches, perhaps none.
    pub(super) fn clusters(&mut self, pattern: &str) -> Result<Arc<[ClusterId]>, ScriptProblem> {
        if let Some(found) = self.clusters.get(pattern) {
            return Ok(Arc::clone(found));
        }
        let clusters = self.network.clusters();
        let names = clusters.iter().map(|cluster| cluster.name.as_str());
        let found = matching(pattern, names, &mut self.comparisons_left)?;
        let found: Arc<[_]> = found.into_iter().map(ClusterId).collect();
        self.clusters.insert(pattern.to_owned(), Arc::clone(&found));
        Ok(found)
    }

    /// The nodes an expression matches, perhaps none.
    pub(super) fn nodes(&mut self, pattern: &str) -> Result<Arc<[NodeId]>, ScriptProblem> {
        if let Some(found) = self.nodes.get(pattern) {
            return Ok(Arc::clone(found));
        }
        let network = self.network;
        let found: Arc<[_]> = if is_plain(pattern) {
            network.node(pattern).into_iter().collect()
        } else {
            let names = (0..network.node_count()).map(|node| network.name(NodeId(node)));
            let found = matching(pattern, names, &mut self.comparisons_left)?;
            found.into_iter().map(NodeId).collect()
        };
        self.nodes.insert(pattern.to_owned(), Arc::clone(&found));
        Ok(found)
    }
}

fn matching<'n>(
    pattern: &str,
    names: impl ExactSizeIterator<Item = &'n str>,
    comparisons_left: &mut usize,
) -> Result<Vec<u32>, ScriptProblem> {
    let left = comparisons_left.checked_sub(names.len());
    *comparisons_left = left.ok_or(ScriptProblem::TooManyComparisons)?;
    let expression = if is_plain(pattern) {
        None
    } else {
        Some(whole(pattern)?)
    };
    let hits = |name: &str| match &expression {
        Some(expression) => expression.is_match(name),
        None => name == pattern,
    };
    let found = names.enumerate().filter(|(_, name)| hits(name));
    Ok(found.map(|(index, _)| index as u32).collect())
}
