//! One plain TCP copy, which everything is compared with: iperf3 between two nodes.

use std::time::{Duration, Instant};

use outpour_core::Bytes;
use serde::Deserialize;

use super::stage::Stage;
use crate::ExperimentError;
use crate::lab::Lab;

/// How long the listener may take to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);
pub(crate) const PROGRAM: &str = "iperf3";
/// The Debian package that has it.
pub(crate) const PACKAGE: &str = "iperf3";

#[derive(Deserialize)]
struct Said {
    error: Option<String>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bytes: f64,
}

/// Copies so much from one node to another; returns how many seconds it took.
pub(crate) fn copy(
    lab: &Lab,
    stage: &Stage<'_>,
    [from, to]: [&str; 2],
    size: Bytes,
    max: Duration,
) -> Result<f64, ExperimentError> {
    let mut listener = stage.command(to, PROGRAM);
    listener.args(["-s", "-1"]);
    let listener = lab.start(listener, "listener")?;
    let begun = Instant::now();
    loop {
        let mut sender = stage.command(from, PROGRAM);
        sender.args(["-c", to, "-J", "-n", &size.0.to_string()]);
        match seconds(&lab.output(sender, max)?, size) {
            Err(_) if begun.elapsed() < LISTENS_WITHIN => {}
            done => {
                drop(listener);
                return done;
            }
        }
    }
}

/// The time that so many bytes took.
fn seconds(said: &str, size: Bytes) -> Result<f64, ExperimentError> {
    let setup = |why: String| ExperimentError::Setup(format!("{PROGRAM}: {why}"));
    let said: Said = serde_json::from_str(said).map_err(|error| setup(error.to_string()))?;
    if let Some(error) = said.error {
        return Err(setup(error));
    }
    let sum = said.end.and_then(|end| end.sum_received);
    let sum = sum.filter(|sum| sum.bytes > 0.0);
    let sum = sum.ok_or_else(|| setup("nothing was received".to_owned()))?;
    // It sends whole buffers, so a little more than it was asked for.
    Ok(sum.seconds * size.as_f64() / sum.bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_copy_takes_its_share_of_what_was_received() {
        let said = r#"{"end": {"sum_received": {"seconds": 2.0, "bytes": 4000, "x": 1}}}"#;
        assert_eq!(seconds(said, Bytes(1000)).unwrap(), 0.5);
        let refused = r#"{"error": "unable to connect", "end": {}}"#;
        let error = seconds(refused, Bytes(1)).unwrap_err().to_string();
        assert!(error.contains("unable to connect"), "{error}");
        assert!(seconds(r#"{"end": {}}"#, Bytes(1)).is_err());
    }
}
