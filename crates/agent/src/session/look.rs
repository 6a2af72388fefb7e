//! An agent that is to say what of an object is here and whether the rest could be put here, and to
//! change nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use outpour_core::manifest::{MANIFEST_BYTES_MAX, Manifest};
use tokio::io::{AsyncRead, AsyncWrite};

use super::audit::Entry;
use super::hold::watched;
use super::{SessionError, SessionOptions, unsigned};
use crate::control::{AgentSays, CommandSays, read_frame, write_frame};

/// Reads a manifest of so many bytes from the channel; `None` if it is not needed any more.
///
/// # Errors
/// If the control channel breaks, or the message is no manifest.
pub(super) async fn manifest(
    manifest_bytes: u32,
    reader: &mut (impl AsyncRead + Unpin),
) -> Result<Option<Manifest>, SessionError> {
    let nonsense = |what: String| SessionError::Admission(format!("the manifest: {what}"));
    let len = manifest_bytes as usize;
    if len > MANIFEST_BYTES_MAX {
        return Err(nonsense(format!("{len} bytes are too many")));
    }
    let mut encoded = Vec::new();
    while encoded.len() < len {
        match read_frame(reader).await? {
            CommandSays::Part(part) if !part.is_empty() && part.len() <= len - encoded.len() => {
                encoded.extend(part);
            }
            CommandSays::Dismiss => return Ok(None),
            _ => return Err(nonsense("something else came".to_owned())),
        }
    }
    let manifest = Manifest::decode(&encoded).map_err(|error| nonsense(error.to_string()))?;
    Ok(Some(manifest))
}

/// What is to be looked for.
pub(super) struct Asked {
    /// The bytes of the path where it would be.
    pub(super) path: Vec<u8>,
    pub(super) manifest: Manifest,
    /// Whether it is to be put there; a relay keeps nothing of it.
    pub(super) keeps: bool,
    /// A signature of the manifest's id.
    pub(super) signature: Option<Vec<u8>>,
}

/// Looks at the path and answers; the place of a relay, which keeps nothing, is not read.
///
/// # Errors
/// If the control channel breaks.
pub(super) async fn look(
    asked: Asked,
    options: &SessionOptions,
    entry: &Entry,
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<(), SessionError> {
    let Asked {
        path,
        manifest,
        keeps,
        signature,
    } = asked;
    let mut path = PathBuf::from(OsStr::from_bytes(&path));
    let unsigned = unsigned(&options.signers, &manifest.id().0, signature.as_deref());
    let roots = options.roots.clone();
    let looked = move |read: &AtomicU64| {
        let roots = roots.as_deref();
        if !keeps {
            // A relay's is a directory, whatever the object is.
            path.push("");
            let unable = outpour_store::preflight(&path, roots, &manifest, None);
            return Ok((0, unable.err()));
        }
        let count = |bytes| {
            read.fetch_add(bytes, Ordering::Relaxed);
        };
        let have = outpour_store::look(&path, roots, &manifest, &count)?;
        let unable = outpour_store::preflight(&path, roots, &manifest, Some(&have));
        let lens = have.iter();
        let lens = lens.map(|block| u64::from(manifest.block_len(block)));
        Ok((lens.sum(), unable.err()))
    };
    if let Some((have_bytes, unable)) = watched(looked, entry, writer).await? {
        entry.accept();
        let unable = unsigned.or_else(|| unable.map(|error| error.to_string()));
        write_frame(writer, &AgentSays::Looked { have_bytes, unable }).await?;
    }
    Ok(())
}
