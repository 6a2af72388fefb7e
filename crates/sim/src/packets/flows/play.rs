//! Flows as they are played: the world they live in, what happens when, and what is looked at when.

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::network::{Backlog, Link};
use outpour_core::topology::{Metric, Paths, Topology, Vertex, Wire, WireId, packets_per_s};
use outpour_core::{NodeId, Rate, Time};
use outpour_packets::{Counts, Discipline, PortId, Profile, Stats, Wiring};

use super::ends::{End, Plan, ReceiverEnd, SenderEnd, SenderState};
use super::report::{FlowReport, Packets, Phase, PortReport};
use super::{Flows, FlowsError, Line, report};
use crate::packets::{EndpointId, Way, WayId, World};

/// What a run has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The flows, in their order.
    pub flows: Vec<FlowReport>,
    /// The ports: one for each direction of a link, in the order of links.
    pub ports: Vec<PortReport>,
    /// Means of the times between changes.
    pub phases: Vec<Phase>,
    /// What was in between, as far apart as was asked for.
    pub samples: Vec<Sample>,
    /// What became of all packets, acknowledgements included.
    pub packets: Packets,
    /// How many ports packets have passed in all.
    pub hops: u64,
}

/// What is at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When, seconds.
    pub at_s: f64,
    /// The flows.
    pub flows: Vec<FlowSample>,
    /// How many packets wait at each port.
    pub queues: Vec<u64>,
}

/// What a flow is at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowSample {
    /// What has arrived since the sample before, packets per second.
    pub goodput_packets_per_s: f64,
    /// The window, packets; 0 while the flow is not active.
    pub cwnd: f64,
    /// The running average of the share of marked packets; 0 without one.
    pub alpha: f64,
    /// The smoothed round-trip time, seconds, once there is one.
    pub rtt_s: Option<f64>,
}

/// What is counted up to one time.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) at: Time,
    pub(super) flows: Vec<FlowSnapshot>,
    pub(super) ports: Vec<Stats>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FlowSnapshot {
    pub(super) received: u64,
    pub(super) window_s: f64,
    pub(super) alpha_s: f64,
}

/// What happens at a time, in the order in which it happens if that is the same.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Event {
    /// Look at everything.
    Sample,
    /// A phase ends, or the second half of one begins.
    Snapshot,
    Stop(usize),
    Rate(PortId, Rate),
    Lose(PortId, u64),
    Theta(usize, f64),
    Start(usize),
}

impl Event {
    fn rank(&self) -> u8 {
        match self {
            Self::Sample => 0,
            Self::Snapshot => 1,
            Self::Stop(_) => 2,
            Self::Rate(..) => 3,
            Self::Lose(..) => 4,
            Self::Theta(..) => 5,
            Self::Start(_) => 6,
        }
    }
}

fn sender(flow: usize) -> EndpointId {
    EndpointId(2 * flow as u32)
}

fn receiver(flow: usize) -> EndpointId {
    EndpointId(2 * flow as u32 + 1)
}

pub(super) fn data_way(flow: usize) -> WayId {
    WayId(2 * flow as u32)
}

impl Flows {
    /// Plays the flows.
    ///
    /// # Errors
    /// If something is out of range, or links do not join the ends of flows; names it.
    pub fn run(&self) -> Result<Run, FlowsError> {
        self.check()?;
        let (world, ports) = self.world()?;
        let mut play = Play {
            setup: self,
            world,
            ports: ports.iter().map(|port| port.0).collect(),
            samples: Vec::new(),
            snapshots: Vec::new(),
            received_at_stop: vec![None; self.flows.len()],
        };
        let boundaries = self.boundaries();
        for (at, event) in self.script(&ports, &boundaries) {
            play.world.run(at);
            play.happen(event)?;
        }
        play.world.run(Time::ZERO + self.duration);
        Ok(play.finish(&boundaries, &ports))
    }

    /// The machines of all flows and the links between them, and the ports with their links and whether
    /// they are of the way back.
    fn world(&self) -> Result<(World<End>, Vec<Port>), FlowsError> {
        let (topology, hosts) = self.topology()?;
        let queue = Discipline::drop_tail(Backlog::Packets(1), None);
        let mut wiring = Wiring::new(Paths::new(topology, Metric::Hops), &Profile::uniform(queue))?;
        let mut engine = wiring.engine(self.seed);
        let (mut ways, mut ends) = (Vec::new(), Vec::new());
        for (index, flow) in self.flows.iter().enumerate() {
            let (from, to) = (hosts[flow.from.as_str()], hosts[flow.to.as_str()]);
            let path = wiring.paths().pick(from, to, index as u64);
            let back = wiring.paths().topology().back(&path);
            let back = back.ok_or(FlowsError::NoWayBack { flow: index + 1 })?;
            for (path, to) in [(path, receiver(index)), (back, sender(index))] {
                let route = wiring.route_over(&mut engine, path);
                ways.push(Way { route, to });
            }
            let plan = Plan {
                flow: index,
                data: data_way(index),
                acks: WayId(2 * index as u32 + 1),
                packet_bytes: self.packet_bytes,
                ack_bytes: self.ack_bytes,
                seed: self.seed.wrapping_add(index as u64 + 1),
                jitter: self.jitter,
            };
            ends.push(End::Sender(Box::new(SenderEnd::new(flow, &plan)?)));
            ends.push(End::Receiver(Box::new(ReceiverEnd::new(flow, &plan)?)));
        }
        // Wires of links come first, each before its way back.
        let directions = self.lines.iter().enumerate().flat_map(|(link, line)| {
            let back = line.is_both.then_some((link, true));
            [(link, false)].into_iter().chain(back)
        });
        let ports = directions
            .enumerate()
            .filter_map(|(wire, (link, is_back))| {
                let port = wiring.port(WireId(wire as u32))?;
                Some((port, link, is_back))
            });
        let ports = ports.collect();
        Ok((World::new(engine, ways, ends), ports))
    }

    /// Every node as a switch, and every end of a flow as a host behind its switch: so nodes may pass
    /// packets of others on and have flows of their own.
    fn topology(&self) -> Result<(Topology, BTreeMap<&str, NodeId>), FlowsError> {
        let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
        let mut names: Vec<&str> = Vec::new();
        for name in self.lines.iter().flat_map(|line| [&line.from, &line.to]) {
            nodes.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() - 1
            });
        }
        let mut hosts: BTreeMap<&str, NodeId> = BTreeMap::new();
        let mut host_names: Vec<&str> = Vec::new();
        for (index, flow) in self.flows.iter().enumerate() {
            for (key, name) in [("from", &flow.from), ("to", &flow.to)] {
                if !nodes.contains_key(name.as_str()) {
                    return Err(FlowsError::NoNode {
                        flow: index + 1,
                        key,
                        name: name.clone(),
                    });
                }
                hosts.entry(name).or_insert_with(|| {
                    host_names.push(name);
                    NodeId(host_names.len() as u32 - 1)
                });
            }
        }
        let switch = |name: &str| Vertex((host_names.len() + nodes[name]) as u32);
        let mut wires = Vec::new();
        for line in &self.lines {
            let (from, to) = (switch(&line.from), switch(&line.to));
            let link = self.link(line, false);
            wires.push(Wire { from, to, link });
            if line.is_both {
                let link = self.link(line, true);
                let (from, to) = (to, from);
                wires.push(Wire { from, to, link });
            }
        }
        for (index, name) in host_names.iter().enumerate() {
            let (host, switch) = (Vertex(index as u32), switch(name));
            for (from, to) in [(host, switch), (switch, host)] {
                let link = Link::OPEN;
                wires.push(Wire { from, to, link });
            }
        }
        let owned = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect();
        let topology = Topology::new(owned(&host_names), owned(&names), wires)?;
        Ok((topology, hosts))
    }

    fn rate(&self, packets: f64) -> Rate {
        // What is no rate was refused before.
        packets_per_s(packets, self.packet_bytes).unwrap_or(Rate::ZERO)
    }

    fn link(&self, line: &Line, is_back: bool) -> Link {
        Link {
            rate: self.rate(line.packets_per_s),
            delay: line.delay,
            queue: Some(Backlog::Packets(line.queue_packets)),
            ecn: line.mark_packets.map(Backlog::Packets),
            loss: if is_back { 0.0 } else { line.loss },
            burst: line.burst,
        }
    }

    /// When anything is changed, besides losses, and the end.
    pub(super) fn boundaries(&self) -> Vec<Time> {
        let of_flows = self.flows.iter().flat_map(|flow| {
            let thetas = flow.theta.iter().map(|it| it.0);
            let thetas = thetas.filter(|at| *at > flow.start);
            thetas.chain([flow.start]).chain(flow.stop)
        });
        let of_lines = self.lines.iter().flat_map(|line| &line.rates);
        let end = Time::ZERO + self.duration;
        let all = of_flows.chain(of_lines.map(|it| it.0)).chain([end]);
        let mut all: Vec<Time> = all.map(|at| at.min(end)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Everything that happens, in order.
    fn script(&self, ports: &[Port], boundaries: &[Time]) -> Vec<(Time, Event)> {
        let mut script = Vec::new();
        for (index, flow) in self.flows.iter().enumerate() {
            script.push((flow.start, Event::Start(index)));
            script.extend(flow.stop.map(|at| (at, Event::Stop(index))));
            let thetas = flow.theta.iter();
            script.extend(thetas.map(|(at, theta)| (*at, Event::Theta(index, *theta))));
        }
        for (port, link, is_back) in ports {
            let line = &self.lines[*link];
            let rates = line.rates.iter();
            script.extend(rates.map(|(at, rate)| (*at, Event::Rate(*port, self.rate(*rate)))));
            let lose = line.lose.iter().filter(|_| !is_back);
            script.extend(lose.map(|(at, packets)| (*at, Event::Lose(*port, *packets))));
        }
        for pair in boundaries.windows(2) {
            script.push((report::half(pair[0], pair[1]), Event::Snapshot));
            script.push((pair[1], Event::Snapshot));
        }
        let (end, mut at) = (Time::ZERO + self.duration, Time::ZERO + self.sample);
        while at <= end {
            script.push((at, Event::Sample));
            at += self.sample;
        }
        script.retain(|(at, _)| *at <= end);
        script.sort_by_key(|(at, event)| (*at, event.rank()));
        script
    }
}

/// A port, its link, and whether it is of the way back.
pub(super) type Port = (PortId, usize, bool);

struct Play<'a> {
    setup: &'a Flows,
    world: World<End>,
    ports: Vec<PortId>,
    samples: Vec<(Sample, Vec<u64>)>,
    snapshots: Vec<Snapshot>,
    /// What had arrived of each flow when it was stopped.
    received_at_stop: Vec<Option<u64>>,
}

impl Play<'_> {
    fn happen(&mut self, event: Event) -> Result<(), FlowsError> {
        match event {
            Event::Sample => self.sample(),
            Event::Snapshot => self.snapshots.push(self.snapshot()),
            Event::Start(flow) => self.set_on(flow, true),
            Event::Stop(flow) => {
                self.received_at_stop[flow] = Some(self.received(flow));
                self.set_on(flow, false);
            }
            Event::Theta(flow, theta) => {
                let tell = |end: &mut End, _: Time| match end {
                    End::Sender(end) => end.set_theta(theta),
                    End::Receiver(_) => Ok(()),
                };
                self.world.command(sender(flow), tell)?;
            }
            Event::Rate(port, rate) => self.world.set_rate(port, rate),
            Event::Lose(port, packets) => self.world.lose_next(port, packets),
        }
        Ok(())
    }

    fn set_on(&mut self, flow: usize, is_on: bool) {
        self.world.command(sender(flow), |end, now| {
            if let End::Sender(end) = end {
                end.set_on(now, is_on);
            }
        });
    }

    fn sender(&self, flow: usize) -> Option<&SenderEnd> {
        match &self.world.endpoints()[sender(flow).0 as usize] {
            End::Sender(end) => Some(end),
            End::Receiver(_) => None,
        }
    }

    fn received(&self, flow: usize) -> u64 {
        match &self.world.endpoints()[receiver(flow).0 as usize] {
            End::Sender(_) => 0,
            End::Receiver(end) => end.received(),
        }
    }

    fn stats(&self) -> impl Iterator<Item = Stats> {
        self.ports.iter().map(|port| self.world.stats(*port))
    }

    fn sample(&mut self) {
        let received: Vec<u64> = (0..self.setup.flows.len())
            .map(|flow| self.received(flow))
            .collect();
        let before = self.samples.last().map(|it| &it.1);
        let flows = received.iter().enumerate().map(|(flow, received)| {
            let arrived = received - before.map_or(0, |it| it[flow]);
            let mut sample = FlowSample {
                goodput_packets_per_s: arrived as f64 / self.setup.sample.as_secs_f64(),
                ..FlowSample::default()
            };
            if let Some(end) = self.sender(flow).filter(|end| end.is_on()) {
                let state = end.state();
                sample.cwnd = state.window;
                sample.alpha = state.alpha;
                sample.rtt_s = state.rtt.as_ref().map(Duration::as_secs_f64);
            }
            sample
        });
        let sample = Sample {
            at_s: self.world.now().as_secs_f64(),
            flows: flows.collect(),
            queues: self.stats().map(|stats| stats.queue_packets).collect(),
        };
        self.samples.push((sample, received));
    }

    fn snapshot(&self) -> Snapshot {
        let at = self.world.now();
        let flows = (0..self.setup.flows.len()).map(|flow| {
            let meter = self.sender(flow).map(|end| end.meter(at));
            FlowSnapshot {
                received: self.received(flow),
                window_s: meter.map_or(0.0, |it| it.window_s),
                alpha_s: meter.map_or(0.0, |it| it.alpha_s),
            }
        });
        Snapshot {
            at,
            flows: flows.collect(),
            ports: self.stats().collect(),
        }
    }

    fn finish(self, boundaries: &[Time], ports: &[Port]) -> Run {
        let end = self.snapshot();
        let inside = self.world.inside();
        let flow = |flow: usize| {
            let sender = self.sender(flow);
            let counts = self.world.counts(data_way(flow));
            report::FlowEnd {
                state: sender.map_or_else(SenderState::default, SenderEnd::state),
                done: sender.and_then(SenderEnd::done),
                received: self.received_at_stop[flow].unwrap_or(end.flows[flow].received),
                counts,
                inside: inside[data_way(flow).0 as usize],
            }
        };
        let flows: Vec<_> = (0..self.setup.flows.len()).map(flow).collect();
        let Counts {
            entered,
            delivered,
            dropped,
            lost,
            marked,
            ..
        } = self.world.engine().counts();
        Run {
            flows: report::flows(self.setup, &end, &flows),
            ports: report::ports(self.setup, ports, &end.ports),
            phases: report::phases(self.setup, ports, boundaries, &self.snapshots),
            hops: end.ports.iter().map(|stats| stats.packets).sum(),
            samples: self.samples.into_iter().map(|it| it.0).collect(),
            packets: Packets {
                sent: entered,
                received: delivered,
                dropped: dropped + lost,
                marks: marked,
                inside: inside.iter().sum(),
            },
        }
    }
}
