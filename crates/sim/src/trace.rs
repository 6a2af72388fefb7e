//! What happened, as a hash: two runs of one seed are the same if their hashes are.

use std::fmt;
use std::io::Write;

use outpour_core::Time;

/// Records are hashed together when there are this many bytes of them, which is fastest.
const BUFFER: usize = 64 << 10;

/// Hashes everything that happens, and prints it on request.
pub(crate) struct Trace {
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
    sink: Option<Box<dyn Write + Send>>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

impl Trace {
    pub(crate) fn new(sink: Option<Box<dyn Write + Send>>) -> Self {
        Self {
            hasher: blake3::Hasher::new(),
            buffer: Vec::with_capacity(BUFFER + 64),
            sink,
        }
    }

    /// Records something of a `kind` at `now`: what it is about and what else it carries.
    pub(crate) fn record(&mut self, now: Time, kind: &'static str, about: [u32; 3], body: &[u8]) {
        self.buffer.extend_from_slice(&now.0.to_le_bytes());
        self.buffer.extend_from_slice(kind.as_bytes());
        for word in about {
            self.buffer.extend_from_slice(&word.to_le_bytes());
        }
        self.buffer
            .extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(body);
        if self.buffer.len() >= BUFFER {
            self.hasher.update(&self.buffer);
            self.buffer.clear();
        }
        if let Some(sink) = &mut self.sink {
            let [node, peer, what] = about;
            let bytes = body.len();
            // A trace that cannot be written must not change what is traced.
            let _ = writeln!(sink, "{now} n{node} {kind} n{peer} {what} {bytes}");
        }
    }

    pub(crate) fn hash(&self) -> blake3::Hash {
        self.hasher.clone().update(&self.buffer).finalize()
    }
}
