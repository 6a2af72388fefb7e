//! The experiments of `outpour-lab bench shuffle`: reducer placement with coflow scheduling, simulated.
//!
//! Each repeats one of [RPC §II, §IV and §VI] with the planner behind `outpour plan shuffle` and the
//! schedulers that it is compared with. What is drawn is drawn again for every seed, the same for every
//! scheduler.

mod drawn;
mod examples;
pub mod page;

use std::fmt;
use std::path::{Path, PathBuf};

use outpour_sim::parallel::in_parallel;
use outpour_sim::shuffle::benchmark::{TEXT_BYTES_MAX, Trace};

use crate::sweep::{self, Form, PlotOf, Row, SweepReport};
use crate::{ExperimentError, machine};

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct BenchShuffleOptions {
    /// The first seed of what is random.
    pub seed: u64,
    /// Whether to make everything small, to see that it works.
    pub short: bool,
    /// How many simulations run at a time; 0 for one per core.
    pub threads: usize,
    /// How often what is drawn is drawn.
    pub trials: u64,
    /// How many shuffles there are at a time.
    pub count: usize,
    /// The public trace.
    pub trace: PathBuf,
}

/// An experiment by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    setup: &'static str,
    paper: (&'static str, &'static str),
    why: &'static str,
    columns: &'static [&'static str],
    axis: &'static str,
    plots: &'static [PlotOf],
    input: Input,
    rows: fn(&Bench<'_>) -> Result<Vec<Row>, ExperimentError>,
}

/// What the rows of an experiment follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Nothing but itself.
    Nothing,
    /// The public trace.
    Trace,
    /// Jobs drawn from it for several seeds, a number of its own.
    DrawnAlone,
    /// The same, as many as the command says.
    Drawn,
}

/// What experiments are run with.
pub(crate) struct Bench<'a> {
    pub(crate) options: &'a BenchShuffleOptions,
    progress: &'a (dyn Fn(fmt::Arguments<'_>) + Sync),
    name: &'static str,
}

impl Bench<'_> {
    /// The public trace.
    pub(crate) fn trace(&self) -> Result<Trace, ExperimentError> {
        let path = &self.options.trace;
        let text = std::fs::read(path).map_err(|e| ExperimentError::file(path, &e))?;
        let text = String::from_utf8(text).map_err(|e| ExperimentError::file(path, &e))?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(ExperimentError::file(path, &"it is too large"));
        }
        let name = path.display().to_string();
        Trace::parse(&text, &name).map_err(|e| ExperimentError::Setup(e.to_string()))
    }

    /// The seeds of what is drawn.
    pub(crate) fn seeds(&self) -> Vec<u64> {
        let trials = if self.options.short {
            2
        } else {
            self.options.trials
        };
        (0..trials)
            .map(|trial| self.options.seed.wrapping_add(trial))
            .collect()
    }

    /// What is measured of each case, several at a time, with a line about it.
    pub(crate) fn each<C: Sync, T: Send>(
        &self,
        cases: &[C],
        measure: impl Fn(&C) -> (String, T) + Sync,
    ) -> Vec<T> {
        in_parallel(cases, self.options.threads, |case| {
            let (line, one) = measure(case);
            (self.progress)(format_args!("{}: {line}", self.name));
            one
        })
    }
}

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

impl Entry {
    /// Runs the experiment; `progress` is told each row as it is measured.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub fn run(
        &self,
        options: &BenchShuffleOptions,
        progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
    ) -> Result<Found, ExperimentError> {
        let begun = machine::now();
        let bench = Bench {
            options,
            progress,
            name: self.name,
        };
        let rows = (self.rows)(&bench)?;
        Ok(Found(SweepReport {
            name: self.name.to_owned(),
            title: self.about.to_owned(),
            short: options.short,
            seed: options.seed,
            options: self.options(options),
            date: machine::date(),
            machine: machine::describe(),
            wall_s: begun.elapsed().as_secs_f64(),
            rows,
        }))
    }

    /// Options of the command that make a difference here.
    fn options(&self, options: &BenchShuffleOptions) -> String {
        let mut text = String::new();
        if matches!(self.input, Input::Drawn | Input::DrawnAlone) {
            text = format!(" --trials {}", options.trials);
        }
        if self.input == Input::Drawn {
            text = format!("{text} --count {}", options.count);
        }
        if self.input != Input::Nothing {
            text.push_str(" --trace FILE");
        }
        text
    }

    const fn form(&self) -> Form {
        Form {
            bench: "shuffle",
            name: self.name,
            about: self.about,
            setup: self.setup,
            paper: self.paper,
            why: self.why,
            series: "scheduler",
            columns: self.columns,
            axis: self.axis,
            plots: self.plots,
        }
    }
}

/// What an experiment found.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct Found(SweepReport);

impl Found {
    /// The name of the experiment.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether every row came to an end.
    pub fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// The table, for a terminal.
    pub fn for_people(&self) -> String {
        let form = find(self.name()).map(Entry::form);
        form.map_or_else(String::new, |form| self.0.for_people(&form))
    }

    /// Writes it and its plots into a directory, which is made if it is missing.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save(&self, output: &Path) -> Result<(), ExperimentError> {
        match find(self.name()) {
            Some(entry) => sweep::save(&self.0, &entry.form(), output),
            None => Ok(()),
        }
    }
}

/// How times are distributed over coflows.
const CCTS: PlotOf = PlotOf::Values {
    curve: "ccts",
    of: "percent of the coflows",
    x: "seconds",
    ratios: true,
};
/// ... and how much sooner than by each other scheduler they are complete.
const BETTER: PlotOf = PlotOf::Values {
    curve: "better",
    of: "percent of the coflows",
    x: "percent sooner than by this scheduler",
    ratios: false,
};

/// Every experiment, in the order of the paper.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "figure1",
        about: "two coflows on three hosts",
        setup: "as in the paper: 1, 1.5 and 2 Gbit and 1.5, 2 and 2 Gbit for three reducers each, hosts that \
                receive 2, 1 and 1 Gbit/s.",
        paper: (
            "§I, figure 1, and §III",
            "3 s on average with the best rates on other places, 3 s with equal rates on the best places, 2.25 s \
             with both; with work conservation the second coflow ends after 3.5 s.",
        ),
        why: "It does not.",
        columns: &["average_cct_s", "first_s", "second_s"],
        axis: "",
        plots: &[PlotOf::Bars(
            "average_cct_s",
            "seconds, mean of two coflows",
        )],
        input: Input::Nothing,
        rows: examples::figure1,
    },
    Entry {
        name: "figure3",
        about: "a flow behind another",
        setup: "a host that receives 2 Gbit/s, a flow of 2 Gbit from a mapper that sends 1 Gbit/s, and one of 3 Gbit \
                behind it.",
        paper: (
            "§IV-C, figures 3a and 3b",
            "3.5 s if the second waits for the first (a), more than 2.5 s if it only ever uses what the first leaves (b), \
             2.5 s if it also gets more when the first ends.",
        ),
        why: "It does not.",
        columns: &["second_s"],
        axis: "",
        plots: &[],
        input: Input::Nothing,
        rows: examples::figure3,
    },
    Entry {
        name: "theorem6",
        about: "how far rounding may be from the best",
        setup: "M (M - 1) reducers that take one second and one that takes M, on M equal hosts; the relaxed \
                solution that the paper gives is rounded by algorithm 2, and the planner places them.",
        paper: (
            "§IV-B, theorem 6",
            "Rounding takes 2 M - 1 seconds, the best placement M: the ratio is (2 M - 1) / M.",
        ),
        why: "Rounded, it does not. The planner fills hosts in order and takes list scheduling where that is \
              better, and finds the best.",
        columns: &["over_best", "bound"],
        axis: "hosts",
        plots: &[PlotOf::Series("over_best", "time / least time")],
        input: Input::Nothing,
        rows: examples::theorem6,
    },
    Entry {
        name: "tables",
        about: "three coflows on the testbed",
        setup: "table I, 930 Mbit/s of payload per Gbit/s; D and E receive half as much as F. Where a scheme \
                draws or misses places in the paper, they are those that table II prints; `neat` and `2dp` \
                without a note place by themselves, and `varys` and `fair` are also drawn a hundred times.",
        paper: (
            "§VI-A, tables I and II, figure 4a",
            "12.90 s on average by RPC, 15.48 by NEAT, 21.79 by 2D-Placement, 19.50 by Varys and 22.94 by the \
             baseline.",
        ),
        why: "By RPC E is done after 21.51 s in the paper, as F is: there its flow is slowed to the end of its \
              coflow, which the other hosts' flows in the same table are not; here no host is slowed. Table II \
              prints the last coflow of NEAT with E and F exchanged: 1,500 MB at E take 25.80 s. \
              2D-Placement's 21.79 s are the times of table II and, added to them, how long its mappers fetch: 1.72 s to C, \
              6.02 s to B behind that at A, and 12.90 s to A from what B has left while it sends to E; `2dp, fetched before` \
              does the same. Here reducers begin when their own mappers have their data, and fetching is scheduled as \
              coflows are, the shortest first: 22.94 s with the printed places; by itself 2D-Placement moves fewer mappers. \
              Varys' 19.50 s are (8.60 + 20.65 + 29.25) / 3: its last flow waits until C has sent the flow before it, \
              20.65 s, and takes 8.60 s then, though C and F have half of their bandwidth left before; `varys, one behind \
              the other` does the same, and with backfilling, as Varys is published, it is done with its coflow after 25.81 s. \
              Its first coflow's second flow is at E, where 500 MB take 8.60 s, and not at F as printed; the 2.58 s are what \
              is left of 500 MB after 3.44 s.",
        columns: &["average_cct_s", "first_s", "second_s", "third_s"],
        axis: "",
        plots: &[PlotOf::Bars(
            "average_cct_s",
            "seconds, mean of three coflows",
        )],
        input: Input::Nothing,
        rows: examples::tables,
    },
    Entry {
        name: "figure4b",
        about: "ten jobs of the trace on the testbed",
        setup: "ten jobs with sizes from the distribution of those of the public trace that move more than 2.5 GiB, drawn for each \
                seed, each split at random into nine flows, all at once.",
        paper: (
            "§VI-A, figure 4b",
            "65.32 s on average by RPC, 73.84 by NEAT: 11.5 % less. The baseline is worse than with three coflows.",
        ),
        why: "The paper does not say which jobs; those of the trace are larger, so only ratios can be compared.",
        columns: &["average_cct_s", "over_neat"],
        axis: "",
        plots: &[PlotOf::Bars("over_neat", "mean time / that of neat")],
        input: Input::DrawnAlone,
        rows: drawn::figure4b,
    },
    Entry {
        name: "width",
        about: "how many mappers and reducers a coflow has",
        setup: drawn::SETUP,
        paper: (
            "§VI-B, figure 5",
            "RPC is more than 99 % below random places, by Varys or by fair sharing; 2D-Placement takes two to three times as \
             long as NEAT; RPC is 46.5 to 65 % below NEAT. Fewer than 10 % of the coflows take longer than by NEAT, at most \
             15 % longer. Wider coflows are sooner complete.",
        ),
        why: drawn::WHY,
        columns: drawn::COLUMNS,
        axis: "hosts",
        plots: &[
            PlotOf::Ratios("average_cct_s", "seconds, mean over coflows"),
            CCTS,
            BETTER,
        ],
        input: Input::Drawn,
        rows: drawn::width,
    },
    Entry {
        name: "rate",
        about: "how many coflows arrive per second",
        setup: drawn::AS_FOR_WIDTH,
        paper: (
            "§VI-B, figure 6",
            "Times grow with the rate. At low rates NEAT and RPC are near to each other, at high ones RPC is better. 2D-Placement \
             takes two to three times as long as NEAT, less at high rates. A coflow alone takes 0.141 s.",
        ),
        why: drawn::WHY_RATE,
        columns: drawn::COLUMNS,
        axis: "coflows per second",
        plots: &[PlotOf::Ratios(
            "average_cct_s",
            "seconds, mean over coflows",
        )],
        input: Input::Drawn,
        rows: drawn::rate,
    },
    Entry {
        name: "number",
        about: "how many coflows are there at once",
        setup: drawn::AS_FOR_WIDTH,
        paper: (
            "§VI-B, figure 7",
            "RPC is up to 56.5 % below NEAT; about 20 % of the coflows take longer than by NEAT.",
        ),
        why: drawn::WHY_NUMBER,
        columns: drawn::COLUMNS,
        axis: "coflows",
        plots: &[PlotOf::Ratios(
            "average_cct_s",
            "seconds, mean over coflows",
        )],
        input: Input::DrawnAlone,
        rows: drawn::number,
    },
    Entry {
        name: "thousand",
        about: "as many coflows as the paper has",
        setup: drawn::AS_FOR_WIDTH,
        paper: (
            "§VI-B, figures 5 and 6, with 200 hosts and 20 coflows per second",
            "RPC is more than 99 % below random places, by Varys or by fair sharing, and 46.5 to 65 % below NEAT; fewer than \
             10 % of the coflows take longer than by NEAT, at most 15 % longer.",
        ),
        why: drawn::WHY_THOUSAND,
        columns: drawn::COLUMNS,
        axis: "coflows",
        plots: &[CCTS, BETTER],
        input: Input::DrawnAlone,
        rows: drawn::thousand,
    },
    Entry {
        name: "conservation",
        about: "starting reducers wherever there is room",
        setup: drawn::AS_FOR_WIDTH,
        paper: (
            "§VI-B, figure 8",
            "With few coflows it makes no difference; with many, work conservation takes longer.",
        ),
        why: "A reducer that has started cannot move, and hosts of 0.1 Gbit/s take four hundred times as long as \
              those of 40: one such reducer holds up its coflow, however few coflows there are.",
        columns: drawn::COLUMNS,
        axis: "coflows per second",
        plots: &[PlotOf::Ratios(
            "average_cct_s",
            "seconds, mean over coflows",
        )],
        input: Input::Drawn,
        rows: drawn::conservation,
    },
    Entry {
        name: "time",
        about: "how long a decision takes",
        setup: "one coflow of as many mappers and reducers as hosts, one core; the median and the longest of a \
                hundred.",
        paper: (
            "§VI-B, figure 9",
            "About 0.35 ms with 500 mappers and 500 reducers.",
        ),
        why: "Another machine, and no linear program: hosts and reducers are sorted.",
        columns: &["median_ms", "longest_ms"],
        axis: "hosts",
        plots: &[PlotOf::Series("median_ms", "ms, median")],
        input: Input::Nothing,
        rows: drawn::time,
    },
    Entry {
        name: "trace",
        about: "the public trace, by every scheduler",
        setup: "526 coflows on 150 racks of 128 MiB/s each way; a megabyte of the trace is a mebibyte. `coflowsim` are the \
                rules of the public simulator, in its steps.",
        paper: (
            "the public coflow simulator",
            "27.860 s on average by the smallest effective bottleneck, 68.938 s by its fair sharing.",
        ),
        why: "By its rules its errors of arithmetic decide who starves for a while, so the same sums are made in \
              the same order; what is left are 4 coflows by up to 0.3 %. From event to event, and without \
              admissions every ten seconds, coflows are sooner complete.",
        columns: &[
            "average_cct_s",
            "median_cct_s",
            "longest_cct_s",
            "simulated_in_s",
        ],
        axis: "",
        plots: &[
            PlotOf::Bars("average_cct_s", "seconds, mean over coflows"),
            PlotOf::Values {
                curve: "ccts",
                of: "percent of the coflows",
                x: "seconds",
                ratios: true,
            },
        ],
        input: Input::Trace,
        rows: drawn::trace,
    },
];
