//! The file in which a monitor of links says what latency-sensitive traffic there is.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use outpour_core::text::escape;
use outpour_core::{Network, Traffic};
use tokio::sync::watch;

use super::sim;
use crate::out::{self, Failure};

/// How often it is looked whether the file has changed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it may be.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// What the file says, now and whenever it changes, as long as anybody listens; nothing without a file.
///
/// # Errors
/// If the file cannot be read now, or is wrong. Later that is said, and what was said before holds.
pub(super) fn follow(
    path: Option<&Path>,
    network: &Network,
) -> Result<watch::Receiver<Vec<Traffic>>, Failure> {
    let Some(path) = path else {
        return Ok(watch::channel(Vec::new()).1);
    };
    let (shown, text) = sim::text(path, "traffic", TEXT_BYTES_MAX)?;
    let now = Traffic::read(&text, &shown, network);
    let (sender, receiver) = watch::channel(now.map_err(|e| Failure::Failed(e.to_string()))?);
    if shown.starts_with("standard input") {
        return Ok(receiver);
    }
    let follower = Follower {
        path: path.to_owned(),
        network: network.clone(),
        text,
        complained: String::new(),
    };
    let follow = thread::Builder::new().name("traffic".to_owned());
    let follow = follow.spawn(move || follower.run(&sender));
    follow.map_err(|error| Failure::Failed(format!("cannot follow {shown}: {error}")))?;
    Ok(receiver)
}

struct Follower {
    path: PathBuf,
    network: Network,
    /// What the file said last.
    text: String,
    /// What was last said to be wrong with it.
    complained: String,
}

impl Follower {
    fn run(mut self, sender: &watch::Sender<Vec<Traffic>>) {
        while !sender.is_closed() {
            thread::sleep(LOOK_EVERY);
            match self.look() {
                Ok(Some(traffic)) => {
                    self.complained.clear();
                    sender.send_replace(traffic);
                }
                Ok(None) => {}
                // Each fault is said once: the file is looked at again soon.
                Err(error) if error == self.complained => {}
                Err(error) => {
                    out::complain(format_args!("{error}; what it said before holds"));
                    self.complained = error;
                }
            }
        }
    }

    /// What the file says, if that has changed.
    fn look(&mut self) -> Result<Option<Vec<Traffic>>, String> {
        let shown = self.path.display().to_string();
        let shown = escape(&shown);
        let cannot = |why: String| format!("{shown}: cannot read the traffic: {why}");
        // A monitor that replaces the file may have removed it first.
        let about = fs::metadata(&self.path).map_err(|error| cannot(error.to_string()))?;
        if !about.is_file() || about.len() > TEXT_BYTES_MAX as u64 {
            return Err(cannot(format!(
                "it is no file of at most {TEXT_BYTES_MAX} bytes"
            )));
        }
        let text = fs::read_to_string(&self.path).map_err(|error| cannot(error.to_string()))?;
        if text == self.text {
            return Ok(None);
        }
        let traffic = Traffic::read(&text, &shown, &self.network);
        let traffic = traffic.map_err(|error| error.to_string())?;
        self.text = text;
        Ok(Some(traffic))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn what_changes_in_the_file_is_told_and_what_is_wrong_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("traffic");
        let network = Network::from_toml(
            "[[cluster]]\nname = \"a\"\nnodes = 1\n[[cluster]]\nname = \"b\"\nnodes = 1\n\
             [[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"10 MB/s\"",
            "test",
        )
        .unwrap();
        let write = |text: &str| {
            let new = dir.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, &path).unwrap();
        };
        write("a b 1 MB/s\n");
        let mut told = follow(Some(&path), &network).unwrap();
        let rate = |told: &mut watch::Receiver<Vec<Traffic>>| {
            let now = told.borrow_and_update();
            now.iter()
                .map(|it| it.rate.bytes_per_s() / 1e6)
                .sum::<f64>()
        };
        assert_eq!(rate(&mut told), 1.0);
        // Of two changes that are seen, the first is wrong, and what was said before it holds.
        write("a c 5 MB/s\n");
        let seen = tokio::time::timeout(4 * LOOK_EVERY, told.changed()).await;
        assert!(seen.is_err(), "{:?}", rate(&mut told));
        write("a b 3 MB/s\n");
        let seen = tokio::time::timeout(Duration::from_secs(20), told.changed()).await;
        seen.unwrap().unwrap();
        assert_eq!(rate(&mut told), 3.0);
        assert!(follow(Some(&dir.path().join("none")), &network).is_err());
    }
}
