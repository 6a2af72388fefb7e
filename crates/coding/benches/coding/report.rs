//! What was asked for, and what came out: on the terminal, as JSON and as a table in a page.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use outpour_coding::Kernel;
use serde::Serialize;

const USAGE: &str = "expected [NAME]... [--kernel NAME] [--turns N] [--json FILE] [--write PAGE]";
/// What encloses the table in a page.
const BEGIN: &str = "<!-- measured by `make bench-coding` -->\n";
const END: &str = "<!-- end -->";

/// The command line.
pub(crate) struct Args {
    names: Vec<String>,
    pub(crate) kernel: Kernel,
    pub(crate) turns: usize,
    json: Option<PathBuf>,
    page: Option<PathBuf>,
}

impl Args {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            names: Vec::new(),
            kernel: Kernel::best(),
            turns: 15,
            json: None,
            page: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word}: {USAGE}"));
            match word.as_str() {
                "--kernel" => {
                    let name = value()?;
                    args.kernel = crate::kernel(&name)
                        .ok_or_else(|| format!("{name}: the processor has no such kernel"))?;
                }
                "--turns" => {
                    let turns = value()?;
                    args.turns = match turns.parse() {
                        Ok(turns @ 1..) => turns,
                        _ => return Err(format!("{turns}: expected 1 turn or more")),
                    };
                }
                "--json" => args.json = Some(value()?.into()),
                "--write" => args.page = Some(value()?.into()),
                // What `cargo bench` passes on to all benchmarks.
                "--bench" => {}
                name if !name.starts_with('-') => args.names.push(name.to_owned()),
                _ => return Err(format!("{word}: {USAGE}")),
            }
        }
        Ok(args)
    }

    /// Whether rows of this name were asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// Where it was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    kernel: &'static str,
    /// Processes that wanted to run in the minute before.
    load: f64,
}

impl Machine {
    pub(crate) fn here(kernel: Kernel) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let named = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let unknown = || "unknown processor".to_owned();
        let mut processor = named("model name").unwrap_or_else(unknown);
        if let (Some(family), Some(model)) = (named("cpu family"), named("model\t")) {
            processor += &format!(" (family {family}, model {model})");
        }
        let load = read("/proc/loadavg");
        Self {
            processor,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.name(),
            load: load
                .split(' ')
                .next()
                .and_then(|l| l.parse().ok())
                .unwrap_or(0.0),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processor,
            cores,
            kernel,
            load,
        } = self;
        write!(
            f,
            "{processor}, {cores} cores, kernel {kernel}, load {load:.1} beforehand"
        )
    }
}

/// One comparison's result.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) what: String,
    pub(crate) baseline: String,
    pub(crate) baseline_bytes_per_s: f64,
    pub(crate) ours_bytes_per_s: f64,
    /// The median of those of all turns.
    pub(crate) ratio: f64,
    pub(crate) ratio_min: f64,
    pub(crate) ratio_max: f64,
    pub(crate) required: Option<f64>,
}

impl Row {
    pub(crate) fn reached(&self) -> bool {
        self.required.is_none_or(|required| self.ratio >= required)
    }

    fn cells(&self) -> [String; 6] {
        let speed = |bytes_per_s: f64| format!("{:.2} GB/s", bytes_per_s / 1e9);
        [
            self.what.clone(),
            format!("{} {}", self.baseline, speed(self.baseline_bytes_per_s)),
            speed(self.ours_bytes_per_s),
            format!(
                "{:.2} ({:.2} to {:.2})",
                self.ratio, self.ratio_min, self.ratio_max
            ),
            self.required
                .map_or_else(|| "-".to_owned(), |r| format!("{r:.1}")),
            if self.reached() { "yes" } else { "NO" }.to_owned(),
        ]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [what, baseline, ours, ratio, required, reached] = self.cells();
        write!(
            f,
            "{what:<58} {baseline:<36} {ours:>11} {ratio:>22} {required:>4} {reached}"
        )
    }
}

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    pub(crate) fn write(&self, args: &Args) -> Result<(), String> {
        let fault = |path: &Path, error: &dyn fmt::Display| format!("{}: {error}", path.display());
        if let Some(path) = &args.json {
            let mut text = serde_json::to_string_pretty(self).map_err(|e| fault(path, &e))?;
            text.push('\n');
            fs::write(path, text).map_err(|error| fault(path, &error))?;
        }
        if let Some(path) = &args.page {
            let page = fs::read_to_string(path).map_err(|error| fault(path, &error))?;
            let page = self
                .placed(&page)
                .ok_or_else(|| fault(path, &"no place for the table"))?;
            fs::write(path, page).map_err(|error| fault(path, &error))?;
        }
        Ok(())
    }

    /// The page with the table in its place.
    fn placed(&self, page: &str) -> Option<String> {
        let (before, rest) = page.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        let mut table = format!(
            "Machine: {}.\n\n| what | compared with | here | ratio (least to most) | required | \
             reached |\n|---|---|---|---|---|---|\n",
            self.machine
        );
        for row in &self.rows {
            table += &format!("| {} |\n", row.cells().join(" | "));
        }
        Some(format!("{before}{BEGIN}{table}{END}{after}"))
    }
}
