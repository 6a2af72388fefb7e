//! Writing a network as TOML that reads back as the same network.

use std::fmt::Write;
use std::time::Duration;

use toml_edit::Value;

use super::backlog::Backlog;
use super::rules::{Cluster, LinkRule, Members, NodeRule};
use crate::Rate;
use crate::units::format_duration_exact;

/// The description of these clusters, nodes and links, where hosts have that limit.
pub(super) fn write(
    limit: Rate,
    clusters: &[Cluster],
    nodes: &[NodeRule],
    rules: &[LinkRule],
) -> String {
    let mut text = String::new();
    Table { text: &mut text }.set_rate("limit", Some(limit).filter(|rate| !rate.is_unlimited()));
    for cluster in clusters {
        write_cluster(&mut text, cluster);
    }
    for rule in nodes {
        write_node(&mut text, rule);
    }
    for rule in rules {
        write_link(&mut text, rule);
    }
    text
}

fn write_cluster(text: &mut String, cluster: &Cluster) {
    let mut table = Table::start(text, "cluster");
    table.set("name", cluster.name.as_str());
    match &cluster.members {
        Members::Count(count) => table.set("nodes", i64::from(*count)),
        Members::Names(names) => table.set("members", Value::from_iter(names)),
    }
    for (key, rate) in [
        ("node_out", cluster.node_out),
        ("node_in", cluster.node_in),
        ("out", cluster.cluster_out),
        ("in", cluster.cluster_in),
        ("local", cluster.local),
    ] {
        table.set_rate(key, Some(rate).filter(|rate| !rate.is_unlimited()));
    }
    let delay = Some(cluster.local_delay).filter(|delay| !delay.is_zero());
    table.set_duration("local_delay", delay);
    table.set_backlog("node_queue", cluster.node_queue);
    table.set_backlog("node_ecn", cluster.node_ecn);
    if cluster.interconnect {
        table.set("interconnect", true);
    }
}

fn write_node(text: &mut String, rule: &NodeRule) {
    let mut table = Table::start(text, "node");
    table.set("name", rule.name.as_str());
    table.set_rate("out", rule.out);
    table.set_rate("in", rule.into);
}

fn write_link(text: &mut String, rule: &LinkRule) {
    let mut table = Table::start(text, "link");
    table.set("from", rule.from.as_str());
    table.set("to", rule.to.as_str());
    if rule.both {
        table.set("both", true);
    }
    table.set_rate("rate", rule.rate);
    table.set_duration("delay", rule.delay);
    table.set_backlog("queue", rule.queue);
    table.set_backlog("ecn", rule.ecn);
    for (key, number) in [("loss", rule.loss), ("burst", rule.burst)] {
        if let Some(number) = number {
            table.set(key, number);
        }
    }
}

struct Table<'a> {
    text: &'a mut String,
}

impl<'a> Table<'a> {
    fn start(text: &'a mut String, name: &str) -> Self {
        if !text.is_empty() {
            text.push('\n');
        }
        let mut table = Self { text };
        table.line(format_args!("[[{name}]]"));
        table
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.line(format_args!("{key} = {}", value.into()));
    }

    fn set_rate(&mut self, key: &str, rate: Option<Rate>) {
        if let Some(rate) = rate {
            self.set(key, format!("{rate:#}"));
        }
    }

    fn set_duration(&mut self, key: &str, time: Option<Duration>) {
        if let Some(time) = time {
            self.set(key, format_duration_exact(time));
        }
    }

    fn set_backlog(&mut self, key: &str, backlog: Option<Backlog>) {
        if let Some(backlog) = backlog {
            self.set(key, backlog.to_string());
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}
