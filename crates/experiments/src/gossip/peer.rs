//! A BitTorrent client in the same network, to compare with: aria2.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::cast::COPIES;
use super::processor::Sampler;
use super::report::Trial;
use super::stage::Stage;
use super::tracker::PORT;
use super::{node, receivers};
use crate::ExperimentError;
use crate::lab::{Lab, Running};

/// Its program.
pub(crate) const PROGRAM: &str = "aria2c";
/// What has to be installed to have it.
pub(crate) const PACKAGE: &str = "aria2";
/// Size of a piece, as clients choose it for an object of this size.
const PIECE: usize = 256 << 10;
/// The port on which each peer listens.
const LISTEN: &str = "6881";
/// How long the source may take to look at what it has.
const READY_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A torrent file for a file.
fn torrent(tracker: &str, path: &Path) -> Result<Vec<u8>, ExperimentError> {
    let content = fs::read(path).map_err(|e| ExperimentError::file(path, &e))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let sha1 = &ring::digest::SHA1_FOR_LEGACY_USE_ONLY;
    let hashes: Vec<u8> = content
        .chunks(PIECE)
        .flat_map(|piece| ring::digest::digest(sha1, piece).as_ref().to_vec())
        .collect();
    let mut text = format!(
        "d8:announce{}:{tracker}4:infod6:lengthi{}e4:name{}:{name}12:piece lengthi{PIECE}e6:pieces{}:",
        tracker.len(),
        content.len(),
        name.len(),
        hashes.len()
    )
    .into_bytes();
    text.extend_from_slice(&hashes);
    text.extend_from_slice(b"ee");
    Ok(text)
}

/// Has all nodes fetch the object from its source and from one another.
pub(crate) fn race(
    lab: &Lab,
    stage: &Stage<'_>,
    object: &Path,
    nodes: usize,
    max: Duration,
) -> Result<Trial, ExperimentError> {
    lab.clear(COPIES)?;
    let source = node(0);
    let mut tracker = stage.command(&source, lab.program());
    tracker.args(["bench", "tracker"]);
    let mut tracker = lab.start(tracker, "tracker")?;
    until(&mut tracker, READY_WITHIN, "the tracker listens", |said| {
        said.starts_with("listening")
    })?;
    let address = format!("http://{source}:{PORT}/announce");
    let torrent = lab.write("torrent", &torrent(&address, object)?)?;
    let peer = |name: &str, directory: &Path| {
        let mut command = stage.command(name, PROGRAM);
        command
            .args(["--no-conf", "--enable-dht=false", "--bt-enable-lpd=false"])
            .args([
                "--seed-ratio=0.0",
                "--file-allocation=none",
                "--summary-interval=0",
            ])
            .args(["--bt-max-peers=0", "--check-integrity=true", "--quiet"])
            .args(["--disable-ipv6=true", "--listen-port", LISTEN, "--dir"])
            .arg(directory)
            .arg(&torrent);
        lab.start(command, &format!("peer-{name}"))
    };
    // The first to ask is the source, when it has looked at what it has.
    let home = object.parent().unwrap_or_else(|| Path::new("."));
    let mut peers = vec![peer(&source, home)?];
    until(&mut tracker, READY_WITHIN, "its source is ready", |said| {
        said.lines().count() > 1
    })?;
    let begun = Instant::now();
    for name in receivers(nodes) {
        let directory = lab.path(COPIES).join(&name);
        fs::create_dir_all(&directory).map_err(|e| ExperimentError::file(&directory, &e))?;
        peers.push(peer(&name, &directory)?);
    }
    let mut sampler = Sampler::new(stage.name(), &[&[PROGRAM]]);
    let mut trial = Trial::new("BitTorrent: aria2", None);
    let mut finished = BTreeSet::new();
    // A node that has all asks once more to say so.
    while finished.len() < nodes {
        sampler.look(begun.elapsed(), &source);
        let said = tracker.printed()?;
        let done = said.lines().filter_map(|line| line.strip_suffix(" 0"));
        let at = begun.elapsed().as_secs_f64();
        for address in done {
            if finished.insert(address.to_owned()) && finished.len() > 1 {
                let count = finished.len() - 1;
                let curve = trial.curves.entry("finished".to_owned());
                curve.or_default().push((at, count as f64));
            }
        }
        if begun.elapsed() > max {
            let count = finished.len().saturating_sub(1);
            let why = format!("{PROGRAM}: {count} have it after {} s", max.as_secs());
            return Err(ExperimentError::Setup(why));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    trial.finish_s = Some(begun.elapsed().as_secs_f64());
    trial.set("processor_s", sampler.total_s());
    for (name, curve) in sampler.curves() {
        trial.curves.insert(name.to_owned(), curve);
    }
    Ok(trial)
}

/// Waits until a program has printed what is waited for.
fn until(
    running: &mut Running,
    max: Duration,
    what: &str,
    is_there: impl Fn(&str) -> bool,
) -> Result<(), ExperimentError> {
    let begun = Instant::now();
    while !is_there(&running.printed()?) {
        if running.ended()?.is_some() {
            running.said()?;
        }
        if begun.elapsed() > max {
            let why = format!("{PROGRAM}: not seen after {} s: {what}", max.as_secs());
            return Err(ExperimentError::Setup(why));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_torrent_names_its_tracker_and_hashes_every_piece() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("object");
        fs::write(&path, vec![0; PIECE + 1]).unwrap();
        let torrent = torrent("http://n0:1/a", &path).unwrap();
        let head = b"d8:announce13:http://n0:1/a4:infod6:lengthi262145e4:name6:object12:piece \
                     lengthi262144e6:pieces40:";
        assert!(torrent.starts_with(head), "{}", torrent.escape_ascii());
        assert_eq!(torrent.len(), head.len() + 40 + 2);
        // What sha1sum says of a byte of nothing.
        let last = "5ba93c9db0cff93f52b521d7420e43f6eda2784f";
        let hex: String = torrent[head.len() + 20..head.len() + 40]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, last);
    }
}
