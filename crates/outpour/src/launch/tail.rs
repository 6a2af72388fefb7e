//! The end of what a child process said on standard error.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

/// How much of it is kept.
const TAIL_BYTES_MAX: usize = 4096;

/// Reads a stream to its end and keeps the last of it, so that the writer never blocks.
pub(super) struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Tail {
    /// Begins to read `stream` in the background.
    pub(super) fn follow(mut stream: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let tail = Arc::clone(&kept);
        let task = tokio::spawn(async move {
            let mut buffer = [0; 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend_from_slice(buffer.get(..read).unwrap_or_default());
                let excess = tail.len().saturating_sub(TAIL_BYTES_MAX);
                tail.drain(..excess);
            }
        });
        Self { kept, task }
    }

    /// What was said last; waits at most `patience` for the stream to end, for a process left in
    /// the background may hold it open.
    pub(super) async fn finish(&mut self, patience: Duration) -> String {
        let _ = tokio::time::timeout(patience, &mut self.task).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}
