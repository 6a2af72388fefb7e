//! What keeps a service trusted: a new certificate in time, and who is trusted no more.

use std::fmt::Display;
use std::thread::Builder;

use outpour_net::trust::Agent;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::audit::Entry;
use super::{SessionError, SessionOptions, unable};
use crate::cast::in_time;
use crate::control::{AgentSays, CommandSays, read_frame_within, write_frame};

/// How long the frame of a certificate may be, in bytes.
const CERTIFICATE_BYTES_MAX: usize = 64 << 10;
/// Why an agent that a cast has started does neither.
const NO_SERVICE: &str = "this agent is no service and has no identity";

/// Asks the operator for a certificate of a new key, and uses it.
///
/// # Errors
/// If the control channel breaks, or the command says something else.
pub(super) async fn renew(
    options: &SessionOptions,
    entry: &Entry,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<(), SessionError> {
    let Some(identity) = identity(options) else {
        return unable(entry, NO_SERVICE.to_owned(), writer).await;
    };
    entry.accept();
    let renewal = match identity.request() {
        Ok(renewal) => renewal,
        Err(error) => return unable(entry, error.to_string(), writer).await,
    };
    let request = renewal.request().to_vec();
    write_frame(writer, &AgentSays::Request { request }).await?;
    let heard = in_time(read_frame_within(reader, CERTIFICATE_BYTES_MAX)).await;
    let heard = heard.map_err(|error| SessionError::Admission(error.to_string()))?;
    let CommandSays::Certificate { certificate } = heard else {
        let error = "the command sends something else than a certificate";
        return Err(SessionError::Admission(error.to_owned()));
    };
    let written = apart(move || identity.renew(&renewal, &certificate)).await;
    match written {
        Ok(()) => Ok(write_frame(writer, &AgentSays::Renewed).await?),
        Err(error) => unable(entry, error, writer).await,
    }
}

/// Takes note of a list of revoked operators.
///
/// # Errors
/// If the control channel breaks.
pub(super) async fn note_revoked(
    options: &SessionOptions,
    entry: &Entry,
    list: Vec<u8>,
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<(), SessionError> {
    let Some(identity) = identity(options) else {
        return unable(entry, NO_SERVICE.to_owned(), writer).await;
    };
    entry.accept();
    match apart(move || identity.adopt(&list)).await {
        Ok(number) => Ok(write_frame(writer, &AgentSays::Noted { number }).await?),
        Err(error) => unable(entry, error, writer).await,
    }
}

fn identity(options: &SessionOptions) -> Option<Agent> {
    options
        .caller
        .as_ref()
        .map(|caller| caller.identity.clone())
}

/// Does work on a thread of its own; an error is one line. Who was revoked must be noted however many
/// disks hang, and with them all threads that the runtime has for such work.
pub async fn apart<T: Send + 'static, E: Display + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, String> {
    let (done, waiting) = oneshot::channel();
    let work = move || drop(done.send(work().map_err(|error| error.to_string())));
    let thread = Builder::new().name("outpour-trust".to_owned());
    thread.spawn(work).map_err(|error| error.to_string())?;
    let lost = |_| Err("its thread has ended".to_owned());
    waiting.await.unwrap_or_else(lost)
}
