//! Reading a network from TOML, with messages that say where: line, column and key.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use toml_edit::{Document, Item, TableLike, Value};

use super::backlog::Backlog;
use super::error::{NetworkError, Place, Problem};
use super::rules::{Cluster, LinkRule, Members, NodeRule};
use super::{Network, TEXT_BYTES_MAX};
use crate::Rate;
use crate::units::{UnitError, parse_duration};

const CLUSTER_KEYS: &[&str] = &[
    "name",
    "nodes",
    "members",
    "node_out",
    "node_in",
    "node_queue",
    "node_ecn",
    "out",
    "in",
    "local",
    "local_delay",
    "interconnect",
];

const LINK_KEYS: &[&str] = &[
    "from", "to", "rate", "delay", "both", "queue", "ecn", "loss", "burst",
];

const NODE_KEYS: &[&str] = &["name", "out", "in"];

/// Reads `text`; `file` is its name in messages.
pub(super) fn read(text: &str, file: &str) -> Result<Network, NetworkError> {
    let source = Source { text, file };
    if text.len() > TEXT_BYTES_MAX {
        let (bytes, max) = (text.len(), TEXT_BYTES_MAX);
        return source.error(0..0, None, Problem::TooLong { bytes, max });
    }
    let document = Document::parse(text).or_else(|error| {
        let problem = Problem::Syntax(error.message().replace('\n', "; "));
        source.error(error.span().unwrap_or(0..0), None, problem)
    })?;
    let root = Table::new(source, "network", document.as_table(), 0..0);
    root.check_keys(&["limit", "cluster", "node", "link"])?;
    let limit = root.rate("limit")?.unwrap_or(Rate::UNLIMITED);
    let clusters = root.tables("cluster", "tables headed `[[cluster]]`", "[[cluster]]")?;
    let nodes = root.tables("node", "tables headed `[[node]]`", "[[node]]")?;
    let links = root.tables("link", "tables headed `[[link]]`", "[[link]]")?;

    let described = clusters
        .iter()
        .map(read_cluster)
        .collect::<Result<_, _>>()?;
    let rules = links.iter().map(read_link).collect::<Result<_, _>>()?;
    let node_rules = nodes.iter().map(read_node).collect::<Result<_, _>>()?;
    let network = Network::with_nodes(described, node_rules, rules);
    network
        .map(|network| network.limited(limit))
        .or_else(|NetworkError { place, problem }| {
            let (table, key) = match place {
                Place::Cluster { index, key } => (clusters.get(index), Some(key)),
                Place::Node { index, key } => (nodes.get(index), Some(key)),
                Place::Link { index, key } => (links.get(index), Some(key)),
                _ => (None, None),
            };
            table.unwrap_or(&root).error(key, *problem)
        })
}

fn read_cluster(table: &Table<'_>) -> Result<Cluster, NetworkError> {
    table.check_keys(CLUSTER_KEYS)?;
    let Some(name) = table.text("name", "a name such as `\"A\"`")? else {
        return table.missing("`name = \"...\"`");
    };
    let count = table.count("nodes", "a number of nodes such as `16`")?;
    let members = match (count, table.names("members")?) {
        (Some(count), None) => Members::Count(count),
        (None, Some(names)) => Members::Names(names),
        (Some(_), Some(_)) => {
            let (expected, found) = ("either `nodes` or `members`", "both".to_owned());
            return table.error(Some("members"), Problem::Expected { expected, found });
        }
        (None, None) => return table.missing("`nodes = 16` or `members = [\"...\"]`"),
    };
    let rate = |key| Ok::<_, NetworkError>(table.rate(key)?.unwrap_or(Rate::UNLIMITED));
    Ok(Cluster {
        node_out: rate("node_out")?,
        node_in: rate("node_in")?,
        cluster_out: rate("out")?,
        cluster_in: rate("in")?,
        local: rate("local")?,
        local_delay: table.duration("local_delay")?.unwrap_or(Duration::ZERO),
        node_queue: table.backlog("node_queue")?,
        node_ecn: table.backlog("node_ecn")?,
        interconnect: table.flag("interconnect")?.unwrap_or(false),
        ..Cluster::new(name, members)
    })
}

fn read_node(table: &Table<'_>) -> Result<NodeRule, NetworkError> {
    table.check_keys(NODE_KEYS)?;
    let Some(name) = table.text("name", "a node's name or a glob such as `\"A*\"`")? else {
        return table.missing("`name = \"...\"`");
    };
    Ok(NodeRule {
        name: name.to_owned(),
        out: table.rate("out")?,
        into: table.rate("in")?,
    })
}

fn read_link(table: &Table<'_>) -> Result<LinkRule, NetworkError> {
    table.check_keys(LINK_KEYS)?;
    let end = |key| table.text(key, "a cluster's name or a glob such as `\"*\"`");
    let (Some(from), Some(to)) = (end("from")?, end("to")?) else {
        return table.missing("`from = \"...\"` and `to = \"...\"`");
    };
    Ok(LinkRule {
        from: from.to_owned(),
        to: to.to_owned(),
        both: table.flag("both")?.unwrap_or(false),
        rate: table.rate("rate")?,
        delay: table.duration("delay")?,
        queue: table.backlog("queue")?,
        ecn: table.backlog("ecn")?,
        loss: table.share("loss", "a share of packets such as `0.01`")?,
        burst: table.share("burst", "a number of packets in a row such as `4`")?,
    })
}

/// The text being read, for positions and quotes.
#[derive(Clone, Copy)]
struct Source<'a> {
    text: &'a str,
    file: &'a str,
}

impl Source<'_> {
    fn error<T>(
        self,
        at: Range<usize>,
        key: Option<&str>,
        problem: Problem,
    ) -> Result<T, NetworkError> {
        let before = self.text.get(..at.start).unwrap_or("");
        let line = before.rsplit('\n').next().unwrap_or_default();
        let place = Place::Text {
            file: self.file.to_owned(),
            line: before.matches('\n').count().saturating_add(1),
            column: line.chars().count().saturating_add(1),
            key: key.map(str::to_owned),
        };
        Err(NetworkError::new(place, problem))
    }
}

/// One table of the text.
struct Table<'a> {
    source: Source<'a>,
    what: &'static str,
    items: &'a dyn TableLike,
    header: Range<usize>,
    /// Where the keys and values are, so that problems found later can be placed.
    spans: BTreeMap<&'a str, Range<usize>>,
}

impl<'a> Table<'a> {
    fn new(
        source: Source<'a>,
        what: &'static str,
        items: &'a dyn TableLike,
        header: Range<usize>,
    ) -> Self {
        let span_of = |key: &str, item: &Item| {
            let key = items.key(key).and_then(|key| key.span());
            item.span().or(key).unwrap_or_else(|| header.clone())
        };
        let spans = items.iter().map(|(key, item)| (key, span_of(key, item)));
        Self {
            spans: spans.collect(),
            source,
            what,
            items,
            header,
        }
    }

    fn error<T>(&self, key: Option<&str>, problem: Problem) -> Result<T, NetworkError> {
        let span = key
            .and_then(|key| self.spans.get(key))
            .unwrap_or(&self.header);
        self.source.error(span.clone(), key, problem)
    }

    fn missing<T>(&self, expected: &'static str) -> Result<T, NetworkError> {
        let table = self.what;
        self.error(None, Problem::MissingKey { table, expected })
    }

    /// Refuses a value and quotes it as it is written.
    fn unexpected<T>(&self, key: &str, expected: &'static str) -> Result<T, NetworkError> {
        let written = (self.spans.get(key)).and_then(|span| self.source.text.get(span.clone()));
        let found = written.unwrap_or("something else").to_owned();
        self.error(Some(key), Problem::Expected { expected, found })
    }

    fn check_keys(&self, known: &[&str]) -> Result<(), NetworkError> {
        let Some((key, _)) = self.items.iter().find(|(key, _)| !known.contains(key)) else {
            return Ok(());
        };
        let at = self.items.key(key).and_then(|key| key.span());
        let known = known.iter().map(|key| (*key).to_owned()).collect();
        self.source.error(
            at.unwrap_or_else(|| self.header.clone()),
            Some(key),
            Problem::UnknownKey { known },
        )
    }

    /// The tables of an array, in either of its two notations.
    fn tables(
        &self,
        key: &str,
        expected: &'static str,
        what: &'static str,
    ) -> Result<Vec<Self>, NetworkError> {
        let make = |items: &'a dyn TableLike, span: Option<Range<usize>>| {
            Table::new(self.source, what, items, span.unwrap_or(0..0))
        };
        match self.items.get(key) {
            None => Ok(Vec::new()),
            Some(Item::ArrayOfTables(tables)) => Ok(tables
                .iter()
                .map(|table| make(table, table.span()))
                .collect()),
            Some(Item::Value(Value::Array(array))) => (array.iter())
                .map(|value| match value.as_inline_table() {
                    Some(table) => Ok(make(table, table.span())),
                    None => self.unexpected(key, expected),
                })
                .collect(),
            Some(_) => self.unexpected(key, expected),
        }
    }

    fn value<T>(
        &self,
        key: &str,
        expected: &'static str,
        view: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, NetworkError> {
        match self.items.get(key) {
            None => Ok(None),
            Some(item) => match item.as_value().and_then(view) {
                Some(value) => Ok(Some(value)),
                None => self.unexpected(key, expected),
            },
        }
    }

    fn text(&self, key: &str, expected: &'static str) -> Result<Option<&'a str>, NetworkError> {
        self.value(key, expected, Value::as_str)
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, NetworkError> {
        self.value(key, "`true` or `false`", Value::as_bool)
    }

    fn count(&self, key: &str, expected: &'static str) -> Result<Option<u32>, NetworkError> {
        self.value(key, expected, |value| value.as_integer()?.try_into().ok())
    }

    fn share(&self, key: &str, expected: &'static str) -> Result<Option<f64>, NetworkError> {
        self.value(key, expected, |value| {
            let whole = || value.as_integer().map(|n| n as f64);
            value.as_float().or_else(whole)
        })
    }

    fn names(&self, key: &str) -> Result<Option<Vec<String>>, NetworkError> {
        self.value(key, "names such as `[\"fs0\", \"n0\"]`", |value| {
            let names = value.as_array()?.iter();
            names.map(|name| Some(name.as_str()?.to_owned())).collect()
        })
    }

    fn rate(&self, key: &str) -> Result<Option<Rate>, NetworkError> {
        let text = self.text(key, "a rate such as `\"10 MB/s\"`")?;
        self.quantity(key, text.map(str::parse))
    }

    fn duration(&self, key: &str) -> Result<Option<Duration>, NetworkError> {
        let text = self.text(key, "a duration such as `\"10 ms\"`")?;
        self.quantity(key, text.map(parse_duration))
    }

    fn quantity<T>(
        &self,
        key: &str,
        read: Option<Result<T, UnitError>>,
    ) -> Result<Option<T>, NetworkError> {
        let place = |error| self.error(Some(key), Problem::Unit(error));
        read.transpose().or_else(place)
    }

    fn backlog(&self, key: &str) -> Result<Option<Backlog>, NetworkError> {
        let expected = "packets or bytes such as `\"100 packets\"` or `\"64 KiB\"`";
        self.value(key, expected, |value| value.as_str()?.parse().ok())
    }
}
