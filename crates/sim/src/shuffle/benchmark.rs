//! Traces in the format of the coflow benchmark: which racks had mappers and reducers of which job.
//!
//! The first line has the numbers of racks and of coflows. Each next line is a coflow: its number, when it
//! arrived in milliseconds, how many mappers there were, their racks, how many reducers, and for each
//! its rack and the megabytes it fetched, `rack:megabytes`. A megabyte is a mebibyte; each mapper held an
//! equal part of every reducer's data, which was not recorded; tasks of one rack are one.

use outpour_core::text::escape;
use outpour_planner::shuffle::{Coflow, Flow, Hosts};

use super::Arrival;

/// How long a trace may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 << 20;
/// Racks, and tasks of a coflow, at most.
const RACKS_MAX: usize = 1 << 16;
/// Megabytes of a reducer at most: an exabyte.
const MEGABYTES_MAX: f64 = 1e12;
/// Milliseconds at most: some ten years.
const MILLIS_MAX: u64 = 1 << 38;
/// Bytes of what a trace calls a megabyte.
pub const MEGABYTE: f64 = 1_048_576.0;

/// A job of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceCoflow {
    /// Its number in the trace.
    pub id: u64,
    /// When it arrived, milliseconds.
    pub arrival_ms: u64,
    /// Racks with mappers, each once, in order.
    pub mappers: Vec<usize>,
    /// Racks with reducers and what these fetched, in megabytes of the trace; each once, in order.
    pub reducers: Vec<(usize, f64)>,
}

/// A trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// How many racks there are.
    pub racks: usize,
    /// In the order of the trace.
    pub coflows: Vec<TraceCoflow>,
}

/// What is wrong with a trace; names the file and the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TraceError(String);

/// The words of a line.
struct Words<'a> {
    words: std::str::SplitAsciiWhitespace<'a>,
    place: String,
}

impl<'a> Words<'a> {
    fn fail(&self, why: &str) -> TraceError {
        TraceError(format!("{}: {why}", self.place))
    }

    fn next(&mut self, what: &str) -> Result<&'a str, TraceError> {
        let word = self.words.next();
        word.ok_or_else(|| self.fail(&format!("it ends where {what} should be")))
    }

    fn number(&mut self, what: &str, max: u64) -> Result<u64, TraceError> {
        let word = self.next(what)?;
        let number = word.parse::<u64>().ok().filter(|number| *number <= max);
        number.ok_or_else(|| {
            let word = escape(word);
            self.fail(&format!("{what}: `{word}` is not a number from 0 to {max}"))
        })
    }

    fn rack(&self, word: &str, what: &str, racks: usize) -> Result<usize, TraceError> {
        let rack = word.parse::<usize>().ok().filter(|rack| *rack < racks);
        rack.ok_or_else(|| {
            let word = escape(word);
            let last = racks.saturating_sub(1);
            self.fail(&format!(
                "{what}: there is no rack `{word}`; they are 0 to {last}"
            ))
        })
    }

    fn end(&mut self) -> Result<(), TraceError> {
        match self.words.next() {
            Some(word) => Err(self.fail(&format!("`{}` is too much", escape(word)))),
            None => Ok(()),
        }
    }
}

impl Trace {
    /// Reads a trace; `file` is its name in messages.
    ///
    /// # Errors
    /// Names the line and what is wrong with it.
    ///
    /// ```
    /// use outpour_sim::shuffle::benchmark::Trace;
    /// let trace = Trace::parse("3 1\n7 1500 2 0 1 1 2:10.0\n", "trace.txt")?;
    /// assert_eq!(trace.coflows[0].mappers, [0, 1]);
    /// assert_eq!(trace.coflows[0].reducers, [(2, 10.0)]);
    /// # Ok::<(), outpour_sim::shuffle::benchmark::TraceError>(())
    /// ```
    pub fn parse(text: &str, file: &str) -> Result<Self, TraceError> {
        let file = escape(file);
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty());
        let mut lines = lines.map(|(index, line)| Words {
            words: line.split_ascii_whitespace(),
            place: format!("{file}: line {}", index + 1),
        });
        let Some(mut first) = lines.next() else {
            return Err(TraceError(format!("{file}: it is empty")));
        };
        let racks = first.number("the number of racks", RACKS_MAX as u64)? as usize;
        if racks == 0 {
            return Err(first.fail("there are no racks"));
        }
        let count = first.number("the number of coflows", u64::from(u32::MAX))?;
        first.end()?;
        let mut coflows = Vec::new();
        for line in lines {
            if coflows.len() as u64 == count {
                return Err(line.fail(&format!(
                    "the first line says that there are {count} coflows"
                )));
            }
            coflows.push(coflow(line, racks)?);
        }
        if (coflows.len() as u64) < count {
            return Err(TraceError(format!(
                "{file}: line 1: the number of coflows should be {count}, and is {}",
                coflows.len()
            )));
        }
        if coflows.is_empty() {
            return Err(TraceError(format!("{file}: it has no coflow")));
        }
        Ok(Self { racks, coflows })
    }

    /// Racks as hosts that send and receive so many bytes per second: the one that sends from rack `r` is
    /// host `r`, the one that may run reducers there is host `racks + r`, so nothing is there already.
    pub fn hosts(&self, bytes_per_s: f64) -> Hosts {
        let hosts = 2 * self.racks;
        let may_run = |host| if host < self.racks { 0 } else { u32::MAX };
        Hosts {
            out: vec![bytes_per_s; hosts],
            into: vec![bytes_per_s; hosts],
            slots: (0..hosts).map(may_run).collect(),
        }
    }

    /// Its coflows in the order in which they arrive, and where each is in the trace.
    pub fn arrivals(&self) -> Vec<(usize, Arrival)> {
        let mut order: Vec<usize> = (0..self.coflows.len()).collect();
        order.sort_by_key(|index| (self.coflows[*index].arrival_ms, *index));
        let arrival = |index: usize| {
            let coflow = &self.coflows[index];
            let at_s = coflow.arrival_ms as f64 / 1e3;
            let recorded = self.places(index);
            let arrival = Arrival::new(at_s, coflow.coflow());
            (
                index,
                Arrival {
                    recorded,
                    ..arrival
                },
            )
        };
        order.into_iter().map(arrival).collect()
    }

    /// Where the reducers of a coflow were, as hosts.
    fn places(&self, coflow: usize) -> Vec<usize> {
        let reducers = self.coflows[coflow].reducers.iter();
        reducers.map(|(rack, _)| self.racks + rack).collect()
    }
}

impl TraceCoflow {
    /// What it moves, in bytes.
    pub fn bytes(&self) -> f64 {
        let megabytes = self.reducers.iter().map(|(_, megabytes)| megabytes);
        megabytes.sum::<f64>() * MEGABYTE
    }

    fn coflow(&self) -> Coflow {
        let sizes: Vec<f64> = self.reducers.iter().map(|(_, it)| it * MEGABYTE).collect();
        let weights = self.mappers.iter().map(|mapper| Flow {
            mapper: *mapper,
            bytes: 1.0,
        });
        // Numbers were checked as they were read.
        Coflow::split(&sizes, weights.collect()).unwrap_or_default()
    }
}

fn coflow(mut line: Words<'_>, racks: usize) -> Result<TraceCoflow, TraceError> {
    let id = line.number("the number of the coflow", u64::MAX)?;
    let arrival_ms = line.number("the time of its arrival, in ms", MILLIS_MAX)?;
    let count = line.number("how many mappers there are", RACKS_MAX as u64)?;
    let mut mappers = Vec::new();
    for index in 1..=count {
        let what = format!("the rack of mapper {index}");
        let word = line.next(&what)?;
        mappers.push(line.rack(word, &what, racks)?);
    }
    if mappers.is_empty() {
        return Err(line.fail("it has no mapper"));
    }
    mappers.sort_unstable();
    mappers.dedup();
    let count = line.number("how many reducers there are", RACKS_MAX as u64)?;
    let mut reducers: Vec<(usize, f64)> = Vec::new();
    for index in 1..=count {
        let what = format!("the rack of reducer {index} and its megabytes");
        let word = line.next(&what)?;
        let Some((rack, megabytes)) = word.split_once(':') else {
            let word = escape(word);
            return Err(line.fail(&format!("{what}: `{word}` is not like 12:3.5")));
        };
        let rack = line.rack(rack, &what, racks)?;
        let size = megabytes.parse::<f64>().ok();
        let size = size.filter(|size| (0.0..=MEGABYTES_MAX).contains(size));
        let Some(size) = size else {
            let word = escape(megabytes);
            return Err(line.fail(&format!(
                "{what}: `{word}` is not a number of megabytes from 0 to {MEGABYTES_MAX}"
            )));
        };
        reducers.push((rack, size));
    }
    line.end()?;
    if reducers.is_empty() {
        return Err(line.fail("it has no reducer"));
    }
    reducers.sort_by_key(|(rack, _)| *rack);
    reducers.dedup_by(|next, first| {
        let is_same = next.0 == first.0;
        if is_same {
            first.1 += next.1;
        }
        is_same
    });
    Ok(TraceCoflow {
        id,
        arrival_ms,
        mappers,
        reducers,
    })
}
