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
pub enum BatchOrder {
    /// A batch begins when every node has the one before.
    Sequential,
    /// Algorithm 1: the earliest batch that the receiver lacks, of two at a time.
    Overlap1,
    /// Algorithm 2: the next batch begins after k + C rounds and comes first for log n rounds; the
    /// one after that begins when both should be done.
    Overlap2,
    /// Theorem 2: each batch begins log n / 2 rounds before every node has the one before, and
    /// comes first until then. No node can know that moment beforehand: here a run without the next
    /// batch tells.
    Hindsight,
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
    pub order: BatchOrder,
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

/// What came of it; serializes to the JSON that `outpour-lab sim gossip` prints.
#[derive(Clone, Debug, Serialize)]
pub struct RoundsReport {
    /// How many nodes.
    pub nodes: u32,
    /// How many blocks a batch has.
    pub blocks: u16,
    /// How many batches.
    pub batches: u32,
    /// What was sent.
    pub scheme: Scheme,
    /// In which order.
    pub order: BatchOrder,
    /// Rounds until every node had everything.
    pub rounds: Quantiles,
    /// The fewest that any schedule needs: the blocks of all batches and log2 n, rounded up.
    pub bound_rounds: u32,
    /// The share of seeds that took at most [`SLACK_ROUNDS`] more.
    pub within_slack: f64,
    /// Rounds until every node had each batch, on average over the seeds.
    pub batch_rounds: Vec<f64>,
    /// The rounds that the order saves against [`BatchOrder::Sequential`] with the same seeds, on
    /// average.
    pub saving_rounds: f64,
    /// What Corollary 3 promises at least that [`BatchOrder::Hindsight`] saves, on average, with the
    /// constant 2.7/(1 - 2/sqrt n); nothing for few nodes. It does not speak of the other orders.
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
pub fn run(config: Config) -> Result<RoundsReport, Refused> {
    if !(2..=NODES_MAX).contains(&config.nodes) {
        return Err(Refused::Nodes(config.nodes));
    }
    if !(1..=BATCH_BLOCKS_MAX).contains(&config.blocks) {
        return Err(Refused::Blocks(config.blocks));
    }
    if !(1..=BATCHES_MAX).contains(&config.batches) {
        return Err(Refused::Batches(config.batches));
    }
    let runs = runs(config)?;
    let last = |run: &Vec<u32>| run.iter().copied().max().unwrap_or(0);
    let seeds: Vec<u32> = runs.iter().map(last).collect();
    let mut saving_rounds = 0.0;
    if config.order != BatchOrder::Sequential && config.batches > 1 {
        let order = BatchOrder::Sequential;
        let others = self::runs(Config { order, ..config })?;
        saving_rounds = mean(others.iter().map(last)) - mean(seeds.iter().copied());
    }
    let bound_rounds = bound(config);
    let within = |rounds: &&u32| **rounds <= bound_rounds + SLACK_ROUNDS;
    let average = |batch: usize| mean(runs.iter().map(|run| run[batch]));
    Ok(RoundsReport {
        nodes: config.nodes,
        blocks: config.blocks,
        batches: config.batches,
        scheme: config.scheme,
        order: config.order,
        rounds: quantiles(&seeds).ok_or(Refused::Seeds)?,
        bound_rounds,
        within_slack: seeds.iter().filter(within).count() as f64 / seeds.len() as f64,
        batch_rounds: (0..config.batches as usize).map(average).collect(),
        saving_rounds,
        saving_bound_rounds: saving_bound(config.nodes, config.batches),
        seeds,
    })
}

/// Runs each seed: in which round every node had each batch.
fn runs(config: Config) -> Result<Vec<Vec<u32>>, Refused> {
    let seeds = (0..u64::from(config.seeds)).map(|index| config.seed + index);
    seeds.map(|seed| finish(config, seed)).collect()
}

/// What overlapping with hindsight saves at least, by Corollary 3, on average.
pub fn saving_bound(nodes: u32, batches: u32) -> f64 {
    let each = f64::from(half_log(nodes)) - delay_bound(nodes);
    f64::from(batches.saturating_sub(1)) * each.max(0.0)
}

/// By how much overlapping with hindsight delays the first batch at most, by Theorem 2, on average;
/// infinite for few nodes, of which it says nothing.
pub fn delay_bound(nodes: u32) -> f64 {
    let share = 1.0 - 2.0 / f64::from(nodes).sqrt();
    if share > 0.0 {
        2.7 / share
    } else {
        f64::INFINITY
    }
}

/// Half of the logarithm, rounded down: the l of Theorem 2.
const fn half_log(nodes: u32) -> u32 {
    nodes.ilog2() / 2
}

fn bound(config: Config) -> u32 {
    u32::from(config.blocks) * config.batches + log(config.nodes)
}

/// The logarithm, rounded up.
const fn log(nodes: u32) -> u32 {
    nodes.next_power_of_two().ilog2()
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
    if config.order != BatchOrder::Hindsight {
        return play(config, seed, begins(config));
    }
    let mut begins = vec![0];
    loop {
        let batches = begins.len() as u32;
        let finished = play(Config { batches, ..config }, seed, begins.clone())?;
        if batches >= config.batches {
            return Ok(finished);
        }
        let [.., last] = finished[..] else {
            return Ok(finished);
        };
        let before = finished.iter().rev().nth(1).copied().unwrap_or(0);
        begins.push(last.saturating_sub(half_log(config.nodes)).max(before));
    }
}

/// After which round each batch begins, where that is fixed: batch b + 1 of Algorithm 2 after
/// length + b (length + log n).
fn begins(config: Config) -> Vec<u32> {
    let length = u32::from(config.blocks) + config.slack;
    let begin = |batch: u32| match batch.checked_sub(1) {
        Some(before) => length + before * (length + log(config.nodes)),
        None => 0,
    };
    (0..config.batches).map(begin).collect()
}

/// Plays one seed: in which round every node had each batch.
fn play(config: Config, seed: u64, begins: Vec<u32>) -> Result<Vec<u32>, Refused> {
    let mut dice = Dice::new(mix(seed, 0x726f_756e));
    let mut rounds = Rounds::new(config, begins);
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
    /// After which round each batch begins, if the order goes by that.
    begins: Vec<u32>,
}

impl Rounds {
    fn new(config: Config, begins: Vec<u32>) -> Self {
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
            begins,
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
            BatchOrder::Sequential => (first..count.min(first + 1)).collect(),
            BatchOrder::Overlap1 => (first..count.min(first + 2)).collect(),
            BatchOrder::Overlap2 => self.order_by_begins(round, first, log(self.config.nodes)),
            BatchOrder::Hindsight => {
                self.order_by_begins(round, first, half_log(self.config.nodes))
            }
        }
    }

    /// The batches that have begun; the last of them comes first for `lead` rounds.
    fn order_by_begins(&self, round: u32, first: usize, lead: u32) -> Vec<usize> {
        let begun = self.begins.iter().take_while(|begin| **begin < round);
        let last = begun.count().saturating_sub(1);
        let mut order: Vec<usize> = (first..=last).collect();
        // Where all is done that has begun, there is no reason to wait.
        if order.is_empty() && first < self.parts.len() {
            order.push(first);
        }
        if last > first && round - self.begins[last] <= lead {
            order.pop();
            order.insert(0, last);
        }
        order
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
            order: BatchOrder::Sequential,
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

    fn several(order: BatchOrder, nodes: u32, batches: u32, seeds: u32) -> RoundsReport {
        let config = Config {
            batches,
            order,
            ..config(nodes, 40, seeds)
        };
        run(config).unwrap()
    }

    #[test]
    fn overlapping_saves_rounds() {
        let [sequential, first, second] = [
            BatchOrder::Sequential,
            BatchOrder::Overlap1,
            BatchOrder::Overlap2,
        ]
        .map(|order| several(order, 64, 3, 12));
        let means = [&sequential, &first, &second].map(|report| report.rounds.mean);
        assert!(means[0] > means[1] && means[1] > means[2], "{means:?}");
        assert!((means[0] - means[2] - second.saving_rounds).abs() < 1e-9);
        assert!(means[2] >= f64::from(second.bound_rounds));
    }

    #[test]
    fn two_batches_of_algorithm_2_take_little_longer_than_any_schedule_must() {
        // k1 + log n + C + k2, as the paper expects.
        let report = several(BatchOrder::Overlap2, 100, 2, 12);
        let expected = f64::from(report.bound_rounds + SLACK_ROUNDS);
        assert!(report.rounds.mean <= expected + 1.0, "{report:?}");
    }

    #[test]
    fn hindsight_saves_what_the_corollary_promises_and_delays_the_first_batch_little() {
        let [sequential, hindsight] =
            [BatchOrder::Sequential, BatchOrder::Hindsight].map(|order| several(order, 300, 3, 4));
        assert!(hindsight.saving_bound_rounds > 1.8, "{hindsight:?}");
        assert!(hindsight.saving_rounds >= hindsight.saving_bound_rounds);
        let delay = hindsight.batch_rounds[0] - sequential.batch_rounds[0];
        assert!((0.0..=delay_bound(300)).contains(&delay), "{delay}");
    }

    #[test]
    fn nothing_is_promised_to_few_nodes() {
        for nodes in [2, 3, 4, 16, 64] {
            assert_eq!(saving_bound(nodes, 5), 0.0);
        }
        assert!(delay_bound(4).is_infinite() && delay_bound(5) > 20.0);
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
