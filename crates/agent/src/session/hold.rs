//! An agent that is to be a source: what is there is looked at and read before it is admitted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outpour_core::manifest::{BlockSize, Manifest};
use outpour_store::{BuildOptions, Error, Roots, Shape, Source, Survey};
use tokio::io::{AsyncRead, AsyncWrite};

use super::audit::Entry;
use super::{SessionError, SessionOptions, unable};
use crate::content;
use crate::control::{AgentSays, CommandSays, Described, PART_BYTES, read_frame, write_frame};

/// How often the command hears how far the source was read.
const EVERY: Duration = Duration::from_millis(500);

/// An object that this host has.
pub(crate) struct Held {
    pub(crate) manifest: Manifest,
    pub(crate) source: Source,
}

/// Describes an object to the `receivers` that are to get it.
pub(crate) fn describe(manifest: &Manifest, encoded: &[u8], receivers: usize) -> Described {
    Described {
        manifest: content::offer(encoded, receivers),
        content: manifest.content(),
        size: manifest.size().0,
        blocks: manifest.blocks(),
        entries: manifest.entries().len() as u64,
        file_name: match Shape::of(manifest) {
            Shape::Tree => None,
            Shape::File(name) => Some(name),
        },
    }
}

/// Looks at what is at `path` and reads it once the command has said in which blocks. `None` if it
/// cannot be read, which the command was told, or is not wanted any more.
///
/// # Errors
/// If the control channel breaks, or the command says something else.
pub(super) async fn hold(
    path: &[u8],
    options: &SessionOptions,
    entry: &Entry,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<Option<Held>, SessionError> {
    let path = PathBuf::from(OsStr::from_bytes(path));
    let roots = options.roots.clone();
    let surveyed = move |_: &AtomicU64| survey(&path, roots.as_deref());
    let Some(survey) = watched(surveyed, entry, writer).await? else {
        return Ok(None);
    };
    entry.accept();
    let size = survey.size().0;
    write_frame(writer, &AgentSays::Surveyed { size }).await?;
    let (block_bytes, receivers, wanted) = match read_frame(reader).await? {
        CommandSays::Hash {
            block_bytes,
            receivers,
            manifest,
        } => (block_bytes, receivers, manifest),
        CommandSays::Dismiss => {
            entry.end();
            return Ok(None);
        }
        _ => return Err(SessionError::Admission("a source has to be read".into())),
    };
    let hashed = move |hashed: &AtomicU64| {
        let options = BuildOptions {
            block: BlockSize::Given(block_bytes),
            ..BuildOptions::default()
        };
        let count = |bytes| {
            hashed.fetch_add(bytes, Ordering::Relaxed);
        };
        let (manifest, source) = survey.hash(&options, &count)?;
        let described = describe(&manifest, &manifest.encode(), receivers as usize);
        Ok((Held { manifest, source }, described))
    };
    let Some((held, described)) = watched(hashed, entry, writer).await? else {
        return Ok(None);
    };
    write_frame(writer, &AgentSays::Hashed(Box::new(described))).await?;
    if wanted {
        for part in held.manifest.encode().chunks(PART_BYTES) {
            write_frame(writer, &AgentSays::Part(part.to_vec())).await?;
        }
    }
    Ok(Some(held))
}

fn survey(path: &Path, roots: Option<&Roots>) -> Result<Survey, Error> {
    match roots {
        Some(roots) => Survey::beneath(path, roots),
        None => Survey::of(path),
    }
}

/// Does work on the disk, and says meanwhile how many bytes it has read. `None` if it fails, which
/// was said.
pub(super) async fn watched<T: Send + 'static>(
    work: impl FnOnce(&AtomicU64) -> Result<T, Error> + Send + 'static,
    entry: &Entry,
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<Option<T>, SessionError> {
    let read = Arc::new(AtomicU64::new(0));
    let counter = read.clone();
    let mut done = tokio::task::spawn_blocking(move || work(&counter));
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let done = tokio::select! {
            done = &mut done => done,
            _ = tick.tick() => {
                let bytes = read.load(Ordering::Relaxed);
                write_frame(writer, &AgentSays::Hashing { bytes }).await?;
                continue;
            }
        };
        return match done {
            Ok(Ok(done)) => Ok(Some(done)),
            Ok(Err(error)) => {
                unable(entry, error.to_string(), writer).await?;
                Ok(None)
            }
            Err(panic) => Err(SessionError::Admission(panic.to_string())),
        };
    }
}
