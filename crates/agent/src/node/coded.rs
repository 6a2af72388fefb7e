//! The object of a coded transfer on the data plane.

use std::sync::Arc;

use outpour_core::BlockSet;
use outpour_core::manifest::Manifest;
use outpour_net::BlockIo;
use outpour_protocols::coordinator::CodingCounts;
use outpour_terms::{Terms, kept_batches};

use crate::coded::{CodedIo, Counters};

/// See the module.
pub(super) struct CodedPart {
    counters: Arc<Counters>,
}

impl CodedPart {
    /// The part, and the object with packets, if the terms are to code it; why not, in one line.
    pub(super) fn new(
        terms: &Terms,
        io: Arc<dyn BlockIo>,
        manifest: &Manifest,
        have: &BlockSet,
    ) -> Result<(Option<Self>, Arc<dyn BlockIo>), String> {
        let batches = terms.batches(manifest.blocks(), manifest.block_bytes());
        let batches = batches.map_err(|error| error.to_string())?;
        let traits = terms.protocol.entry().coding;
        let (Some(batches), Some(coding), Some(traits)) = (batches, terms.coding, traits) else {
            return Ok((None, io));
        };
        let kept = kept_batches(traits);
        let io = CodedIo::new(io, batches, have, usize::from(coding.encoders), kept);
        let io =
            io.map_err(|error| format!("cannot start the threads that encode packets: {error}"))?;
        let counters = io.counters();
        Ok((Some(Self { counters }), Arc::new(io)))
    }

    /// What coding took, when so many packets have come.
    pub(super) fn counts(&self, packets: u64) -> CodingCounts {
        let counts = self.counters.read();
        CodingCounts { packets, ..counts }
    }
}
