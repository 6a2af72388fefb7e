//! The rows of the table, one module per setting.

mod hash;
mod hung;
mod loopback;
mod memory;
mod mesh;
mod sim;
mod together;
mod tree;

use outpour_core::Bytes;

use crate::context::Context;
use crate::result::{Measured, Required};
pub(crate) use together::Together;

/// What a row measures and what it must reach.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) required: Required,
    /// Room it needs on the disk.
    pub(crate) disk: Bytes,
    pub(crate) run: fn(&Context) -> anyhow::Result<Measured>,
}

const GIB: u64 = 1 << 30;

/// Every row in the order of the table.
pub(crate) const ROWS: &[Spec] = &[
    Spec {
        name: "mesh-chain",
        about: "100 MB to 19 agents, each node limited to 15 Mbit/s both ways, by chain: time of \
                the whole command / time of one plain TCP copy at that rate",
        required: Required::AtMost(1.03),
        disk: Bytes(3 * GIB),
        run: mesh::chain,
    },
    Spec {
        name: "mesh-swarm",
        about: "the same by swarm",
        required: Required::AtMost(1.08),
        disk: Bytes(3 * GIB),
        run: mesh::swarm,
    },
    Spec {
        name: "stop-chain",
        about: "the same by chain, the agent in the middle of the line stopped (SIGSTOP) at half \
                time: time of the last of the other 18 / plain copy",
        required: Required::Finishes,
        disk: Bytes(3 * GIB),
        run: mesh::chain_stopped,
    },
    Spec {
        name: "stop-swarm",
        about: "the same by swarm, one agent stopped (SIGSTOP) at half time",
        required: Required::AtMost(1.25),
        disk: Bytes(3 * GIB),
        run: mesh::swarm_stopped,
    },
    Spec {
        name: "hung-chain",
        about: "60 MB to 10 agents, each node limited to 50 Mbit/s both ways, by chain, the disk of \
                the agent in the middle of the line hung (frozen) at half time: time of the last of \
                the other 9 / their time with no disk hung",
        required: Required::AtMost(1.05),
        disk: Bytes(2 * GIB),
        run: hung::chain,
    },
    Spec {
        name: "hung-swarm",
        about: "the same by swarm, the disk of one agent hung (frozen) at half time",
        required: Required::AtMost(1.05),
        disk: Bytes(2 * GIB),
        run: hung::swarm,
    },
    Spec {
        name: "loopback",
        about: "4 GiB file in the page cache to one agent, encrypted and verified: rate of the \
                whole command / rate of a plain unencrypted TCP copy to the same file system",
        required: Required::AtLeast(0.5),
        disk: Bytes(9 * GIB),
        run: loopback::run,
    },
    Spec {
        name: "hash",
        about: "hashing a 4 GiB file in the page cache with 2 threads: rate / rate of b3sum",
        required: Required::AtLeast(0.8),
        disk: Bytes(5 * GIB),
        run: hash::run,
    },
    Spec {
        name: "tree",
        about: "tree of 100,000 files of 1-10 kB to one agent: time of the whole command / time of \
                rsync -a to an rsync daemon, both over loopback",
        required: Required::AtMost(1.0),
        disk: Bytes(8 * GIB),
        run: tree::run,
    },
    Spec {
        name: "memory",
        about: "peak resident memory of an agent that receives a 10 GiB file and 200,000 small \
                files in one tree / 256 MiB",
        required: Required::AtMost(1.0),
        disk: Bytes(14 * GIB),
        run: memory::run,
    },
    Spec {
        name: "two-casts",
        about: "two files of 128 MiB at once to the same 7 agents, each limited to 100 Mbit/s over all \
                casts, by chain: time of both / time of one file as large as both",
        required: Required::AtMost(1.03),
        disk: Bytes(5 * GIB),
        run: together::time,
    },
    Spec {
        name: "two-casts-memory",
        about: "the same: peak resident memory of the agents / that with one file",
        required: Required::AtMost(1.1),
        disk: Bytes(5 * GIB),
        run: together::memory,
    },
    Spec {
        name: "sim",
        about: "simulating swarm with 200 nodes and 10,000 blocks: processor time / 10 s",
        required: Required::AtMost(1.0),
        disk: Bytes(0),
        run: sim::cost,
    },
    Spec {
        name: "sim-growth",
        about: "the same: cost per node and block / cost per node and block with half the nodes or \
                half the blocks, the worse of both",
        required: Required::AtMost(1.25),
        disk: Bytes(0),
        run: sim::growth,
    },
    Spec {
        name: "fuzz",
        about: "2,000 seeds of `sim fuzz`, all clean: seeds an hour / 20,000",
        required: Required::AtLeast(1.0),
        disk: Bytes(0),
        run: sim::fuzz,
    },
];
