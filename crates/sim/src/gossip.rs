//! Gossip in rounds: the model in which [Cooper §2-4] analyses it.
//!
//! Time is slotted. In each round a random permutation of the nodes is drawn, and every node sends
//! one block to its successor; nothing else exists, no delay, no message, no busy receiver. Coded
//! blocks have real coefficient vectors over GF(2^8). So the analysis can be held against what
//! happens, and the asynchronous protocol against both.

use outpour_coding::{Span, draw_coefficients};
use outpour_core::batches::BATCH_BLOCKS_MAX;
use serde::Serialize;

use crate::dice::{Dice, mix};

/// Most nodes of a gossip in rounds.
pub const NODES_MAX: u32 = 4096;
/// Most batches.
pub const BATCHES_MAX: u32 = 1024;
/// A gossip that takes so many times the least number of rounds, and as many more, is given up.
const ROUNDS_FACTOR: u32 = 20;
const ROUNDS_MORE: u32 = 1000;
/// The rounds within which coded gossip finishes beyond the optimum, as the paper simulates.
pub const SLACK_ROUNDS: u32 = 4;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Random linear combinations of what the sender has of a batch.
    Rlnc,
    /// A random block that the sender has and the receiver lacks.
    RandomBlock,
}

/// In which order the batches are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// A batch begins when every node has the one before.
    Sequential,
    /// Algorithm 1: the earliest batch that the receiver lacks, of two at a time.
    Overlap1,
    /// Algorithm 2: the next batch begins after k + C rounds and comes first for log n rounds.
    Overlap2,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many nodes, the source included.
    pub nodes: u32,
    /// How many blocks a batch has.
    pub blocks: u16,
    /// How many batches.
    pub batches: u32,
    /// What is sent.
    pub scheme: Scheme,
    /// In which order.
    pub order: Order,
    /// The constant C of Algorithm 2.
    pub slack: u32,
    /// How many seeds.
    pub seeds: u32,
    /// The first.
    pub seed: u64,
}

/// Why a gossip in rounds cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The number of nodes.
    #[error("{0} nodes: a gossip has 2 to {NODES_MAX}")]
    Nodes(u32),
    /// The number of blocks.
    #[error("{0} blocks: a batch has 1 to {BATCH_BLOCKS_MAX}")]
    Blocks(u16),
    /// The number of batches.
    #[error("{0} batches: there are 1 to {BATCHES_MAX}")]
    Batches(u32),
    /// No seeds.
    #[error("no seeds to run")]
    Seeds,
    /// It does not end.
    #[error("seed {seed} is not done after {rounds} rounds")]
    Endless {
        /// The seed.
        seed: u64,
        /// How many rounds it ran.
        rounds: u32,
    },
}

/// What came of it; serializes to the JSON that `outpour sim gossip` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How many nodes.
    pub nodes: u32,
    /// How many blocks a batch has.
    pub blocks: u16,
    /// How many batches.
    pub batches: u32,
    /// What was sent.
    pub scheme: Scheme,
    /// In which order.
    pub order: Order,
    /// Rounds until every node had everything.
    pub rounds: Quantiles,
    /// The fewest that any schedule needs: the blocks of all batches and log2 n, rounded up.
    pub bound_rounds: u32,
    /// The share of seeds that took at most [`SLACK_ROUNDS`] more.
    pub within_slack: f64,
    /// Rounds until every node had each batch, on average over the seeds.
    pub batch_rounds: Vec<f64>,
    /// What Corollary 3 promises that overlapping saves of the last batch's rounds, on average,
    /// with the constant 2.7/(1 - 2/sqrt n); less than nothing for few nodes.
    pub saving_bound_rounds: f64,
    /// Rounds of each seed.
    pub seeds: Vec<u32>,
}

/// How a number is spread over the seeds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantiles {
    /// The average.
    pub mean: f64,
    /// The least.
    pub min: u32,
    /// As much as half of the seeds at most.
    pub p50: u32,
    /// As much as 95 % of the seeds at most.
    pub p95: u32,
    /// The most.
    pub max: u32,
}

/// Runs all seeds.
///
/// # Errors
/// If there is nothing sensible to run, or a run does not end.
pub fn run(config: Config) -> Result<Report, Refused> {
    if !(2..=NODES_MAX).contains(&config.nodes) {
        return Err(Refused::Nodes(config.nodes));
    }
    if !(1..=BATCH_BLOCKS_MAX).contains(&config.blocks) {
        return Err(Refused::Blocks(config.blocks));
    }
    if !(1..=BATCHES_MAX).contains(&config.batches) {
        return Err(Refused::Batches(config.batches));
    }
    let runs = (0..u64::from(config.seeds)).map(|index| finish(config, config.seed + index));
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    let last = |run: &Vec<u32>| run.iter().copied().max().unwrap_or(0);
    let seeds: Vec<u32> = runs.iter().map(last).collect();
    let bound_rounds = bound(config);
    let within = |rounds: &&u32| **rounds <= bound_rounds + SLACK_ROUNDS;
    let average = |batch: usize| mean(runs.iter().map(|run| run[batch]));
    Ok(Report {
        nodes: config.nodes,
        blocks: config.blocks,
        batches: config.batches,
        scheme: config.scheme,
        order: config.order,
        rounds: quantiles(&seeds).ok_or(Refused::Seeds)?,
        bound_rounds,
        within_slack: seeds.iter().filter(within).count() as f64 / seeds.len() as f64,
        batch_rounds: (0..config.batches as usize).map(average).collect(),
        saving_bound_rounds: saving_bound(config.nodes, config.batches),
        seeds,
    })
}

/// What overlapping saves at least, by Corollary 3, on average.
pub fn saving_bound(nodes: u32, batches: u32) -> f64 {
    let n = f64::from(nodes);
    let delay = 2.7 / (1.0 - 2.0 / n.sqrt());
    f64::from(batches.saturating_sub(1)) * ((n.log2() / 2.0).floor() - delay)
}

fn bound(config: Config) -> u32 {
    u32::from(config.blocks) * config.batches + config.nodes.next_power_of_two().ilog2()
}

fn mean(values: impl ExactSizeIterator<Item = u32>) -> f64 {
    let count = values.len() as f64;
    values.map(f64::from).sum::<f64>() / count
}

fn quantiles(values: &[u32]) -> Option<Quantiles> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    };
    Some(Quantiles {
        mean: mean(sorted.iter().copied()),
        min: *sorted.first()?,
        p50: at(0.5)?,
        p95: at(0.95)?,
        max: *sorted.last()?,
    })
}

/// In which round every node had each batch.
fn finish(config: Config, seed: u64) -> Result<Vec<u32>, Refused> {
    let mut dice = Dice::new(mix(seed, 0x726f_756e));
    let mut rounds = Rounds::new(config);
    let most = bound(config) * ROUNDS_FACTOR + ROUNDS_MORE;
    for round in 1..=most {
        rounds.play(round, &mut dice);
        if rounds.lacking.iter().all(|lacking| *lacking == 0) {
            return Ok(rounds.finished);
        }
    }
    let rounds = most;
    Err(Refused::Endless { seed, rounds })
}

/// What a node has of a batch.
enum Part {
    /// All of it.
    Whole,
    /// Combinations.
    Coded(Span),
    /// Blocks.
    Blocks(Vec<bool>),
}

impl Part {
    fn new(config: Config) -> Self {
        let size = usize::from(config.blocks);
        match (config.scheme, Span::new(size)) {
            (Scheme::Rlnc, Ok(span)) => Self::Coded(span),
            _ => Self::Blocks(vec![false; size]),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Whole => false,
            Self::Coded(span) => span.rank() == 0,
            Self::Blocks(have) => !have.contains(&true),
        }
    }

    const fn is_whole(&self) -> bool {
        matches!(self, Self::Whole)
    }
}

/// What goes from one node to another.
enum Sent {
    Vector(Vec<u8>),
    Block(usize),
}

struct Rounds {
    config: Config,
    /// By batch, then node.
    parts: Vec<Vec<Part>>,
    /// How many nodes lack each batch.
    lacking: Vec<u32>,
    finished: Vec<u32>,
    ring: Vec<u32>,
}

impl Rounds {
    fn new(config: Config) -> Self {
        let part = |node| match node {
            0 => Part::Whole,
            _ => Part::new(config),
        };
        let nodes = || (0..config.nodes).map(part).collect();
        let count = config.batches as usize;
        Self {
            config,
            parts: (0..count).map(|_| nodes()).collect(),
            lacking: vec![config.nodes - 1; count],
            finished: vec![0; count],
            ring: (0..config.nodes).collect(),
        }
    }

    /// Every node sends to its successor what it had when the round began.
    fn play(&mut self, round: u32, dice: &mut Dice) {
        for last in (1..self.ring.len()).rev() {
            self.ring.swap(last, dice.below(last as u64 + 1) as usize);
        }
        let order = self.order(round);
        let mut sent = Vec::with_capacity(self.ring.len());
        for (at, from) in self.ring.iter().enumerate() {
            let to = self.ring[(at + 1) % self.ring.len()] as usize;
            sent.extend(self.send(&order, *from as usize, to, dice));
        }
        for (batch, to, what) in sent {
            self.receive(round, batch, to, &what);
        }
    }

    /// The batches that may be sent in a round, the preferred ones first.
    fn order(&self, round: u32) -> Vec<usize> {
        let count = self.parts.len();
        let first = self.lacking.iter().position(|lacking| *lacking > 0);
        let first = first.unwrap_or(count);
        match self.config.order {
            Order::Sequential => (first..count.min(first + 1)).collect(),
            Order::Overlap1 => (first..count.min(first + 2)).collect(),
            Order::Overlap2 => {
                let length = u32::from(self.config.blocks) + self.config.slack;
                let log = self.config.nodes.next_power_of_two().ilog2();
                // Batch b + 1 begins after length + b (length + log) rounds.
                let begun = match (round - 1).checked_sub(length) {
                    None => 0,
                    Some(after) => after / (length + log) + 1,
                };
                let since = (round - 1)
                    .checked_sub(length)
                    .map(|it| it % (length + log));
                let begun = (begun as usize).min(count - 1);
                let mut order: Vec<usize> = (first..=begun).collect();
                // Where all is done that has begun, there is no reason to wait.
                if order.is_empty() && first < count {
                    order.push(first);
                }
                if begun > 0 && since.is_some_and(|since| since < log) {
                    order.retain(|batch| *batch != begun);
                    order.insert(0, begun);
                }
                order
            }
        }
    }

    fn send(
        &self,
        order: &[usize],
        from: usize,
        to: usize,
        dice: &mut Dice,
    ) -> Option<(usize, usize, Sent)> {
        let can = |batch: &&usize| {
            !self.parts[**batch][to].is_whole() && !self.parts[**batch][from].is_empty()
        };
        for batch in order.iter().filter(can) {
            let (ours, theirs) = (&self.parts[*batch][from], &self.parts[*batch][to]);
            if let Some(sent) = draw(self.config, ours, theirs, dice) {
                return Some((*batch, to, sent));
            }
        }
        None
    }

    fn receive(&mut self, round: u32, batch: usize, to: usize, what: &Sent) {
        let part = &mut self.parts[batch][to];
        let whole = match (&mut *part, what) {
            (Part::Coded(span), Sent::Vector(vector)) => {
                span.insert(vector).is_ok() && span.is_full()
            }
            (Part::Blocks(have), Sent::Block(block)) => {
                have[*block] = true;
                !have.contains(&false)
            }
            _ => false,
        };
        if whole {
            *part = Part::Whole;
            self.lacking[batch] -= 1;
            if self.lacking[batch] == 0 {
                self.finished[batch] = round;
            }
        }
    }
}

/// What one node sends another of a batch.
fn draw(config: Config, ours: &Part, theirs: &Part, dice: &mut Dice) -> Option<Sent> {
    let size = usize::from(config.blocks);
    let mut vector = vec![0; size];
    match (ours, theirs) {
        (Part::Whole, Part::Coded(_)) => {
            draw_coefficients(dice.generator(), &mut vector);
            Some(Sent::Vector(vector))
        }
        (Part::Coded(span), _) => {
            let mut weights = vec![0; span.rank()];
            draw_coefficients(dice.generator(), &mut weights);
            span.combine(&weights, &mut vector).ok()?;
            Some(Sent::Vector(vector))
        }
        (ours, Part::Blocks(theirs)) => {
            let have = |block: &usize| match ours {
                Part::Blocks(have) => have[*block],
                _ => true,
            };
            let useful: Vec<usize> = (0..size).filter(|b| have(b) && !theirs[*b]).collect();
            let drawn = dice.below(useful.len() as u64) as usize;
            useful.get(drawn).map(|block| Sent::Block(*block))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(nodes: u32, blocks: u16, seeds: u32) -> Config {
        Config {
            nodes,
            blocks,
            batches: 1,
            scheme: Scheme::Rlnc,
            order: Order::Sequential,
            slack: 1,
            seeds,
            seed: 1,
        }
    }

    #[test]
    fn coded_gossip_takes_hardly_more_than_any_schedule_must() {
        for (nodes, blocks) in [(2, 10), (20, 60), (64, 40)] {
            let report = run(config(nodes, blocks, 20)).unwrap();
            assert!(report.rounds.min >= report.bound_rounds.min(u32::from(blocks)));
            assert!(report.within_slack >= 0.9, "{report:?}");
        }
    }

    #[test]
    fn without_coding_it_takes_far_longer() {
        let coded = run(config(20, 100, 10)).unwrap();
        let scheme = Scheme::RandomBlock;
        let random = run(Config {
            scheme,
            ..config(20, 100, 10)
        });
        let more = random.unwrap().rounds.mean - coded.rounds.mean;
        assert!((10.0..60.0).contains(&more), "{more}");
    }

    #[test]
    fn overlapping_saves_rounds() {
        let with = |order| {
            let several = Config {
                batches: 3,
                order,
                ..config(64, 40, 12)
            };
            run(several).unwrap()
        };
        let [sequential, first, second] =
            [Order::Sequential, Order::Overlap1, Order::Overlap2].map(with);
        let means = [&sequential, &first, &second].map(|report| report.rounds.mean);
        assert!(means[0] > means[1] && means[1] > means[2], "{means:?}");
        assert!(means[0] - means[2] >= second.saving_bound_rounds);
        assert!(means[2] >= f64::from(second.bound_rounds));
    }

    #[test]
    fn the_same_seed_gives_the_same_rounds() {
        let [one, other] = [(); 2].map(|()| run(config(10, 20, 3)).unwrap().seeds);
        assert_eq!(one, other);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (nodes, blocks, batches, seeds) in
            [(1, 1, 1, 1), (2, 0, 1, 1), (2, 257, 1, 1), (2, 1, 0, 1)]
        {
            let odd = Config {
                batches,
                ..config(nodes, blocks, seeds)
            };
            assert!(run(odd).is_err());
        }
        assert_eq!(run(config(2, 1, 0)).unwrap_err(), Refused::Seeds);
    }
}
