//! What is done with hostile input to find out whether every decoder bears it.
//!
//! Each [`Target`] hands any bytes to a part of the program that takes them from a network, a file or a person, and
//! asserts what must hold: no panic, and that what is let through keeps its promises. Fuzzers drive the
//! targets (`scripts/fuzz`), and tests replay what fuzzers found worth keeping (`tests/replay.rs`). Where the
//! decoder is private, the function is in a hidden module `fuzzing` of its crate.

mod cast;
mod coding;
mod core;
mod files;
mod input;
mod push;
mod raptor;
mod world;

/// A part of the program, and what is to be done with its input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, that of its corpus and of its fuzzer.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Longer input shows nothing that shorter input does not, bytes.
    pub bytes_max: usize,
    /// Hands it the input.
    ///
    /// # Panics
    /// If it does not bear it.
    pub run: fn(&[u8]),
}

const fn target(
    name: &'static str,
    about: &'static str,
    bytes_max: usize,
    run: fn(&[u8]),
) -> Target {
    Target {
        name,
        about,
        bytes_max,
        run,
    }
}

/// Every target.
pub const TARGETS: &[Target] = &[
    target(
        "access_lists",
        "access control lists as file systems have them",
        512,
        core::access_list,
    ),
    target(
        "agent_control",
        "frames of a control channel: greeting, admission, orders, reports, manifest offers",
        4096,
        outpour_agent::fuzzing::control,
    ),
    target(
        "agent_epochs",
        "the file of the highest epochs",
        4096,
        outpour_agent::fuzzing::epochs,
    ),
    target(
        "block_sets",
        "sets of blocks as messages carry them",
        1024,
        core::block_sets,
    ),
    target(
        "cast_reports",
        "what agents report to the coordinator",
        1024,
        cast::coordinator,
    ),
    target(
        "cast_terms",
        "terms of a cast, and protocols built by them",
        2048,
        cast::terms,
    ),
    target(
        "coding_packet",
        "packets of random linear codes",
        1024,
        coding::packet,
    ),
    target(
        "coding_state",
        "histories of such packets",
        2048,
        coding::state,
    ),
    target(
        "collective_letters",
        "letters at a rendezvous, notes between members",
        2048,
        outpour_collective::fuzzing::letters,
    ),
    target(
        "collective_ticket",
        "tickets of groups",
        256,
        outpour_collective::fuzzing::ticket,
    ),
    target(
        "emulation",
        "packets from TUN devices, lines at the control socket",
        2048,
        outpour_emu::fuzzing::emulation,
    ),
    target("flows_toml", "files of flows", 2048, files::flows),
    target(
        "fluid_toml",
        "files of the fluid model, capacities, shapes",
        2048,
        files::fluid,
    ),
    target(
        "hosts_arguments",
        "destinations and ranges of hosts",
        512,
        outpour::fuzzing::hosts,
    ),
    target(
        "hosts_file",
        "hosts files",
        1024,
        outpour::fuzzing::hosts_file,
    ),
    target("jobs_toml", "files of jobs", 2048, files::jobs),
    target("manifest_decode", "manifests", 4096, core::manifest),
    target(
        "net_endpoint",
        "what a member says to a running endpoint inside TLS",
        512,
        outpour_net::fuzzing::endpoint,
    ),
    target(
        "net_frames",
        "greetings and headers of frames",
        1024,
        outpour_net::fuzzing::frames,
    ),
    target(
        "net_records",
        "TLS records of a peer that has the keys",
        1024,
        outpour_net::fuzzing::records,
    ),
    target(
        "network_toml",
        "descriptions of networks",
        2048,
        core::network,
    ),
    target("plan_check", "plans as they travel", 2048, core::plan),
    target(
        "plan_json",
        "plans as the planner prints them",
        2048,
        outpour::fuzzing::plan,
    ),
    target(
        "probe_fit",
        "what was measured, made into a network",
        512,
        outpour_probe::fuzzing::fit,
    ),
    target(
        "probe_history",
        "files of earlier measurements",
        2048,
        outpour_probe::fuzzing::history,
    ),
    target(
        "probe_packets",
        "packets and messages of a measurement",
        1024,
        outpour_probe::fuzzing::packets,
    ),
    target(
        "probe_routes",
        "what routers say of packets that came too far",
        256,
        outpour_probe::fuzzing::routes,
    ),
    target(
        "protocol_messages",
        "messages of every protocol, from a member of a cast that lies",
        1024,
        world::play,
    ),
    target(
        "push_messages",
        "messages of parallel push",
        2048,
        push::messages,
    ),
    target(
        "raptor_symbols",
        "symbols of RaptorQ",
        1024,
        raptor::symbols,
    ),
    target(
        "script",
        "scripts that change a network",
        1024,
        core::script,
    ),
    target(
        "series_messages",
        "messages of series of multicasts",
        1024,
        cast::series,
    ),
    target(
        "shuffle_jobs",
        "files of generated shuffles",
        1024,
        files::shuffle_jobs,
    ),
    target(
        "shuffle_toml",
        "files of shuffles, and their matrices",
        2048,
        files::shuffle,
    ),
    target(
        "shuffle_trace",
        "traces of the coflow benchmark",
        1024,
        files::trace,
    ),
    target("sizes_cdf", "distributions of sizes", 1024, files::sizes),
    target(
        "store_holder",
        "lock files, names of state directories",
        512,
        outpour_store::fuzzing::holder,
    ),
    target(
        "store_journal",
        "journals of interrupted transfers",
        1024,
        outpour_store::fuzzing::journal,
    ),
    target(
        "store_owners",
        "files of users and groups",
        512,
        outpour_store::fuzzing::owners,
    ),
    target(
        "topology_csv",
        "tables of links between sites",
        1024,
        core::topology,
    ),
    target(
        "trust_certificates",
        "certificates, requests for them, lists of revoked ones, grants",
        1024,
        outpour_net::fuzzing::trust_certificates,
    ),
    target(
        "trust_files",
        "files of identities, keys, and what was issued",
        4096,
        outpour_net::fuzzing::trust_files,
    ),
    target(
        "units",
        "sizes, rates, times, queue lengths, priorities",
        64,
        core::units,
    ),
];

/// The target of this name.
///
/// # Panics
/// If there is none.
pub fn run(name: &str, bytes: &[u8]) {
    let found = TARGETS.iter().find(|target| target.name == name);
    match found {
        Some(target) => (target.run)(bytes),
        None => panic!("there is no target `{name}`"),
    }
}

/// Input as text, if it is any.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
