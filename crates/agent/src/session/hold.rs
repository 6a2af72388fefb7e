//! An agent that is to be a source: what is there is looked at and read before it is admitted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outpour_core::manifest::{BlockSize, Manifest};
use outpour_store::{Attributes, BuildOptions, Error, Roots, Shape, Source, Stop, Survey};
use tokio::io::{AsyncRead, AsyncWrite};

use super::audit::Entry;
use super::places::Place;
use super::{SessionError, SessionOptions, said, unable};
use crate::budget::Memory;
use crate::content;
use crate::control::{AgentSays, CommandSays, Described, PART_BYTES, write_frame};

/// How often the command hears how far the source was read.
const EVERY: Duration = Duration::from_millis(500);

/// An object that this host has.
pub(crate) struct Held {
    pub(crate) manifest: Manifest,
    pub(crate) source: Source,
    /// What both take of a service's memory.
    pub(super) memory: Memory,
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
    archive: bool,
    options: &SessionOptions,
    entry: &Entry,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<Option<Held>, SessionError> {
    let path = PathBuf::from(OsStr::from_bytes(path));
    let roots = options.roots.clone();
    let surveyed = move |_: &Job| survey(&path, archive, roots.as_deref());
    let Some(survey) = watched(surveyed, options, entry, writer).await? else {
        return Ok(None);
    };
    entry.accept();
    let size = survey.size().0;
    write_frame(writer, &AgentSays::Surveyed { size }).await?;
    let (block_bytes, receivers, wanted) = match said(reader, options.caller.as_ref()).await?.0 {
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
    let needs = survey.memory(block_bytes).0;
    let memory = match &options.caller {
        Some(caller) => caller.memory(needs).await,
        None => Ok(Memory::default()),
    };
    let memory = match memory {
        Ok(memory) => memory,
        Err(full) => {
            unable(entry, full.to_string(), writer).await?;
            return Ok(None);
        }
    };
    let hashed = move |job: &Job| {
        let options = BuildOptions {
            stop: job.stop.clone(),
            block: BlockSize::Given(block_bytes),
            ..BuildOptions::default()
        };
        let count = |bytes| {
            job.read.fetch_add(bytes, Ordering::Relaxed);
        };
        let (manifest, source) = survey.hash(&options, &count)?;
        let described = describe(&manifest, &manifest.encode(), receivers as usize);
        let held = Held {
            manifest,
            source,
            memory,
        };
        Ok((held, described))
    };
    let Some((held, described)) = watched(hashed, options, entry, writer).await? else {
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

fn survey(path: &Path, archive: bool, roots: Option<&Roots>) -> Result<Survey, Error> {
    let keep = Attributes::if_archive(archive);
    match roots {
        Some(roots) => Survey::beneath(path, roots, keep),
        None => Survey::of(path, keep),
    }
}

/// Work on the disk.
#[derive(Default)]
pub(super) struct Job {
    /// How many bytes it has read.
    pub(super) read: AtomicU64,
    /// Ends it when nobody waits for it any more.
    pub(super) stop: Stop,
}

/// Stops a job when it is dropped.
struct Watch(Arc<Job>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.stop.stop();
    }
}

/// Does work on the disk, and says meanwhile how many bytes it has read. `None` if it fails, which
/// was said.
///
/// Work that nobody waits for any more ends as soon as the disk lets it, and keeps its place until then:
/// whoever calls and goes again and again has no more of it under way than places.
pub(super) async fn watched<T: Send + 'static>(
    work: impl FnOnce(&Job) -> Result<T, Error> + Send + 'static,
    options: &SessionOptions,
    entry: &Entry,
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<Option<T>, SessionError> {
    watched_at(work, options.place(), entry, writer).await
}

async fn watched_at<T: Send + 'static>(
    work: impl FnOnce(&Job) -> Result<T, Error> + Send + 'static,
    place: Option<Arc<Place>>,
    entry: &Entry,
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<Option<T>, SessionError> {
    let watch = Watch(Arc::default());
    let job = watch.0.clone();
    let mut done = tokio::task::spawn_blocking(move || {
        let _place = place;
        work(&job)
    });
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let done = tokio::select! {
            done = &mut done => done,
            _ = tick.tick() => {
                let bytes = watch.0.read.load(Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc;

    use super::super::places::Places;
    use super::*;

    /// A disk that hangs: the job goes on after its command went away, and so does its place.
    #[tokio::test]
    async fn a_job_that_nobody_waits_for_is_stopped_and_keeps_its_place_until_it_ends() {
        let places = Places::default();
        let survey = CommandSays::Survey {
            path: Vec::new(),
            archive: false,
        };
        let place = Arc::new(places.enter("ana", &survey).unwrap());
        let others = Arc::downgrade(&place);
        let (near, mut far) = tokio::io::duplex(1024);
        let (mut reader, mut writer) = tokio::io::split(near);
        let (began, begun) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel();
        let job = move |job: &Job| {
            began.send(()).unwrap();
            wait.recv().unwrap();
            ended.send(job.stop.clone()).unwrap();
            Err::<(), _>(Error::Stopped)
        };
        let entry = Entry::default();
        let abandoned = tokio::spawn(async move {
            watched_at(job, Some(place), &entry, &mut writer)
                .await
                .map(drop)
        });
        tokio::task::spawn_blocking(move || begun.recv().unwrap())
            .await
            .unwrap();
        abandoned.abort();
        assert!(abandoned.await.unwrap_err().is_cancelled());
        assert!(others.upgrade().is_some(), "the disk is busy still");
        go_on.send(()).unwrap();
        let stop = tokio::task::spawn_blocking(move || end.recv().unwrap());
        let stop = stop.await.unwrap();
        assert!(stop.is_stopped());
        while others.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
        let _ = (&mut reader, &mut far);
    }
}
