//! Whether every host reaches every other.

use super::{Topology, Vertex, WireId};

/// Two hosts of which the first does not reach the second, if there are such.
pub(super) fn apart(topology: &Topology) -> Option<(Vertex, Vertex)> {
    if topology.host_count() < 2 || is_whole(topology) {
        return None;
    }
    // Switches may be one-way streets, so this has to be asked for each host.
    for host in topology.hosts() {
        let reached = reached(topology, host.into(), Topology::outgoing, |w| {
            topology.wire(w).to
        });
        let missed = topology.hosts().find(|other| !reached[other.index()]);
        if let Some(missed) = missed {
            return Some((host.into(), missed.into()));
        }
    }
    None
}

/// Whether all switches reach each other and each host hangs on one: the usual case, and quick to
/// see.
fn is_whole(topology: &Topology) -> bool {
    let mut vertices = (0..topology.vertex_count()).map(Vertex);
    let Some(first) = vertices.find(|vertex| !topology.is_host(*vertex)) else {
        return false;
    };
    let there = reached(topology, first, Topology::outgoing, |w| topology.wire(w).to);
    let back = reached(topology, first, Topology::incoming, |w| {
        topology.wire(w).from
    });
    there.iter().chain(&back).all(|reached| *reached)
}

/// What can be reached from a vertex without passing a host.
fn reached<'a>(
    topology: &'a Topology,
    start: Vertex,
    wires: impl Fn(&'a Topology, Vertex) -> &'a [WireId],
    end: impl Fn(WireId) -> Vertex,
) -> Vec<bool> {
    let mut reached = vec![false; topology.vertex_count() as usize];
    reached[start.index()] = true;
    let mut open = vec![start];
    while let Some(vertex) = open.pop() {
        for next in wires(topology, vertex).iter().map(|wire| end(*wire)) {
            if !std::mem::replace(&mut reached[next.index()], true) && !topology.is_host(next) {
                open.push(next);
            }
        }
    }
    reached
}
