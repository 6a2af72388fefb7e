//! What happened, as a hash: two runs of one seed are the same if their hashes are.

use std::fmt;
use std::io::Write;

use outpour_core::Time;

/// Records are hashed together when there are this many bytes of them, which is fastest.
const BUFFER: usize = 64 << 10;

/// Hashes everything that happens, and prints it on request.
pub(crate) struct Trace {
    /// `None` if the hash is not wanted.
    hasher: Option<blake3::Hasher>,
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
            hasher: Some(blake3::Hasher::new()),
            buffer: Vec::new(),
            sink,
        }
    }

    /// Records something of a `kind` at `now`: what it is about and what else it carries.
    #[inline]
    pub(crate) fn record(&mut self, now: Time, kind: &'static str, about: [u32; 3], body: &[u8]) {
        if self.hasher.is_some() {
            self.hash_in(now, kind, about, body);
        }
        if let Some(sink) = &mut self.sink {
            let [node, peer, what] = about;
            let bytes = body.len();
            // A trace that cannot be written must not change what is traced.
            let _ = writeln!(sink, "{now} n{node} {kind} n{peer} {what} {bytes}");
        }
    }

    /// Whether what happens is recorded or hashed at all.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.hasher.is_some() || self.sink.is_some()
    }

    /// Makes no hash from now on, which takes time.
    pub(crate) fn stop_hashing(&mut self) {
        self.hasher = None;
    }

    fn hash_in(&mut self, now: Time, kind: &'static str, about: [u32; 3], body: &[u8]) {
        let mut header = [0; 24];
        header[..8].copy_from_slice(&now.0.to_le_bytes());
        let words = about.into_iter().chain([body.len() as u32]);
        for (place, word) in header[8..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(kind.as_bytes());
        self.buffer.extend_from_slice(body);
        if self.buffer.len() >= BUFFER {
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&self.buffer);
            }
            self.buffer.clear();
        }
    }

    /// The hash of everything so far; of nothing if none is made.
    pub(crate) fn hash(&self) -> blake3::Hash {
        let mut hasher = self.hasher.clone().unwrap_or_default();
        hasher.update(&self.buffer).finalize()
    }
}
