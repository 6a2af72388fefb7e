//! A file that describes a shuffle, in TOML, and a matrix of sizes, in CSV.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::text::escape;
use outpour_core::toml_lines::{Step, line_of};
use outpour_core::{Bytes, NodeId};
use serde::Deserialize;

use super::{Coflow, Flow, HostId, Hosts, ShuffleError};

/// How long a file or a matrix may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
/// A host without a limit, bytes per second: fast enough never to be waited for.
const UNLIMITED: f64 = 1e15;

/// What is wrong with a file; names the file, and the line or the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}")]
pub struct FileError {
    /// The name of the file.
    pub file: String,
    /// What is wrong.
    pub why: String,
}

impl FileError {
    fn new(file: &str, why: impl Into<String>) -> Self {
        Self {
            file: escape(file).into_owned(),
            why: why.into(),
        }
    }
}

/// A shuffle in a network. Hosts are the nodes of the network, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Shuffle {
    /// What reducers are called.
    pub reducers: Vec<String>,
    /// What mappers hold for them.
    pub coflow: Coflow,
    /// What hosts send, receive and run.
    pub hosts: Hosts,
    /// Where reducers run that have started.
    pub started: Vec<Option<HostId>>,
}

impl Shuffle {
    /// Why reducers cannot be placed, with names instead of numbers.
    pub fn explain(&self, network: &Network, error: &ShuffleError) -> String {
        let host = |host: &HostId| escape(network.name(NodeId(*host as u32))).into_owned();
        let reducer = |reducer: &usize| {
            let name = self.reducers.get(*reducer);
            escape(name.map_or("a reducer", String::as_str)).into_owned()
        };
        match error {
            ShuffleError::SendsNothing { host: it } => format!(
                "{} holds data for reducers and sends nothing: the coflow never ends",
                host(it)
            ),
            ShuffleError::Started { host: it } => format!(
                "`started`: more reducers have started on {} than it may run",
                host(it)
            ),
            ShuffleError::Slots { .. } => {
                format!("{error}, as `hosts`, `per_host` and `[limits]` say")
            }
            ShuffleError::ReceivesNothing { reducer: it } => format!(
                "{} can be nowhere: no host that may run it receives anything",
                reducer(it)
            ),
            other => other.to_string(),
        }
    }
}

/// A file that was read, before its names are looked up.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShuffleFile {
    #[serde(skip)]
    file: String,
    /// What was read, to find lines for messages.
    #[serde(skip)]
    text: String,
    #[serde(default)]
    reducers: Vec<String>,
    #[serde(default)]
    hosts: Vec<String>,
    per_host: Option<u32>,
    /// The name of a CSV file that says what mappers hold, if it is not in the file itself.
    pub matrix: Option<String>,
    #[serde(default)]
    mapper: Vec<Mapper>,
    #[serde(default)]
    limits: BTreeMap<String, u32>,
    #[serde(default)]
    started: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mapper {
    host: String,
    sends: Vec<String>,
}

/// What a mapper holds for each reducer, and where that was said.
struct Row {
    host: String,
    sizes: Vec<Bytes>,
    place: RowPlace,
}

/// Where it was said.
enum RowPlace {
    /// In a table of the file, counted from 0.
    Mapper(usize),
    /// In a line of the matrix, counted from 1.
    Line(usize),
}

impl ShuffleFile {
    /// Reads a file; `file` is its name in messages.
    ///
    /// # Errors
    /// If it is too long or no TOML, or has a key that no shuffle has.
    pub fn parse(text: &str, file: &str) -> Result<Self, FileError> {
        if text.len() > TEXT_BYTES_MAX {
            let why = format!("it has more than {TEXT_BYTES_MAX} bytes");
            return Err(FileError::new(file, why));
        }
        let parsed: Result<Self, _> = toml_edit::de::from_str(text);
        let mut parsed = parsed.map_err(|error| {
            let line = error.span().map(|at| {
                let before = text.get(..at.start).unwrap_or_default();
                format!("line {}: ", before.split('\n').count())
            });
            let why = escape(&error.message().replace('\n', "; ")).into_owned();
            FileError::new(file, line.unwrap_or_default() + &why)
        })?;
        parsed.file = file.to_owned();
        parsed.text = text.to_owned();
        Ok(parsed)
    }

    /// What is wrong with what these steps lead to.
    fn wrong(&self, steps: &[Step<'_>], why: &str) -> FileError {
        let line = line_of(&self.text, steps).map(|line| format!("line {line}: "));
        FileError::new(&self.file, line.unwrap_or_default() + why)
    }

    /// What is wrong with a mapper, or with what it sends.
    fn wrong_row(&self, place: &RowPlace, more: &[Step<'_>], why: &str) -> FileError {
        match place {
            RowPlace::Mapper(index) => {
                let mapper = [Step::Key("mapper"), Step::Index(*index)];
                let why = format!("mapper {}: {why}", index.saturating_add(1));
                self.wrong(&[&mapper[..], more].concat(), &why)
            }
            RowPlace::Line(line) => {
                let matrix = self.matrix.as_deref().unwrap_or_default();
                FileError::new(matrix, format!("line {line}: {why}"))
            }
        }
    }

    /// Looks up all names in a network; `matrix` is the text of the matrix, if the file names one.
    ///
    /// # Errors
    /// Names the line or key and what is wrong.
    ///
    /// ```
    /// use outpour_core::network::Network;
    /// use outpour_planner::shuffle::{file::ShuffleFile, place};
    /// let network = "[[cluster]]\nname = \"h\"\nnodes = 3\nnode_in = \"1 Gbit/s\"\n";
    /// let network = Network::from_toml(network, "net.toml")?;
    /// let text = "hosts = [\"h1\", \"h2\"]\n[[mapper]]\nhost = \"h0\"\nsends = [\"125 MB\", \"250 MB\"]\n";
    /// let shuffle = ShuffleFile::parse(text, "job.toml")?.resolve(&network, None)?;
    /// let placement = place(&shuffle.coflow, &shuffle.hosts, &shuffle.started)?;
    /// assert_eq!(placement.seconds, 2.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolve(self, network: &Network, matrix: Option<&str>) -> Result<Shuffle, FileError> {
        let fail = |why: String| FileError::new(&self.file, why);
        let (out, into) = rates(network).map_err(fail)?;
        let (names, rows) = self.rows(matrix)?;
        let mut flows: Vec<Vec<Flow>> = vec![Vec::new(); names.len()];
        let mut seen = BTreeSet::new();
        for row in &rows {
            let fail = |why: String| self.wrong_row(&row.place, &[Step::Key("host")], &why);
            let host = one(network, &row.host).map_err(fail)?;
            if !seen.insert(host) {
                return Err(fail(format!("{} is there twice", escape(&row.host))));
            }
            for (flows, size) in flows.iter_mut().zip(&row.sizes) {
                if *size > Bytes::ZERO {
                    let bytes = size.as_f64();
                    let mapper = host;
                    flows.push(Flow { mapper, bytes });
                }
            }
        }
        if let Some(idle) = flows.iter().position(Vec::is_empty) {
            let name = escape(names.get(idle).map_or("", String::as_str));
            return Err(fail(format!("no mapper holds anything for reducer {name}")));
        }
        let slots = self.slots(network, names.len())?;
        let started = self.started(network, &names)?;
        let coflow = Coflow::new(flows).map_err(|error| fail(error.to_string()))?;
        Ok(Shuffle {
            reducers: names,
            coflow,
            hosts: Hosts { out, into, slots },
            started,
        })
    }

    /// The reducers, and what mappers hold for them.
    fn rows(&self, matrix: Option<&str>) -> Result<(Vec<String>, Vec<Row>), FileError> {
        let in_matrix = |why: &str| self.wrong(&[Step::Key("matrix")], why);
        let (names, rows) = match (&self.matrix, matrix) {
            (Some(_), _) if !self.mapper.is_empty() => {
                return Err(in_matrix(
                    "either `matrix` or `[[mapper]]` says what mappers hold, not both",
                ));
            }
            (Some(name), Some(text)) => read_matrix(name, text)?,
            (Some(_), None) => return Err(in_matrix("`matrix`: it was not read")),
            (None, _) => self.listed()?,
        };
        let (names, rows) = match self.reducers.is_empty() {
            true => (names, rows),
            false if self.reducers.len() == names.len() => (self.reducers.clone(), rows),
            false => {
                let why = format!(
                    "`reducers` names {}, and mappers hold something for {}",
                    self.reducers.len(),
                    names.len()
                );
                return Err(self.wrong(&[Step::Key("reducers")], &why));
            }
        };
        if rows.is_empty() || names.is_empty() {
            let why = "no mapper holds anything; begin one with `[[mapper]]`";
            return Err(FileError::new(&self.file, why));
        }
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort();
        let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
        if let Some((twice, _)) = pairs.find(|(one, next)| one == next) {
            let why = format!("two reducers are called {}", escape(twice));
            return Err(match (&self.matrix, self.reducers.is_empty()) {
                (Some(matrix), true) => FileError::new(matrix, why),
                _ => self.wrong(&[Step::Key("reducers")], &why),
            });
        }
        Ok((names, rows))
    }

    /// The same as the file itself says it.
    fn listed(&self) -> Result<(Vec<String>, Vec<Row>), FileError> {
        let sends = Step::Key("sends");
        let count = self.mapper.first().map_or(0, |mapper| mapper.sends.len());
        let mut rows = Vec::with_capacity(self.mapper.len());
        for (index, mapper) in self.mapper.iter().enumerate() {
            let place = RowPlace::Mapper(index);
            if mapper.sends.len() != count {
                let why = format!(
                    "`sends`: the number of sizes is {}, that of mapper 1 is {count}",
                    mapper.sends.len()
                );
                return Err(self.wrong_row(&place, &[sends], &why));
            }
            let size = |(at, text): (usize, &String)| {
                let wrong = |why: String| self.wrong_row(&place, &[sends, Step::Index(at)], &why);
                parsed::<Bytes>("sends", text).map_err(wrong)
            };
            let sizes: Result<Vec<Bytes>, FileError> =
                mapper.sends.iter().enumerate().map(size).collect();
            rows.push(Row {
                host: mapper.host.clone(),
                sizes: sizes?,
                place,
            });
        }
        let names = (0..count).map(|index| format!("r{index}"));
        Ok((names.collect(), rows))
    }

    fn slots(&self, network: &Network, reducers: usize) -> Result<Vec<u32>, FileError> {
        let most = self.per_host.unwrap_or(reducers as u32);
        let mut slots = vec![0; network.node_count() as usize];
        if self.hosts.is_empty() {
            slots.fill(most);
        }
        for (index, name) in self.hosts.iter().enumerate() {
            let steps = [Step::Key("hosts"), Step::Index(index)];
            let wrong = |why| self.wrong(&steps, &format!("`hosts`: {why}"));
            for host in several(network, name).map_err(wrong)? {
                if let Some(slots) = slots.get_mut(host) {
                    *slots = most;
                }
            }
        }
        for (name, limit) in &self.limits {
            let steps = [Step::Key("limits"), Step::Key(name)];
            let wrong = |why| self.wrong(&steps, &format!("`limits`: {why}"));
            for host in several(network, name).map_err(wrong)? {
                if let Some(slots) = slots.get_mut(host) {
                    *slots = (*slots).min(*limit);
                }
            }
        }
        Ok(slots)
    }

    fn started(
        &self,
        network: &Network,
        names: &[String],
    ) -> Result<Vec<Option<HostId>>, FileError> {
        let mut started = vec![None; names.len()];
        for (reducer, host) in &self.started {
            let steps = [Step::Key("started"), Step::Key(reducer)];
            let wrong = |why| self.wrong(&steps, &format!("`started`: {why}"));
            let index = names.iter().position(|name| name == reducer);
            let Some(on) = index.and_then(|index| started.get_mut(index)) else {
                return Err(wrong(format!("there is no reducer {}", escape(reducer))));
            };
            *on = Some(one(network, host).map_err(wrong)?);
        }
        Ok(started)
    }
}

/// A matrix: a line of names of reducers, then one for each mapper, its host first.
fn read_matrix(file: &str, text: &str) -> Result<(Vec<String>, Vec<Row>), FileError> {
    if text.len() > TEXT_BYTES_MAX {
        let why = format!("it has more than {TEXT_BYTES_MAX} bytes");
        return Err(FileError::new(file, why));
    }
    let lines = (1..).zip(text.lines());
    let mut lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let cells = |line: &str| -> Vec<String> {
        line.split(',').map(|cell| cell.trim().to_owned()).collect()
    };
    let fail = |number: usize, why: &str| FileError::new(file, format!("line {number}: {why}"));
    let Some((number, head)) = lines.next() else {
        return Err(FileError::new(file, "it is empty"));
    };
    let names: Vec<String> = cells(head).into_iter().skip(1).collect();
    if names.is_empty() {
        return Err(fail(number, "it names no reducer"));
    }
    if let Some(nameless) = names.iter().position(String::is_empty) {
        let why = format!("reducer {} has no name", nameless.saturating_add(1));
        return Err(fail(number, &why));
    }
    let mut rows = Vec::new();
    for (number, line) in lines {
        let fail = |why: String| fail(number, &why);
        let cells = cells(line);
        let (host, sizes) = cells
            .split_first()
            .ok_or_else(|| fail("it is empty".to_owned()))?;
        if sizes.len() != names.len() {
            return Err(fail(format!(
                "the number of sizes is {}, that of reducers in the first line is {}",
                sizes.len(),
                names.len()
            )));
        }
        let size = |(name, text): (&String, &String)| parsed::<Bytes>(name, text);
        let sizes: Result<Vec<Bytes>, String> = names.iter().zip(sizes).map(size).collect();
        rows.push(Row {
            host: host.clone(),
            sizes: sizes.map_err(fail)?,
            place: RowPlace::Line(number),
        });
    }
    if rows.is_empty() {
        return Err(FileError::new(file, "it has no mapper"));
    }
    Ok((names, rows))
}

/// What hosts send and receive, if that is all that limits them.
fn rates(network: &Network) -> Result<(Vec<f64>, Vec<f64>), String> {
    let rate = |resource| network.capacity(resource).bytes_per_s().min(UNLIMITED);
    let out: Vec<f64> = network
        .nodes()
        .map(|node| rate(Resource::NodeOut(node)))
        .collect();
    let into: Vec<f64> = network
        .nodes()
        .map(|node| rate(Resource::NodeIn(node)))
        .collect();
    let of = |rates: &[f64], cluster| -> f64 {
        let nodes = network.nodes_of(cluster);
        nodes.filter_map(|node| rates.get(node.index())).sum()
    };
    let clusters = || (0..network.clusters().len() as u32).map(ClusterId);
    let refuse = |resource: Resource, wants: f64| {
        let capacity = network.capacity(resource);
        match capacity.bytes_per_s() < wants {
            true => Err(format!(
                "the network: {} carries {capacity}, and a shuffle is planned as if only hosts' own \
                 rates were limits",
                network.describe(resource)
            )),
            false => Ok(()),
        }
    };
    for (a, content) in clusters().zip(network.clusters()) {
        let mut nodes = network.nodes_of(a);
        let pair = nodes.next().zip(nodes.next());
        if let Some((first, second)) = pair {
            if content.interconnect {
                return Err(format!(
                    "the network: hosts of {} have an interconnect, and a shuffle is planned as if all \
                     of it went through hosts' own rates",
                    escape(&content.name)
                ));
            }
            let rate = |rates: &[f64], node: NodeId| rates.get(node.index()).copied();
            let (most, wants) = (rate(&out, first), rate(&into, second));
            let most = most.unwrap_or(0.0).min(wants.unwrap_or(0.0));
            refuse(Resource::Local(first, second), most)?;
        }
        let others = network.clusters().len() > 1;
        if others {
            refuse(Resource::ClusterOut(a), of(&out, a))?;
            refuse(Resource::ClusterIn(a), of(&into, a))?;
        }
        for b in clusters().filter(|b| *b != a) {
            refuse(Resource::Link(a, b), of(&out, a).min(of(&into, b)))?;
        }
    }
    Ok((out, into))
}

/// A node.
fn one(network: &Network, name: &str) -> Result<HostId, String> {
    let node = network.node(name);
    let node = node.ok_or_else(|| format!("there is no host {}", escape(name)))?;
    Ok(node.index())
}

/// The node of that name, or all of the cluster.
fn several(network: &Network, name: &str) -> Result<Vec<HostId>, String> {
    let mut clusters = network.clusters().iter();
    match clusters.position(|cluster| cluster.name == name) {
        Some(index) => {
            let nodes = network.nodes_of(ClusterId(index as u32));
            Ok(nodes.map(NodeId::index).collect())
        }
        None => Ok(vec![one(network, name)?]),
    }
}

fn parsed<T: FromStr<Err: fmt::Display>>(key: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|why| format!("`{}`: {why}", escape(key)))
}
