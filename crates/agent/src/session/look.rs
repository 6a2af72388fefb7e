//! An agent that is to say what of an object is here and whether the rest could be put here, and to
//! change nothing.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use outpour_core::manifest::{MANIFEST_BYTES_MAX, Manifest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::audit::Entry;
use super::farewell::skip_parts;
use super::hold::{Job, watched};
use super::{SILENCE_MAX, SessionError, SessionOptions, needs, unable, unsigned};
use crate::budget::Memory;
use crate::cast::in_time;
use crate::control::{AgentSays, CommandSays, PART_BYTES, read_frame_within, write_frame};

/// Reads a manifest of so many bytes from the channel; `None` if it is not needed any more.
///
/// # Errors
/// If the control channel breaks, a part is long in coming, or something else comes.
async fn manifest(
    len: usize,
    reader: &mut (impl AsyncRead + Unpin),
) -> Result<Option<Vec<u8>>, SessionError> {
    let mut encoded = Vec::new();
    while encoded.len() < len {
        let said = timeout(SILENCE_MAX, read_frame_within(reader, 2 * PART_BYTES)).await;
        match said.map_err(|_| nonsense("a part is missing"))?? {
            CommandSays::Part(part) if !part.is_empty() && part.len() <= len - encoded.len() => {
                encoded.extend(part);
            }
            CommandSays::Dismiss => return Ok(None),
            _ => return Err(nonsense("something else came")),
        }
    }
    Ok(Some(encoded))
}

fn nonsense(what: impl Display) -> SessionError {
    SessionError::Admission(format!("the manifest: {what}"))
}

/// What is to be looked for.
pub(super) struct Asked {
    /// The bytes of the path where it would be.
    pub(super) path: Vec<u8>,
    /// Length of the manifest that follows.
    pub(super) manifest_bytes: u32,
    /// Whether it is to be put there; a relay keeps nothing of it.
    pub(super) keeps: bool,
    /// A signature of the manifest's id.
    pub(super) signature: Option<Vec<u8>>,
}

/// Looks at the path and answers; the place of a relay, which keeps nothing, is not read.
///
/// # Errors
/// If the control channel breaks, or what follows is no manifest.
pub(super) async fn look(
    asked: Asked,
    options: &SessionOptions,
    entry: &Entry,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<(), SessionError> {
    let Asked {
        path,
        manifest_bytes,
        keeps,
        signature,
    } = asked;
    let len = manifest_bytes as usize;
    if len > MANIFEST_BYTES_MAX {
        return Err(nonsense(format!("{len} bytes are too many")));
    }
    let memory = match &options.caller {
        Some(caller) => caller.memory(needs::PART + len as u64).await,
        None => Ok(Memory::default()),
    };
    let mut memory = match memory {
        Ok(memory) => memory,
        Err(full) => {
            let skipped = in_time(skip_parts(len, reader)).await;
            skipped.map_err(|error| SessionError::Admission(error.to_string()))?;
            return unable(entry, full.to_string(), writer).await;
        }
    };
    let Some(encoded) = manifest(len, reader).await? else {
        return Ok(());
    };
    if let Err(full) = memory.grow_to(needs::PART + needs::reading(&encoded)) {
        return unable(entry, full.to_string(), writer).await;
    }
    let manifest = Manifest::decode(&encoded).map_err(nonsense)?;
    drop(encoded);
    let mut path = PathBuf::from(OsStr::from_bytes(&path));
    let unsigned = unsigned(&options.signers, &manifest.id().0, signature.as_deref());
    let roots = options.roots.clone();
    let looked = move |job: &Job| {
        // As long as the manifest is there.
        let _memory = memory;
        let roots = roots.as_deref();
        if !keeps {
            // A relay's is a directory, whatever the object is.
            path.push("");
            let unable = outpour_store::preflight(&path, roots, &manifest, None);
            return Ok((0, unable.err()));
        }
        let count = |bytes| {
            job.read.fetch_add(bytes, Ordering::Relaxed);
        };
        let have = outpour_store::look(&path, roots, &manifest, &job.stop, &count)?;
        let unable = outpour_store::preflight(&path, roots, &manifest, Some(&have));
        let lens = have.iter();
        let lens = lens.map(|block| u64::from(manifest.block_len(block)));
        Ok((lens.sum(), unable.err()))
    };
    if let Some((have_bytes, unable)) = watched(looked, options, entry, writer).await? {
        entry.accept();
        let unable = unsigned.or_else(|| unable.map(|error| error.to_string()));
        write_frame(writer, &AgentSays::Looked { have_bytes, unable }).await?;
    }
    Ok(())
}
