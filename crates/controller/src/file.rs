//! A file of jobs, in TOML.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use outpour_core::network::{ClusterId, Network};
use outpour_core::text::escape;
use outpour_core::units::parse_duration;
use outpour_core::{Bytes, NodeId, Rate, Time};
use serde::Deserialize;

use crate::job::{Destinations, Job, Source};

/// How long the text may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// The size of blocks where a job does not say [BDS §5.1].
const BLOCK_USUAL: Bytes = Bytes(2_000_000);

/// A job and what people call it.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedJob {
    /// Its name.
    pub name: String,
    /// What is to be moved.
    pub job: Job,
}

/// The jobs of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadJobs {
    /// Those that can be, at least one, in the order of the file.
    pub jobs: Vec<NamedJob>,
    /// What is wrong with the others.
    pub refused: Vec<FileError>,
}

/// Why a file has no jobs, or a job cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A text longer than any sensible one.
    #[error("{file}: it has more than {TEXT_BYTES_MAX} bytes")]
    TooLong {
        /// The name of the file.
        file: String,
    },
    /// It is no TOML, or has a key that no job has.
    #[error("{file}: {why}")]
    Syntax {
        /// The name of the file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// There is no job.
    #[error("{file}: there is no job; begin one with `[[job]]`")]
    Empty {
        /// The name of the file.
        file: String,
    },
    /// One job says what cannot be.
    #[error("{file}: {job}: {why}")]
    Job {
        /// The name of the file.
        file: String,
        /// The name of the job, or which it is.
        job: String,
        /// What is wrong.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    job: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<String>,
    size: String,
    block: Option<String>,
    from: Vec<String>,
    #[serde(default)]
    sites: Vec<String>,
    #[serde(default)]
    nodes: Vec<String>,
    #[serde(default)]
    relays: Vec<String>,
    start: Option<String>,
    deadline: Option<String>,
    priority: Option<String>,
    limit: Option<String>,
}

/// Reads jobs for a network; `file` is the name of the text in messages.
///
/// Sites are clusters of the network. `from` names nodes that have the whole object, or sites over
/// whose servers it is striped; `sites` get one copy each, striped over their servers; of `nodes`,
/// or all nodes of a site that is named there, each gets a copy.
///
/// What is wrong with one job does not keep the others from being read.
///
/// # Errors
/// If there is no job that can be: names the first, its key and what is wrong.
///
/// ```
/// use outpour_core::network::Network;
/// let network = "[[cluster]]\nname = \"ams\"\nnodes = 4\n[[cluster]]\nname = \"nyc\"\nnodes = 4\n";
/// let network = Network::from_toml(network, "net.toml")?;
/// let jobs = "[[job]]\nsize = \"8 GB\"\nfrom = [\"ams\"]\nsites = [\"nyc\"]\nstart = \"10 s\"\n";
/// let jobs = outpour_controller::read_jobs(jobs, "jobs.toml", &network)?;
/// assert_eq!(jobs.jobs[0].job.sources[3].blocks, [3000..4000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_jobs(text: &str, file: &str, network: &Network) -> Result<ReadJobs, FileError> {
    let file = escape(file).into_owned();
    if text.len() > TEXT_BYTES_MAX {
        return Err(FileError::TooLong { file });
    }
    let parsed: Result<File, _> = toml_edit::de::from_str(text);
    let entries = match parsed {
        Ok(parsed) => parsed.job,
        Err(error) => {
            let line = error.span().map(|at| {
                let before = text.get(..at.start).unwrap_or_default();
                format!("line {}: ", before.split('\n').count())
            });
            let why = escape(&error.message().replace('\n', "; ")).into_owned();
            let why = format!("{}{why}", line.unwrap_or_default());
            return Err(FileError::Syntax { file, why });
        }
    };
    if entries.is_empty() {
        return Err(FileError::Empty { file });
    }
    let (mut jobs, mut refused) = (Vec::with_capacity(entries.len()), Vec::new());
    for (number, entry) in (1_u64..).zip(entries) {
        let unnamed = format!("job {number}");
        let name = entry.name.clone().unwrap_or(unnamed);
        match entry.job(network) {
            Ok(job) => jobs.push(NamedJob { name, job }),
            Err(why) => {
                let (file, job) = (file.clone(), escape(&name).into_owned());
                refused.push(FileError::Job { file, job, why });
            }
        }
    }
    match (jobs.is_empty(), refused.pop()) {
        // None is left, and the first is as good as any.
        (true, Some(last)) => Err(refused.into_iter().next().unwrap_or(last)),
        (_, last) => {
            refused.extend(last);
            Ok(ReadJobs { jobs, refused })
        }
    }
}

impl Entry {
    fn job(&self, network: &Network) -> Result<Job, String> {
        let size: Bytes = parsed("size", &self.size)?;
        let block = optional("block", self.block.as_deref())?.unwrap_or(BLOCK_USUAL);
        let destinations = self.destinations(network)?;
        let mut job = Job::new(size, block, [], destinations);
        let Some(blocks) = job.block_count().filter(|count| *count > 0) else {
            return Err(format!(
                "`size`: an object of {size} in blocks of {block} has none or too many"
            ));
        };
        if self.from.is_empty() {
            return Err("`from`: nobody has the object".to_owned());
        }
        for name in &self.from {
            job.sources.extend(sources(network, name, blocks)?);
        }
        for name in &self.relays {
            job.relays.extend(nodes(network, "relays", name)?);
        }
        job.start = time("start", self.start.as_deref())?.unwrap_or(Time::ZERO);
        job.deadline = time("deadline", self.deadline.as_deref())?;
        job.priority = optional("priority", self.priority.as_deref())?.unwrap_or_default();
        job.limit = optional("limit", self.limit.as_deref())?.unwrap_or(Rate::UNLIMITED);
        Ok(job)
    }

    fn destinations(&self, network: &Network) -> Result<Destinations, String> {
        match (self.sites.is_empty(), self.nodes.is_empty()) {
            (true, true) => Err("`sites` or `nodes` has to say who gets it".to_owned()),
            (false, false) => {
                Err("either `sites` or `nodes` says who gets it, not both".to_owned())
            }
            (false, true) => {
                let site = |name: &String| {
                    site(network, name).ok_or_else(|| unknown(network, "sites", name))
                };
                let sites: Result<Vec<ClusterId>, String> = self.sites.iter().map(site).collect();
                Ok(Destinations::Sites(sites?))
            }
            (true, false) => {
                let mut all = Vec::new();
                for name in &self.nodes {
                    all.extend(nodes(network, "nodes", name)?);
                }
                Ok(Destinations::Nodes(all))
            }
        }
    }
}

/// A node that has everything, or the servers of a site, each with a part.
fn sources(network: &Network, name: &str, blocks: u32) -> Result<Vec<Source>, String> {
    Ok(Source::striped(nodes(network, "from", name)?, blocks))
}

/// All nodes of the site of that name, or the node.
fn nodes(network: &Network, key: &str, name: &str) -> Result<Vec<NodeId>, String> {
    // The network takes the name of a site for its first node.
    if let Some(site) = site(network, name) {
        return Ok(network.nodes_of(site).collect());
    }
    let node = network.node(name);
    Ok(vec![node.ok_or_else(|| unknown(network, key, name))?])
}

fn site(network: &Network, name: &str) -> Option<ClusterId> {
    let found = network.clusters().iter().position(|site| site.name == name);
    found.map(|index| ClusterId(index as u32))
}

/// How many names a message lists.
const NAMES_MAX: usize = 8;

fn unknown(network: &Network, key: &str, name: &str) -> String {
    let sites = network.clusters().iter().map(|site| site.name.as_str());
    let names: Vec<&str> = sites.clone().take(NAMES_MAX).collect();
    let more = if sites.count() > NAMES_MAX {
        ", ..."
    } else {
        ""
    };
    let (name, names) = (escape(name), names.join(", "));
    let what = if key == "sites" {
        "site"
    } else {
        "node or site"
    };
    format!(
        "`{key}`: there is no {what} `{name}`; the sites are {}{more}",
        escape(&names)
    )
}

fn parsed<T: FromStr<Err: fmt::Display>>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|why| format!("`{key}`: {why}"))
}

fn optional<T: FromStr<Err: fmt::Display>>(
    key: &str,
    text: Option<&str>,
) -> Result<Option<T>, String> {
    text.map(|text| parsed(key, text)).transpose()
}

/// A time after the beginning.
#[allow(clippy::arithmetic_side_effects, reason = "times saturate")]
fn time(key: &str, text: Option<&str>) -> Result<Option<Time>, String> {
    let after = text.map(parse_duration).transpose();
    let after: Option<Duration> = after.map_err(|why| format!("`{key}`: {why}"))?;
    Ok(after.map(|after| Time::ZERO + after))
}

#[cfg(test)]
mod tests {
    use outpour_core::Priority;

    use super::*;

    const NETWORK: &str = "[[cluster]]\nname = \"ams\"\nmembers = [\"ams1\", \"ams2\"]\n\
        [[cluster]]\nname = \"nyc\"\nnodes = 3\n";

    fn read(text: &str) -> Result<ReadJobs, FileError> {
        let network = Network::from_toml(NETWORK, "net.toml").expect("it is a network");
        read_jobs(text, "jobs.toml", &network)
    }

    #[test]
    fn jobs_are_what_the_file_says() {
        let text = "[[job]]\nname = \"model\"\nsize = \"10 MB\"\nfrom = [\"ams\", \"nyc2\"]\n\
            sites = [\"nyc\"]\nrelays = [\"ams1\"]\nstart = \"3 s\"\ndeadline = \"1 min\"\n\
            priority = \"high\"\nlimit = \"1 MB/s\"\nblock = \"1 MB\"\n\
            [[job]]\nsize = \"1 B\"\nfrom = [\"ams2\"]\nnodes = [\"nyc\", \"ams1\"]\n";
        let read = read(text).expect("they are jobs");
        assert_eq!(read.refused, []);
        let jobs = read.jobs;
        let source = |node, run| Source {
            node: NodeId(node),
            blocks: vec![run],
        };
        let model = &jobs[0].job;
        assert_eq!(jobs[0].name, "model");
        assert_eq!(
            model.sources,
            [source(0, 0..5), source(1, 5..10), source(4, 0..10)]
        );
        assert_eq!(model.destinations, Destinations::Sites(vec![ClusterId(1)]));
        assert_eq!(model.relays, [NodeId(0)]);
        assert_eq!(model.start, Time::from_secs_f64(3.0));
        assert_eq!(model.deadline, Some(Time::from_secs_f64(60.0)));
        assert_eq!(model.priority, Priority::High);
        assert_eq!(model.limit.bytes_per_s(), 1e6);
        let second = &jobs[1];
        assert_eq!(second.name, "job 2");
        let to = [2, 3, 4, 0].map(NodeId).to_vec();
        assert_eq!(second.job.destinations, Destinations::Nodes(to));
        assert_eq!(second.job.block, BLOCK_USUAL);
    }

    #[test]
    fn a_job_that_cannot_be_leaves_the_others_alone() {
        let job = |name: &str, site: &str| {
            format!(
                "[[job]]\nname = \"{name}\"\nsize = \"1 MB\"\nfrom = [\"ams\"]\nsites = [\"{site}\"]\n"
            )
        };
        let text = job("one", "tok") + &job("two", "nyc") + &job("three", "osa");
        let some = read(&text).expect("one is left");
        let names: Vec<&str> = some.jobs.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["two"]);
        let said: Vec<String> = some.refused.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with("jobs.toml: one: `sites`: "), "{said:?}");
        assert!(
            said[1].starts_with("jobs.toml: three: `sites`: "),
            "{said:?}"
        );
        let none = read(&(job("one", "tok") + &job("three", "osa"))).expect_err("none is left");
        assert_eq!(none.to_string(), said[0]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let job = |rest: &str| format!("[[job]]\nsize = \"1 MB\"\nfrom = [\"ams\"]\n{rest}");
        for (text, says) in [
            (String::new(), "there is no job; begin one with `[[job]]`"),
            ("[[job]\n".to_owned(), "line 1: "),
            (job("sites = [\"nyc\"]\ncolour = \"red\""), "colour"),
            (job(""), "job 1: `sites` or `nodes` has to say who gets it"),
            (
                job("sites = [\"nyc\"]\nnodes = [\"nyc1\"]"),
                "either `sites` or `nodes` says who gets it, not both",
            ),
            (
                job("name = \"logs\"\nsites = [\"tok\"]"),
                "logs: `sites`: there is no site `tok`; the sites are ams, nyc",
            ),
            (
                job("nodes = [\"x\"]"),
                "`nodes`: there is no node or site `x`",
            ),
            (job("sites = [\"nyc\"]\nstart = \"soon\""), "`start`: "),
            (
                job("sites = [\"nyc\"]\npriority = \"urgent\""),
                "`priority`: expected low",
            ),
            (
                job("sites = [\"nyc\"]\nblock = \"0 B\""),
                "has none or too many",
            ),
            (
                "[[job]]\nsize = \"1 MB\"\nsites = [\"nyc\"]\nfrom = []".to_owned(),
                "nobody has",
            ),
        ] {
            let error = read(&text).expect_err("it is wrong").to_string();
            assert!(error.starts_with("jobs.toml: "), "{error}");
            assert!(error.contains(says), "{error}, not {says}");
        }
    }
}
