//! What an emulation did, and whether the machine was up to it.

use serde::Serialize;

use crate::lateness::{MEDIAN_MAX, MISSED_SHARE_MAX, P99_MAX, Verdict, WORST_MAX};
use crate::mover::Moved;
use crate::samples::Carried;

/// What an emulation did, and whether it was up to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EmulationReport {
    /// Whether the machine was too slow for the run to mean anything.
    pub void: bool,
    /// Why, in words.
    pub reasons: Vec<String>,
    /// How late packets were handed over.
    pub lateness: Verdict,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// Packets that were received.
    pub received_packets: u64,
    /// Bytes of the packets that were received, headers included.
    pub received_bytes: u64,
    /// Packets that found a queue full.
    pub dropped_packets: u64,
    /// Packets lost at random.
    pub lost_packets: u64,
    /// Packets marked for congestion.
    pub marked_packets: u64,
    /// Packets to nowhere.
    pub astray_packets: u64,
    /// Packets for which the machine had no room.
    pub overflowed_packets: u64,
    /// Processor time spent moving packets, seconds.
    pub cpu_s: f64,
    /// Whether the emulator ran before ordinary processes.
    pub priority: bool,
    /// What the links between clusters carried over time, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
    /// The word the script waits for at the end although it was never sent.
    pub unheard: Option<String>,
}

impl EmulationReport {
    pub(crate) fn new(moved: &Moved, unheard: Option<String>) -> Self {
        let mut reasons = Vec::new();
        if moved.lateness.too_late {
            let ms = |seconds: f64| seconds * 1e3;
            reasons.push(format!(
                "packets were late by {:.2} ms (median), {:.2} ms (99 %), {:.1} ms (worst), and \
                 {:.1} % of the time was missed; at most {:?}, {:?}, {:?} and {} % are sound",
                ms(moved.lateness.median_s),
                ms(moved.lateness.p99_s),
                ms(moved.lateness.worst_s),
                moved.lateness.missed_share * 100.0,
                MEDIAN_MAX,
                P99_MAX,
                WORST_MAX,
                MISSED_SHARE_MAX * 100.0
            ));
        }
        if moved.overflowed > 0 {
            reasons.push(format!(
                "{} packets found no room in memory",
                moved.overflowed
            ));
        }
        let counts = moved.counts;
        Self {
            void: !reasons.is_empty(),
            reasons,
            lateness: moved.lateness,
            sent_packets: counts.entered,
            received_packets: counts.delivered,
            received_bytes: counts.delivered_bytes,
            dropped_packets: counts.dropped,
            lost_packets: counts.lost,
            marked_packets: counts.marked,
            astray_packets: moved.astray,
            overflowed_packets: moved.overflowed,
            carried: moved.carried.clone(),
            cpu_s: moved.cpu_s,
            priority: moved.priority,
            unheard,
        }
    }
}
