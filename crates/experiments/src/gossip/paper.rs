//! What the paper says it found: the only figures here that no run produced.
//!
//! Its plots are not available to be read as numbers, so these are the numbers in its text.

/// What [Cooper] says of what an experiment repeats.
pub(crate) struct Reading {
    /// The experiment.
    pub(crate) name: &'static str,
    /// Where it says so.
    pub(crate) place: &'static str,
    /// What it says, in our words.
    pub(crate) says: &'static str,
}

/// The readings, in the order of the paper.
pub(crate) const READINGS: &[Reading] = &[
    Reading {
        name: "rounds",
        place: "§2.1, §4.2, Theorem 2 and Corollary 3",
        says: "One batch of k blocks finishes within k + log2 n rounds and a small constant. If each \
               batch begins half of log2 n rounds before the one before it is finished, and comes \
               first until then, each of m batches but the first saves at least that number less \
               2.7/(1 - 2/sqrt n) rounds, and the first is delayed by no more than that.",
    },
    Reading {
        name: "blocks",
        place: "§6.1, figures 9 to 11",
        says: "Encoding a block takes time linear in its size and convex in k; decoding at the end \
               is small. With four nodes the finish time is least at k = 22 for 15 Mbit/s and at \
               k = 35 for 10 Mbit/s, just where encoding a block takes as long as sending one.",
    },
    Reading {
        name: "blocks",
        place: "§6.1, figures 12 and 13",
        says: "One encoder takes 75 s at best, with k = 15; two take 70 s, with k = 30, where \
               encoding a block takes twice as long as sending one.",
    },
    Reading {
        name: "blocks",
        place: "§6.2, figures 14 and 15",
        says: "On 20 nodes the best k is about 16 with one encoder and about 30 with two; for random \
               blocks 100, with a new buffer map after every other block.",
    },
    Reading {
        name: "compare",
        place: "§6.2, figure 16",
        says: "100 MB at 15 Mbit/s, size / rate being 53 s: random block about 115 s, BitTorrent \
               (rTorrent) 106 s, one encoder 80 s, two encoders 70 s, three batches with Overlap-2 \
               60 s.",
    },
    Reading {
        name: "compare",
        place: "§6.2, figure 17",
        says: "The busiest receiver's user time rises with the blocks it has until the first has \
               them all, then stays: about 8 % with one encoder, about 5 % in three batches, far \
               more with two encoders. The source is as busy from the start. Coefficients are \
               7.6e-6 of the data with 16 blocks of 2 MB.",
    },
    Reading {
        name: "objects",
        place: "§6.3, figures 18 and 19",
        says: "Two objects of 100 MB: 160 s one after the other, 135 s with Overlap-1, 128 s with \
               Overlap-2; with three the gaps grow. The first object is everywhere after 90 s either \
               way; the first node has it after 30 s with Overlap-1, after 50 s with Overlap-2.",
    },
    Reading {
        name: "objects",
        place: "§6.3, figures 20 and 21",
        says: "With Overlap-1 a node gets blocks of the second object only when it has the first; \
               with Overlap-2 some come early, at little cost for the first.",
    },
];
