//! Jobs as they came to a provider of online services in a week [BDS §2.1].
//!
//! The paper gives a few points of each distribution. Between them, shares of sites are drawn
//! linearly and sizes log-linearly; the ends are chosen here: 2 sites, 10 GB and 100 TB, the largest
//! data of its experiments. It says nothing about arrivals but their number, so they are a Poisson
//! process of which the number is known. Sources and sets of destinations have "great diversity":
//! they are drawn evenly. Table 1 has how much of each application's traffic is multicast, and not
//! how much of the multicast is whose; as only multicast is drawn, nothing follows from it.

use std::fmt::Write;
use std::time::Duration;

use outpour_controller::TEXT_BYTES_MAX;
use outpour_core::Bytes;
use outpour_core::network::{ClusterId, Network};

use crate::dice::Dice;

/// How many transfers the paper counted.
pub const TRANSFERS: u32 = 1265;
/// In how many days.
pub const DAYS: f64 = 7.0;
/// With fewer sites there is no multicast between them.
const SITES_MIN: u32 = 3;

/// Shares of transfers, and the share of the sites that so many do not exceed [BDS figure 2a].
pub(super) const SITES: [(f64, f64); 4] = [(0.0, 0.0), (0.1, 0.6), (0.3, 0.8), (1.0, 1.0)];
/// Shares of transfers, and the size in bytes that so many do not exceed [BDS figure 2b].
pub(super) const SIZES: [(f64, f64); 4] = [(0.0, 1e10), (0.1, 5e10), (0.4, 1e12), (1.0, 1e14)];

/// How jobs are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// The same seed, the same jobs.
    pub seed: u64,
    /// How many there are.
    pub count: u32,
    /// Within how many days they start; above 0.
    pub days: f64,
    /// By what sizes are multiplied; above 0.
    pub scale: f64,
}

/// An object that goes from one site to several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// After the beginning.
    pub start: Duration,
    /// Of the object.
    pub size: Bytes,
    /// Whose servers have it.
    pub from: ClusterId,
    /// Who gets a copy, in ascending order: 2 at least, and never the source.
    pub to: Vec<ClusterId>,
}

/// Why no jobs can be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The network is too small.
    #[error("the network has {0} sites; a multicast needs {SITES_MIN}")]
    Sites(u32),
    /// A length of time or a factor that is none.
    #[error("{0} is to be a number above 0")]
    Number(&'static str),
    /// Nobody could read the file.
    #[error("so many jobs make a file of more than {TEXT_BYTES_MAX} bytes, which is not read")]
    TooLong,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            seed: 1,
            count: TRANSFERS,
            days: DAYS,
            scale: 1.0,
        }
    }
}

impl Workload {
    /// Draws transfers between so many sites, in the order in which they start.
    ///
    /// Of `sites`, a transfer reaches all but its source at most.
    ///
    /// # Errors
    /// If there are fewer than three sites, or a number is out of range.
    ///
    /// ```
    /// use outpour_experiments::replicate::workload::Workload;
    /// let week = Workload::default().draw(30)?;
    /// assert_eq!(week.len(), 1265);
    /// assert!(week.windows(2).all(|pair| pair[0].start <= pair[1].start));
    /// # Ok::<(), outpour_experiments::replicate::workload::WorkloadError>(())
    /// ```
    pub fn draw(&self, sites: u32) -> Result<Vec<Transfer>, WorkloadError> {
        if sites < SITES_MIN {
            return Err(WorkloadError::Sites(sites));
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let span = Duration::try_from_secs_f64(self.days * 86_400.0);
        let (true, Ok(span)) = (positive(self.days), span) else {
            return Err(WorkloadError::Number("the number of days"));
        };
        if !positive(self.scale) {
            return Err(WorkloadError::Number("the factor of sizes"));
        }
        let mut dice = Dice::new(self.seed);
        let mut all: Vec<Transfer> = (0..self.count)
            .map(|_| {
                let seconds = dice.share() * span.as_secs_f64();
                let start = Duration::from_millis((seconds * 1e3) as u64);
                let size = at(&SIZES.map(|(share, size)| (share, size.ln())), dice.share()).exp();
                let size = Bytes(((size * self.scale).round() as u64).max(1));
                let share = at(&SITES, dice.share());
                let (from, to) = ends(&mut dice, sites, share);
                Transfer {
                    start,
                    size,
                    from,
                    to,
                }
            })
            .collect();
        all.sort_by_key(|transfer| transfer.start);
        Ok(all)
    }

    /// Draws transfers between the sites of a network, as a file of jobs.
    ///
    /// # Errors
    /// As for [`Workload::draw`], or if the file would be too long.
    pub fn file(&self, network: &Network) -> Result<String, WorkloadError> {
        let transfers = self.draw(network.clusters().len() as u32)?;
        let Self {
            seed,
            count,
            days,
            scale,
        } = self;
        let mut text =
            format!("# {count} jobs within {days} days, sizes x {scale}, seed {seed}.\n");
        let name = |site: &ClusterId| quoted(&network.clusters()[site.index()].name);
        for (number, transfer) in (1..).zip(&transfers) {
            let to: Vec<String> = transfer.to.iter().map(name).collect();
            let _ = write!(
                text,
                "\n[[job]]\nname = \"transfer {number}\"\nsize = \"{} B\"\nfrom = [{}]\nsites = [{}]\n\
                 start = \"{} ms\"\n",
                transfer.size.0,
                name(&transfer.from),
                to.join(", "),
                transfer.start.as_millis(),
            );
            if text.len() > TEXT_BYTES_MAX {
                return Err(WorkloadError::TooLong);
            }
        }
        Ok(text)
    }
}

/// The value of a function that is linear between its points, which ascend.
pub(super) fn at(points: &[(f64, f64)], x: f64) -> f64 {
    let mut pairs = points.windows(2);
    let around = pairs.find(|pair| x <= pair[1].0);
    let last = points.last().map_or(0.0, |(_, y)| *y);
    around.map_or(last, |pair| {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    })
}

/// A source and so large a share of all sites, without it, drawn evenly.
fn ends(dice: &mut Dice, sites: u32, share: f64) -> (ClusterId, Vec<ClusterId>) {
    // Rounded up, so that no share is below what was drawn but where all others are reached.
    let count = ((share * f64::from(sites)).ceil() as usize).clamp(2, sites as usize - 1);
    let mut order: Vec<ClusterId> = (0..sites).map(ClusterId).collect();
    // The beginning of a random permutation: the source and its destinations.
    for place in 0..=count {
        let left = order.len() - place;
        let other = place + ((dice.share() * left as f64) as usize).min(left - 1);
        order.swap(place, other);
    }
    let mut to = order[1..=count].to_vec();
    to.sort_unstable();
    (order[0], to)
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for symbol in text.chars() {
        let _ = match symbol {
            '"' | '\\' => write!(quoted, "\\{symbol}"),
            symbol if symbol.is_control() => write!(quoted, "\\u{:04X}", u32::from(symbol)),
            symbol => write!(quoted, "{symbol}"),
        };
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_controller::{Destinations, read_jobs};

    use super::*;

    fn share(of: &[Transfer], which: impl Fn(&Transfer) -> bool) -> f64 {
        of.iter().filter(|transfer| which(transfer)).count() as f64 / of.len() as f64
    }

    #[test]
    fn a_week_is_distributed_as_the_paper_found_it() {
        for seed in 1..=5 {
            let drawn = Workload {
                seed,
                ..Workload::default()
            };
            let week = drawn.draw(30).unwrap();
            assert_eq!(week.len(), 1265);
            let near = |found: f64, said: f64| assert!((found - said).abs() < 0.04, "{found}");
            near(share(&week, |it| it.to.len() >= 18), 0.9);
            near(share(&week, |it| it.to.len() > 24), 0.7);
            near(share(&week, |it| it.size.0 > 1_000_000_000_000), 0.6);
            near(share(&week, |it| it.size.0 > 50_000_000_000), 0.9);
            // Arrivals are even over the days.
            let day = Duration::from_secs(86_400);
            near(share(&week, |it| it.start < day), 1.0 / 7.0);
            assert!(week.iter().all(|it| it.start < 7 * day));
        }
    }

    #[test]
    fn nobody_sends_to_itself_and_everybody_sends() {
        let week = Workload::default().draw(10).unwrap();
        for transfer in &week {
            assert!(!transfer.to.contains(&transfer.from), "{transfer:?}");
            assert!(transfer.to.windows(2).all(|pair| pair[0] < pair[1]));
            assert!((2..=9).contains(&transfer.to.len()));
        }
        for site in (0..10).map(ClusterId) {
            let sends = share(&week, |it| it.from == site);
            assert!((0.07..0.13).contains(&sends), "{sends}");
        }
    }

    #[test]
    fn a_seed_is_a_workload() {
        let one = Workload::default();
        let two = Workload { seed: 2, ..one };
        assert_eq!(one.draw(12), one.draw(12));
        assert_ne!(one.draw(12), two.draw(12));
    }

    #[test]
    fn the_file_says_what_was_drawn() {
        let network = "[[cluster]]\nname = \"a\"\nnodes = 2\n[[cluster]]\nname = \"b\"\nnodes = 1\n\
            [[cluster]]\nname = \"c\"\nnodes = 1\n[[cluster]]\nname = \"d\"\nnodes = 1\n";
        let network = Network::from_toml(network, "net.toml").unwrap();
        let drawn = Workload {
            count: 40,
            scale: 1e-3,
            ..Workload::default()
        };
        let transfers = drawn.draw(4).unwrap();
        let jobs = read_jobs(&drawn.file(&network).unwrap(), "jobs.toml", &network).unwrap();
        assert_eq!(jobs.refused, []);
        let jobs = jobs.jobs;
        assert_eq!(jobs.len(), transfers.len());
        for (named, transfer) in jobs.iter().zip(transfers) {
            assert_eq!(named.job.size, transfer.size);
            assert!((1e7..1e11).contains(&named.job.size.as_f64()));
            assert_eq!(named.job.destinations, Destinations::Sites(transfer.to));
            assert_eq!(named.job.start, outpour_core::Time::ZERO + transfer.start);
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let week = Workload::default();
        assert_eq!(week.draw(2), Err(WorkloadError::Sites(2)));
        for days in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            let error = Workload { days, ..week }.draw(9);
            assert_eq!(error, Err(WorkloadError::Number("the number of days")));
        }
        let error = Workload { scale: 0.0, ..week }.draw(9);
        assert_eq!(error, Err(WorkloadError::Number("the factor of sizes")));
        assert_eq!(quoted("a\"\\\n"), "\"a\\\"\\\\\\u000A\"");
    }
}
