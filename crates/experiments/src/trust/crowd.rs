//! Many casts at once to one agent that runs as a service: files of many sizes, trees of many small files,
//! coded and not. What it has in memory at most, beside what one cast of the largest takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outpour_core::Bytes;

use super::report::Row;
use super::services::{self, Services};
use super::site::{Casting, Order, Site};
use super::usage::{Memory, forget_peak, memory};
use super::{Context, Found};
use crate::ExperimentError;
use crate::gossip::cast::right_copies;
use crate::lab::Lab;

type Outcome<T> = Result<T, ExperimentError>;

/// No link has a limit: what holds back casts is the agent.
const NETWORK: &str = "\
[[cluster]]
name = \"a\"
nodes = 2
";
const COMMAND: &str = "a0";
const AGENT: &str = "a1";
const CASTS: usize = 32;
/// Sizes of files, in turn.
const SIZES: [Bytes; 5] = [
    Bytes(1_000),
    Bytes(300_000),
    Bytes(4_000_000),
    Bytes(20_000_000),
    Bytes(64_000_000),
];
/// How many small files the trees have, in turn.
const FILES: [u32; 3] = [1_000, 10_000, 60_000];
/// A short run has so much less.
const SHORT: u64 = 20;
const PROTOCOLS: [&str; 3] = ["swarm", "chain", "coded-gossip"];
const CROWD_MAX: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What the unit gives an agent, in MiB.
const MEMORY_MAX: f64 = 512.0;

pub(super) fn run(context: &Context<'_>) -> Outcome<Found> {
    let options = context.options;
    let lab = Lab::new(&options.program, "outpour-trust-")?;
    let sources = sources(context, &lab)?;
    let site = Site::open(&lab, NETWORK)?;
    let services = Services::start(&site, &[AGENT.to_owned()])?;
    let crowd = Crowd {
        site: &site,
        sources,
    };
    let measured = crowd.measure(context);
    drop(services);
    // The network has no limits, so no packet is late.
    site.close()?;
    measured
}

/// Files first, then trees.
fn sources(context: &Context<'_>, lab: &Lab) -> Outcome<Vec<PathBuf>> {
    let less = if context.options.short { SHORT } else { 1 };
    let mut sources = Vec::new();
    for (index, size) in SIZES.iter().enumerate() {
        let size = Bytes(size.0.div_ceil(less));
        let name = format!("file-{index}");
        sources.push(lab.object(&name, size, context.options.seed + index as u64)?);
    }
    for (index, files) in FILES.iter().enumerate() {
        let root = lab.path(&format!("tree-{index}"));
        tree(&root, u64::from(*files).div_ceil(less))
            .map_err(|e| ExperimentError::file(&root, &e))?;
        sources.push(root);
    }
    Ok(sources)
}

fn tree(root: &Path, files: u64) -> std::io::Result<()> {
    for file in 0..files {
        let directory = root.join(format!("{}", file / 1000));
        if file.is_multiple_of(1000) {
            fs::create_dir_all(&directory)?;
        }
        fs::write(
            directory.join(format!("file-{file:08}")),
            file.to_le_bytes(),
        )?;
    }
    Ok(())
}

struct Crowd<'a> {
    site: &'a Site<'a>,
    sources: Vec<PathBuf>,
}

impl Crowd<'_> {
    fn measure(&self, context: &Context<'_>) -> Outcome<Found> {
        let mut found = Found::default();
        let before = self.memory()?.now;
        let alone = self.cast_at_once(&[self.sources.len() - 1])?;
        let one = self.memory()?.peak;
        if let Some(agent) = self.site.process("agent", AGENT) {
            forget_peak(agent.pid);
        }
        let begun = Instant::now();
        let all: Vec<usize> = (0..CASTS).map(|cast| cast % self.sources.len()).collect();
        let arrived = self.cast_at_once(&all)?;
        let seconds = begun.elapsed().as_secs_f64();
        let many = self.memory()?;
        found
            .rows
            .push(Row::of("casts at once that arrived", arrived, CASTS));
        found.rows.push(Row::at_most(
            "memory of the agent",
            "MiB",
            many.peak,
            MEMORY_MAX,
        ));
        let now = self.memory()?.now;
        found.notes.push(format!(
            "before any cast it had {before:.1} MiB; with the largest tree alone at most {one:.1} ({alone} \
             arrived); after {seconds:.1} s with all of them {now:.1}"
        ));
        for row in &found.rows {
            (context.progress)(format_args!("{}", row.in_words()));
        }
        Ok(found)
    }

    fn memory(&self) -> Outcome<Memory> {
        let agent = self.site.process("agent", AGENT);
        let found = agent.and_then(|agent| memory(agent.pid));
        found.ok_or_else(|| ExperimentError::Setup("the agent is gone".to_owned()))
    }

    /// Casts these sources all at once; how many arrived.
    fn cast_at_once(&self, which: &[usize]) -> Outcome<usize> {
        let mut casts: Vec<(usize, String, Casting)> = Vec::new();
        for (number, index) in which.iter().enumerate() {
            let name = format!("crowd-{number}");
            let protocol = PROTOCOLS[number % PROTOCOLS.len()];
            let casting = self.site.begin(&self.order(&name, *index, protocol))?;
            casts.push((*index, name, casting));
        }
        let begun = Instant::now();
        let mut arrived = 0;
        for (index, name, mut casting) in casts {
            while !casting.has_ended()? && begun.elapsed() < CROWD_MAX {
                std::thread::sleep(LOOK_EVERY);
            }
            let verified = casting.verified()?.len() == 1;
            let source = &self.sources[index];
            let right =
                source.is_dir() || right_copies(&[self.site.copy(&name, AGENT)], source) == 1;
            arrived += usize::from(verified && right);
        }
        for number in 0..which.len() {
            let copy = self.site.copy(&format!("crowd-{number}"), AGENT);
            let _ = fs::remove_dir_all(copy.parent().unwrap_or(&copy));
        }
        Ok(arrived)
    }

    fn order(&self, name: &str, index: usize, protocol: &str) -> Order<'_> {
        let route = (COMMAND, self.sources[index].as_path());
        let hosts = vec![AGENT.to_owned()];
        services::order(self.site, name, route, hosts, &["--protocol", protocol])
    }
}
