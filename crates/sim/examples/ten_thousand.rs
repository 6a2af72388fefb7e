//! Ten thousand hosts join a cast within a second, and each control channel takes a millisecond for
//! each order: counts the orders that got lost, and says how much memory the coordinator took.
//!
//! `cargo run --release -p outpour-sim --example ten_thousand`

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // It measures itself.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use outpour_core::{NodeId, Time};
use outpour_protocols::Role;
use outpour_protocols::coordinator::backlog::Backlog;
use outpour_protocols::coordinator::{
    Config, Contact, Coordinator, Given, Input, Obedience, Order, Output, Participant, Report,
    TransferName,
};

const HOSTS: u32 = 10_000;
/// Hosts that are lost once the cast has begun.
const LOST: u32 = 20;
/// How often an order goes through a channel.
const PACE: Duration = Duration::from_millis(1);
const TRANSFER: TransferName = [1; 16];
const EPOCH: u64 = 1;

/// What one agent has heard.
struct Agent {
    obedience: Obedience,
    contacts: usize,
    left: u32,
    finished: bool,
}

struct Run {
    coordinator: Coordinator,
    channels: Vec<Backlog<Given>>,
    agents: Vec<Agent>,
    now: Time,
    said: u64,
    heard: u64,
    refused: u64,
    /// The most orders that waited at a time.
    waited: usize,
}

impl Run {
    fn new() -> Self {
        let participant = |node: u32| Participant {
            name: format!("host{node}"),
            role: match node {
                0 => Role::Source,
                _ => Role::Receiver,
            },
        };
        let agent = |_| Agent {
            obedience: Obedience::new(TRANSFER, EPOCH),
            contacts: 0,
            left: 0,
            finished: false,
        };
        Self {
            coordinator: Coordinator::new(Config {
                epoch: EPOCH,
                nodes: (0..=HOSTS).map(participant).collect(),
                size_bytes: 1 << 30,
                entries: 1,
                patience: Duration::from_secs(60),
            }),
            channels: (0..=HOSTS).map(|_| Backlog::default()).collect(),
            agents: (0..=HOSTS).map(agent).collect(),
            now: Time::ZERO,
            said: 0,
            heard: 0,
            refused: 0,
            waited: 0,
        }
    }

    fn tell(&mut self, input: Input) {
        for output in self.coordinator.handle(self.now, input) {
            if let Output::Order { to, given } = output {
                self.said += 1;
                self.channels[to.index()].push(given);
            }
        }
    }

    /// A millisecond passes: each channel carries one order.
    fn step(&mut self) {
        self.now += PACE;
        self.waited = self.waited.max(self.waiting());
        for (channel, agent) in self.channels.iter_mut().zip(&mut self.agents) {
            let Some(given) = channel.pop() else {
                continue;
            };
            self.heard += 1;
            if agent.obedience.admit(TRANSFER, given.stamp).is_err() {
                self.refused += 1;
                continue;
            }
            match given.order {
                Order::Begin { contacts } => agent.contacts += contacts.iter().count(),
                Order::Met { .. } => agent.contacts += 1,
                Order::Left { .. } => agent.left += 1,
                Order::Finish => agent.finished = true,
                Order::Dial { .. } | Order::Census | Order::Foreground { .. } => {}
            }
        }
    }

    fn waiting(&self) -> usize {
        self.channels.iter().map(Backlog::len).sum()
    }

    fn drain(&mut self) {
        while self.waiting() > 0 {
            self.step();
        }
    }
}

fn contact(node: u32) -> Contact {
    let [_, a, b, c] = node.to_be_bytes();
    Contact {
        addrs: vec![SocketAddr::from(([10, a, b, c], 4000))],
        key: [c; 32],
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let started = std::time::Instant::now();
    let mut run = Run::new();
    let a_step = HOSTS.div_ceil(1000);
    for node in 0..=HOSTS {
        let contact = contact(node);
        let node = NodeId(node);
        run.tell(Input::Joined { node, contact });
        if node.0.is_multiple_of(a_step) {
            run.step();
        }
    }
    let joined = run.now;
    let lost = HOSTS - LOST + 1..=HOSTS;
    for node in lost.clone() {
        let error = "its channel broke".to_owned();
        let node = NodeId(node);
        run.tell(Input::Lost { node, error });
    }
    run.drain();
    for node in 1..lost.start().to_owned() {
        let report = Report::Complete { received_bytes: 0 };
        let node = NodeId(node);
        run.tell(Input::Report { node, report });
    }
    run.drain();
    let present = &run.agents[..*lost.start() as usize];
    let all = |agent: &&Agent| {
        agent.contacts == HOSTS as usize + 1 && agent.left == LOST && agent.finished
    };
    let complete = present.iter().filter(all).count();
    let missing: u64 = present.iter().map(missing).sum();
    println!("hosts           {HOSTS}, and one source");
    println!(
        "joined within   {:.3} s of simulated time",
        joined.as_secs_f64()
    );
    println!("orders said     {}", run.said);
    println!("orders heard    {}", run.heard);
    println!("orders refused  {}", run.refused);
    println!("orders lost     {missing}");
    println!(
        "told everything {complete} of {} that stayed",
        present.len()
    );
    println!("most waiting    {} orders", run.waited);
    println!(
        "all was heard   {:.3} s after the first joined",
        run.now.as_secs_f64()
    );
    println!("took            {:.1} s", started.elapsed().as_secs_f64());
    println!("peak memory     {}", peak()?);
    match missing + run.refused {
        0 => Ok(()),
        lost => Err(format!("{lost} orders did not arrive").into()),
    }
}

/// How many orders of those that matter an agent did not hear.
fn missing(agent: &Agent) -> u64 {
    let met = (HOSTS as usize + 1).abs_diff(agent.contacts) as u64;
    met + u64::from(LOST.abs_diff(agent.left)) + u64::from(!agent.finished)
}

/// The most memory that this process had, as the kernel says.
fn peak() -> Result<String, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(line.ok_or("the kernel does not say")?.trim().to_owned())
}
