//! What a figure will be next time, from what it was: several simple predictors run over the
//! history, and the one that has been right most often so far speaks.
//!
//! No single predictor suits all paths: on a quiet one the mean is best, on one that changes the
//! last value, with outliers a median [Burger §2.4.3].

use serde::Serialize;

/// How many values before it each sliding predictor looks at.
const WINDOWS: [usize; 3] = [5, 10, 20];
/// Weights of the newest value in exponential smoothing.
const GAINS: [f64; 4] = [0.1, 0.25, 0.5, 0.75];

/// A prediction of the next value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// The value.
    pub value: f64,
    /// By how much this predictor was wrong on average.
    pub error: f64,
    /// The predictor.
    pub by: String,
}

#[derive(Clone, Copy, Debug)]
enum Predictor {
    Last,
    Mean,
    SlidingMean(usize),
    SlidingMedian(usize),
    Smoothed(f64),
}

impl Predictor {
    fn all() -> impl Iterator<Item = Self> {
        let windows = WINDOWS.into_iter();
        [Self::Last, Self::Mean]
            .into_iter()
            .chain(windows.clone().map(Self::SlidingMean))
            .chain(windows.map(Self::SlidingMedian))
            .chain(GAINS.into_iter().map(Self::Smoothed))
    }

    fn name(self) -> String {
        match self {
            Self::Last => "last value".to_owned(),
            Self::Mean => "mean of all".to_owned(),
            Self::SlidingMean(window) => format!("mean of {window}"),
            Self::SlidingMedian(window) => format!("median of {window}"),
            Self::Smoothed(gain) => format!("smoothed by {gain}"),
        }
    }

    /// What it says after a history that is not empty.
    fn next(self, past: &[f64]) -> Option<f64> {
        let tail = |window: usize| &past[past.len().saturating_sub(window)..];
        match self {
            Self::Last => past.last().copied(),
            Self::Mean => mean(past),
            Self::SlidingMean(window) => mean(tail(window)),
            Self::SlidingMedian(window) => {
                let mut sorted = tail(window).to_vec();
                sorted.sort_by(f64::total_cmp);
                sorted.get(sorted.len() / 2).copied()
            }
            Self::Smoothed(gain) => past
                .iter()
                .copied()
                .reduce(|state, value| state + gain * (value - state)),
        }
    }

    /// By how much it was wrong on average over a history.
    fn error(self, history: &[f64]) -> Option<f64> {
        let wrong: Vec<f64> = (1..history.len())
            .filter_map(|at| Some((self.next(&history[..at])? - history[at]).abs()))
            .collect();
        mean(&wrong)
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Predicts the next value after `history`, oldest first; `None` if that has fewer than two.
///
/// ```
/// use outpour_probe::forecast::forecast;
/// let quiet = forecast(&[9.0, 11.0, 9.0, 11.0, 9.0, 11.0]).unwrap();
/// assert!((quiet.value - 10.0).abs() < 1.0);
/// ```
pub fn forecast(history: &[f64]) -> Option<Forecast> {
    let scored =
        Predictor::all().filter_map(|predictor| Some((predictor.error(history)?, predictor)));
    let (error, best) = scored.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    Some(Forecast {
        value: best.next(history)?,
        error,
        by: best.name(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_kind_of_path_has_its_predictor() {
        let steps: Vec<f64> = (0..40).map(|n| f64::from(n / 10)).collect();
        assert_eq!(forecast(&steps).unwrap().by, "last value");
        let outliers: Vec<f64> = (0..40)
            .map(|n| if n % 7 == 3 { 100.0 } else { 5.0 })
            .collect();
        let found = forecast(&outliers).unwrap();
        assert!(found.by.starts_with("median"), "{found:?}");
        assert_eq!(found.value, 5.0);
        let noise: Vec<f64> = (0..60_i32).map(|n| f64::from(n * 7919 % 101)).collect();
        assert_ne!(forecast(&noise).unwrap().by, "last value");
    }

    #[test]
    fn a_forecast_needs_a_past() {
        assert_eq!(forecast(&[]), None);
        assert_eq!(forecast(&[1.0]), None);
        let two = forecast(&[1.0, 3.0]).unwrap();
        assert_eq!(
            (two.error, two.value >= 1.0 && two.value <= 3.0),
            (2.0, true)
        );
    }
}
