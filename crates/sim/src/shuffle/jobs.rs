//! Generated jobs: sizes by the distribution of observed ones, split at random over mappers and reducers
//! [RPC §VI-B].

use outpour_core::text::escape;
use outpour_core::toml_lines::{Step, line_of};
use outpour_core::{Bytes, Rate};
use outpour_planner::shuffle::{Coflow, Flow, Hosts};
use serde::Deserialize;

use super::Arrival;
use crate::dice::Dice;

/// How long a file may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// Jobs, and hosts, at most.
const COUNT_MAX: usize = 1 << 20;

/// A file of generated jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsFile {
    /// What was read, to find lines for messages.
    #[serde(skip)]
    text: String,
    /// How many jobs there are.
    pub count: usize,
    /// How many mappers each has; as many as hosts by default.
    pub mappers: Option<usize>,
    /// How many reducers each has; as many as hosts by default.
    pub reducers: Option<usize>,
    /// What observed jobs moved: jobs are drawn from their distribution.
    #[serde(default)]
    sizes: Vec<String>,
    /// A trace in the format of the coflow benchmark with observed jobs instead.
    pub trace: Option<String>,
    /// Only jobs of the trace that move at least so much.
    at_least: Option<String>,
}

/// What is wrong with a file of jobs; names the file, and the line or the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JobsError(pub String);

impl JobsFile {
    /// Reads a file; `file` is its name in messages.
    ///
    /// # Errors
    /// If it is no TOML, or a key is unknown or out of range.
    pub fn parse(text: &str, file: &str) -> Result<Self, JobsError> {
        let parsed: Result<Self, _> = toml_edit::de::from_str(text);
        let mut parsed = parsed.map_err(|error| {
            let line = error.span().map(|at| {
                let before = text.get(..at.start).unwrap_or_default();
                format!("line {}: ", 1 + before.matches('\n').count())
            });
            let why = escape(&error.message().replace('\n', "; ")).into_owned();
            let line = line.unwrap_or_default();
            JobsError(format!("{}: {line}{why}", escape(file)))
        })?;
        text.clone_into(&mut parsed.text);
        let parsed = parsed;
        let counts = [
            ("count", Some(parsed.count)),
            ("mappers", parsed.mappers),
            ("reducers", parsed.reducers),
        ];
        for (key, count) in counts {
            if count.is_some_and(|count| !(1..=COUNT_MAX).contains(&count)) {
                let why = format!("`{key}` is not from 1 to {COUNT_MAX}");
                return Err(parsed.wrong(file, &[Step::Key(key)], &why));
            }
        }
        if parsed.sizes.is_empty() == parsed.trace.is_none() {
            let why = "either `sizes` or `trace` says what jobs move, and not both";
            return Err(parsed.wrong(file, &[Step::Key("sizes")], why));
        }
        if parsed.at_least.is_some() && parsed.trace.is_none() {
            let why = "`at_least` goes with `trace`";
            return Err(parsed.wrong(file, &[Step::Key("at_least")], why));
        }
        Ok(parsed)
    }

    /// What is wrong with what these steps lead to; `file` is its name in messages.
    pub fn wrong(&self, file: &str, steps: &[Step<'_>], why: &str) -> JobsError {
        let line = line_of(&self.text, steps).map(|line| format!("line {line}: "));
        let line = line.unwrap_or_default();
        JobsError(format!("{}: {line}{why}", escape(file)))
    }

    /// What observed jobs moved, bytes, the least first; `trace` is what those of the trace did.
    ///
    /// # Errors
    /// If a size is none, or no job is left.
    pub fn observed(&self, file: &str, trace: &[f64]) -> Result<Vec<f64>, JobsError> {
        let parse = |key: &str, steps: &[Step<'_>], text: &String| -> Result<f64, JobsError> {
            let size: Result<Bytes, _> = text.parse();
            let wrong = |why| self.wrong(file, steps, &format!("`{key}`: {why}"));
            Ok(size.map_err(wrong)?.as_f64())
        };
        let least = self.at_least.as_ref();
        let least = least.map(|it| parse("at_least", &[Step::Key("at_least")], it));
        let least = least.transpose()?.unwrap_or(0.0);
        let sizes = self.sizes.iter().enumerate();
        let sizes =
            sizes.map(|(at, it)| parse("sizes", &[Step::Key("sizes"), Step::Index(at)], it));
        let mut sizes = sizes.collect::<Result<Vec<f64>, _>>()?;
        sizes.extend(trace.iter().filter(|size| **size >= least));
        sizes.retain(|size| *size > 0.0);
        if sizes.is_empty() {
            let key = self.at_least.as_ref().map_or("sizes", |_| "at_least");
            return Err(self.wrong(file, &[Step::Key(key)], "no job moves anything"));
        }
        sizes.sort_by(f64::total_cmp);
        Ok(sizes)
    }
}

/// Jobs to be drawn, and the hosts they run on.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// How many jobs.
    pub count: usize,
    /// What observed jobs moved, bytes, the least first; not empty.
    pub observed: Vec<f64>,
    /// Mappers of a job, each on a host of its own.
    pub mappers: usize,
    /// Reducers of a job.
    pub reducers: usize,
    /// How many hosts may run reducers; as many others have mappers.
    pub hosts: usize,
    /// How fast hosts may be: one of these each. Hosts with mappers are as fast as the fastest.
    pub nics: Vec<Rate>,
    /// How many jobs arrive per second, independently of each other; all at once if none.
    pub arrivals_per_s: Option<f64>,
}

impl Generated {
    /// Hosts: those with mappers first, then those that may run reducers.
    pub fn hosts(&self, seed: u64) -> Hosts {
        let mut dice = Dice::new(seed ^ 0x6e69_6373);
        let rates: Vec<f64> = self.nics.iter().map(|rate| rate.bytes_per_s()).collect();
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let mut hosts = Hosts::default();
        for _ in 0..self.hosts {
            hosts.out.push(fastest);
            hosts.into.push(fastest);
            hosts.slots.push(0);
        }
        for _ in 0..self.hosts {
            let rate = rates[dice.below(rates.len() as u64) as usize];
            hosts.out.push(rate);
            hosts.into.push(rate);
            hosts.slots.push(u32::MAX);
        }
        hosts
    }

    /// Jobs in the order of their arrival, drawn one after the other.
    ///
    /// # Panics
    /// If no job was observed, or there are more mappers than hosts.
    pub fn arrivals(&self, seed: u64) -> impl Iterator<Item = Arrival> + '_ {
        assert!(
            !self.observed.is_empty(),
            "sizes are drawn by observed ones"
        );
        assert!(self.mappers <= self.hosts, "each mapper has its own host");
        let mut dice = Dice::new(seed ^ 0x6a6f_6273);
        let mut at_s = 0.0;
        (0..self.count).map(move |_| {
            if let Some(rate) = self.arrivals_per_s {
                at_s -= (1.0 - dice.unit()).ln() / rate;
            }
            Arrival::new(at_s, self.job(&mut dice))
        })
    }

    fn job(&self, dice: &mut Dice) -> Coflow {
        let all = self.size(dice.unit());
        let mut mappers: Vec<usize> = (0..self.hosts).collect();
        for index in 0..self.mappers {
            let other = dice.between(index as u64, self.hosts as u64 - 1);
            mappers.swap(index, other as usize);
        }
        mappers.truncate(self.mappers);
        let weights = mappers.into_iter().map(|mapper| Flow {
            mapper,
            bytes: part(dice),
        });
        let weights = weights.collect();
        let parts: Vec<f64> = (0..self.reducers).map(|_| part(dice)).collect();
        let sum: f64 = parts.iter().sum();
        let sizes: Vec<f64> = parts.iter().map(|part| all * part / sum).collect();
        // Parts are positive and sizes are finite.
        Coflow::split(&sizes, weights).unwrap_or_default()
    }

    /// The size that such a share of jobs do not reach: between two observed ones it grows by equal factors.
    fn size(&self, share: f64) -> f64 {
        let last = self.observed.len() - 1;
        let at = share * last as f64;
        let index = (at as usize).min(last.saturating_sub(1));
        let (low, high) = (self.observed[index], self.observed[(index + 1).min(last)]);
        low * (high / low).powf(at - index as f64)
    }
}

/// A part of a whole in relation to the others: from nothing, which it never is, to 1.
fn part(dice: &mut Dice) -> f64 {
    1.0 - dice.unit()
}
