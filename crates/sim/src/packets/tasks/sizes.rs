//! How large objects are.

use outpour_core::text::excerpt;
use rand_core::RngCore;

use super::uniform;

/// A table of sizes is not larger, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// An object has at most so many packets.
pub const PACKETS_MAX: f64 = 1e9;
/// The sizes that the paper scales its distribution to, packets [PPUSH §V-B].
pub const PAPER_RANGE: (f64, f64) = (2.0 * 1024.0, 200.0 * 1024.0);

/// A distribution of sizes in packets: a piecewise linear cumulative distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Size and cumulative probability, both growing; the last probability is 1.
    points: Vec<(f64, f64)>,
}

/// What is wrong with a table of sizes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SizesError {
    /// A line that cannot be.
    #[error("{file}:{line}: {problem}")]
    Line {
        /// The name of the table.
        file: String,
        /// Which line, from one.
        line: usize,
        /// What is wrong with it.
        problem: LineProblem,
    },
    /// Nothing in it.
    #[error(
        "{file}: there is no line `SIZE PROBABILITY`, expected sizes in packets with cumulative probabilities"
    )]
    Empty {
        /// The name of the table.
        file: String,
    },
}

/// What is wrong with a line of a table of sizes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// More or fewer than two numbers.
    #[error("expected a size and a probability, found {found} values")]
    Columns {
        /// How many there are.
        found: usize,
    },
    /// A size out of range.
    #[error("expected a size from 1 to 1e9 packets, found `{}`", excerpt(found))]
    Size {
        /// What is there.
        found: String,
    },
    /// A probability out of range.
    #[error("expected a probability from 0 to 1, found `{}`", excerpt(found))]
    Probability {
        /// What is there.
        found: String,
    },
    /// Something shrinks.
    #[error("the {what} is below that of the line before; both only grow")]
    Shrinks {
        /// Which of the two.
        what: &'static str,
    },
    /// The last probability.
    #[error("the last probability is {found}, expected 1")]
    Last {
        /// What is there.
        found: f64,
    },
}

impl Sizes {
    /// All objects have so many packets; none if that is not from 1 to 1e9.
    pub fn fixed(packets: u64) -> Option<Self> {
        let packets = packets as f64;
        (1.0..=PACKETS_MAX).contains(&packets).then(|| Self {
            points: vec![(packets, 1.0)],
        })
    }

    /// Reads a table: in each line a size in packets and the probability that an object is no larger.
    /// Empty lines and those that begin with `#` say nothing. `file` is its name in messages.
    ///
    /// # Errors
    /// Names the line, what was found and what was expected there.
    pub fn parse(text: &str, file: &str) -> Result<Self, SizesError> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut last = 0;
        let fail = |line, problem| SizesError::Line {
            file: file.to_owned(),
            line,
            problem,
        };
        for (line, text) in (1..).zip(text.lines().map(str::trim)) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            last = line;
            let point = read(text).map_err(|problem| fail(line, problem))?;
            if let Some(before) = points.last() {
                for (what, before, now) in [
                    ("size", before.0, point.0),
                    ("probability", before.1, point.1),
                ] {
                    if now < before {
                        return Err(fail(line, LineProblem::Shrinks { what }));
                    }
                }
            }
            points.push(point);
        }
        match points.last() {
            None => Err(SizesError::Empty {
                file: file.to_owned(),
            }),
            Some((_, found)) if *found < 1.0 => {
                Err(fail(last, LineProblem::Last { found: *found }))
            }
            Some(_) => Ok(Self { points }),
        }
    }

    /// The least and the largest size, packets.
    pub fn range(&self) -> (f64, f64) {
        let ends = self.points.first().zip(self.points.last());
        ends.map_or((1.0, 1.0), |(first, last)| (first.0, last.0))
    }

    /// The mean size, packets.
    pub fn mean(&self) -> f64 {
        let first = self.points.first().map_or(0.0, |(size, at)| size * at);
        let pieces = self.points.windows(2).map(|pair| {
            let [(a, from), (b, to)] = [pair[0], pair[1]];
            (a + b) / 2.0 * (to - from)
        });
        first + pieces.sum::<f64>()
    }

    /// The same with sizes moved to another range, linearly; to its lower end if all are equal. A range
    /// that begins below 1 begins at 1.
    #[must_use]
    pub fn scaled(mut self, range: (f64, f64)) -> Self {
        let (low, high) = self.range();
        let to = |size: f64| {
            let place = if high > low {
                (size - low) / (high - low)
            } else {
                0.0
            };
            (range.0 + place * (range.1 - range.0)).clamp(1.0, PACKETS_MAX)
        };
        for (size, _) in &mut self.points {
            *size = to(*size);
        }
        self
    }

    /// The same with all sizes multiplied; none is below 1 or above 1e9 packets.
    #[must_use]
    pub fn times(mut self, factor: f64) -> Self {
        for (size, _) in &mut self.points {
            *size = (*size * factor).clamp(1.0, PACKETS_MAX);
        }
        self
    }

    /// Draws a size, whole packets.
    pub fn draw(&self, dice: &mut impl RngCore) -> u64 {
        let drawn = uniform(dice);
        let after = self.points.partition_point(|(_, at)| *at < drawn);
        let after = after.min(self.points.len().saturating_sub(1));
        let (size, at) = self.points[after];
        let size = match after.checked_sub(1).map(|before| self.points[before]) {
            Some((before, from)) if at > from => {
                before + (size - before) * (drawn - from) / (at - from)
            }
            _ => size,
        };
        (size.round() as u64).max(1)
    }
}

fn read(text: &str) -> Result<(f64, f64), LineProblem> {
    let columns: Vec<&str> = text.split_whitespace().collect();
    let &[size, probability] = &columns[..] else {
        let found = columns.len();
        return Err(LineProblem::Columns { found });
    };
    let within = |text: &str, low: f64, high: f64| {
        let number = text.parse().ok();
        number.filter(|number: &f64| (low..=high).contains(number))
    };
    let found = size.to_owned();
    let size = within(size, 1.0, PACKETS_MAX).ok_or(LineProblem::Size { found })?;
    let found = probability.to_owned();
    let probability = within(probability, 0.0, 1.0).ok_or(LineProblem::Probability { found })?;
    Ok((size, probability))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn drawn_sizes_follow_the_table() {
        let sizes = Sizes::parse("# sizes\n10 0\n10 0.5\n\n30 0.75\n110 1\n", "t").unwrap();
        assert_eq!(sizes.range(), (10.0, 110.0));
        assert_eq!(sizes.mean(), 5.0 + 5.0 + 17.5);
        let mut dice = Pcg64Mcg::seed_from_u64(1);
        let drawn: Vec<u64> = (0..40_000).map(|_| sizes.draw(&mut dice)).collect();
        let share = |low: u64, high: u64| {
            let within = drawn.iter().filter(|it| (low..=high).contains(it)).count();
            within as f64 / drawn.len() as f64
        };
        assert!((share(10, 10) - 0.5).abs() < 0.02, "{}", share(10, 10));
        assert!((share(31, 70) - 0.125).abs() < 0.02);
        let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        assert!((mean / sizes.mean() - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn scaling_moves_both_ends() {
        let sizes = Sizes::parse("6 0\n20000 1", "t").unwrap();
        let scaled = sizes.scaled(PAPER_RANGE).times(2.0);
        assert_eq!(scaled.range(), (4096.0, 409_600.0));
        let fixed = Sizes::fixed(7).unwrap();
        assert_eq!((fixed.mean(), fixed.range()), (7.0, (7.0, 7.0)));
        assert_eq!(Sizes::fixed(0), None);
    }

    #[test]
    fn bad_tables_name_the_line() {
        for (text, message) in [
            (
                "6 0\n0 1",
                "t:2: expected a size from 1 to 1e9 packets, found `0`",
            ),
            (
                "6 0\nNaN 1",
                "t:2: expected a size from 1 to 1e9 packets, found `NaN`",
            ),
            (
                "6 0 1",
                "t:1: expected a size and a probability, found 3 values",
            ),
            ("6 2", "t:1: expected a probability from 0 to 1, found `2`"),
            (
                "6 0.5\n5 1",
                "t:2: the size is below that of the line before; both only grow",
            ),
            (
                "5 0.5\n6 0.4",
                "t:2: the probability is below that of the line before; both only grow",
            ),
            (
                "5 0.5\n6 0.9\n\n",
                "t:2: the last probability is 0.9, expected 1",
            ),
        ] {
            assert_eq!(Sizes::parse(text, "t").unwrap_err().to_string(), message);
        }
        assert!(Sizes::parse("# nothing\n", "t").is_err());
    }
}
