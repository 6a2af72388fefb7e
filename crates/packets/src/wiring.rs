//! A topology as ports: which there are, and which routes lead where.

use std::collections::BTreeMap;

use outpour_core::NodeId;
use outpour_core::topology::{Paths, Topology, WireId};

use crate::engine::{Engine, Load, PortId, RouteId};
use crate::loss::Loss;
use crate::setting::{Discipline, Queue, Setting, SettingError};

/// The queues of a topology's ports, where its wires do not say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Of the ports by which hosts send.
    pub hosts: Discipline,
    /// Of the ports of switches.
    pub switches: Discipline,
}

impl Profile {
    /// The same queues everywhere.
    pub fn uniform(discipline: Discipline) -> Self {
        Self {
            hosts: discipline.clone(),
            switches: discipline,
        }
    }
}

/// A port that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("port of `{from}` to `{to}`: {problem}")]
pub struct WiringError {
    /// Whose port it is.
    pub from: String,
    /// Where it leads.
    pub to: String,
    /// What is wrong with it.
    pub problem: SettingError,
}

/// The wires of a topology as ports, each wire one, and its shortest ways as routes. Wires without
/// limit, delay and losses need no port: packets pass them at once.
#[derive(Clone, Debug)]
pub struct Wiring {
    paths: Paths,
    settings: Vec<Setting>,
    /// Of each wire its port, and of each port its wire.
    ports: Vec<Option<PortId>>,
    wires: Vec<WireId>,
    /// What was added to the engine, by the wires on the way.
    routes: BTreeMap<Vec<WireId>, RouteId>,
}

impl Wiring {
    /// The ports of a topology. The limit and the threshold of a wire, where it has such, replace
    /// those of each queue that the profile gives its port.
    ///
    /// # Errors
    /// Names the port that would hold nothing, or mark above its limit.
    pub fn new(paths: Paths, profile: &Profile) -> Result<Self, WiringError> {
        let topology = paths.topology();
        let (mut settings, mut ports, mut wires) = (Vec::new(), Vec::new(), Vec::new());
        for (index, wire) in topology.wires().iter().enumerate() {
            let setting = setting(topology, WireId(index as u32), profile);
            let setting = setting.map_err(|problem| WiringError {
                from: topology.name(wire.from).to_owned(),
                to: topology.name(wire.to).to_owned(),
                problem,
            })?;
            if setting.is_open() {
                ports.push(None);
                continue;
            }
            ports.push(Some(PortId(settings.len() as u32)));
            wires.push(WireId(index as u32));
            settings.push(setting);
        }
        Ok(Self {
            paths,
            settings,
            ports,
            wires,
            routes: BTreeMap::new(),
        })
    }

    /// An engine with these ports, for which this is asked for routes from now on; `seed` decides
    /// on random losses.
    pub fn engine<P: Load>(&mut self, seed: u64) -> Engine<P> {
        self.routes.clear();
        Engine::new(self.settings.iter().cloned(), seed)
    }

    /// The same with further ports behind those of wires, such as one for messages that pass outside of
    /// the network; says which they are.
    pub fn engine_with<P: Load>(
        &mut self,
        further: &[Setting],
        seed: u64,
    ) -> (Engine<P>, Vec<PortId>) {
        self.routes.clear();
        let first = self.settings.len() as u32;
        let settings = self.settings.iter().chain(further).cloned();
        let ports = (first..).map(PortId).take(further.len()).collect();
        (Engine::new(settings, seed), ports)
    }

    /// The shortest ways, and the topology with them.
    pub fn paths(&mut self) -> &mut Paths {
        &mut self.paths
    }

    /// The port of a wire, if it needs one.
    pub fn port(&self, wire: WireId) -> Option<PortId> {
        self.ports[wire.index()]
    }

    /// The wire of a port.
    pub fn wire(&self, port: PortId) -> WireId {
        self.wires[port.0 as usize]
    }

    /// How a port was set at the start.
    pub fn setting(&self, port: PortId) -> &Setting {
        &self.settings[port.0 as usize]
    }

    /// One of the shortest ways from one host to another, the same for the same `choice`: see
    /// [`Paths::pick`]. The engine has to be the one that this made last.
    pub fn route<P: Load>(
        &mut self,
        engine: &mut Engine<P>,
        from: NodeId,
        to: NodeId,
        choice: u64,
    ) -> RouteId {
        let path = self.paths.pick(from, to, choice);
        self.add(engine, path)
    }

    /// The way over these wires, each of which begins where the one before ends. The engine has to be
    /// the one that this made last.
    pub fn route_over<P: Load>(&mut self, engine: &mut Engine<P>, path: Vec<WireId>) -> RouteId {
        self.add(engine, path)
    }

    /// The shortest ways from one host to another, at most `max` of them, for senders that spray
    /// packets over all. The engine has to be the one that this made last.
    pub fn routes<P: Load>(
        &mut self,
        engine: &mut Engine<P>,
        from: NodeId,
        to: NodeId,
        max: usize,
    ) -> Vec<RouteId> {
        let paths = self.paths.all(from, to, max);
        let add = |path| self.add(engine, path);
        paths.into_iter().map(add).collect()
    }

    fn add<P: Load>(&mut self, engine: &mut Engine<P>, path: Vec<WireId>) -> RouteId {
        if let Some(route) = self.routes.get(&path) {
            return *route;
        }
        let ports: Vec<_> = path.iter().filter_map(|wire| self.port(*wire)).collect();
        let route = engine.add_route(&ports);
        self.routes.insert(path, route);
        route
    }
}

fn setting(topology: &Topology, wire: WireId, profile: &Profile) -> Result<Setting, SettingError> {
    let wire = topology.wire(wire);
    let usual = match topology.is_host(wire.from) {
        true => &profile.hosts,
        false => &profile.switches,
    };
    let own = |queue: &Queue| Queue {
        limit: wire.link.queue.unwrap_or(queue.limit),
        mark_from: wire.link.ecn.or(queue.mark_from),
        ..*queue
    };
    let queues = usual.queues().iter().map(own).collect();
    let mut discipline = Discipline::classes(queues, usual.order())?;
    if usual.trims() {
        discipline = discipline.trimming();
    }
    Ok(Setting {
        rate: wire.link.rate,
        delay: wire.link.delay,
        discipline,
        loss: Loss::new(wire.link.loss, wire.link.burst)?,
    })
}
