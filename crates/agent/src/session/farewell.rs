//! Telling an operator that nothing is done for it, and why. That takes little memory, whatever it sends.

use tokio::io::{AsyncRead, AsyncWrite};

use super::audit::{Caller, Entry};
use super::{SessionError, unable};
use crate::cast::in_time;
use crate::control::{
    CommandSays, ControlError, FRAME_BYTES_MAX, Greeting, TAG_PART, read_body, read_len, skip_body,
    write_frame,
};

/// A frame of an operator that is turned away is understood up to so many bytes; a longer one is passed
/// over.
const FRAME_BYTES: usize = 64 << 10;

/// Tells an operator why nothing is done for it. It is written down though it cannot be told.
///
/// # Errors
/// If the channel fails, the command says nothing, or too many are being told.
pub async fn turn_away<R, W>(
    mut reader: R,
    mut writer: W,
    why: String,
    caller: &Caller,
) -> Result<(), SessionError>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin,
{
    let entry = Entry::called(caller);
    let Some(_farewell) = caller.places.farewell() else {
        entry.refuse(&why);
        return Err(SessionError::TurnedAway(why));
    };
    let heard = in_time(async {
        // It has no part in a data plane, so its key is not needed.
        write_frame(&mut writer, &Greeting::new([0; 32])).await?;
        hear(&mut reader, &entry).await
    });
    if let Err(error) = heard.await {
        entry.refuse(&why);
        return Err(SessionError::Admission(error.to_string()));
    }
    let told = in_time(async {
        let told = unable(&entry, why, &mut writer).await;
        told.map_err(|_| ControlError::Closed)
    });
    told.await
        .map_err(|error| SessionError::Admission(error.to_string()))
}

/// Hears what a command wants, and keeps nothing of it.
async fn hear(reader: &mut (impl AsyncRead + Unpin), entry: &Entry) -> Result<(), ControlError> {
    loop {
        let len = read_len(reader, FRAME_BYTES_MAX).await?;
        if len > FRAME_BYTES {
            if let Some(tag) = skip_body(reader, len).await? {
                entry.ask_unread(tag);
            }
            return Ok(());
        }
        match read_body(reader, len).await? {
            CommandSays::Waits => {}
            first => {
                entry.ask(&first);
                return finish(&first, reader).await;
            }
        }
    }
}

/// Passes over what follows the first thing that a command says; it hears nothing before it has said all.
async fn finish(
    first: &CommandSays,
    reader: &mut (impl AsyncRead + Unpin),
) -> Result<(), ControlError> {
    match first {
        CommandSays::Look { manifest_bytes, .. } => {
            skip_parts(*manifest_bytes as usize, reader).await
        }
        _ => Ok(()),
    }
}

/// Passes over the parts of a manifest of so many bytes.
pub(super) async fn skip_parts(
    manifest_bytes: usize,
    reader: &mut (impl AsyncRead + Unpin),
) -> Result<(), ControlError> {
    let mut left = manifest_bytes;
    while left > 0 {
        let len = read_len(reader, FRAME_BYTES_MAX).await?;
        let tag = skip_body(reader, len).await?;
        // An empty one, or what is none, ends it.
        match part_bytes(len) {
            part @ 1.. if tag == Some(TAG_PART) => left = left.saturating_sub(part),
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// How many bytes of a manifest are in a frame of so many.
fn part_bytes(frame: usize) -> usize {
    // Before them are what it is and how many they are, in seven bits a byte.
    let head = |part: usize| (usize::BITS - part.leading_zeros()).div_ceil(7).max(1) as usize;
    let part = |bytes: usize| {
        frame
            .checked_sub(1 + bytes)
            .filter(|part| head(*part) == bytes)
    };
    (1..=4).find_map(part).unwrap_or_default()
}

/// Tells an operator that has said what it wants why that is not done.
///
/// # Errors
/// If the channel fails, or it does not say all of it in time.
pub(super) async fn refuse(
    first: &CommandSays,
    entry: &Entry,
    why: String,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<(), SessionError> {
    let finished = in_time(finish(first, reader)).await;
    if let Err(error) = finished {
        entry.refuse(&why);
        return Err(SessionError::Admission(error.to_string()));
    }
    unable(entry, why, writer).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn as_much_is_passed_over_as_was_announced() {
        for part in [1, 127, 128, 16_383, 16_384, 1 << 20] {
            let mut wire = Vec::new();
            for _ in 0..2 {
                let says = CommandSays::Part(vec![7; part]);
                write_frame(&mut wire, &says).await.unwrap();
            }
            let parts = wire.len();
            write_frame(&mut wire, &CommandSays::Renew).await.unwrap();
            let mut reader = wire.as_slice();
            skip_parts(2 * part, &mut reader).await.unwrap();
            assert_eq!(reader.len(), wire.len() - parts, "{part}");
        }
        for other in [CommandSays::Dismiss, CommandSays::Part(Vec::new())] {
            let mut wire = Vec::new();
            write_frame(&mut wire, &other).await.unwrap();
            skip_parts(1000, &mut wire.as_slice()).await.unwrap();
        }
        // One that ends too early does not make it wait.
        assert!(skip_parts(1000, &mut [0, 0].as_slice()).await.is_err());
    }
}
